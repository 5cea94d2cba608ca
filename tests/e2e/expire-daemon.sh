#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon's own clock runs a job, retention follows each run, missed runs are caught up once (CF-43, CF-45, E-11).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "jobs by the clock"
export TZ=UTC
fs_make pool xfs || { fail "file system"; finish; }
random_file "$WORK/pool/a.img" 300000 1
daemon_setup
config_class images "$WORK/pool" "keep-latest = 2" "keep-hourly = 0" "keep-daily = 0" "keep-weekly = 0" \
    "keep-monthly = 0" "keep-annual = 0"
job() { config_add 60-job "[job \"often\"]
volumes = $WORK/pool/*.img
on-calendar = *:*:0/2
${1:-}"; }
job
starts "daemon"
query() {
    sql "SELECT json_extract(doc, '\$.planned_ns') / 1000000000 FROM backups
        WHERE json_extract(doc, '\$.job') = 'often' ${1:-}"
}
runs_at_least() { [ "$(query "AND state = 'Completed'" | wc -l)" -ge "$1" ]; }
check "three runs come" until_true 20 runs_at_least 3
same "each at a time of its own" "$(query | sort | uniq -d)" ""
same "which the calendar names" "$(query | awk '$1 % 2 || !$1')" ""
job "paused = yes"
check "paused by a reload" ask reload --wait
check "what runs ends" until_true 15 settled
two_left() { [ "$(sf "$REPO" snapshot list --json | tail -n 1 | jq '.snapshots | length')" = 2 ]; }
check "the repository keeps two" until_true 10 two_left
n=$(query | wc -l)
why=$(sf "$REPO" snapshot expire --dry-run --explain --all)
same "by the volume's own policy" "$(grep -c 'latest 2 (source), hourly 0 (source)' <<<"$why")" 1
config_class images "$WORK/pool" "keep-latest = 1"
ask reload --wait --quiet
out=$(ask snapshot expire --dry-run --explain)
check "a number that was changed counts from the next backup on" grep -q 'keeps: latest 2' <<<"$out"
check "which is told" grep -q 'changed in the configuration is put there by the' <<<"$out"
expect "also when it is done" 0 'changed in the configuration is put there by the' -- ask snapshot expire --wait
expect "and begun" 0 'changed in the configuration is put there by the' -- ask snapshot expire
check "they end" until_true 15 settled
config_class images "$WORK/pool" "keep-latest = 2" "keep-hourly = 0" "keep-daily = 0" "keep-weekly = 0" \
    "keep-monthly = 0" "keep-annual = 0"
ask reload --wait --quiet
same "and for a reason" "$(grep -cE 'kept     latest-[12]$' <<<"$why")" 2
sleep 2.5
same "no run while it is paused" "$(query | wc -l)" "$n"
same "it is shown" "$(askj status | jq -c '[.. | objects | select(.job? == "often") | .paused] | unique')" '[true]'

# Missed while the daemon was down: once, and said so.
job
check "it goes on" ask reload --wait
check "it runs" until_true 15 runs_at_least $((n + 1))
daemon_kill
n=$(query | wc -l)
sleep 5
starts "again"
caught_up() { query "AND json_extract(doc, '\$.caught_up')" | wc -l; }
late() { [ "$(caught_up)" = 1 ]; }
check "the missed runs are one" until_true 10 late
check "and it goes on" until_true 15 runs_at_least $((n + 2))
same "still one" "$(caught_up)" 1
same "none came twice" "$(query | sort | uniq -d)" ""
stops "end"
explain_failure
finish
