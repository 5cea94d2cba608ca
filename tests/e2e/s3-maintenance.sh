#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Maintenance of repositories in S3 (CF-40, CF-42, E-05): in OpenStack Swift's s3api, whose clock and ours move a day
# between two runs (libfaketime), space comes back in the third one; in the project's own service requests fail, lists
# lag and hide what is there, clocks differ: nothing is removed that is needed, and the next run completes it.
# THROUGH_S3=1 runs maintenance*.sh likewise, with all places at which a run is killed (make test-s3-maintenance).
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
. tests/s3-lib.sh
random_file "$WORK/a" 6000000 1
random_file "$WORK/b" 9000000 2

# ---- a real server ----

swift() {
    local at packs
    export FAKETIME_TIMESTAMP_FILE=$WORK/clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
    export LD_PRELOAD=$FAKE
    now() { echo "+$1h" >"$WORK/clock"; }
    now 0
    swift_service swift
    mkdir -p "$WORK/conf"
    printf '[daemon]\nnode-name = n1\n[repository "far"]\ntype = s3\nendpoint = %s\nbucket = bucket\nprefix = nas/\n' \
        "$endpoint" >"$WORK/conf/snapferry.ini"
    printf 'credentials = %s\npassword-file = %s\n' "$WORK/s3-keys" "$WORK/password" >>"$WORK/conf/snapferry.ini"
    far() { "$SNAPFERRY" --config-dir "$WORK/conf" -r far "$@"; }
    bytes() { far repo status --json | result packBytes; }
    check "a repository in Swift" far repo create --quiet
    for v in a b; do far backup "$WORK/$v" --as "$v@h:/v" --quiet; done
    full=$(bytes)
    far snapshot delete latest --as b@h:/v --force --quiet
    now 25
    expect "what would be done" 0 'marked deleted by the next run' -- far maintenance --full --dry-run --explain
    expect "another node does not do it" 20 'belongs to snapferry-maintenance@n1' -- \
        far maintenance --full --node-name n2
    expect "the first run marks" 0 'Marked deleted +[0-9]+ contents, 8\.6 MiB' -- far maintenance --full
    expect "usage" 0 'Unneeded +8\.6 MiB  freed by' -- far repo usage
    now 50
    check "the second waits" far maintenance --full --quiet
    check "no byte has come back" [ "$(bytes)" -ge "$full" ]
    now 75
    for at in maintenance-begun maintenance-recorded:2 maintenance-dropped maintenance-pack-deleted; do
        expect "the third, killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SNAPFERRY" --config-dir "$WORK/conf" \
            -r far maintenance --full
        check "whole after that" far verify --quiet
    done
    check "the next one completes it" far maintenance --full --quiet
    check "the space is back" [ "$(bytes)" -lt $((full - 8900000)) ]
    expect "whole" 0 'no damage found' -- far verify
    check "restored" far restore latest --as a@h:/v "$WORK/out" --quiet
    check "as it was" cmp "$WORK/a" "$WORK/out"
    packs=$(s3_names nas/p | wc -l)
    far backup "$WORK/b" --as b@h:/v --quiet
    far snapshot delete latest --as b@h:/v --force --quiet
    check "without delays, as nobody else uses it" far maintenance --full --safety=none --quiet
    same "in one run" "$(s3_names nas/p | wc -l)" "$packs"
    check "what is left is whole" far verify --quiet
    unset LD_PRELOAD FAKETIME_TIMESTAMP_FILE
}
FAKE=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1)
if ! /usr/bin/python3 -c 'import swift, eventlet' 2>/dev/null || [ -z "$FAKE" ]; then
    skip "maintenance in Swift" "python3-swift or libfaketime is not installed"
else
    swift
fi

# ---- a server that misbehaves; the same repository as a directory is aged and looked at ----

