#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A copy of a file system, mounted beside the original, has the UUID, the inodes and the tags of the original: its
# images are not taken for those, nor the other way round, and nothing of the original is thought to be gone (RS-13).
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
mkdir "$WORK/fs"
fs_make fs/xfs xfs 320 || exit 1
random_file "$WORK/fs/xfs/a.img" $((2 * MIB)) 1
fs_make fs/other xfs 320 || exit 1
random_file "$WORK/fs/other/b.img" $((2 * MIB)) 2
daemon_setup
config_add 50-img "[storage-class \"img\"]
driver = reflink
match = $WORK/fs/*/*.img
snapshots-to-retain = 2
[job \"all\"]
volumes = class:img"
starts "the daemon starts"
B=$(askj backup --job all | jq -r .backup)
same "both images are backed up" "$(wait_state "$B" Completed 60)" Completed
same "and known" "$(askj volumes | jq -c '[.volumes[].state] | sort')" '["protected","protected"]'

# ---- the copy joins ----
umount "$WORK/fs/xfs"
cp "$WORK/fs/xfs.fs" "$WORK/fs/copy.fs"
mount "$(losetup -j "$WORK/fs/xfs.fs" | cut -d: -f1)" "$WORK/fs/xfs"
mkdir "$WORK/fs/copy"
COPY=$(loop_device "$WORK/fs/copy.fs"); at_exit "losetup -d $COPY"
mount -o nouuid "$COPY" "$WORK/fs/copy"; at_exit "umount '$WORK/fs/copy'"
random_file "$WORK/fs/copy/new" $((2 * MIB)) 3
cat "$WORK/fs/copy/new" >"$WORK/fs/copy/a.img"
rm "$WORK/fs/copy/new"
ANY='Completed|PartiallyFailed|Failed'
SAME='have the same identity'
check "a reload" ask reload --quiet
check "neither is taken for the other: a problem of status" until_true 20 eval \
    'askj status | jq -r ".problems[].text" | grep -q "fs/copy and .*fs/xfs $SAME"'
same "one problem, however many images there are" "$(askj status | jq -r '.problems[].text' | grep -c "$SAME")" 1
expect "status says what to do" 3 'xfs_admin -U generate' -- ask status --check
expect "the copy is not backed up" 19 "$SAME" -- ask backup "$WORK/fs/copy/a.img" --wait
expect "nor is the original" 19 "$SAME" -- ask backup "$WORK/fs/xfs/a.img" --wait
B=$(askj backup --job all | jq -r .backup)
same "of a job the other image is backed up" "$(wait_state "$B" "$ANY" 60)" Completed
same "and what is left out is told, with the reason" \
    "$(doc "$B" | jq -r '.details.skipped[].reason' | grep -c "$SAME")" 2
check "also by status" eval 'askj status | jq -r ".problems[].text" | grep -q "job .all. has left out 2 of .*$SAME"'
expect "explain says that it is not backed up" 0 "not backed up: .*$SAME" -- ask explain "$WORK/fs/xfs/a.img"
same "the original counts as there" \
    "$(askj volumes | jq -r '.volumes[] | select(.name == "'"$WORK"'/fs/xfs/a.img") | .state')" \
    protected
same "the log does not say that it is gone" "$(grep -c 'no longer there' "$LOG")" 0
N=$(find "$WORK/fs/xfs/.snapferry" -name '*.native' | wc -l)
same "its native snapshot is left" "$N" 1
same "as that of the copy" "$(find "$WORK/fs/copy/.snapferry" -name '*.native' | wc -l)" 1

# ---- a class that matches only the original ----
config_add 50-img "[storage-class \"img\"]
driver = reflink
match = $WORK/fs/xfs/*.img $WORK/fs/other/*.img
[job \"all\"]
volumes = class:img"
check "the copy is matched by none" ask reload --quiet
B=$(askj backup --job all | jq -r .backup)
same "the original is backed up" "$(wait_state "$B" "$ANY" 60)" Completed
config_add 51-copy "[storage-class \"copies\"]
driver = reflink
match = $WORK/fs/copy/*.img"
check "another class matches the copy" ask reload --quiet
expect "which is no difference" 19 "$SAME" -- ask backup "$WORK/fs/xfs/a.img" --wait

# ---- it is given an identity of its own ----
umount "$WORK/fs/copy"
# A mover that is about to end may hold a copy of the mount.
check "it is not mounted anywhere" until_true 20 \
    perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_RDONLY | O_EXCL) or exit 1' \
    "$COPY"
xfs_admin -U generate "$COPY" || exit 1
mount "$COPY" "$WORK/fs/copy"
check "the copy has a UUID of its own" ask reload --quiet
B=$(submit "$WORK/fs/copy/a.img")
same "it is backed up" "$(wait_state "$B" Completed 60)" Completed
B=$(submit "$WORK/fs/xfs/a.img")
same "as the original is" "$(wait_state "$B" Completed 60)" Completed
same "they are two volumes" "$(askj volumes | jq -c '[.volumes[] | select(.name | endswith("/a.img")) | .id] |
    unique | length')" 2
until_true 20 eval 'askj status | jq -e ".problems == []"'
expect "nothing is wrong any more" 0 '' -- ask status --check
finish
