#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Nothing that was tested before the control side was rebuilt is untested now: each case of tests/fixtures/cases.txt is
# still there, or tests/fixtures/successors.txt names one that is, or the reason why there is none. What "there" means
# says tests/fixtures/successors.pl: a text of the tests, or a case of the last report. Whether it passes the run shows.
. "$(dirname "$0")/../lib.sh"
root=$(realpath "$(dirname "$0")/../..")
fixtures=$root/tests/fixtures
: "${REPORT:=${BUILD:-build}/report}"
touch "$WORK/reported"
if [ -d "$REPORT/tests" ]; then
    # As in the output of a run, of which cases.sh makes names without what differs from run to run.
    find "$REPORT/tests" -type f | while IFS= read -r f; do
        printf '%s 1 passed, 0 failed, 0 skipped, 0 s\n' "$(basename "${f%.sh}")"
        sed -n 's/^[a-z]*\t/    ok 1 - /p' "$f"
    done >"$WORK/log"
    "$fixtures/cases.sh" "$WORK/log" >"$WORK/reported"
fi
lost() { perl "$fixtures/successors.pl" "${ROOT:-$root}" "${CASES:-$fixtures/cases.txt}" \
    "${SUCCESSORS:-$fixtures/successors.txt}" "$WORK/reported"; }

out=$(lost)
same "every case is there, or has a successor" "$(grep -v '^#' <<<"$out")" ""
check "all of them were looked at: ${out##*# }" grep -q '^# 4778 cases' <<<"$out"

# It can fail.
noticed() { # NAME PATTERN CASES SUCCESSORS
    printf '%s\n' "$3" >"$WORK/cases"
    printf '%s' "${4:+$4$'\n'}" >"$WORK/successors"
    if CASES=$WORK/cases SUCCESSORS=$WORK/successors lost | grep -qE -- "$2"; then
        pass "$1"
    else
        fail "$1" "not noticed"
    fi
}
T=$'\t'
noticed "a case that is gone" '^daemon-first: "never tested" is gone' "daemon-first${T}never tested"
noticed "a program that is gone" '^no-such-test: "its timer" is gone' "no-such-test${T}its timer"
noticed "a crash point that is gone" \
    '^daemon-crash: "crash at engine-old" is gone' "daemon-crash${T}crash at engine-old"
old="life${T}its timer is there"
noticed "a line that is missing" '^life: "its timer is there" is gone' "$old"
noticed "a successor that is not there" '"its timer is there": life has no "the job sleeps"' "$old" \
    "$old${T}life: the job sleeps"
noticed "one of a program that is gone" '"its timer is there": there is no lifetime' "$old" "$old${T}lifetime: it waits"
noticed "no reason" '^life: "its timer is there": no reason' "$old" "$old${T}-: why"
finish
