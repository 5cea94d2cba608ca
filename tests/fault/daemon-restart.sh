#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon and its movers are killed in mid-backup: a mover keeps its PID over the daemon's restart and is adopted
# (MS-36, MS-50, E-03); a mover that is killed or hangs ends in a named failure and a retry (MS-25..MS-32, CF-23).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "kill and restart"
fs_make xfs xfs || exit 1
image "$WORK/xfs/v.img" 16 11
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup
policy() { config_class xfs "$WORK/xfs" 'snapshots-to-retain = 1' "$@"; }
policy
starts "the daemon starts"

running "$WORK/xfs/v.img"
daemon_kill
check "kill -9 of the daemon: the mover lives" kill -0 "$PID"
starts "restart"
same "the same operation runs" "$(state "$O")" Running
same "with the same process" "$(mover_pid "$O")" "$PID"
check "which lives" kill -0 "$PID"
check "and is adopted" jq -e '.mover.adopted == true' <<<"$(doc "$O")"
kill -CONT "$PID"
same "Completed" "$(wait_state "$A" Completed 60)" Completed
same "at the first attempt" "$(doc "$O" | jq -r '.attempt // 1')" 1
restored_same "restored from the repository" "$A" "$WORK/xfs/v.img" "$WORK/v.orig" repository

running "$WORK/xfs/v.img"
daemon_stop
check "SIGTERM of the daemon: the mover lives" kill -0 "$PID"
kill -CONT "$PID"
until_true 30 eval "! kill -0 $PID"
check "it finishes while the daemon is down" test ! -d "/proc/$PID"
starts "restart"
same "its result file suffices: Completed" "$(wait_state "$A" Completed 60)" Completed

running "$WORK/xfs/v.img"
daemon_kill
kill -KILL "$PID"
starts "both killed: restart"
same "tried again, Completed" "$(wait_state "$A" Completed 60)" Completed
check "the first attempt is in the record" test "$(doc "$O" | jq -r '.attempt // 1')" -ge 2

running "$WORK/xfs/v.img"
kill -KILL "$PID"
same "kill -9 of the mover: Retrying" "$(wait_state "$O" Retrying 60)" Retrying
check "named: the signal" jq -e '(.error.message // "") | test("signal 9|SIGKILL|Killed")' <<<"$(doc "$O")"
same "Completed" "$(wait_state "$A" Completed 60)" Completed

policy 'retries = 0'
ask reload --wait --quiet
running "$WORK/xfs/v.img"
kill -KILL "$PID"
same "without retries: Failed" "$(wait_state "$A" Failed 60)" Failed
expect "the command's exit code and words" 25 'signal 9' -- ask wait "$A"

policy 'retries = 0' 'stall-timeout = 2s'
ask reload --wait --quiet
running "$WORK/xfs/v.img"
same "a mover that hangs is ended: Failed" "$(wait_state "$A" Failed 60)" Failed
check "named: no progress" jq -e '.error.message | test("progress|stall|hang|hung")' <<<"$(doc "$O")"
check "and gone" test ! -d "/proc/$PID"

policy 'retries = 0' 'max-duration = 2s'
ask reload --wait --quiet
running "$WORK/xfs/v.img"
same "max-duration: Failed" "$(wait_state "$A" Failed 60)" Failed

# A finished volume of a backup that still runs (AO-14).
image "$WORK/xfs/w.img" 2 12
cp "$WORK/xfs/w.img" "$WORK/w.orig"
policy 'max-per-device = 2' # the one that is held must not keep the other from running
ask reload --wait --quiet
running "$WORK/xfs/v.img" "$WORK/xfs/w.img"
same "one of two volumes is finished" "$(wait_state "$(op_id "$A" "$WORK/xfs/w.img")" Completed 60)" Completed
same "the other one is not" "$(state "$O")" Running
check "an incomplete backup is not restored from" eval \
    '! ask restore "$A/$WORK/xfs/w.img" "$WORK/xfs/w.out" --wait --quiet'
check "unless told" ask restore "$A/$WORK/xfs/w.img" "$WORK/xfs/w.out" --allow-incomplete --from native --wait --quiet
check "the right bytes" cmp "$WORK/w.orig" "$WORK/xfs/w.out"
rm -f "$WORK/xfs/w.out"
kill -CONT "$PID"
same "then the backup completes" "$(wait_state "$A" Completed 60)" Completed

# A process that has the mover's number and is not it (after a reboot, say) is neither adopted nor killed.
policy
ask reload --wait --quiet
running "$WORK/xfs/v.img"
daemon_kill
kill -KILL "$PID"
sleep 60 &
other=$!
sqlite3 "$STATE/records.db" \
    "UPDATE operations SET doc = json_set(doc, '$.mover.pid', $other)
        WHERE id = '$O' AND json_extract(doc, '$.mover.pid') IS NOT NULL"
starts "restart"
same "tried again with a process of its own" "$(wait_state "$A" Completed 60)" Completed
check "the stranger lives" kill -0 $other
kill $other
clean "nothing is left behind" 10 "$WORK/xfs"
explain_failure
finish
