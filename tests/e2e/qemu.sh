#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver qemu on a real machine of QEMU: the point in time of a drive that is written to meanwhile, what changed between
# two of them, refusals, and that nothing of ours is left in the machine after a kill at each step. (CF-08, CF-09,
# CF-10, RS-12, RS-21)
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../qemu-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
TOOLS=${TOOLS:-$(realpath "${BUILD:-build}")/tests/tools}
mkdir -m 700 "$WORK/fleece"
call() { "$TOOLS/driver_call" --driver qemu --match "qemu://$WORK/vm/*.qmp/vd*" --target "$WORK/fleece" "$@"; }
uuid() { cat /proc/sys/kernel/random/uuid; }
# bytes SNAPSHOT FILE: what a mover would read of it.
bytes() {
    local x
    x=$(call expose "$1" native ro "") || return
    call cat "$x" >"$2"
}
# ended SNAPSHOT: its backup has ended.
ended() {
    call unexpose "$(jq -c '{mechanism: "native", read_only: true, path: "", alias: "", class: "gold", where: "",
        handle: (.handle + "#" + .alias), size: .size, copied: 0, seconds: 0}' <<<"$1")"
}

qemu-img create -q -f qcow2 "$WORK/a.qcow2" 64M
qemu-img create -q -f raw "$WORK/b.raw" 16M
vm_start web1 "$WORK/a.qcow2" "$WORK/b.raw" -- -device pcie-root-port,id=root1,slot=1,chassis=1 ||
    { fail "a machine starts"; finish; }
V=qemu://$WORK/vm/web1.qmp/vda
same "its drives are volumes" \
    "$(call volumes | jq -r '"\(.name | ltrimstr("qemu://'"$WORK"'/vm/")) \(.size)"' | xargs)" \
    "web1.qmp/vda 67108864 web1.qmp/vdb 16777216"
expect "a node that is not there" 16 'has no block node vdx' -- call resolve "qemu://$WORK/vm/web1.qmp/vdx"
expect "a node that no device has" 19 'no device of the guest' -- call resolve "qemu://$WORK/vm/web1.qmp/filea"
expect "a machine that is off" 16 'the virtual machine is off' -- call resolve "qemu://$WORK/vm/web2.qmp/vda"
expect "no name of a drive" 2 'not of the form qemu:///' -- call resolve "$WORK/vm/web1.qmp"
expect "no directory for fleecing images" 2 'set target = DIRECTORY' -- call --target "" abilities

# ---- points in time, and what changed between them ----
vm_io web1 vda "write -P 1 1M 3M" "write -P 2 20M 1M" || fail "the test writes" "$(cat "$WORK/io.out")"
S=$(call snapshot "$V" "$(uuid)") || fail "a snapshot is taken"
same "the same alias finds what was made" "$(call snapshot "$V" "$(jq -r .alias <<<"$S")")" "$S"
same "QEMU does not flush a fleecing image, for which it would stand still" \
    "$(qmp web1 query-named-block-nodes | jq '.[] | select(."node-name"[-2:] == "-f") | .cache."no-flush"')" true
expect "another one while it is read waits" 14 'still being read' -- call snapshot "$V" "$(uuid)"
vm_io web1 vda "write -P 3 2M 64k" "write -P 4 63M 1M" "write -z 20M 512k"
bytes "$S" "$WORK/was"
{ head -c 1M /dev/zero; head -c 3M /dev/zero | tr '\0' '\1'; head -c 16M /dev/zero; head -c 1M /dev/zero | tr '\0' '\2'
    head -c 43M /dev/zero; } >"$WORK/want"
check "what is read is of its point in time" cmp "$WORK/was" "$WORK/want"
ended "$S"
same "after its backup the machine has but one bitmap" "$(vm_ours web1 | cut -d: -f1)" snapferry
expect "its point in time has ended" 16 'has ended' -- call expose "$S" native ro ""

