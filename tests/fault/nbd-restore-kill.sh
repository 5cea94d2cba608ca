#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A restore by the daemon to an NBD export: its mover gets a connected socket. What is not empty is overwritten only on
# request; a server that is killed, a mover, the daemon: it goes on where it was, and ends Completed with equal bytes;
# a server that hangs does not hold up a cancel (E-02, E-06, E-07).
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../nbd-lib.sh"
need_root "restores by the daemon to NBD exports"
fs_make xfs xfs
random_file "$WORK/xfs/v.img" $((24 * MIB)) 81
truncate -s 26M "$WORK/xfs/v.img"
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup || { fail "setup"; finish; }
config_class images "$WORK/xfs" 'write-limit = 12MiB' 'retries = 20'
starts "the daemon starts"
A=$(submit "$WORK/xfs/v.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed
K=$WORK/k.sock
T=$(uri "$K")

# kit: nbdkit that serves $WORK/t.
kit() { rm -f "$WORK/log"; nbd_kit "$K" --filter=log file "$WORK/t" logfile="$WORK/log" ||
    fail "nbdkit starts" "$(cat "$K.log")"; }
empty() { rm -f "$WORK/t"; truncate -s 26M "$WORK/t"; }
# begin OPTIONS...: sets R (the restore) and O (its operation).
begin() {
    R=$(askj restore "$A/$WORK/xfs/v.img" "$T" --from repository "$@" 2>"$WORK/err" | jq -r '.restore // empty')
    [ -n "$R" ] && O=$(op_id "$R")
}
# noted: waits until a position was recorded.
noted() {
    local n
    for ((n = 0; n < 300 * PATIENCE; n++)); do
        grep -qsE ' [1-9][0-9]*$' $(find "$CACHE" -name 'restore-export-*' ! -name '*.*') && return
        sleep 0.1
    done
    return 1
}
completed() { # NAME
    local s
    s=$(wait_state "$R" Completed 90)
    if [ "$s" = Completed ] && cmp "$WORK/v.orig" "$WORK/t" >/dev/null; then
        pass "$1: Completed, with equal bytes"
    else
        fail "$1: $s" "$(doc "$O" | jq -c '.error // .')" "$(cmp "$WORK/v.orig" "$WORK/t" 2>&1)" "$(tail -n 5 "$LOG")"
    fi
}
pid_now() {
    sql "SELECT json_extract(doc, '$.identity.pid') FROM operations WHERE id = '$O' AND state = 'Running'" 2>/dev/null
}
resumed() { check "$1" test "$(doc "$O" | jq -r '.result.resumedFrom // 0')" -gt 0; }

empty; kit
begin --verify
completed "an empty export"
same "all of it was read back" "$(doc "$O" | jq -r '.result.verifiedBytes')" $((26 * MIB))
begin
same "one that is not empty is refused" "$(wait_state "$R" Failed 60)" Failed
check "and left as it is" cmp "$WORK/v.orig" "$WORK/t"
check "with what to do" eval 'doc "$O" | grep -q "not empty"'
begin --differential
completed "differential"
same "nothing is written" "$(doc "$O" | jq -r '.result.writtenBytes')" 0
begin --new
same "an export is nothing new" "$R" ""

nbd_stop "$K"; kit
begin --overwrite
noted
kill -KILL "${nbd_pid[$K]}"; nbd_stop "$K"
until_true 60 eval '[ "$(doc "$O" | jq -r ".attempt // 0")" -gt 0 ]'
check "a server that is killed: tried again" test "$(doc "$O" | jq -r '.attempt // 0')" -gt 0
check "with the reason" eval 'doc "$O" | grep -q "cannot be written any more"'
kit
completed "its server is back"
resumed "it went on where it was"
empty; nbd_stop "$K"; kit
begin
noted
kill -KILL "$(pid_now)"
completed "mover killed"
resumed "it went on where it was, too"
empty; nbd_stop "$K"; kit
begin
noted
pid=$(pid_now); daemon_kill; kill -KILL "$pid"; starts "the daemon again"
completed "daemon and mover killed, as by a reset"

empty; nbd_stop "$K"; kit
begin
noted
kill -STOP "${nbd_pid[$K]}"
ask cancel "$R" >/dev/null
same "a server that hangs does not hold up a cancel" "$(wait_state "$R" Canceled 60)" Canceled
nbd_stop "$K"
begin
same "no server: an error" "$(wait_state "$R" Failed 60)" Failed
check "in words" eval 'doc "$O" | grep -q "cannot connect to the NBD server"'
stops "the daemon stops"
finish
