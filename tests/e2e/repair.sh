#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `repo repair`: index blobs of each kind are deleted, cut and overwritten; after it every snapshot can be read, by
# clients that start anew, as far as the packs are whole. Killed at each step, with other writers, with damaged packs.
# With KOPIA=/path/to/kopia stock Kopia judges, too. THROUGH_S3=1: through S3. ROUNDS=N: so many random damages.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
[ -z "${THROUGH_S3:-}" ] || through_s3
export KOPIA_CHECK_FOR_UPDATES=false
R=$WORK/repo
password() { # the one of the next repository
    secret "$WORK/password"
    [ -z "${S3_CONF:-}" ] || secret "$S3_CONF/password" <"$WORK/password"
}
repair() { sf "$R" repo repair "$@"; }
number() { repair --json "$@" 2>/dev/null | tail -n 1 | jq -c "$N"; }
N='[.contents.count, .deletionMarks, .indexBlobs.damaged, .indexBlobs.setAside, .writeEpoch, .emptyEpochs]'
again() { rm -rf "$R" "$CACHE" && cp -a "$BASE" "$R"; }
named() { sf "$R" snapshot list --all --json | tail -n 1 | jq -c '.snapshots | map([.id, .rootEntry.obj]) | sort'; }
lost() { jq -cn --argjson a "$WANTED" --argjson b "$(named)" '$a - $b'; }
flip() { printf 'XXXX' | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") / 2)) conv=notrunc status=none; }
stock() { # the repository as stock Kopia sees it
    rm -rf "$WORK/k"
    mkdir -p "$WORK/k"
    k() { KOPIA_PASSWORD=$(cat "$WORK/password") KOPIA_CONFIG_PATH=$WORK/k/config KOPIA_LOG_DIR=$WORK/k/log \
        XDG_CACHE_HOME=$WORK/k/cache "$KOPIA" --no-progress "$@"; }
    k repository connect filesystem --path "$R" >/dev/null 2>&1 && k snapshot verify --verify-files-percent=100
}
whole() { # WHAT: a client that has nothing in its cache finds all snapshots, and nothing damaged
    rm -rf "$CACHE"
    check "$1: nothing is damaged" sf "$R" verify --quiet
    same "$1: no snapshot is missing" "$(lost)" '[]'
    [ -z "${KOPIA:-}" ] || check "$1: stock Kopia agrees" stock
}
# mended WHAT: what a dry run says is what is done; then all is whole, and nothing is left to be done.
mended() {
    local would
    would=$(number --dry-run)
    same "$1: a dry run tells" "$(number)" "$would"
    whole "$1"
    same "$1: nothing is left" "$(number --dry-run)" '[0,0,0,0,-1,0]'
}

# ---- a repository of stock Kopia with all kinds of index blobs ----

printf epochs | password
mkdir "$WORK/fixtures"
cp -a "$GOLDEN/epochs-history" "$WORK/fixtures/"
BASE=$WORK/fixtures/epochs-history
again
WANTED=$(named)
same "there are snapshots" "$(jq length <<<"$WANTED")" 9
expect "a whole index" 0 'Nothing had to be repaired' -- repair
mended "nothing was wrong"
kinds="x/r0_ x/r4_ x/s5_ x/n8_ x/n9_ x/n10"
for how in deleted cut overwritten; do
    for kind in $kinds; do
        # Of the default tests each kind in one way or two.
        case $how:$kind in
            deleted:x/r4_ | deleted:x/n8_ | cut:x/r0_ | cut:x/n* | overwritten:x/s5_ | overwritten:x/n8_ | *wr*:x/n10)
                [ "${ROUNDS:-1}" -gt 2 ] || continue ;;
        esac
        again
        f=$(find "$R/$kind" -type f | sort | head -n 1)
        case $how in
            deleted) rm "$f" ;;
            cut) truncate -s 40 "$f" ;;
            overwritten) flip "$f" ;;
        esac
        [ $how = deleted ] || rm -rf "$CACHE"
        if [ $how = overwritten ] && [ $kind = x/n9_ ]; then
            expect "an index blob that is damaged: what helps is said" 15 'repo repair' -- sf "$R" snapshot list
            expect "by verify, too" 15 'repo repair' -- sf "$R" verify
        fi
        mended "$kind $how"
    done
