#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The suite of the built-in drivers over the driver plugin of the package. (AP-24, RS-27)
. "$(dirname "$0")/../lib.sh"
is_root || { skip "a driver plugin" "needs root for mounts"; finish; }
command -v mkfs.xfs >/dev/null || { skip "a driver plugin" "mkfs.xfs is not installed"; finish; }
for fs in "xfs 320" "ext4 100"; do
    name=${fs% *}; truncate -s "${fs#* }M" "$WORK/$name.disk"; mkdir "$WORK/$name"
    mkfs.$name -q "$WORK/$name.disk" && mount -o loop "$WORK/$name.disk" "$WORK/$name" ||
        { fail "$name: make and mount"; finish; }
    at_exit "umount -l $WORK/$name"
done
chmod 755 "$WORK"
example_plugin driver-dir "$WORK/driver-dir"
mkdir "$WORK/xfs/vm" "$WORK/xfs/vm/.snapshots"; head -c 5000001 /dev/urandom >"$WORK/xfs/vm/disk.img"
"$TOOLS/driver_suite" --driver plugin:dir --plugin "$WORK/driver-dir" --match "$WORK/xfs/vm/*.img" \
    --target "$WORK/xfs/vm/.snapshots" --volume "$WORK/xfs/vm/disk.img" --far "$WORK/ext4" >"$WORK/tap" 2>&1
rc=$?
while IFS= read -r line; do
    case $line in
    "ok "*) pass "${line#*- }" ;;
    "not ok "*) fail "${line#*- }" ;;
    "1.."*) ;;
    *) echo "# $line" ;;
    esac
done <"$WORK/tap"
same "the suite ran to its end: exit code" $rc 0
finish
