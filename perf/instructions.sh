#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-instructions: how many instructions each kernel takes for a byte, counted by valgrind, against the numbers
# kept in perf/instructions.txt. The same binary gives the same count on every machine and under any load, so what
# changes was changed by us: more than TOLERANCE=2 % over the kept number, or a kernel without one, is a failure.
#   ACCEPT=1 keeps what was counted.    COMPILER="gcc 12.2.0" (default: ask the program)    OPT=-O2 (told, not used)
#   INSTALL=no does not install valgrind where it is missing
#   KEPT=FILE    COUNTED=FILE takes "KERNEL INSTRUCTIONS-PER-BYTE" lines from there instead of counting
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build} TOLERANCE=${TOLERANCE:-2} OPT=${OPT:--O2} KEPT=${KEPT:-perf/instructions.txt}
program=$BUILD/perf/count_kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Valgrind runs AVX2 code, where the CPU has it, but no AVX-512.
count() {
    local bytes kernel runs collected
    if ! command -v valgrind >/dev/null && [ "${INSTALL:-yes}" = yes ] && [ "$(id -u)" -eq 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind libc6-dbg >&2 || true
    fi
    command -v valgrind >/dev/null || { echo "there is no valgrind: apt-get install valgrind" >&2; exit 1; }
    # Valgrind 3.19 gives up on the debug information of newer compilers; the names of functions are enough.
    strip --strip-debug -o "$work/count_kernels" "$program"
    bytes=$("$program" --bytes)
    while read -r kernel runs; do
        case $kernel in
        */avx512) echo "$kernel not counted: valgrind runs no AVX-512"; continue ;;
        esac
        if [ "$runs" != yes ]; then
            echo "$kernel not counted: this CPU does not run it"
            continue
        fi
        if ! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=measured \
            "$work/count_kernels" "$kernel" \
            >"$work/log" 2>&1; then
            cat "$work/log" >&2
            exit 1
        fi
        collected=$(sed -n 's/.*Collected : *\([0-9]*\).*/\1/p' "$work/log")
        [ "${collected:-0}" -gt 0 ] ||
            { cat "$work/log" >&2; echo "callgrind counted nothing for $kernel" >&2; exit 1; }
        echo "$kernel $(bc -l <<<"scale=3; $collected / $bytes" | sed 's/^\./0./')"
    done < <("$program" --list)
}

compiler="${COMPILER:-$("$program" --compiler)} $OPT"
if [ -n "${COUNTED:-}" ]; then cat "$COUNTED" >"$work/counted"; else count >"$work/counted"; fi

if [ -n "${ACCEPT:-}" ]; then
    {
        echo "# Instructions per byte of each kernel; make bench-instructions compares, ACCEPT=1 writes this file anew."
        echo "compiler $compiler"
        grep -v 'not counted' "$work/counted"
    } >"$work/kept"
    cat "$work/kept" >"$KEPT"
    cat "$work/counted"
    echo "kept in $KEPT"
    exit 0
fi

kept_compiler=$(sed -n 's/^compiler //p' "$KEPT")
[ -n "$kept_compiler" ] || { echo "$KEPT names no compiler" >&2; exit 1; }
if [ "$compiler" != "$kept_compiler" ]; then
    cat "$work/counted"
    echo "different compiler: not compared. The kept numbers are from $kept_compiler, these from $compiler"
    exit 0
fi
awk -v tolerance="$TOLERANCE" '
    FNR == NR { if ($0 !~ /^#/ && $1 != "compiler") kept[$1] = $2; next }
    / not counted: / { print; seen[$1] = 1; next }
    {
        seen[$1] = 1
        if (!($1 in kept)) {
            printf "%-18s %9.3f  no number is kept for it\n", $1, $2
            bad = bad " " $1
            next
        }
        change = 100 * ($2 - kept[$1]) / kept[$1]
        printf "%-18s %9.3f  kept %9.3f  %+6.2f %%", $1, $2, kept[$1], change
        if (change > tolerance) { printf "  WORSE"; bad = bad " " $1 }
        else if (change < -tolerance) { printf "  better"; better = 1 }
        printf "\n"
    }
    END {
        for (k in kept)
            if (!(k in seen)) { printf "%-18s is kept, but there is no such kernel\n", k; bad = bad " " k }
        if (better) print "better than kept: ACCEPT=1 keeps the new numbers, so that they stay"
        if (bad) {
            printf "not as kept (more than %s %% worse, or unknown):%s\n", tolerance, bad
            print "where that is meant, accept it: make bench-instructions ACCEPT=1, and commit perf/instructions.txt"
            exit 1
        }
    }' "$KEPT" "$work/counted"