done
again
rm "$R"/xe* "$R"/xw*
mended "all markers of epochs and watermarks are gone"
same "... the write epoch is there again" "$(ls "$R" | grep '^xe')" xe10.f
again
rm -rf "$R"/x/r*_
for f in "$R"/x/s*_/*; do flip "$f"; done
same "... epochs without index blobs are counted" "$(number --dry-run | jq '.[5]')" 7
mended "no range, and all compacted epochs damaged"
check "what was damaged is kept" [ "$(find "$R" -name '*.f' | tr -d / | grep -c 'damaged-xs')" = 8 ]
again
rm -rf "$R"/x "$R"/xe* "$R"/xw*
expect "all of the index is gone: verify says what helps" 15 'repo repair' -- sf "$R" verify
mended "all of the index is gone"
again
sf "$R" snapshot list --quiet # into the cache
for f in "$R"/x/n9_/* "$R"/x/r*_/*; do flip "$f"; done
find "$R/q" -name '*.f' | while read -r f; do truncate -s -1 "$f"; done
expect "this node has damaged index blobs in its cache, and the packs' are damaged, too" 0 'Local indexes' -- repair
whole "... from the cache"

# What is left of a compacted set, when the rest of it and what it had replaced are gone.
again
rm -rf "$R"/x/r*_ "$R"/xe8.f
f=$(ls "$R"/x/s4_/*)
mv "$f" "${f%-c1.f}-c2.f"
mended "a part of a compacted set is left"
check "... it is set aside" [ "$(find "$R" -name '*.f' | tr -d / | grep -c 'damaged-xs4_')" = 1 ]

RANDOM=${SEED:-1}
for i in $(seq "${ROUNDS:-1}"); do
    again
    [ $((RANDOM % 2)) = 0 ] || sf "$R" snapshot list --quiet
    what=
    for _ in $(seq $((RANDOM % 14 + 1))); do
        mapfile -t all < <(find "$R"/x* -type f | sort)
        f=${all[RANDOM % ${#all[@]}]}
        how=$((RANDOM % 3))
        what="$what $how:${f#"$R/"}"
        case $how in
            0) rm "$f" ;;
            1) truncate -s $((RANDOM % ($(stat -c %s "$f") + 1))) "$f" ;;
            2) case $f in *.f) [ ! -s "$f" ] || [[ $f == */xe* || $f == */xw* ]] || flip "$f" ;; esac ;;
        esac
    done
    mended "random damage $i (SEED=${SEED:-1}:$what)"
done

# ---- one of our own, with maintenance ----

password <<<"test password"
m() { sf "$R" maintenance --node-name n1 --quiet "$@"; }
rm -rf "$R" "$CACHE"
sf "$R" repo create --quiet --node-name n1
random_file "$WORK/v" 3000000 1
for i in 1 2 3 4 5 6 7; do
    printf 'version %s' "$i" | dd of="$WORK/v" bs=1 seek=$((i * 300000)) conv=notrunc status=none
    cp "$WORK/v" "$WORK/v$i"
    sf "$R" backup "$WORK/v" --as v@h:/v --quiet
done
# As if each had been written two days after the one before.
e=0
for f in $(cd "$R/x/n0_" && ls -tr); do
    mkdir -p "$R/x/n${e}_"
    [ $e = 0 ] || mv "$R/x/n0_/$f" "$R/x/n${e}_/$f"
    touch -d "$((40 - 2 * e)) days ago" "$R/x/n${e}_/$f"
    [ $e = 7 ] || e=$((e + 1))
