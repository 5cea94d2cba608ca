#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keys that are times and limits of movers, by what a daemon does with them. Cases begin with the name of their key;
# tests/keys.md has all keys.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
X=$WORK/xfs
mkdir "$X/img"
image "$X/img/a.img" 24 1
daemon_setup 'retries = 0' 'cache-max = 64MiB'
config_class img "$X/img" 'retries = 3' 'retry-first = 3s' 'retry-max = 4s'
starts "the daemon starts"

running "$X/img/a.img"
kill -KILL "$PID"
check "retry-first: the first retry waits for that time" until_true 20 grep -q 'attempt 2 of 4 in 3 s' "$LOG"
PID=$(hold_mover "$O" 60)
kill -KILL "$PID"
check "retry-max: the second one no longer than that" until_true 20 grep -q 'attempt 3 of 4 in 4 s' "$LOG"
same "then it completes" "$(wait_state "$A" Completed 60)" Completed
running "$X/img/a.img"
job_of() { # what the mover of this PID was given: a sealed memory file
    local f
    for f in "/proc/$1"/fd/*; do
        case $(readlink "$f") in /memfd:*) jq -c 'select(.operation)' "$f" 2>/dev/null ;; esac
    done | head -n 1
}
same "cache-max: the mover's limit" "$(job_of "$PID" | jq -r .cache_size)" $((64 * MIB))
kill -CONT "$PID"
wait_state "$A" Completed 60 >/dev/null
clean "nothing is left behind" 20 "$X/img"

# A program beside the daemon's that does not become ready.
mkdir "$WORK/bin"
cp "$SNAPFERRYD" "$WORK/bin/snapferryd"
MOVER=$(dirname "$(realpath "$SNAPFERRYD")")/snapferry-mover
printf '#!/bin/sh\n[ ! -e "%s" ] || exec sleep 600\nexec "%s" "$@"\n' "$WORK/silent" "$MOVER" \
    >"$WORK/bin/snapferry-mover"
chmod 755 "$WORK/bin" "$WORK/bin/snapferry-mover"
stops "the daemon stops"
SNAPFERRYD=$WORK/bin/snapferryd
config_class img "$X/img" 'retries = 0' 'go-timeout = 3s'
# Of a family with a sample for each volume a hundred are shown.
for ((i = 0; i < 120; i++)); do truncate -s 4096 "$X/img/n$i.img"; done
most() { config_add metrics "$(printf '[metrics]\nlisten =\ntextfile = %s\ntextfile-period = 1s\nseries-max = %s' \
    "$WORK/m.prom" "$1")"; }
most 100
starts "a daemon with other movers starts"
touch "$WORK/silent"
A=$(submit "$X/img/a.img"); O=$(op_id "$A" "$X/img/a.img")
same "go-timeout: a mover that is not ready by then has failed" "$(wait_state "$A" 'Failed|PartiallyFailed' 60)" Failed
check "go-timeout: with the time in its message" grep -q 'never started: not ready within 3 s; killed' \
    <<<"$(doc "$O" | jq -r .error.message)"
rm "$WORK/silent"
infos() { grep -c '^snapferry_volume_info{' "$WORK/m.prom"; }
dropped() { awk '$1 == "snapferry_metrics_dropped_samples" {print $2}' "$WORK/m.prom"; }
same "all are known" "$(askj volumes | jq '.volumes | length')" 121
full() { [ "$(infos)" = 100 ] && [ "$(dropped)" -ge 21 ]; }
check "series-max: no more samples of a family, the others are counted" until_true 30 full
most 9000
check "the daemon reloads" ask reload
all() { [ "$(infos)" = 121 ] && [ "$(dropped)" = 0 ]; }
check "series-max: all, when there may be more" until_true 30 all
clean "nothing is left behind" 20 "$X/img"
explain_failure
finish
