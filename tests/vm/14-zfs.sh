#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver zfs on a real pool: the suite of all drivers, a kill at every step, other people's snapshots and holds, lists
# of changes against the truth; then the installed service: incremental backups, retention, restores. The machine's
# image is a variant with OpenZFS. (CF-08, CF-09, CF-10, CF-27, RS-11, RS-12, RS-20, RS-21, RS-22, RS-30, PVC-02,
# PVC-07, PVC-21)
VM_VARIANT=zfs
VM_DISKS="pool:1300M far:300M"
: "${VM_TIMEOUT:=4000}"
# What docs/zfs.md has an ordinary user granted.
: "${VM_ALLOW:=$(sed -n 's/^    \(zfs allow -u USER .*\)/\1/p' "$(dirname "$0")/../../docs/zfs.md")}"
VM_PASS=VM_ALLOW
. "$(dirname "$0")/lib.sh"
. tests/vm/lvm-lib.sh
DRIVER=zfs
modprobe zfs && zpool create -f -O compression=lz4 tank "$(realpath "$(dev pool)")" && zfs create tank/vm &&
    zfs create -s -V 32M -o volblocksize=16K tank/vm/d1 || { echo "Bail out! no ZFS"; exit 1; }
V=/dev/zvol/tank/vm/d1 M='/dev/zvol/tank/vm/*'
until_true 60 test -b $V
zfs snapshot tank/vm/d1@autosnap_others
mkfs.ext4 -q "$(dev far)" && mkdir -p /far /tiny && mount "$(dev far)" /far && mount -t tmpfs -o size=3m tmpfs /tiny
mkdir -p "$WORK"
# Everything that we could leave: datasets, snapshots, holds, properties. Sizes aside.
zfs_state() {
    zfs list -H -t all -o name,origin | sort
    zfs get -H -t volume,snapshot -s local -o name,property,value all | grep -E 'snapdev|snapferry|volmode' | sort
    zfs list -H -t snapshot -o name | xargs -r zfs holds -H | cut -f 1,2 | sort
    find /dev/zvol -type l | sort
}
ours() { zfs list -H -t volume,snapshot -o name | grep -E '[/@]snapferry-'; }
marks() { zfs list -H -t bookmark -o name "$@"; }
# listed LIST: the driver's list of changes, in one line.
listed() { tr '\n' ' ' <<<"$1"; }

suite "ZFS" --match "$M" --volume "$V" --near tank/vm --far /far --tiny /tiny
same "nothing of ours is left" "$(ours)$(zfs_state | grep snapferry)" ""
same "snapshots of others stay" "$(zfs list -H -t snapshot -o name)" tank/vm/d1@autosnap_others
same "snapdev is as it was" "$(zfs get -H -o value,source snapdev tank/vm/d1)" "$(printf 'hidden\tdefault')"

# ---- names and classes ----
expect "a file system is no volume" 16 'there is no volume of ZFS' -- call resolve /dev/zvol/tank/vm
expect "no such pool" 16 'there is no volume of ZFS' -- call resolve /dev/zvol/nosuch/x
expect "by the name of the dataset" 2 'use /dev/zvol/tank/vm/d1' -- call resolve tank/vm/d1
zfs set com.example:backup=yes tank/vm; zfs set snapferry:tag="db web" tank/vm/d1
same "its labels, inherited ones too" "$(call resolve $V | jq -r .labels)" \
    "dataset:tank/vm/d1 pool:tank tag:db tag:web tag:com.example:backup=yes"
for m in dataset:tank/vm/d* pool:tank tag:web tag:com.example:backup=yes; do
    check "selected by $m" eval 'call --match "$m" volumes | grep -q tank/vm/d1'
done
zfs set snapferry:other="$(printf 'x\ntank/vm/d1\ttag\tlocal\ty')" tank/vm
check "line ends in values disturb nobody" eval 'call --match "$M" volumes | grep -q tank/vm/d1'
zfs inherit snapferry:other tank/vm; zfs inherit com.example:backup tank/vm; zfs inherit snapferry:tag tank/vm/d1