done
for i in 1 2 3 4 5 6 7; do printf epoch-marker >"$R/xe$i.f"; done
"$TOOLS/age_repository" "$R" "$WORK/password" 96h
check "maintenance compacts" m
WANTED=$(named)
restored() { # WHAT: each version as it was
    local i id ids
    mapfile -t ids < <(sf "$R" snapshot list --json | tail -n 1 | jq -r '.snapshots | sort_by(.startTime) | .[].id')
    for i in 1 2 3 4 5 6 7; do
        rm -f "$WORK/out"
        sf "$R" restore "${ids[i - 1]}" "$WORK/out" --quiet && cmp "$WORK/out" "$WORK/v$i" ||
            { fail "$1: version $i"; return; }
    done
    pass "$1: all versions are restored"
}
restored "before"
rm -rf "$WORK/base" && cp -a "$R" "$WORK/base" && BASE=$WORK/base
again
rm -rf "$R"/x/[sn]3_
expect "maintenance does nothing with a lost index, and says what helps" 15 'repo repair' -- m --full
rm -rf "$R"/x/[sn]*_ # all but markers
mended "all index blobs are gone"
restored "all index blobs are gone"
check "maintenance runs again" m --full
whole "... after that"
rm -f "$R/x/s2_"/*
flip "$(ls "$R"/x/s4_/* | head -n 1)"
mended "two compacted epochs"
check "maintenance compacts again" m --full
whole "... after that, too"
restored "and"

# Killed at each step: no worse than before, and the next run completes it.
for at in repair-epoch repair-marked repair-written repair-published repair-stand-in:2 repair-aside:2; do
    again
    rm -rf "$R"/xe* "$R"/x/s[023]_ "$R"/x/n[012347]_
    for f in "$R"/x/s1_/* "$R"/x/n5_/* "$R"/x/n6_/*; do flip "$f"; done
    opener
    expect "killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SF" -r "$R" --password-file "$WORK/password" repo repair
    rm -rf "$CACHE"
    check "... the next one completes it" repair --quiet
    whole "killed at $at"
done
restored "killed"

# A marker of an epoch that never was: one index blob for each before it is not what helps.
again
printf epoch-marker >"$R/xe2000000000.f"
opener
n=$(find "$R" -type f | wc -l)
expect "a marker of an epoch that never was: nothing is made up" 15 \
    'epochs before epoch 2000000000 have no index blobs' -- repair
expect "what to do is told" 15 'xe2000000000 that no client has written' -- repair --quiet
same "nothing was written" "$(find "$R" -type f | wc -l)" "$n"
rm "$R/xe2000000000.f"
check "without it, it is repaired" repair --quiet
whole "and"

# A pack whose local index is damaged is named; what it had is not known, all else is found.
again
rm -rf "$R"/x/[sn]*_
q=$(find "$R/q" -name '*.f' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
name=$(tr -d / <<<"${q#"$R"}" | sed 's/\.f$//')
truncate -s -1 "$q"
expect "what cannot be read is named" 15 "pack $name .*the number of its contents is not known" -- repair
expect "and counted" 15 '"damagedUnknown":1' -- repair --json
rm -rf "$CACHE"
expect "all but its snapshot is there" 0 -- sf "$R" snapshot list
same "six of seven" "$(jq -n --argjson l "$(lost)" '$l | length')" 1
printf '\021' >>"$q"
dd if="$BASE${q#"$R"}" of="$q" bs=1M conv=notrunc status=none
mended "when it is back"

# A content whose pack is missing, and that another pack has, too: two nodes have stored the same at the same time.
again
cp -a "$R" "$WORK/other"
random_file "$WORK/b" 700000 5
sf "$R" backup "$WORK/b" --as b@h:/b --quiet
rm -rf "$CACHE"
sf "$WORK/other" backup "$WORK/b" --as b@h:/b --quiet
(cd "$WORK/other" && tar -cf - x p q) | tar -xf - -C "$R"
rm -rf "$CACHE"
copies=0
mapfile -t new < <(cd "$R" && find p -name '*.f' | sort | while read -r f; do [ -e "$BASE/$f" ] || echo "$f"; done)
same "two packs have the same contents" "${#new[@]}" 2
hit() { sf "$R" verify --json 2>/dev/null | grep -c '"path":"volume.img"'; }
for f in "${new[@]}"; do
    rm -rf "$WORK/with" "$CACHE" && cp -a "$R" "$WORK/with"
    rm "$R/$f"
    if [ "$(hit)" -gt 0 ]; then
        copies=$((copies + 1))
        expect "the copy is found" 0 'Copies +[1-9]' -- repair
        rm -rf "$CACHE"
        same "nothing of the volume is damaged any more" "$(hit)" 0
    fi
    rm -rf "$R" && mv "$WORK/with" "$R"
done
same "the index had one of them" $copies 1

# Deleted contents stay deleted where the mark is left.
again
sf "$R" snapshot delete latest --as v@h:/v --force --quiet
"$TOOLS/age_repository" "$R" "$WORK/password" 30h
mkdir "$WORK/before" && cp -a "$R/x" "$WORK/before"
check "what it alone needed is marked deleted" m --full
marked() { sf "$R" maintenance --node-name n1 --full --dry-run --json | tail -n 1 | jq -c '.kept.markedEarlier.count'; }
n=$(marked)
check "something is" [ "$n" -gt 0 ]
(cd "$WORK/before" && find x -type f) | while read -r f; do rm -f "$R/$f"; done
check "all older index blobs are lost" repair --quiet
same "the marks are not hidden" "$(marked)" "$n"
rm -rf "$CACHE"
check "whole" sf "$R" verify --quiet

# Packs of a session that may be writing are left to it.
again
random_file "$WORK/w" 30000000 8
opener
expect "a backup is killed" 137 -- env SNAPFERRY_CRASH_AT=pack-renamed "$SF" -r "$R" --password-file "$WORK/password" \
    backup "$WORK/w" --as w@h:/w --quiet
expect "its pack is left alone" 0 'Left to writers +[12] packs?' -- repair
same "nothing is taken from it" "$(number --dry-run)" '[0,0,0,0,-1,0]'
rm -rf "$R/x/n7_"
check "another backup at the same time" sf "$R" backup "$WORK/w" --as w@h:/w --quiet
mended "and what was lost"
check "no marker of a repair is left" [ "$(find "$R/s" -name '*.f' 2>/dev/null | wc -l)" -le 1 ]

# Only packs of which no index has anything.
again
rm -rf "$R/x/n7_"
would=$(number --dry-run)
same "only what is missing: the same is found" "$(number --dry-run --packs missing)" "$would"
same "... by fewer packs" "$(N='.packs.read < .packs.count' number --packs missing)" true
whole "only what is missing"

# What a run cannot write ends it with a reason; the next one completes it, and nothing more is set aside.
if [ -z "${THROUGH_S3:-}" ] && type strace >/dev/null 2>&1; then
    for what in "rename,renameat,renameat2 ENOSPC 3 18" "fsync,fdatasync EIO 13 1" "mkdirat ENOSPC 2 18"; do
        read -r calls error number code <<<"$what"
        again
        rm -rf "$R"/xe* "$R"/x/s[023]_ "$R"/x/n[012347]_
        for f in "$R"/x/s1_/* "$R"/x/n5_/* "$R"/x/n6_/*; do flip "$f"; done
        opener
        expect "${calls%%,*}: $error" "$code" -- strace -f -o "$WORK/trace" -e trace="$calls" \
            -e inject="$calls:error=$error:when=$number" "$SF" -r "$R" --password-file "$WORK/password" repo repair
        rm -rf "$CACHE"
        check "... the next one completes it" repair --quiet
        same "... what is damaged is set aside" "$(find "$R" -name '*.f' | tr -d / | grep -c 'damaged-x')" 3
        whole "${calls%%,*}: $error"
    done
else
    skip "system calls that fail" "no strace here, or through S3"
fi

# Others write while index blobs are lost and repaired.
again
writer() {
    local i
    for i in 1 2 3 4; do
        random_file "$WORK/w$1" 600000 "$1$i"
        XDG_CACHE_HOME=$WORK/cache$1 sf "$R" backup "$WORK/w$1" --as "w@h:/w$1" --quiet || return
    done
}
rm -f "$WORK/lost"
writer 1 & one=$!
writer 2 & two=$!
for _ in $(seq 100); do
    f=$(find "$R/x" -name '*.f' ! -newermt '-1 second' | shuf -n 1)
    [ -z "$f" ] || { rm -f "$f" && echo "$f" >>"$WORK/lost"; }
    XDG_CACHE_HOME=$WORK/cache3 repair --quiet || echo failed >>"$WORK/failed"
    kill -0 $one 2>/dev/null || kill -0 $two 2>/dev/null || break
    sleep 0.3
done
check "one writes meanwhile" wait $one
check "another, too" wait $two
check "index blobs were lost" [ -s "$WORK/lost" ]
check "and each repair succeeded" [ ! -e "$WORK/failed" ]
mended "with two writers"
same "all that was backed up is there" "$(sf "$R" snapshot list --json | result 'snapshots | length')" 15

# With error correction, and hashes of which the iv of a content is a part.
rm -rf "$WORK/ecc" "$CACHE"
sf "$WORK/ecc" repo create --quiet --ecc-percent 2 --block-hash BLAKE2B-256
sf "$WORK/ecc" backup "$WORK/v" --as v@h:/v --quiet
rm -rf "$WORK/ecc"/x* "$CACHE"
check "with error correction" sf "$WORK/ecc" repo repair --quiet
check "... it is whole" sf "$WORK/ecc" verify --quiet
check "... and restored" sf "$WORK/ecc" restore latest "$WORK/ecc.out" --as v@h:/v --quiet
check "... as it was" cmp "$WORK/v" "$WORK/ecc.out"
# What claims to be an index, and is more than memory or any index: refused, and not held.
x=$(find "$WORK/ecc" -path '*/x*' -name '*.f' | head -n 1)
truncate -s 3G "$x"
rm -rf "$CACHE"
expect "an index blob of 3 GiB is refused" 15 'is damaged: 3221225472 bytes' -- sf "$WORK/ecc" snapshot list
truncate -s 128M "$x"
"$TOOLS/rss_peak" "$WORK/peak" "$SNAPFERRY" -r "$WORK/ecc" --password-file "$WORK/password" snapshot list \
    >"$WORK/out" 2>&1
