#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A restore from a native snapshot to another file system is a copy by the daemon: what copies, the daemon, or both are
# killed, and the file system is full. It completes with equal bytes, or nothing of it is left.
# Its mounts are its own: what they hold must not outlive it.
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../daemon-lib.sh"
need_root "restores from native snapshots that are killed"
fs_make xfs xfs && fs_make other xfs 320 || exit 1
random_file "$WORK/xfs/v.img" $((48 * MIB)) 83
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup || { fail "setup"; finish; }
config_class images "$WORK/xfs" 'write-limit = 16MiB' 'snapshots-to-retain = 1' 'retries = 20'
starts "the daemon starts"
A=$(submit "$WORK/xfs/v.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed
T=$WORK/other/t.img

begin() { # sets R and O once something was copied
    R=$(askj restore "$A/$WORK/xfs/v.img" "$T" --from native "$@" | jq -r '.restore // empty')
    O=$(op_id "$R")
    until_true 20 eval '[ "$(copied)" -gt 1 ]'
}
copied() { # MiB
    find "$WORK/other" -name 't.img.snapferry-*' -printf '%k\n' | awk '{ s += $1 } END { print int(s / 1024) }'
}
copier() { # the child of the daemon that has the file open
    local p
    for p in $(pgrep -P "$DPID"); do
        ls -l "/proc/$p/fd" 2>/dev/null | grep -q 't.img.snapferry-' && echo "$p" && return
    done
}
completed() {
    same "$1: it completes" "$(wait_state "$R" Completed 60)" Completed
    check "with equal bytes" cmp "$WORK/v.orig" "$T"
    same "and nothing beside" "$(ls "$WORK/other")" t.img
    rm -f "$T"
}
begin
TERM=xterm script -qec "stty cols 200; '$SNAPFERRY' wait '$R' --runtime-dir '$RUN' --state-dir '$STATE' \
    --config-dir '$CONF'" "$WORK/waited" >/dev/null </dev/null &
W=$!
kill -KILL "$(copier)"
completed "the copying process is killed"
wait $W
check "who waits is told how far it is" grep -qE 'moving [0-9]+% .* of 48.0 MiB' "$WORK/waited"
check "who waits is not told of stored data" eval '! grep -q "stored again" "$WORK/waited"'
begin; daemon_kill; starts "the daemon again"
completed "the daemon is killed"
begin; C=$(copier); kill -KILL "$C"; daemon_kill; starts "the daemon once more"
completed "both are killed"
begin; C=$(copier); kill -KILL "$C"; daemon_kill; starts "and again"
ask cancel "$R" --quiet
same "both are killed, and it is canceled" "$(wait_state "$R" Canceled 30)" Canceled
same "nothing is left" "$(ls "$WORK/other")" ""
same "its target is untouched" "$(doc "$O" | jq -r .target_state)" untouched

# No room: before it begins, and at the next attempt there is some.
full() { # what was deleted is freed by and by
    local i room
    for i in $(seq 20); do
        sync -f "$WORK/other"
        room=$(($(stat -f -c '%a * %S' "$WORK/other") - 20 * MIB))
        [ $room -le 0 ] || fallocate -o "$((i << 30))" -l $room "$WORK/other/fill"
        sleep 0.1
    done
}
full
R=$(askj restore "$A/$WORK/xfs/v.img" "$T" --from native | jq -r '.restore // empty')
O=$(op_id "$R")
check "a full file system: it is tried again" until_true 20 eval '[ "$(doc "$O" | jq ".attempt // 0")" -ge 2 ]'
expect "with what to do" 0 'free space there, or restore to another file system' -- ask describe "$O"
rm "$WORK/other/fill"
completed "there is room"
full
R=$(askj restore "$A/$WORK/xfs/v.img" "$T" --from native | jq -r '.restore // empty')
O=$(op_id "$R")
until_true 20 eval '[ "$(doc "$O" | jq ".attempt // 0")" -ge 2 ]'
ask cancel "$R" --quiet
same "full, and canceled" "$(wait_state "$R" Canceled 30)" Canceled
same "nothing of it is left" "$(ls "$WORK/other")" fill
rm "$WORK/other/fill"
check "nor on the volume's file system" until_true 20 clean_state "$WORK/xfs"
stops "the daemon stops"
finish
