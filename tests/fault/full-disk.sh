#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Full disks, read-only directories, devices that vanish or shrink: one clear sentence, the right code, nothing harmed.
. "$(dirname "$0")/../lib.sh"
random_file "$WORK/image" 60000000 12
if ! is_root; then skip "full disks" "needs root to mount"; finish; fi
mkdir "$WORK/small"
mount -t tmpfs -o size=30m tmpfs "$WORK/small"; at_exit "umount -l $WORK/small"
sf "$WORK/small/repo" repo create --quiet
expect "18: the repository's disk is full" 18 'No space left' -- sf "$WORK/small/repo" backup "$WORK/image" --as t@h:/v
expect "it is valid afterwards" 0 -- sf "$WORK/small/repo" verify --quiet
check "no temporary file is left" sh -c "! find '$WORK/small/repo' -name '*.tmp.*' | grep -q ."
mount -o remount,size=200m "$WORK/small"
expect "with room the next run is complete" 0 -- sf "$WORK/small/repo" backup "$WORK/image" --as t@h:/v --quiet
expect "and right" 0 -- sf "$WORK/small/repo" verify --quiet
mkdir "$WORK/tiny"
mount -t tmpfs -o size=10m tmpfs "$WORK/tiny"; at_exit "umount -l $WORK/tiny"
expect "18: the restore target's disk is full" 18 -- sf "$WORK/small/repo" restore latest "$WORK/tiny/out"
mkdir "$WORK/cachefs"
mount -t tmpfs -o size=600k tmpfs "$WORK/cachefs"; at_exit "umount -l $WORK/cachefs"
expect "verify where the cache has room for the index only" 0 -- \
    env XDG_CACHE_HOME="$WORK/cachefs" "$SNAPFERRY" -r "$WORK/small/repo" --password-file "$WORK/password" \
    verify --quiet
rm -rf "$WORK/cachefs"/*
dd if=/dev/zero of="$WORK/cachefs/fill" bs=4k status=none 2>/dev/null
expect "18: verify with a full cache file system" 18 'No space left' -- \
    env XDG_CACHE_HOME="$WORK/cachefs" "$SNAPFERRY" -r "$WORK/small/repo" --password-file "$WORK/password" \
    verify --quiet
# A limit on the size of files is named, whatever file it cuts.
small() { # KiB COMMAND...
    (ulimit -f "$1"; XDG_CACHE_HOME=$WORK/cachelimit sf "$WORK/small/repo" "${@:2}" --quiet) 2>&1 | tr '\n' ' '
}
limit='File too large.*no file may have more than [0-9]+ bytes here: raise LimitFSIZE= of the unit, or .ulimit -f'
expect "its cache" 0 "cache.*$limit" -- small 1 verify
expect "a target" 0 "target.*$limit" -- small 4096 restore latest "$WORK/limited"
limited() { (ulimit -f 4096; sf "$WORK/small/repo" restore latest "$WORK/limited" --quiet); }
expect "a limit on the size of files is an error message, not SIGXFSZ" 17 'File too large' -- limited
mount -o remount,ro "$WORK/small"
expect "20: a read-only repository cannot be written" 20 -- sf "$WORK/small/repo" backup "$WORK/image" --as t@h:/w
expect "but read" 0 'volume.img' -- sf "$WORK/small/repo" ls latest --as t@h:/v
mount -o remount,rw "$WORK/small"

R=$WORK/repo
sf "$R" repo create --quiet
# A device that shrinks while it is read: the file under a loop device loses its end.
cp "$WORK/image" "$WORK/backing"; truncate -s 60000256 "$WORK/backing"
dev=$(loop_device "$WORK/backing"); at_exit "losetup -d $dev"
truncate -s 20000000 "$WORK/backing"
expect "19: a device whose end is gone" 19 "$dev|loop" -- sf "$R" backup "$dev" --as t@h:/dev
expect "no snapshot of it" 0 'No snapshots' -- sf "$R" snapshot list --as t@h:/dev
out=$(sf "$R" backup "$dev" --as t@h:/dev --bad-reads map --json 2>"$WORK/err"); rc=$?
same "3: bad ranges are mapped if asked" $rc 3
check "and told: $(result badBytes <<<"$out")" test "$(result badBytes <<<"$out")" -ge 39000000
check "in volume.json too" \
    sh -c "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' cat latest/volume.json --as t@h:/dev | grep -q bad"
expect "the snapshot shows errors" 0 'ERRORS' -- sf "$R" snapshot list
expect "it verifies" 0 -- sf "$R" verify --quiet

# The clock.
if command -v faketime >/dev/null; then
    expect "21: a clock that is hours off" 21 'clock' -- faketime -f '+3h' "$SNAPFERRY" -r "$R" --password-file \
        "$WORK/password" backup "$WORK/image" --as t@h:/c
    expect "nothing was stored by it" 0 'No snapshots' -- sf "$R" snapshot list --as t@h:/c
else
    skip "a clock that is hours off" "faketime is not installed"
fi
finish