# ---- a kill at every step ----
before=$(zfs_state)
killed() {
    local point=$1
    shift
    SNAPFERRY_CRASH_AT=$point call "$@" >/dev/null 2>&1 && fail "$point: it was not reached"
}
killed zfs-native-made --match "$M" snapshot $V "$(uuid)"
check "zfs-native-made: it is there" test -n "$(ours)"
sweep_once
same "zfs-native-made: nothing is left" "$(zfs_state)" "$before"
n=$(call snapshot $V "$(uuid)")
kept=$(zfs_state)
check "a snapshot alone has no device" eval '! ls /dev/zvol/tank/vm | grep -q @'
for point in zfs-held zfs-exposed; do
    killed $point expose "$n" native ro "$(uuid)"
    check "$point: the sweep sees it" test -n "$(call exposures)"
    call unexpose "$(call exposures)"
    until_true 30 eval '[ "$(zfs_state)" = "$kept" ]'
    same "$point: nothing is left" "$(zfs_state)" "$kept"
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
check "exposed twice: still visible after the first" test -b "$path"
killed zfs-hidden unexpose "$y"
call unexpose "$y"
until_true 30 eval '[ "$(zfs_state)" = "$kept" ]'
same "its hold is released, snapdev restored" "$(zfs_state)" "$kept"
x=$(call expose "$n" native ro "$(uuid)")
# Whoever tries makes ZFS remove its device, unless that is open.
exec 7<"$path"
check "held: no other tool can destroy it" eval '! zfs destroy "$(jq -r .handle <<<"$n")" 2>/dev/null'
check "and it stays readable" eval 'cmp -s /dev/fd/7 $V'
exec 7<&-
call unexpose "$x"
zfs set snapdev=hidden tank/vm/d1
x=$(call expose "$n" native ro "$(uuid)"); call unexpose "$x"
same "a value that was set is set again" "$(zfs get -H -o value,source snapdev tank/vm/d1)" "$(printf 'hidden\tlocal')"
zfs set snapdev=visible tank/vm/d1
x=$(call expose "$n" native ro "$(uuid)"); call unexpose "$x"
same "visible stays visible" "$(zfs get -H -o value,source snapdev tank/vm/d1)" "$(printf 'visible\tlocal')"
zfs inherit snapdev tank/vm/d1
until_true 30 eval '[ "$(zfs_state)" = "$kept" ]'
for i in $(seq 60); do zfs snapshot "tank/vm/d1@many$i"; done
x=$(call expose "$n" native ro "$(uuid)")
same "of many snapshots no devices are made: a clone" "$(jq -r .mechanism <<<"$x")$(find /dev/zvol -name '*@*')" clone
check "of the same contents" eval 'call cat "$x" | cmp - $V'
call unexpose "$x"
zfs destroy tank/vm/d1@many1%many60
killed zfs-clone-made expose "$n" clone rw "$(uuid)"
zfs snapshot -r tank/vm@recursive # sanoid takes snapshots of all that it finds
call unexpose "$(call exposures)"
zfs destroy -r tank/vm@recursive
same "zfs-clone-made: nothing is left" "$(zfs_state)" "$kept"
x=$(call expose "$n" clone rw "$(uuid)")
killed zfs-clone-removed unexpose "$x"
expect "removed already" 0 -- call unexpose "$x"
same "no clone is left" "$(zfs_state)" "$kept"
for point in zfs-target-marked zfs-target-moved-away zfs-target-renamed zfs-target-promoted zfs-target-removed \
    zfs-target-untagged; do
    zfs create -s -V 8M -o volblocksize=8K -o compression=zstd -o com.example:keep=me tank/vm/victim
    until_true 30 test -b /dev/zvol/tank/vm/victim
    printf old | dd of=/dev/zvol/tank/vm/victim conv=fsync status=none
    w=$(call snapshot /dev/zvol/tank/vm/victim "$(uuid)")
    printf mid | dd of=/dev/zvol/tank/vm/victim conv=fsync status=none
    t=$(call target /dev/zvol/tank/vm/victim 8388608 "$(uuid)" overwrite)
    call fill "$w" "$t"
    killed $point commit "$t"
    case $point in
    zfs-target-marked | zfs-target-moved-away)
        call abort "$t"
        same "$point: given up, it is the old volume" "$(head -c 3 /dev/zvol/tank/vm/victim)" mid ;;
    *)
        expect "$point: committed again" 0 -- call commit "$t"
        same "$point: it is the new volume" "$(head -c 3 /dev/zvol/tank/vm/victim)" old ;;
    esac
    same "$point: the properties of the administrator stay" \
        "$(zfs get -H -o value compression,volblocksize,com.example:keep tank/vm/victim | tr '\n' ' ')" "zstd 8K me "
    same "$point: its native snapshot is found" "$(call list | grep -c victim)" 1
    call remove "$w" >/dev/null
    zfs destroy tank/vm/victim
    until_true 30 eval '[ "$(zfs_state)" = "$kept" ]'
    same "$point: nothing is left" "$(zfs_state)" "$kept"
done
killed zfs-target-made target /dev/zvol/tank/vm/fresh 8388608 "$(uuid)" keep
call unexpose "$(call exposures)"
same "zfs-target-made: nothing is left" "$(zfs_state)" "$kept"

# ---- others ----
zfs create -s -V 8M tank/vm/old
until_true 30 test -b /dev/zvol/tank/vm/old
zfs snapshot tank/vm/old@autosnap_1
w=$(call snapshot /dev/zvol/tank/vm/old "$(uuid)")
t=$(call target /dev/zvol/tank/vm/old 8388608 "$(uuid)" overwrite)
call commit "$t"
same "a replaced volume with snapshots stays" "$(zfs list -H -t snapshot -o name | grep -c -- '-old@')" 2
same "it is neither a volume nor left over" "$(call --match "$M" volumes | grep -c -- -old)$(call exposures)" 0
expect "its native snapshot is of use" 0 -- call find "$(call resolve /dev/zvol/tank/vm/old)" "$(jq -r .alias <<<"$w")"
zfs destroy "$(zfs list -H -t snapshot -o name | grep -- '-old@autosnap')"
call remove "$w" >/dev/null
same "it goes with the last of them" "$(zfs list -H -o name | grep -c -- -old)" 0
zfs destroy tank/vm/old
zfs rename "$(jq -r .handle <<<"$n")" tank/vm/d1@before-upgrade
same "found under the name that an administrator gave it" \
    "$(call find "$(call resolve $V)" "$(jq -r .alias <<<"$n")" | jq -r .handle)" tank/vm/d1@before-upgrade
