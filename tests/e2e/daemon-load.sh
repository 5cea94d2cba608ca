#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Snapshots under load on XFS and btrfs: a writer runs all the time, and each restored snapshot is one point in time,
# with later ones later (RS-01, E-18).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "snapshots under load"
fs_make xfs xfs 900 && fs_make btrfs btrfs 900 || exit 1
PIT=$TOOLS/point_in_time
daemon_setup
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 2'
config_class btrfs "$WORK/btrfs" 'snapshots-to-retain = 2'
starts "the daemon starts"
for fs in xfs btrfs; do
    "$PIT" write "$WORK/$fs/v.img" 6000 &
    at_exit "kill $!"
done
check "the judge can tell: a torn copy is found" bash -c "
    for i in \$(seq 50); do
        { dd if=$WORK/xfs/v.img bs=1M count=10; sleep 0.2; dd if=$WORK/xfs/v.img bs=1M skip=10; } \
            >$WORK/torn 2>/dev/null
        $PIT check $WORK/torn >/dev/null || exit 0
    done
    exit 1"
backups=()
for i in 1 2 3; do
    out=$(ask backup "$WORK/xfs/v.img" "$WORK/btrfs/v.img" --wait --json 2>/dev/null | tail -n 1)
    same "backup $i under load" "$(result state <<<"$out")" Completed
    backups+=("$(result id <<<"$out")")
done
for fs in xfs btrfs; do
    last=0
    for b in "${backups[@]}"; do
        ask restore "$b/$WORK/$fs/v.img" "$WORK/$fs/out" --from repository --wait --quiet
        said=$("$PIT" check "$WORK/$fs/out")
        check "$fs, from the repository: $said" grep -q '^state after' <<<"$said"
        n=$(grep -oE '[0-9]+' <<<"$said" | head -n 1)
        check "$fs: later than the one before" test "${n:-0}" -gt $last
        last=$n
        rm -f "$WORK/$fs/out"
    done
    ask restore "${backups[2]}/$WORK/$fs/v.img" "$WORK/$fs/out" --from native --wait --quiet
    same "$fs: the native snapshot is the same point in time" "$("$PIT" check "$WORK/$fs/out")" "$said"
    rm -f "$WORK/$fs/out"
done
clean "nothing is left behind" 8 "$WORK/xfs" "$WORK/btrfs"
explain_failure
finish
