#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver nbd: a storage class of exports is backed up by the daemon; the mover gets a connected socket and negotiates
# itself (MS-09). What is of no point in time is refused unless told (PVC-24); servers that cannot be reached do not
# hide the others (E-02).
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../nbd-lib.sh"
need_root "driver nbd"
mkdir "$WORK/vm"
A=$WORK/vm/a.sock B=$WORK/vm/b.sock
truncate -s 24M "$WORK/disk"
random_file "$WORK/part" $((3 * MIB)) 5
dd if="$WORK/part" of="$WORK/disk" bs=1M seek=9 conv=notrunc status=none
qemu-img convert -q -f raw -O qcow2 "$WORK/disk" "$WORK/disk.qcow2"
daemon_setup || { fail "setup"; finish; }
# class LINE...: the class of all exports of all sockets.
class() {
    { printf '[storage-class "vms"]\ndriver = nbd\nmatch = nbd+unix:///*?socket=%s/vm/*.sock\n' "$WORK"
      printf '%s\n' "$@"; } >"$CONF/conf.d/50-vms.ini"
}
checks() { "$SNAPFERRY" check-config --config-dir "$CONF"; }
names() { askj volumes | jq -r '[.volumes[] | select(.state != "gone") | .name] | sort | join(" ")'; }

# Words of match, with file and line.
class; sed -i 's#^match = .*#match = /run/x.sock#' "$CONF/conf.d/50-vms.ini"
expect "match: what is no address" 2 '50-vms.ini:3:.*addresses of exports, not "/run/x.sock"' -- checks
sed -i 's#^match = .*#match = nbd://host/x#' "$CONF/conf.d/50-vms.ini"
expect "match: an address that is written in another way" 2 '50-vms.ini.*not the address as it is written' -- checks
nbd_qemu "$A" vda "$WORK/disk.qcow2" -f qcow2 -r || fail "qemu-nbd starts" "$(cat "$A.log")"
nbd_kit "$B" -r memory 1M || fail "nbdkit starts" "$(cat "$B.log")"
printf '[storage-class "copies"]\ndriver = reflink\nmatch =\ntarget = %s\n' "$WORK" >"$CONF/conf.d/60-copies.ini"
class 'point-in-time = yes' 'backup-storage-class = copies'
expect "no class can hold a copy of an export" 2 'it is read as it is' -- checks
class 'point-in-time = yes' 'backup-read-only = no'
expect "nor is there a writable intermediate" 2 'cannot make a writable intermediate' -- checks
rm "$CONF/conf.d/60-copies.ini"
class 'retries = 0'
expect "the class is accepted" 0 -- checks
starts "the daemon starts"
V=$(uri "$A" vda)
until_true 20 eval '[ "$(names)" = "$(uri "$B") $V" ]'
same "each export of each socket is a volume" "$(names)" "$(uri "$B") $V"
id=$(submit "$V")
same "an export that may be written to is refused" "$(wait_state "$id" Failed 60)" Failed
check "with what to set" eval 'doc "$id" | grep -q "point-in-time = yes"'
class 'accept-inconsistent = yes'
check "reload" ask reload --wait
id=$(submit "$V")
same "accept-inconsistent = yes: it is backed up" "$(wait_state "$id" Completed 90)" Completed
same "and recorded as it is" "$(sf "$REPO" cat latest/volume.json | jq -r '"\(.driver) \(.crashConsistent)"')" \
    "nbd false"
class 'point-in-time = yes' 'snapshots-to-retain = 2'
check "reload once more" ask reload --wait
id=$(submit "$V")
same "point-in-time = yes: it is backed up" "$(wait_state "$id" Completed 90)" Completed
same "as of one point in time" "$(sf "$REPO" cat latest/volume.json | jq -r .crashConsistent)" true
check "the same bytes" eval 'sf "$REPO" restore latest "$WORK/out" --quiet && cmp "$WORK/out" "$WORK/disk"'
new=$(doc "$id" | jq '.new // (.operations[0].result.new) // 0')
check "what has not changed is not stored again ($new bytes)" test "$new" -lt 100000
path() { sf "$REPO" snapshot list --all --json | tail -n 1 | jq -r '[.snapshots[].source.path] | unique | join(" ")'; }
same "with -r it has the same source" "$(sf "$REPO" backup "$V" --node-name testnode --quiet; path)" "$(path)"
same "which is one" "$(path | wc -w)" 1
same "nothing is retained of an export" "$(askj native list | jq '[.natives[]?] | length')" 0

# A server that has gone, or is silent, and another that is there.
nbd_stop "$A"
same "a server that is gone: its volume is no longer there" "$(submit "$V")" ""
id=$(submit "$(uri "$B")")
same "and that of another one succeeds" "$(wait_state "$id" Completed 90)" Completed
# It is killed while its export is read; a new one is there when it is tried again.
rm -f "$WORK/reads"
nbd_kit "$A" -r --filter=exportname --filter=log --filter=delay pattern 64M rdelay=300ms logfile="$WORK/reads" \
    exportname=vda exportname-list=explicit ||
    fail "nbdkit starts" "$(cat "$A.log")"
until_true 20 eval '[[ " $(names) " = *" $V "* ]]'
id=$(submit "$V")
until_true 60 grep -q 'Read id=' "$WORK/reads"
kill -KILL "${nbd_pid[$A]}"
nbd_stop "$A"
nbd_kit "$A" -r --filter=exportname pattern 64M exportname=vda exportname-list=explicit ||
    fail "nbdkit starts again" "$(cat "$A.log")"
end=$(wait_state "$id" 'Completed|Failed' 120)
check "a server that is killed: tried again, or an error ($end)" test "$end" = Completed -o "$end" = Failed
if [ "$end" = Completed ]; then
    qemu-img convert -q -f raw -O raw "$V" "$WORK/pattern"
    check "never with other bytes" eval 'rm -f "$WORK/out"
        sf "$REPO" restore latest "$WORK/out" --quiet --as "snapferry@testnode:$(path | tr " " "\n" | grep vda)" &&
        cmp "$WORK/out" "$WORK/pattern"'
else
    same "never with other bytes" "$(ops "$id" | jq -r '.snapshot // ""')" ""
fi
# Most of a volume may be zeros, and a server may be slow to zero: that is no stall, and a cancel is obeyed.
nbd_stop "$A"
nbd_stop "$B"
truncate -s 320M "$WORK/sparse"
dd if="$WORK/part" of="$WORK/sparse" bs=1M conv=notrunc status=none
class 'point-in-time = yes' 'stall-timeout = 2s' 'retries = 0'
check "reload with a short stall-timeout" ask reload --wait
nbd_kit "$A" -r file "$WORK/sparse" || fail "nbdkit starts" "$(cat "$A.log")"
nbd_kit "$WORK/slow.sock" --filter=delay memory 320M delay-zero=500ms || fail "nbdkit starts, slow"
until_true 20 eval '[[ " $(names) " = *" $(uri "$A") "* ]]'
id=$(submit "$(uri "$A")")
same "a volume that is mostly zeros" "$(wait_state "$id" Completed 60)" Completed
restore=$(askj restore "$id/$(uri "$A")" "$(uri "$WORK/slow.sock")" --overwrite | jq -r .restore)
same "is restored to a server that is slow to zero" "$(wait_state "$restore" Completed 60)" Completed
check "the same bytes" eval 'qemu-img convert -q -f raw -O raw "$(uri "$WORK/slow.sock")" "$WORK/out" &&
    cmp "$WORK/out" "$WORK/sparse"'
stops "the daemon stops"
finish
