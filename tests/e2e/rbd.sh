#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver rbd on a real cluster of Ceph: volumes, points in time of images that are written to meanwhile, what changed
# between two of them, refusals, other tools, and that nothing of ours is left in an image after a kill at each step.
# (CF-08, CF-09, CF-10, CF-13, RS-12, RS-13, RS-20, RS-21)
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
TOOLS=${TOOLS:-$(realpath "${BUILD:-build}")/tests/tools}
rbd_need vms nix
uuid() { cat /proc/sys/kernel/random/uuid; }
# bytes SNAPSHOT FILE: what a mover would read of it.
bytes() {
    local x
    x=$(call expose "$1" native ro "") || return
    call cat "$x" >"$2"
}
# ours IMAGE: snapshots and metadata of ours.
ours() {
    rbd snap ls --all "$1" --format json | jq -r '.[].name | select(startswith("snapferry"))'
    rbd image-meta ls "$1" --format json | jq -r 'keys[] | select(startswith("snapferry.native"))'
}

rbd create -s 64M vms/web1
rbd create -s 16M vms/web2
rbd create -s 8M nix/data
rbd namespace create vms/lab
rbd create -s 8M vms/lab/db
rbd image-meta set vms/web2 snapferry.tag "gold night" >/dev/null
rbd image-meta set nix/data owner jane >/dev/null

# ---- volumes ----
names() { rbd_call "$@" volumes | jq -r .name | xargs; }
same "images of a pool are volumes" "$(call volumes | jq -r '"\(.name) \(.size)"' | xargs)" \
    "vms/web1 67108864 vms/web2 16777216"
same "by patterns, in namespaces, too" "$(names --match '*/web?' --match 'vms/*/d*')" "vms/lab/db vms/web1 vms/web2"
same "those of a pool" "$(names --match pool:nix)" nix/data
# By labels the caller chooses.
same "metadata are labels" "$(rbd_call --match 'tag:x' volumes | jq -r '.labels' | sort | xargs)" \
    "pool:nix tag:owner=jane pool:vms pool:vms pool:vms tag:gold tag:night"
# Metadata of others, with keys of any length.
ceph_does meta vms/web2 'long*5000' x
ceph_does meta vms/web2 'long*4095' y
same "long keys of metadata are no hindrance" "$(call resolve vms/web2 | jq -r .labels)" \
    "pool:vms tag:gold tag:night"
V=$(call resolve vms/web1)
id=$(jq -r .id <<<"$V")
check "an id is made of cluster, pool and image" \
    grep -qx "rbd:$(sed -n 's/^fsid = //p' "$ceph_dir/ceph.conf"):[0-9]*:$(rbd info vms/web1 --format json |
        jq -r .id)" <<<"$id"
rbd rename vms/web1 vms/renamed
same "which a rename leaves as it is" "$(call resolve vms/renamed | jq -r .id)" "$id"
rbd rename vms/renamed vms/web1
expect "an image that is not there" 16 'there is no image vms/web9' -- call resolve vms/web9
expect "a pool that is not there" 16 'there is no image nosuch/web9' -- call resolve nosuch/web9
same "nor has a pattern volumes there" "$(rbd_call --match 'nosuch/*' volumes 2>&1)" \
    '# class "gold": ignored: nosuch: there is no such pool in Ceph'
expect "no name of an image" 2 'not of the form POOL/IMAGE' -- call resolve web1
expect "nor a pattern of some" 2 'pattern "web\*" is not of the form' -- rbd_call --match 'web*' abilities
expect "an option that is none" 2 'no option backup-option.user' -- rbd_call --option user=x --match 'vms/*' abilities
expect "a user that is not known" 20 'cannot connect to Ceph as client.nobody' -- \
    rbd_call --option ceph-user=nobody --match 'vms/*' volumes
expect "one without rights to a pool" 20 'profile rbd' -- rbd_call --option ceph-user=other resolve vms/web1
same "whose patterns leave it out" \
    "$(rbd_call --option ceph-user=other --match '*/*' volumes 2>/dev/null | jq -r .name | xargs)" nix/data
expect "no configuration of Ceph" 2 'cannot read /nowhere/ceph.conf' -- \
    "$TOOLS/driver_call" --driver rbd --option ceph-config=/nowhere/ceph.conf --match 'vms/*' volumes
expect "the program is in a package of its own" 19 'the package snapferry-rbd' -- \
    eval 'SNAPFERRY_RBD=/nowhere/snapferry-rbd call abilities'