zfs rename tank/vm/d1 tank/vm/d2
same "and in a volume that was renamed" "$(call find "$(call resolve /dev/zvol/tank/vm/d2)" \
    "$(jq -r .alias <<<"$n")" | jq -r .handle)" tank/vm/d2@before-upgrade
zfs rename tank/vm/d2 tank/vm/d1
until_true 30 test -b $V
zfs send -p tank/vm/d1@before-upgrade | zfs receive tank/vm/replica
same "a replica with our properties is not ours" "$(call list | wc -l)" 1
check "but a volume" eval 'call --match "$M" volumes | grep -q replica'
zfs destroy -r tank/vm/replica
zfs hold other tank/vm/d1@before-upgrade
expect "what another tool holds is not removed" 14 'busy' -- call remove "$n"
zfs release other tank/vm/d1@before-upgrade
killed zfs-native-removed remove "$n"
expect "removed already" 0 -- call remove "$n"
same "nothing is left" "$(zfs_state)" "$before"
n=$(call snapshot $V "$(uuid)")
zfs destroy "$(jq -r .handle <<<"$n")"
expect "destroyed by another tool" 0 '^gone$' -- call remove "$n"

# ---- what has changed ----
random_file /srv/noise $((8 * MIB)) 3
# A stream frees again what was never written near a change, and all behind the last block: there is nothing of both.
for i in 0 1 2 3; do dd if=/srv/noise of=$V bs=1M seek=$((i * 8)) conv=notrunc,fsync status=none; done
a=$(call snapshot $V "$(uuid)")
first=$a
lists=0 listed=0 zeros=0
cp --sparse=never $V /srv/a 2>/dev/null || dd if=$V of=/srv/a bs=1M status=none
for round in $(seq 8); do
    for i in 1 2 3; do
        at=$((RANDOM % 500)) len=$((1 + RANDOM % 12))
        case $((RANDOM % 4)) in
        0) blkdiscard -o $((at * 65536)) -l $((len * 1024 * 16)) $V 2>/dev/null ;;
        1) dd if=/dev/zero of=$V bs=16K seek=$((at * 4)) count=$len conv=notrunc,fsync status=none ;;
        2) yes $round$i | head -c $((len * 5000)) | dd of=$V bs=512 seek=$((at * 120)) conv=notrunc,fsync status=none ;;
        *) dd if=/srv/noise skip=$((RANDOM % 9000)) of=$V bs=512 seek=$((at * 120)) count=$((len * 9)) \
            conv=notrunc,fsync status=none ;;
        esac
    done
    b=$(call snapshot $V "$(uuid)")
    dd if=$V of=/srv/b bs=1M status=none
    call changed "$a" "$b" >/srv/list
    [ "$(head -n 1 /srv/list)" = listed ] && lists=$((lists + 1))
    # What is listed is copied from the new state over the old one: then they are equal, or something was omitted.
    tail -n +2 /srv/list | while read -r start len; do
        dd if=/srv/b of=/srv/a bs=64K iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$start" seek="$start" \
            count="$len" conv=notrunc status=none
    done
    listed=$((listed + $(awk 'NR > 1 {n += $2} END {print n + 0}' /srv/list)))
    cmp -s /srv/a /srv/b || fail "round $round: a change is not listed" "$(cat /srv/list)"
    while read -r start len; do
        zeros=$((zeros + len))
        cmp -s -n "$len" -i "$start:0" /srv/b /dev/zero || fail "round $round: $len bytes at $start are no zeros"
    done < <(call zeros "$a" "$b" | tail -n +2)
    [ "$a" = "$first" ] || call remove "$a" >/dev/null
    a=$b
done
same "changes are listed in each round" $lists 8
zfs create -s -V 256M -o volblocksize=16K tank/vm/thin
until_true 30 test -b /dev/zvol/tank/vm/thin
for i in 3 90 91 200; do dd if=/srv/noise of=/dev/zvol/tank/vm/thin bs=1M count=1 seek=$i conv=fsync status=none; done
blkdiscard -o $((90 * MIB)) -l $MIB /dev/zvol/tank/vm/thin
t=$(call snapshot /dev/zvol/tank/vm/thin "$(uuid)")
for mechanism in native clone; do
    x=$(call expose "$t" $mechanism ro "$(uuid)")
    same "$mechanism: what is allocated" "$(call allocated "$x" | awk -v m=$MIB '{sum += $2; last = $1 + $2}
        NR == 1 {printf "%s ", $1 / m} END {print sum / m, last / m}')" "3 3 201"
    call unexpose "$x"
done
x=$(call expose "$t" clone rw "$(uuid)")
expect "a writable clone" 0 'writable: what is allocated' -- eval 'call allocated "$x" 2>&1 || true'
call unexpose "$x"
dd if=/srv/noise of=/dev/zvol/tank/vm/thin bs=1M seek=100 conv=fsync status=none
for i in 120 130 140 150 160 170 180 190; do
    dd if=/srv/noise of=/dev/zvol/tank/vm/thin bs=1M seek=$i conv=fsync status=none
