#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The manifests of many backups are stored together (CF-40): an opening reads few contents in place of one for each
# backup, the list stays as it was, whatever the run is interrupted by, and the old packs go by the rules for all.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
[ -z "${THROUGH_S3:-}" ] || through_s3
R=$WORK/repo
q() { sf "$R" maintenance --node-name n1 "$@"; }
age() { "$TOOLS/age_repository" "$R" "$WORK/password" "$1"; }
state() { find "$1" -type f | LC_ALL=C sort | xargs sha256sum | sha256sum; }
list() { sf "$R" snapshot list --all --json | tail -n 1 | jq -c .snapshots; }
contents() { sf "$R" maintenance --node-name n1 --dry-run --json | result manifests.contents; }
history() { "$TOOLS/manifests" "$R" "$WORK/password" history | jq -c '.runs["compact-manifests"] | length'; }
take() { sf "$R" backup "$WORK/v" --as "v$1@h:/v" --quiet; }
sf "$R" repo create --quiet --node-name n1
random_file "$WORK/v" 300000 1
for i in $(seq 10); do take "$i"; done
expect "a few are left alone" 0 'Manifests +11 contents, .*when 16 of them are small' -- q --explain
same "by a full run, too" "$(q --full --json | result manifests.merged.count)" 0
same "which leaves no record" "$(history)" 0
for i in $(seq 11 20); do take "$i"; done
sf "$R" snapshot delete latest --as v3@h:/v --force --quiet
sf "$R" snapshot pin latest legal --as v4@h:/v --quiet
before=$(list) was=$(state "$R") n=$(contents)
check "there are many ($n)" [ "$n" -ge 23 ]
same "with 19 snapshots" "$(jq length <<<"$before")" 19
expect "a dry run says what would be done" 0 "Manifests +$n of $n contents .* would be stored together" -- q --dry-run
same "and changes nothing" "$(state "$R")" "$was"
expect "another node does not do it" 20 'belongs to snapferry-maintenance@n1' -- sf "$R" maintenance --node-name n2
same "nothing was changed by it" "$(state "$R")" "$was"

cp -a "$R" "$WORK/many"
for at in maintenance-manifests-written maintenance-manifests-checked maintenance-manifests-compacted; do
    rm -rf "$R" && cp -a "$WORK/many" "$R"
    expect "killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SF" -r "$R" --password-file "$WORK/password" \
        maintenance --node-name n1
    same "all are listed, killed at $at" "$(list)" "$before"
    q --quiet
    same "and after the next run, $at" "$(list)" "$before"
    same "of one content, $at" "$(contents)" 1
    check "whole, $at" sf "$R" verify --quiet
done
for at in pack-renamed index-written marker-deleted maintenance-marking maintenance-marked; do
    rm -rf "$R" && cp -a "$WORK/many" "$R"
    expect "killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SF" -r "$R" --password-file "$WORK/password" \
        maintenance --node-name n1
    same "all are listed, killed at $at" "$(list)" "$before"
    q --quiet
    same "stored together by the next run, $at" "$(list)$(contents)" "${before}1"
done

rm -rf "$R" && cp -a "$WORK/many" "$R"
out=$(q)
check "a quick run does it" grep -qE "^Manifests +$n of $n contents \(.*\) stored together in 1 \(" <<<"$out"
same "the list is the same" "$(list)" "$before"
same "of one content" "$(contents)" 1
same "there is a record of it" "$(history)" 1
same "once" "$(q --json | result manifests.merged.count)$(history)" 01
rm -rf "$CACHE"
same "read anew it is the same" "$(list)" "$before"
check "restored" sf "$R" restore latest "$WORK/out" --as v7@h:/v --quiet
check "as it was" cmp "$WORK/v" "$WORK/out"

# The packs of the old contents go like others, and the tombstone of what was deleted stays where it is needed.
packs() { find "$R/q" -type f | wc -l; }
many=$(packs)
for i in 1 2 3 4 5; do age 25 && q --full --quiet; done
check "packs are deleted" [ "$(packs)" -lt $((many / 2)) ]
same "and the list is the same" "$(list)" "$before"
check "whole at the end" sf "$R" verify --quiet

# Without delays: what a run rewrites is deleted by the next one, at once.
rm -rf "$R" && cp -a "$WORK/many" "$R"
age 100
check "without delays" q --full --safety=none --yes --quiet
sleep 1
check "and once more" q --full --safety=none --yes --quiet
same "of one content then" "$(contents)" 1
check "the packs go at once" [ "$(packs)" -lt $((many / 2)) ]
same "the list is still the same" "$(list)" "$before"
check "and whole" sf "$R" verify --quiet

# Next ones are merged with those before only when they are as many again.
for i in $(seq 30 50); do take "$i"; done
before=$(list)
check "again" q --quiet
same "nothing is lost" "$(list)" "$before"
check "and few are left" [ "$(contents)" -le 3 ]
finish
