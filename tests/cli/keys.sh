#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every key of the configuration has an effect: the member that it is stored in is read outside of the room that parses
# it, and a test sets it to a value.
. "$(dirname "$0")/../lib.sh"
cd "$(dirname "$0")/../.." || exit 1
# "key member" of each entry of the table; of limits the member of the list that jobs are made from.
keys() {
    perl -0777 -ne 's!/\*.*?\*/!!sg;
        my $rooms = "DAEMON|METRICS|REPOSITORY|CLASS|VOLUME|JOB|PLUGIN|RULE|P";
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
unread= untested=
while read -r key room member; do
    case $key in # of repositories of type s3, which are refused
        bucket | credentials | region | endpoint | prefix) continue ;;
    esac
    [ -n "$(readers "$room" "$member")" ] || unread+="$key "
    name=${key%.\*}
    grep -rqE "(^|[^a-z-])$name(\.[a-zA-Z0-9_-]+)? *=" tests/unit tests/e2e tests/fault tests/systemd tests/vm \
        tests/package tests/interop tests/*.sh || untested+="$key "
done <"$WORK/keys"
same "each key is read by what works with it" "$unread" ""
# Those of the list are still to be tested; no other may be without a test.
same "each key is set by a test" \
    "$(tr ' ' '\n' <<<"$untested" | sort -u | grep . | grep -vxFf tests/law/keys-untested)" ""
finish
