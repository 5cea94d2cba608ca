#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon runs its jobs, also when the clock is set over their times. A run that was missed, because the daemon or
# the machine was off, is caught up once (CF-45).
VM_DISKS="data:400M"
: "${VM_TIMEOUT:=1200}"
. "$(dirname "$0")/lib.sh"
next_run() { date -d "@$(askj jobs | jq -r '.jobs[0].next' | cut -c1-10)" "+%F %T"; }
runs() { sql "SELECT count(*) FROM backups WHERE id LIKE 'nightly-%'"; }
set_clock() { date -s "$1" >/dev/null && hwclock --systohc --utc; }
# Everything that is to come has come, and no second run.
runs_stay() {
    until_true 180 eval "[ \"\$(runs)\" -ge $2 ]"
    until_true 180 settled
    sleep 10
    same "$1" "$(runs)" "$2"
}

case $VM_BOOT in
1)
    disk_fs data xfs /data || exit 1
    image /data/v.img 4 1
    day=$(date -d tomorrow +%F)
    set_clock "$day 01:50"
    setup
    config_class images /data 'snapshots-to-retain = 1'
    config_add job '[job "nightly"]
volumes = class:images
on-calendar = *-*-* 02:00'
    check "reload" systemctl reload snapferryd
    expect "snapferry jobs lists the job" 0 'nightly +never' -- ask jobs
    same "and its time" "$(next_run)" "$day 02:00:00"
    same "nothing has run" "$(runs)" 0
    set_clock "$day 02:00:01"
    runs_stay "the time comes: one run" 1
    check "the clock was watched" eval 'journalctl -q -u snapferryd | grep -q "the clock was set"'
    same "no unit is made for a job" "$(systemctl list-units --all --no-legend --plain 'snapferry-job-*')" ""

    # The daemon is off; its socket is not, but nobody asks.
    day=$(date -d tomorrow +%F)
    systemctl stop snapferryd.service
    check "said so" eval 'journalctl -q -u snapferryd | grep -q "no jobs run until the daemon is started again"'
    set_clock "$day 02:30"
    sleep 60
    same "a stopped daemon runs no jobs" "$(systemctl is-active snapferryd.service) $(runs)" "inactive 1"
    starts "the daemon was off over the next run, and is started"
    runs_stay "it is caught up once" 2
    systemctl restart snapferryd
    runs_stay "a restart does not catch it up again" 2

    # The machine is off.
    set_clock "$(date -d tomorrow +%F) 01:00"
    until_true 30 answers
    set_clock "$(date +%F) 03:00" && reboot_by reset
    ;;
2)
    check "the clock is later than the run" test "$(date +%H)" -eq 3
    until_true 120 answers
    runs_stay "the machine was off over the run: caught up once" 3
    same "the next one is tomorrow's" "$(next_run)" "$(date -d tomorrow +%F) 02:00:00"
    same "all of them are Completed" "$(sql "SELECT count(*) FROM backups WHERE state = 'Completed'")" 3
    clean "nothing is left behind" 30 /data
    ;;
esac
finish
