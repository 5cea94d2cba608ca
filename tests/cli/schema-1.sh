#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Records of schema 1, written by version 0.1.0 with every kind and state in them (fixtures/schema-1): the command reads
# them while the daemon is down, and shows each backup, operation, native snapshot and volume in the state that it was
# left in.
. "$(dirname "$0")/../lib.sh"
fixture=$(realpath "$(dirname "$0")/../fixtures/schema-1")
mkdir -p "$WORK/state" "$WORK/run" "$WORK/conf/conf.d"
xz -dc "$fixture/records.db.xz" >"$WORK/state/records.db"
xz -dc "$fixture/expected.json.xz" >"$WORK/expected.json"
check "the database is the one that is described" cmp \
    "$WORK/expected.json" <(sqlite3 -readonly "$WORK/state/records.db" <"$fixture/dump.sql")
before=$(sha256sum <"$WORK/state/records.db")
printf '[daemon]\nnode-name = nas1\n[repository "main"]\ntype = filesystem\npath = /srv/backup\npassword-file = %s\n' \
    "$WORK/password" >"$WORK/conf/snapferry.ini"
ask() {
    "$SNAPFERRY" "$@" --json --runtime-dir "$WORK/run" --state-dir "$WORK/state" --config-dir "$WORK/conf" \
        2>"$WORK/err" | tail -n 1
}
# compare NAME: the lines of $WORK/want are those of $WORK/have, and there are some.
compare() {
    sort -o "$WORK/want" "$WORK/want"; sort -o "$WORK/have" "$WORK/have"
    if [ -s "$WORK/want" ] && cmp -s "$WORK/want" "$WORK/have"; then pass "$1"
    else fail "$1" "$(diff "$WORK/want" "$WORK/have" | head -n 20)" "$(tail -n 3 "$WORK/err")"; fi
}
expected() { jq -r "$1" "$WORK/expected.json" >"$WORK/want"; }
all='--all --limit 100000'

# What is asked to be deleted shows as Deleting, whatever state it has ended in.
expected '.backups[] | "\(.id) \(if (.doc.deleting // "") != "" then "Deleting" else .state end)"'
ask backups $all | jq -r '.backups[] | "\(.id) \(.state)"' >"$WORK/have"
compare "every backup and restore"
expected '.operations[] | "\(.id) \(.state)"'
ask operations $all | jq -r '.operations[] | "\(.id) \(.state)"' >"$WORK/have"
compare "every operation"
expected '.operations[] | "\(.id) \(.doc.kind // "")"'
ask operations $all | jq -r '.operations[] | "\(.id) \(.kind)"' >"$WORK/have"
compare "every operation's kind"
expected '.natives[] | "\(.id) \(.state)"'
ask native list | jq -r '.natives[] | "\(.alias) \(.state)"' >"$WORK/have"
compare "every native snapshot"
expected '.volumes[] | .id'
ask volumes | jq -r '.volumes[] | .id' >"$WORK/have"
compare "every volume"
# One of each kind and state in full.
while read -r id what; do
    same "describe: $what" "$(ask describe "$id" | jq -r '(.backup // .operation // .native) | .id // .alias')" "$id"
done < <(jq -r '
    (["record of a", .backups], ["operation", .operations], ["native snapshot", .natives]) as [$kind, $rows] | $rows |
    map(select(.doc != {}) + {what: "\($kind) \([.doc.kind, .state] | map(select(.)) | join(", "))"}) |
    group_by(.what)[][0] | "\(.id) \(.what)"' "$WORK/expected.json")
same "nothing is written to them" "$(sha256sum <"$WORK/state/records.db")" "$before"
finish
