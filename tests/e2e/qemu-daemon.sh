#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver qemu under the daemon: a running machine is backed up in full, then by what its bitmaps have, while it is
# written to; nothing but a bitmap stays in it; restarts of the daemon and of QEMU leave nothing, and mean a full read
# at most. (CF-08..CF-10, MS-09, E-07)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../qemu-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "driver qemu"
mkdir -m 700 "$WORK/fleece"
qemu-img create -q -f qcow2 "$WORK/a.qcow2" 64M
vm_start web1 "$WORK/a.qcow2" || { fail "a machine starts"; finish; }
vm_io web1 vda "write -P 1 1M 20M" "write -P 2 50M 1M"
daemon_setup 'changed-blocks = auto' 'verify-sample = 100' 'retries = 0' || { fail "setup"; finish; }
class() { # WORD-OF-MATCH [LINE...]
    { printf '[storage-class "vms"]\ndriver = qemu\nmatch = %s\n' "$1"; shift; printf '%s\n' "$@"; } \
        >"$CONF/conf.d/50-vms.ini"
}
checks() { "$SNAPFERRY" check-config --config-dir "$CONF"; }
class "$WORK/vm/web1.qmp"
expect "match: what is no drive" 2 '50-vms.ini:3:.*drives of machines' -- checks
class "qemu://$WORK/vm/*.qmp/*"
expect "no target" 2 'set target = DIRECTORY' -- checks
class "qemu://$WORK/vm/*.qmp/*" "target = $WORK/fleece" 'move-data = no'
expect "nothing is kept of a machine" 2 'move-data = no' -- checks
class "qemu://$WORK/vm/*.qmp/*" "target = $WORK/fleece"
expect "the class is accepted" 0 -- checks
starts "the daemon starts"
V=qemu://$WORK/vm/web1.qmp/vda
op() { doc "$1" | jq -rc ".operations[0] | $2"; }
restored() {
    sf "$REPO" restore "$(op "$1" .result.snapshotID)" "$WORK/restored" --force --quiet && cmp "$WORK/restored" "$2"
}
# A file to which the same is written.
truncate -s 64M "$WORK/shadow"
qemu-io -f raw -c "write -P 1 1M 20M" -c "write -P 2 50M 1M" "$WORK/shadow" >/dev/null
both() {
    local words=() c
    for c in "$@"; do words+=(-c "$c"); done
    vm_io web1 vda "$@" && qemu-io -f raw "${words[@]}" "$WORK/shadow" >/dev/null
}
one_bitmap() { [ "$(vm_ours web1 | cut -d: -f1)" = snapferry ]; }
nothing() { [ -z "$(vm_ours web1)" ]; }

id=$(submit "$V")
same "the first backup reads everything" \
    "$(wait_state "$id" Completed 90) $(op "$id" .fullReason)" "Completed no-parent"
check "bit for bit" restored "$id" "$WORK/shadow"
same "crash-consistent" "$(sf "$REPO" cat latest/volume.json | jq -r .crashConsistent)" true
until_true 20 one_bitmap
check "then the machine has but one bitmap" one_bitmap
both "write -P 3 2M 64k" "write -P 4 63M 1M" "write -z 50M 512k"
cp "$WORK/shadow" "$WORK/then"
id=$(submit "$V")
# The guest writes on.
until_true 30 eval 'vm_ours web1 | grep -q "^snapferry-.*-a$"'
both "write -P 5 2M 128k" "write -P 6 30M 3M" "write -z 63M 1M"
same "the second one reads what has changed" "$(wait_state "$id" Completed 90) $(op "$id" .result.cbtSource)" \
    "Completed qemu"
check "a few MiB of it" test "$(op "$id" .listedBytes)" -le $((3 << 20))
check "bit for bit, as of its time" restored "$id" "$WORK/then"
until_true 20 one_bitmap
check "one bitmap again" one_bitmap

# The daemon is killed while it reads, and starts again.
both "write -P 7 40M 1M"
id=$(submit "$V")
until_true 30 eval 'vm_ours web1 | grep -q "^snapferry-.*-a$"'
daemon_kill
starts "killed during a backup, the daemon starts again"
end=$(wait_state "$id" 'Completed|Failed' 120)
check "the backup ends ($end)" test "$end" = Completed -o "$end" = Failed
id=$(submit "$V")
same "the next one is complete" "$(wait_state "$id" Completed 90)" Completed
check "bit for bit" restored "$id" "$WORK/shadow"
until_true 30 one_bitmap
check "and leaves one bitmap" one_bitmap

# Another QEMU has other bitmaps: a full read, with the reason.
vm_end web1
same "of a machine that is off there is no volume" "$(submit "$V")" ""
vm_start web1 "$WORK/a.qcow2" || fail "the machine starts again"
both "write -P 9 10M 1M"
there() { askj volumes | jq -e --arg v "$V" '.volumes[] | select(.name == $v and .state != "gone")'; }
until_true 20 there
id=$(submit "$V")
same "after a restart of QEMU all is read" "$(wait_state "$id" Completed 90)" Completed
check "with the reason ($(op "$id" .fullReason))" \
    eval '[[ $(op "$id" .fullReason) =~ parent-lost|base-lost|no-parent ]]'
check "bit for bit" restored "$id" "$WORK/shadow"

# Somebody removes what is read from: a failure, and nothing is left of it.
class "qemu://$WORK/vm/*.qmp/*" "target = $WORK/fleece" 'changed-blocks = no'
check "reload: changed-blocks = no" ask reload --wait
id=$(submit "$V")
same "without changed blocks" "$(wait_state "$id" Completed 90)" Completed
until_true 30 nothing
check "nothing stays in the machine" nothing
stops "the daemon stops"
finish
