#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a restore must not overwrite: devices and files that something uses without claiming them (loop devices in both
# directions, swap, mounts of other namespaces, processes), a target that another restore writes, a repository; and
# targets that are taken away while they are written.
# Its mounts are its own: a mover of another test, in a namespace of its own, would hold a copy of them.
ON_DISK=1
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../lib.sh"
MIB=1048576
R=$WORK/repo
sf "$R" repo create --quiet
random_file "$WORK/image" $((8 * MIB)) 51
sf "$R" backup "$WORK/image" --as t@h:/v --quiet
restore() { sf "$R" restore latest "$@" --quiet --yes; }

# refused NAME TARGET PATTERN: without --force, whatever else is asked for; the bytes stay what they are.
refused() {
    local name=$1 target=$2 pattern=$3 before after
    before=$(sha256sum <"$target")
    expect "$name: refused" 17 "in use \\(.*$pattern" -- restore "$target"
    expect "$name: refused with --differential" 17 "in use \\(.*$pattern" -- restore "$target" --differential
    expect "$name: refused with --resume" 17 "in use \\(.*$pattern" -- restore "$target" --resume
    expect "$name: refused with --offset" 17 "in use \\(.*$pattern" -- restore "$target" --offset 0 --length 4096
    after=$(sha256sum <"$target")
    same "$name: untouched" "$after" "$before"
}

expect "a file in the repository's directory is refused" 17 'directory of a repository' -- restore "$R/out"
mkdir "$R/sub"
expect "in a directory of it too" 17 'directory of a repository' -- restore "$R/sub/out" --force
ln -s "$R/sub" "$WORK/link"
expect "and by a link" 17 'directory of a repository' -- restore "$WORK/link/out"
same "nothing was made there" "$(ls "$R/sub")" ""

# A blob by another name.
blob=$(find "$R/p" -name '*.f' -size +4M | head -n 1)
before=$(sha256sum <"$blob")
ln -s "$blob" "$WORK/blob.link"
expect "a link to a blob is refused with --force, too" 17 'directory of a repository' -- \
    restore "$WORK/blob.link" --force
ln "$blob" "$WORK/blob.name"
expect "a file with several names is refused with --force, too" 17 'has 2 names .hard links.: all of them would' -- \
    restore "$WORK/blob.name" --force
expect "with a range of it" 17 'has 2 names' -- restore "$WORK/blob.name" --offset 0 --length 4096
expect "and with --resume" 17 'has 2 names' -- restore "$WORK/blob.name" --resume
rm "$WORK/blob.name" "$WORK/blob.link"
same "it is as it was" "$(sha256sum <"$blob")" "$before"

# A device that is not there: a file of its name would be in memory, and gone when the machine goes down.
if [ "$(stat -c %d /dev)" != "$(stat -c %d /)" ]; then
    expect "a device that is not there" 17 'there is no such device' -- restore "/dev/snapferry-none-$$"
    check "nothing was made among devices" test ! -e "/dev/snapferry-none-$$"
else
    skip "devices that are not there" "/dev is no file system of its own here"
fi

# A file that a process has open.
truncate -s 8M "$WORK/open"
sleep 600 3<>"$WORK/open" &
holder=$!
at_exit "kill $holder"
if is_root; then
    refused "a file that a process writes" "$WORK/open" "open for writing by sleep .process $holder"
else
    skip "files that a process writes" "descriptors of other processes need root"
fi
kill $holder; wait $holder 2>/dev/null
expect "once it has ended it is restored to" 0 -- restore "$WORK/open" --verify
check "with the right bytes" cmp "$WORK/image" "$WORK/open"

# Two restores into one file: one of them, and all of it.
both=0
# (Without --yes: the second one is refused too where the first has ended before it begins.)
once() { sf "$R" restore latest "$WORK/two" --quiet; }
for i in $(seq 12); do
    rm -f "$WORK/two"
    once 2>"$WORK/err1" &
    p1=$!
    once 2>"$WORK/err2" &
    p2=$!
    wait $p1; r1=$?
    wait $p2; r2=$?
    case "$r1 $r2" in
    "0 17" | "17 0") ;;
    *)
        fail "two restores into one new file, round $i" "exit codes $r1 and $r2" "$(cat "$WORK/err1" "$WORK/err2")"
        both=1
        break
        ;;
    esac
    cmp -s "$WORK/image" "$WORK/two" || { fail "two restores into one new file, round $i: bytes"; both=1; break; }
done
[ $both -eq 0 ] && pass "two restores into one new file: one is refused, the other complete"
rm -f "$WORK/two"

