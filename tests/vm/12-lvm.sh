#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver lvm on the real thing: COW snapshots in the volume's own group, sized by cow-size; one that overflows is never
# taken for good. (CF-27, RS-11, RS-12, RS-20, PVC-02)
VM_DISKS="pv:700M far:200M"
: "${VM_TIMEOUT:=2400}"
. "$(dirname "$0")/lib.sh"
. tests/vm/lvm-lib.sh
DRIVER=lvm
pv=$(realpath "$(dev pv)")
pvcreate -q "$pv" >/dev/null && vgcreate -q vg0 "$pv" >/dev/null && lvcreate -q -y -n thick -L 32M vg0 >/dev/null &&
    lvcreate -q -y -n mounted -L 64M vg0 >/dev/null || { echo "Bail out! no LVM"; exit 1; }
mkfs.ext4 -q "$(dev far)" && mkdir -p /far /tiny && mount "$(dev far)" /far && mount -t tmpfs -o size=3m tmpfs /tiny
mkdir -p "$WORK"
suite "LVM" --match '/dev/vg0/*' --volume /dev/vg0/thick --far /far --tiny /tiny
same "nothing of ours is left" "$(ours)$(tagged)" ""

before=$(lvm_state)
SNAPFERRY_CRASH_AT=lvm-native-made call snapshot /dev/vg0/thick "$(uuid)" >/dev/null 2>&1
check "killed after its creation: it is there" test -n "$(ours)"
sweep_once
same "nothing is left" "$(lvm_state)" "$before"
n=$(call --cow 100 snapshot /dev/vg0/thick "$(uuid)")
same "the COW space is in the same group" "$(lvs --noheadings -o vg_name,origin -S 'lv_name=~^snapferry-' | xargs)" \
    "vg0 thick"
call remove "$n"
lvcreate -q -y -n filler -l 100%FREE vg0 >/dev/null
expect "no space in the group" 18 'needs .* MiB .cow-size is 20 %., volume group vg0 has 0 MiB free.*vgextend' -- \
    call snapshot /dev/vg0/thick "$(uuid)"
lvremove -q -y vg0/filler >/dev/null
n=$(call --cow 10 snapshot /dev/vg0/thick "$(uuid)")
x=$(call expose "$n" native ro "")
dd if=/dev/urandom of=/dev/vg0/thick bs=1M count=24 oflag=direct status=none
expect "overflowed: not found healthy" 15 'has overflowed.*cow-size' -- \
    call find "$(call resolve /dev/vg0/thick)" "$(jq -r .alias <<<"$n")"
expect "nor exposed" 15 'has overflowed' -- call expose "$n" native ro ""
expect "nor opened" 15 'has overflowed' -- call cat "$x"
expect "but removed" 0 -- call remove "$n"
same "nothing is left" "$(lvm_state)" "$before"

mkfs.ext4 -q /dev/vg0/mounted && mkdir -p /data && mount /dev/vg0/mounted /data
random_file /data/file $((12 * MIB)) 5; sync; sum=$(sum_of /data/file)
random_file /srv/orig $((32 * MIB)) 6; dd if=/srv/orig of=/dev/vg0/thick bs=1M oflag=direct status=none
setup
config_add thick '[storage-class "thick"]
driver = lvm
match = vg:vg0
target = vg0
cow-size = 10
retries = 1
bad-reads = map
read-limit = 1MiB'
expect "the configuration is accepted" 0 -- snapferry check-config
check "reload" systemctl reload snapferryd
out=$(ask backup /dev/vg0/mounted --wait --json); rc=$?
B=$(result id <<<"$out")
same "a mounted volume: exit code" $rc 0
same "Completed" "$(result state <<<"$out")" Completed
check "no snapshot is left" eval '[ -z "$(ours)" ]'
expect "into a new volume, whose class is found by the group in its name" 0 -- \
    ask restore "$B//dev/vg0/mounted" /dev/vg0/new --wait --quiet
same "it is a logical volume, and no file among devices" "$(names -S lv_name=new)" "new "
mkdir -p /back && mount -o ro /dev/vg0/new /back
same "its file system is the one that was mounted" "$(sum_of /back/file)" "$sum"
umount /back

# The volume is overwritten while its snapshot is read: never a good backup, and bad-reads = map does not make it one.
# The limit of time is enough for one block on a slow machine, and far too short for all that is unreadable.
A=$(submit /dev/vg0/thick); O=$(op_id "$A")
wait_state "$O" Running 120 >/dev/null
dmesg -C
dd if=/dev/urandom of=/dev/vg0/thick bs=1M count=32 iflag=fullblock oflag=direct status=none
became "a snapshot that overflows while it is read: Failed" "$O" Failed 120
check "in words: $(error_of "$O")" eval 'error_of "$O" | grep -q "COW snapshot of /dev/vg0/thick .*has overflowed"'
check "the kernel's log has what the hint names" eval \
    'dmesg | grep -q "Invalidating snapshot: Unable to allocate exception"'
check "and what to do: $(doc "$O" | jq -r .error.hint)" eval 'doc "$O" | jq -r .error.hint | grep -q cow-size'
same "the repository has no snapshot of it" "$(sf "$REPO" snapshot list --json | result 'snapshots | length')" 1
until_true 60 eval '[ -z "$(ours)" ]'
same "no snapshot is left" "$(ours)" ""
clean "nothing is left behind" 60
finish
