#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Rules of maintenance that no other script looks at (issue 15, CF-40): without safety delays through the daemon; a run
# half an hour after it was taken over, by who is the owner then; what is skipped leaves no record.
. "$(dirname "$0")/../daemon-lib.sh"
export TZ=UTC
age() { "$TOOLS/age_repository" "$REPO" "$WORK/password" "$1"; }
packs() { find "$REPO/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
m() { sf "$REPO" maintenance "$@"; }
# How often each task is in the history, as "TASK N"; of one: N.
records() {
    "$TOOLS/manifests" "$REPO" "$WORK/password" history |
        jq -r '.runs // {} | to_entries[] | "\(.key) \(.value | length)"'
}
of() { records | awk -v t="$1" '$1 == t { n = $2 } END { print n + 0 }'; }

# ---- records ----
sf "$REPO" repo create --quiet --node-name testnode --splitter FIXED-128K --pack-size 10MiB
random_file "$WORK/a" 3000000 1
random_file "$WORK/b" 6000000 2
random_file "$WORK/c" 2500000 3
for v in a c b; do sf "$REPO" backup "$WORK/$v" --as "$v@h:/v" --quiet; done
sf "$REPO" snapshot delete latest --as b@h:/v --force --quiet
same "before the first run there is no record" "$(records)" ""
m --full --dry-run --node-name testnode --quiet
same "a dry run leaves none" "$(records)" ""
expect "one that is refused" 20 'belongs to' -- m --full --node-name n2
same "neither" "$(records)" ""
check "a quick one" m --node-name testnode --quiet
same "of its two tasks" "$(records | xargs)" "advance-epoch 1 compact-single-epoch 1"
age 25
full=$(m --full --node-name testnode --json | tail -n 1)
same "the first full run collects" "$(jq '.marked.count > 0' <<<"$full") $(of snapshot-gc)" "true 1"
same "drops nothing: no record of that" "$(jq -r .droppedUntil <<<"$full") $(of full-drop-deleted-content)" " 0"
same "deletes packs where there are some" "$(of full-delete-blobs)" 1
same "has rewritten short packs" "$(jq '.rewritten.count > 0' <<<"$full") $(of full-rewrite-contents)" "true 1"
same "and extends no locks: no record of that" "$(of extend-blob-retention-time)" 0
again=$(m --full --node-name testnode --json | tail -n 1)
same "within the hour after that packs are not deleted: no record" "$(jq -r .deletedPacks.count <<<"$again") $(of \
    full-delete-blobs)" "0 1"
same "nor is anything rewritten before packs were deleted" "$(jq .rewritten.count <<<"$again") $(of \
    full-rewrite-contents)" "0 1"
same "what is done has one" "$(of snapshot-gc) $(of cleanup-logs) $(of advance-epoch)" "2 2 3"
for i in 2 3; do
    age 25
    last=$(m --full --node-name testnode --json | tail -n 1)
done
same "each run that drops has a record of it" "$(jq -r '.droppedUntil != ""' <<<"$last") $(of \
    full-drop-deleted-content)" "true 2"
same "so have both that could delete packs" "$(of full-delete-blobs)" 3
check "all is whole" sf "$REPO" verify --quiet

# ---- half an hour after it was taken over ----
# taken MINUTES: it was so long ago.
taken() {
    "$TOOLS/manifests" "$REPO" "$WORK/password" list maintenance |
        jq -c --arg t "$(date -u -d "-$1 minutes" +%FT%TZ)" '.data.snapferryTaken = $t' >"$WORK/taken"
    "$TOOLS/manifests" "$REPO" "$WORK/password" put <"$WORK/taken"
}
runs=$(of snapshot-gc)
check "another node takes it over" m --take-ownership --node-name n2 --quiet
same "there is one owner" "$("$TOOLS/manifests" "$REPO" "$WORK/password" list maintenance | jq -r .data.owner)" \
    snapferry-maintenance@n2
expect "it does not run at once" 14 'less than 30 minutes ago' -- m --full --node-name n2
taken 29
expect "nor 29 minutes later" 14 'less than 30 minutes ago' -- m --full --node-name n2
same "which leaves no record" "$(of snapshot-gc)" "$runs"
taken 31
check "after half an hour it runs" m --full --node-name n2 --quiet
same "and has a record" "$(of snapshot-gc)" $((runs + 1))
expect "the owner of before does not" 20 'belongs to snapferry-maintenance@n2' -- m --full --node-name testnode
check "one takes it over" m --take-ownership --node-name n3 --quiet
check "and another one after it" m --take-ownership --node-name n4 --quiet
taken 31
expect "who reads that it has lost does not run" 20 'belongs to snapferry-maintenance@n4' -- m --full --node-name n3
check "the other one does" m --full --node-name n4 --quiet
same "it was one run" "$(of snapshot-gc)" $((runs + 2))

# ---- without safety delays, by the daemon ----
check "this node is the owner again" m --take-ownership --node-name testnode --quiet
taken 31
sf "$REPO" backup "$WORK/b" --as b@h:/v --quiet
sf "$REPO" snapshot delete latest --as b@h:/v --force --quiet
before=$(packs)
config_main
config_add 70-maintenance "[repository \"main\"]
maintenance = no"
expect "a client is killed while it writes" 137 -- env SNAPFERRY_CRASH_AT=marker-put "$SNAPFERRY" -r "$REPO" \
    --password-file "$WORK/password" backup "$WORK/a" --as c@h:/v --quiet
starts "daemon"
check "it uses the repository" until_true 20 eval '[ "$(askj status | jq ".repositories[0].up")" = true ]'
expect "while its marker is young" 14 'younger than 96 hours: a client may be writing' -- \
    ask maintenance --full --safety=none --wait
expect "which names what is safe then" 14 'use --safety=full' -- ask maintenance --full --safety=none --wait
O=$(sql "SELECT id FROM operations WHERE id LIKE 'maintain-%' ORDER BY seq DESC LIMIT 1")
same "it is refused, which is no failure, and tried once" "$(state "$O") $(doc "$O" | jq '.attempt // 1')" "Skipped 1"
same "nothing was removed" "$(packs)" "$before"
age 90
expect "nor 90 hours later" 14 'younger than 96 hours' -- ask maintenance --full --safety=none --wait
same "nothing is" "$(packs)" "$before"
check "with delays it runs" ask maintenance --full --wait --quiet
same "and frees nothing yet" "$(packs)" "$before"
age 7
expect "after 96 hours it runs" 0 '^Freed 5\.[6-9] MiB of' -- ask maintenance --full --safety=none --wait
O=$(sql "SELECT id FROM operations WHERE id LIKE 'maintain-%' ORDER BY seq DESC LIMIT 1")
same "its record says how" "$(state "$O") $(sql "SELECT json_extract(doc, '\$.maintain.unsafe') FROM operations
    WHERE id = '$O'")" "Completed 1"
check "the space is back in one run" [ "$(packs)" -lt $((before - 5500000)) ]
check "what is left is whole" sf "$REPO" verify --quiet
check "restored" sf "$REPO" restore latest --as a@h:/v "$WORK/out" --quiet
check "as it was" cmp "$WORK/a" "$WORK/out"
stops "end"
explain_failure
finish
