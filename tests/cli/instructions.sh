#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-instructions: what it says of counts that are as kept, worse, better, new, gone or of another compiler.
. "$(dirname "$0")/../lib.sh"
cat >"$WORK/kept" <<'END'
# a comment
compiler gcc 12.2.0 -O2
buzhash/scalar 10.000
buzhash/avx2 5.000
END
judge() { # COUNTED-LINES [VARIABLE=VALUE...]
    printf '%s\n' "$1" >"$WORK/counted"
    env COMPILER="gcc 12.2.0" OPT=-O2 KEPT="$WORK/kept" COUNTED="$WORK/counted" ACCEPT= TOLERANCE=2 "${@:2}" \
        perf/instructions.sh
}
same_counts=$'buzhash/scalar 10.000\nbuzhash/avx2 5.000'
worse=$'buzhash/scalar 10.000\nbuzhash/avx2 5.200'
expect "counts as kept" 0 'avx2 .*kept +5.000 +\+0.00 %$' -- judge "$same_counts"
expect "within the tolerance" 0 '\+1.80 %$' -- judge $'buzhash/scalar 10.180\nbuzhash/avx2 5.000'
expect "a worse kernel fails and is named" 1 'worse, or unknown\): buzhash/avx2$' -- judge "$worse"
expect "... and it says how to accept it" 1 'make bench-instructions ACCEPT=1' -- judge "$worse"
expect "a wider tolerance" 0 '\+4.00 %$' -- judge "$worse" TOLERANCE=5
expect "a better kernel passes and is told" 0 'better than kept: ACCEPT=1' \
    -- judge $'buzhash/scalar 9.000\nbuzhash/avx2 5.000'
expect "a kernel without a number fails" 1 'unknown\): blake3/avx2$' -- judge "$same_counts"$'\nblake3/avx2 3.000'
expect "a number without a kernel fails" 1 'there is no such kernel' -- judge 'buzhash/scalar 10.000'
expect "what cannot be counted here is said and passes" 0 'avx2 not counted: this CPU' -- \
    judge $'buzhash/scalar 10.000\nbuzhash/avx2 not counted: this CPU does not run it'
expect "another compiler is not compared" 0 \
    'different compiler: not compared.*from gcc 12.2.0 -O2, these from clang 14' -- \
    judge "$worse" COMPILER="clang 14.0.6"
expect "another optimisation is not compared" 0 'different compiler: not compared' -- judge "$worse" OPT=-O3
expect "accepting" 0 'kept in ' -- judge "$worse" ACCEPT=1
expect "what was accepted is kept" 0 'kept +5.200' -- judge "$worse"
expect "... and the old count is better than it" 0 'better than kept' -- judge "$same_counts"
finish
