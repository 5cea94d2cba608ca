#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make demo-vm: LVM thin on a stock Debian 12, in a virtual machine of its own. The package is installed, two thin
# volumes (one with a mounted file system) are backed up by a job, and again after changes, when only what changed is
# read; both are restored from their native snapshots and from the repository, and compared; the oldest native snapshots
# are pruned, and what they had is restored from the repository. Each step that does not do what it says ends the demo.
# The last line is the verdict. Needs root (the machine's image), and minutes where /dev/kvm cannot be used.
set -euo pipefail
if [ -z "${SNAPFERRY_IN_VM:-}" ]; then
    cd "$(dirname "$0")/.."
    echo "starting a virtual machine of Debian 12: output begins when it has booted"
    export VM_DISKS="disk:2G" VM_MEMORY="${VM_MEMORY:-1024}" VM_TIMEOUT="${VM_TIMEOUT:-1800}"
    exec tests/vm/run.sh tests/demo-vm.sh
fi
step="at the start"
failed() {
    local rc=$?
    trap - EXIT
    [ $rc -ne 0 ] || exit 0
    echo "FAILED: $step (exit code $rc)"
    journalctl -q --no-pager -o cat -u snapferryd.service -n 30 | sed 's/^/# /'
    exit $rc
}
trap failed EXIT
trap 'echo "the demo failed at line $LINENO: $BASH_COMMAND"' ERR
say() { step="step ${1%%.*}"; printf '\n%s\n' "$*"; }
die() { echo "$*"; exit 1; }
run() { printf '# %s\n' "$*"; "$@"; }
mib() { echo $((($1 + 524288) / 1048576)); }

# nightly: one run of the job; its backup's id is left in BACKUP.
nightly() {
    run snapferry backup --job nightly --wait 2>&1 | tee /srv/out
    BACKUP=$(sed -n 's/^\(nightly-[^ ]*\) Completed in .*/\1/p' /srv/out)
    [ -n "$BACKUP" ] || die "the backup is not Completed"
}
# read_of VOLUME: bytes that the backup of it has read.
operation() { snapferry describe "$BACKUP/$1" --json | tail -n 1 | jq -c .operation; }
read_of() { operation "$1" | jq .result.readBytes; }
# The same bytes, whatever kind of volume it is.
same() {
    run cmp "$1" "$2" || die "$1 and $2 differ"
    echo "equal, $(mib "$(blockdev --getsize64 "$1")") MiB"
}
snapshots() { lvs --noheadings -o lv_name vg0 | tr -d ' ' | grep -c '^snapferry-' || true; }

say "1. The package, on Debian $(cat /etc/debian_version) with Linux $(uname -r)"
export DEBIAN_FRONTEND=noninteractive
run dpkg -i /vm/stage/snapferry_*.deb
run systemctl is-active snapferryd.service
run snapferry --version

say "2. A thin pool with two volumes: /dev/vg0/files is mounted, /dev/vg0/db has no file system"
disk=$(realpath /dev/disk/by-id/virtio-disk)
run pvcreate -q "$disk"
run vgcreate -q vg0 "$disk"
run lvcreate -q -y -L 1200M --thinpool pool vg0
run lvcreate -q -y -V 256M -T vg0/pool -n files
run lvcreate -q -y -V 128M -T vg0/pool -n db
mkfs.ext4 -q /dev/vg0/files
mkdir /data
run mount /dev/vg0/files /data
cp -r /usr/bin /data/
dd if=/dev/urandom of=/dev/vg0/db bs=1M count=64 oflag=direct status=none
sync
run lvs -o lv_name,lv_size,pool_lv,data_percent vg0

say "3. A repository in Kopia's format, a storage class, a job"
cat >/etc/snapferry/conf.d/50-local.ini <<'INI'
[repository "main"]
path = /srv/backup
password-file = /etc/snapferry/main.password
compression = zstd-fastest
[storage-class "thin"]
driver = lvm-thin
match = /dev/vg0/files /dev/vg0/db
target = vg0/pool
snapshots-to-retain = 2
[storage-class "restored"]
driver = lvm-thin
match = /dev/vg0/restored-*
target = vg0/pool
[job "nightly"]
volumes = class:thin
on-calendar = *-*-* 02:00
keep-daily = 14
INI
run cat /etc/snapferry/conf.d/50-local.ini
run snapferry -r main repo create --make-password
run snapferry check-config --quiet
run systemctl reload snapferryd
run snapferry volumes