# A file to which the same is written tells what a snapshot must show, where all is written before it or after. Reads go
# across the borders of what was overwritten: QEMU before 8.2 answers long ones with what is there now.
seed=${SEED:-$RANDOM} wrong="" rounds=6
RANDOM=$seed
echo "# SEED=$seed"
cp "$WORK/want" "$WORK/shadow"
both() {
    local words=() c
    for c in "$@"; do words+=(-c "$c"); done
    vm_io web1 vda "$@" && qemu-io -f raw "${words[@]}" "$WORK/shadow" >/dev/null
}
both "write -P 3 2M 64k" "write -P 4 63M 1M" "write -z 20M 512k"
for ((i = 0; i < rounds; i++)); do
    writes=() later=("write -P $((i + 1)) $((i * 5))M 3M" "write -z 60M 1M" "write -P 8 $((RANDOM % 15000 * 4))k 4000k")
    for ((k = RANDOM % 6; k >= 0; k--)); do
        writes+=("write -P $((RANDOM % 250 + 1)) $((RANDOM % 16000 * 4))k $((RANDOM % 50 * 4 + 4))k"
            "write -z $((RANDOM % 16000 * 4))k 64k")
    done
    both "${writes[@]}" || wrong+="$i: not written "
    cp "$WORK/shadow" "$WORK/want"
    # The guest goes on to write while the snapshot is read, in each second round while it is taken.
    [ $((i % 2)) -eq 0 ] || { both "${later[@]}" & }
    now=$(call snapshot "$V" "$(uuid)") || { wrong+="$i: no snapshot "; wait; break; }
    [ $((i % 2)) -eq 1 ] || { vm_io web1 vda "${later[0]}"; both "${later[@]}" & }
    bytes "$now" "$WORK/is" || wrong+="$i: not read "
    call changed "$S" "$now" >"$WORK/list"
    wait $!
    [ "$(head -n 1 "$WORK/list")" = listed ] || wrong+="$i: no list "
    [ $((i % 2)) -eq 1 ] || cmp "$WORK/is" "$WORK/want" || wrong+="$i: of another time "
    # What the list has, put over what was there before, must be what is there.
    tail -n +2 "$WORK/list" | while read -r from len; do
        dd if="$WORK/is" of="$WORK/was" bs=64k iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$from" seek="$from" \
            count="$len" conv=notrunc status=none
    done
    cmp "$WORK/was" "$WORK/is" || wrong+="$i: a change is missing "
    ended "$now"
    call remove "$S" >/dev/null
    S=$now
    mv "$WORK/is" "$WORK/was"
done
same "$rounds snapshots under writes: of their time, and the changes since the one before" "$wrong" ""
check "a list is not all there is" test "$(tail -n +2 "$WORK/list" | awk '{n += $2} END {print n}')" -lt $((40 << 20))

# ---- what is not as it was ----
T=$(call snapshot "$V" "$(uuid)")
qmp web1 blockdev-add '{"driver": "raw", "node-name": "vdc", "file": {"driver": "null-co", "size": 1048576,
    "read-zeroes": true}}' device_add '{"driver": "virtio-blk-pci", "id": "devc", "drive": "vdc",
    "bus": "root1"}' >/dev/null
same "a disk that is added is a volume" "$(call volumes | wc -l)" 3
check "and breaks none of the others" eval '[ "$(call changed "$S" "$T" | head -n 1)" = listed ]'
C=$(call snapshot "qemu://$WORK/vm/web1.qmp/vdc" "$(uuid)")
check "two drives are read at a time" bytes "$C" "$WORK/c"
call remove "$C" >/dev/null
check "and one after the other has ended" bytes "$T" "$WORK/c"
ended "$T"
bitmap=$(vm_ours web1 | grep "^snapferry:.*$(jq -r .alias <<<"$T")")
qmp web1 block-dirty-bitmap-disable "$(jq -cn --arg n "$bitmap" '{node: "vda", name: $n}')" >/dev/null
U=$(call snapshot "$V" "$(uuid)")
expect "a bitmap that has not recorded throughout is of no use" 0 '^base-other' -- call changed "$T" "$U"
call remove "$T" >/dev/null
expect "one that somebody has removed neither" 0 '^base-lost' -- call changed "$T" "$U"
# As a migration would bring it: of another process.
moved=$(jq -r .alias <<<"$S")
old=$(vm_ours web1 | grep "^snapferry:.*$moved")
qmp web1 block-dirty-bitmap-remove "$(jq -cn --arg n "$old" '{node: "vda", name: $n}')" block-dirty-bitmap-add \
    "$(jq -cn --arg n "$(sed 's/"run:[0-9]*:/"run:1:/' <<<"$old")" '{node: "vda", name: $n}')" >/dev/null
