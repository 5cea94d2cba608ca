#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# docs/requirements.md: every number stands there once, with cases of tests that were run and passed in this run of
# `make test` (tests/run.sh leaves a report), or with a reason why nothing is built. Cases of `make test-vm` and
# `make test-interop` count by the last report of these, and are listed as not run here if there is none.
. "$(dirname "$0")/../lib.sh"
root=$(realpath "$(dirname "$0")/../..")
TABLE=${TABLE:-$root/docs/requirements.md}
: "${REPORT:=${BUILD:-build}/report}"
. "$root/tests/cases-lib.sh"
declare -A last=([MS]=62 [AO]=55 [RS]=30 [PVC]=25 [AP]=25 [CF]=59 [E]=20)

# What one reference in the last column has wrong.
reference() { # ID PATH[:CASE]
    local id=$1 path=${2%%:*} want= elsewhere= how
    [ "$path" = "$2" ] || want=${2#*:}
    if [ ! -f "$root/$path" ]; then
        echo "$id: there is no $path"
        return
    fi
    case $path in
    tests/unit/test_*.c | tests/fuzz/fuzz_*.c) ;;
    tests/cli/*.sh | tests/e2e/*.sh | tests/fault/*.sh | tests/package/*.sh | tests/systemd/*.sh)
        [ -x "$root/$path" ] || echo "$id: $path cannot be run" ;;
    tests/vm/*.sh) elsewhere=test-vm ;;
    tests/interop/*.sh) elsewhere=test-interop ;;
    *) echo "$id: $path is no test" ;;
    esac
    if [ -z "$want" ]; then
        echo "$id: no case of $path is named"
    elif [ -n "$elsewhere" ] && ! reported "$path"; then
        has_text "$root/$path" "$want" || echo "$id: $path has no \"$want\""
        echo "$path: $want" >>"$WORK/make $elsewhere"
    elif [ -d "$REPORT" ]; then
        outcome "$path" "$want"
        case $how in
        passed) ;;
        "was skipped") echo "$path: $want" >>"$WORK/a machine that can" ;;
        *) echo "$id: $path: \"$want\" $how" ;;
        esac
    fi
}

# complaints FILE: one line for each thing that is wrong.
complaints() {
    local kind n id line text shown rest
    local -A times=()
    local -a cell
    while IFS= read -r line; do
        id=${line#| } id=${id%% |*}
        [[ $id =~ ^(MS|AO|RS|PVC|AP|CF|E)-([0-9]{2})$ ]] || continue
        times[$id]=$((${times[$id]:-0} + 1))
        [ "$((10#${BASH_REMATCH[2]}))" -le "${last[${BASH_REMATCH[1]}]}" ] || echo "$id is no requirement"
        line=${line//\\|/ }
        IFS='|' read -ra cell <<<"$line|."
        text=${cell[2]:-} shown=${cell[3]:-}
        [ -n "${text// /}" ] || echo "$id: nothing is said"
        [ "${#cell[@]}" -eq 6 ] || echo "$id: not three columns"
        if [[ $text =~ ^\ not\ built:\ .{8,} ]]; then
            [ -z "${shown// /}" ] || echo "$id: not built, and shown by $shown?"
            continue
        fi
        [[ $shown == *'`'* ]] || { echo "$id: no test"; continue; }
        rest=$shown
        while [[ $rest =~ \`([^\`]+)\`(.*) ]]; do
            rest=${BASH_REMATCH[2]}
            reference "$id" "${BASH_REMATCH[1]}"
        done
    done <"$1"
    for kind in "${!last[@]}"; do
        for ((n = 1; n <= last[$kind]; n++)); do
            printf -v id '%s-%02d' "$kind" "$n"
            [ "${times[$id]:-0}" -eq 1 ] || echo "$id stands there ${times[$id]:-0} times"
        done
    done
}

out=$(complaints "$TABLE")
if [ -z "$out" ]; then pass "every number has its line, every line its test"; else fail "the table" "$out"; fi
if [ -d "$REPORT/tests" ]; then
    pass "which were run and passed"
else
    skip "which were run and passed" "there is no report of a run: make test"
fi
for by in "make test-vm" "make test-interop" "a machine that can"; do
    [ -e "$WORK/$by" ] || continue
    sort -u "$WORK/$by" | sed 's/^/# skip, not run here: /'
    skip "$(sort -u "$WORK/$by" | wc -l) cases of $by" "not run here"
done
# Metrics that have another name than required: the one that they have exists.
none=$(sed -n '/^## Names of metrics/,$s/^|[^|]*|\([^|]*\)|.*/\1/p' "$TABLE" | grep -v 'label\|text format' |
    grep -o '`[a-z_]*' | tr -d '`' | while read -r n; do
    grep -q "=item B<snapferry_$n> (" "$root/docs/man/snapferry-metrics.7.pod" || echo "$n"
done)
same "the names of metrics are there" "$none" ""
# Named by wildcard, so that all of them run: nothing takes one out.
check "the Makefile runs all scripts" grep -q 'wildcard tests/cli/\*.sh tests/e2e/\*.sh tests/fault/\*.sh' \
    "$root/Makefile"
check "and all unit tests" grep -q 'wildcard tests/unit/test_\*.c' "$root/Makefile"

# It can fail.
wrong() { # NAME PATTERN SED
    sed "$3" "$TABLE" >"$WORK/table.md"
    if diff -q "$TABLE" "$WORK/table.md" >/dev/null; then fail "$1: the change did nothing"; return; fi
    if complaints "$WORK/table.md" | grep -qE -- "$2"; then pass "$1"; else fail "$1" "not noticed"; fi
}
wrong "a missing line is noticed" '^RS-17 stands there 0 times' '/^| RS-17 |/d'
wrong "one that is there twice" '^AO-28 stands there 2 times' '/^| AO-28 |/p'
wrong "one that does not exist" '^E-77 is no requirement' 's/^| E-20 |/| E-77 |/'
wrong "a test that does not exist" 'MS-62: there is no tests/unit/test_nothing.c' \
    '/^| MS-62 /s/`[^`]*`/`tests\/unit\/test_nothing.c`/'
wrong "a file without a case" 'MS-36: no case of ' '/^| MS-36 /s/:[^`]*`/`/'
if [ -d "$REPORT/tests" ]; then
    wrong "a case that was not run" 'MS-36: .* "unheard of" was not run' '/^| MS-36 /s/:[^`]*`/:unheard of`/'
    cp -r "$REPORT" "$WORK/report" && REPORT=$WORK/report
    sed -i 's/^passed\(\twith the same process\)/failed\1/' "$REPORT/tests/fault/daemon-restart.sh"
    rm "$REPORT/tests/unit/test_records"
    complaints "$TABLE" >"$WORK/complaints"
    check "a case that failed" grep -q '^MS-50: .*"with the same process" failed' "$WORK/complaints"
    check "a program that was not run" grep -q '^MS-62: .* was not run' "$WORK/complaints"
fi
wrong "no test at all" '^CF-13: no test' '/^| CF-13 /s/`//g'
wrong "nothing said" '^CF-13: nothing is said' '/^| CF-13 /s/|[^|]*|\([^|]*\)|$/| |\1|/'
finish
