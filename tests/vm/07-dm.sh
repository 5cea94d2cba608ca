#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Devices with faults, by device-mapper: a range that cannot be read, and a device that answers nothing at all, while
# the daemon must answer everybody (E-02, AO-28).
VM_DISKS="raw:64M"
: "${VM_TIMEOUT:=1500}"
. "$(dirname "$0")/lib.sh"
raw=$(realpath "$(dev raw)")
random_file /srv/raw.orig $((24 * MIB)) 1
dd if=/srv/raw.orig of="$raw" bs=1M oflag=direct status=none
sectors=$((24 * 2048)) bad_at=$((10 * MIB)) bad_length=65536
linear() { echo "$1 $2 linear $raw $1"; }
dmsetup create --uuid SNAPFERRY-TEST-bad bad <<<"$(linear 0 $((bad_at / 512)))
$((bad_at / 512)) $((bad_length / 512)) error
$(linear $(((bad_at + bad_length) / 512)) $((sectors - (bad_at + bad_length) / 512)))"
check "the range cannot be read" eval \
    '! dd if=/dev/mapper/bad of=/dev/null bs=64K skip=$((bad_at / 65536)) count=1 iflag=direct 2>/dev/null'
setup
policy() {
    config_add bad '[storage-class "bad"]
driver = device
match = /dev/mapper/bad
accept-inconsistent = yes
retry-first = 1s
'"$(printf '%s\n' "$@")"
    systemctl reload snapferryd
}

# ---- a range that cannot be read ----
check "bad-reads = fail" policy 'bad-reads = fail' 'retries = 1'
B=$(submit /dev/mapper/bad)
became "the backup fails" "$B" Failed 200
O=$(op_id "$B")
check "in words: what and where" eval "error_of $O | grep -qE 'Input/output error|cannot be read|unreadable'"
expect "the class is the source's" 19 -- ask wait "$B"
# A page is good for a moment.
check "the metric counts it" until_true 30 eval \
    '[ "$(metric operations_total "result=\"failed\"" | cut -d. -f1)" -ge 1 ]'
check "bad-reads = map" policy 'bad-reads = map'
B=$(submit /dev/mapper/bad)
wait_state "$B" 'Completed|PartiallyFailed' 200 >/dev/null
same "the backup is there, in part" "$(state "$B")" PartiallyFailed
O=$(op_id "$B")
same "the record has the range" "$(doc "$O" |
    jq -c '[.. | .badRanges? // .bad_ranges? // empty] | first | map([.[0], .[1]])')" "[[$bad_at,$bad_length]]"
expect "the repository gives it back, zeros for the range" 0 -- ask restore "$B//dev/mapper/bad" /srv/back.img \
    --from repository --allow-incomplete --wait --quiet
cp /srv/raw.orig /srv/expected
dd if=/dev/zero of=/srv/expected bs=64K seek=$((bad_at / 65536)) count=$((bad_length / 65536)) conv=notrunc status=none
check "the same bytes elsewhere" cmp /srv/expected /srv/back.img
rm -f /srv/back.img
dmsetup load bad --table "$(linear 0 $sectors)" && dmsetup suspend bad && dmsetup resume bad

# ---- a device that stands still ----
answers_quickly() { # within limits that only something that hangs can exceed
    local verb
    for verb in status operations backups "describe $O" "explain /dev/mapper/bad"; do
        timeout 60 snapferry $verb >/dev/null || { echo "$verb"; return 1; }
    done
}
check "stall-timeout" policy 'stall-timeout = 15s' 'retries = 0' 'cancel-grace = 3s' "$SLOWLY"
moving /dev/mapper/bad
dmsetup suspend --noflush --nolockfs bad
check "the daemon answers everything while the device is stuck" answers_quickly
same "and its metrics" "$(http_code /metrics)" 200
check "what asks the storage itself ends in bounded time" eval \
    'timeout 300 snapferry volumes >/dev/null 2>&1; [ $? -ne 124 ]'
wait_state "$O" 'Failed|CleaningUp' 120 >/dev/null
# A process that waits for the disk cannot be killed: it goes when the device answers.
check "the operation is ended for lack of progress" eval 'ask describe "$O" | grep -qE "hung|no byte|progress|stall"'
check "the daemon answers" answers_quickly
same "the watchdog had nothing to do" "$(systemctl show -P NRestarts snapferryd.service)" 0
check "another backup of it is refused in bounded time" eval \
    'timeout 300 snapferry backup /dev/mapper/bad >/srv/refused 2>&1; rc=$?; [ $rc -ne 0 ] && [ $rc -ne 124 ]'
check "in words: $(head -n 1 /srv/refused)" test -s /srv/refused
check "the daemon answers" answers_quickly

dmsetup resume bad
became "the device is back: the operation has ended" "$A" Failed 60
check "for lack of progress" eval "error_of $O | grep -q 'stalled: no progress for'"
check "without a limit" policy
B=$(submit /dev/mapper/bad)
became "the next backup" "$B" Completed 300
expect "restore" 0 -- ask restore "$B//dev/mapper/bad" /srv/back.img --from repository --wait --quiet
check "the right bytes" cmp /srv/raw.orig /srv/back.img

# ---- a table over the same bytes ----
dmsetup create --uuid SNAPFERRY-TEST-twin twin <<<"$(linear 0 $sectors)"
expect "a device of whose bytes another table has a part is no target" 17 'also part of /dev/mapper/twin' -- \
    ask restore "$B//dev/mapper/bad" /dev/mapper/bad --from repository --overwrite --wait --quiet
expect "nor is what is below both" 17 'part of /dev/mapper/' -- \
    ask restore "$B//dev/mapper/bad" "$raw" --from repository --overwrite --wait --quiet
dmsetup remove twin
expect "without it, it is" 0 -- \
    ask restore "$B//dev/mapper/bad" /dev/mapper/bad --from repository --overwrite --wait --quiet
until_true 60 metric_is steps_stuck 0
same "nothing is stuck" "$(metric steps_stuck)" 0
clean "nothing is left behind" 60
finish
