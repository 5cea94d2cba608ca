#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver lvm-thin on the real thing: the suite of all drivers, a kill at every step, other people's snapshots, pools in
# trouble; then the installed service: mounted volumes, groups, retention, restores. (CF-27, RS-11, RS-12, RS-20, RS-22,
# RS-30, PVC-02, PVC-21)
VM_DISKS="pv:1300M far:300M"
: "${VM_TIMEOUT:=3000}"
. "$(dirname "$0")/lib.sh"
. tests/vm/lvm-lib.sh
DRIVER=lvm-thin
pv=$(realpath "$(dev pv)")
pvcreate -q "$pv" >/dev/null && vgcreate -q vg-0 "$pv" >/dev/null &&
    lvcreate -q -y -L 500M --thinpool tp vg-0 >/dev/null 2>&1 &&
    lvcreate -q -y -V 32M -T vg-0/tp -n 'd--b.1' >/dev/null 2>&1 || { echo "Bail out! no LVM"; exit 1; }
V='/dev/vg-0/d--b.1' M='/dev/vg-0/*'
lvcreate -q -s -n others-snap "vg-0/d--b.1" >/dev/null 2>&1 && lvchange --addtag wyng vg-0/others-snap >/dev/null
mkfs.ext4 -q "$(dev far)" && mkdir -p /far /tiny && mount "$(dev far)" /far && mount -t tmpfs -o size=3m tmpfs /tiny
mkdir -p "$WORK"

suite "LVM thin" --match "$M" --volume "$V" --near vg-0/tp --far /far --tiny /tiny
same "nothing of ours is left" "$(ours)$(tagged)" ""
same "snapshots of others stay" "$(names)" "d--b.1 others-snap tp "

# ---- names and classes ----
expect "a volume of another kind" 2 'is not for .* it is a thin volume.*use a class of driver lvm-thin' -- \
    env DRIVER=lvm bash -c "SNAPFERRY_NO_SYSTEMD=1 $TOOLS/driver_call --driver lvm resolve '$V'"
expect "a pool is no volume" 16 'no logical volume' -- call resolve /dev/vg-0/tpx
expect "no such group" 16 'no such volume group' -- call resolve /dev/vg9/x
expect "by the name of device mapper" 2 'use the path /dev/GROUP/VOLUME' -- call resolve /dev/mapper/vg--0-d----b.1

# ---- a kill at every step ----
before=$(lvm_state)
killed() {
    local point=$1
    shift
    SNAPFERRY_CRASH_AT=$point call "$@" >/dev/null 2>&1 && fail "$point: it was not reached"
}
for point in lvm-native-made; do
    killed $point --match "$M" snapshot "$V" "$(uuid)"
    check "$point: it is there" test -n "$(ours)"
    sweep_once
    same "$point: nothing is left" "$(lvm_state)" "$before"
done
n=$(call snapshot "$V" "$(uuid)")
same "a snapshot is not active" "$(lvs --noheadings -o lv_active -S 'lv_name=~^snapferry-' | tr -d ' ')" ""
kept=$(lvm_state)
for point in lvm-expose-tagged lvm-exposed; do
    killed $point expose "$n" native ro "$(uuid)"
    check "$point: the sweep sees it" test -n "$(call exposures)"
    call unexpose "$(call exposures)"
    same "$point: nothing is left" "$(lvm_state)" "$kept"
done
x=$(call expose "$n" native ro "$(uuid)")
y=$(call expose "$n" native ro "$(uuid)")
path=$(jq -r .path <<<"$x")
same "read-only" "$(blockdev --getro "$path")" 1
same "no link by what it contains" "$(udevadm info -q symlink "$path" | tr ' ' '\n' | grep -E 'by-(uuid|label)')" ""
same "systemd does not see it" "$(udevadm info -q property "$path" | grep SYSTEMD_READY)" "SYSTEMD_READY=0"
expect "an alias that is nowhere" 0 -- \
    call unexpose "$(jq -c '.alias = "00000000-0000-4000-8000-000000000000" | .path = ""' <<<"$x")"
