#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# on-restart = fail (AO-41): of running backups, restores and verifications, those whose mover is gone when a daemon
# starts end as Failed, and nothing of them is left; those whose mover still runs, or has left its result, go on.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "kill and restart"
fs_make xfs xfs || exit 1
image "$WORK/xfs/v.img" 16 31
image "$WORK/xfs/w.img" 2 32
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup 'on-restart = fail'
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 1'
starts "the daemon starts"
why() { doc "$1" | jq -r '.error.message // ""'; }
# fails NAME ID: it ended as Failed, for that reason.
fails() {
    same "$1: Failed" "$(wait_state "$2" Failed 30)" Failed
    check "$1: the reason is named" grep -q 'on-restart = fail' <<<"$(why "$2")"
}
# held VERB...: an operation whose mover stands still: sets O and PID.
held() {
    for _ in $(seq 30); do
        O=$(askj "$@" | jq -r ".operation // .result.operation // empty")
        [ -n "$O" ] || { tail -n 3 "$WORK/ask.err"; break; }
        PID=$(hold_mover "$O" 20) || continue
        sleep 0.1
        [ -n "$PID" ] && [ "$(sql "SELECT state FROM operations WHERE id = '$O'")" = Running ] && return 0
        kill -CONT "$PID" 2>/dev/null
        wait_state "$O" none 20 >/dev/null
    done
    fail "the mover of $1 can be stopped in the middle" "$(doc "$O")"
    explain_failure
    finish
}

# The mover is killed, and its process is gone.
ended_for_good() {
    kill -KILL "$PID" 2>/dev/null
    until_true 10 eval "! kill -0 $PID 2>/dev/null"
}

# A good one first: to be restored and verified.
good=$(submit "$WORK/xfs/v.img")
same "a backup is Completed" "$(wait_state "$good" Completed 40)" Completed

running "$WORK/xfs/v.img"
daemon_kill
starts "the daemon was killed, its mover lives"
same "the same process moves on" "$(mover_pid "$O")" "$PID"
kill -CONT "$PID"
same "a mover that lives is not given up: Completed" "$(wait_state "$A" Completed 40)" Completed
until_true 10 settled

running "$WORK/xfs/v.img"
daemon_stop
kill -CONT "$PID"
until_true 30 eval "! kill -0 $PID 2>/dev/null"
check "its result is there, by which hold_mover knows one that has ended" test -s "$(result_of "$O")"
starts "it finished while there was no daemon"
same "a result that was left counts: Completed" "$(wait_state "$A" Completed 40)" Completed
until_true 10 settled

running "$WORK/xfs/v.img"
daemon_kill
ended_for_good
starts "the daemon and its mover were killed"
fails "backup" "$A"
clean "what the backup made is gone" 10 "$WORK/xfs"
same "the native snapshot that was there before stays" "$(natives_of "$WORK/xfs/v.img" | sort)" "$BEFORE"

# Another boot: nothing of its processes can be alive.
running "$WORK/xfs/v.img"
daemon_kill
ended_for_good
sqlite3 "$STATE/records.db" "UPDATE operations SET doc = json_set(doc, '$.identity.bootId',
    '0123456789abcdef0123456789abcdef', '$.prepare_boot', '0123456789abcdef0123456789abcdef') WHERE id = '$O'"
starts "the machine was started anew"
fails "backup of an earlier boot" "$A"
clean "what it made is gone" 10 "$WORK/xfs"

# While snapshots are taken: one has its snapshot and is moved slowly, the hook of the other one hangs.
cat >"$WORK/hang" <<HOOK
#!/bin/sh
touch $WORK/frozen
while [ ! -e $WORK/go ]; do sleep 0.05; done
HOOK
cat >"$WORK/thaw" <<HOOK
#!/bin/sh
rm -f $WORK/frozen
HOOK
chmod 755 "$WORK/hang" "$WORK/thaw"
config_add hooks "[volume \"$WORK/xfs/w.img\"]
hook-pre-snapshot = $WORK/hang
hook-post-snapshot = $WORK/thaw"
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 1' 'max-per-device = 2' 'read-limit = 4MiB'
check "reload" ask reload --wait --quiet
A=$(submit "$WORK/xfs/v.img" "$WORK/xfs/w.img")
check "its hook runs" until_true 10 test -e "$WORK/frozen"
PID=$(hold_mover "$(op_id "$A" "$WORK/xfs/v.img")" 10)
daemon_kill
ended_for_good
touch "$WORK/go"
starts "the daemon was killed while snapshots were taken"
fails "backup in phase 1" "$A"
check "the post-snapshot hook has run" test ! -e "$WORK/frozen"
clean "its snapshots are gone" 10 "$WORK/xfs"

held restore "$good/$WORK/xfs/v.img" "$WORK/xfs/out" --from repository
daemon_kill
ended_for_good
starts "the daemon and the mover of a restore were killed"
fails "restore" "$O"
check "its target does not exist" test ! -e "$WORK/xfs/out"
clean "what it had written is gone" 10 "$WORK/xfs"

held verify
daemon_kill
ended_for_good
starts "the daemon and the mover of a verification were killed"
fails "verification" "$O"

B=$(submit "$WORK/xfs/v.img")
same "the next backup is Completed" "$(wait_state "$B" Completed 40)" Completed
restored_same "and has the right bytes" "$B" "$WORK/xfs/v.img" "$WORK/v.orig" repository
clean "nothing is left behind" 10 "$WORK/xfs"
explain_failure
finish
