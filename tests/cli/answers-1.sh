#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# No member of an answer is lost by accident: what the command showed of the records of fixtures/schema-1 in version
# 0.1.0, path by path with its type, it shows today (fixtures/answers-1). What is gone on purpose is in removed.txt
# there.
. "$(dirname "$0")/../lib.sh"
fixtures=$(realpath "$(dirname "$0")/../fixtures")
kept=$fixtures/answers-1
export LC_ALL=C
mkdir -p "$WORK/state" "$WORK/run" "$WORK/conf/conf.d" "$WORK/answers"
xz -dc "$fixtures/schema-1/records.db.xz" >"$WORK/state/records.db"
xz -dc "$kept/schema.txt.xz" >"$WORK/schema"
printf '[daemon]\nnode-name = nas1\n[repository "main"]\ntype = filesystem\npath = /srv/backup\npassword-file = %s\n' \
    "$WORK/password" >"$WORK/conf/snapferry.ini"
ask() {
    "$SNAPFERRY" "$@" --json --runtime-dir "$WORK/run" --state-dir "$WORK/state" --config-dir "$WORK/conf" \
        2>"$WORK/err" | tail -n 1
}
# members NAME FILE...: each path and type that the kept schema has of NAME is in the files.
members() {
    local name=$1 lost
    shift
    lost=$(comm -23 <(awk -F'\t' -v n="schema-1 $name" '$1 == n {print $2}' "$WORK/schema" | sort) \
        <(jq -s -r -f "$kept/schema.jq" "$@" | sort) | while read -r line; do
        grep -qxF "schema-1 $name"$'\t'"$line" "$kept/removed.txt" || echo "$line"
    done)
    if [ -n "$lost" ]; then fail "$name" "lost:" "$(head -n 30 <<<"$lost")"; else pass "$name"; fi
}
n=0
all='--all --limit 100000'
for verb in "backups $all" "operations $all" "native list" volumes; do
    name=${verb% --all*}
    ask $verb >"$WORK/answers/list"
    members "$name" "$WORK/answers/list"
done
while IFS= read -r name; do
    rm -f "$WORK"/answers/*
    while read -r id; do ask describe "$id" >"$WORK/answers/$((++n))"; done < <(awk -F'\t' -v n="$name" \
        '$1 == n {print $2}' "$kept/described.txt")
    members "${name#schema-1 }" "$WORK"/answers/*
done < <(cut -f1 "$kept/described.txt" | sort -u)
printf '{"a": [{"b": 1}]}' >"$WORK/one"
same "the schema of an answer" "$(jq -s -r -f "$kept/schema.jq" "$WORK/one" | tr '\n' ';')" \
    '.a array;.a[] object;.a[].b number;'
finish