done
u=$(call snapshot /dev/zvol/tank/vm/thin "$(uuid)")
x=$(call expose "$u" native ro "$(uuid)")
expect "more than a quarter" 0 'too much to be read once more' -- eval 'call allocated "$x" 2>&1 || true'
call unexpose "$x"
call remove "$t" >/dev/null; call remove "$u" >/dev/null
zfs destroy -r tank/vm/thin
check "what was discarded is known to be zeros: $zeros bytes" test $zeros -gt 0
check "and nothing much else: $listed bytes" test $listed -lt $((64 * MIB))
same "nothing has changed" "$(b=$(call snapshot $V "$(uuid)"); call changed "$a" "$b"; call remove "$b" >/dev/null)" \
    listed
zfs set volsize=40M tank/vm/d1
b=$(call snapshot $V "$(uuid)")
same "a volume that has grown: up to its end" "$(call changed "$a" "$b" | tail -n 1 | awk '{print $1 + $2}')" \
    $((40 * MIB))
echo 0 >/sys/module/zfs/parameters/send_holes_without_birth_time
expect "holes may be missing from the stream" 0 '^uncertain: .*send_holes_without_birth_time' -- call changed "$a" "$b"
echo 1 >/sys/module/zfs/parameters/send_holes_without_birth_time
expect "the other way round" 0 '^base-other: .*not older' -- call changed "$b" "$a"
expect "a parent with another guid" 0 '^base-other: ' -- \
    call changed "$(sed 's/"change_id":"zfs:/&1/' <<<"$a")" "$b"
t=$(call target $V $((32 * MIB)) "$(uuid)" overwrite); call fill "$first" "$t"; call commit "$t"
c=$(call snapshot $V "$(uuid)")
expect "after a restore: since the snapshot that was restored" 0 '^listed$' -- call changed "$first" "$c"
expect "but not since one that is newer" 0 '^base-other: .*replaced since' -- call changed "$b" "$c"
for x in "$a" "$b" "$c" "$first"; do call remove "$x" >/dev/null; done
zfs destroy tank/vm/d1@autosnap_others 2>/dev/null
same "nothing is left of it" "$(ours)" ""
expect "a parent that was removed" 0 '^base-lost' -- call changed "$a" "$c"

# ---- bookmarks ----
zfs snapshot tank/vm/d1@others && zfs bookmark tank/vm/d1@others tank/vm/d1#cursor && zfs destroy tank/vm/d1@others
node2="tank/vm/d1#snapferry-$(uuid):$(zpool get -Hp -o value guid tank):node2"
zfs snapshot tank/vm/d1@others && zfs bookmark tank/vm/d1@others "$node2" && zfs destroy tank/vm/d1@others
others=$(marks | sort)
a=$(call snapshot $V "$(uuid)")
mark="tank/vm/d1#snapferry-$(jq -r .alias <<<"$a"):$(zpool get -Hp -o value guid tank):node1"
killed zfs-bookmark-made bookmark "$a"
expect "a bookmark, again after a kill" 0 -- call bookmark "$a"
same "it has the guid of its snapshot" "zfs:$(zfs get -Hp -o value guid "$mark")" "$(jq -r .change_id <<<"$a")"
same "it is listed, those of others are not" "$(call bookmarks | jq -r .handle)" "$mark"
dd if=/srv/noise of=$V bs=64K seek=9 count=3 conv=notrunc,fsync status=none
b=$(call snapshot $V "$(uuid)")
since=$(call changed "$a" "$b")
check "changes since the snapshot ($(listed "$since"))" eval '[[ $since = listed* && $since = *[0-9] ]]'
zfs destroy "$(jq -r .handle <<<"$a")"
same "destroyed by another tool: the same changes since its bookmark" "$(call changed "$a" "$b")" "$since"
expect "a bookmark of another snapshot is no base" 0 '^base-other: ' -- \
    call changed "$(sed 's/"change_id":"zfs:/&1/' <<<"$a")" "$b"
# `zfs receive -F` puts a volume back and leaves bookmarks. That of a snapshot which it destroyed is no base.
zfs create -s -V 8M tank/vm/sender && until_true 30 test -b /dev/zvol/tank/vm/sender
dd if=/srv/noise of=/dev/zvol/tank/vm/sender bs=64K count=8 conv=fsync status=none
zfs snapshot tank/vm/sender@1 && zfs send tank/vm/sender@1 | zfs receive tank/vm/replica2
R=/dev/zvol/tank/vm/replica2
until_true 30 test -b $R
dd if=/srv/noise of=$R bs=64K skip=9 seek=2 count=1 conv=notrunc,fsync status=none
r=$(call snapshot $R "$(uuid)")
call bookmark "$r"
sleep 6
dd if=/srv/noise of=/dev/zvol/tank/vm/sender bs=64K seek=20 count=1 conv=notrunc,fsync status=none
zfs snapshot tank/vm/sender@2
until_true 20 eval 'zfs send -i @1 tank/vm/sender@2 | zfs receive -F tank/vm/replica2' # udev may have it open
same "it was received, and ours is destroyed" \
    "$(zfs list -H -d 1 -t snapshot -o name tank/vm/replica2 | sed 's/.*@//')" $'1\n2'
check "its bookmark is not" eval 'marks -d 1 tank/vm/replica2 | grep -q snapferry-'
s=$(call snapshot $R "$(uuid)")
expect "what was put back is in no stream: a bookmark is no base" 0 '^uncertain: .*receive -F' -- \
    call changed "$r" "$s"