# Something happens to the target of a restore, which stands still meanwhile.
slow() {
    rm -f "$WORK/slow"*
    "$SNAPFERRY" -r "$R" --password-file "$WORK/password" restore latest "$WORK/slow" --quiet --write-limit 2MiB \
        2>"$WORK/err" &
    pid=$!
    for _ in $(seq 500); do
        [ -e "$WORK/slow" ] && [ "$(stat -c %b "$WORK/slow")" -gt 0 ] && kill -STOP $pid && return
        kill -0 $pid 2>/dev/null || return
        sleep 0.01
    done
}
go_on() { kill -CONT $pid 2>/dev/null; wait $pid; }
slow; rm "$WORK/slow"; go_on; rc=$?
same "a target that is removed meanwhile: exit code" $rc 17
check "it says so" grep -q 'was removed' "$WORK/err"
slow; mv "$WORK/slow" "$WORK/slow.moved"; go_on; rc=$?
same "a target that is renamed meanwhile: exit code" $rc 17
check "it says so too" grep -q 'was renamed or removed' "$WORK/err"
slow; mv "$WORK/slow" "$WORK/slow.moved"; : >"$WORK/slow"; go_on; rc=$?
same "a target that is replaced meanwhile: exit code" $rc 17
check "and it says so" grep -q 'replaced by another' "$WORK/err"
slow; : >"$WORK/slow"; go_on; rc=$?
same "a target that is truncated meanwhile: exit code" $rc 17
check "and it says that" grep -q 'was truncated by another program' "$WORK/err"
slow; truncate -s 1M "$WORK/slow"; truncate -s 64M "$WORK/slow"; go_on
check "a target that grows meanwhile has its size in the end, or an error" \
    test "$(stat -c %s "$WORK/slow")" -eq $((8 * MIB)) -o -s "$WORK/err"
slow; expect "another restore to it is refused meanwhile" 17 'locked by another' -- restore "$WORK/slow" --force
go_on; rc=$?
same "and does not disturb the first" "$rc $(cmp "$WORK/image" "$WORK/slow" && echo equal)" "0 equal"
rm -f "$WORK/slow"*

if ! is_root || [ ! -e /dev/loop-control ]; then
    skip "devices" "need root and loop devices"
    finish
fi

# Devices come and go here, and their numbers are soon those of other tests: at the end only those are detached that are
# still attached.
declare -A attached=()
count=0
attach() { DEV=$(losetup --find --show "$@") && attached[$DEV]=$((++count)); }
detach() {
    local d
    for d; do losetup -d "$d" && unset "attached[$d]"; done
}
at_exit 'while read -r _ d; do losetup -d "$d"; done < <(for d in "${!attached[@]}"; do
    echo "${attached[$d]} $d"; done | sort -rn)'

# A part of a repository that is mounted elsewhere: one below its directory, one of a blob, a mount of a mount, one over
# itself.
bind() { mkdir -p "$2" && mount --bind "$1" "$2" && at_exit "umount -l '$2'"; }
bind "$R/sub" "$WORK/part"
expect "a file in a part of a repository that is mounted elsewhere" 17 "directory of a repository, $R" -- \
    restore "$WORK/part/out" --force
mkdir -p "$R/sub/deep"
bind "$WORK/part/deep" "$WORK/deep"
mkdir "$WORK/deep/dir"
expect "in a part of that" 17 "directory of a repository, $R" -- restore "$WORK/deep/dir/out"
bind "$R/sub" "$R/sub/deep"
expect "in a part that is mounted over itself" 17 "directory of a repository, $R" -- restore "$R/sub/deep/out"
: >"$WORK/blob"
mount --bind "$blob" "$WORK/blob"; at_exit "umount -l '$WORK/blob'"
expect "a blob that is mounted elsewhere" 17 "directory of a repository, $R" -- restore "$WORK/blob" --force
same "it is as before" "$(sha256sum <"$blob")" "$before"
mkdir -p "$WORK/else/where"
bind "$WORK/else" "$WORK/other"
expect "what is mounted from elsewhere is no repository's" 0 -- restore "$WORK/other/where/out"
umount "$R/sub/deep" "$WORK/deep" "$WORK/part" "$WORK/blob" "$WORK/other"

# A blob below a loop device, and below two.
attach "$blob" 2>/dev/null; dev=$DEV
attach "$dev" 2>/dev/null; upper=$DEV
for target in "$dev" "$upper"; do
    expect "a device over a blob of a repository is refused with --force, too" 17 "loop device over $blob" -- \
        restore "$target" --offset 0 --length 4096 --force
done
detach "$upper"; detach "$dev"
same "the blob is as it was" "$(sha256sum <"$blob")" "$before"

# A file below a loop device.
truncate -s 16M "$WORK/file"
attach "$WORK/file"; dev=$DEV
refused "a file that backs a loop device" "$WORK/file" "backing store of loop device $dev"
mkfs.ext4 -q -F "$dev"
mkdir "$WORK/mnt"
mount -o ro "$dev" "$WORK/mnt"; at_exit "umount -l $WORK/mnt"
refused "a mounted device" "$dev" "mounted at $WORK/mnt"
umount "$WORK/mnt"

