#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver qemu under the daemon: a running machine is backed up in full, then by what its bitmaps have, while it is
# written to; nothing but a bitmap stays in it; restarts of the daemon and of QEMU leave nothing, and mean a full read
# at most. A bitmap that lacks a change is found out by verify-sample. Where the storage of fleecing images is full, or
# hangs, a backup fails and the guest writes on. (CF-08..CF-10, CF-12, MS-09, E-02, E-04, E-07)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../qemu-lib.sh"
. "$(dirname "$0")/../lies-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "driver qemu"
fs_make fleece ext4 16 || { fail "a file system for fleecing images"; finish; }
chmod 700 "$WORK/fleece"
qemu-img create -q -f qcow2 "$WORK/a.qcow2" 64M
vm_start web1 "$WORK/a.qcow2" || { fail "a machine starts"; finish; }
vm_io web1 vda "write -P 1 1M 20M" "write -P 2 50M 1M"
daemon_setup 'changed-blocks = auto' 'verify-sample = 100' 'retries = 0' || { fail "setup"; finish; }
lies_metrics
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
# Many chunks: a sixteenth of them is not overlooked.
class "qemu://$WORK/vm/*.qmp/*" "target = $WORK/fleece" 'splitter = DYNAMIC-128K-BUZHASH'
expect "the class is accepted" 0 -- checks
starts "the daemon starts"
V=qemu://$WORK/vm/web1.qmp/vda
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

# ---- a bitmap that lacks a change ----
both "write -P 10 8M 4M"
before=$(mismatches)
bitmap=$(vm_ours web1)
# What it has recorded is lost; then it records on.
qmp web1 block-dirty-bitmap-clear "$(jq -cn --arg n "$bitmap" '{node: "vda", name: $n}')" >/dev/null ||
    fail "the bitmap is cleared"
both "write -P 11 0 64k"
same "the bitmap has one of two changes" "$(qmp web1 query-named-block-nodes '{"flat": true}' |
    jq --arg n "$bitmap" '.[]."dirty-bitmaps"[]? | select(.name == $n) | .count')" 65536
lied=$(backup "$V")
same "it is found: all is read" "$(op "$lied" '[.state, .fullReason]')" '["Completed","mismatch"]'
check "really" test "$(op "$lied" .result.readBytes)" -ge $((64 * MIB))
check "and the backup is right" restored "$lied" "$WORK/shadow"
same "the metric counts it" "$before $(mismatches)" "0 1"
alert "which is an alert" "$before" "$(mismatches)"
check "the log has the place" found_within 8 4
expect "status has it as a problem" 3 "list of changes of .*vda was wrong" -- ask status --check
both "write -P 12 9M 64k"
next=$(backup "$V")
same "the next one relies on no list" "$(op "$next" '[.fullReason, .listedBytes]')" '["distrusted",null]'
same "--full: as asked for" "$(op "$(backup "$V" --full)" .fullReason)" forced
check "nothing is left to complain about" eval '! ask status | grep -q "list of changes of"'

# ---- fleecing images without space, and on storage that hangs ----
# took WRITE...: the seconds that the guest needs for them.
took() {
    local from=$SECONDS
    both "$@" || echo -n "failed after "
    echo $((SECONDS - from))
}
given_up() { [[ $(op "$A" .error.message) == *"QEMU has given up"*"copied to the fleecing image"* ]]; }
only_kept() { [ "$(vm_ours web1)" = "$kept" ]; }
# next_one: after a backup that has failed: from the last good one on.
next_one() {
    local id
    until_true 20 only_kept
    same "nothing of it stays in the machine" "$(vm_ours web1)" "$kept"
    id=$(backup "$V")
    same "the next one reads what has changed since the last good one" \
        "$(op "$id" '[.state, .fullReason, .result.cbtSource]')" '["Completed",null,"qemu"]'
    check "bit for bit" restored "$id" "$WORK/shadow"
    until_true 20 one_bitmap
}
until_true 20 one_bitmap
kept=$(vm_ours web1)
running "$V" --full
seconds=$(took "write -P 14 4M 40M")
check "no space for what is overwritten: the guest writes on ($seconds s)" test "$seconds" -lt 8
kill -CONT "$PID"
same "the backup fails" "$(wait_state "$A" Failed 60)" Failed
check "and says why" given_up
next_one

at_exit "fsfreeze --unfreeze '$WORK/fleece'"
kept=$(vm_ours web1)
running "$V" --full
fsfreeze --freeze "$WORK/fleece"
seconds=$(took "write -P 15 20M 64k")
check "the storage hangs: the guest waits for some seconds ($seconds s)" test "$seconds" -ge 3 -a "$seconds" -lt 20
seconds=$(took "write -P 16 30M 64k")
check "once ($seconds s)" test "$seconds" -lt 8
kill -CONT "$PID"
held() { [[ $(op "$A" .why) == *"fleecing image ($WORK/fleece) does not answer"* ]]; }
until_true 30 held
same "the backup has failed" "$(op "$A" .state)" CleaningUp
check "and says why" given_up
check "what QEMU has for it is not removed yet, with the reason" held
{ both "write -P 17 35M 64k" && : >"$WORK/written"; } &
writer=$!
check "for the guest goes on" until_true 4 test -e "$WORK/written"
fsfreeze --unfreeze "$WORK/fleece"
wait $writer
same "the storage answers again: the backup has ended" "$(wait_state "$A" Failed 60)" Failed
next_one

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
class "qemu://$WORK/vm/*.qmp/*" "target = $WORK/fleece" 'splitter = DYNAMIC-128K-BUZHASH' 'changed-blocks = no'
check "reload: changed-blocks = no" ask reload --wait
id=$(submit "$V")
same "without changed blocks" "$(wait_state "$id" Completed 90)" Completed
until_true 30 nothing
check "nothing stays in the machine" nothing
stops "the daemon stops"
finish
