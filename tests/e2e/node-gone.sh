#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A node that is gone (snapshot delete --node): all that it has stored goes, and nothing else; a name that is another
# one than meant is refused or asked about; the space comes back with the third full maintenance, which another node
# owns.
. "$(dirname "$0")/../lib.sh"
export TZ=UTC
R=$WORK/repo
mkdir "$WORK/conf"
printf '[daemon]\nnode-name = n1\n[repository "main"]\ntype = filesystem\npath = %s\npassword-file = %s\n' "$R" \
    "$WORK/password" >"$WORK/conf/snapferry.ini"
r() { "$SF" --config-dir "$WORK/conf" -r main "$@"; }
retire() { r snapshot delete --node "$@"; }
take() { r backup "$WORK/$1" --as "$2" --quiet; }
list() { r snapshot list --all --json | result 'snapshots[] | .source | .userName + "@" + .host + ":" + .path' | sort |
    uniq -c | xargs; }
manifests() { "$TOOLS/manifests" "$R" "$WORK/password" "$@"; }
of_node() {
    manifests list "$1" | jq -r --arg n "$2" 'select(.labels.hostname == $n or .labels.node == $n) | .id' | wc -l
}
bytes() { find "$R/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
state() { find "$R" -type f | LC_ALL=C sort | xargs sha256sum | sha256sum; }

r repo create --quiet --owner snapferry-maintenance@n2
random_file "$WORK/a" 9000000 1
random_file "$WORK/b" 12000000 2
random_file "$WORK/c" 8000000 3
take a snapferry@n1:/v
take a snapferry@n2:/shared # the same data
take b snapferry@n2:/v
take c snapferry@n2:/v
take b snapferry@n22:/v
take a root@n2:/etc
record() {
    jq -nc --arg n "$1" '{labels: {type: "snapferry-backup", backup: "x", node: $n, part: "0", state: "final",
        machine: "0123456789abcdef0123456789abcdef"}, data: {snapshots: 1}}' | manifests add
}
record n1; record n2
jq -nc '{labels: {type: "policy", policyType: "host", hostname: "n2"}, data: {}}
    , {labels: {type: "policy", policyType: "user", hostname: "n2", username: "snapferry"}, data: {}}' | manifests add
all=$(list)
policies=$(of_node policy n2)
before=$(state)

# What is refused.
expect "this node is refused" 2 'n1 is this node: nothing deleted' -- retire n1 --yes
expect "and what to do is said" 2 'stop it and use --force' -- retire n1 --yes
expect "nobody can be asked" 2 'and there is no terminal to confirm on' -- retire n2
expect "not with --json either" 2 'use --yes' -- retire n2 --json
expect "a node that is not there" 16 'no snapshots of node n3 in repository main' -- retire n3 --yes
expect "a part of a name is none" 16 'no snapshots of node n' -- retire n --yes
expect "a name that none can have" 2 'is not the name of a node' -- retire a:b --yes
expect "snapshots or a node" 2 'takes snapshots or --node, not both' -- retire n2 4f3c --yes
expect "one of both" 2 'requires snapshots or --node NAME' -- r snapshot delete
expect "no source beside it" 2 'mutually exclusive' -- retire n2 --as a@b:/c --yes
same "nothing was changed" "$(state)" "$before"

# What it would delete.
out=$(COLUMNS=100 retire n2 --dry-run 2>&1)
check "a dry run lists each volume" grep -qE '^/v +2  20.* +7\.6 MiB' <<<"$out"
check "all of them" grep -qE '^/shared +1  20.* +8\.6 MiB' <<<"$out"
check "and counts" grep -q '^3 snapshots of 2 volumes of node n2 would be deleted; nothing was changed' <<<"$out"
check "what stays is said" grep -q '^1 snapshot of other clients on n2 is kept' <<<"$out"
check "that it may still run" grep -q 'if the node still runs, it stores new ones' <<<"$out"
check "when space comes back" grep -q '^The space comes back with the third full maintenance' <<<"$out"
check "and that another node has to own it" \
    grep -q 'Maintenance belongs to snapferry-maintenance@n2: nothing is freed' <<<"$out"
