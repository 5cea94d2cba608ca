#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes the machine that tests/vm/run.sh boots: Debian 12 with its stock kernel, systemd, LVM and XFS tools and the
# libraries that snapferry links. Prints the directory that holds root.ext4, vmlinux and initrd. Made once (a minute,
# some 100 MB from the host's own apt sources) and kept in ${XDG_CACHE_HOME:-~/.cache}/snapferry-vm under a key of all
# that goes into it;
# VM_REBUILD=1 makes it again with the newest packages. Needs root.
# VM_VARIANT=zfs: an image of its own with OpenZFS (Debian's contrib), whose module is compiled while the image is made:
# five minutes more, once. VM_VARIANT=ceph: with a monitor, a store and the commands of Ceph.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
suite=bookworm
on_host=(qemu-system-x86 mmdebstrap e2fsprogs xz-utils debian-archive-keyring)
in_guest=(
    systemd systemd-sysv udev dbus kmod procps util-linux mount busybox-static linux-image-amd64
    lvm2 dmsetup thin-provisioning-tools xfsprogs btrfs-progs e2fsprogs
    libmicrohttpd12 liburing2 libisal2 libzstd1 libssl3 libjansson4 libinih1 liblz4-1 zlib1g libblkid1 libsystemd0
    libsqlite3-0 libseccomp2 libcurl4 libexpat1
    jq curl sqlite3 openssl adduser
)
case ${VM_VARIANT:=} in
'') ;;
zfs) in_guest+=(linux-headers-amd64 zfs-dkms zfsutils-linux) ;;
ceph) in_guest+=(ceph-mon ceph-osd ceph-common librbd1 libnbd0 python3-minimal) ;;
*) echo "no variant \"$VM_VARIANT\" of the image" >&2; exit 2 ;;
esac
# No machine that is emulated has this hardware. It is most of the kernel's package.
without=(
    '/usr/share/doc/*' '/usr/share/man/*' '/usr/share/locale/*' '/usr/share/info/*' '/usr/share/bug/*'
    '/lib/modules/*/kernel/sound/*' '/lib/modules/*/kernel/drivers/gpu/*' '/lib/modules/*/kernel/drivers/media/*'
    '/lib/modules/*/kernel/drivers/net/*' '/lib/modules/*/kernel/drivers/infiniband/*'
    '/lib/modules/*/kernel/drivers/usb/*'
    '/lib/modules/*/kernel/drivers/hid/*' '/lib/modules/*/kernel/drivers/iio/*'
    '/lib/modules/*/kernel/drivers/staging/*'
    '/etc/kernel/postinst.d/initramfs-tools'
)
modules=(virtio_pci virtio_blk ext4)

[ "$(id -u)" -eq 0 ] ||
    { echo "the image of the virtual machine is made by root (mmdebstrap, owners of files)" >&2; exit 1; }
missing=()
for p in "${on_host[@]}"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "installing: ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=120 update -qq >&2
    apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# A host of the same suite knows the nearest mirror; elsewhere mmdebstrap has a default.
