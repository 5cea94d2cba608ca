#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# snapshot expire, delete, pin and unpin on a repository (E-11, CF-43, CF-44): dry runs, reasons, the last good copy,
# crashes.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo
NODE=$(hostname -s | tr A-Z a-z)
sf "$R" repo create --quiet
random_file "$WORK/i" 20000 1
take() { sf "$R" backup "$WORK/i" --as "$1" --quiet; }
ids() { sf "$R" snapshot list --all --as "$1" --json | tail -n 1 | jq -r '.snapshots[].id'; }
count() { ids "$1" | wc -l; }
mine=snapferry@$NODE:/vg0/db1 other=snapferry@elsewhere:/v
for i in $(seq 6); do take "$mine"; done
for i in 1 2 3; do take $other; done
keep() { "$TOOLS/policy_keep" "$R" "$WORK/password" "$@" >/dev/null; }
check "a policy" keep "$mine" 2 0 1 0 0 0
check "another one" keep $other 1 0 0 0 0 0

# What would go, and why.
out=$(sf "$R" snapshot expire --dry-run --explain 2>&1)
same "a dry run counts" "$(tail -n 1 <<<"$out")" "4 of 6 snapshots of 1 source would be deleted; nothing was changed."
same "one line for each" \
    "$(grep -cE '^  [0-9a-f]{16}  20[0-9]{2}(-[0-9]{2}){2} [0-9]{2}(:[0-9]{2}){2} [A-Z+0-9-]+  (kept|expired) +[a-z]' \
        <<<"$out")" 6
same "in 80 columns" "$(COLUMNS=80 sf "$R" snapshot expire --dry-run --explain 2>&1 | awk 'length > 80')" ""
check "the newest has its reasons" grep -q 'kept     latest-1, daily-1$' <<<"$out"
check "those that go, too" grep -q 'expired  not among the newest 2; a newer snapshot' <<<"$out"
check "the policy and where it is from" grep -q 'keeps: latest 2 (source), hourly 0 (source), daily 1 (source)' \
    <<<"$out"
same "nothing went" "$(count "$mine")" 6
json=$(sf "$R" snapshot expire --dry-run --all --json | tail -n 1)
same "in JSON" "$(jq -c '[.type, .verb, .dryRun, (.sources | length), .kept, .expired, .unreadable]' <<<"$json")" \
    '["result","snapshot expire",true,2,3,6,0]'
same "each with a reason" "$(jq '[.sources[].snapshots[] | select(.why != "")] | length' <<<"$json")" 9
same "and the policy" "$(jq -c --arg s "$mine" \
    '.sources[] | select(.source == $s) | .policy.keepDaily | [.value, .from]' <<<"$json")" '[1,"source"]'
same "without --explain only what goes" "$(sf "$R" snapshot expire --dry-run | grep -c '  kept  ')" 0

# A crash before it is durable changes nothing, one behind it everything.
pinned=$(ids "$mine" | head -n 1)
pin=$(sf "$R" snapshot pin "$pinned" keep-me --json | result id)
same "a pin gives a new id" "$(ids "$mine" | grep -c "$pinned")$(ids "$mine" | grep -c "$pin")" 01
expect "killed before" 137 -- env SNAPFERRY_CRASH_AT=expire-decided "$SF" -r "$R" --password-file \
    "$WORK/password" snapshot expire --quiet
same "nothing went" "$(count "$mine")" 6
check "the repository is whole" sf "$R" verify --quiet
expect "killed behind" 137 -- env SNAPFERRY_CRASH_AT=expire-deleted "$SF" -r "$R" --password-file \
    "$WORK/password" snapshot expire --quiet
same "all went, but the pinned one" "$(count "$mine")" 3
check "the pinned one is there" test -n "$(ids "$mine" | grep "$pin")"
same "other nodes' are untouched" "$(count $other)" 3
check "the repository is whole still" sf "$R" verify --quiet
expect "again: nothing to do" 0 '^0 of 3 snapshots of 1 source deleted' -- sf "$R" snapshot expire
expect "of all nodes" 0 '2 of 6 snapshots of 2 sources deleted' -- sf "$R" snapshot expire --all
same "there too" "$(count $other)" 1
expect "one source" 0 'of 1 source' -- sf "$R" snapshot expire --as $other
expect "a node without any is named" 0 "No snapshots of node other; .*--all takes those of all" -- \
    sf "$R" snapshot expire --node-name other
expect "a source that is not there" 0 'No snapshots' -- sf "$R" snapshot expire --as snapferry@n:/none

