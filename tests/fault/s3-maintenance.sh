#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Maintenance of a repository in S3 where the service misbehaves (CF-40, CF-42): requests fail, lists lag and hide what
# is there, clocks differ, nothing answers: nothing is removed that is needed, and the next run completes it. Object
# locks are extended. The same repository is a directory for the service (tools/s3-faults.py), and is aged there.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
. tests/s3-lib.sh
random_file "$WORK/a" 6000000 1
random_file "$WORK/b" 9000000 2
through_s3
R=$WORK/repo
m() { sf "$R" maintenance --full --node-name n1 "$@"; }
age() { # what this node has noted of the last 15 minutes would be as old
    rm -f "$CACHE"/snapferry/recent-*
    "$TOOLS/age_repository" "$R" "$WORK/password" "$1"
}
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

# A bucket at its quota: what may be deleted is deleted before the run puts anything.
R=$WORK/quota
sf "$R" repo create --quiet --node-name n1
for v in a b; do sf "$R" backup "$WORK/$v" --as "$v@h:/v" --quiet; done
sf "$R" snapshot delete latest --as b@h:/v --force --quiet
for i in 1 2; do age 25 && m --quiet; done
age 25
expect "killed before packs are deleted" 137 -- env SNAPFERRY_CRASH_AT=maintenance-dropped "$SNAPFERRY" -r "$R" \
    --password-file "$WORK/password" maintenance --full --node-name n1
total() {
    find "$WORK"/*/ -path '*/cache/*' -prune -o -name '*.f' -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'
}
fault "_set/full/$(($(total) - 1))" >/dev/null
expect "a backup is refused by the quota" 18 'QuotaExceeded' -- sf "$R" backup "$WORK/c" --as c@h:/v
had=$(bytes)
same "maintained all the same" "$(m --json 2>"$WORK/err" | result 'deletedPacks.bytes > 9000000')" true
check "freed" [ "$(bytes)" -lt $((had - 9000000)) ]
check "whole, at its quota" sf "$R" verify --quiet
fault _set/full/1 >/dev/null
expect "nothing may go" 18 'freed 0.0 MiB and stopped for lack of room' -- m
fault _set/full/0 >/dev/null
R=$WORK/small

# Object locks are extended where the parameters of the repository want that.
fault _extended >/dev/null
check "no lock is extended unless that is wanted" m --quiet
same "really not" "$(fault _extended)" 0
check "locks of ten days" "$TOOLS/lock_repository" "$R" "$WORK/password" COMPLIANCE 240
age 3
blobs=$(find "$R" -name '*.f' | sed 's,.*/small/,,' | grep -c '^[xpq]\|^kopia.[rb]')
same "what would be extended" "$(m --dry-run --json | result extendedLocks.count)" "$blobs"
same "nothing is by that" "$(fault _extended)" 0
fault _refuse/kopia.blobcfg >/dev/null
expect "one of them is refused" 20 'object locks of 1 blob could not be extended' -- m
same "the others are done" "$(fault _extended)" $((blobs - 1))
fault _refuse/ >/dev/null
age 1
out=$(m 2>&1)
check "the locks of all blobs of the repository are extended" grep -qE '^Locks extended +[0-9]+ blobs' <<<"$out"
same "each of them" "$(fault _extended)" "$(find "$R" -name '*.f' -mmin +2 | sed 's,.*/small/,,' |
    grep -c '^[xpq]\|^kopia.[rb]')"
same "a copy in a directory has none" "$("$S3_SNAPFERRY" -r "$R" --password-file "$WORK/password" maintenance --full \
    --node-name n1 --dry-run --json | result extendedLocks.count)" 0
check "by their period" grep -qE '^8(639|640)[0-9]{2} COMPLIANCE$' <<<"$(fault _until)"
finish
