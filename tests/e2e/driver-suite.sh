#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One suite over every driver of native snapshots, each on the real thing: XFS, btrfs, a loop device; overlays by the
# example hook; exports of qemu-nbd, drives of a running QEMU, images of Ceph. (RS-11, RS-12, RS-13, RS-20, RS-21,
# RS-22, RS-26, PVC-05, PVC-06, PVC-07, PVC-10, PVC-21, PVC-24, CF-27)
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
. "$(dirname "$0")/../nbd-lib.sh"
. "$(dirname "$0")/../qemu-lib.sh"
is_root || { skip "drivers on real file systems" "needs root for mounts and loop devices"; finish; }

# image FILE MIB MKFS...: a file system on a loop device, mounted at $WORK/NAME.
mounted() {
    local name=$1 mib=$2
    shift 2
    truncate -s "${mib}M" "$WORK/$name.disk"
    "$@" "$WORK/$name.disk" >/dev/null 2>&1 && mkdir "$WORK/$name" &&
        mount -o loop "$WORK/$name.disk" "$WORK/$name" || return 1
    at_exit "umount -l $WORK/$name"
}
# suite NAME PROGRAM ARGS...: the TAP of the program becomes ours.
suite() {
    local what=$1 program=$2 line
    shift 2
    $program "$@" >"$WORK/tap" 2>"$WORK/tap.err"
    local rc=$?
    while IFS= read -r line; do
        case $line in
        "ok "*) pass "$what: ${line#*- }" ;;
        "not ok "*) fail "$what: ${line#*- }" ;;
        "#"*) echo "$line" ;;
        esac
    done <"$WORK/tap"
    check "$what: the suite ran to its end ($(grep -c '^ok' "$WORK/tap") passed)" grep -q '^1\.\.' "$WORK/tap"
    [ $rc -eq 0 ] || sed 's/^/# /' "$WORK/tap.err"
}

mounted far 200 mkfs.ext4 -q || { fail "an ext4 file system"; finish; }
mkdir "$WORK/tiny"; mount -t tmpfs -o size=3m tmpfs "$WORK/tiny"; at_exit "umount -l $WORK/tiny"

for fs in xfs btrfs; do
    if ! command -v mkfs.$fs >/dev/null; then skip "$fs" "mkfs.$fs is not installed"; continue; fi
    mounted $fs 400 mkfs.$fs -q || { fail "$fs: make and mount"; continue; }
    mkdir "$WORK/$fs/vm images" "$WORK/$fs/scratch"
    head -c 9000001 /dev/urandom >"$WORK/$fs/vm images/disk.img"
    suite $fs "$TOOLS/driver_suite" --driver reflink --match "$WORK/$fs/vm images/*.img" \
        --volume "$WORK/$fs/vm images/disk.img" \
        --dir "$WORK/$fs/vm images" --near "$WORK/$fs/scratch" --far "$WORK/far" --tiny "$WORK/tiny"
    # Without privileges: other attributes, the same promises.
    install -m 755 "$TOOLS/driver_suite" "$WORK/suite"; chmod 755 "$WORK"
    mkdir "$WORK/$fs/own" "$WORK/$fs/near"; head -c 5000001 /dev/urandom >"$WORK/$fs/own/disk.img"
    chown -R nobody "$WORK/$fs/own" "$WORK/$fs/near"
    suite "$fs unprivileged" "setpriv --reuid=nobody --clear-groups $WORK/suite" --driver reflink \
        --match "$WORK/$fs/own/*.img" \
        --volume "$WORK/$fs/own/disk.img" --dir "$WORK/$fs/own" --near "$WORK/$fs/near"
    rm -r "$WORK/$fs/own" "$WORK/$fs/near"
    same "$fs: nothing but the volume is left" "$(find "$WORK/$fs" -type f ! -path '*/lost+found*' |
        sed "s#^$WORK/##")" "$fs/vm images/disk.img"
done
if [ -d "$WORK/btrfs" ]; then
    # Images without checksums (chattr +C), as many people keep them; and a target in another subvolume.
    btrfs -q subvolume create "$WORK/btrfs/nocow" >/dev/null; btrfs -q subvolume create "$WORK/btrfs/sub" >/dev/null
    chattr +C "$WORK/btrfs/nocow"; mkdir "$WORK/btrfs/nocow/vm"
    head -c 9000001 /dev/urandom >"$WORK/btrfs/nocow/vm/disk.img"
    check "btrfs: the image is not copied on write" grep -q C <(lsattr "$WORK/btrfs/nocow/vm/disk.img")
    # The hidden directory may have been made before: without the attribute.
    mkdir -m 700 "$WORK/btrfs/nocow/vm/.snapferry"; chattr -C "$WORK/btrfs/nocow/vm/.snapferry"
    suite "btrfs nocow" "$TOOLS/driver_suite" --driver reflink --match "$WORK/btrfs/nocow/vm/*.img" \
        --volume "$WORK/btrfs/nocow/vm/disk.img" \
        --dir "$WORK/btrfs/nocow/vm" --near "$WORK/btrfs/sub"
