#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# 600 jobs are due in the same second. The configuration is read again while they are started, and the daemon is
# killed: each has its run all the same, and no second one. (CF-45)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with a storage class"
N=600
fs_make xfs xfs || exit 1
V=$WORK/xfs
for i in 1 2 3 4; do image "$V/$i.img" 1 $i; done
daemon_setup
config_class gold "$V" 'move-data = no' 'snapshot-only-keep = 1'
# jobs CALENDAR
jobs() {
    for i in $(seq $N); do
        printf '[job "job-%d"]\nvolumes = %s/%d.img\non-calendar = %s\n' $i "$V" $((i % 4 + 1)) "$1"
    done >"$CONF/conf.d/60-jobs.ini"
}
started() { sql "SELECT count(*) FROM backups"; }
reached() { [ "$(started)" -ge "$1" ]; }
jobs "$(date -u -d '+12 seconds' '+%F %T UTC')"
starts "the daemon starts"
same "it has all of them" "$(askj jobs | jq '[.jobs[] | select(.next > 0 and .last == 0)] | length')" $N
check "some are started when they are due" until_true 60 reached 20
ask reload --wait --quiet
check "a reload: they go on" until_true 60 reached 60
same "in the middle: not all of them are started" "$([ "$(started)" -lt $N ] && echo yes)" yes
daemon_kill
expect "while it is down the others are due when it starts" 0 'when the daemon starts' -- ask jobs
starts "killed, and started again"
check "all are started" until_true 120 reached $N
sleep 2
same "each once" "$(sql "SELECT count(*), count(DISTINCT json_extract(doc, '\$.job')) FROM backups")" "$N|$N"
noted='.last > 0 and .last_backup != null and .due == false'
same "and noted" "$(askj jobs | jq "[.jobs[] | select($noted)] | length")" $N
daemon_stop
check "it says that no jobs run while it is down" \
    grep -q 'stopping.*; no jobs run until the daemon is started again' "$LOG"
explain_failure
finish