expect "a bitmap that was migrated neither" 0 '^base-other' -- call changed "$S" "$U"
call remove "$S" >/dev/null
call remove "$U" >/dev/null
same "nothing is left" "$(vm_ours web1)$(call list)" ""

# ---- a kill at each step ----
left=""
for point in bitmap-made fleece-made filter-made filter-inserted bases-made exported; do
    P=$(call snapshot "$V" "$(uuid)"); ended "$P"
    vm_io web1 vda "write -P 9 5M 64k"
    alias=$(uuid)
    SNAPFERRY_CRASH_AT=qemu-$point call snapshot "$V" "$alias" >/dev/null 2>&1 && left+="$point: not reached "
    vm_io web1 vda "write -P 10 6M 64k" || left+="$point: the guest cannot write "
    [ -n "$(call list | grep "$alias")" ] || left+="$point: not found "
    # Again with the same alias, as after a restart of the daemon.
    A=$(call snapshot "$V" "$alias") && [ "$(call changed "$P" "$A" | head -n 1)" = listed ] ||
        left+="$point: not again "
    call remove "$A" >/dev/null
    call remove "$P" >/dev/null
    left+=$(vm_ours web1)
done
for point in export-deleted filter-removed ended; do
    A=$(call snapshot "$V" "$(uuid)")
    SNAPFERRY_CRASH_AT=qemu-$point call remove "$A" >/dev/null 2>&1
    vm_io web1 vda "write -P 11 7M 64k" || left+="$point: the guest cannot write "
    call remove "$A" >/dev/null
    left+=$(vm_ours web1)
done
same "after a kill at each step of both nothing is left" "$left$(find "$WORK/fleece" -type s)" ""

# ---- the guest's writes come first ----
if is_root && mkdir "$WORK/small" && mount -t tmpfs -o size=1M none "$WORK/small"; then
    at_exit "umount $WORK/small"
    A=$(call --target "$WORK/small" snapshot "$V" "$(uuid)")
    check "no space for the fleecing image: the guest writes on" vm_io web1 vda "write -P 12 0 30M"
    X=$(call --target "$WORK/small" expose "$A" native ro "")
    check "and its backup fails" eval '! call --target "$WORK/small" cat "$X" >/dev/null 2>&1'
    call --target "$WORK/small" remove "$A" >/dev/null
    same "nothing is left of it" "$(vm_ours web1)" ""
    head -c 1000K /dev/zero >"$WORK/small/others"
    expect "a target that is nearly full is not filled: no snapshot" 18 'its file system is 9[5-9] % full' -- \
        call --target "$WORK/small" snapshot "$V" "$(uuid)"
    same "and nothing is left of that" "$(vm_ours web1)" ""
else
    skip "a fleecing image without space" "needs root for a mount"
fi

# ---- the guest agent ----
qemu-img create -q -f raw "$WORK/c.raw" 1M
vm_start guest "$WORK/c.raw" -- -device virtio-serial-pci -chardev "socket,id=ga,path=$WORK/agent,server=on,wait=off" \
    -device virtserialport,chardev=ga,name=org.qemu.guest_agent.0 || fail "a machine with an agent starts"