# ---- points in time, and what changed between them ----
rbd_io vms/web1 w:1048576:3145728 w:20971520:1048576
rbd export --no-progress vms/web1 "$WORK/want"
S=$(call snapshot vms/web1 "$(uuid)") || fail "a snapshot is taken"
same "the same alias finds what was made" "$(call snapshot vms/web1 "$(jq -r .alias <<<"$S")")" "$S"
same "it is a snapshot of the image" "$(ours vms/web1 | xargs)" \
    "snapferry-$(jq -r .alias <<<"$S") snapferry.native.$(jq -r .alias <<<"$S")"
rbd_io vms/web1 w:2097152:65536 w:66060288:1048576 d:20971520:524288
bytes "$S" "$WORK/was"
check "what is read is of its point in time" cmp "$WORK/was" "$WORK/want"
same "what holds nothing is not read" "$(call extents "$(call expose "$S" native ro "")" | xargs -n 3 | tr '\n' ,)" \
    "data 0 4194304,hole 4194304 16777216,data 20971520 1048576,hole 22020096 45088768,"
rbd rename vms/web1 vms/renamed
check "also under another name" eval 'bytes "$S" "$WORK/is" && cmp "$WORK/is" "$WORK/want"'
rbd rename vms/renamed vms/web1

# Written by a client that holds the lock of the image, as a virtual machine does.
rbd create -s 8M vms/busy
LD_LIBRARY_PATH=$CEPH_LIBS /usr/bin/python3 tests/tools/rbd.py "$ceph_dir/ceph.conf" hold vms/busy "$WORK/stored" &
writer=$!
disown $writer
at_exit "kill -KILL $writer"
for i in $(seq 100); do [ "$(wc -l <"$WORK/stored" 2>/dev/null || echo 0)" -gt 20 ] && break; sleep 0.1; done
same "an image that is open is in use" "$(call resolve vms/busy | jq .in_use)" true
before=$(tail -n 1 "$WORK/stored")
B=$(call snapshot vms/busy "$(uuid)")
after=$(tail -n 1 "$WORK/stored")
bytes "$B" "$WORK/busy"
# The highest number in it, and whether the 63 before it are there, too: nothing later without all that was earlier.
/usr/bin/python3 - "$WORK/busy" "$before" "$after" >"$WORK/order" <<'END'
import sys
data = open(sys.argv[1], "rb").read()
n = [int.from_bytes(data[i * 65536:i * 65536 + 8], "little") for i in range(64)]
top = max(n)
whole = sorted(n) == list(range(top - 63, top + 1)) or (top < 64 and sorted(n)[-top:] == list(range(1, top + 1)))
print(whole, int(sys.argv[2]) <= top <= int(sys.argv[3]) + 1)
END
same "an image that is written to is of one point in time" "$(cat "$WORK/order")" "True True"
kill -KILL $writer
call remove "$B" >/dev/null

# Against the images themselves: what the list has, put over what was there before, must be what is there.
seed=${SEED:-$RANDOM} wrong="" rounds=6
RANDOM=$seed
echo "# SEED=$seed"
for ((i = 0; i < rounds; i++)); do
    writes=()
    for ((k = RANDOM % 6; k >= 0; k--)); do
        writes+=("w:$((RANDOM % 16000 * 4096)):$((RANDOM % 50 * 4096 + 4096))"
            "d:$((RANDOM % 15 * 4194304)):$((RANDOM % 64 * 65536 + 65536))")
    done
    rbd_io vms/web1 "${writes[@]}" || wrong+="$i: not written "
    now=$(call snapshot vms/web1 "$(uuid)") || { wrong+="$i: no snapshot "; break; }
    bytes "$now" "$WORK/is" || wrong+="$i: not read "
    rbd export --no-progress vms/web1@snapferry-"$(jq -r .alias <<<"$now")" - | cmp - "$WORK/is" ||
        wrong+="$i: not what is there "
    call changed "$S" "$now" >"$WORK/list"
    [ "$(head -n 1 "$WORK/list")" = listed ] || wrong+="$i: no list "
    tail -n +2 "$WORK/list" | while read -r from len; do
        dd if="$WORK/is" of="$WORK/was" bs=64k iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$from" seek="$from" \
            count="$len" conv=notrunc status=none
    done
    cmp "$WORK/was" "$WORK/is" || wrong+="$i: a change is missing "
    call remove "$S" >/dev/null
    S=$now
    mv "$WORK/is" "$WORK/was"
done
same "$rounds snapshots: of their time, and the changes since the one before" "$wrong" ""
check "a list is not all there is" test "$(tail -n +2 "$WORK/list" | awk '{n += $2} END {print n}')" -lt $((48 << 20))

