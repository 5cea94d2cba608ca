#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A daemon that hangs is killed and started again by systemd's watchdog; movers do not notice.
VM_DISKS="data:400M"
. "$(dirname "$0")/lib.sh"
disk_fs data xfs /data || exit 1
image /data/v.img 32 1
cp /data/v.img /srv/v.orig
check "the unit has a watchdog" test "$(systemctl show -P WatchdogUSec snapferryd.service)" != 0
mkdir -p /etc/systemd/system/snapferryd.service.d
printf '[Service]\nWatchdogSec=15\nRestartSec=1\n' >/etc/systemd/system/snapferryd.service.d/quick.conf
systemctl daemon-reload
setup
config_class images /data 'snapshots-to-retain = 1' "$SLOWLY"
check "reload" systemctl reload snapferryd
moving /data/v.img
kill -STOP "$PID" # it has to be there when the new daemon is
sleep 20
same "a daemon that works is let live" "$(systemctl show -P NRestarts snapferryd.service)" 0
old=$(daemon_pid)
kill -STOP "$old"
until_true 180 eval '[ "$(systemctl show -P NRestarts snapferryd.service)" -ge 1 ]'
same "one that hangs is replaced" "$(systemctl show -P NRestarts snapferryd.service)" 1
check "by the watchdog" eval 'journalctl -q -u snapferryd.service | grep -qi "watchdog timeout"'
until_true 60 answers
check "the new one answers" test "$(daemon_pid)" != "$old"
same "the operation is at its first attempt" "$(attempts "$O")" 1
same "with the same process" "$(mover_pid "$O")" "$PID"
check "which lives" kill -0 "$PID"
kill -CONT "$PID"
became "and completes" "$A" Completed 300
restored_same "the repository has the volume" "$A" /data/v.img /srv/v.orig repository
clean "nothing is left behind" 30 /data
finish
