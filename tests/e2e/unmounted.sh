#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One file system of a class is not mounted: the volumes on the others are backed up all the same, what is on it is not
# thought to be gone, a reload is not refused for it, and when it is back its native snapshots are as they were (RS-26).
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
mkdir "$WORK/fs"
for n in one two; do
    fs_make fs/$n xfs 320 || exit 1
    random_file "$WORK/fs/$n/$n.img" $((2 * MIB)) 1
done
daemon_setup
config_add 50-img "[storage-class \"img\"]
driver = reflink
match = $WORK/fs/*/*.img
snapshots-to-retain = 2
[job \"all\"]
volumes = class:img"
starts "the daemon starts"
check "both are backed up" ask backup --job all --wait --quiet
natives() { askj native list | jq -r ".natives[] | select(.volume | endswith(\"/$1.img\")) | $2"; }
states() { askj volumes | jq -c '[.volumes[] | [(.name | sub(".*/"; "")), .state]] | sort'; }
ALL='[["one.img","protected"],["two.img","protected"]]'
same "and protected" "$(states)" "$ALL"
same "with a native snapshot each" "$(natives one .reasons)-$(natives two .reasons)" retained-retained

umount "$WORK/fs/one"
problem() { askj status | jq -r '.problems[].text' | grep -c "$1"; }
check "one is not mounted: a problem of status" until_true 60 eval \
    '[ "$(problem "files in .*/fs/one cannot share blocks")" = 1 ]'
expect "with what to do" 3 'mount the file system' -- ask status --check
check "a job backs up the other one" ask backup --job all --wait --quiet
same "and says what it has left out" "$(problem 'job "all" has left out 1 of .*fs/one cannot share blocks')" 1
expect "the volume on it is refused by name" 16 'cannot open image' -- ask backup "$WORK/fs/one/one.img" --wait
same "it is not thought to be gone" "$(states)" "$ALL"
same "nor in the log" "$(grep -c 'volume .*one.img is no longer there' "$LOG")" 0
check "a reload is not refused" ask reload --quiet
expect "check-config warns of it" 0 '\[storage-class "img"\]: files in .*fs/one cannot share blocks' -- \
    "$SNAPFERRY" check-config --config-dir "$CONF"
check "its native snapshot is found missing" until_true 60 eval '[ "$(natives one .state)" = missing ] ||
    [ -z "$(natives one .alias)" ]'
check "and leaves the records" eval 'ask native prune --yes --quiet; [ -z "$(natives one .alias)" ]'

mount "$(losetup -j "$WORK/fs/one.fs" | cut -d: -f1)" "$WORK/fs/one"
check "it is back" until_true 90 eval '[ "$(natives one .reasons)" = retained ]'
same "as it was" "$(natives one .backup)" "$(askj backups | jq -r '.backups[-1].id')"
same "the records are not thought to be lost" "$(ask status | grep -c 'records rebuilt')" 0
check "a job backs up both" ask backup --job all --wait --quiet
until_true 20 eval '[ "$(askj status | jq ".problems | length")" = 0 ]'
expect "and nothing is wrong" 0 '' -- ask status --check
finish
