#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Raw devices: what is in use is refused unless told, in words (PVC-24); identities that stay (MS-05); overlays by a
# hook, an honest one and lying ones (PVC-06, PVC-07); restore in place (CF-27).
. "$(dirname "$0")/../lib.sh"
is_root || { skip "raw devices" "needs root for loop devices"; finish; }
uuid() { cat /proc/sys/kernel/random/uuid; }
call() { "$TOOLS/driver_call" --driver device --name raw --match "$dev" "$@"; }

truncate -s 16M "$WORK/raw"
dev=$(loop_device "$WORK/raw"); at_exit "losetup -d $dev"
mkfs.ext4 -q "$dev"
mkdir "$WORK/mnt"; ln -s "$dev" "$WORK/by-name"
id=$(call resolve "$dev" | jq -r .id)
same "the identity is the file system's" "$id" "device:fs-uuid:$(blkid -p -s UUID -o value "$dev")"
same "whatever name leads there" "$(call resolve "$WORK/by-name" | jq -r .id)" "$id"
same "two names are one volume" "$("$TOOLS/driver_call" --driver device --match "$WORK/by-*" --match "$dev" volumes |
    wc -l)" 1
same "unused loop devices are none" "$("$TOOLS/driver_call" --driver device --match '/dev/loop*' volumes 2>/dev/null |
    jq -r 'select(.size == 0)' | wc -l)" 0
n=$(call snapshot "$dev" "$(uuid)")
same "no snapshot, and it says so" "$(jq -r '"\(.crash_consistent) \(.handle) \(.used)"' <<<"$n")" "false $dev 0"

mount "$dev" "$WORK/mnt"; at_exit "umount -l $WORK/mnt"
same "mounted: in use" "$(call resolve "$dev" | jq .in_use)" true
expect "mounted read-write: refused" 19 "mounted at $WORK/mnt.*would be inconsistent.*accept-inconsistent" \
    -- call snapshot "$dev" "$(uuid)"
expect "unless told (accept-inconsistent)" 0 '"crash_consistent":false' -- call --accept snapshot "$dev" "$(uuid)"
expect "no restore onto a mounted device, told or not" 17 "in use \(mounted at" \
    -- call target "$dev" 1048576 "$(uuid)" overwrite
mount -o remount,ro "$WORK/mnt"
expect "mounted read-only: nothing changes it" 0 -- call snapshot "$dev" "$(uuid)"
umount "$WORK/mnt"
# A process that got mounts of its own just then (of another test) has it mounted still.
unmounted() { ! grep -qsF " $(lsblk -dno MAJ:MIN "$dev" | tr -d ' ') " /proc/[0-9]*/mountinfo; }
for _ in $(seq 600); do if unmounted; then break; fi; sleep 0.1; done
expect "a device that holds something is not overwritten" 17 'not empty: ext4 found' \
    -- call target "$dev" 1048576 "$(uuid)" keep
expect "unless told" 0 "\"path\":\"$dev\"" -- call target "$dev" 1048576 "$(uuid)" overwrite
expect "too small" 17 'too small: it has 16777216 bytes, the image has 16777217' \
    -- call target "$dev" 16777217 "$(uuid)" overwrite
blockdev --setro "$dev"
expect "read-only" 17 "is a read-only device" -- call target "$dev" 1048576 "$(uuid)" overwrite
blockdev --setrw "$dev"
expect "not there" 16 -- call target /dev/no-such-thing 1 "$(uuid)" keep
expect "another device than the one that was looked up" 19 'no longer the device' -- call snapshot "$dev" \
    "$(uuid)" device:fs-uuid:0
mkswap "$dev" >/dev/null 2>&1
if swapon "$dev" 2>/dev/null; then
    at_exit "swapoff $dev"
    expect "held by the kernel: refused" 19 'in use \(used as swap\)' -- call snapshot "$dev" "$(uuid)"
    swapoff "$dev"
else
    skip "held by the kernel" "swapon is not permitted here"