call unexpose "$x"
check "exposed twice: still active after the first" test -b "$path"
killed lvm-deactivated unexpose "$y"
check "after the second it is not" test ! -e "$path"
call unexpose "$y"
same "its tag is removed" "$(lvm_state)" "$kept"
for point in lvm-clone-made; do
    killed $point expose "$n" clone rw "$(uuid)"
    call unexpose "$(call exposures)"
    same "$point: nothing is left" "$(lvm_state)" "$kept"
done
x=$(call expose "$n" clone rw "$(uuid)")
killed lvm-clone-removed unexpose "$x"
expect "removed already" 0 -- call unexpose "$x"
same "no clone is left" "$(lvm_state)" "$kept"
for point in lvm-target-marked lvm-target-moved-away lvm-target-renamed lvm-target-untagged lvm-target-removed; do
    lvcreate -q -y -V 8M -T vg-0/tp -n victim >/dev/null 2>&1; lvchange --addtag keep-me vg-0/victim >/dev/null
    printf old | dd of=/dev/vg-0/victim conv=fsync status=none
    t=$(call target /dev/vg-0/victim 8388608 "$(uuid)" overwrite)
    printf new | dd of="$(jq -r .path <<<"$t")" conv=fsync status=none
    killed $point commit "$t"
    case $point in
    lvm-target-marked | lvm-target-moved-away)
        call abort "$t"
        same "$point: given up, it is the old volume" "$(head -c 3 /dev/vg-0/victim)" old ;;
    *)
        expect "$point: committed again" 0 -- call commit "$t"
        same "$point: it is the new volume" "$(head -c 3 /dev/vg-0/victim)" new ;;
    esac
    same "$point: the tags of the administrator stay" "$(lvs --noheadings -o lv_tags vg-0/victim | tr ', ' '\n\n' |
        grep keep)" keep-me
    lvremove -q -y vg-0/victim >/dev/null
    same "$point: nothing is left" "$(lvm_state)" "$kept"
done
killed lvm-target-made target /dev/vg-0/fresh 8388608 "$(uuid)" keep
call unexpose "$(call exposures)"
same "lvm-target-made: nothing is left" "$(lvm_state)" "$kept"
volume=$(call resolve "$V")
lvrename vg-0 "$(basename "$(jq -r .handle <<<"$n")")" before-upgrade >/dev/null
same "found under the name that an administrator gave it" \
    "$(call find "$volume" "$(jq -r .alias <<<"$n")" | jq -r .handle)" /dev/vg-0/before-upgrade
vgrename -q vg-0 vg1 >/dev/null
same "and in a group that was renamed" "$(call find "$volume" "$(jq -r .alias <<<"$n")" | jq -r .handle)" \
    /dev/vg1/before-upgrade
vgrename -q vg1 vg-0 >/dev/null
killed lvm-native-removed remove "$n"
expect "removed already" 0 -- call remove "$n"
same "nothing is left" "$(lvm_state)" "$before"
lvremove -q -y vg-0/others-snap >/dev/null

# ---- pools in trouble ----
lvcreate -q -y -L 12M --thinpool small vg-0 >/dev/null 2>&1; lvcreate -q -y -V 12M -T vg-0/small -n s >/dev/null 2>&1
dd if=/dev/urandom of=/dev/vg-0/s bs=1M oflag=direct status=none 2>/dev/null
expect "a pool that is full" 18 'the data of thin pool vg-0/small is .* full.*lvextend' -- \
    call snapshot /dev/vg-0/s "$(uuid)"
lvremove -q -y vg-0/small >/dev/null
vgchange -q -an vg-0 >/dev/null
n=$(call snapshot "$V" "$(uuid)")
check "of a volume that is not active" test "$(jq -r .size <<<"$n")" = 33554432
call remove "$n"
vgchange -q -ay vg-0 >/dev/null
mv /usr/sbin/lvm /usr/sbin/lvm.away
expect "without lvm" 2 'install LVM' -- call abilities
mv /usr/sbin/lvm.away /usr/sbin/lvm

