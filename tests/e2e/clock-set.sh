#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The clock is set back by two days while the daemon runs: deadlines move with it, so that a mover which does not obey
# is killed and a failed operation tried again when they would have been; new volumes are found, native snapshots that
# go are missed, and how long the daemon is up is not counted by the clock.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with movers"
FAKE=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1)
[ -n "$FAKE" ] || { skip "a clock that is set" "libfaketime is not installed"; finish; }
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 40 1
image "$V/b.img" 12 2
image "$V/c.img" 4 3
clock() { echo "$1" >"$WORK/clock.new" && mv "$WORK/clock.new" "$WORK/clock"; }
clock +0
FAKED=(LD_PRELOAD="$FAKE" FAKETIME_TIMESTAMP_FILE="$WORK/clock" FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1)
daemon_setup 'sweep = 3s' 'slots = 3' 'per-device = 3' 'retry-first = 15s' 'retry-max = 15s' 'cancel-grace = 8s'
config_class gold "$V" 'read-limit = 1M' 'snapshots-to-retain = 1'
starts "the daemon starts" "${FAKED[@]}"
C=$(submit "$V/c.img")
wait_state "$C" Completed 90 >/dev/null
running "$V/a.img"
B=$(submit "$V/b.img"); OB=$(op_id "$B")
wait_state "$OB" Running 30 >/dev/null
kill -KILL "$(mover_pid "$OB")"
same "one waits for another attempt" "$(wait_state "$OB" Retrying 20)" Retrying
ask cancel "$A" --quiet &
wait_state "$O" Cancelling 10 >/dev/null
rm -f "$(stored_natives "$V" | grep "$(natives_of "$V/c.img")")"
clock -2d
expect "how long the daemon is up, at once" 0 'up [0-9.]+ (s|min)' -- env "${FAKED[@]}" "$SNAPFERRY" status \
    --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
image "$V/new.img" 1 3
if PATIENCE=2 wait_state "$O" Canceled 15 >/dev/null; then
    pass "a mover that does not obey is killed in time"
else
    fail "a mover that does not obey is killed in time" "$(doc "$O")"
    kill -KILL "$PID"
fi
found() { [ -n "$(askj volumes | jq -r --arg v "$V/new.img" '.volumes[] | select(.name == $v) | .name')" ]; }
check "a new volume is found" until_true 10 found
missed() { [ -z "$(natives_of "$V/c.img")" ]; }
check "a native snapshot that has gone is missed" until_true 10 missed
again() { [[ $(state "$OB") =~ Running|Completed ]]; }
check "another attempt is made in time" until_true 15 again
expect "how long the daemon is up" 0 'up [0-9.]+ (s|min)' -- env "${FAKED[@]}" "$SNAPFERRY" status \
    --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
expect "when the configuration was loaded" 0 'loaded [0-9]+ (s|min) ago' -- env "${FAKED[@]}" "$SNAPFERRY" status \
    --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
wait_state "$OB" Completed 90 >/dev/null
took='[0-9.]+ (s|min)( [0-9]+ s)?'
expect "how long it took does not count what the clock was set by" 0 "^State +Completed in $took *\$" -- \
    ask describe "$OB"
wait_state "$B" Completed 30 >/dev/null
expect "nor that of its backup" 0 "^State +Completed in $took *\$" -- ask describe "$B"
check "nor does the list" eval 'ask backups | grep -E "^Completed +$B .* in $took *\$"'
check "nor the journal" eval 'grep -E "$B: Completed: .*, $took\$" "$LOG"'

# Before the daemon is started: an attempt that was due in seconds is not due in days.
clock +0
sleep 3
B=$(submit "$V/b.img"); OB=$(op_id "$B")
wait_state "$OB" Running 30 >/dev/null
kill -KILL "$(mover_pid "$OB")"
wait_state "$OB" Retrying 20 >/dev/null
daemon_kill
clock -2d
starts "it starts again" "${FAKED[@]}"
check "an attempt is made in time over a restart" until_true 20 again
ask cancel --all --quiet
wait_state "$OB" 'Canceled|Completed' 60 >/dev/null
stops "the daemon stops"
explain_failure
finish
