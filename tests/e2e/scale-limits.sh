#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What an operation costs the daemon does not depend on how many there are (issue 12, Scale): the engine, the decisions,
# the records and the control socket with movers that answer at once (perf/bench_scale), for one, 100 and 2,000 volumes.
# Work is counted, not timed: commits, rows that walks come to, records written and read, steps of SQL, values of JSON.
# CPU time is compared as well, but only with a wide bound, since other work on the machine changes it.
. "$(dirname "$0")/../lib.sh"
if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then skip "limits of scale" "nothing to learn under a sanitizer"; finish; fi
BENCH=${BENCH:-${BUILD:-build}/perf/bench_scale}
FEW=100 MANY=2000

measured() { # N...: a line of JSON for each
    rm -f "$WORK/json"
    STATUS_MS=0 DIR=$WORK JSON=$WORK/json "$BENCH" "$@" >"$WORK/out" 2>&1 || { cat "$WORK/out"; return 1; }
    jq -s . "$WORK/json"
}
J=$(measured 1 $FEW $MANY) || { fail "jobs of 1, $FEW and $MANY volumes" "$J"; finish; }
# of N MEMBER: a figure; per N MEMBER: for each operation, in hundredths, rounded up.
of() { jq "map(select(.volumes == $1))[0].$2 | floor" <<<"$J"; }
per() { jq "map(select(.volumes == $1))[0] | .$2 * 100 / .volumes | ceil" <<<"$J"; }
most() { # NAME FIGURE LIMIT
    if [ "$2" -le "$3" ]; then pass "$1"; else fail "$1" "$2 is more than $3" "$(cat "$WORK/json")"; fi
}
for n in 1 $FEW $MANY; do
    same "a job of $n: all completed, and were found in the repository" "$(of $n completed) $(of $n proven)" "$n $n"
done

most "one operation alone: at most 8 commits" "$(of 1 commits)" 8
most "in a job of $FEW: at most 0.5 each" "$(per $FEW commits)" 50
most "in a job of $MANY: at most 0.5 each" "$(per $MANY commits)" 50

# Each of $MANY does at most 1.4 times the work of each of $FEW, and not much more than now.
steady() { # NAME MEMBER LIMIT (per operation)
    most "$1: at most 1.4 times as many for each of $MANY as for each of $FEW" "$(($(per $MANY "$2") * 10))" \
        "$(($(per $FEW "$2") * 14))"
    most "$1: at most $3 for an operation" "$(per $MANY "$2")" "$(($3 * 100))"
}
steady "rows that walks come to" rowsWalked 30
steady "records written" rowsWritten 25
steady "steps of SQL" sqlSteps 60
steady "values of JSON" jsonValues 4000
# Finished rows are read from the disk once they are no longer in memory, which begins beyond $FEW.
most "records read: at most 6 for an operation" "$(per $MANY rowsRead)" 600

# 24 MiB, 5 KiB for each live operation, 1 KiB for its volume and 1 for its native snapshot.
most "resident memory of a job of $MANY" "$(of $MANY rssKiB)" $((24 * 1024 + MANY * 7))
most "what an operation takes of it, between $FEW and $MANY" \
    $((($(of $MANY rssKiB) - $(of $FEW rssKiB)) / (MANY - FEW))) 12

# Three times the CPU time, and again with a run more: other work comes and goes.
again=0
while ratio=$(($(of $MANY "cpuMsPerOperation * 1e5") / ($(of $FEW "cpuMsPerOperation * 1e3") + 1)));
    [ $ratio -gt 300 ] && [ $((again++)) -lt 2 ]; do
    J=$(measured $FEW $MANY)
done
most "CPU time of one of $MANY: at most 3 times that of one of $FEW (in percent)" "$ratio" 300
finish