same "one that grew to 128 MiB as well, beyond correction" $? 15
check "... it is named" grep -q 'index blob .*error correction: .* are damaged' "$WORK/out"
peak=$(jq '.own + .file' "$WORK/peak")
check "... and was not in memory: $((peak >> 20)) MiB" test "$peak" -lt $((64 << 20))
check "... a repair sets it aside" sf "$WORK/ecc" repo repair --quiet
check "... and it is whole again" sf "$WORK/ecc" verify --quiet

# Refusals.
again
mkdir "$WORK/ro"
if [ -z "${THROUGH_S3:-}" ] && is_root && mount --bind "$R" "$WORK/ro" && at_exit "umount '$WORK/ro'" &&
    mount -o remount,ro,bind "$WORK/ro"; then
    check "a whole one may be read-only" sf "$WORK/ro" repo repair --quiet
    rm -rf "$R/x/n7_" "$CACHE"
    expect "one that lacks something not" 20 'read-only' -- sf "$WORK/ro" repo repair
    expect "but for a dry run" 0 'Nothing was changed' -- sf "$WORK/ro" repo repair --dry-run
else
    skip "a read-only file system" "no bind mounts here, or through S3"
fi
again
expect "another value" 2 'all or missing' -- repair --packs some
check "a copy is made" sf "$R" repo sync-to "$WORK/copy" --quiet
rm -f "$WORK/copy"/x/n6_/*
expect "a copy is not changed" 20 'is a copy' -- sf "$WORK/copy" repo repair
expect "a dry run of one" 0 'Nothing was changed' -- sf "$WORK/copy" repo repair --dry-run
again
rm -rf "$R"
cp -a "$GOLDEN/v1-plain" "$R"
tar -xJOf tests/fixtures/expected.tar.xz v1-plain.expected.json | jq -j .password | password
expect "an index without epochs" 13 'without epochs' -- repair
password <<<"test password"

# In object storage damaged index blobs are copied to their new names, and deleted then.
if [ -z "${THROUGH_S3:-}" ]; then
    again
    through_s3
    rm -f "$R"/x/n6_/*
    f=$(ls "$R"/x/n7_/* | head -n 1)
    flip "$f"
    cp "$f" "$WORK/damaged"
    rm -rf "$CACHE"
    expect "through S3: an index blob is damaged" 15 'repo repair' -- sf "$R" snapshot list
    mended "through S3"
    aside=$(find "$R" -name '*.f' | while read -r f; do
        [[ $(tr -d / <<<"${f#"$R"}") != damaged-xn7_* ]] || echo "$f"
    done)
    check "it is kept as it was" cmp "$aside" "$WORK/damaged"
    restored "through S3"
fi

finish