zfs destroy -r tank/vm/replica2 && zfs destroy -r tank/vm/sender
zfs rename tank/vm/d1 tank/vm/d2
expect "found in a volume that was renamed" 0 -- call unbookmark "$a"
zfs rename tank/vm/d2 tank/vm/d1
until_true 30 test -b $V
expect "removed already" 0 -- call unbookmark "$a"
expect "both are gone" 0 '^base-lost: .*nor its bookmark' -- call changed "$a" "$b"
call bookmark "$b"
killed zfs-bookmark-removed unbookmark "$b"
expect "removed before the kill" 0 -- call unbookmark "$b"
call remove "$b" >/dev/null
same "bookmarks of others stay" "$(marks | sort)" "$others"
truncate -s 100M /srv/old.img && zpool create -d old /srv/old.img && zfs create -V 8M old/v &&
    until_true 30 test -b /dev/zvol/old/v
a=$(call snapshot /dev/zvol/old/v "$(uuid)")
expect "a pool without the feature" 2 'bookmark feature not enabled' -- call bookmark "$a"
zpool destroy old
zfs destroy tank/vm/d1#cursor && zfs destroy "$node2"

# ---- encryption ----
echo 12345678 | zfs create -o encryption=on -o keyformat=passphrase tank/secret &&
    zfs create -s -V 8M tank/secret/e && until_true 30 test -b /dev/zvol/tank/secret/e
dd if=/srv/noise of=/dev/zvol/tank/secret/e bs=1M conv=fsync status=none
a=$(call snapshot /dev/zvol/tank/secret/e "$(uuid)")
dd if=/srv/noise of=/dev/zvol/tank/secret/e bs=64K count=3 seek=5 conv=fsync,notrunc status=none
b=$(call snapshot /dev/zvol/tank/secret/e "$(uuid)")
same "encrypted, with its key" "$(call changed "$a" "$b" | tr '\n' ' ')" "listed 327680 196608 "
call bookmark "$a" && zfs destroy "$(jq -r .handle <<<"$a")"
same "likewise since a bookmark" "$(call changed "$a" "$b" | tr '\n' ' ')" "listed 327680 196608 "
zfs unmount tank/secret; zfs unload-key -r tank/secret
expect "without its key" 19 'encryption key is not loaded' -- call expose "$b" native ro "$(uuid)"
zfs destroy -r tank/secret

# ---- an ordinary user ----
# As docs/zfs.md has it. The devices are root's, and are not opened here.
useradd -M -s /bin/sh delegate
as_delegate() {
    setpriv --reuid delegate --regid delegate --clear-groups env SNAPFERRY_NO_SYSTEMD=1 "$TOOLS/driver_call" \
        --driver zfs --name gold "$@"
}
before=$(zfs_state)
expect "without permissions" 20 'permission denied' -- as_delegate snapshot $V "$(uuid)"
sh -c "${VM_ALLOW//USER/delegate}"
same "those of docs/zfs.md are granted" "$(zfs allow tank/vm | grep -c 'user delegate')" 1
n=$(as_delegate snapshot $V "$(uuid)")
check "with them: a native snapshot" test -n "$n"
expect "its bookmark" 0 -- as_delegate bookmark "$n"
dd if=/srv/noise of=$V bs=64K seek=9 count=3 conv=notrunc,fsync status=none
b=$(as_delegate snapshot $V "$(uuid)")
same "what has changed" "$(as_delegate changed "$n" "$b" | tr '\n' ' ')" "listed 589824 196608 "
expect "the bookmark is removed" 0 -- as_delegate unbookmark "$n"
for x in "$n" "$b"; do expect "and the native snapshots" 0 -- as_delegate remove "$x"; done
same "nothing is left of it" "$(zfs_state)" "$before"
zfs unallow -u delegate tank/vm

# ---- pools in trouble ----
zfs create -o quota=400M tank/tight && zfs create -s -V 16M tank/tight/q && zfs create -V 300M tank/tight/thick
until_true 30 test -b /dev/zvol/tank/tight/q && until_true 30 test -b /dev/zvol/tank/tight/thick
check "a quota counts as the pool's usage" test "$(call pool /dev/zvol/tank/tight/q | jq '.used > 0.5')" = true
for i in $(seq 0 19); do
    dd if=/srv/noise of=/dev/zvol/tank/tight/thick bs=1M seek=$((i * 8)) oflag=direct status=none
done
sync; zpool sync tank
expect "no room for a thick volume's snapshot" 18 'out of space' -- call snapshot /dev/zvol/tank/tight/thick "$(uuid)"
zfs destroy -r tank/tight
mv /usr/sbin/zfs /usr/sbin/zfs.away
expect "without zfs" 2 'install OpenZFS' -- call abilities
mv /usr/sbin/zfs.away /usr/sbin/zfs

