#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The state directory is full while the daemon runs: a request is refused with the reason, failed writes are counted,
# work goes on with room, and the count survives a restart (MS-21, D.3). In mid-backup and on a real disk:
# tests/vm/05-full-state.sh.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon on a full disk"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 4 1
SOCK=$WORK/m.sock
daemon_setup
cat >"$WORK/hook" <<HOOK
#!/bin/sh
[ ! -e $WORK/wait ] || touch $WORK/waits
while [ -e $WORK/wait ]; do sleep 0.1; done
HOOK
chmod 755 "$WORK/hook"
config_class gold "$V" "hook-pre-snapshot = $WORK/hook" 'hook-timeout = 60s'
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
mount -t tmpfs -o size=8m tmpfs "$STATE" || exit 1
at_exit "umount -l '$STATE'"
starts "the daemon starts"
errors() {
    curl -s --max-time 10 --unix-socket "$SOCK" http://x/metrics |
        awk '$1 == "snapferry_record_write_errors_total" {print $2}'
}
degraded() { askj status | jq -e .daemon.degraded >/dev/null; }
same "nothing has failed" "$(errors)" 0
check "a backup while there is room" eval '[ "$(askj backup "$V/a.img" --wait | result state)" = Completed ]'

head -c 64M /dev/zero >"$STATE/ballast" 2>/dev/null
expect "no room: the request is refused, with the reason" 18 'space' -- ask backup "$V/a.img"
check "the daemon is degraded" degraded
check "failed writes are counted" eval 'until_true 10 eval "[ \"\$(errors)\" -ge 1 ]"'
rm "$STATE/ballast"
A=
again() { A=$(submit "$V/a.img"); [ -n "$A" ]; }
check "with room it is taken" until_true 20 again
check "... and nothing is degraded" until_true 20 eval '! degraded'
# The sweep, once a second here, moves the count into the records.
before=$(errors)
check "the count stays" test "${before:-0}" -ge 1
sleep 2
same "... when it is recorded" "$(errors)" "$before"

# What was decided cannot be recorded: it is tried again, but not all the time.
touch "$WORK/wait"
B=$(submit "$V/a.img")
check "a backup waits for its hook" until_true 20 test -e "$WORK/waits"
head -c 64M /dev/zero >"$STATE/ballast" 2>/dev/null
pid=$(askj status | jq .daemon.pid)
ticks() { awk '{print $14 + $15}' "/proc/$pid/stat"; }
began=$(ticks)
rm "$WORK/wait"
check "its end cannot be recorded" until_true 20 degraded
sleep 3
used=$(($(ticks) - began))
check "meanwhile the daemon is idle ($used ticks)" test "$used" -lt 100
rm "$STATE/ballast"
check "with room it goes on" until_true 40 eval '[ "$(doc "$B" | jq -r .state)" = Completed ]'
before=$(errors)
sleep 2

stops "the daemon ends"
starts "and starts again"
same "the count survives a restart" "$(errors)" "$before"
clean "nothing is left behind" 20 "$V"
finish
