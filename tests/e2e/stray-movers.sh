#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Movers that no record knows: the records were lost, or the daemon died at the wrong moment. A daemon ends them when it
# starts; what its records know, and what belongs to another daemon, it leaves alone.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "stray movers"
fs_make xfs xfs || { fail "a scratch file system"; finish; }
V=$WORK/xfs
random_file "$V/a.img" $((64 * MIB)) 1
daemon_setup
config_class gold "$V"
starts "the daemon starts"
mover_runs() { [ -e "/proc/$PID" ] && [ "$(awk '{ print $3 }' "/proc/$PID/stat" 2>/dev/null)" != Z ]; }
ended() { ! mover_runs; }

running "$V/a.img" # its mover is stopped
check "a mover is at work" mover_runs
daemon_kill
starts "the next daemon"
sleep 2 # its first sweep comes after a tenth of a second
check "leaves alone the mover that its records know" mover_runs
kill -CONT "$PID"
same "which ends its backup" "$(wait_state "$A" Completed 60)" Completed

running "$V/a.img"
daemon_kill
# Another daemon on the machine, with directories of its own.
(
    RUN=$WORK/run2 STATE=$WORK/state2 CONF=$WORK/conf2 CACHE=$WORK/cache2 LOG=$WORK/log2
    mkdir -p "$RUN" "$STATE"
    config_main
    daemon_start && sleep 2
    daemon_stop
)
check "another daemon leaves it alone as well" mover_runs
mkdir "$WORK/lost" && mv "$STATE"/records.db* "$WORK/lost/"
starts "a daemon that has lost its records"
check "ends the mover" until_true 20 ended
check "and reports it" grep -qF "the mover of $O was terminated: no unfinished operation of that name is recorded" \
    "$LOG"
A=$(submit "$V/a.img")
same "the next backup is good" "$(wait_state "$A" Completed 60)" Completed
until_true 20 settled
check "nothing is left of any mover" until_true 10 eval '[ -z "$(ls "$STATE/results")" ]'
stops "SIGTERM ends the daemon in order"
explain_failure
finish
