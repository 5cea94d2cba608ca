#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A group of two drives of one running machine: taken at one instant while the guest writes to both in turn, by the
# driver and under the daemon; a kill at each step leaves nothing; a member that is canceled meanwhile; one that cannot
# take part. (CF-47, RS-12, RS-21, E-04)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../qemu-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "driver qemu"
TOOLS=${TOOLS:-$(realpath "${BUILD:-build}")/tests/tools}
mkdir -m 700 "$WORK/fleece"
qemu-img create -q -f qcow2 "$WORK/a.qcow2" 8M
qemu-img create -q -f raw "$WORK/b.raw" 8M
qemu-img create -q -f raw "$WORK/c.raw" 8M
vm_start db "$WORK/a.qcow2" "$WORK/b.raw" "$WORK/c.raw" -- -device virtio-serial-pci \
    -chardev "socket,id=ga,path=$WORK/agent,server=on,wait=off" \
    -device virtserialport,chardev=ga,name=org.qemu.guest_agent.0 || { fail "a machine starts"; finish; }
rm "$WORK/agent"
/usr/bin/python3 tests/tools/guest-agent.py "$WORK/agent" "$WORK/agent.log" &
at_exit "kill $!"
for ((n = 0; n < 100 * PATIENCE; n++)); do [ -S "$WORK/agent" ] && break; sleep 0.1; done
M=qemu://$WORK/vm/db.qmp A=$M/vda B=$M/vdb C=$M/vdc
call() { "$TOOLS/driver_call" --driver qemu --match "$M/vd*" --target "$WORK/fleece" "$@"; }
uuid() { cat /proc/sys/kernel/random/uuid; }
# number SNAPSHOT: what the guest had written last.
number() {
    local x
    x=$(call expose "$1" native ro "") && call cat "$x" | head -c 1 | od -An -tu1 | tr -d ' '
}
# ended SNAPSHOT: its backup has ended.
ended() {
    call unexpose "$(jq -c '{mechanism: "native", read_only: true, path: "", alias: "", class: "gold", where: "",
        handle: (.handle + "#" + .alias), size: .size, copied: 0, seconds: 0}' <<<"$1")"
}
# apart A B: by how much the second one is behind the first one.
apart() { echo $((($1 - $2 + 251) % 251)); }
roots() { qmp db query-block | jq -r '.[].inserted."node-name"' | sort | xargs; }
counter() {
    /usr/bin/python3 tests/tools/qemu-counter.py "$WORK/db.test" "$WORK/count" \
        /machine/peripheral/dev{a,b}/virtio-backend &
    counter=$!
    at_exit "kill $counter"
}
counter_ends() { kill "$counter"; wait "$counter" 2>/dev/null; }
count() { cat "$WORK/count" 2>/dev/null || echo 0; }

