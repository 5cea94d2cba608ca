#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Restart, new program and stop of the daemon in mid-backup: the mover keeps its process and its work counts (E-03,
# MS-36).
VM_DISKS="data:400M"
. "$(dirname "$0")/lib.sh"
disk_fs data xfs /data || exit 1
image /data/v.img 32 1
cp /data/v.img /srv/v.orig
setup
config_class images /data 'snapshots-to-retain = 1' "$SLOWLY"
check "the configuration is accepted" snapferry check-config
check "reload takes it" systemctl reload snapferryd

moving /data/v.img
check "the mover is a unit of its own" test -n "$UNIT"
same "in its own cgroup" "$(basename "$(cut -d: -f3- "/proc/$PID/cgroup")")" "$UNIT"
same "as its own user" "$(stat -c %U "/proc/$PID")" snapferry-mover
before=$(daemon_pid)
check "systemctl restart" systemctl restart snapferryd
check "is another daemon" test "$before" != "$(daemon_pid)"
same "the operation runs" "$(state "$O")" Running
same "with the same process" "$(mover_pid "$O")" "$PID"
check "which lives" kill -0 "$PID"
kill -STOP "$PID" # the rest takes as long as it takes

# As an upgrade does it: the program's file is replaced, then the daemon is started anew.
cp /usr/sbin/snapferryd /usr/sbin/snapferryd.new && mv /usr/sbin/snapferryd.new /usr/sbin/snapferryd
check "a new program: try-restart" systemctl try-restart snapferryd
same "the operation runs" "$(state "$O")" Running
same "with the same process" "$(mover_pid "$O")" "$PID"

check "systemctl stop" systemctl stop snapferryd.socket snapferryd.service
check "the mover lives" kill -0 "$PID"
expect "the command tells that the daemon is down" 0 'not running|offline|is down' -- ask status
kill -CONT "$PID"
until_true 300 eval "! kill -0 $PID"
check "it comes to its end without the daemon" test ! -d "/proc/$PID"
starts "systemctl start"
became "its result counts" "$A" Completed 60
same "at the first attempt" "$(attempts "$O")" 1
restored_same "the repository has the volume" "$A" /data/v.img /srv/v.orig repository

# The socket brings the daemon back.
systemctl stop snapferryd.service 2>/dev/null
expect "a command starts the daemon (socket activation)" 0 -- ask status
same "it runs" "$(systemctl is-active snapferryd.service)" active
clean "nothing is left behind" 30 /data
finish
