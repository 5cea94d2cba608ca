#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs test programs (cmocka programs and shell scripts, all speaking TAP) and counts what they say. The last line is
# "N passed, N failed, N skipped". A program that ends badly without saying what failed counts as one failure, and so
# does one that runs no test at all.
# usage: tests/run.sh PROGRAM...     TEST_TIMEOUT=600 (seconds per program)   VERBOSE=1 (show everything)
set -u
export CMOCKA_MESSAGE_OUTPUT=TAP
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program in "$@"; do
    name=$(basename "$program" .sh)
    start=$SECONDS
    timeout -k 10 "${TEST_TIMEOUT:-600}" "$program" >"$log" 2>&1 </dev/null
    rc=$?
    ok=$(grep -cE '^ok [0-9]+' "$log")
    bad=$(grep -E '^not ok [0-9]+' "$log" | grep -vcE '^not ok [0-9]+ # SKIP') # cmocka calls what it skips "not ok"
    skip=$(grep -cE '^(not )?ok [0-9]+.*# SKIP' "$log")
    ok=$((ok - $(grep -cE '^ok [0-9]+.*# SKIP' "$log")))
    note=
    if [ $rc -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
        note=" (exit $rc$([ $rc -eq 124 ] && echo ': timed out'))"
    elif [ $((ok + bad + skip)) -eq 0 ]; then
        bad=1
        note=" (no test ran)"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    printf '%-28s %4d passed, %d failed, %d skipped, %d s%s\n' "$name" "$ok" "$bad" "$skip" $((SECONDS - start)) "$note"
    if [ "$bad" -gt 0 ] || [ -n "${VERBOSE:-}" ]; then
        tail -n 60 "$log" | sed 's/^/    /'
    elif [ "$skip" -gt 0 ]; then
        grep -E '# SKIP|^# skip' "$log" | sed 's/^/    /'
    fi
done
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