# ---- the service ----
zfs destroy -r tank/vm/d1
zfs create -s -V 64M -o volblocksize=16K tank/vm/mounted && zfs create -s -V 32M -o volblocksize=16K tank/vm/twin
until_true 30 test -b /dev/zvol/tank/vm/twin
mkfs.ext4 -q /dev/zvol/tank/vm/mounted && mkdir -p /data && mount /dev/zvol/tank/vm/mounted /data
random_file /data/file $((12 * MIB)) 5; sync
random_file /srv/twin.orig $((32 * MIB)) 6
dd if=/srv/twin.orig of=/dev/zvol/tank/vm/twin bs=1M conv=fsync status=none
setup 'slots = 2' 'changed-blocks = auto' 'verify-sample = 0'
config_add zvols '[storage-class "zvols"]
driver = zfs
match = dataset:tank/vm/*
target = tank/vm
snapshots-to-retain = 1
[job "both"]
volumes = class:zvols'
expect "the configuration is accepted" 0 -- snapferry check-config
check "reload" systemctl reload snapferryd
until_true 60 eval '[ "$(askj volumes | jq ".volumes | length")" = 2 ]'
same "the volumes are seen" "$(askj volumes | jq -r '.volumes[].name' | sort | tr '\n' ' ')" \
    "/dev/zvol/tank/vm/mounted /dev/zvol/tank/vm/twin "
sum=$(sum_of /data/file)
out=$(ask backup --job both --wait --json); rc=$?
B=$(result id <<<"$out")
same "the job: exit code" $rc 0
same "Completed, with a mounted volume" "$(result state <<<"$out")" Completed
same "read from the snapshot itself" "$(doc "$(op_id "$B" /dev/zvol/tank/vm/mounted)" |
    jq -r '[.. | .mechanism? // empty] | first')" native
same "one snapshot of each is kept" "$(ours | wc -l)" 2
same "none is held, none visible" "$(zfs_state | grep -E 'snapdev|snapferry:.*:' | grep -v owner)" ""
printf changed | dd of=/dev/zvol/tank/vm/twin seek=100 conv=fsync,notrunc status=none
cp /srv/twin.orig /srv/twin.new; printf changed | dd of=/srv/twin.new seek=100 conv=notrunc status=none
B2=$(ask backup --job both --wait --json | result id)
same "the next: Completed" "$(state "$B2")" Completed
twin() { doc "$(op_id "$1" /dev/zvol/tank/vm/twin)" | jq -r "$2"; }
same "incremental: from the send stream" "$(twin "$B2" .result.cbtSource)" zfs
same "one block was listed" "$(twin "$B2" .listedBytes)" 16384
same "the older ones are pruned" "$(ours | wc -l)" 2
expect "verify: incremental equals full" 0 -- ask verify main --read-percent 100 --wait --quiet
id=$(askj volumes | jq -r '.volumes[] | select(.name == "/dev/zvol/tank/vm/twin") | .id')
expect "into a new volume, from the repository" 0 -- \
    ask restore "$B2//dev/zvol/tank/vm/twin" /dev/zvol/tank/vm/new --from repository --wait --quiet
check "the bytes of the incremental backup" cmp /srv/twin.new /dev/zvol/tank/vm/new
check "it is a volume, and no file among devices" test -b /dev/zvol/tank/vm/new
expect "the other one, too" 0 -- \
    ask restore "$B2//dev/zvol/tank/vm/mounted" /dev/zvol/tank/vm/sparse --from repository --wait --quiet
check "it is sparse" test "$(zfs get -Hp -o value used tank/vm/sparse)" -lt $((40 * MIB))
dd if=/dev/zero of=/dev/zvol/tank/vm/twin bs=1M count=5 conv=fsync,notrunc status=none
expect "restored over the volume, from its snapshot" 0 -- \
    ask restore "$B2//dev/zvol/tank/vm/twin" /dev/zvol/tank/vm/twin --from native --overwrite --wait --quiet
check "the same bytes" cmp /srv/twin.new /dev/zvol/tank/vm/twin
same "it is the same volume" "$(call --match "$M" resolve /dev/zvol/tank/vm/twin | jq -r .id)" "$id"
expect "not over a mounted one" 17 'in use' -- \
    ask restore "$B2//dev/zvol/tank/vm/mounted" /dev/zvol/tank/vm/mounted --from repository --overwrite --wait
same "its file is untouched" "$(sum_of /data/file)" "$sum"
zfs snapshot tank/vm/twin@others # before the base: what is newer than it makes its bookmark doubtful
B3=$(ask backup /dev/zvol/tank/vm/twin --wait --json | result id)
same "a backup after the restore: Completed" "$(state "$B3")" Completed
same "incremental: the parent's snapshot is one of the new volume" "$(twin "$B3" '.result.cbtSource, .fullReason' |
    tr '\n' ' ')" "zfs null "
expect "verify, the last one too" 0 -- ask verify main --read-percent 100 --wait --quiet
expect "its bytes" 0 -- \
    ask restore "$B3//dev/zvol/tank/vm/twin" /dev/zvol/tank/vm/last --from repository --wait --quiet
check "are those of the volume" cmp /dev/zvol/tank/vm/last /dev/zvol/tank/vm/twin

# ---- the parent's native snapshot is gone, its bookmark is not ----
T=/dev/zvol/tank/vm/twin
zfs bookmark tank/vm/twin@others tank/vm/twin#cursor
base() { zfs list -H -d 1 -t snapshot -o name tank/vm/twin | grep snapferry-; }
own_marks() { marks -d 1 tank/vm/twin | grep snapferry-; }
same "the base has a bookmark" "$(own_marks | sed 's/:.*//; s/#/@/')" "$(base)"
dd if=/dev/zvol/tank/vm/last of=/srv/twin.new bs=1M status=none
# by_bookmark WHAT: the next backup reads what is written now, and no more; it equals the volume.
at=300
by_bookmark() {
    local what=$1 B old
    old=$(own_marks)
    printf "changed $at" | dd of=$T bs=16384 seek=$at conv=fsync,notrunc status=none
    printf "changed $at" | dd of=/srv/twin.new bs=16384 seek=$at conv=notrunc status=none
    at=$((at + 10))
    B=$(ask backup $T --wait --json | result id)
    same "$what: Completed" "$(state "$B")" Completed
    same "$what: incremental" "$(twin "$B" '.result.cbtSource, .fullReason, .listedBytes' | tr '\n' ' ')" \
        "zfs null 16384 "
    expect "$what: restored" 0 -- \
        ask restore "$B/$T" "/dev/zvol/tank/vm/r$at" --from repository --wait --quiet
    check "$what: it equals the volume" eval 'cmp "/dev/zvol/tank/vm/r$at" $T && cmp /srv/twin.new $T'
    zfs destroy "tank/vm/r$at"
    until_true 60 eval '! own_marks | grep -qxF "$old"'
    same "$what: that bookmark is gone" "$(own_marks | grep -xF "$old")" ""
}
zfs destroy "$(base)"
by_bookmark "destroyed just before"
alias=$(base | sed 's/.*snapferry-//')
zfs destroy "$(base)"
check "the daemon is restarted" systemctl restart snapferryd
native_is() { [ "$(askj native list | jq -r --arg a "$alias" '.natives[] | select(.alias == $a) | '"$1")" = "$2" ]; }
until_true 60 native_is '"\(.state) \(.bookmark)"' 'missing true'
check "it is found missing, and is kept by its bookmark" native_is .reasons cbt-parent
expect "native list shows it" 0 'bookmark' -- ask native list
by_bookmark "found missing"
sed -i 's/snapshots-to-retain = 1/snapshots-to-retain = 1\npool-high-water = 1/' $CONF/conf.d/zvols.ini
check "every pool is over its high-water mark" systemctl reload snapferryd
expect "all that is retained is pruned" 0 -- ask native prune --volume $T
until_true 60 eval '[ -z "$(base)" ]'
same "the bookmark of the base is left" "$(own_marks | wc -l) $(base)" "1 "
by_bookmark "pruned at the high-water mark"
sed -i 's/pool-high-water = 1/retries = 0/' $CONF/conf.d/zvols.ini
# The step is killed when the bookmark of the new native snapshot is made, by a variable of the service.
drop=/run/systemd/system/snapferryd.service.d
mkdir -p $drop && printf '[Service]\nEnvironment=SNAPFERRY_CRASH_AT=zfs-bookmark-made\n' >$drop/crash.conf
systemctl daemon-reload
check "as before, with a kill" systemctl restart snapferryd
kept=$(own_marks; base)
same "zfs-bookmark-made: the step is killed: Failed" "$(wait_state "$(submit $T)" Failed 300)" Failed
until_true 60 eval '[ "$(own_marks; base)" = "$kept" ]'
same "zfs-bookmark-made: nothing of it is left" "$(own_marks; base)" "$kept"
rm -r $drop
systemctl daemon-reload
zfs bookmark tank/vm/twin@others "tank/vm/twin#snapferry-$(uuid):$(zpool get -Hp -o value guid tank):testnode"
zfs bookmark tank/vm/twin@others "tank/vm/twin#snapferry-$(uuid):1:testnode"
sleep 4
check "restarted again" systemctl restart snapferryd
until_true 60 eval '[ "$(own_marks | grep -vc ":1:testnode")" = 1 ]'
same "what no record knows is removed" "$(own_marks | grep -v ":1:testnode" | wc -l)" 1
same "of another pool, and of another tool, stays" "$(marks -d 1 tank/vm/twin | grep -cE 'cursor|:1:testnode')" 2
expect "verify, the last one too" 0 -- ask verify main --read-percent 100 --wait --quiet

