#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Restores to images of Ceph by driver rbd, on a real cluster: new images, images that exist, what is refused, and that
# after a kill at each step nothing is left, nothing of others is lost, and the same call completes it. (CF-51, CF-27,
# CF-33, RS-12, RS-20, RS-21, PVC-21)
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
TOOLS=${TOOLS:-$(realpath "${BUILD:-build}")/tests/tools}
rbd_need vms nix
other_node() { call --node node2 "$@"; }
uuid() { cat /proc/sys/kernel/random/uuid; }
MIB=1048576
SIZE=$((20 * MIB + 512))
# Data at both ends, and a hole of several objects.
truncate -s $SIZE "$WORK/disk"
random_file "$WORK/part" $((3 * MIB)) 1
dd if="$WORK/part" of="$WORK/disk" bs=1M seek=1 conv=notrunc status=none
dd if="$WORK/part" of="$WORK/disk" bs=512 seek=$((20 * 2048 - 9)) count=10 conv=notrunc status=none
# target NAME MODE [ALIAS]: sets T.
target() { T=$(call target "$1" $SIZE "${3:-$(uuid)}" "$2"); }
holds() { cmp <(rbd export --no-progress "$1" -) "$2"; } # IMAGE FILE
images() { rbd ls --format json vms | jq -r '.[]' | sort | xargs; }
meta() { rbd image-meta ls "$1" --format json 2>/dev/null | jq -r 'keys[]' | xargs; }
snaps() { rbd snap ls --all "$1" --format json | jq -r '.[].name' | sort | xargs; }
used() { rbd du "$1" --format json | jq '[.images[] | select(.snapshot == null) | .used_size] | add'; }
DONE=snapferry.restored

# ---- a new image ----
A=$(uuid)
target vms/new keep "$A"
same "it is made under a name of ours" "$(images)" "snapferry-$A"
same "which has the tag" "$(meta "vms/snapferry-$A")" "snapferry.restore.$A"
same "of the right size" "$(rbd info "vms/snapferry-$A" --format json | jq .size)" $SIZE
same "it is no volume" "$(call volumes)" ""
same "the sweep knows it" "$(call exposures | jq -r .alias)" "$A"
same "and that of another node does not" "$(other_node exposures)" ""
same "the same call finds it" "$(call target vms/new $SIZE "$A" keep)" "$T"
check "it is filled" call pour "$T" <"$WORK/disk"
check "and put into place" call commit "$T"
same "under its name" "$(images)" new
check "with the same bytes" holds vms/new "$WORK/disk"
# Data is in four objects of six, of 4 MiB each.
check "what is zero holds no space" test "$(used vms/new)" -le $((16 * MIB))
same "nothing of ours is left but the name of the restore" "$(meta vms/new) $(call exposures)" "$DONE "
same "it is a volume" "$(call volumes | jq -r '"\(.name) \(.labels)"')" "vms/new pool:vms"
check "a second commit is no error" call commit "$T"
check "nor an abort after that" call abort "$T"
check "which takes nothing back" holds vms/new "$WORK/disk"
target vms/gone keep
check "aborted" call abort "$T"
same "nothing is left" "$(images)" new
check "again" call abort "$T"
rbd namespace create vms/lab
target vms/lab/one keep
check "in a namespace: filled" call pour "$T" <"$WORK/disk"
check "and put into place" call commit "$T"
check "with the same bytes" holds vms/lab/one "$WORK/disk"
expect "an image that exists is refused" 17 'vms/new exists .*allow it to be overwritten' -- call target vms/new $SIZE \
    "$(uuid)" keep
expect "a name that is reserved" 2 'reserved' -- call target vms/snapferry-x $SIZE "$(uuid)" keep
expect "no pool" 16 'there is no pool' -- call target nosuch/x $SIZE "$(uuid)" keep
expect "no namespace" 16 'no such namespace' -- call target vms/nosuch/x $SIZE "$(uuid)" keep
expect "no right to write" 20 'profile rbd' -- rbd_call --option ceph-user=other \
    --match 'vms/*' target vms/x $SIZE "$(uuid)" keep
