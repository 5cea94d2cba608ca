#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The machine goes down in mid-backup, in order and without: after the boot the same operation goes on from the same
# native snapshot and completes, and nothing is left over (E-03, MS-36, MS-50).
VM_DISKS="data:500M repo:600M"
: "${VM_TIMEOUT:=1800}"
. "$(dirname "$0")/lib.sh"
native_of() { doc "$O" | jq -r '.native // .details.native // .details.native_doc.alias // empty'; }

begin() {
    moving /data/v.img
    N=$(native_of)
    # Far enough that there is something to lose.
    until_true 60 eval '[ "$(doc "$O" | jq -r ".progress.done // 0")" -gt $((4 * MIB)) ]'
    same "$1: the mover is at work" "$(state "$O")" Running
}
after_boot() {
    until_true 120 answers
    check "$1: the machine came up in order" test "$(cat /run/vm-state)" = running
    became "$1: the operation goes on" "$A" Completed 600
    same "$1: from the same native snapshot" "$(native_of)" "$N"
    same "$1: the operation is the same" "$(op_id "$A")" "$O"
    restored_same "$1: the repository has the volume of then" "$A" /data/v.img "/srv/v.orig.$2" repository
    clean "$1: nothing is left behind" 60 /data
    check "$1: the repository is sound" sf "$REPO" verify --quiet
}

case $VM_BOOT in
1)
    disk_fs data xfs /data && disk_fs repo xfs /srv/repo || exit 1
    chown snapferry-mover: /srv/repo
    image /data/v.img 64 1
    cp /data/v.img /srv/v.orig.1
    setup
    config_class images /data 'snapshots-to-retain = 2' "$SLOWLY"
    check "reload" systemctl reload snapferryd
    begin "before a reboot"
    random_file /srv/new $((8 * MIB)) 7 # the volume goes on changing
    dd if=/srv/new of=/data/v.img bs=1M conv=notrunc,fsync status=none
    cp /data/v.img /srv/v.orig.2
    sync /srv/v.orig.* /data/v.img
    reboot_by systemctl A O N PID
    ;;
2)
    after_boot "after a reboot" 1
    new=$(doc "$O" | jq '.result.new // .result.incrementalBytes')
    left="$new of $((32 * MIB)) bytes were still to be stored"
    check "after a reboot: it went on from the mover's checkpoint, $left" \
        test "$new" -lt $((31 * MIB))
    begin "before a reset"
    reboot_by reset A O N PID
    ;;
3)
    after_boot "after a reset" 2
    check "every snapshot is complete" eval '[ "$(sf "$REPO" snapshot list --json | result "snapshots | length")" = 2 ]'
    ;;
esac
finish
