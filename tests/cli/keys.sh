#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every key of the configuration has an effect: the member that it is stored in is read outside of the room that parses
# it, tests/keys.md names cases that show what it does, which were run and passed, and the manual has it.
. "$(dirname "$0")/../lib.sh"
cd "$(dirname "$0")/../.." || exit 1
# "key member" of each entry of the table; of limits the member of the list that jobs are made from.
keys() {
    perl -0777 -ne 's!/\*.*?\*/!!sg;
        my $rooms = "DAEMON|METRICS|REPOSITORY|CLASS|VOLUME|JOB|PLUGIN|RULE|COPY|P";
        while (/\{\{"([^"]+)",\s*(?:POLICY|LIMITS|"[^"]*").*?\}\s*,\s*($rooms)\(([a-z_.]+)\)/sg) {
            my ($key, $room, $member) = ($1, $2, $3);
            $member =~ s/.*\.//;
            print "$key $room $member\n";
        }' cfg/keys.c | sort -u
}
keys >"$WORK/keys"
same "the whole table is read" "$(wc -l <"$WORK/keys")" "$(grep -c '^    {{"' cfg/keys.c)"
# Rules select policies, volumes and classes: they work inside of cfg/. Limits are made from one list.
readers() {
    grep -rlE "(->|\.)$2\b" daemon io proc --include='*.c' --include='*.h' | grep -v '^daemon/import/' | head -n 1
    case $1 in
        RULE | VOLUME | CLASS | PLUGIN | REPOSITORY | JOB | DAEMON)
            grep -lE "(->|\.)$2\b" cfg/lookup.c cfg/policy.c cfg/rules.c cfg/cfg.c cfg/build.c ;;
    esac
    grep -lE "\($2," daemon/protocol/mover-limits.h
}
unread=
while read -r key room member; do
    [ -n "$(readers "$room" "$member")" ] || unread+="$key "
done <"$WORK/keys"
same "each key is read by what works with it" "$unread" ""

# ---- tests/keys.md: the cases that show what each key does ----

root=$PWD
GIVEN=${REPORT:-}
: "${REPORT:=${BUILD:-build}/report}"
. tests/cases-lib.sh
# "SECTION KEY" of each entry, as the first column has it.
entries() {
    perl -0777 -ne 's!/\*.*?\*/!!sg;
        while (/\{\{"([^"]+)",\s*(?:(POLICY)|(LIMITS)|"([^" ]*)[^"]*")/sg) {
            printf "%s %s\n", $2 ? "*" : $3 ? "mover" : $4, $1;
        }' cfg/keys.c
}
# What one reference has wrong.
reference() { # KEY PATH:CASE
    local path=${2%%:*} want=${2#*:} how
    [ -f "$path" ] && [ "$path" != "$2" ] && [ -n "$want" ] || { echo "$1: $2 names no case of a test"; return; }
    case $path in
    tests/unit/test_decide.c) [ -f "tests/decide/$want.txt" ] || echo "$1: there is no scenario $want" ;;
    tests/unit/* | tests/e2e/* | tests/fault/* | tests/vm/*)
        # Literally, but for what the shell puts into the name.
        has_text "$path" "$want" || echo "$1: $path has no \"$want\"" ;;
    *) echo "$1: $path is no test" ;;
    esac
    [[ $path != tests/vm/* ]] || reported "$path" || return
    [ -n "$GIVEN" ] && [ -d "$GIVEN/tests" ] || return
    outcome "$path" "$want"
    case $how in
    passed) ;;
    "was skipped") echo "$path: $want" >>"$WORK/skipped" ;;
    *) echo "$1: $path: \"$want\" $how" ;;
    esac
}
# complaints TABLE: one line for each thing that is wrong.
complaints() {
    local line key shown rest
    local -A times=()
    while IFS= read -r line; do
        [[ $line =~ ^\|\ ([a-z*-]+\ [a-z.*-]+)\ \|\ (.*)\ \|$ ]] || continue
        key=${BASH_REMATCH[1]} shown=${BASH_REMATCH[2]}
        times[$key]=$((${times[$key]:-0} + 1))
        [[ $shown =~ ^not\ shown:\ .{8,} ]] && continue
        [[ $shown == *'`'* ]] || echo "$key: no test"
        rest=$shown
        while [[ $rest =~ \`([^\`]+)\`(.*) ]]; do
            rest=${BASH_REMATCH[2]}
            reference "$key" "${BASH_REMATCH[1]}"
        done
    done <"$1"
    while read -r key; do
        [ "${times[$key]:-0}" -eq 1 ] || echo "$key stands there ${times[$key]:-0} times"
        unset "times[$key]"
        has_text docs/man/snapferry.ini.5.pod "=item B<${key#* }>" || echo "$key is not in snapferry.ini(5)"
    done <"$WORK/entries"
    for key in "${!times[@]}"; do echo "$key is no key"; done
}
entries >"$WORK/entries"
same "each entry is one of the table" "$(wc -l <"$WORK/entries")" "$(grep -c '^    {{"' cfg/keys.c)"
same "each key has a test that shows its effect" "$(complaints tests/keys.md)" ""
if [ -n "$GIVEN" ]; then
    pass "which were run and passed"
else
    skip "which were run and passed" "at the end of make test"
fi
[ ! -e "$WORK/skipped" ] || skip "$(sort -u "$WORK/skipped" | wc -l) cases" "the machine cannot run them"

# It can fail.
wrong() { # NAME PATTERN SED
    sed "$3" tests/keys.md >"$WORK/table.md"
    if diff -q tests/keys.md "$WORK/table.md" >/dev/null; then fail "$1: the change did nothing"; return; fi
    if complaints "$WORK/table.md" | grep -qE -- "$2"; then pass "$1"; else fail "$1" "not noticed"; fi
}
wrong "a key without a row" '^daemon slots stands there 0 times' '/^| daemon slots |/d'
wrong "a key with two" '^daemon slots stands there 2 times' '/^| daemon slots |/p'
wrong "a row of no key" '^daemon slotz is no key' 's/^| daemon slots |/| daemon slotz |/'
wrong "a case that does not exist" '^mover nice: .* has no "unheard of"' '/^| mover nice/s/:[^`]*`/:unheard of`/'
wrong "no case" '^mover nice: no test' '/^| mover nice/s/`//g'
echo 'daemon undocumented' >>"$WORK/entries"
check "a key that the manual does not have" eval \
    'complaints tests/keys.md | grep -q "^daemon undocumented is not in snapferry.ini(5)"'
finish