target vms/late keep
call pour "$T" <"$WORK/disk"
rbd create -s 8M vms/late
expect "a name that somebody else has got meanwhile" 17 'another image has got that name' -- call commit "$T"
same "which is left to him" "$(rbd info vms/late --format json | jq .size)" $((8 * MIB))
call abort "$T"
same "and the target goes" "$(images)" "late new"
rbd rm --no-progress vms/late

# ---- an image that exists ----
rbd create -s 32M vms/web
rbd_io vms/web w:0:33554432
rbd snap create --no-progress vms/web@theirs
rbd image-meta set vms/web owner jane >/dev/null
N=$(call snapshot vms/web "$(uuid)")
rbd_io vms/web w:4194304:8192
rbd export --no-progress vms/web - >"$WORK/old"
id=$(rbd info vms/web --format json | jq -r .id)
all="$(snaps vms/web)"
A=$(uuid)
target vms/web overwrite "$A"
check "nothing is done to an image that is to be replaced" holds vms/web "$WORK/old"
same "but that it has a tag" "$(meta vms/web | xargs -n 1 | grep -c "snapferry.restore.$A\$")" 1
expect "a second restore into it is refused" 17 'a restore into it has not ended' -- call target vms/web $SIZE \
    "$(uuid)" overwrite
check "it is filled" call pour "$T" <"$WORK/disk"
same "what it was before is a snapshot" "$(snaps vms/web | xargs -n 1 | grep before)" "snapferry-before-$A"
check "and put into place" call commit "$T"
check "with the same bytes, and the size of the backup" holds vms/web "$WORK/disk"
check "what was overwritten with zeros holds no space" test "$(used vms/web)" -le $((16 * MIB))
same "it is the same image" "$(rbd info vms/web --format json | jq -r .id)" "$id"
same "with all its snapshots, and no other" "$(snaps vms/web)" "$all"
check "of which nothing was lost" eval 'cmp -n $((4 * MIB)) <(rbd export --no-progress vms/web@theirs -) "$WORK/old"'
same "and its metadata" "$(meta vms/web)" "owner snapferry.native.$(jq -r .alias <<<"$N") $DONE"
M=$(call snapshot vms/web "$(uuid)")
check "what a restore has changed is listed" grep -qx listed <(call changed "$N" "$M")
call remove "$M" >/dev/null
# Aborted: it is what it was.
rbd resize --no-progress -s 32M vms/web
rbd_io vms/web w:0:33554432
rbd export --no-progress vms/web - >"$WORK/old"
target vms/web overwrite
check "one that was not written to: aborted" call abort "$T"
same "leaves no tag" "$(meta vms/web | xargs -n 1 | grep -c "restore\.")" 0
target vms/web overwrite
call pour "$T" <"$WORK/disk"
check "one that is half done: aborted" call abort "$T"
check "it is what it was before" holds vms/web "$WORK/old"
same "with all its snapshots, and no other" "$(snaps vms/web)" "$all"
same "and no tag" "$(meta vms/web | xargs -n 1 | grep -c "restore\.")" 0
# A range keeps the rest, and grows what is too small.
T=$(call target vms/web $((6 * MIB)) "$(uuid)" patch)
same "a range: the rest stays" "$(jq .size <<<"$T")" $((32 * MIB))
head -c $((6 * MIB)) "$WORK/disk" | call pour "$T"
call commit "$T"
check "as it was" eval 'cmp -i $((6 * MIB)) <(rbd export --no-progress vms/web -) "$WORK/old"'
check "and what was written is there" cmp -n $((6 * MIB)) <(rbd export --no-progress vms/web -) "$WORK/disk"
rbd create -s 8M vms/small
target vms/small update
call pour "$T" <"$WORK/disk"
same "an image that is too small grows" "$(rbd info vms/small --format json | jq .size)" $SIZE
call abort "$T"
same "and is as before after an abort" "$(rbd info vms/small --format json | jq .size)" $((8 * MIB))
# A clone.
rbd snap protect vms/web@theirs
rbd clone vms/web@theirs vms/clone
target vms/clone overwrite
call pour "$T" <"$WORK/disk"
call commit "$T"
check "a clone: zeros hide what is its parent's" holds vms/clone "$WORK/disk"

