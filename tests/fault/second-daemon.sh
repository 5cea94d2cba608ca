#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A second daemon with the runtime directory or the records of a running one is refused, and takes nothing from it; who
# asks at the wrong runtime directory is told that the daemon runs.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "two daemons"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 2 1
daemon_setup
config_class gold "$V" 'retries = 0'
starts "the daemon starts"
check "it backs up" ask backup "$V/a.img" --wait --quiet
second() { # STATE-DIR RUNTIME-DIR
    timeout 20 "$SNAPFERRYD" --foreground --config-dir "$CONF" --state-dir "$1" --runtime-dir "$2" \
        --cache-dir "$CACHE"
}
expect "another one with the same directories is refused" 14 "process $DPID" -- second "$STATE" "$RUN"
expect "... with another runtime directory" 14 "held by another process, number $DPID" -- second "$STATE" "$WORK/run2"
expect "... with other records" 14 "runtime directory $RUN is used by another daemon, process $DPID" \
    -- second "$WORK/state2" "$RUN"
check "the first one still backs up" ask backup "$V/a.img" --wait --quiet
elsewhere() { "$SNAPFERRY" "$@" --state-dir "$STATE" --config-dir "$CONF" --runtime-dir "$WORK/run3"; }
expect "status at another runtime directory" 0 'Daemon +NOT REACHED' -- elsewhere status
expect "... says that it runs" 0 "a daemon is running \(process $DPID\)" -- elsewhere backups
expect "... also of what needs it" 23 "a daemon is running \(process $DPID\)" -- elsewhere backup "$V/a.img"
daemon_kill
expect "when it does not: so it is said" 0 'Daemon +NOT RUNNING' -- elsewhere status
starts "after a kill it starts again at once"
stops "it stops"
explain_failure
finish
