#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A restore by the daemon, onto a raw device or into a file, whole, verified, differential or of a range: its mover, the
# daemon, or both are killed at many points. It goes on where it was and ends Completed with equal bytes; what cannot go
# on ends Failed, and says in which state the target is.
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
    R=$(askj restore "$A/$WORK/xfs/v.img" "${TARGET:-$DEV}" --from repository "$@" | jq -r '.restore // empty')
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
for _ in 1 2 3; do sleep 0.6; kill_mover; until_true 20 eval '[ -n "$(pid_now)" ]'; done
completed "mover killed three times"
clean; begin; sleep 0.5; daemon_kill; starts "the daemon again"
completed "daemon killed"
clean; begin; sleep 0.5; pid=$(pid_now); daemon_kill; kill -KILL "$pid"; starts "the daemon once more"
completed "daemon and mover killed, as by a reset"

# ---- every way to restore, killed at any point ----

# Another boot: what the records know of the mover's process is of one that is no more.
reboot() {
    local pid
    pid=$(pid_now)
    daemon_kill
    [ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null
    sqlite3 "$STATE/records.db" "UPDATE operations SET doc = json_set(doc, '$.identity.bootId',
        '0123456789abcdef0123456789abcdef') WHERE id = '$O' AND json_extract(doc, '$.identity.bootId') IS NOT NULL"
    starts "$1: the daemon after a reboot"
}
# target_ready FILE: other data, and some that is that of the volume; the same as $WORK/want is to be after a range.
target_ready() {
    random_file "$WORK/other" $((26 * MIB)) 83
    dd if="$WORK/v.orig" of="$WORK/other" bs=1M skip=20 seek=20 count=2 conv=notrunc status=none
    dd if="$WORK/other" of="$1" bs=1M conv=fsync status=none
    cp "$WORK/other" "$WORK/want"
    dd if="$WORK/v.orig" of="$WORK/want" bs=1000 skip=1000 seek=1000 count=17000 conv=notrunc status=none
}
# A slower restore, which has recorded a position when the machine goes down: it goes on from there.
config_class images "$WORK/xfs" 'write-limit = 2MiB' 'retries = 20'
check "reload" ask reload --wait --quiet
target_ready "$DEV"
begin --overwrite
check "a slow restore has recorded a position" until_true 40 eval \
    'find "$CACHE" -name "restore-device-*" ! -name "*.tmp" -exec grep -qE " [1-9][0-9]*$" {} \; -print | grep -q .'
reboot "a slow restore"
completed "a slow restore, over a reboot"
from=$(doc "$O" | jq .result.resumedFrom)
check "it went on from where it was: $from" test "$from" -gt $((8 * MIB))
same "and fetched only what is above" "$(doc "$O" | jq .result.fetchedBytes)" $((24 * MIB - from))
config_class images "$WORK/xfs" 'write-limit = 12MiB' 'retries = 20'
check "reload again" ask reload --wait --quiet

# once NAME: one of the things that can happen, by chance, at a point by chance.
once() {
    local pid
    sleep "0.$((RANDOM % 9))"
    case $((RANDOM % 5)) in
    0) kill_mover ;;
    1) daemon_kill; starts "$1: the daemon again" ;;
    2) pid=$(pid_now); daemon_kill; kill -KILL "$pid" 2>/dev/null; starts "$1: the daemon after both" ;;
    3) reboot "$1" ;;
    4) kill_mover; rm -rf "${CACHE:?}"/*; mkdir -p "$CACHE" ;; # with the position of the restore
    esac
}
SEED=${SEED:-$(date +%s)}
RANDOM=$SEED
echo "# SEED=$SEED"
for target in "$DEV" "$WORK/xfs/target.img"; do
    for options in --overwrite '--differential --verify' '--offset 1000000 --length 17000000'; do
        [ "$target" = "$DEV" ] || [ "$options" != --overwrite ] || options='--overwrite --verify'
        name="$([ "$target" = "$DEV" ] && echo device || echo file) $options"
        target_ready "$target"
        # shellcheck disable=SC2086
        TARGET=$target begin $options
        for _ in 1 2; do once "$name"; done
        s=$(wait_state "$R" Completed 120)
        same "$name: Completed" "$s" Completed
        case $options in
        *offset*) check "$name: the range, and nothing else" cmp -n $((26 * MIB)) "$WORK/want" "$target" ;;
        *) check "$name: equal bytes" cmp -n $((24 * MIB)) "$WORK/v.orig" "$target" ;;
        esac
        same "$name: its state is told" "$(doc "$O" | jq -r .target_state)" complete
    done
done
# Killed at each point of a restore, again and again until the daemon comes back without it.
for point in restore-noted restore-written restore-read-back; do
    for target in "$DEV" "$WORK/xfs/target.img"; do
        name="$([ "$target" = "$DEV" ] && echo device || echo file), killed at $point"
        daemon_kill; starts "$name: the daemon" SNAPFERRY_CRASH_AT=$point
        target_ready "$target"
        TARGET=$target begin --overwrite --verify
        check "$name: its mover is" until_true 30 eval '[ "$(doc "$O" | jq -r .attempt)" -ge 3 ]'
        daemon_kill; starts "$name: the daemon without"
        same "$name: Completed" "$(wait_state "$R" Completed 60)" Completed
        check "$name: equal bytes" cmp -n $((24 * MIB)) "$WORK/v.orig" "$target"
        same "$name: all of them read back" "$(doc "$O" | jq .result.verifiedBytes)" $((24 * MIB))
    done
done
# A cancel that meets a daemon that has just come back.
target_ready "$WORK/xfs/target.img"
before=$(sha256sum <"$WORK/xfs/target.img")
TARGET=$WORK/xfs/target.img begin --differential
# Its mover stands still meanwhile: on a slow machine it would have done all.
sleep 0.4; pid=$(pid_now); kill -STOP "$pid"; daemon_kill; starts "the daemon, to cancel"
ask cancel "$R" --quiet
kill -CONT "$pid"
same "canceled" "$(wait_state "$R" Canceled 30)" Canceled
same "its target is untouched, as it says" "$(sha256sum <"$WORK/xfs/target.img") $(doc "$O" | jq -r .target_state)" \
    "$before untouched"
target_ready "$DEV"
TARGET=$DEV begin --overwrite
sleep 0.4
ask cancel "$R" --quiet
same "canceled, onto a device" "$(wait_state "$R" Canceled 30)" Canceled
same "it is incomplete, as it says" "$(doc "$O" | jq -r .target_state)" incomplete
check "nothing is left behind" until_true 20 clean_state "$WORK/xfs"
clean

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
check "and it says why" grep -q 'cannot be recognised' <<<"$(doc "$O")"
same "and in which state the target is" "$(doc "$O" | jq -r .target_state)" incomplete
sync "$DEV"
same "and nothing was written to it" "$(sha256sum <"$WORK/other")" "$before"
stops "the daemon stops"
finish