sources=()
if grep -qs "^VERSION_CODENAME=$suite$" /etc/os-release; then
    for s in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        [ ! -s "$s" ] || { sources=("$s"); break; }
    done
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/snapferry-vm
mkdir -p "$cache"
image=$cache/$({ cat "$0" "$here"/guest/* "${sources[@]}"; echo "$VM_VARIANT"; } | sha256sum | cut -c1-16)
exec 9>"$cache/lock"
flock 9
if [ -e "$image/initrd" ] && [ -z "${VM_REBUILD:-}" ]; then
    echo "$image"
    exit
fi
echo "making the image of the virtual machine: a minute or two${VM_VARIANT:+, and some more for $VM_VARIANT}" >&2
new=$image.new root=$image.new/root
rm -rf --one-file-system "$new"
mkdir -p "$new"

opts=()
if [ "$VM_VARIANT" = zfs ]; then # ZFS is in contrib
    opts+=(--components=main,contrib)
    if [ ${#sources[@]} -gt 0 ]; then
        sed -E '/^(Components:|deb )/ { / contrib/! s/ main( |$)/ main contrib\1/ }' \
            "${sources[0]}" >"$new/apt.${sources[0]##*.}"
        sources=("$new/apt.${sources[0]##*.}")
    fi
fi
for p in "${without[@]}"; do opts+=("--dpkgopt=path-exclude=$p"); done
# The compiler and flags that make has passed down are those of the host; in there modules are built.
env -u CC -u CFLAGS -u LDFLAGS -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES \
    mmdebstrap --quiet --mode=root --variant=minbase --format=directory --include="$(IFS=,; echo "${in_guest[*]}")" \
    "${opts[@]}" \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' "$suite" "$root" "${sources[@]}" \
    >"$new/log" 2>&1 || { tail -n 20 "$new/log" >&2; exit 1; }

# What runs a test, and nothing that runs by itself while one does. An empty machine-id would make every boot the first.
install -m 755 "$here/guest/agent" "$root/usr/local/sbin/vm-agent"
install -m 644 "$here/guest/vm-agent.service" "$root/etc/systemd/system/"
ln -s ../vm-agent.service "$root/etc/systemd/system/multi-user.target.wants/"
echo snapferry-vm >"$root/etc/hostname"
echo '127.0.0.1 localhost snapferry-vm' >"$root/etc/hosts"
echo 5e1f0c2d9a7b4c3e8d6f1a2b3c4d5e6f >"$root/etc/machine-id"
: >"$root/etc/fstab"
mkdir -p "$root/vm" "$root/var/log/journal" # a journal that survives a reset
chroot "$root" systemctl -q set-default multi-user.target
chroot "$root" systemctl -q mask getty@.service serial-getty@.service apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer modprobe@drm.service \
    modprobe@efi_pstore.service
[ "$VM_VARIANT" != ceph ] || chroot "$root" systemctl -q mask ceph.target ceph-crash.service

# Debian's kernels have virtio as modules.
version=$(basename "$root"/lib/modules/*)
chroot "$root" depmod "$version"
[ "$VM_VARIANT" != zfs ] || chroot "$root" modinfo -k "$version" zfs >/dev/null ||
    { echo "the module zfs was not built for $version" >&2; exit 1; }
initrd=$new/initrd.d
mkdir -p "$initrd"/{bin,dev,proc,sys,root,modules}
cp "$root/bin/busybox" "$initrd/bin/"
install -m 755 "$here/guest/init" "$initrd/init"
for m in "${modules[@]}"; do chroot "$root" modprobe -S "$version" --show-depends "$m"; done |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$new/modules"
n=100
while read -r file; do
    cp "$root$file" "$initrd/modules/$n-$(basename "$file")"
    n=$((n + 1))
done <"$new/modules"
(cd "$initrd" && find . | "$root/bin/busybox" cpio -o -H newc 2>/dev/null) >"$new/initrd.new"

# The ELF kernel inside the compressed one: QEMU starts it directly, and emulation saves seconds of unpacking. The boot
# protocol's header has the number of sectors before the protected-mode part at 0x1f1 and the payload's offset at 0x248.
zimage=$root/boot/vmlinuz-$version
sectors=$(od -An -tu1 -j497 -N1 "$zimage")
offset=$(od -An -tu4 -j584 -N4 "$zimage")
tail -c +$(((sectors + 1) * 512 + offset + 1)) "$zimage" | xz -dc --single-stream >"$new/vmlinux" 2>/dev/null ||
    cp "$zimage" "$new/vmlinux"

rm -rf "$root"/boot/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
mb=$(($(du -sm --apparent-size "$root" | cut -f1) + 1536))
mke2fs -q -F -t ext4 -m 0 -E lazy_itable_init=1,lazy_journal_init=1 -d "$root" "$new/root.ext4" "${mb}M" >&2
rm -rf --one-file-system "$root" "$initrd" "$new/modules"
mv "$new/initrd.new" "$new/initrd"
rm -rf "$image"
mv "$new" "$image"
# Those of other keys are what earlier versions of this file made.
find "$cache" -mindepth 1 -maxdepth 1 -type d ! -path "$image" -mtime +14 -exec rm -rf {} +
echo "$image"
