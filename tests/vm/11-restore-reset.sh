#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The machine goes down in the middle of a restore onto a raw device, by the power switch and in order: after the boot
# the same restore goes on by itself and the device has the bytes of the volume (E-03, MS-53).
VM_DISKS="data:400M repo:400M raw:48M"
VM_TIMEOUT=1800
. "$(dirname "$0")/lib.sh"
SIZE=$((32 * MIB))
raw=$(realpath "$(dev raw)")

# begin NAME: a restore of which a third is done. Sets R (restore), O (operation).
begin() {
    R=$(askj restore "$A//data/v.img" "$raw" --from repository --overwrite | jq -r '.restore // empty')
    O=$(op_id "$R")
    until_true 120 eval '[ "$(doc "$O" | jq -r ".progress.done // 0")" -gt $((SIZE / 3)) ]'
    same "$1: the restore is at work" "$(state "$O")" Running
    check "$1: and not done" eval '! cmp -s -n $SIZE /srv/v.orig "$raw"'
}
after_boot() {
    until_true 120 answers
    check "$1: the machine came up in order" test "$(cat /run/vm-state)" = running
    check "$1: the device has the name it had" test "$(realpath "$(dev raw)")" = "$raw"
    became "$1: the restore goes on by itself" "$R" Completed 240
    if [ $failures -gt 0 ]; then doc "$O"; ask operations; ask status; finish; fi
    same "$1: the operation is the same" "$(op_id "$R")" "$O"
    blockdev --flushbufs "$raw"
    check "$1: equal bytes" cmp -n $SIZE /srv/v.orig "$raw"
    same "$1: the state of the target is told" "$(doc "$O" | jq -r .target_state)" complete
    echo "# bytes that were there already: $(doc "$O" | jq '.result.resumedBytes // 0')"
    clean "$1: nothing is left behind" 60 /data
}

case $VM_BOOT in
1)
    disk_fs data xfs /data && disk_fs repo xfs /srv/repo || exit 1
    chown snapferry-mover: /srv/repo
    random_file /data/v.img $SIZE 1
    cp /data/v.img /srv/v.orig
    sync /srv/v.orig /data/v.img
    setup
    config_class images /data 'write-limit = 2MiB'
    config_add 60-raw "$(printf '[storage-class "raw"]\ndriver = device\nmatch = %s\n' "$raw")"
    check "reload" systemctl reload snapferryd
    A=$(submit /data/v.img)
    became "a backup" "$A" Completed 300
    begin "before a reset"
    reboot_by reset A R O raw
    ;;
2)
    after_boot "after a reset"
    dd if=/dev/zero of="$raw" bs=1M count=32 oflag=direct status=none
    begin "before a reboot"
    reboot_by systemctl A R O raw
    ;;
3) after_boot "after a reboot" ;;
esac
finish