# The agent takes the place of the socket behind which QEMU has a port for one.
rm "$WORK/agent"
/usr/bin/python3 tests/tools/guest-agent.py "$WORK/agent" "$WORK/agent.log" &
at_exit "kill $!"
for ((n = 0; n < 100 * PATIENCE; n++)); do [ -S "$WORK/agent" ] && break; sleep 0.1; done
G=qemu://$WORK/vm/guest.qmp/vda
orders() { xargs <"$WORK/agent.log"; }
A=$(call snapshot "$G" "$(uuid)")
same "file systems are frozen for the instant" "$(orders)" "guest-fsfreeze-freeze guest-fsfreeze-thaw"
call remove "$A" >/dev/null
rm "$WORK/agent.log"
alias=$(uuid)
SNAPFERRY_CRASH_AT=qemu-frozen call snapshot "$G" "$alias" >/dev/null 2>&1
for ((n = 0; n < 100 * PATIENCE; n++)); do [ "$(wc -l <"$WORK/agent.log")" -lt 2 ] || break; sleep 0.1; done
same "killed in between: they are thawed" "$(orders)" "guest-fsfreeze-freeze guest-fsfreeze-thaw"
rm "$WORK/agent.log"
touch "$WORK/agent.log.refuse"
A=$(call snapshot "$G" "$alias") || fail "a snapshot although they cannot be frozen"
same "an agent that refuses to freeze is not told to thaw" "$(orders)" guest-fsfreeze-freeze
call remove "$A" >/dev/null
touch "$WORK/agent.log.mute"
A=$(call snapshot "$G" "$alias") || fail "a snapshot although no agent answers"
same "one that does not answer is not waited for" "$(orders)" guest-fsfreeze-freeze
call remove "$A" >/dev/null
vm_end guest

# ---- somebody else's ----
qmp web1 nbd-server-start '{"addr": {"type": "unix", "data": {"path": "'"$WORK"'/theirs.nbd"}}}' >/dev/null
expect "an NBD server of another program is left alone" 19 'there is one per machine' -- call snapshot "$V" "$(uuid)"
same "and nothing is left of the attempt" "$(vm_ours web1)" ""
check "theirs still runs" test -S "$WORK/theirs.nbd"
qmp web1 nbd-server-stop >/dev/null
vm_end web1
vm_start owned "$WORK/b.raw" -- -chardev null,id=charmonitor || fail "a machine like that of libvirt starts"
expect "a machine of libvirt is refused by name" 2 'is run by libvirt.*virsh backup-begin' -- \
    call resolve "qemu://$WORK/vm/owned.qmp/vda"
expect "and so is a pattern of its sockets" 2 'run by libvirt' -- \
    call --match "qemu:///var/lib/libvirt/qemu/domain-*/monitor.sock/*" abilities
vm_end owned
vm_start theirs "$WORK/b.raw" -- -chardev null,id=qmp-event || fail "a machine like that of Proxmox VE starts"
expect "a machine of Proxmox VE is refused by name" 2 'is run by Proxmox VE.*where they are stored' -- \
    call resolve "qemu://$WORK/vm/theirs.qmp/vda"
expect "and so is a pattern of its sockets, of which QEMU serves one client" 2 'run by Proxmox VE' -- \
    call --match "qemu:///run/qemu-server/*.qmp/*" abilities
vm_end theirs
vm_start threads "$WORK/b.raw" -- -object iothread,id=io1 || fail "a machine with an iothread starts"
if [ "$(qmp threads query-version | jq .qemu.major)" -lt 9 ]; then
    expect "an old QEMU with iothreads, which might end by it, is refused" 2 'has iothreads.*9.0 or newer' -- \
        call resolve "qemu://$WORK/vm/threads.qmp/vda"
else
    expect "a new QEMU with iothreads is not refused" 0 -- call resolve "qemu://$WORK/vm/threads.qmp/vda"
fi
vm_end threads
same "of a machine that was killed nothing is left" "$(call remove "$A")$(call list)" gone
finish
