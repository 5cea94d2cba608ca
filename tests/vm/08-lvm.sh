#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What people have on servers: images on XFS and raw volumes, both on LVM, an intermediate on another file system, the
# whole under the installed, sandboxed service, there and back.
VM_DISKS="pv:700M scratch:200M"
: "${VM_TIMEOUT:=1200}"
. "$(dirname "$0")/lib.sh"
pv=$(realpath "$(dev pv)")
pvcreate -q "$pv" >/dev/null && vgcreate -q vg0 "$pv" >/dev/null && lvcreate -q -y -n images -L 400M vg0 >/dev/null &&
    lvcreate -q -y -n raw -L 24M vg0 >/dev/null && lvcreate -q -y -n back -L 24M vg0 >/dev/null || exit 1
mkfs.xfs -q /dev/vg0/images && mkdir -p /data && mount /dev/vg0/images /data && disk_fs scratch ext4 /scratch || exit 1
image /data/a.img 24 1
image /data/copied.img 16 2
random_file /srv/raw.orig $((24 * MIB)) 3
dd if=/srv/raw.orig of=/dev/vg0/raw bs=1M oflag=direct status=none
cp /data/a.img /srv/a.orig; cp /data/copied.img /srv/copied.orig
setup
config_add classes '[storage-class "images"]
driver = reflink
match = /data/a.img
snapshots-to-retain = 2
[storage-class "copied"]
driver = reflink
match = /data/copied.img
backup-storage-class = scratch
[storage-class "scratch"]
driver = reflink
match =
target = /scratch
[storage-class "raw"]
driver = device
match = /dev/vg0/raw /dev/vg0/back
[job "all"]
volumes = class:images class:copied /dev/vg0/raw'
expect "the configuration is accepted" 0 -- snapferry check-config
check "reload" systemctl reload snapferryd
same "the volumes are seen" "$(askj volumes | jq -r '.volumes[].name' | sort | tr '\n' ' ')" \
    "/data/a.img /data/copied.img /dev/vg0/back /dev/vg0/raw "
out=$(ask backup --job all --wait --json); rc=$?
B=$(result id <<<"$out")
same "the job: exit code" $rc 0
same "Completed" "$(result state <<<"$out")" Completed
mechanism() { doc "$(op_id "$B" "$1")" | jq -r '[.. | .mechanism? // empty] | first'; }
same "an image is read from its native snapshot" "$(mechanism /data/a.img)" native
same "another one from a copy elsewhere" "$(mechanism /data/copied.img)" copy
same "the logical volume itself" "$(mechanism /dev/vg0/raw)" native
check "no copy is left" eval '[ -z "$(find /scratch -type f)" ]'
same "one native snapshot is kept" "$(natives_of /data/a.img | wc -l)" 1

printf 'changed' | dd of=/data/a.img bs=1 seek=4096 conv=notrunc status=none
restored_same "the image from its native snapshot" "$B" /data/a.img /srv/a.orig native
restored_same "the image from the repository" "$B" /data/a.img /srv/a.orig repository
restored_same "the copied one" "$B" /data/copied.img /srv/copied.orig repository
expect "the logical volume into another one" 0 -- ask restore "$B//dev/vg0/raw" /dev/vg0/back --overwrite --wait --quiet
check "the same bytes" cmp -n $((24 * MIB)) /srv/raw.orig /dev/vg0/back
mkfs.ext4 -q /dev/vg0/back && mkdir -p /mnt/back && mount /dev/vg0/back /mnt/back
expect "not while it is mounted" 17 'mounted' -- ask restore "$B//dev/vg0/raw" /dev/vg0/back --overwrite --wait
umount /mnt/back
expect "verify" 0 -- ask verify main --read-percent 100 --wait --quiet
clean "nothing is left behind" 60 /data /scratch
finish