# The same bytes by another device: a loop device over a device, its file twice, a part of it.
attach "$dev"; upper=$DEV
refused "a device below a loop device" "$dev" "backing store of loop device $upper"
mount -o ro "$upper" "$WORK/mnt"
refused "a device below a mounted loop device" "$dev" "backing store of loop device $upper"
umount "$WORK/mnt"
mount -o ro "$dev" "$WORK/mnt"
refused "a device upon a mounted one" "$upper" "$dev, which shares its data, is mounted at $WORK/mnt"
umount "$WORK/mnt"
expect "but idle it is no obstacle for the upper one" 0 -- restore "$upper" --verify
detach "$upper"
attach "$WORK/file"; twin=$DEV
refused "a device whose file backs another one" "$dev" "the file below it is the backing store of loop device $twin"
detach "$twin"
attach "$WORK/file" --offset $((12 * MIB)); half=$DEV
attach "$WORK/file" --sizelimit $((12 * MIB)); first=$DEV
detach "$dev"
expect "other bytes of the same file are no obstacle" 0 -- restore "$first" --verify
detach "$half"; detach "$first"
attach "$WORK/file"; gone=$DEV
ln "$WORK/file" "$WORK/name"; rm "$WORK/file"
refused "a file that backs a loop device by a name that is gone" "$WORK/name" "backing store of loop device $gone"
detach "$gone"; mv "$WORK/name" "$WORK/file"

# A mount that only another namespace sees.
attach "$WORK/file"; dev=$DEV
mkfs.ext4 -q -F "$dev"
if unshare -m true 2>/dev/null; then
    unshare -m --propagation private sh -c "mount -o ro $dev $WORK/mnt && touch $WORK/mounted && exec sleep 600" &
    away=$!
    at_exit "kill $away"
    for _ in $(seq 300); do [ -e "$WORK/mounted" ] && break; sleep 0.02; done
    check "it is not mounted here" sh -c "! mountpoint -q $WORK/mnt"
    refused "a device mounted in another namespace" "$dev" "mount namespace of process $away"
    kill $away; wait $away 2>/dev/null
else
    skip "mounts of other namespaces" "cannot unshare here"
fi

# Processes that have a device open: writers, as virtual machines do, and NBD servers that read.
sleep 600 3<>"$dev" &
holder=$!
at_exit "kill $holder"
refused "a device that a process writes" "$dev" "open for writing by sleep .process $holder"
kill $holder; wait $holder 2>/dev/null
cp "$(command -v sleep)" "$WORK/qemu-nbd"
"$WORK/qemu-nbd" 600 3<"$dev" &
holder=$!
at_exit "kill $holder"
refused "a device that an NBD server reads" "$dev" "open for reading by qemu-nbd .process $holder"
kill $holder; wait $holder 2>/dev/null
sleep 600 3<"$dev" &
holder=$!
at_exit "kill $holder"
expect "one that is only read is restored to" 0 -- restore "$dev"
kill $holder; wait $holder 2>/dev/null

# Partitions, and their disk.
truncate -s 40M "$WORK/disk"
attach "$WORK/disk"; disk=$DEV
# Not by a table: not every kernel reads them. Sectors.
at_exit '[ -z "${attached[$disk]-}" ] || { delpart "$disk" 1; delpart "$disk" 2; }'
addpart "$disk" 1 2048 32768 && addpart "$disk" 2 34816 32768
for _ in $(seq 100); do [ -b "${disk}p2" ] && break; sleep 0.02; done
if [ -b "${disk}p2" ]; then
    mkfs.ext4 -q -F "${disk}p1"
    mount -o ro "${disk}p1" "$WORK/mnt"
    refused "a disk with a mounted partition" "$disk" "$WORK/mnt"
    expect "another partition of it is no obstacle" 0 -- restore "${disk}p2" --verify
    umount "$WORK/mnt"
    attach "${disk}p1"; upper=$DEV
    refused "a disk with a partition below a loop device" "$disk" "backing store of loop device $upper"
    detach "$upper"
    attach "$disk" --sizelimit $((8 * MIB)); upper=$DEV
    refused "a partition of a disk below a loop device" "${disk}p1" "backing store of loop device $upper"
    expect "a loop device over other bytes of the disk is no obstacle" 0 -- restore "${disk}p2"
    detach "$upper"
else
    skip "partitions" "the kernel made no partitions of a loop device here"
fi
delpart "$disk" 1; delpart "$disk" 2
detach "$disk"

# Swap.
detach "$dev"
head -c $((16 * MIB)) /dev/zero >"$WORK/swap"; chmod 600 "$WORK/swap"
if mkswap "$WORK/swap" >/dev/null && swapon "$WORK/swap" 2>/dev/null; then
    at_exit "swapoff $WORK/swap"
    # The kernel itself makes swap files immutable to writers (ETXTBSY).
    expect "a swap file" 17 'in use .used as swap|Text file busy' -- restore "$WORK/swap" --resume
    swapoff "$WORK/swap"
    attach "$WORK/swap"; dev=$DEV
    swapon "$dev"; at_exit "swapoff $dev"
    refused "a device that is used as swap" "$dev" "used as swap"
    attach "$dev"; upper=$DEV
    refused "a device upon swap" "$upper" "$dev, which shares its data, is used as swap"
    swapoff "$dev"
else
    skip "swap" "swapon is not possible here"
fi
finish