check "with the command for it" grep -qF 'snapferry -r main maintenance --take-ownership' <<<"$out"
same "in JSON" "$(retire n2 --dry-run --json | tail -n 1 | jq -c '[.verb, .dryRun, .node, .deleted, .others, .policies,
    .ownerGone, (.sources | length), (.sources[] | select(.source == "snapferry@n2:/v") | .snapshots)]')" \
    '["snapshot delete",true,"n2",3,1,3,true,2,2]'
same "nothing was changed by that" "$(state)" "$before"

# Asked on a terminal.
typed() {
    LC_ALL=C.UTF-8 TERM=xterm "$TOOLS/terminal" --size 300x24 --type "$1" "$SF" --config-dir "$WORK/conf" \
        -r main snapshot delete --node n2 >"$WORK/screen" 2>&1
}
typed n
same "no is no" "$? $(state)" "1 $before"
check "the question counts" grep -q \
    '^3 snapshots of 2 volumes of node n2, the last good copies among them, will be deleted from repository main\.' \
    "$WORK/screen"

# Pins.
id=$(r snapshot list --as snapferry@n2:/shared --json | result 'snapshots[0].id')
id=$(r snapshot pin "$id" audit --json | result id)
expect "a pinned one stops it" 2 'is pinned: nothing deleted' -- retire n2 --yes
same "all are there" "$(list)" "$all"
check "a dry run is refused, too, and lists it" grep -q '1 pinned' <(retire n2 --dry-run 2>&1)
check "with --force" retire n2 --dry-run --force
r snapshot unpin "$id" audit --quiet

# Interrupted.
killed() { expect "killed at $1" 137 -- env SNAPFERRY_CRASH_AT="$1" "$SF" --config-dir "$WORK/conf" -r main \
    snapshot delete --node n2 --yes; }
cp -a "$R" "$WORK/kept"
killed expire-decided
same "all or none: all are there" "$(list)" "$all"
killed expire-deleted
left="1 root@n2:/etc 1 snapferry@n1:/v 1 snapferry@n22:/v"
same "all or none: all are gone" "$(list)" "$left"
same "its policies are not yet" "$(of_node policy n2)" "$policies"
expect "again: the rest goes" 0 "^0 snapshots of 0 volumes of node n2 deleted, with [1-9] policies and 1 record of" -- \
    retire n2 --yes
same "but for that of other clients there" "$(manifests list policy | jq -r 'select(.labels.hostname == "n2")
    | .labels | "\(.policyType) \(.username)"' | sort | xargs)" "host null path root"

# In one go.
rm -rf "$R" && cp -a "$WORK/kept" "$R"
full=$(bytes)
check "yes on a terminal" typed y
same "what is left is of others" "$(list)" "$left"
same "its records of backups are gone" "$(of_node snapferry-backup n2)$(of_node snapferry-backup n1)" 01
check "all others have their policies" [ "$(of_node policy n1)" -gt 0 ]
expect "a second time there is nothing" 16 'no snapshots of node n2' -- retire n2 --yes
check "the repository is whole" r verify --quiet

# The space. All of "c" was of this node alone, the rest is also of others.
age() { "$TOOLS/age_repository" "$R" "$WORK/password" "$1"; }
expect "its maintenance is done by nobody" 20 'belongs to snapferry-maintenance@n2' -- r maintenance --full
check "until another node takes it" r maintenance --take-ownership --quiet
expect "and 30 minutes have passed" 14 'taken over at less than 30 minutes ago' -- r maintenance --full
manifests list maintenance | jq -c --arg t "$(date -u -d '1 hour ago' +%FT%TZ)" '.data.snapferryTaken = $t' |
    manifests put
for i in 1 2; do
    age 25
    same "run $i drops nothing" "$(r maintenance --full --json | result dropped.count)" 0
done
age 25
check "run 3 does" [ "$(r maintenance --full --json | result dropped.bytes)" -ge 8000000 ]
check "and brings the space back" [ "$(bytes)" -lt $((full - 8000000)) ]
check "but not what others need" [ "$(bytes)" -gt 20900000 ]
check "which is whole" r verify --quiet
check "the snapshot with the same data" r restore latest "$WORK/out" --as snapferry@n1:/v --quiet
check "is as it was" cmp "$WORK/a" "$WORK/out"

# This node, with --force.
check "this node with --force" retire n1 --yes --force --quiet
same "is gone" "$(list)" "1 root@n2:/etc 1 snapferry@n22:/v"
finish
