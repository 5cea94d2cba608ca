#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A restore by the daemon onto a raw device: its mover, the daemon, or both are killed at many points. It goes on where
# it was and ends Completed with equal bytes; what cannot go on ends Failed, and says in which state the target is.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "restores by the daemon that are killed"
fs_make xfs xfs
random_file "$WORK/xfs/v.img" $((24 * MIB)) 81
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup || { fail "setup"; finish; }
truncate -s 32M "$WORK/raw"
DEV=$(loop_device "$WORK/raw"); at_exit "losetup -d $DEV"
config_class images "$WORK/xfs" 'write-limit = 12MiB' 'retries = 20'
config_add 60-raw "$(printf '[storage-class "raw"]\ndriver = device\nmatch = %s\n' "$DEV")"
starts "the daemon starts"
A=$(submit "$WORK/xfs/v.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed

clean() { dd if=/dev/zero of="$DEV" bs=1M count=32 conv=fsync status=none; }
# begin: sets R (the restore) and O (its operation), once its mover has written to the device.
begin() {
    local i
    R=$(askj restore "$A/$WORK/xfs/v.img" "$DEV" --from repository "$@" | jq -r '.restore // empty')
    O=$(op_id "$R")
    for i in $(seq 400); do
        [ "$(sql "SELECT state FROM operations WHERE id = '$O'" 2>/dev/null)" = Running ] && break
        sleep 0.02
    done
}
pid_now() {
    sql "SELECT json_extract(doc, '$.identity.pid') FROM operations WHERE id = '$O' AND state = 'Running'" 2>/dev/null
}
kill_mover() {
    local pid
    pid=$(pid_now)
    [ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null
}
completed() { # NAME
    local s
    s=$(wait_state "$R" Completed 90)
    if [ "$s" = Completed ] && cmp -n $((24 * MIB)) "$WORK/v.orig" "$DEV" >/dev/null; then
        pass "$1: Completed, with equal bytes"
    else
        fail "$1: $s" "$(doc "$O" | jq -c '.error // .')" "$(cmp -n $((24 * MIB)) "$WORK/v.orig" "$DEV" 2>&1)" \
            "$(tail -n 5 "$LOG")"
    fi
}

for delay in 0.05 0.3 0.7 1.1 1.6; do
    clean; begin; sleep $delay; kill_mover
    completed "mover killed after $delay s"
done
clean; begin
for _ in 1 2 3; do sleep 0.6; kill_mover; until_true 20 test -n "$(pid_now)"; done
completed "mover killed three times"
clean; begin; sleep 0.5; daemon_kill; starts "the daemon again"
completed "daemon killed"
clean; begin; sleep 0.5; pid=$(pid_now); daemon_kill; kill -KILL "$pid"; starts "the daemon once more"
completed "daemon and mover killed, as by a reset"
# The tries are counted: nothing of this was a failure of the device.
same "the first try alone sees whether the device is empty" "$(grep -c 'is not empty' "$LOG")" 0
expect "a device that is not empty is still refused" 17 'not empty' -- sh -c "mkfs.ext4 -q -F $DEV &&
    '$SNAPFERRY' restore '$A/$WORK/xfs/v.img' $DEV --from repository --wait --runtime-dir $RUN --state-dir $STATE \
    --config-dir $CONF"

# Another device under the same name in between: not touched.
clean; begin; sleep 0.3
pid=$(pid_now); kill -STOP "$pid"; daemon_kill; kill -KILL "$pid"
until_true 10 losetup -d "$DEV"
truncate -s 32M "$WORK/other"
random_file "$WORK/other" $((32 * MIB)) 82
before=$(sha256sum <"$WORK/other")
until_true 10 losetup "$DEV" "$WORK/other"
starts "the daemon with another device of that name"
s=$(wait_state "$R" Failed 60)
same "another device under the same name: Failed" "$s" Failed
check "and it says in which state the target is" grep -q 'cannot be recognised' <<<"$(doc "$O")"
sync "$DEV"
same "and nothing was written to it" "$(sha256sum <"$WORK/other")" "$before"
stops "the daemon stops"
finish
