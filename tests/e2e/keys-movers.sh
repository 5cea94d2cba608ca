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
explain_failure
finish