# ---- one instant ----
counter
until_true 30 eval '[ "$(count)" -gt 20 ]'
bad="" rounds=5 skewed=""
for ((i = 0; i < rounds; i++)); do
    rm -f "$WORK/agent.log"
    from=$(count)
    mapfile -t two < <(call group "$A" "$(uuid)" "$B" "$(uuid)" 2>"$WORK/err")
    [ ${#two[@]} -eq 2 ] && [[ ${two[*]} != *failed* ]] || { bad+="$i: ${two[*]} $(cat "$WORK/err") "; break; }
    froze=$(xargs <"$WORK/agent.log")
    [ "$froze" = "guest-fsfreeze-freeze guest-fsfreeze-thaw" ] || bad+="$i: $froze "
    until_true 20 eval '[ "$(count)" -gt $((from + 5)) ]'
    a=$(number "${two[0]}") b=$(number "${two[1]}")
    [ "$(apart "$a" "$b")" -le 1 ] || bad+="$i: $a and $b "
    for s in "${two[@]}"; do ended "$s"; call remove "$s" >/dev/null; done
    # One after the other they are of two instants: the test would see it.
    [ -z "$skewed" ] || continue
    one=$(call snapshot "$A" "$(uuid)")
    until_true 20 eval '[ "$(count)" -gt $(($(number "$one") + 5)) ]'
    other=$(call snapshot "$B" "$(uuid)")
    a=$(number "$one") b=$(number "$other")
    [ "$(apart "$a" "$b")" -le 1 ] || skewed=yes
    for s in "$one" "$other"; do ended "$s"; call remove "$s" >/dev/null; done
done
same "$rounds groups under writes to both drives: at one instant, with one freeze" "$bad" ""
same "one after the other they are not, and this test sees it" "$skewed" yes
check "the guest wrote on all the time ($(count))" kill -0 "$counter"
counter_ends
same "nothing is left" "$(vm_ours db)$(call list)" ""
same "and the drives are where they were" "$(roots)" "vda vdb vdc"

# ---- what changed, and who cannot take part ----
mapfile -t base < <(call group "$A" "$(uuid)" "$B" "$(uuid)")
for s in "${base[@]}"; do ended "$s"; done
vm_io db vda "write -P 5 1M 64k"; vm_io db vdb "write -P 6 2M 128k"
blocker=$(call snapshot "$C" "$(uuid)")
mapfile -t now < <(call group "$A" "$(uuid)" "$C" "$(uuid)" "$B" "$(uuid)")
check "one that is still being read cannot be among them" test "${now[1]:0:7}" = failed:
same "the others are taken without it, with what changed since the group before" \
    "$(call changed "${base[0]}" "${now[0]}" | xargs) $(call changed "${base[1]}" "${now[2]}" | xargs)" \
    "listed 1048576 65536 listed 2097152 131072"
for s in "$blocker" "${base[@]}" "${now[0]}" "${now[2]}"; do ended "$s"; call remove "$s" >/dev/null; done
same "nothing is left of it" "$(vm_ours db)$(call list)" ""

# ---- a QEMU that refuses ----
/usr/bin/python3 tests/tools/qmp-proxy.py "$WORK/vm/refuses.qmp" "$WORK/vm/db.qmp" blockdev-reopen &
at_exit "kill $!"
until_true 20 test -S "$WORK/vm/refuses.qmp"
R=qemu://$WORK/vm/refuses.qmp
expect "if QEMU refuses they can be taken one after the other, with its reason" 0 \
    '^apart: .*blockdev-reopen: not here' \
    -- call group "$R/vda" "$(uuid)" "$R/vdb" "$(uuid)"
same "and nothing is left of the attempt" "$(vm_ours db) $(roots)" " vda vdb vdc"

# ---- a kill at each step, again with the same names as after a restart of the daemon, or swept ----
left=""
for point in filter-made passing:2 group-inserted passing-removed:2 exported; do
    for then in again sweep; do
        one=$(uuid) two=$(uuid)
        SNAPFERRY_CRASH_AT=qemu-$point call group "$A" "$one" "$B" "$two" >/dev/null 2>&1 &&
            left+="$point: not reached "
        vm_io db vda "write -P 10 1M 64k" && vm_io db vdb "write -P 11 1M 64k" ||
            left+="$point: the guest cannot write "
        found=$(call list)
        grep -q "$one" <<<"$found" || left+="$point: not found "
        if [ $then = again ]; then
            found=$(call group "$A" "$one" "$B" "$two")
            [[ $found != *failed* ]] && [ "$(wc -l <<<"$found")" -eq 2 ] || left+="$point: not again ($found) "
            vm_io db vda "write -P 12 1M 64k"
            [ "$(call cat "$(call expose "$(head -n 1 <<<"$found")" native ro "")" | tail -c +1048577 | head -c 1 |
                od -An -tu1 | tr -d ' ')" = 10 ] || left+="$point: of another time "
        fi
        while IFS= read -r s; do [ -z "$s" ] || call remove "$s" >/dev/null; done <<<"$found"
        left+=$(vm_ours db)
        [ "$(roots)" = "vda vdb vdc" ] || left+="$point: $(roots) "
    done
done
for point in passing-ended filter-removed ended; do
    one=$(uuid) two=$(uuid)
    SNAPFERRY_CRASH_AT=qemu-group-inserted call group "$A" "$one" "$B" "$two" >/dev/null 2>&1
    s=$(call list | grep "$one")
    SNAPFERRY_CRASH_AT=qemu-$point call remove "$s" >/dev/null 2>&1 && left+="$point: not reached "
    while IFS= read -r s; do call remove "$s" >/dev/null; done < <(call list)
    left+=$(vm_ours db)
done
same "after a kill at each step nothing is left" "$left" ""
touch "$WORK/agent.log.refuse"

# ---- under the daemon ----
daemon_setup 'changed-blocks = auto' 'retries = 0' || { fail "setup"; finish; }
{
    printf '[storage-class "vms"]\ndriver = qemu\nmatch = %s/vd[ab]\ntarget = %s\n' "$M" "$WORK/fleece"
    for v in a b; do
        printf '[volume "%s"]\nname = %s/vd%s\n' $v "$M" $v
        printf '%s\n' 'group = db' 'group-consistency = strict' 'group-max-skew = 1ms'
    done
} >"$CONF/conf.d/50-vms.ini"
starts "the daemon starts"
daemon_alive || finish
counter
until_true 30 eval '[ "$(count)" -gt 20 ]'
# stored BACKUP VOLUME: the number in what was stored of it.
stored() {
    sf "$REPO" restore "$(ops "$1" | jq -r --arg v "$2" 'select(.volume == $v) | .result.snapshotID')" \
        "$WORK/restored" --force --quiet && head -c 1 "$WORK/restored" | od -An -tu1 | tr -d ' '
}
skews() { ops "$1" | jq -r '.details.group_skew_ms' | xargs; }
for i in 1 2; do
    id=$(submit "$A" "$B")
    same "backup $i of a strict group, no skew allowed" "$(wait_state "$id" Completed 90) $(skews "$id")" \
        "Completed 0 0"
    a=$(stored "$id" "$A") b=$(stored "$id" "$B")
    check "the stored images are of one instant ($a, $b)" test "$(apart "$a" "$b")" -le 1
done
counter_ends
# One member is canceled while they are taken: the guest agent does not answer for some seconds.
touch "$WORK/agent.log.mute"
id=$(submit "$A" "$B")
until_true 20 eval '[[ $(roots) == *-p* ]]'
check "both are being taken ($(roots))" eval '[[ $(roots) == *-p* ]]'
check "one of them is canceled" ask cancel "$(op_id "$id" "$A")"
wait_state "$id" 'Completed|PartiallyFailed|Failed|Canceled' 90 >/dev/null
same "one member canceled meanwhile, the other one is backed up" \
    "$(ops "$id" | jq -r '.volume[-3:] + " " + .state' | sort | xargs)" "vda Canceled vdb Completed"
bitmaps() { vm_ours db | cut -d: -f1 | xargs; }
until_true 30 eval '[ "$(bitmaps)" = "snapferry snapferry" ]'
rm "$WORK/agent.log.mute"
same "each drive has the bitmap of its last good backup" "$(bitmaps)" "snapferry snapferry"
daemon_kill
# The child that takes them dies in the middle: both fail, nothing is left but the bitmaps.
daemon_start SNAPFERRY_CRASH_AT=qemu-group-inserted
id=$(submit "$A" "$B")
same "the step is killed: both fail" "$(wait_state "$id" 'Failed' 90)" Failed
until_true 30 eval '[ "$(bitmaps)" = "snapferry snapferry" ]'
same "nothing of it is left" "$(bitmaps) $(roots)" "snapferry snapferry vda vdb vdc"
stops "the daemon stops"
vm_end db
finish
