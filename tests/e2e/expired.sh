#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What retention has removed is not shown as if it could be restored: backups and describe say what has expired, and
# whether anything is left. (RS-24, RS-25, RS-26)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a file system with native snapshots"
fs_make xfs xfs 500 || exit 1
mkdir "$WORK/xfs/all" "$WORK/xfs/kept" "$WORK/xfs/only"
A=$WORK/xfs/all/a.img
B=$WORK/xfs/all/b.img
K=$WORK/xfs/kept/k.img
O=$WORK/xfs/only/o.img
daemon_setup
config_class 50-all "$WORK/xfs/all" 'snapshots-to-retain = 0
keep-latest = 2'
config_class 51-kept "$WORK/xfs/kept" 'snapshots-to-retain = 3
keep-latest = 2'
config_class 52-only "$WORK/xfs/only" 'move-data = no
snapshot-only-keep = 1'
config_add 80-job "[job \"nightly\"]
volumes = class:50-all"
for v in "$A" "$B"; do image "$v" 3 1; done
starts "the daemon starts" || { explain_failure; finish; }
take() { # VOLUME...: another backup of other data
    random_file "$1" $((3 * MIB)) "$RANDOM"
    sync "$1"
    askj backup "$@" --wait | jq -r .id
}
line() { ask backups --all | awk -v b="$1" '$2 == b { print $1 }'; }
notes() { ask backups --all | grep -A2 -F "$1" | tr -s ' \n' '  '; }
described() { ask describe "$1" | tr -s ' \n' '  '; }
lost() {
    askj backups --all | jq -c --arg b "$1" '.backups[] | select(.id == $b) | [.state, .lost, .expired, .lost_why]'
}

# ---- of two volumes, one after the other ----
N=$(askj backup --job nightly --wait | jq -r .id)
same "a backup of two volumes: nothing is said of it" "$(lost "$N")" '["Completed",null,null,null]'
take "$A" >"$WORK/ids"
same "two snapshots of each are kept" "$(lost "$N")" '["Completed",null,null,null]'
LAST=$(take "$A")
check "retention has run" until_true 20 eval '[ "$(lost "$N")" != "[\"Completed\",null,null,null]" ]'
same "one of its volumes has expired" "$(lost "$N")" '["Completed",1,null,"it has expired"]'
same "backups: it is there" "$(line "$N")" Completed
said='1 of 2 volumes no longer in the repository: it has expired, 20[0-9-]* [0-9:]* .*ago)'
check "with a note" grep -q "$said" <<<"$(notes "$N")"
check "describe has it, too" grep -q "Expired $said" <<<"$(described "$N")"
op=$(sql "SELECT id FROM operations WHERE parent = '$N' AND json_extract(doc, '$.lost') = 1")
check "and of the operation" grep -q 'Expired its snapshot is no longer in the repository' <<<"$(described "$op")"
same "whose data is not said to be in the repository" "$(doc "$op" | jq .snapshotDataMoved)" false
same "the other one is restored" "$(ask restore "$N/$B" "$WORK/xfs/b.out" --wait --json 2>/dev/null | result state)" \
    Completed
take "$B" >>"$WORK/ids"
take "$B" >>"$WORK/ids"
check "then the other one" until_true 20 eval '[ "$(lost "$N")" = "[\"Completed\",2,true,\"it has expired\"]" ]'
same "backups: nothing is left of it" "$(line "$N")" Expired
check "describe says so" grep -q 'Expired 2 of 2 volumes no longer .*; nothing of it is left' <<<"$(described "$N")"
expect "a restore fails, and says why" 16 'its snapshot is no longer in the repository, as far as is known' -- \
    ask restore "$N/$A" "$WORK/xfs/a.out" --wait
check "nothing was written" test ! -e "$WORK/xfs/a.out"
same "nothing is said of the newest" "$(lost "$LAST")" '["Completed",null,null,null]'
expect "that is no problem" 0 'Problems +none' -- ask status --check
restart_hard() { stops "$1" && starts "$1: the next daemon starts"; }
restart_hard "a restart"
same "which knows it, too" "$(line "$N")" Expired

# ---- native snapshots ----
for v in "$K" "$O"; do image "$v" 3 1; done
first=$(take "$K")
take "$K" >>"$WORK/ids"
take "$K" >>"$WORK/ids"
check "one of a class that keeps native snapshots expires" \
    until_true 20 eval '[ "$(lost "$first" | jq -c "[.[0,1,3]]")" = "[\"Completed\",1,\"it has expired\"]" ]'
first=$(take "$O")
same "a native snapshot alone" "$(lost "$first")" '["Completed",null,null,null]'
take "$O" >>"$WORK/ids"
check "it is pruned" until_true 20 eval '[ "$(lost "$first")" = "[\"Completed\",null,true,null]" ]'
same "backups: it has expired" "$(line "$first")" Expired
check "describe says what of it is gone" \
    grep -q 'Expired its native snapshots are no longer on the storage; nothing of it is' <<<"$(described "$first")"
# Of more volumes than a list reads the operations of.
mkdir "$WORK/xfs/many"
config_class 53-many "$WORK/xfs/many" 'move-data = no
snapshot-only-keep = 1'
for i in $(seq 21); do image "$WORK/xfs/many/$i.img" 1 "$i"; done
check "a class of many" ask reload --wait --quiet
first=$(askj backup class:53-many --wait | jq -r .id)
same "native snapshots of 21 volumes" "$(lost "$first")" '["Completed",null,null,null]'
askj backup class:53-many --wait >/dev/null
check "they are pruned" until_true 20 eval '[ "$(lost "$first")" = "[\"Completed\",null,true,null]" ]'

# ---- deleted by another client ----
old=$(head -n 1 "$WORK/ids")
snapshot=$(doc "$old" | jq -r '.operations[0].result.snapshotID')
check "a snapshot is deleted by another client" sf "$REPO" snapshot delete "$snapshot" --yes --quiet
ask scan main --quiet
same "a scan finds that" "$(lost "$old")" '["Completed",1,true,"a scan of the repository did not find it"]'
stops "the end"
finish
