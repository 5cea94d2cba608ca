#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The index is tidied (CF-40): epochs advanced, settled ones compacted, what they replace deleted after its safety
# margin, all entries kept, whatever the run is interrupted by. With KOPIA=/path/to/kopia stock clients judge, too.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
[ -z "${THROUGH_S3:-}" ] || through_s3
R=$WORK/repo
q() { sf "$R" maintenance --node-name n1 "$@"; }
age() { "$TOOLS/age_repository" "$R" "$WORK/password" "$1"; }
blobs() { (cd "$R" && find x* -type f | tr -d / | sed 's/\.f$//' | grep "^$1" | wc -l); }
entries() { sf "$R" snapshot list --all --json | tail -n 1 | jq -c '[.snapshots[].id] | sort'; }
sf "$R" repo create --quiet --node-name n1
random_file "$WORK/v" 300000 1
for i in 1 2 3 4 5 6 7 8 9; do
    printf "$i" | dd of="$WORK/v" bs=1 seek=$((i * 20000)) conv=notrunc status=none
    sf "$R" backup "$WORK/v" --as "v@h:/v" --quiet
done
sf "$R" snapshot delete latest --as v@h:/v --force --quiet
expect "a young index is left alone" 0 'write epoch 0, 0 epochs compacted' -- q
# The name of an index blob says which epoch it belongs to: as if each had been written two days after the one before.
e=0
for f in $(cd "$R/x/n0_" && ls -tr); do
    mkdir -p "$R/x/n${e}_"
    [ $e = 0 ] || mv "$R/x/n0_/$f" "$R/x/n${e}_/$f"
    touch -d "$((40 - 2 * e)) days ago" "$R/x/n${e}_/$f"
    [ $e = 9 ] || e=$((e + 1))
done
for i in 1 2 3 4 5 6 7 8 9; do printf epoch-marker >"$R/xe$i.f"; done
check "whole" sf "$R" verify --quiet
all=$(entries)
mv "$R/x/n4_" "$WORK/n4_"
expect "all index blobs of an epoch are lost" 15 'all index blobs of epoch 4 are lost .*nothing is removed' -- q --full
mv "$WORK/n4_" "$R/x/n4_"
same "what would be done" "$(q --full --dry-run --json | tail -n 1 |
    jq -c '.index | [.writeEpoch, .epochsCompacted > 0, .rangeCompacted, .blobsDeleted]')" '[9,true,true,0]'
expect "killed while it compacts" 137 -- env SNAPFERRY_CRASH_AT=maintenance-compacting:3 "$SF" -r "$R" \
    --password-file "$WORK/password" maintenance --node-name n1
check "whole still" sf "$R" verify --quiet
expect "a quick run compacts all settled epochs" 0 'write epoch 9, 5 epochs compacted' -- q
same "each once" "$(blobs xs)" 8
rm -rf "$CACHE"
check "read anew it is whole" sf "$R" verify --quiet
same "with all snapshots" "$(entries)" "$all"

# A part of a compacted set is not there, and what the set replaces is gone: it is not made again of what is left.
cp -a "$R" "$WORK/kept"
f=$(ls "$R"/x/s4_/*)
mv "$f" "${f%-c1.f}-c2.f"
expect "what an interrupted compaction left is made again" 0 ', 1 epoch compacted' -- q
rm "$R"/x/s4_/*-c1.f
rm "$R"/x/n4_/*
cp -p "$R"/x/n3_/* "$R/x/n4_/"
expect "a part of a set is all there is" 15 'compacted index of epoch 4 is incomplete' -- q
rm -rf "$R" "$CACHE" && cp -a "$WORK/kept" "$R"
# Enough index blobs in the write epoch, over more than a day.
f=$(ls "$R"/x/n9_/* | head -n 1)
for i in $(seq 20); do cp -p "$f" "${f%-s*}-s$(printf %016x "$i")144-c1.f"; done
touch -d '3 days ago' "$f"
expect "killed when the epoch has advanced" 137 -- env SNAPFERRY_CRASH_AT=maintenance-advanced "$SF" -r "$R" \
    --password-file "$WORK/password" maintenance --node-name n1
same "it has" "$(blobs xe10)" 1
expect "the next run goes on there" 0 'write epoch 10' -- q
same "once" "$(blobs xe11)" 0
check "whole in the new epoch" sf "$R" verify --quiet
same "with all snapshots in the new epoch" "$(entries)" "$all"
rm -rf "$R" && mv "$WORK/kept" "$R"

expect "nothing is superseded long enough" 0 'and a range of them, 0 superseded' -- q --full
same "a range" "$(blobs xr)" 1
expect "the history has it" 0 -- q --full --dry-run
age 25
sf "$R" backup "$WORK/v" --as "v@h:/v" --quiet
all=$(entries)
before=$(blobs xn)
expect "killed while it deletes" 137 -- env SNAPFERRY_CRASH_AT=maintenance-superseded:2 "$SF" -r "$R" \
    --password-file "$WORK/password" maintenance --full --node-name n1
check "whole after that" sf "$R" verify --quiet
# A damaged compaction is not relied on.
cp -a "$R" "$WORK/good"
f=$(ls "$R"/x/s7_/*)
touch -r "$f" "$WORK/time"
printf 'x' | dd of="$f" bs=1 seek=60 conv=notrunc status=none
touch -r "$WORK/time" "$f"
expect "a compacted blob is damaged" 15 'index blob xs7_' -- q --full
same "what it replaces is there" "$(ls "$R/x/n7_" | wc -l)" 1
rm -rf "$R" && mv "$WORK/good" "$R"
# A blob that came after its epoch was compacted, of a client that was killed before it noticed: no damage.
f=$(ls "$R"/x/n9_/* | tail -n 1)
cp "$f" "$R/x/n7_/"
expect "a full run deletes what is superseded" 0 'index blob xn7_.*was written after its epoch' -- q --full
same "but not what came too late" "$(ls "$R/x/n7_")" "$(basename "$f")"
rm "$R/x/n7_/$(basename "$f")"
same "all but the last epochs'" "$(blobs 'xn[0-7]_') of $before" "0 of $before"
same "old markers" "$(ls "$R"/xe* | wc -l)" 2
rm -rf "$CACHE"
check "read anew it is whole again" sf "$R" verify --quiet
same "with all snapshots again" "$(entries)" "$all"
check "and restored" sf "$R" restore latest --as v@h:/v "$WORK/out" --quiet
check "as it was" cmp "$WORK/v" "$WORK/out"
if [ -x "${KOPIA:-/nonexistent}" ]; then
    export KOPIA_CHECK_FOR_UPDATES=false KOPIA_DANGEROUS_COMMANDS=enabled
    k() {
        "$KOPIA" --config-file "$WORK/k" --password "test password" --no-progress --log-level=error --log-dir \
            "$WORK/log" "$@" 2>&1
    }
    k repository connect filesystem --path "$R" --cache-directory "$WORK/kc" --no-check-for-updates >/dev/null
    check "stock verifies it" k snapshot verify --verify-files-percent=100 --no-auto-maintenance
    check "and all contents" k content verify --full --no-auto-maintenance
    check "and goes on" k maintenance set --owner=me --no-auto-maintenance
    check "with its own maintenance" k maintenance run --full
    check "that leaves it whole" sf "$R" verify --quiet
fi
finish