# An image that was rolled back: its object map says that what was written before is as it was.
rbd snap create --no-progress vms/web1@early
rbd_io vms/web1 w:12582912:4096
T=$(call snapshot vms/web1 "$(uuid)")
rbd snap rollback --no-progress vms/web1@early
U=$(call snapshot vms/web1 "$(uuid)")
check "a rollback is seen" grep -qx '12582912 4096' <(call changed "$T" "$U")
call remove "$T" >/dev/null
call remove "$U" >/dev/null
# Grown, shrunk.
rbd resize --no-progress -s 80M vms/web1
rbd_io vms/web1 w:75497472:65536
T=$(call snapshot vms/web1 "$(uuid)")
same "an image that grew" "$(jq .size <<<"$T") $(call changed "$S" "$T" | tail -n 1)" "83886080 67108863 16777217"
rbd resize --no-progress --allow-shrink -s 32M vms/web1
rbd resize --no-progress -s 64M vms/web1
U=$(call snapshot vms/web1 "$(uuid)")
bytes "$S" "$WORK/was"
bytes "$U" "$WORK/is"
call changed "$S" "$U" | tail -n +2 | while read -r from len; do
    dd if="$WORK/is" of="$WORK/was" bs=64k iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$from" seek="$from" \
        count="$len" conv=notrunc status=none
done
check "one that shrank and grew" cmp "$WORK/was" "$WORK/is"
call remove "$T" >/dev/null
# A clone, what of it is its parent's, and what hides that.
rbd snap protect vms/web1@early
rbd clone vms/web1@early vms/clone
C=$(call snapshot vms/clone "$(uuid)")
bytes "$C" "$WORK/was"
check "a clone is read with what is its parent's" cmp "$WORK/was" <(rbd export --no-progress vms/web1@early -)
rbd_io vms/clone d:0:4194304 w:20971520:4096
D=$(call snapshot vms/clone "$(uuid)")
bytes "$D" "$WORK/is"
call changed "$C" "$D" | tail -n +2 | while read -r from len; do
    dd if="$WORK/is" of="$WORK/was" bs=64k iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$from" seek="$from" \
        count="$len" conv=notrunc status=none
done
check "so is what changed in it" cmp "$WORK/was" "$WORK/is"
call remove "$C" >/dev/null
call remove "$D" >/dev/null

# ---- what is not as it was ----
W=$(call snapshot vms/web2 "$(uuid)")
expect "a snapshot of another image" 0 '^base-other' -- call changed "$S" "$W"
call remove "$W" >/dev/null
T=$(call snapshot vms/web1 "$(uuid)")
oid=$(rbd info vms/web1 --format json | jq -r .id)
snap=$(rbd snap ls vms/web1 --format json |
    jq -r --arg n "snapferry-$(jq -r .alias <<<"$S")" '.[] | select(.name == $n) | .id')
ceph_run rados -p vms rm "$(printf 'rbd_object_map.%s.%016x' "$oid" "$snap")"
rbd object-map check --no-progress vms/web1@snapferry-"$(jq -r .alias <<<"$S")" >/dev/null
expect "an invalid object map is not relied upon" 0 '^uncertain.*object-map rebuild' -- call changed "$S" "$T"
rbd snap rm --no-progress vms/web1@snapferry-"$(jq -r .alias <<<"$S")"
expect "one that somebody has removed neither" 0 '^base-lost' -- call changed "$S" "$T"
expect "it is gone" 16 'no longer on the storage' -- call find "$V" "$(jq -r .alias <<<"$S")"
same "nor is it listed" "$(call list | jq -r .alias | sort)" "$(jq -r .alias <<<"$T$U" | sort)"
same "to remove it is no error" "$(call remove "$S")" gone
# One that goes while it is read: never zeros in its place.
X=$(call expose "$T" native ro "")
mkfifo "$WORK/slow"
call cat "$X" 2>"$WORK/cat.err" >"$WORK/slow" &
reader=$!
{
    head -c 8M >/dev/null
    rbd snap rm --no-progress vms/web1@snapferry-"$(jq -r .alias <<<"$T")"
    cat >/dev/null
} <"$WORK/slow"
wait $reader
same "one that goes while it is read: an error" "$? $(grep -c 'cannot be read any more' "$WORK/cat.err")" "19 1"
call remove "$T" >/dev/null
call remove "$U" >/dev/null

# Nothing of others is touched, and a copy of an image with its snapshots has nothing of ours.
S=$(call snapshot vms/web1 "$(uuid)")
rbd deep cp --no-progress vms/web1 vms/copied
same "a copy has our snapshots" "$(ours vms/copied | wc -l)" 2
same "which are not ours there" "$(call list | jq -r .handle)" "vms/web1@snapferry-$(jq -r .alias <<<"$S")"
expect "and are not removed" 20 'does not have the tag' -- \
    call remove "$(jq -c '.handle |= sub("web1"; "copied") | .alias = "'"$(uuid)"'"' <<<"$S")"