through_s3
R=$WORK/repo
m() { sf "$R" maintenance --full --node-name n1 "$@"; }
age() { "$TOOLS/age_repository" "$R" "$WORK/password" "$1"; }
packs() { (cd "$1" && find p q -type f | sort); }
bytes() { find "$R/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
check "a repository" sf "$R" repo create --quiet --node-name n1
for v in a b; do sf "$R" backup "$WORK/$v" --as "$v@h:/v" --quiet; done
sf "$R" snapshot delete latest --as b@h:/v --force --quiet
full=$(bytes)
age 25

fault _set/skew/400 >/dev/null
expect "clocks differ by more than five minutes" 21 'clocks differ by more than 5 minutes' -- m
fault _set/skew/-400 >/dev/null
expect "the other way round" 21 'clocks differ' -- m
fault _set/skew/100 >/dev/null
check "by less than that" m --quiet
fault _set/skew/0 >/dev/null
check "by nothing" m --quiet

# Lists that do not show what was just put.
same "it has marked" "$(m --dry-run --json | result 'kept.markedEarlier.count > 0')" true
sleep 2 # times of objects are whole seconds
fault _set/lag/1 >/dev/null
had=$(find "$R" -name '*.f' ! -name 'kopia.maintenance.f' | sort)
expect "lists that lag" 1 'lists of .* lag by more than 30 seconds' -- m
same "nothing was removed, or written" "$(find "$R" -name '*.f' ! -name 'kopia.maintenance.f' | sort)" "$had"
m >"$WORK/out1" 2>&1 &
pid=$!
sleep 2
kill -INT "$(pgrep -P $pid -x snapferry || echo $pid)"
wait $pid
same "a cancel while it waits for them" $? 130
m >"$WORK/out1" 2>&1 &
pid=$!
sleep 1
fault _set/lag/0 >/dev/null
wait $pid
same "it goes on when they do not" $? 0

# Lists that do not show what has long been there.
age 25
check "this node has seen all of the index" sf "$R" verify --quiet
names=$(cd "$R/x" && find . -name '*.f' | tr -d ./ | sed 's/f$//;s/^/x/')
for name in $names; do
    fault "_hide/${name:8:20}" >/dev/null
    expect "a list hides $name" 1 "the list of index blobs in .* lacks $name, which is there" -- m
done
# A node that has never seen them: what it cannot see it keeps.
for name in $names; do
    rm -rf "$WORK/hidden" && cp -a "$R" "$WORK/hidden"
    fault "_hide/${name:8:20}" >/dev/null
    had=$(packs "$WORK/hidden")
    XDG_CACHE_HOME=$WORK/elsewhere sf "$WORK/hidden" maintenance --full --node-name n1 >"$WORK/out1" 2>&1
    rm -rf "$WORK/elsewhere"
    fault _hide/ >/dev/null
    same "no pack was deleted where $name is unknown" "$(comm -23 <(echo "$had") <(packs "$WORK/hidden"))" ""
    check "all is whole there" sf "$WORK/hidden" verify --quiet
done
fault _hide/ >/dev/null

# Requests that fail in the middle: of each run a later one, until one has succeeded.
age 25
n=0
for i in 5 20 30 40 55 70; do
    fault "_fault/denied/1/$i" >/dev/null
    m >"$WORK/out1" 2>&1 || n=$((n + 1))
    fault _fault/none/0 >/dev/null
    check "whole, request $i denied" sf "$R" verify --quiet
done
check "several failed ($n)" [ $n -ge 2 ]
for kind in slowdown reset truncate gateway lost-answer; do
    fault _fault/$kind/3/9 >/dev/null
    check "requests are repeated: $kind" m --quiet
done
age 25
check "at last" m --quiet
check "the space is back" [ "$(bytes)" -lt $((full - 8900000)) ]
check "all else is whole" sf "$R" verify --quiet
check "and restored" sf "$R" restore latest --as a@h:/v "$WORK/out2" --quiet
check "as it was" cmp "$WORK/a" "$WORK/out2"

# A server that does not answer: a cancel is obeyed.
fault _fault/stall/1000/6 >/dev/null
from=$SECONDS
m >"$WORK/out1" 2>&1 &
pid=$!
sleep 2
kill -INT "$(pgrep -P $pid -x snapferry || echo $pid)"
wait $pid
same "a cancel while the server does not answer" $? 130
check "is obeyed soon" [ $((SECONDS - from)) -lt 12 ]
fault _fault/none/0 >/dev/null

# Contents of short packs are read by the pack, not one by one.
sf "$WORK/small" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 10MiB
for v in c d e; do
    random_file "$WORK/$v" 2500000 $((RANDOM + 1))
    sf "$WORK/small" backup "$WORK/$v" --as "$v@h:/v" --quiet
done
R=$WORK/small
age 3
fault _requests >/dev/null
check "rewritten" [ "$(m --json | result rewritten.count)" -gt 40 ]
same "each of the three packs in one request" "$(fault _packs)" 3
check "whole after that" sf "$R" verify --quiet
finish
