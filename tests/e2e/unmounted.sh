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
expect "the volume on it is refused by name" 16 'its file system mounted' -- ask backup "$WORK/fs/one/one.img" --wait
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

# All of a class is away: what is configured is as right as before, and the others go on.
umount "$WORK/fs/one" "$WORK/fs/two"
check "a reload is not refused when all of a class is away" ask reload --wait --quiet
check "nothing that is configured is an error" "$SNAPFERRY" check-config --config-dir "$CONF"
same "each place is a problem" "$(problem 'files in .*/fs/[a-z]* cannot share blocks')" 2
expect "its job says why it cannot run, and what to do" 16 'cannot share blocks|mount the file system' -- \
    ask backup --job all --quiet
expect "and what to do" 16 'mount the file system, or remove it from the match' -- ask backup --job all --quiet
same "its volumes are not thought to be gone" "$(states)" "$ALL"
expect "explain says so, too" 0 'not found: ' -- ask explain "$WORK/fs/one/one.img"
same "and nothing untrue" "$(ask explain "$WORK/fs/one/one.img" | grep -c 'cannot be exposed')" 0
: >"$WORK/fs/one/stray.img"
expect "images where none can be backed up are an error" 2 'cannot share blocks' -- "$SNAPFERRY" check-config \
    --config-dir "$CONF"
daemon_stop
rm "$CONF/conf.d/50-img.ini"

# The file system below the place where it was mounted is as good as the one that is not mounted.
fs_make root xfs 600 || exit 1
for n in one two; do
    mkdir "$WORK/root/$n"
    fs_make root/$n xfs 320 || exit 1
    random_file "$WORK/root/$n/$n.img" $((2 * MIB)) 1
done
config_class below "$WORK/root/*" 'snapshots-to-retain = 1'
starts "the daemon starts with another class"
check "both of it are backed up" ask backup class:below --wait --quiet
umount "$WORK/root/one"
check "what is there is backed up" ask backup class:below --wait --quiet
check "one file system is not mounted: a problem" until_true 60 eval \
    '[ "$(problem "class \"below\": the file system of 1 volume is no longer there: .*/root/one/one.img")" = 1 ]'
expect "with what to do" 3 'mount it .UUID [0-9a-f-]*.; if it was removed: `snapferry forget .*one.img' -- \
    ask status --check
mount "$(losetup -j "$WORK/root/one.fs" | cut -d: -f1)" "$WORK/root/one"
check "it is back" ask backup class:below --wait --quiet
check "and no problem any more" until_true 60 eval '[ "$(problem "no longer there")" = 0 ]'
check "its native snapshot is as it was" until_true 60 eval '[ "$(natives one .state | grep -c present)" = 1 ]'
rm "$WORK/root/two/two.img"
check "a volume that was removed" ask backup class:below --wait --quiet
same "is no problem" "$(problem "no longer there")" 0
finish