fi
wipefs -qa "$dev"
expect "an empty device is taken" 0 -- call target "$dev" 1048576 "$(uuid)" keep
t=$(call target "$dev" 1048576 "$(uuid)" keep)
{ SNAPFERRY_CRASH_AT=device-target-synced call commit "$t"; } >/dev/null 2>&1
same "killed at device-target-synced, before a restore is complete" $? 137
expect "which is completed by the same call" 0 -- call commit "$t"
same "without contents the loop's file is the identity" "$(call resolve "$dev" | jq -r .id)" \
    "device:loop$(sed 's#/#:#g' <<<"$WORK")$(sed 's#_#_5f#g' <<<:raw)"

# Overlays: this hook keeps changes in a file of its own behind a loop device.
cat >"$WORK/hook" <<'END'
#!/bin/bash
set -eu
state=HERE/overlays; mkdir -p $state
request=$(cat); alias=$(jq -r '.alias // ""' <<<"$request")
echo "$1 $request" >>HERE/requests
case $1 in
create)
    if [ ! -e $state/$alias ]; then
        cp --sparse=always "$(jq -r .device <<<"$request")" HERE/cow-$alias
        losetup -f --show $(jq -r 'if .read_only then "-r" else empty end' <<<"$request") HERE/cow-$alias \
            >$state/$alias.new
        jq -c .tag <<<"$request" >$state/$alias.tag; mv $state/$alias.new $state/$alias
    fi
    echo "{\"device\": \"$(cat $state/$alias)\", \"handle\": \"cow-$alias\", \"where\": \"HERE\"}" ;;
remove)
    if [ -e $state/$alias ]; then
        losetup -d "$(cat $state/$alias)"
        rm -f $state/$alias $state/$alias.tag HERE/cow-$alias
    fi ;;
