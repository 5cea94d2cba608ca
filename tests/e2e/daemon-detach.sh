#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A repository that is given up (CF-55), a restore into another class by map (CF-51), records of a node that was
# installed
# anew (RS-15).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "the daemon backs volumes up"
fs_make xfs xfs || exit 1
mkdir "$WORK/xfs/other"
image "$WORK/xfs/a.img" 8 1
cp "$WORK/xfs/a.img" "$WORK/a.orig"
daemon_setup
config_class gold "$WORK/xfs" 'snapshots-to-retain = 2'
config_add other "[storage-class \"other\"]
driver = reflink
match = $WORK/xfs/other/*.img
target = $WORK/xfs/other
repository = main"
starts "the daemon starts"
B=$(submit "$WORK/xfs/a.img")
same "a backup" "$(wait_state "$B" Completed 30)" Completed

check "restore by class map" ask restore "$B" --class-map gold=other --wait --quiet
check "it has its name in the other class" cmp "$WORK/a.orig" "$WORK/xfs/other/a.img"
expect "a map that says nothing about its class" 2 'class "gold"' -- ask restore "$B" --class-map silver=other --wait
expect "a map to no class" 2 'does not exist' -- ask restore "$B" --class-map gold=nothing --wait
expect "neither target nor map" 2 'requires a target' -- ask restore "$B"
rm -f "$WORK/xfs/other/a.img"

# Several volumes: all are checked before the first one begins.
image "$WORK/xfs/b.img" 8 2; image "$WORK/xfs/c.img" 8 3
C=$(submit "$WORK/xfs/b.img" "$WORK/xfs/c.img")
same "a backup of two volumes" "$(wait_state "$C" Completed 30)" Completed
touch "$WORK/xfs/other/c.img"
expect "one target exists: refused as a whole" 17 '1 of 2 volumes cannot be restored; nothing was begun' -- \
    ask restore "$C" --class-map gold=other --wait
check "nothing was begun" test ! -e "$WORK/xfs/other/b.img"
rm "$WORK/xfs/other/c.img"
expect "all volumes by class map (CF-51)" 0 'c.img restored to' -- ask restore "$C" --class-map gold=other --wait
check "the first" cmp "$WORK/xfs/b.img" "$WORK/xfs/other/b.img"
check "the second" cmp "$WORK/xfs/c.img" "$WORK/xfs/other/c.img"
rm -f "$WORK"/xfs/other/[bc].img
# One fails when the checks are over, by its hook.
printf '#!/bin/sh\ncase "$*$(env)" in */c.img*) exit 1 ;; esac\n' >"$WORK/refuse"; chmod 755 "$WORK/refuse"
config_class gold "$WORK/xfs" 'snapshots-to-retain = 2' "hook-pre-restore = $WORK/refuse"
check "a hook before restores of one" ask reload --wait --quiet
ask restore "$C" --class-map gold=other --wait >"$WORK/mapped" 2>&1
same "one fails after the checks: a part" $? 3
check "it is named" grep -q 'c.img: .*hook' "$WORK/mapped"
check "with how many" grep -q '1 of 2 volumes was not restored' "$WORK/mapped"
check "the other one is restored" cmp "$WORK/xfs/b.img" "$WORK/xfs/other/b.img"
check "the failed one left nothing" test ! -e "$WORK/xfs/other/c.img"
config_class gold "$WORK/xfs" 'snapshots-to-retain = 2'
check "without the hook" ask reload --wait --quiet
rm -f "$WORK"/xfs/other/[bc].img "$WORK"/xfs/[bc].img

# A node installed anew: storage and repository know enough to go on.
native=$(natives_of "$WORK/xfs/a.img")
stops "the daemon stops"
rm -rf "$STATE"; mkdir "$STATE"
starts "it starts with empty records"
has_backup() {
    askj backups --all | jq -e --arg b "$B" '.backups[] | select(.id == $b and .state == "Completed")' >/dev/null
}
check "the backup is known again" until_true 20 has_backup
moved() {
    askj native list | jq -e --arg a "$native" '.natives[] | select(.alias == $a and .reasons == "retained")' >/dev/null
}
check "so is its native snapshot, and that its data is safe" until_true 20 moved
restored_same "it can be restored from the repository" "$B" "$WORK/xfs/a.img" "$WORK/a.orig" repository
restored_same "and from the native snapshot" "$B" "$WORK/xfs/a.img" "$WORK/a.orig" native

expect "an unknown repository" 16 'no recorded backup' -- ask repo detach nothing
check "detach" ask repo detach main
same "the backup is forgotten" \
    "$(askj backups --all | jq -r --arg b "$B" '[.backups[] | select(.id == $b)] | length')" 0
same "its native snapshot stays, as the only copy" \
    "$(askj native list | jq -r --arg a "$native" '.natives[] | select(.alias == $a) | .reasons' | grep -o only-copy)" \
    only-copy
same "what the repository stores stays" "$(sf "$REPO" snapshot list --all --json | result 'snapshots | length')" 3
explain_failure
finish
