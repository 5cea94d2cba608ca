#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A device on which each read takes its time, and one that fails for some seconds again and again (dm-delay, dm-flakey):
# their backups are right or fail, and what is restored to them, too (E-02, CF-33, CF-34).
VM_DISKS="raw:64M"
: "${VM_TIMEOUT:=1500}"
. "$(dirname "$0")/lib.sh"
raw=$(realpath "$(dev raw)")
random_file /srv/raw.orig $((24 * MIB)) 1
dd if=/srv/raw.orig of="$raw" bs=1M oflag=direct status=none
sectors=$((24 * 2048))
# flaky UP DOWN: it works for so many seconds, and fails for so many, again and again.
flaky() {
    dmsetup load flaky --table "0 $sectors flakey $raw 0 $1 $2" && dmsetup suspend flaky && dmsetup resume flaky
}
dmsetup create --uuid SNAPFERRY-TEST-slow slow <<<"0 $sectors delay $raw 0 50" &&
    dmsetup create --uuid SNAPFERRY-TEST-flaky flaky <<<"0 $sectors flakey $raw 0 600 0" ||
    { echo "Bail out! no dm-delay, dm-flakey"; exit 1; }
setup
config_add devices '[storage-class "devices"]
driver = device
match = /dev/mapper/slow /dev/mapper/flaky
accept-inconsistent = yes
retries = 1
retry-first = 2s'
check "reload" systemctl reload snapferryd
restored() { # BACKUP VOLUME
    rm -f /srv/back.img
    ask restore "$1/$2" /srv/back.img --from repository --wait --quiet && cmp /srv/raw.orig /srv/back.img
}
A=$(submit /dev/mapper/slow)
became "each read takes 50 ms" "$A" Completed 300
check "bit for bit" restored "$A" /dev/mapper/slow

# A mover that finds nothing readable ends at once: the error is that of the device, and the next run is the next
# attempt.
flaky 0 600
B=$(submit /dev/mapper/flaky)
became "one that does not answer: Failed" "$B" Failed 200
check "in words: $(error_of "$(op_id "$B")")" eval 'error_of "$(op_id "$B")" | grep -q "flaky.*Input/output error"'
same "the repository has no snapshot of it" "$(sf "$REPO" snapshot list --json | result 'snapshots | length')" 1
flaky 600 0
B=$(submit /dev/mapper/flaky)
became "once it answers: Completed" "$B" Completed 200
check "bit for bit, too" restored "$B" /dev/mapper/flaky
# Read so slowly that it fails in between: whatever comes of it, no wrong byte is in the repository.
check "slowly" eval 'echo "read-limit = 1MiB" >>$CONF/conf.d/devices.ini && systemctl reload snapferryd'
random_file /srv/raw.orig $((24 * MIB)) 2
dd if=/srv/raw.orig of="$raw" bs=1M oflag=direct status=none
flaky 10 10
B=$(submit /dev/mapper/flaky)
wait_state "$B" 'Completed|Failed' 300 >/dev/null
s=$(state "$B")
flaky 600 0
if [ "$s" = Completed ]; then
    check "one that fails while it is read, Completed: bit for bit" restored "$B" /dev/mapper/flaky
else
    check "one that fails while it is read: $s, in words" eval \
        'error_of "$(op_id "$B")" | grep -q "flaky.*Input/output error"'
fi
# As a target: what could not be written is an error, and no volume that is said to be complete.
check "at full speed" eval 'sed -i "/read-limit/d" $CONF/conf.d/devices.ini && systemctl reload snapferryd'
A=$(submit /dev/mapper/slow)
became "what is to be restored" "$A" Completed 300
dmsetup remove slow
flaky 5 5
C=$(ask restore "$A//dev/mapper/slow" /dev/mapper/flaky --from repository --overwrite --json 2>/srv/err |
    result restore)
wait_state "$C" 'Completed|Failed' 400 >/dev/null
s=$(state "$C")
flaky 600 0
if [ "$s" = Completed ]; then
    check "a restore to it, Completed: the bytes are there" cmp -n $((24 * MIB)) /srv/raw.orig "$raw"
else
    check "a restore to it: $s, in words" eval 'error_of "$(op_id "$C")" | grep -q flaky'
fi
clean "nothing is left behind" 60
finish