# ---- from a native snapshot ----
rbd create -s 24M vms/src
rbd_io vms/src w:1048576:3145728 w:20971520:1000
rbd export --no-progress vms/src - >"$WORK/src"
N=$(call snapshot vms/src "$(uuid)")
rbd_io vms/src w:0:8388608
# to_native NAME MODE: sets T, a target for it.
to_native() { T=$(call target "$1" $((24 * MIB)) "$(uuid)" "$2"); }
to_native vms/again keep
check "a new image is filled from a native snapshot" call fill "$N" "$T"
check "again" call fill "$N" "$T"
check "and put into place" call commit "$T"
check "with the same bytes" holds vms/again "$WORK/src"
check "what is zero holds no space" test "$(used vms/again)" -le $((8 * MIB))
check "it depends on nothing: the snapshot can be removed" eval '[ "$(rbd info vms/again --format json |
    jq .parent)" = null ]'
rbd_io vms/again w:0:25165824
to_native vms/again overwrite
check "one that exists is filled from it" call fill "$N" "$T"
check "and put into place" call commit "$T"
check "zeros where the snapshot has none" holds vms/again "$WORK/src"
rbd export --no-progress vms/src - >"$WORK/new"
to_native vms/src overwrite
check "the image itself is filled from it" call fill "$N" "$T"
check "and is as it was then" holds vms/src "$WORK/src"
check "with an abort it is as before that" call abort "$T"
check "bit for bit" holds vms/src "$WORK/new"
to_native vms/src overwrite
call fill "$N" "$T"
before=snapferry-before-$(jq -r .handle <<<"$T" | tail -c 37)
# Of 24 MiB there are 8 that differ: two objects.
check "only what differs is written" test \
    "$(rbd diff --from-snap "$before" vms/src --format json | jq '[.[].length] | add')" -le $((8 * MIB))
check "it is put into place" call commit "$T"
check "as it was at that time" holds vms/src "$WORK/src"
same "the native snapshot stays" "$(call list | jq -r .alias | grep -c "$(jq -r .alias <<<"$N")")" 1
target vms/late keep
expect "of another size" 2 'has 25165824 bytes, the target' -- call fill "$N" "$T"
call abort "$T"
to_native vms/late keep
call remove "$N" >/dev/null
expect "one that is gone" 2 'is not in the cluster of storage class' -- call fill "$N" "$T"
call abort "$T"
rbd rm --no-progress vms/src
rbd rm --no-progress vms/again

# ---- who else uses it ----
rbd_hold vms/small "$WORK/stored"
expect "an image that is in use is refused" 17 'vms/small is in use by client.*stop its user' -- \
    call target vms/small $SIZE "$(uuid)" overwrite
same "and nothing is left in it" "$(meta vms/small)" ""
rbd_let_go vms/small
# More clients than fit in one answer.
LD_LIBRARY_PATH=$CEPH_LIBS /usr/bin/python3 tests/tools/rbd.py "$ceph_dir/ceph.conf" watch vms/small 70 "$WORK/open" &
rbd_writer=$!
disown $rbd_writer
at_exit "kill -KILL $rbd_writer 2>/dev/null"
for i in $(seq 300); do [ -e "$WORK/open" ] && break; sleep 0.1; done
expect "nor one that many have open" 17 'vms/small is in use by 7[01] clients' -- \
    call target vms/small $SIZE "$(uuid)" overwrite