same "nor those of another node" "$(call --node node2 list)" ""
call remove "$S" >/dev/null
same "nothing is left" "$(ours vms/web1)$(call list)" ""
check "but what others have" eval 'rbd snap ls vms/web1 | grep -q early'
rbd snap create --no-progress vms/web2@theirs
rbd snap limit set vms/web2 --limit 1
expect "no more snapshots of an image" 18 'rbd snap limit' -- call snapshot vms/web2 "$(uuid)"
rbd snap limit clear vms/web2
rbd snap rm --no-progress vms/web2@theirs
for one in $(call list | jq -r @base64); do call remove "$(base64 -d <<<"$one")" >/dev/null; done

# ---- why a group is not at one instant: what `rbd group snap` makes is no snapshot as ours ----
rbd group create vms/pair
rbd group image add vms/pair vms/web1
rbd group image add vms/pair vms/web2
rbd group snap create vms/pair@now
of_group=$(rbd snap ls --all vms/web1 --format json | jq -r '.[].name | select(startswith(".group"))')
check "a group snapshot is in its images" test -n "$of_group"
expect "it cannot be removed for one of them" 2 -- rbd snap rm --no-progress "vms/web1@$of_group"
expect "nor can changes since it be listed" 2 -- rbd diff --from-snap "$of_group" vms/web1
rbd group create vms/other
expect "an image is in one group only" 17 -- rbd group image add vms/other vms/web1
same "it is no hindrance to a native snapshot" "$(call remove "$(call snapshot vms/web1 "$(uuid)")")" removed
rbd group rm vms/other
rbd group rm vms/pair
same "and goes with its group" "$(rbd snap ls --all vms/web1 | grep -c '\.group')" 0

# ---- a kill at each step ----
left=""
for point in tagged snapped; do
    alias=$(uuid)
    SNAPFERRY_CRASH_AT=rbd-$point call snapshot vms/web2 "$alias" >/dev/null 2>&1 && left+="$point: not reached "
    [ -n "$(call list | grep "$alias")" ] || left+="$point: not found "
    # Again with the same alias, as after a restart of the daemon; or the sweep.
    A=$(call snapshot vms/web2 "$alias") && [ "$(jq .size <<<"$A")" -eq 16777216 ] || left+="$point: not again "
    call remove "$A" >/dev/null
    alias=$(uuid)
    SNAPFERRY_CRASH_AT=rbd-$point call snapshot vms/web2 "$alias" >/dev/null 2>&1
    call remove "$(call list | grep "$alias")" >/dev/null
    left+=$(ours vms/web2)
done
A=$(call snapshot vms/web2 "$(uuid)")
SNAPFERRY_CRASH_AT=rbd-unsnapped call remove "$A" >/dev/null 2>&1 && left+="not reached "
call remove "$A" >/dev/null || left+="not again "
left+=$(ours vms/web2)
A=$(call snapshot vms/web2 "$(uuid)")
SNAPFERRY_CRASH_AT=rbd-unsnapped call remove "$A" >/dev/null 2>&1
[ -z "$(call list)" ] || left+="a tag alone is listed "
A=$(call snapshot vms/web2 "$(uuid)")
call remove "$A" >/dev/null
same "after a kill at each step of both nothing is left" "$left$(ours vms/web2)" ""

# A server ends with the socket of its client, whoever held that.
servers() { pgrep -fc "snapferry-rbd .*$ceph_dir/ceph.conf.* serve" || true; }
S=$(call snapshot vms/web2 "$(uuid)")
"${RBD_CALL[@]}" --option ceph-user=snapferry --match 'vms/*' cat "$(call expose "$S" native ro "")" >"$WORK/slow" &
reader=$!
disown $reader
exec 7<"$WORK/slow"
for i in $(seq 100); do [ "$(servers)" -gt 0 ] && break; sleep 0.05; done
same "a server for one reader" "$(servers)" 1
kill -KILL $reader
for i in $(seq 100); do [ "$(servers)" -eq 0 ] && break; sleep 0.05; done
same "which ends with it" "$(servers)" 0
exec 7<&-

# A mover is not trusted: what it sends must not matter.
echo "# SEED=$seed"
same "a hostile client is refused" "$(timeout 120 /usr/bin/python3 tests/tools/rbd-client.py "$seed" 16777216 \
    "$SNAPFERRY_RBD" --config "$ceph_dir/ceph.conf" --user snapferry serve vms "" \
    "$(jq -r .change_id <<<"$S" | cut -d: -f4)" "$(jq -r .change_id <<<"$S" | cut -d: -f5)" 2>&1)" "done"
call remove "$S" >/dev/null
finish
