#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The law of dependencies (docs/architecture.md): which room may use which, and no circle of files. tests/law/rooms is
# the law, tests/law/exceptions what is not yet so, tests/law/law.pl reads sources, dependency files, objects and
# programs.
. "$(dirname "$0")/../lib.sh"
root=$(realpath "$(dirname "$0")/../..")
build=$(realpath "${BUILD:-build}")
cd "$root" || exit 1
law() { perl tests/law/law.pl tests/law/rooms "${EXCEPTIONS:-tests/law/exceptions}" . "$build" "$@"; }

out=$(law)
rc=$?
if [ $rc -eq 0 ]; then
    pass "no room uses what it may not, no files in a circle: ${out##*# }"
else
    fail "the law of dependencies" "$out"
fi
check "rooms are linked in their order, without a group" bash -c '! grep -e --start-group Makefile'
# What depends on the kind of storage the drivers state (io/native/driver.h), or a table has
# (daemon/records/driver-kind.c).
drivers=$(sed -nE 's/.*(\.name = |_NAME |_DRIVER )"([a-z-]+)".*/\2/p' io/native/*.[ch] |
    grep -v snapferry | sort -u | paste -sd'|')
named() { grep -rnE --include='*.[ch]' "str[a-z]*cmp\([^;\"]*(driver|->name)[^;\"]*\"($drivers)\"" "$@"; }
same "the names of all drivers are known" "$(tr '|' '\n' <<<"$drivers" | wc -l)" 9
same "no driver is compared by its name in daemon/" "$(named daemon)" ""
mkdir -p "$WORK/by-name"
echo 'if (strcmp(k->driver, "rbd") != 0)' >"$WORK/by-name/one.c"
check "one that is would be noticed" named "$WORK/by-name"
sed -n 's/^\([a-z][^: ]*\): */\1 /p' tests/law/rooms >"$WORK/rooms"
sed -n 's/^| `\([^`]*\)` |[^|]*| \(.*\) |$/\1 \2/p' docs/architecture.md | sed 's/ -$/ /' >"$WORK/rooms.docs"
check "docs/architecture.md has the same table" diff "$WORK/rooms" "$WORK/rooms.docs"

# Decisions are pure: their objects import what tests/law/decide-symbols lists, and nothing else. imports DIR...: FILE
# SYMBOL of what objects import that none of them defines.
imports() {
    local o objects
    mapfile -t objects < <(find "$@" -name '*.o')
    nm --defined-only -g "${objects[@]}" | awk 'NF == 3 { print $3 }' | sort -u >"$WORK/decide.own"
    for o in "${objects[@]}"; do
        nm -u "$o" | awk -v f="$(basename "$o" .o)" '$2 !~ /^(_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)$/ &&
            $2 !~ /^__(asan|ubsan|tsan|sanitizer|gcov|llvm)_/ { sub(/^__isoc[0-9]+_/, "", $2)
            if ($2 ~ /^__.*_chk$/) { sub(/^__/, "", $2); sub(/_chk$/, "", $2) }
            print $2, "daemon/decide/" f ".c" }'
    done | sort -u | join -v 1 - "$WORK/decide.own"
}
impure() { # LIST DIR...
    local list=$1 symbol by pattern patterns is
    shift
    mapfile -t patterns < <(sed -n 's/^[a-z/]*: *//p' "$list" | tr -s ' ' '\n')
    imports "$@" >"$WORK/decide.imports"
    while read -r symbol by; do
        is=no
        # shellcheck disable=SC2053 # they are patterns
        for pattern in "${patterns[@]}"; do [[ $symbol == $pattern ]] && { is=yes; break; }; done
        [ $is = yes ] || echo "$by imports $symbol, which is not in ${list##*/}"
    done <"$WORK/decide.imports"
    mapfile -t patterns < <(sed -n '/^libc/d; s/^[a-z/]*: *//p' "$list" | tr -s ' ' '\n')
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053
        while read -r symbol _; do [[ $symbol == $pattern ]] && continue 2; done <"$WORK/decide.imports"
        echo "no decision imports $pattern any more: strike it off ${list##*/}"
    done
}
same "decisions import no I/O, no clock and no environment" \
    "$(impure tests/law/decide-symbols "$build/daemon/decide")" ""
# The compiler names the switch that lacks a new state, if no default takes it. Of classes of errors others may come.
same "no switch over states has a default" "$(grep -rl --include='*.c' '^ *default:' \
    daemon/{decide,engine,answers,schedule,metrics})" daemon/decide/outcome.c
states='Queued|Snapshotting|Exposing|Starting|Running|Retrying|Cancelling|CleaningUp|Moving|Finalizing|Deleting'
states+='|Completed|PartiallyFailed|Failed|Canceled|Skipped|creating|present|removing'
by_word() { grep -rnE --include='*.c' "str[a-z]*cmp\([^;]*(\"($states)\"|_state_name\()" "$@"; }
same "states are compared as enums, but for what the command reads of answers" \
    "$(by_word daemon | grep -v '^daemon/cli/')" ""

# It can fail: the product with files of $WORK/product added.
new=$WORK/product
reset() { rm -rf "$new" && mkdir -p "$new"; }
add() { # FILE: its text on standard input; a C file is compiled
    mkdir -p "$(dirname "$new/$1")" "$(dirname "$new/build/$1")"
    cat >"$new/$1"
    case $1 in
    *.c) (cd "$new" && "${CC:-cc}" -D_GNU_SOURCE -I. -I"$root" -MMD -c -o "build/${1%.c}.o" "$1") ||
        echo "$1 does not compile" ;;
    esac
}
noticed() { # NAME PATTERN [MORE]: exactly this line is new
    local name=$1 pattern=$2 got
    shift 2
    got=$(perl tests/law/law.pl tests/law/rooms "${EXCEPTIONS:-tests/law/exceptions}" "$root" "$build" "$new" \
        "$new/build" "$@" | grep -v '^#')
    if grep -qxE -- "$pattern" <<<"$got"; then pass "$name"; else fail "$name" "no /$pattern/ in: $got"; fi
}
reset
add cfg/added.h <<<'int added(void);'
same "more files that keep the law are no violation" "$(law "$new" "$new/build" | grep -v "^#")" \
    "$(grep -v "^#" <<<"$out")"
