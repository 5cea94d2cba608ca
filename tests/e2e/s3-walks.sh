#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What walks all snapshots of a service that is far away reads what they are made of several at a time, each once, and
# finds the same as in a directory: `repo usage`, maintenance, verify. The cache has no room for what was read before,
# as with thousands of snapshots.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
SNAPSHOTS=24
check "a repository" sf "$WORK/near" repo create --splitter FIXED-128K --quiet
for i in $(seq $SNAPSHOTS); do
    random_file "$WORK/image" 300000 "$i" # three chunks: an index document
    sf "$WORK/near" backup "$WORK/image" --as "t@h:/v$((i % 4))" --quiet || fail "backup $i"
done
s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK"
ask_service() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1"; }
ask_service _set/far/50 >/dev/null
mkdir "$WORK/conf"
printf 'access-key = a\nsecret-key = a\n' | secret "$WORK/keys"
printf '[repository "far"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = near/\ncredentials = %s\n' \
    "$port" "$WORK/keys" >"$WORK/conf/snapferry.ini"
printf 'password-file = %s\n' "$WORK/password" >>"$WORK/conf/snapferry.ini"
far() { "$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.far" --cache-size 256KiB -r far "$@"; }
near() { sf "$WORK/near" "$@"; }
# Of a result: what does not depend on when it was.
numbers() {
    tail -n 1 "$1" | jq -c 'del(.seconds, .started, .nextFull, .bytesPerSecond, .stages, .bottleneck, .collections,
        .readSinceNs)'
}
same_numbers() { same "$1" "$(numbers "$WORK/far.json")" "$(numbers "$WORK/near.json")"; }

# few WHAT: gets of packs that began while no other one was under way. Each snapshot needs a manifest, a directory and
# an index document: one after the other these are 48 and more, eight at a time two to ten.
few() {
    local alone most
    alone=$(ask_service _alone) most=$(ask_service _reads)
    check "$1: several reads at a time ($most)" test "$most" -ge 4
    check "$1: few are waited for alone ($alone)" test "$alone" -le 24
}
anew() { ask_service _alone >/dev/null; ask_service _reads >/dev/null; ask_service _requests >/dev/null; }

near repo usage --json >"$WORK/near.json"
for cache in cold warm; do
    anew
    far repo usage --json >"$WORK/far.json"
    same_numbers "$cache: repo usage finds what it does in a directory"
    few "$cache, repo usage"
done
requests=$(ask_service _requests)
check "each is asked for once ($requests requests)" test "$requests" -le $((2 * (3 * SNAPSHOTS + 50) + SNAPSHOTS))
# What each volume takes, of the same snapshots, volume by volume.
mv "$WORK/near.json" "$WORK/all.json"
near repo usage --volumes --json >"$WORK/near.json"
anew
far repo usage --volumes --json >"$WORK/far.json"
same_numbers "repo usage --volumes finds what it does in a directory"
few "repo usage --volumes"
same "of four volumes" "$(result 'volumes | length' <"$WORK/far.json")" 4
# Ended while it reads, farther away.
ask_service _set/far/400 >/dev/null
"$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.cut" --cache-size 256KiB -r far repo usage --volumes --json \
    >"$WORK/cut.json" 2>/dev/null &
cut=$!
for _ in $(seq 300); do grep -q '"type":"progress"' "$WORK/cut.json" && break; sleep 0.1; done
check "it shows progress" grep -q '"type":"progress".*"verb":"repo usage"' "$WORK/cut.json"
kill -TERM $cut
wait $cut
same "and is interrupted" "$?" 130
same "without a result" "$(result class <"$WORK/cut.json")" interrupted
ask_service _set/far/50 >/dev/null
mv "$WORK/all.json" "$WORK/near.json"