# Beside a change in a sparse volume, what was never written is freed again: it is not read.
H=/dev/zvol/tank/vm/holes
zfs create -s -V 512M -o volblocksize=16K tank/vm/holes
until_true 30 test -b $H
for i in 0 150 300 500; do dd if=/srv/noise of=$H bs=1M count=1 seek=$i conv=fsync status=none; done
systemctl reload snapferryd
sparse() { doc "$(op_id "$B" $H)" | jq -r "$1"; }
B=$(ask backup $H --wait --json | result id)
same "a sparse volume: Completed" "$(state "$B")" Completed
same "of the first backup what is allocated is read" "$(sparse '.fullReason, .result.readBytes' | tr '\n' ' ')" \
    "no-parent $((4 * MIB)) "
dd if=/srv/noise of=$H bs=16K count=1 skip=7 seek=14000 conv=fsync status=none
B=$(ask backup $H --wait --json | result id)
same "one block of it has changed" "$(sparse '.result.cbtSource, .fullReason, .listedBytes' | tr '\n' ' ')" \
    "zfs null 16384 "
check "no more than its chunk is read: $(sparse .result.readBytes) bytes" \
    test "$(sparse .result.readBytes)" -le $((8 * MIB))
dd if=$H of=/srv/sparse bs=1M conv=sparse status=none
expect "restored" 0 -- ask restore "$B/$H" /srv/sparse.back --from repository --wait --quiet
check "bit for bit" cmp /srv/sparse /srv/sparse.back
rm -f /srv/sparse /srv/sparse.back

