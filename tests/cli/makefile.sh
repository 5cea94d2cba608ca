#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The Makefile: what a change rebuilds, where the output goes, what is shown, and that `make help` has every target.
. "$(dirname "$0")/../lib.sh"
root=$(realpath "$(dirname "$0")/../..")
unset MAKEFLAGS MFLAGS MAKELEVEL CC CFLAGS LDFLAGS OPT SAN V
room=daemon/schedule # of few files
OUT=$WORK/out LIB=$WORK/out/libdaemon-schedule.a
export BUILD=$OUT
mk() { make --no-print-directory -C "$root" "$@" 2>&1; }
count() { grep -c "^$1 " <<<"$2"; }
members=$(cd "$root" && ls $room/*.c | wc -l)

out=$(mk -j2 "$LIB")
same "a line for each file that is compiled" "$(grep '^CC ' <<<"$out" | sort)" \
    "$(cd "$root" && printf 'CC %s\n' $room/*.c | sort)"
same "one for the library" "$(grep '^AR ' <<<"$out")" "AR $LIB"
same "and nothing else" "$(grep -cvE '^(CC|AR) ' <<<"$out")" 0
expect "made in another directory: nothing is left to do" 0 'up to date' -- mk "$LIB"
check "nothing of it in the tree" sh -c "! find '$root/$room' -newer '$OUT/flags' | grep -q ."
flags=$(stat -c %Y.%i "$OUT/flags")
mk "$LIB" >"$WORK/log"
same "flags that are the same are not written" "$(stat -c %Y.%i "$OUT/flags")" "$flags"
same "other flags compile all of it" "$(count CC "$(mk -j2 "$LIB" CFLAGS=-DCHANGED)")" "$members"
same "and those of before again" "$(count CC "$(mk -j2 "$LIB")")" "$members"
object=$OUT/$room/$(cd "$root/$room" && basename "$(ls -- *.c | head -n 1)" .c).o
same "other flags of the linker, too" "$(count CC "$(mk "$object" LDFLAGS=-Wl,-O1)")" 1
mk -j2 -s "$LIB" >"$WORK/log"
same "make -s shows nothing" "$(cat "$WORK/log")" ""
rm "$object"
expect "V=1 shows the command" 0 '^[^ ]*gcc .*-c -o ' -- mk "$object" V=1
expect "and no short line" 1 '' -- grep -q '^CC ' <(rm "$object"; mk "$object" V=1)
# A library has the members that the room has now.
sed -i "s,$, $room/gone.c," "$LIB.list"
same "a file that is gone from a room makes its library anew" "$(mk "$LIB")" "AR $LIB"
expect "clean removes what make made" 0 '' -- mk clean
check "all of it" test ! -e "$OUT"
mkdir "$OUT" && touch "$OUT/mine"
expect "and no directory that it did not make" 0 'not removed' -- mk clean
check "which is as it was" test -e "$OUT/mine"
rm -r "$OUT"
same "within the tree a path has one name" "$(mk BUILD="$root/build" -pn help | grep '^override BUILD\|^BUILD :\?=')" \
    "$(mk BUILD=build -pn help | grep '^override BUILD\|^BUILD :\?=')"

# ---- help ----
help=$(mk help)
# Targets for make itself and parts of others are not what a person asks for.
parts='FORCE print-cflags print-libs print-programs test-programs tested unit-programs fuzz-replay fuzz-programs'
parts+=' run-sanitized all help vm-stage'
targets=$(sed -n 's/^\.PHONY: //p' "$root/Makefile" | tr ' ' '\n' | grep -vxF -f <(tr ' ' '\n' <<<"$parts") | sort -u)
shown=$(grep -oE '^  make [a-z][a-z0-9-]*' <<<"$help" | sed 's/.*make //' | sort -u)
same "help has every target, and no other" "$shown" "$targets"
same "no line of it is longer than 120" "$(awk 'length > 120' <<<"$help")" ""
same "the programs that it names are there" "$(for f in $(grep -oE 'tests/[a-z0-9/-]*\.sh' <<<"$help"); do
    [ -x "$root/$f" ] || echo "$f"; done)" ""

# What `make test-vm` ends with.
R=$WORK/report
mkdir -p "$R/tests/vm"
all=("$root"/tests/vm/[0-9]*.sh)
for t in "${all[@]}"; do printf 'seconds 1\ncpu 1\npassed\ta case\n' >"$R/tests/vm/${t##*/}"; done
expect "a run of all tests in machines says which drivers it covered" 0 '^  zfs: [1-9]' -- \
    "$root/tests/vm/drivers.sh" "$R" "${all[@]}"
for t in "$root"/tests/vm/1[45]-zfs*.sh; do printf 'seconds 1\ncpu 1\nskipped\tall\n' >"$R/tests/vm/${t##*/}"; done
expect "one that was left out fails it" 1 '^left out: zfs$' -- "$root/tests/vm/drivers.sh" "$R" "${all[@]}"
expect "but not where only some were to run" 0 '^  zfs: 0' -- "$root/tests/vm/drivers.sh" "$R" "${all[0]}"
finish
