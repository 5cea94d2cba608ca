#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The machine goes down in the middle of a restore onto a raw device, by the power switch and in order: after the boot
# the same restore goes on by itself from the position that its mover had recorded, and the device has the bytes of the
# volume (E-03, MS-53).
VM_DISKS="data:400M repo:400M raw:48M"
: "${VM_TIMEOUT:=1800}"
. "$(dirname "$0")/lib.sh"
SIZE=$((32 * MIB))
raw=$(realpath "$(dev raw)")

# The position of the restore, which its mover records every ten seconds, after a sync of the device.
recorded() { find $CACHE -name 'restore-device-*' ! -name '*.tmp' -exec awk '{ print $NF }' {} +; }
# begin NAME: a restore that has recorded a position. Sets R (restore), O (operation), P (position).
begin() {
    R=$(askj restore "$A//data/v.img" "$raw" --from repository --overwrite | jq -r '.restore // empty')
    O=$(op_id "$R")
    until_true 120 eval '[ "$(recorded)" -gt 0 ] 2>/dev/null'
    P=$(recorded)
    same "$1: the restore is at work" "$(state "$O")" Running
    check "$1: its mover has recorded a position: $P" test "${P:-0}" -gt 0
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
    # Nothing is fetched for what is below the position. It may have gone further than what was seen here.
    from=$(doc "$O" | jq '.result.resumedFrom')
    check "$1: it went on from where it was" test "$from" -ge "$P"
    same "$1: what was there was found" "$(doc "$O" | jq '.result.resumedBytes')" "$from"
    same "$1: and only the rest fetched" "$(doc "$O" | jq '.result.resumedBytes + .result.fetchedBytes')" $SIZE
    check "$1: the journal has it" eval \
        'journalctl -q -b --no-pager | grep -q "the restore to $raw resumes at [1-9][0-9]* of $SIZE bytes"'
    echo "# resumed: $(doc "$O" | jq -c '.result | {resumedFrom, resumedBytes, fetchedBytes, writtenBytes}')"
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
    reboot_by reset A R O P raw
    ;;
2)
    after_boot "after a reset"
    dd if=/dev/zero of="$raw" bs=1M count=32 oflag=direct status=none
    begin "before a reboot"
    reboot_by systemctl A R O P raw
    ;;
3) after_boot "after a reboot" ;;
esac
finish
