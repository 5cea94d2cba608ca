#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A job that cannot be started: its runs count as failures, status, its first line and Prometheus tell of it, over a
# restart too, until it runs again.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../prometheus-lib.sh"
need_root "a daemon with a storage class"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 2 1
SOCK=$WORK/m.sock
daemon_setup
config_class gold "$V"
config_add 60-jobs "[job \"never\"]
volumes = $V/typo*.img
on-calendar = *:*:*
[job \"good\"]
volumes = $V/a.img
on-calendar = $(later)"
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
starts "the daemon starts"
page() { fresh_page --unix-socket "$SOCK" http://x/metrics >"$WORK/page"; }
value() { awk -v n="snapferry_$1" '$1 == n {print $2}' "$WORK/page"; }
more_than() { page; [ "$(value "$1")" != "" ] && [ "$(value "$1" | cut -d. -f1)" -gt "$2" ]; }
problems() { askj status | jq -r '.problems[] | select(.text | startswith("job ")) | .text'; }
says() { problems | grep -qxF "$1"; }
NONE='job "never" could not be started: there is nothing to back up: no volume matches'

check "its runs count" until_true 60 more_than 'backup_attempts_total{schedule="never"}' 1
check "as failures" more_than 'backup_failures_total{schedule="never"}' 0
same "the last one was none" "$(value 'backup_last_status{schedule="never"}')" 0
same "the other job has none" "$(value 'backup_failures_total{schedule="good"}')" 0
check "since when it should have run" more_than 'schedule_since_timestamp_seconds{schedule="never"}' 1000000
same "status says so" "$(problems)" "$NONE"
same "in its answer about the job" "$(askj status | jq -r '.jobs[] | select(.job == "never") | .failed.hint')" \
    '`snapferry volumes` lists what the classes match'
config_add 60-jobs "[job \"never\"]
volumes = $V/typo*.img
on-calendar = $(later)
[job \"good\"]
volumes = $V/a.img
on-calendar = $(later)"
ask reload --wait --quiet
daemon_stop; starts "the daemon starts again"
same "it is remembered" "$(problems)" "$NONE"
N=$(page; value 'backup_failures_total{schedule="never"}')
expect "by hand it fails, too" 16 'there is nothing to back up' -- ask backup --job never --quiet
check "that counts" until_true 20 more_than 'backup_failures_total{schedule="never"}' "$N"
image "$V/typo-1.img" 1 2
check "now there is something" ask backup --job never --wait --quiet
same "no problem any more" "$(problems)" ""
check "it has been good" more_than 'backup_last_success_timestamp_seconds{schedule="never"}' 1000000

# One of two volumes is removed: the other one goes on.
image "$V/b.img" 2 3
config_add 60-jobs "[job \"never\"]
volumes = $V/typo*.img
on-calendar = $(later)
[job \"good\"]
volumes = $V/a.img $V/b.img
on-calendar = $(later)"
ask reload --wait --quiet
is() { page; same "$1" "$(value "$2")" "$3"; }
check "both are there" ask backup --job good --wait --quiet
is "nothing is missing" 'schedule_volumes_missing{schedule="good"}' 0
rm "$V/b.img"
check "one is" ask backup --job good --wait --quiet
check "it is counted" until_true 60 eval 'page; [ "$(value "schedule_volumes_missing{schedule=\"good\"}")" = 1 ]'
is "the others are not" 'schedule_volumes_missing{schedule="never"}' 0
check "a problem of status" eval 'problems | grep -q "^job \"good\" has left out 1 of what it names: .*b.img"'
daemon_stop; starts "the daemon starts once more"
check "it is remembered, too" until_true 60 eval \
    'page; [ "$(value "schedule_volumes_missing{schedule=\"good\"}")" = 1 ]'
config_add 60-jobs "[job \"never\"]
volumes = $V/typo*.img
on-calendar = $(later)
[job \"good\"]
volumes = $V/a.img
on-calendar = $(later)"
ask reload --wait --quiet
same "what is not named any more is not missing" "$(problems)" ""

# A job is removed: what it has backed up would stay protected for ever.
with=$(cat "$CONF/conf.d/60-jobs.ini")
orphans() { askj status | jq -r '.problems[] | select(.text | startswith("no job backs up")) | .text'; }
same "none is without a job" "$(orphans)" ""
config_add 60-jobs "[job \"never\"]
volumes = $V/typo*.img
on-calendar = $(later)"
ask reload --wait --quiet
orphan() { [[ "$(orphans)" == "no job backs up $V/a.img any more"* ]]; }
check "one whose job is removed is a problem" until_true 20 orphan
expect "so that --check fails" 3 "no job backs up $V/a.img any more" -- ask status --check
check "volumes says so" eval 'ask volumes | grep -q "though no job backs it up any more"'
daemon_stop; starts "the daemon starts with it"
check "it is remembered that a job did" until_true 20 orphan
check "a backup by hand" ask backup "$V/a.img" --wait --quiet
same "is one that nobody expects a job for" "$(orphans)" ""
config_add 60-jobs "$with"
ask reload --wait --quiet

# The storage of a class is away; what is paused is no problem for that.
config_add 61-pause "[job \"good\"]
paused = yes"
ask reload --wait --quiet
umount "$V"
expect "a job whose storage is away" 16 'cannot share blocks' -- ask backup --job never --quiet
expect "one that is paused" 16 'cannot share blocks' -- ask backup --job good --quiet
same "the first is a problem" "$(problems | cut -d: -f1)" 'job "never" could not be started'
daemon_stop
explain_failure
finish
