#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs test programs (cmocka programs and shell scripts, all speaking TAP) and counts what they say. The last line is
# "N passed, N failed, N skipped". A program that ends badly without saying what failed counts as one failure, and so
# does one that runs no test at all.
#
# Much of what is tested is a daemon with clocks, beside others on a machine that others use too. A program that fails
# is therefore run once more at the end, alone: only what fails then as well is a failure, and what passes is named
# before the last line as unsteady, with the log of its failure above, because there is something to mend: in the test,
# or a race in what it tests. With more than AGAIN of them nothing is run again.
# usage: tests/run.sh PROGRAM... [-- PROGRAM...]   (those behind -- are started when all before it have been)
#        TEST_TIMEOUT=600 (seconds per program)    VERBOSE=1 (show everything)
#        JOBS=7 (programs at a time; default seven for two CPUs, since most of them wait for something most of the time,
#        and at most 8; they share nothing but the machine)
#        AGAIN=8 (programs that are given a second run; 0: none)
#        REPORT=DIR: each program's seconds and cases are left in DIR/tests/..., for LAST and for the next order
#        LONGEST=1: the longest first, by REPORT or else seconds.txt; those that are in neither are the first
#        LAST="PROGRAM...": when all others have ended, one at a time
set -u
export CMOCKA_MESSAGE_OUTPUT=TAP
if [ -n "${REPORT:-}" ]; then REPORT=$(realpath -m "$REPORT"); export REPORT; fi
umask 022 # and no signal is ignored: where the tests are started from must not matter
cpus=$(nproc)
: "${JOBS:=$((cpus < 4 ? cpus * 3 + 1 : 8))}"
logs=$(mktemp -d)
scratch=
leave() {
    [ -z "$scratch" ] || { umount -l "$scratch" && rmdir "$scratch"; }
    rm -rf "$logs"
}
trap leave EXIT