list)
    for f in $state/*.tag; do
        [ -e "$f" ] || continue; a=$(basename "$f" .tag)
        jq -nc --arg a "$a" --arg d "$(cat $state/$a)" --slurpfile t "$f" \
            '{alias: $a, device: $d, handle: "cow-\($a)", tag: $t[0]}'
    done | jq -sc '{overlays: .}' ;;
*) exit 64 ;;
esac
END
sed -i "s#HERE#$WORK#g" "$WORK/hook"; chmod 755 "$WORK" "$WORK/hook"
at_exit "losetup -n -O NAME,BACK-FILE | awk -v p=$WORK/cow- 'index(\$2, p) == 1 {print \$1}' | xargs -rn1 losetup -d"
n=$(call snapshot "$dev" "$(uuid)")
same "a class with a hook can make overlays" "$(call --hook "$WORK/hook" choose "$dev" rw)" overlay
expect "without one it is refused in words" 2 'neither clones nor overlays' -- call choose "$dev" rw
for mode in ro rw; do
    a=$(uuid)
    x=$(call --hook "$WORK/hook" expose "$n" overlay $mode "$a"); path=$(jq -r .path <<<"$x")
    same "$mode: an overlay" "$(jq -r '"\(.mechanism) \(.alias) \(.where) \(.size)"' <<<"$x")" \
        "overlay $a $WORK 16777216"
    same "$mode: the same again" "$(call --hook "$WORK/hook" expose "$n" overlay $mode "$a" | jq -r .path)" "$path"
    same "$mode: in the list for the sweep" "$(call --hook "$WORK/hook" exposures | jq -r .alias)" "$a"
    check "$mode: holds what the device holds" cmp <(call --hook "$WORK/hook" cat "$x") "$dev"
    same "$mode: read-only as asked" "$(blockdev --getro "$path")" "$([ $mode = ro ] && echo 1 || echo 0)"
    same "$mode: the volume itself is not" "$(blockdev --getro "$dev")" 0
    if [ $mode = rw ]; then
        echo changed | dd of="$path" conv=fsync status=none
        check "rw: a write goes to the overlay only" cmp <(head -c 8 "$dev") <(head -c 8 /dev/zero)
    fi
    call --hook "$WORK/hook" unexpose "$x"
    same "$mode: gone afterwards" "$(losetup -n -O BACK-FILE | grep -c "$a") $(call --hook "$WORK/hook" exposures |
        wc -l)" "0 0"
    expect "$mode: again: gone already" 0 -- call --hook "$WORK/hook" unexpose "$x"
done
a=$(uuid); call --hook "$WORK/hook" expose "$n" overlay rw "$a" >/dev/null
call --hook "$WORK/hook" unexpose \
    "$(jq -nc --arg a "$a" '{mechanism: "native", read_only: false, path: "", handle: "", alias: $a, class: "raw",
        where: "", size: 0, copied: 0, seconds: 0}')"
same "removed by its alias alone" "$(call --hook "$WORK/hook" exposures | wc -l)" 0
a=$(uuid)
for point in overlay-asked overlay-made; do
    SNAPFERRY_CRASH_AT=$point call --hook "$WORK/hook" expose "$n" overlay rw "$a" >/dev/null 2>&1
    same "killed at $point: the sweep sees all that is there" "$(call --hook "$WORK/hook" exposures | wc -l)" \
        "$(losetup -n -O BACK-FILE | grep -c "$WORK/cow-")"
done
expect "the same call again" 0 -- call --hook "$WORK/hook" expose "$n" overlay rw "$a"
x=$(call --hook "$WORK/hook" exposures)
{ SNAPFERRY_CRASH_AT=overlay-removed call --hook "$WORK/hook" unexpose "$x"; } >/dev/null 2>&1
same "killed at overlay-removed: it is gone" "$? $(call --hook "$WORK/hook" exposures | wc -l)" "137 0"
expect "removing it again is no error" 0 -- call --hook "$WORK/hook" unexpose "$x"
check "the whole suite with overlays" "$TOOLS/driver_suite" --driver device --match "$dev" \
    --volume "$dev" --hook "$WORK/hook"

# Hooks that lie.
lie() {
    printf '#!/bin/bash\ncat >/dev/null\n[ "$1" = create ] || exit 0\n%s\n' "$1" >"$WORK/liar"
    chmod 755 "$WORK/liar"
}
truncate -s 8M "$WORK/small"; small=$(loop_device "$WORK/small"); at_exit "losetup -d $small"
liar() {
    local name=$1 what=$2
    lie "$3"
    expect "a hook that $name" 1 "$what" -- call --hook "$WORK/liar" expose "$n" overlay ro "$(uuid)"
}
liar "names the volume itself" 'is the volume itself' "echo '{\"device\": \"$dev\"}'"
truncate -s 16M "$WORK/open"; open=$(loop_device "$WORK/open"); at_exit "losetup -d $open"
liar "names a writable one where it was to be read-only" 'is not read-only' \
    "echo '{\"device\": \"$open\"}'"
liar "names a device of another size" 'has 8388608 bytes, the volume 16777216' "echo '{\"device\": \"$small\"}'"
truncate -s 16M "$WORK/busy"; busy=$(loop_device "$WORK/busy"); at_exit "losetup -d $busy"
mkfs.ext4 -q "$busy"; mount "$busy" "$WORK/mnt"; at_exit "umount -l $WORK/mnt"
liar "names somebody else's device" "in use .mounted at $WORK/mnt" "echo '{\"device\": \"$busy\"}'"
liar "names a file" 'not a block device' "echo '{\"device\": \"$WORK/raw\"}'"
liar "names nothing" 'is missing' "echo '{}'"
liar "says nonsense" 'not a JSON object' 'echo hello'
liar "says nothing" 'not a JSON object' ':'
liar "fails and says why" 'exit status 3: no room' 'echo "{\"error\": \"no room\"}"; exit 3'
liar "floods its output" 'overlay hook' 'yes'
same "after all of these the volume is as writable as before" \
    "$(blockdev --getro "$dev") $(blockdev --getro "$busy") $(blockdev --getro "$open")" "0 0 0"
chmod 777 "$WORK/liar"
if call --hook "$WORK/liar" expose "$n" overlay ro "$(uuid)" >"$WORK/out" 2>&1; then fail \
    "a hook that others may write to is not run"; else
    check "a hook that others may write to is not run" grep -q 'is writable by others' "$WORK/out"; fi
finish
