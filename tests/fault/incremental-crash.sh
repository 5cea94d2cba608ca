#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon dies at each step of an incremental backup: the backup is Completed by the next one and right, one native
# snapshot stays for the next run, nothing else, and that run is incremental. (CF-09, CF-10, RS-28, E-04)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots"
fs_make xfs xfs 400 || exit 1
V=$WORK/xfs/v.img
random_file "$V" $((6 * MIB)) 31
daemon_setup
config_class xfs "$WORK/xfs" 'changed-blocks = auto' 'verify-sample = 10'
# op BACKUP FILTER: of its operation
op() { doc "$1" | jq -rc ".operations[0] | $2"; }
seed=40
# rewrite: 64 KiB somewhere
rewrite() {
    seed=$((seed + 1))
    random_file "$WORK/page" 65536 $seed
    dd if="$WORK/page" of="$V" bs=65536 seek=$((seed * 7 % 90)) conv=notrunc status=none
}
restored() {
    sf "$REPO" restore "$(op "$1" .result.snapshotID)" "$WORK/restored" --force --quiet && cmp "$WORK/restored" "$V"
}
parent_alone() {
    settled && [ "$(natives_of "$V" | wc -l)" = 1 ] && [ "$(stored_natives "$WORK/xfs" | wc -l)" = 1 ] &&
        [ -z "$(stored_others "$WORK/xfs")" ] && [ -z "$(sql 'SELECT 1 FROM intents')" ] &&
        [ "$(askj native list | jq -r '.natives[].reasons')" = cbt-parent ]
}
starts "the daemon starts"
askj backup "$V" --wait >/dev/null
check "the first backup leaves its native snapshot" until_true 10 parent_alone
daemon_stop
for point in engine-changes-begun engine-changes-listed engine-exposure-recorded engine-outcome; do
    rewrite
    daemon_start SNAPFERRY_CRASH_AT="$point"
    B=$(submit "$V")
    if daemon_gone 20; then pass "$point: the daemon dies"; else fail "$point: the daemon dies"; daemon_kill; fi
    daemon_start || fail "$point: the daemon starts again"
    same "$point: Completed" "$(wait_state "$B" Completed 30)" Completed
    check "$point: right" restored "$B"
    check "$point: one native snapshot stays, nothing else" until_true 10 parent_alone
    rewrite
    N=$(askj backup "$V" --wait | jq -r .id)
    same "$point: the next one is incremental" "$(op "$N" '[.fullReason, .result.incremental.used]')" '[null,true]'
    check "$point: and right" restored "$N"
    check "$point: the parent was replaced" until_true 10 parent_alone
    daemon_stop
done
check "all of the repository verifies" sf "$REPO" verify --quiet
finish
