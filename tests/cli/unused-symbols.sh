#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# No global symbol of the product that only tests use, unless its name or its header says so (tests/law/unused.pl).
# tests/law/unused-exceptions has those that wait for their callers; it only gets shorter.
. "$(dirname "$0")/../lib.sh"
root=$(realpath "$(dirname "$0")/../..")
build=$(realpath "${BUILD:-build}")
cd "$root" || exit 1
unused() { perl tests/law/unused.pl "$@" | grep -v '^#' | sort; }

now=$(unused . "$build")
# "FILE SYMBOL: why", or "ROOM/: why" for all of a room.
exceptions=$(sed -n 's/^\([^#:]*\):.*/\1/p' tests/law/unused-exceptions)
same "no symbol of the product is unused" "$(grep -vF -e "${exceptions:-none}" <<<"$now")" ""
same "no exception is left over" "$(while read -r x; do grep -qF -e "$x" <<<"$now" ||
    echo "$x"; done <<<"$exceptions")" ""

# It can fail: the product with files of $WORK/product added.
new=$WORK/product
add() { # FILE: its text on standard input; a C file is compiled
    mkdir -p "$(dirname "$new/$1")" "$(dirname "$new/build/$1")"
    cat >"$new/$1"
    case $1 in *.c) "${CC:-cc}" -O2 -c -o "$new/build/${1%.c}.o" "$new/$1" || echo "$1 does not compile" ;; esac
}
is_new() { comm -13 <(echo "$now") <(unused . "$build" "$new" "$new/build"); }
add base/added.h <<<'int lonely(void), called_here(int), inlined(int), probe_test(void), in_test_header(void),
    of_the_other(void);'
add base/added.c <<'X'
#include "added.h"
/* lonely() is named in a comment, and in "a text". */
int lonely(void) { return 0; }
__attribute__((noinline)) int called_here(int n) { return n + 1; }
int inlined(int n) { return n * called_here(n); }
int pointed_at(void) { return 2; }
int probe_test(void) { return of_the_other(); }
int in_test_header(void) { return inlined(3); }
int (*added_table[])(void) = {pointed_at};
X
add daemon/added.c <<'X'
int of_the_other(void);
extern int (*added_table[])(void);
int of_the_other(void) { return added_table[0](); }
X
add base/added-test.h <<<'int in_test_header(void);'
same "what nothing uses is found, and nothing else" "$(is_new)" "base/added.c lonely"
add base/added-test.h <<<''
same "also what no header for tests declares any more" "$(is_new)" "$(printf 'base/added.c %s\n' in_test_header lonely)"
finish