same "which is in use" "$(call resolve vms/small | jq .in_use)" true
same "and nothing is left in it" "$(meta vms/small)" ""
rbd_let_go vms/small
target vms/small overwrite
rbd_hold vms/small "$WORK/stored"
expect "nor is one written to that is in use since" 17 'is in use by' -- call pour "$T"
rbd_let_go vms/small
# While it is written others can open it, and not write.
{ head -c 4M "$WORK/disk"; sleep 5; tail -c +$((4 * MIB + 1)) "$WORK/disk"; } | call pour "$T" &
pouring=$!
sleep 2
expect "while it is restored nobody else can write" 1 . -- rbd_io vms/small w:0:4096
wait $pouring
same "the restore does not notice" $? 0
# Somebody starts his machine on what a restore has left: nothing is rolled back under it, nor later.
rbd_hold vms/small "$WORK/stored"
expect "an abort under a user leaves it alone" 14 'left as it is, incomplete.*rbd snap rollback' -- call abort "$T"
rbd_let_go vms/small
rbd export --no-progress vms/small - >"$WORK/used"
expect "and later, too" 14 'left as it is' -- call abort "$T"
check "what he wrote is there" holds vms/small "$WORK/used"
alias=$(jq -r .handle <<<"$T" | tail -c 37)
rbd snap rm --no-progress "vms/small@snapferry-before-$alias"
rbd image-meta rm vms/small "snapferry.restore.$alias"
check "until the administrator has decided" call abort "$T"
rbd feature disable vms/small exclusive-lock 2>/dev/null || rbd feature disable vms/small fast-diff object-map \
    exclusive-lock
expect "an image that cannot be locked is refused" 17 'rbd feature enable vms/small exclusive-lock' -- \
    call target vms/small $SIZE "$(uuid)" overwrite
rbd feature enable vms/small exclusive-lock
rbd lock add vms/small mine
expect "one that somebody has locked, too" 17 'cannot be locked' -- call target vms/small $SIZE "$(uuid)" overwrite
same "none of them has a tag of ours" "$(meta vms/small | xargs -n 1 | grep -c "restore\.")" 0

# ---- a kill at each step ----
die() { local at=$1; shift; { SNAPFERRY_CRASH_AT=$at "$@"; } >/dev/null 2>&1 && wrong+="$at: not reached "; }
before="$(images)"
wrong=""
for point in created tagged made; do
    for way in again abort sweep; do
        case $point.$way in created.abort | tagged.again | made.abort) continue ;; esac
        A=$(uuid)
        die rbd-target-$point call target vms/k $SIZE "$A" keep
        [ "$(call exposures | jq -r .alias)" = "$A" ] || wrong+="$point: the sweep does not see it "
        case $way in
        sweep) call unexpose "$(call exposures)" || wrong+="$point: not swept " ;;
        *)
            target vms/k keep "$A" || wrong+="$point: not again "
            [ $way = abort ] || { call pour "$T" <"$WORK/disk" && call commit "$T" && holds vms/k "$WORK/disk" &&
                rbd rm --no-progress vms/k; } || wrong+="$point: not completed "
            [ $way = again ] || call abort "$T" || wrong+="$point: not aborted "
            ;;
        esac
        [ "$(images)" = "$before" ] || wrong+="$point, $way: left: $(images) "
    done
done
for point in renamed noted; do
    for way in commit abort sweep; do
        [ $point.$way != noted.sweep ] || continue
        target vms/k keep
        call pour "$T" <"$WORK/disk"
        die rbd-target-$point call commit "$T"
        case $way in
        sweep) call unexpose "$(call exposures)" || wrong+="$point: not swept " ;;
        *) call $way "$T" || wrong+="$point: no $way " ;;
        esac
        holds vms/k "$WORK/disk" || wrong+="$point, $way: not complete "
        [ "$(meta vms/k) $(call exposures)" = "$DONE " ] || wrong+="$point, $way: left: $(meta vms/k) "
        rbd rm --no-progress vms/k
    done
done
target vms/k keep
call pour "$T" <"$WORK/disk"
die rbd-target-discarded call abort "$T"
call abort "$T" || wrong+="discarded: not again "
[ "$(images)" = "$before" ] || wrong+="discarded: left: $(images) "
same "a new image: after a kill at each step all is completed or gone" "$wrong" ""