# Files of killed writers, as own and stock clients name them: removed after 24 h of the clock of the storage, unless a
# marker of their session is younger than 96 h, or a process has them open.
H=0123456789abcdef
put() { mkdir -p "$(dirname "$R/$1")"; head -c "${3-1000}" /dev/zero >"$R/$1"; touch -d "$2" "$R/$1"; }
left() { (cd "$R" && find . -name '*.tmp.*' -printf '%P\n' | sort | tr '\n' ' '); }
find "$R" -name '*.tmp.*' -delete
put p/abc/dead-s1111111111111111147.f.tmp.$H '25 hours ago' 4000
put x/n0_/dead-s1111111111111111147-c1.f.tmp.$H '25 hours ago'
put kopia.maintenance.f.tmp.$H '3 days ago'
put .shards.tmp.$H '3 days ago'
put p/abc/young-s1111111111111111147.f.tmp.$H '23 hours ago'
put p/abc/alive-s2222222222222222147.f.tmp.$H '80 hours ago'
put s/abc/def-s2222222222222222147.f '80 hours ago'
put p/abc/lost-s3333333333333333147.f.tmp.$H '120 hours ago'
put s/abc/old-s3333333333333333147.f '97 hours ago'
put p/abc/open-s1111111111111111147.f.tmp.$H '25 hours ago'
put p/abc/other.f.tmp.xyz '3 days ago'
put p/abc/other.tmp.$H '3 days ago'
mkdir -p "$R/p/abc/d.f.tmp.$H"; ln -s /etc/passwd "$R/p/abc/l.f.tmp.$H"; mkfifo "$R/p/abc/f.f.tmp.$H"
keeps="p/abc/alive-s2222222222222222147.f.tmp.$H p/abc/d.f.tmp.$H p/abc/f.f.tmp.$H p/abc/l.f.tmp.$H"
keeps="$keeps p/abc/open-s1111111111111111147.f.tmp.$H p/abc/other.f.tmp.xyz p/abc/other.tmp.$H"
keeps="$keeps p/abc/young-s1111111111111111147.f.tmp.$H "
before=$(left)
exec 8<"$R/p/abc/open-s1111111111111111147.f.tmp.$H"
expect "a dry run reports files of killed writers" 0 '^5 unfinished files of killed writers would be removed' \
    -- sf "$R" snapshot expire --dry-run
same "and leaves them" "$(left)" "$before"
same "expire counts and removes them" \
    "$(sf "$R" snapshot expire --json | tail -n 1 | jq -c '[.leftovers, .leftoverBytes]')" '[5,8000]'
same "files in use, young ones and those of a session stay" "$(left)" "$keeps"
exec 8<&-
find "$R" -newermt '24 hours ago' -name '*.f' -exec touch -h -d '40 hours ago' {} +
same "a repository that nobody writes to stands still" "$(sf "$R" snapshot expire --json | result leftovers)" 0
find "$R" -name 'kopia.repository.f' -exec touch {} +
same "the file that was open is removed later" "$(sf "$R" snapshot expire --json | result leftovers)" 1
rm -rf "$R/p/abc" "$R/s/abc"

# Pins and deleting.
expect "pinned twice is once" 0 'Nothing to do' -- sf "$R" snapshot pin "$pin" keep-me
expect "a pinned one is not deleted" 2 'is pinned: nothing deleted' -- sf "$R" snapshot delete "$pin"
expect "nor is the last good copy" 2 'last good copy' -- sf "$R" snapshot delete latest --as $other
same "both are there" "$(count "$mine")$(count $other)" 31
expect "killed at a pin" 137 -- env SNAPFERRY_CRASH_AT=pin-decided "$SF" -r "$R" --password-file \
    "$WORK/password" snapshot unpin "$pin" keep-me
same "it is as it was" "$(sf "$R" snapshot show "$pin" --json | result 'snapshot.pins[0]')" keep-me
plain=$(sf "$R" snapshot unpin "$pin" keep-me --json | result id)
expect "unpinned" 0 -- sf "$R" snapshot show "$plain"
expect "a dry run of deleting" 0 'would be deleted' -- sf "$R" snapshot delete "$plain" --dry-run
expect "deleted" 0 '1 snapshot deleted' -- sf "$R" snapshot delete "$plain"
expect "it is gone" 16 -- sf "$R" snapshot show "$plain"
expect "by force" 0 -- sf "$R" snapshot delete latest --as $other --force --quiet
same "that volume has none now" "$(count $other)" 0
expect "no such snapshot" 16 -- sf "$R" snapshot delete 0123456789abcdef0123456789abcdef
expect "an empty pin" 2 -- sf "$R" snapshot pin latest "" --as "$mine"
expect "both ways to say which" 2 'mutually exclusive' -- sf "$R" snapshot expire --all --as "$mine"
newest=$(sf "$R" snapshot list --as "$mine" --json | tail -n 1 | jq -r '.snapshots[-1].id')
rm -f "$WORK/out"
check "the rest restores" sf "$R" restore "$newest" "$WORK/out" --quiet
check "to the same bytes" cmp "$WORK/i" "$WORK/out"

mv "$R/kopia.repository.f" "$WORK/aside" 2>/dev/null || mv "$R/kopia.repository" "$WORK/aside"
expect "no repository" 11 -- sf "$R" snapshot expire
# Killed when the pack of what it writes is there and its index is not: what is in it is not used by later runs, and is
# no damage either.
Q=$WORK/killed
sf "$Q" repo create --quiet
for i in 1 2; do sf "$Q" backup "$WORK/i" --as "$mine" --quiet; done
expect "killed between pack and index" 137 -- env SNAPFERRY_CRASH_AT=pack-renamed "$SF" -r "$Q" --password-file \
    "$WORK/password" snapshot delete latest --as "$mine" --force --quiet
check "whole after that" sf "$Q" verify --quiet
random_file "$WORK/j" 20000 2
check "a backup" sf "$Q" backup "$WORK/j" --as "$mine" --quiet
check "no index is said to be lost" sf "$Q" verify --quiet
same "nothing was deleted" "$(sf "$Q" snapshot list --all --as "$mine" --json | tail -n 1 | jq '.snapshots | length')" 3
finish