# Most of the time of a test that syncs and deletes is the disk's. The files of the tests are in a tmpfs where one can
# be mounted and there is memory for it; scripts that say ON_DISK=1 have theirs on the disk (tests/lib.sh).
export DISK_TMPDIR=${TMPDIR:-/tmp}
if [ -z "${TMPDIR:-}${SNAPFERRY_IN_CONTAINER:-}" ] && [ "$(id -u)" -eq 0 ] &&
    [ "$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 8 ]; then
    scratch=$(mktemp -d /tmp/sf-XXXX)
    if mount -t tmpfs -o mode=1777,size=50%,nr_inodes=0 snapferry-tests "$scratch" 2>/dev/null; then
        export TMPDIR=$scratch SCRATCH=$scratch/ # short: sockets and sections have names of limited length
    else
        rmdir "$scratch"
        scratch=
    fi
fi

# One program; its log, exit status, seconds, and those of CPU of all processes that were waited for, are left in files
# named after its number.
run_one() {
    local start=$SECONDS rc cpu TIMEFORMAT='%U %S'
    cpu=$({ time env --default-signal timeout -k 10 "${TEST_TIMEOUT:-600}" "$2" >"$logs/$1" 2>&1 </dev/null; } 2>&1)
    rc=$?
    echo "$rc $((SECONDS - start)) $(awk '{ printf "%.0f", $1 + $2 }' <<<"$cpu")" >"$logs/$1.end"
}

# build/tests/unit/test_x and tests/e2e/x.sh have their reports at tests/unit/test_x and tests/e2e/x.sh.
report_of() { echo "$REPORT/tests/${1##*tests/}"; }
# "seconds N", "cpu N", then "passed<TAB>case", "failed<TAB>case" or "skipped<TAB>case". cmocka says "not ok 1 # SKIP
# case".
write_report() { # PROGRAM SECONDS CPU LOG
    local file
    [ -n "${REPORT:-}" ] || return 0
    file=$(report_of "$1")
    mkdir -p "${file%/*}"
    awk -v seconds="$2" -v cpu="$3" 'BEGIN { print "seconds " seconds; print "cpu " cpu }
        /^(not )?ok [0-9]+/ {
            how = /# SKIP/ ? "skipped" : /^not/ ? "failed" : "passed"
            if (!sub(/^(not )?ok [0-9]+ # SKIP /, "")) {
                sub(/^(not )?ok [0-9]+( - )?/, "")
                sub(/ # SKIP.*/, "")
            }
            print how "\t" $0
        }' "$4" >"$file"
}
# The programs, the longest first.
longest_first() {
    local p seconds
    for p; do
        seconds=$(sed -n '1s/^seconds //p' "$(report_of "$p")" 2>/dev/null)
        : "${seconds:=$(awk -v p="${p##*tests/}" '$1 == p { print $2 }' "$(dirname "$0")/seconds.txt")}"
        echo "${seconds:-999999} $p"
    done | sort -k 1,1nr -s | cut -d ' ' -f 2-
}

passed=0 failed=0 skipped=0 all_cpu=0 again=() unsteady=()
declare -A first # what a program counted that failed
count() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }
# The verdict on program number $1, as soon as it has ended. $3: "again" in its second run, "last": that of LAST.
report() {
    local log=$logs/$1 name rc seconds cpu ok bad skip note=
    name=$(basename "$2" .sh)
    read -r rc seconds cpu <"$log.end"
    all_cpu=$((all_cpu + cpu))
    ok=$(grep -cE '^ok [0-9]+' "$log")
    bad=$(grep -E '^not ok [0-9]+' "$log" | grep -vcE '^not ok [0-9]+ # SKIP') # cmocka calls what it skips "not ok"
    skip=$(grep -cE '^(not )?ok [0-9]+.*# SKIP' "$log")
    ok=$((ok - $(grep -cE '^ok [0-9]+.*# SKIP' "$log")))
    if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
        note=" (exit $rc$([ "$rc" -eq 124 ] && echo ': timed out'))"
    elif [ $((ok + bad + skip)) -eq 0 ]; then
        bad=1
        note=" (no test ran)"
    fi
    if [ "$bad" -gt 0 ] && [ -z "${3:-}" ]; then
        again+=("$1")
        first[$1]="$ok $bad $skip"
    else
        count "$ok" "$bad" "$skip"
    fi
    if [ "${3:-}" = again ]; then
        note="$note, run again alone"
        [ "$bad" -gt 0 ] || unsteady+=("$name")
    fi
    write_report "$2" "$seconds" "$cpu" "$log"
    printf '%-28s %4d passed, %d failed, %d skipped, %d s, CPU %d s%s\n' "$name" "$ok" "$bad" "$skip" "$seconds" \
        "$cpu" "$note"
    if [ -n "${VERBOSE:-}" ]; then
        sed 's/^/    /' "$log"
    elif [ "$bad" -gt 0 ]; then
        { # what failed, wherever it stands, and how it ended
            head -n -60 "$log" | grep -A 8 '^not ok' | grep -v '# SKIP' | head -n 60
            tail -n 60 "$log"
        } | sed 's/^/    /'
    elif [ "$skip" -gt 0 ]; then
        grep -E '# SKIP|^# skip' "$log" | sed 's/^/    /'
    fi
    rm -f "$log" "$log.end"
}

programs=() group=()
for p in "$@" --; do
    if [ "$p" != -- ]; then
        group+=("$p")
    elif [ ${#group[@]} -gt 0 ] && [ -n "${LONGEST:-}" ]; then
        mapfile -t group < <(longest_first "${group[@]}")
        programs+=("${group[@]}") group=()
    else
        programs+=("${group[@]}") group=()
    fi
done
[ -z "${REPORT:-}" ] || for p in "${programs[@]}"; do rm -f "$(report_of "$p")"; done
started=0 running=()
while [ $started -lt ${#programs[@]} ] || [ ${#running[@]} -gt 0 ]; do
    while [ $started -lt ${#programs[@]} ] && [ ${#running[@]} -lt "$JOBS" ]; do
        run_one $started "${programs[started]}" &
        running+=($started)
        started=$((started + 1))
    done
    wait -n
    still=()
    for i in "${running[@]}"; do
        if [ -e "$logs/$i.end" ]; then report "$i" "${programs[i]}"; else still+=("$i"); fi
    done
    running=("${still[@]}")
done
if [ ${#again[@]} -le "${AGAIN:-8}" ]; then
    for i in "${again[@]}"; do
        run_one "$i" "${programs[i]}"
        report "$i" "${programs[i]}" again
    done
else
    for i in "${again[@]}"; do count ${first[$i]}; done # three numbers
fi
for p in ${LAST:-}; do
    run_one last "$p"
    report last "$p" last
done
echo "$SECONDS s, CPU $all_cpu s (without what nothing waited for)"
[ ${#unsteady[@]} -eq 0 ] || echo "unsteady, failed beside others and passed alone: ${unsteady[*]}"
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