# With room in the cache what is left are some lists and the like, none of them of what only directories have.
room() { "$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.room" -r far repo usage --quiet >/dev/null; }
room
anew
check "repo usage with a cache that has room" room
requests=$(ask_service _requests)
check "takes few requests ($requests)" test "$requests" -le 28
# On a disk that is full by then: without it, and with the same answers.
on_full_disk() {
    list() { "$SF" --config-dir "$WORK/conf" --cache-dir "$1" -r far snapshot list --json | tail -n 1; }
    mount -t tmpfs -o size=8m none "$WORK/tiny" && [ "$(list "$WORK/tiny")" = "$(cat "$WORK/list")" ] &&
        rm "$WORK"/tiny/*/metadata && { ! dd if=/dev/zero of="$WORK/tiny/fill" bs=4k 2>/dev/null; } &&
        [ "$(df --output=avail "$WORK/tiny" | tail -n 1)" -eq 0 ] && [ "$(list "$WORK/tiny")" = "$(cat "$WORK/list")" ]
}
mkdir "$WORK/tiny"
far snapshot list --json | tail -n 1 >"$WORK/list"
check "snapshots are listed with a cache on a disk that is full" \
    env SF="$SF" WORK="$WORK" unshare -m bash -c "$(declare -f on_full_disk); on_full_disk"
anew
check "verify" far verify --quiet
few verify
anew
check "maintenance" far maintenance --full --quiet
few maintenance

# Requests that fail where they are read ahead are made again. (Full maintenance has stored the manifests together:
# what is read are directories and index documents.)
near repo usage --json >"$WORK/near.json"
ask_service _fault/denied/3/40 >/dev/null
far repo usage --json >"$WORK/far.json"
ask_service _fault/none/0 >/dev/null
same_numbers "a read ahead that fails is no damage, and makes nothing garbage"

# What is damaged in the middle is named as in a directory.
# The pack of some backup, which has an index document and behind it a directory; others have policies alone.
name=$("$TOOLS/index_entries" "$WORK/near" "$WORK/password" | awk '/^x/ {print $2}' | sort | sed -n 15p)
pack=$(find "$WORK/near" -name "*${name: -40}.f")
check "the pack of a backup" test -f "$pack"
words() { sed -E "s#^snapferry: ##; s#http://[^ ]*|$WORK/near##g" "$1"; }
damaged() { # WHAT: is damaged by now
    local verb rc where
    for verb in "maintenance --full" "repo usage"; do
        near $verb >"$WORK/out" 2>"$WORK/near.err"
        rc=$?
        far $verb >"$WORK/out" 2>"$WORK/far.err"
        same "$1: $verb, exit code" $? $rc
        check "$1: $verb, which is a failure" test $rc -ne 0
        same "$1: $verb, words" "$(words "$WORK/far.err")" "$(words "$WORK/near.err")"
    done
    near verify --json >"$WORK/near.json" 2>"$WORK/near.err"
    rc=$?
    far verify --json >"$WORK/far.json" 2>"$WORK/far.err"
    same "$1: verify, exit code" $? $rc
    same "$1: verify, words" "$(words "$WORK/far.err")" "$(words "$WORK/near.err")"
    for where in far near; do
        grep '"damage"' "$WORK/$where.json" | sed 's/ in repository [^"]*"/"/' | sort >"$WORK/$where.damages"
    done
    check "$1: verify, damages" cmp "$WORK/far.damages" "$WORK/near.damages"
    check "$1: verify, which are some" test -s "$WORK/near.damages"
    same_numbers "$1: verify, numbers"
}
cp "$pack" "$WORK/pack"
for what in 150:document 260:directory; do
    printf XXXX | dd of="$pack" bs=1 seek="${what%:*}" conv=notrunc status=none
    damaged "${what#*:}"
    cat "$WORK/pack" >"$pack"
done
rm "$pack"
damaged "a missing pack"
cp "$WORK/pack" "$pack"

# What is not needed any more, and only that, is removed: the same by both.
for id in $(near snapshot list --json | tail -n 1 | jq -r '.snapshots[3, 9, 17].id'); do
    near snapshot delete "$id" --quiet
done
cp -a "$WORK/near" "$WORK/copy"
sf "$WORK/copy" maintenance --full --safety none --json >"$WORK/near.json" 2>"$WORK/near.err"
anew
far maintenance --full --safety none --json >"$WORK/far.json" 2>"$WORK/far.err"
far maintenance --full --safety none --quiet 2>"$WORK/far.err"
few "short packs are stored again, and deleted"
deletes=$(ask_service _deletes)
check "which is done for several at a time ($deletes)" test "$deletes" -ge 4
removed() { tail -n 1 "$1" | jq -c '[.snapshots, .used, .marked, .dropped, .rewritten]'; }
same "it removes what one of a directory does" "$(removed "$WORK/far.json")" "$(removed "$WORK/near.json")"
check "which is something" test "$(tail -n 1 "$WORK/near.json" | jq .marked.count)" -ge 9
check "and all is there" near verify --quiet
finish
