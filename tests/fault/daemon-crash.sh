#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon (or the step or mover it started) dies at every named point of its state machine, one by one; started again
# it comes to an end by itself, with nothing leaked, and the next backup and restore work (AO-41, MS-36, RS-20, E-04).
# POINTS="a b" tries only these.
SHARDS=4
if [ -z "${SHARD:-}" ]; then
    # Most of the time is waiting: several at once, each with a daemon and file systems of its own.
    . "$(dirname "$0")/../lib.sh"
    if ! is_root || [ ! -e /dev/loop-control ]; then
        skip "crashes around real snapshots" "needs root and loop devices"
        finish
    fi
    for i in $(seq 0 $((SHARDS - 1))); do SHARD=$i "$0" >"$WORK/$i" 2>&1 & done
    wait
    reached=0
    for i in $(seq 0 $((SHARDS - 1))); do
        while IFS= read -r line; do
            case $line in
            ok\ *) pass "${line#* - }"; [[ $line == *"crash at"* ]] && reached=$((reached + 1)) ;;
            not\ ok\ *) fail "${line#* - }" ;;
            1..*) ;;
            *) echo "# ${line#\# }" ;;
            esac
        done <"$WORK/$i"
        check "all of part $i ran" grep -q '^1\.\.' "$WORK/$i"
    done
    check "the points are reached ($reached)" test "$reached" -ge 30
    finish
fi
. "$(dirname "$0")/../daemon-lib.sh"
need_root "crashes around real snapshots"
fs_make xfs xfs && fs_make far btrfs 300 || exit 1
mkdir "$WORK/far/scratch"
image "$WORK/xfs/v.img" 2 13
cp "$WORK/xfs/v.img" "$WORK/v.orig"
printf '#!/bin/sh\necho "$1" >>%s/ran\n' "$WORK" >"$WORK/hook"; chmod 755 "$WORK/hook"
daemon_setup
config_add far "[storage-class \"far\"]
driver = reflink
match =
target = $WORK/far/scratch"
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 1' 'backup-storage-class = far' "hook-pre-snapshot = $WORK/hook" \
    "hook-post-snapshot = $WORK/hook"

# All points of the rooms that a backup, a restore and a delete run through: from the sources, so that no new one is
# forgotten. Those of opening damaged or older records, of plugins, of schedules, of maintenance, and of drivers that
# nothing here uses have tests of their own.
if [ -z "${POINTS:-}" ]; then
    POINTS=$({ grep -ohE 'crash_point\((d, )?"[a-z-]+"\)' daemon/*/*.c proc/*.c io/native/*.c | sed 's/.*"\(.*\)".*/\1/'
        sed -n '/points\[.*\] *=/,/};/p' io/native/tag.c | grep -oE '"[a-z-]+"' | tr -d '"'; } |
        grep -vE '^(records-(migrat|created|aside|log-aside|rebuilt|new|swapped)|(plugin|schedule|maintenance)-)' |
        grep -vE '^(lvm|qemu|zfs|subvolume)-' | sort -u |
        awk -v n=$SHARDS -v k="$SHARD" 'NR % n == k')
fi
for point in $POINTS; do
    rm -f "$WORK/ran"
    touch "$LOG"; from=$(wc -l <"$LOG")
    daemon_start SNAPFERRY_CRASH_AT="$point" || true
    A=$(timeout 10 "$SNAPFERRY" backup "$WORK/xfs/v.img" --json --runtime-dir "$RUN" --state-dir "$STATE" \
        --config-dir "$CONF" 2>/dev/null | tail -n 1 | jq -r '.backup // empty' 2>/dev/null)
    end=$((SECONDS + 6))
    hit=no
    while [ $SECONDS -lt $end ]; do
        daemon_alive || { hit=daemon; break; }
        tail -n +$((from + 1)) "$LOG" | grep -q 'killed by signal 9' && { hit=step; break; }
        [ -n "$A" ] && settled && break
        sleep 0.1
    done
    daemon_alive || hit=daemon
    if [ $hit = no ] && [ -n "$A" ]; then
        # Not on the way of a backup: a restore, then a delete.
        timeout 8 "$SNAPFERRY" restore "$A/$WORK/xfs/v.img" "$WORK/xfs/out.$point" --wait --quiet --runtime-dir "$RUN" \
            --state-dir "$STATE" --config-dir "$CONF" >/dev/null 2>&1
        daemon_alive && timeout 5 "$SNAPFERRY" delete "$A" --wait --quiet --runtime-dir "$RUN" --state-dir "$STATE" \
            --config-dir "$CONF" >/dev/null 2>&1
        daemon_alive || hit=daemon
        tail -n +$((from + 1)) "$LOG" | grep -q 'killed by signal 9' && hit=step
    fi
    daemon_kill
    for p in $(pgrep -f "snapferry-mover.*$WORK/"); do kill -KILL "$p"; done
    if [ $hit = no ]; then
        echo "# $point is not passed by backup, restore or delete here"
        continue
    fi
    bad=
    daemon_start || bad="does not start again"
    [ -n "$bad" ] || until_true 20 clean_state "$WORK/xfs" "$WORK/far" ||
        bad="not clean: $(clean_state "$WORK/xfs" "$WORK/far" | tr '\n' ' ')"
    if [ -z "$bad" ] && [ "$(ask backup "$WORK/xfs/v.img" --wait --json 2>/dev/null | result state)" \
        != Completed ]; then
        bad="the next backup fails"
    fi
    daemon_stop
    rm -f "$WORK"/xfs/out.*
    if [ -z "$bad" ]; then
        pass "crash at $point ($hit)"
    else
        fail "crash at $point ($hit)" "$bad" "$(tail -n 15 "$LOG")"
    fi
done
if grep -q engine-hook-intent <<<"$POINTS"; then
    check "the post-snapshot hook ran after each crash" grep -q post-snapshot "$WORK/ran"
fi
finish