add cfg/added.c <<<'int reader_free(void); int added(void); int added(void) { return reader_free(); }'
noticed "a forbidden symbol is noticed and named" 'cfg/added\.c may not use io: symbols of io/reader\.c: reader_free'
reset
add cfg/added.h <<<'#include "io/reader.h"'
noticed "a forbidden include, though nothing reads it" 'cfg/added\.h may not use io: includes io/reader\.h'
reset
add base/first.c <<<'int first(void), second(void); int first(void) { return second(); }'
add base/second.c <<<'int third(void), second(void); int second(void) { return third(); }'
add base/third.c <<<'int first(void), third(void); int third(void) { return first(); }'
round='base/first\.c -> \(second\) base/second\.c -> \(third\) base/third\.c -> \(first\) base/first\.c'
noticed "a circle of symbols, with what leads round" "circle of 3 files by symbols: $round"
reset
printf '#pragma once\n#include "base/two.h"\n' | add base/one.h
printf '#pragma once\n#include "one.h"\n' | add base/two.h
noticed "a circle of includes" 'circle of 2 files by includes: base/one\.h -> base/two\.h -> base/one\.h'
reset
add daemon/loose.c <<<'int loose(void); int loose(void) { return 0; }'
noticed "a file that lies in daemon itself" 'daemon/loose\.c lies in no room'
reset
add base/hidden.h <<<'typedef int hidden;'
printf '#define HIDDEN "base/hidden.h"\n#include HIDDEN\n' | add base/hides.c
noticed "an include hidden in a macro" 'base/hides\.c: the compiler read base/hidden\.h, and no include shows why'
reset
add base/unbuilt.c <<<''
rm "$new/build/base/unbuilt.o"
noticed "a file that was not built" "base/unbuilt\\.c was not built: no .*"
reset
add base/again.c <<<'void err_set(void); void err_set(void) {}'
noticed "a symbol that is defined twice" 'err_set is defined twice: .*base/again\.c.*'
mkdir -p "$new/build" && cp "$build/snapferry" "$new/build/snapferryd"
noticed "a daemon with the data path in it" 'snapferryd contains backup_run of daemon/mover/backup\.c'

# What is added here is of its own room as well: a decision that asks the clock, and the environment.
reset
add daemon/decide/added.c <<<'#include <stdlib.h>
#include "base/time.h"
int added(void); int added(void) { return getenv("HOME") != NULL && now_ns() > 0; }'
impure tests/law/decide-symbols "$build/daemon/decide" "$new/build/daemon/decide" >"$WORK/impure"
same "a decision that asks the clock and the environment" "$(cat "$WORK/impure")" \
    "daemon/decide/added.c imports getenv, which is not in decide-symbols
daemon/decide/added.c imports now_ns, which is not in decide-symbols"
{ cat tests/law/decide-symbols; echo 'base: err_unheard_of'; } >"$WORK/symbols"
same "a symbol that none imports any more" "$(impure "$WORK/symbols" "$build/daemon/decide")" \
    "no decision imports err_unheard_of any more: strike it off symbols"
echo 'bool x = !strcmp(state, "Running");' >"$WORK/by-name/one.c"
check "a state compared by its word would be noticed" by_word "$WORK/by-name"

reset
EXCEPTIONS=$WORK/exceptions
{ cat tests/law/exceptions; echo 'base/err.c -> io/reader.c: nothing of the kind'; } >"$EXCEPTIONS"
noticed "an exception that no longer occurs" "no longer occurs, strike it off .*: base/err\\.c -> io/reader\\.c"
printf 'circle old: broken\n  base/err.c in old\n' | cat tests/law/exceptions - >"$EXCEPTIONS"
noticed "one of a circle that is broken" "no longer in a circle, strike it off .*: base/err\\.c"
finish
