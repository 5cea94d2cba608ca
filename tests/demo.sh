#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make demo: the main job on a real block device. A loop device with an ext4 file system full of this machine's own
# files is backed up, changed, backed up again, listed, verified, restored to a second device and compared. Then the
# daemon does the same on its own terms: native snapshots of image files by a job, restored from either place, and a
# second run that reads only what changed. At last the space of a deleted backup comes back by maintenance.
set -euo pipefail
SNAPFERRY=${SNAPFERRY:-build/snapferry}
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "the demo makes a block device: run it as root or install sudo" >&2; exit 1; }
    exec sudo SNAPFERRY="$SNAPFERRY" "$0" "$@"
fi
DIR=$(mktemp -d /var/tmp/snapferry-demo.XXXXXX)
export XDG_CACHE_HOME=$DIR/cache
source_dev= target_dev=
daemon_pid=
cleanup() {
    [ -z "$daemon_pid" ] || { kill "$daemon_pid" && wait "$daemon_pid"; } 2>/dev/null || true
    umount "$DIR/vm" 2>/dev/null || true
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
echo "$source_dev: $(blockdev --getsize64 "$source_dev") bytes, $(blkid -o value -s TYPE "$source_dev"), UUID $(blkid \
    -o value -s UUID "$source_dev")"

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

say "8. The daemon: volumes by policy, here images on XFS, with native snapshots"
truncate -s 1G "$DIR/xfs.img"
mkfs.xfs -q "$DIR/xfs.img"
mkdir "$DIR/vm" "$DIR/etc"
mount -o loop "$DIR/xfs.img" "$DIR/vm"
head -c 48M /dev/urandom >"$DIR/vm/web.img"
head -c 32M /dev/urandom >"$DIR/vm/db.img"
cat >"$DIR/etc/snapferry.ini" <<EOF
[daemon]
node-name = demo
[repository "main"]
type = filesystem
path = $DIR/repo
password-file = $DIR/password
[storage-class "images"]
driver = reflink
match = $DIR/vm/*.img
repository = main
snapshots-to-retain = 2
[job "nightly"]
volumes = class:images
on-calendar = *-*-* 02:00
keep-daily = 14
EOF
cat "$DIR/etc/snapferry.ini"
"$(dirname "$SNAPFERRY")/snapferryd" --foreground --config-dir "$DIR/etc" --state-dir "$DIR/state" \
    --runtime-dir "$DIR/run" \
    --cache-dir "$DIR/daemon-cache" 2>"$DIR/daemon.log" &
daemon_pid=$!
ask() { printf '$ snapferry %s\n' "$*"; "$SNAPFERRY" "$@" --runtime-dir "$DIR/run"; }
for _ in $(seq 50); do [ -S "$DIR/run/control.sock" ] && break; sleep 0.1; done
ask backup --job nightly --wait
cp "$DIR/vm/db.img" "$DIR/db.before"
printf 'oops' | dd of="$DIR/vm/db.img" bs=1 seek=12345 conv=notrunc status=none
ask status
backup=$("$SNAPFERRY" backups --runtime-dir "$DIR/run" --json | grep -o 'nightly-[0-9T]*-[0-9a-f]*' | head -n 1)
ask restore "$backup/$DIR/vm/db.img" "$DIR/vm/db.restored" --wait
run cmp "$DIR/db.before" "$DIR/vm/db.restored"
ask restore "$backup/$DIR/vm/db.img" "$DIR/db.from-repository" --from repository --wait
run cmp "$DIR/db.before" "$DIR/db.from-repository"
ask native list

say "9. The next run reads only what changed"
ask backup --job nightly --wait
last=$("$SNAPFERRY" backups --runtime-dir "$DIR/run" --json | grep -o 'nightly-[0-9T]*-[0-9a-f]*' | head -n 1)
[ "$last" != "$backup" ] || { echo "the second run of the job is not listed" >&2; exit 1; }
all=0 part=0
read_of() { "$SNAPFERRY" describe "$1" --runtime-dir "$DIR/run" --json | grep -o '"readBytes":[0-9]*' | head -n 1 |
    cut -d: -f2; }
for image in web db; do
    all=$((all + $(read_of "$backup/$DIR/vm/$image.img"))) part=$((part + $(read_of "$last/$DIR/vm/$image.img")))
    ask describe "$last/$DIR/vm/$image.img" >"$DIR/described"
    grep -E '^(\$|Backup of|Reading|Stored)' "$DIR/described"
    grep -q '^Reading *incremental since' "$DIR/described" || { echo "all data was read" >&2; exit 1; }
done
echo "the first run of the job has read $all bytes, this one $part: the chunk with the 4 bytes that changed, and of"
echo "each image one that did not, to compare it (verify-sample)"
[ "$part" -gt 0 ] && [ "$part" -lt $((all / 2)) ] || { echo "more than what changed was read" >&2; exit 1; }
ask restore "$last/$DIR/vm/db.img" "$DIR/db.second" --from repository --wait
run cmp "$DIR/vm/db.img" "$DIR/db.second"

say "10. A backup is deleted, and its space comes back"
kill "$daemon_pid" && wait "$daemon_pid" 2>/dev/null || true
daemon_pid=
head -c 200M /dev/urandom >"$DIR/old.img"
sf backup "$DIR/old.img" --as demo@node:/old --quiet
sf snapshot delete latest --as demo@node:/old --force
sf repo usage
before=$(du -sm "$DIR/repo" | cut -f1)
echo "Maintenance runs once a day while backups go on, and frees it in the third run. Nobody waits for three days here:"
echo "a tool of the tests makes everything in the repository 25 hours older before each run."
for _ in 1 2 3; do
    run "$(dirname "$SNAPFERRY")/tests/tools/age_repository" "$DIR/repo" "$DIR/password" 25
    sf maintenance --full
done
after=$(du -sm "$DIR/repo" | cut -f1)
echo "the repository occupied $before MiB, and $after MiB now"
[ "$after" -lt $((before - 190)) ] || { echo "the space did not come back" >&2; exit 1; }
sf verify

say "Done: what was restored is what was backed up, and what was deleted is free." \
    "Any stock kopia can list, verify, mount and restore this repository too."
