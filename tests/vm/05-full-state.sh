#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The disk with the daemon's records fills up in mid-backup (MS-21): the daemon says so, begins nothing, loses nothing,
# and goes on by itself when there is room again.
VM_DISKS="data:400M state:64M"
. "$(dirname "$0")/lib.sh"
systemctl stop snapferryd.socket snapferryd.service 2>/dev/null
disk_fs data xfs /data && disk_fs state ext4 $STATE || exit 1
chmod 700 $STATE
image /data/v.img 32 1
cp /data/v.img /srv/v.orig
setup
config_class images /data 'snapshots-to-retain = 1' "$SLOWLY"
check "reload" systemctl reload snapferryd
became "a backup while there is room" "$(submit /data/v.img)" Completed 300
image /data/v.img 32 2
cp /data/v.img /srv/v.orig
same "ready" "$(http_code /readyz)" 200

moving /data/v.img
head -c 1G /dev/zero >$STATE/ballast 2>/dev/null
sync -f $STATE
check "the disk is full: $(df --output=avail $STATE | tail -n 1) KiB" \
    test "$(df --output=avail $STATE | tail -n 1)" -lt 64
expect "status answers" 0 -- ask status
until_true 300 eval "! kill -0 $PID"
check "the mover comes to its end" test ! -d "/proc/$PID"
degraded() { askj status | jq -e '.daemon.degraded' >/dev/null; }
until_true 60 degraded
check "the daemon is degraded and says so" degraded
expect "status tells why and what to do" 0 'space|full|room' -- ask status
same "not ready" "$(http_code /readyz)" 503
check "with the reason" eval 'page /readyz | grep -qiE "record|space|written"'
same "but alive" "$(http_code /healthz)" 200
until_true 30 metric_is records_degraded 1
same "the metric" "$(metric records_degraded)" 1
check "a counter of failed writes" test "$(metric record_write_errors_total | cut -d. -f1)" -ge 1
expect "no new backup is begun" 18 'space' -- ask backup /data/v.img
same "the daemon is the same process" "$(systemctl show -P NRestarts snapferryd.service)" 0

rm $STATE/ballast
became "with room the work counts" "$A" Completed 120
same "at the first attempt" "$(attempts "$O")" 1
until_true 60 eval '! degraded'
check "the daemon is well again" eval '! degraded'
same "ready" "$(http_code /readyz)" 200
until_true 30 metric_is records_degraded 0
same "the metric" "$(metric records_degraded)" 0
restored_same "the repository has the volume" "$A" /data/v.img /srv/v.orig repository
became "the next backup" "$(submit /data/v.img)" Completed 300
clean "nothing is left behind" 60 /data
finish
