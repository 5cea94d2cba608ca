#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make demo: the main job on a real block device. A loop device with an ext4 file system full of this machine's own
# files is backed up, changed, backed up again, listed, verified, restored to a second device and compared.
set -euo pipefail
SNAPFERRY=${SNAPFERRY:-build/snapferry}
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "the demo makes a block device: run it as root or install sudo" >&2; exit 1; }
    exec sudo SNAPFERRY="$SNAPFERRY" "$0" "$@"
fi
DIR=$(mktemp -d /var/tmp/snapferry-demo.XXXXXX)
export XDG_CACHE_HOME=$DIR/cache
source_dev= target_dev=
cleanup() {
    umount "$DIR/mnt" 2>/dev/null || true
    [ -z "$source_dev" ] || losetup -d "$source_dev" 2>/dev/null || true
    [ -z "$target_dev" ] || losetup -d "$target_dev" 2>/dev/null || true
    rm -rf "$DIR"
}
trap cleanup EXIT
trap 'echo "the demo failed at line $LINENO" >&2' ERR
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }
sf() { printf '$ snapferry -r %s --password-file password %s\n' "repo" "$*"
       "$SNAPFERRY" -r "$DIR/repo" --password-file "$DIR/password" "$@"; }

say "1. A real block device with a real file system and real files"
truncate -s 2G "$DIR/source.img" "$DIR/target.img"
source_dev=$(losetup --find --show "$DIR/source.img")
target_dev=$(losetup --find --show "$DIR/target.img")
mkfs.ext4 -q "$source_dev"
mkdir "$DIR/mnt"
mount "$source_dev" "$DIR/mnt"
# Some hundred MB of what this machine has.
for d in /usr/bin /usr/share/doc /usr/share/perl /usr/share/locale /usr/lib/x86_64-linux-gnu; do
    [ -d "$d" ] || continue
    [ "$(du -sm "$DIR/mnt" | cut -f1)" -gt 700 ] && break
    find "$d" -xdev -type f -size -20M -print0 2>/dev/null >"$DIR/list" || true
    head -z -n 6000 "$DIR/list" >"$DIR/list6000"
    tar -cf - -P --null -T "$DIR/list6000" | tar -xf - -C "$DIR/mnt" 2>/dev/null || true
done
umount "$DIR/mnt"
echo "$source_dev: $(blockdev --getsize64 "$source_dev") bytes, $(blkid -o value -s TYPE "$source_dev"), UUID $(blkid -o value -s UUID "$source_dev")"

say "2. A repository in Kopia's format"
(umask 077; head -c 24 /dev/urandom | base64 > "$DIR/password")
sf repo create

say "3. The first backup"
sf backup "$source_dev" --compression zstd-fastest

say "4. Some files change; the second backup stores only what is new"
mount "$source_dev" "$DIR/mnt"
head -c 8M /dev/urandom > "$DIR/mnt/new-file"
find "$DIR/mnt/usr" -type f >"$DIR/list"
head -n 20 "$DIR/list" | while read -r f; do echo changed >> "$f"; done
umount "$DIR/mnt"
sf backup "$source_dev" --compression zstd-fastest

say "5. What is there"
sf snapshot list
sf ls latest

say "6. Is all of it readable?"
sf verify

say "7. Restore to another device, and compare every byte"
sf restore latest "$target_dev" --verify
run cmp "$source_dev" "$target_dev"
fsck.ext4 -fn "$target_dev" >/dev/null 2>&1 && echo "the restored file system is clean"

say "Done: $target_dev holds what $source_dev holds. Any stock kopia can list, verify, mount and restore this repository too."