# What lists by a stream obeys the limit of reads, and ends with its daemon.
L=/dev/zvol/tank/vm/slow
zfs create -s -V 512M -o volblocksize=16K tank/vm/slow
until_true 30 test -b $L
dd if=/srv/noise of=$L bs=1M count=8 conv=fsync status=none
sed -i 's/^\[mover\]/[mover]\nread-limit = 256KiB/' $CONF/snapferry.ini
check "with a limit of reads" systemctl reload snapferryd
sending() { pgrep -f '^/usr/sbin/zfs send .*tank/vm/slow@' >/dev/null; }
B=$(submit $L)
until_true 120 sending
check "what is allocated is listed" sending
kill -9 "$(daemon_pid)"
until_true 10 eval '! sending'
check "killed: zfs send ends, too" eval '! sending'
until_true 120 answers
until_true 120 sending
began=$SECONDS
check "it is listed anew" sending
until_true 120 eval '! sending'
check "8 MiB took $((SECONDS - began)) s" test $((SECONDS - began)) -ge 10
became "and what was listed is read: Completed" "$B" Completed 300
same "no more than that" "$(doc "$(op_id "$B" $L)" | jq -r '.fullReason, .result.readBytes' | tr '\n' ' ')" \
    "no-parent $((8 * MIB)) "
# Outside of its times it does not hold: 64 MiB would take four minutes and more.
sed -i "s/^read-limit.*/read-limit = 256KiB\nlimit-times = $(LC_ALL=C date -d '+3 days' +%a) 01:00-02:00/" \
    $CONF/snapferry.ini
zfs create -s -V 512M -o volblocksize=16K tank/vm/quick
until_true 30 test -b /dev/zvol/tank/vm/quick
for i in 0 1 2 3 4 5 6 7; do
    dd if=/srv/noise of=/dev/zvol/tank/vm/quick bs=1M seek=$((i * 8)) conv=fsync status=none
done
check "with times at which the limit holds" systemctl reload snapferryd
began=$SECONDS
B=$(ask backup /dev/zvol/tank/vm/quick --wait --json | result id)
same "at another time: what is allocated is listed" \
    "$(doc "$(op_id "$B" /dev/zvol/tank/vm/quick)" | jq -r '.fullReason, .result.readBytes' | tr '\n' ' ')" \
    "no-parent $((64 * MIB)) "
check "without a limit, in $((SECONDS - began)) s" test $((SECONDS - began)) -lt 240
sed -i '/^read-limit/d; /^limit-times/d' $CONF/snapferry.ini

# A lie: one block is left out of each stream. A run looks at some 60 % of the volume, thus misses it 20 times in a row
# once in 10^8 cases.
mv /usr/sbin/zfs /usr/sbin/zfs.real
cat >/usr/sbin/zfs <<'EOF'
#!/bin/bash
[ "$1" = send ] || exec /usr/sbin/zfs.real "$@"
/usr/sbin/zfs.real "$@" | /vm/stage/tools/zfs_lies $((1200 * 16384))
rc=("${PIPESTATUS[@]}")
case ${rc[1]} in 0) echo lied >>/srv/lies ;; 3) ;; *) exit 1 ;; esac
exit ${rc[0]}
EOF
chmod 755 /usr/sbin/zfs
sed -i 's/^verify-sample.*/verify-sample = 60/' $CONF/snapferry.ini
check "a random share is read" systemctl reload snapferryd
dd if=/srv/noise of=$T bs=16384 skip=200 seek=1200 count=1 conv=fsync,notrunc status=none
for i in $(seq 20); do
    B=$(ask backup $T --wait --json | result id)
    [ "$(twin "$B" .fullReason)" = null ] || break
done
check "a block is left out of the stream" test -s /srv/lies
same "that is found (run $i of 20)" "$(twin "$B" '.state, .fullReason' | tr '\n' ' ')" "Completed mismatch "
expect "its backup is restored" 0 -- ask restore "$B/$T" /srv/twin.lied --from repository --wait --quiet
check "bit for bit" cmp /srv/twin.lied $T
same "the stream is not used any more" "$(twin "$(ask backup $T --wait --json | result id)" .fullReason)" distrusted
check "counted" metric_is cbt_verify_mismatch_total 1
mv /usr/sbin/zfs.real /usr/sbin/zfs
same "all is read on request" "$(twin "$(ask backup $T --full --wait --json | result id)" .fullReason)" forced
same "and it is used again" "$(twin "$(ask backup $T --wait --json | result id)" .fullReason)" null

# The base of the next incremental backup is kept for as long as there is to be one.
sed -i 's/snapshots-to-retain = 1/snapshots-to-retain = 0\nchanged-blocks = no/' $CONF/conf.d/zvols.ini
check "nothing is to be kept any more" systemctl reload snapferryd
expect "native prune removes what is kept" 0 -- ask native prune
until_true 60 eval '[ -z "$(ours)$(marks | grep testnode | grep -v :1:)" ]'
same "no bookmark of ours is left" "$(marks | grep testnode | grep -v :1:)" ""
same "nothing of ours is left on the storage" "$(ours)$(zfs_state | grep -E 'snapferry:(owner|snapdev)')" ""
finish