wrong=""
rbd create -s 16M vms/k
rbd_io vms/k w:0:16777216
rbd snap create --no-progress vms/k@theirs
rbd export --no-progress vms/k - >"$WORK/old"
# left NAME: nothing of ours is in the image.
left() {
    [ "$(snaps vms/k)" = theirs ] || wrong+="$1: left: $(snaps vms/k) "
    [ -z "$(meta vms/k | xargs -n 1 | grep -v $DONE)" ] || wrong+="$1: left: $(meta vms/k) "
    [ -z "$(call exposures)" ] || wrong+="$1: $(call exposures) "
}
for point in claimed snapped kept grown; do
    for way in again abort; do
        case $point.$way in claimed.again | grown.abort) continue ;; esac
        A=$(uuid)
        if [ $point = claimed ]; then
            die rbd-target-$point call target vms/k $SIZE "$A" overwrite
        else
            target vms/k overwrite "$A"
            die rbd-target-$point call pour "$T" <"$WORK/disk"
        fi
        target vms/k overwrite "$A" || wrong+="$point: not again "
        if [ $way = abort ]; then
            call abort "$T" || wrong+="$point: not aborted "
        else
            call pour "$T" <"$WORK/disk" || wrong+="$point: not filled "
            call abort "$T" || wrong+="$point: not aborted when it was filled "
        fi
        holds vms/k "$WORK/old" || wrong+="$point, $way: not as before "
        left "$point, $way"
    done
done
for point in reverted dropped; do
    target vms/k overwrite
    call pour "$T" <"$WORK/disk"
    die rbd-target-$point call abort "$T"
    call abort "$T" || wrong+="$point: not again "
    holds vms/k "$WORK/old" || wrong+="$point: not as before "
    left "$point"
done
same "in place: after a kill at each step it is as it was" "$wrong" ""
wrong=""
for point in shrunk committed dropped noted; do
    for way in commit abort; do
        case $point.$way in dropped.abort | noted.commit) continue ;; esac
        rbd resize --no-progress -s 32M vms/k
        target vms/k overwrite
        call pour "$T" <"$WORK/disk"
        die rbd-target-$point call commit "$T"
        # Until it is noted as complete it may be taken back.
        call $way "$T" || wrong+="$point: no $way "
        if [ $point$way = shrunkabort ]; then
            [ "$(rbd info vms/k --format json | jq .size)" = $((32 * MIB)) ] || wrong+="$point: not taken back "
        else
            holds vms/k "$WORK/disk" || wrong+="$point, $way: not complete "
        fi
        left "$point, $way"
    done
done
same "and on its way into place it is completed, or taken back" "$wrong" ""

# A server that is killed: the next one waits until Ceph has dropped it, and goes on.
target vms/k overwrite
{ head -c 4M "$WORK/disk"; sleep 30; } | call pour "$T" 2>/dev/null &
pouring=$!
disown $pouring
server() { pgrep -f "snapferry-rbd .*$ceph_dir/ceph.conf.* fill"; }
for i in $(seq 100); do server >/dev/null && break; sleep 0.1; done
sleep 1
kill -KILL "$(server)"
kill $pouring
check "a server that is killed: the next one goes on" call pour "$T" <"$WORK/disk"
# One without a record is left to the administrator.
expect "the sweep rolls nothing back" 20 'left alone.*rbd snap rollback' -- call unexpose "$(call exposures)"
check "nor does it remove what it was before" grep -q before <<<"$(snaps vms/k)"
check "its own operation may" call abort "$T"
same "a server ends with its client" "$(server)" ""
# A mover is not trusted: what it sends must not matter, and what is beyond the target cannot be written.
seed=${SEED:-$RANDOM}
echo "# SEED=$seed"
T=$(call target vms/k $SIZE "$(uuid)" patch)
alias=$(jq -r .handle <<<"$T" | tail -c 37)
same "a hostile client is refused" "$(timeout 240 /usr/bin/python3 tests/tools/rbd-client.py "$seed" \
    "$(jq .size <<<"$T")" "$SNAPFERRY_RBD" --config "$ceph_dir/ceph.conf" --user snapferry fill vms "" \
    "$(rbd info vms/k --format json | jq -r .id)" "snapferry.restore.$alias" "snapferry-before-$alias" 2>&1)" "done"
call abort "$T"
# What the tag of another image, node or cluster says is of no interest.
target vms/k overwrite
rbd deep cp --no-progress vms/k vms/copied
same "a copy of it is no target" "$(call exposures | jq -r .where)" vms/k
same "nor is it one of another node" "$(other_node exposures)" ""
call abort "$T"
same "nothing is left" "$(call exposures)" ""
finish