# ---- the service ----
lvcreate -q -y -V 64M -T vg-0/tp -n mounted >/dev/null 2>&1
lvcreate -q -y -V 64M -T vg-0/tp -n twin >/dev/null 2>&1
mkfs.ext4 -q /dev/vg-0/mounted && mkdir -p /data && mount /dev/vg-0/mounted /data
random_file /data/file $((12 * MIB)) 5; sync
random_file /srv/twin.orig $((20 * MIB)) 6; dd if=/srv/twin.orig of=/dev/vg-0/twin bs=1M oflag=direct status=none
setup 'slots = 2'
config_add thin '[storage-class "thin"]
driver = lvm-thin
match = /dev/vg-0/[mt]w* /dev/vg-0/mounted /dev/vg-0/new*
target = vg-0/tp
snapshots-to-retain = 1
[job "both"]
volumes = class:thin'
expect "the configuration is accepted" 0 -- snapferry check-config
check "reload" systemctl reload snapferryd
same "the volumes are seen" "$(askj volumes | jq -r '.volumes[].name' | sort | tr '\n' ' ')" \
    "/dev/vg-0/mounted /dev/vg-0/twin "
sum=$(sum_of /data/file)
out=$(ask backup --job both --wait --json); rc=$?
B=$(result id <<<"$out")
same "the job: exit code" $rc 0
same "Completed, with a mounted volume" "$(result state <<<"$out")" Completed
same "read from the snapshot itself" "$(doc "$(op_id "$B" /dev/vg-0/mounted)" |
    jq -r '[.. | .mechanism? // empty] | first')" native
same "one snapshot of each is kept" "$(ours | wc -l)" 2
check "none is active" eval '! ours | grep -q active'
B2=$(ask backup --job both --wait --json | result id)
same "the next: Completed" "$(state "$B2")" Completed
same "the older ones are pruned" "$(ours | wc -l)" 2
printf changed | dd of=/dev/vg-0/twin conv=fsync,notrunc status=none
id=$(askj volumes | jq -r '.volumes[] | select(.name == "/dev/vg-0/twin") | .id')
expect "restored over the volume, from its snapshot" 0 -- \
    ask restore "$B2//dev/vg-0/twin" /dev/vg-0/twin --from native --overwrite --wait --quiet
check "the same bytes" cmp -n $((20 * MIB)) /srv/twin.orig /dev/vg-0/twin
expect "into a new volume, from the repository" 0 -- \
    ask restore "$B2//dev/vg-0/mounted" /dev/vg-0/new --from repository --wait --quiet
same "it is thin: holes take no room" "$(lvs --noheadings -o data_percent vg-0/new | awk '{print ($1 < 60)}')" 1
mkdir -p /back && mount -o ro /dev/vg-0/new /back
same "its file system is the one that was mounted" "$(sum_of /back/file)" "$sum"
umount /back
sed -i 's|^match = .*|match = vg:vg-0|' $CONF/conf.d/thin.ini
check "the class selects by its group" systemctl reload snapferryd
expect "into a new volume, whose class is found by the group in its name" 0 -- \
    ask restore "$B2//dev/vg-0/mounted" /dev/vg-0/grouped --from repository --wait --quiet
same "it is a volume of the pool, and no file among devices" "$(lvs --noheadings -o pool_lv vg-0/grouped | xargs)" tp
check "of the same bytes" cmp /dev/vg-0/new /dev/vg-0/grouped
lvremove -q -y vg-0/grouped >/dev/null
expect "not over a mounted one" 17 'in use' -- \
    ask restore "$B2//dev/vg-0/mounted" /dev/vg-0/mounted --from repository --overwrite --wait
same "it is the same volume" "$(call --match '/dev/vg-0/*' resolve /dev/vg-0/twin | jq -r .id)" "$id"
sed -i 's/snapshots-to-retain = 1/snapshots-to-retain = 0/' $CONF/conf.d/thin.ini
check "nothing is to be kept any more" systemctl reload snapferryd
expect "native prune removes what is kept" 0 -- ask native prune
until_true 60 eval '[ -z "$(ours)" ]'
same "nothing of ours is left on the storage" "$(ours)$(tagged | grep -v '^snapferry-volume')" ""
expect "verify" 0 -- ask verify main --read-percent 100 --wait --quiet
finish