say "4. The first run of the job: all that is mapped is read"
nightly
first=$BACKUP
dd if=/dev/vg0/db of=/srv/db.1 bs=1M status=none # to compare with; snapferry knows nothing of it
(cd /data && find . -type f -print0 | sort -z | xargs -0 sha256sum) >/srv/files.1
full=$(($(read_of /dev/vg0/db) + $(read_of /dev/vg0/files)))
[ "$full" -gt $((64 * 1048576)) ] || die "$full bytes were read: not all data"
run lvs -o lv_name,lv_attr,origin,data_percent vg0
[ "$(snapshots)" = 2 ] || die "there are $(snapshots) native snapshots, not one of each volume"

say "5. Some of it changes, and the next run reads only that"
dd if=/dev/urandom of=/dev/vg0/db bs=64K seek=100 count=3 oflag=direct conv=notrunc status=none
echo 'one more line' >>/data/bin/new-file
sync
nightly
second=$BACKUP
dd if=/dev/vg0/db of=/srv/db.2 bs=1M status=none
(cd /data && find . -type f -print0 | sort -z | xargs -0 sha256sum) >/srv/files.2
for v in files db; do
    run snapferry describe "$second//dev/vg0/$v" >/srv/described
    grep -E '^(#|Backup of|Reading|Stored|Native)' /srv/described
    grep -q '^Reading *incremental since' /srv/described || die "all data of $v was read"
    [ "$(operation "/dev/vg0/$v" | jq -r .result.cbtSource)" = lvm-thin ] || die "the pool did not list the changes"
done
part=$(($(read_of /dev/vg0/db) + $(read_of /dev/vg0/files)))
echo "the first run has read $(mib "$full") MiB, this one $(mib "$part") MiB"
[ "$part" -lt $((full / 3)) ] || die "that is no less than a third"

say "6. Restored from the native snapshots, in the pool: a clone, nothing is copied"
for v in files db; do
    run snapferry restore "$second//dev/vg0/$v" "/dev/vg0/restored-$v-native" --from native --wait
done
run lvs -o lv_name,lv_size,data_percent vg0/restored-files-native vg0/restored-db-native

say "7. Restored from the repository, and compared"
for v in files db; do
    run snapferry restore "$second//dev/vg0/$v" "/dev/vg0/restored-$v-repository" --from repository --wait
    same "/dev/vg0/restored-$v-native" "/dev/vg0/restored-$v-repository"
done
same /dev/vg0/restored-db-repository /srv/db.2
mkdir /mnt/restored
run mount -o ro /dev/vg0/restored-files-repository /mnt/restored
(cd /mnt/restored && sha256sum --quiet -c /srv/files.2) || die "files differ"
echo "its $(wc -l </srv/files.2) files are those of the mounted volume"
umount /mnt/restored
for v in files db; do
    for from in native repository; do run lvremove -q -y "vg0/restored-$v-$from"; done
done

say "8. A third run: two native snapshots of each volume are retained, the oldest ones are pruned"
run snapferry native list
nightly
for _ in $(seq 60); do
    [ "$(snapshots)" -gt 4 ] || break
    sleep 1
done
run snapferry native list
run lvs -o lv_name,lv_size,origin vg0
[ "$(snapshots)" = 4 ] || die "there are $(snapshots) native snapshots, not two of each volume"
if run snapferry restore "$first//dev/vg0/db" /dev/vg0/restored-db --from native --wait; then
    die "the first native snapshot is still there"
fi
echo "as it should be: there is no native snapshot of the first run any more"

say "9. What was pruned is in the repository"
for v in files db; do
    run snapferry restore "$first//dev/vg0/$v" "/dev/vg0/restored-$v" --wait
done
same /dev/vg0/restored-db /srv/db.1
run mount -o ro /dev/vg0/restored-files /mnt/restored
(cd /mnt/restored && sha256sum --quiet -c /srv/files.1) || die "files differ"
[ ! -e /mnt/restored/bin/new-file ] || die "a file of the second run is in the first one"
echo "its $(wc -l </srv/files.1) files are those of the first run"
umount /mnt/restored
run snapferry verify main --read-percent 100 --wait
run snapferry status

say "Done: two thin volumes came back from native snapshots and from the repository, every byte compared; the second" \
    "run read $(mib "$part") of $(mib "$full") MiB; and what was pruned was restored from the repository."