fi

# Classes that cannot work are refused in words, before anything is tried (PVC-10).
call() { "$TOOLS/driver_call" "$@"; }
expect "a file system that cannot clone, and has none: that of the images may not be mounted" 0 -- call \
    --match "$WORK/far/*.none" abilities
: >"$WORK/far/a.none"
expect "a file system that cannot clone" 2 'cannot share blocks .its file system is ext4' \
    -- call --match "$WORK/far/*.none" abilities
rm "$WORK/far/a.none"
if command -v mkfs.xfs >/dev/null; then
    mounted noreflink 320 mkfs.xfs -q -m reflink=0 || fail "XFS without reflink"
    : >"$WORK/noreflink/a.img"
    expect "an XFS that cannot clone" 2 'xfs, created without reflink=1' \
    -- call --match "$WORK/noreflink/*.img" abilities
    expect "nor when it is tried all the same" 19 'cannot share blocks.*reflink=1' \
        -- call snapshot "$WORK/noreflink/a.img" "$(cat /proc/sys/kernel/random/uuid)"
    expect "and leaves nothing" 0 -- test -z "$(find "$WORK/noreflink" -type f ! -name a.img)"
fi
expect "a target that is not there" 2 'no directory /no/such/place' -- call --target /no/such/place abilities
expect "a target that is no directory" 2 'is not a directory' -- call --target /etc/passwd abilities
expect "a target on a file system without what it takes" 2 'which is not supported' \
    -- call --target /proc abilities
expect "a relative pattern" 2 'not an absolute path' -- call --match 'vm/*.img' abilities
expect "a class of intermediates only" 0 -- call --target "$WORK/far" abilities
expect "an alias that is no alias" 2 'invalid alias' -- call snapshot "$WORK/xfs/vm images/disk.img" ../../etc/passwd

truncate -s 8M "$WORK/raw"
dev=$(loop_device "$WORK/raw"); at_exit "losetup -d $dev"
suite device "$TOOLS/driver_suite" --driver device --match "$dev" --volume "$dev" --far "$WORK/far" --tiny "$WORK/tiny"

# What follows are no files: written by a program, read from a server.
cd "$(dirname "$0")/../.." || exit 1
cat >"$WORK/put-served" <<END
#!/bin/bash
cat >"$WORK/put.data"
write="write -s $WORK/put.data \$2 \$(stat -c %s "$WORK/put.data")"
case \$1 in
nbd+unix:*) exec qemu-io -f raw -c "\$write" "\$1" ;;
qemu:*) exec /usr/bin/python3 "$PWD/tests/tools/qmp.py" "$WORK/suite.test" human-monitor-command \\
    "{\"command-line\": \"qemu-io -d /machine/peripheral/deva/virtio-backend \\\\\"\$write\\\\\"\"}" ;;
esac
END
chmod +x "$WORK/put-served"
truncate -s 8M "$WORK/nbd.raw" "$WORK/qemu.raw"
nbd_qemu "$WORK/suite.sock" disk "$WORK/nbd.raw" -f raw || fail "qemu-nbd starts" "$(cat "$WORK/suite.sock.log")"
V=$(uri "$WORK/suite.sock" disk)
suite nbd "$TOOLS/driver_suite" --driver nbd --match "$V" --volume "$V" --accept --write "$WORK/put-served" \
    --absent "$(uri "$WORK/suite.sock" nosuch)"
nbd_stop "$WORK/suite.sock"
mkdir -m 700 "$WORK/fleece"
vm_start suite "$WORK/qemu.raw" || fail "a machine starts"
V=qemu://$WORK/vm/suite.qmp/vda
suite qemu "$TOOLS/driver_suite" --driver qemu --match "$V" --volume "$V" --target "$WORK/fleece" \
    --write "$WORK/put-served" --absent "qemu://$WORK/vm/suite.qmp/nosuch"
same "qemu: nothing is left in the machine" "$(vm_ours suite)" ""
vm_end suite

# Restores to images of Ceph: tests/e2e/rbd-restore.sh.
if rbd_cluster vms; then
    rbd create -s 8M vms/disk
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec /usr/bin/python3 %s %s put "$@"\n' "$CEPH_LIBS" \
        "$PWD/tests/tools/rbd.py" "$ceph_dir/ceph.conf" >"$WORK/put"
    chmod +x "$WORK/put"
    SNAPFERRY_NO_SYSTEMD=1 suite rbd "$TOOLS/driver_suite" --driver rbd --match 'vms/*' --volume vms/disk \
        --option "ceph-config=$ceph_dir/ceph.conf" --option ceph-user=snapferry --write "$WORK/put" \
        --absent vms/nosuch
    same "rbd: nothing is left in the image" \
        "$(rbd snap ls --all vms/disk)$(rbd image-meta ls vms/disk --format json)" ""
else
    skip "images of Ceph" "its programs could not be fetched (tests/deps.sh)"
fi
finish
