#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# LVM thin on storage that fails or is full: blocks below the pool that cannot be read, a disk that is gone for a while
# or slow; data and metadata of a pool that fill up before, during and after a backup, and under a restore; many
# snapshots of other tools beside ours. Each backup and restore is right or says why not, nothing of ours is left, and
# with more space or a sound disk all works again. (CF-08, CF-27, CF-34, E-04, E-06, E-10, RS-11, RS-30, PVC-02)
VM_DISKS="pv:900M raw:200M"
: "${VM_TIMEOUT:=3000}"
. "$(dirname "$0")/lib.sh"
. tests/vm/lvm-lib.sh
DRIVER=lvm-thin
K=65536
B64=$((K / 512)) # a chunk of the pools, in sectors
mkdir -p "$WORK"
step() { echo "# $SECONDS s: $1"; }

# ---- volumes and pools ----

# put BLOCK COUNT VOLUME: random data into blocks of 64 KiB
put() { dd if=/dev/urandom of="$3" bs=$K seek="$1" count="$2" oflag=direct status=none; }
keep() { dd if="$1" of="$2" bs=1M iflag=direct status=none; } # what a volume has now
percent() { lvs --noheadings -o data_percent "$1" | awk '{printf "%d", $1 * 100}'; }
# A field of the status of a pool in vg-0; those of data and metadata are USED/TOTAL.
pool() { dmsetup status "vg--0-$1-tpool" | awk -v n="$2" '{print $n}'; }
mode() { dmsetup status --noflush "vg--0-$1-tpool" | awk '{print $8}'; }
# zeros POOL VOLUME PERCENT: into the volume, from its beginning, until so much of the data of the pool is used
zeros() {
    local data
    data=$(pool "$1" 6)
    dd if=/dev/zero of="/dev/vg-0/$2" bs=$K count=$((${data#*/} * $3 / 100 - ${data%/*})) oflag=direct status=none
}

# ---- the service ----

# policy VOLUME [LINE...]: what holds for the volume beside its class, from now on
policy() {
    local name=$1
    shift
    config_add "volume-${name##*/}" "$(printf '[volume "%s"]\n' "$name"; [ $# -eq 0 ] || printf '%s\n' "$@")"
}
reload() { systemctl reload snapferryd; }
# run [ARGS...]: a backup that has ended. Sets B, and OPS (documents of its operations).
run() {
    B=$(askj backup "$@" --wait | jq -r .id)
    OPS=$(ops "$B")
}
op() { jq -rc "$1" <<<"$OPS"; }
# image_is FILE [OPERATION]: the snapshot of the backup in the repository has these bytes
image_is() {
    local o=${2:-$(op .id)}
    sf "$REPO" restore "$(doc "$o" | jq -r .result.snapshotID)" /srv/restored --force --quiet &&
        cmp /srv/restored "$1"
}
# restore ARGS...: one that has ended. Sets C, RC, SAID.
restore() {
    local out
    out=$(ask restore "$@" --from repository --wait --json 2>"$WORK/said")
    RC=$?
    C=$(result id <<<"$out")
    SAID=$(cat "$WORK/said")
}
target_state() { doc "$(op_id "$1")" | jq -r .target_state; }
problem() { askj status | jq -r '.problems[].text' | grep -E "$1"; }
natives() { sql "SELECT id FROM natives WHERE state = 'present' AND parent = '$1'"; }
# What there is of ours is what the records have: no other volume, no device, no tag of what has ended, no held root.
at_rest() {
    local left bad=0
    left=$(unfinished; sql "SELECT owner || ' ' || kind || ' ' || name FROM intents"); [ -z "$left" ] ||
        { echo "not ended: $left"; bad=1; }
    left=$(tagged | grep -E '^snapferry-(exposed|metadata)'); [ -z "$left" ] || { echo "tags: $left"; bad=1; }
    left=$(dmsetup ls | grep snapferry); [ -z "$left" ] || { echo "devices: $left"; bad=1; }
    left=$(ours | sed 's/^snapferry-//; s/ .*//' | sort)
    [ "$left" = "$(sql "SELECT id FROM natives WHERE state = 'present' ORDER BY id")" ] ||
        { echo "volumes: $left"; echo "records:"; sql "SELECT id, state FROM natives"; bad=1; }
    left=$(dmsetup status --noflush --target thin-pool | awk '$8 != "-" {print $1, $8}')
    [ -z "$left" ] || { echo "held root: $left"; bad=1; }
    left=$(mover_units); [ -z "$left" ] || { echo "units: $left"; bad=1; }
    return $bad
}
rests() { # NAME
    local began=$SECONDS
    until_true 15 at_rest
    check "$1" at_rest
    echo "# after $((SECONDS - began)) s"
}

# ---- a disk with faults ----
# vg-1 lies on a device of device mapper, of which a part can be made unreadable or slow. It begins behind the first MiB
# of the disk: LVM does not see its label twice. Its own first MiB, with what LVM writes, is as good as the disk.
raw=$(realpath "$(dev raw)")
SECTORS=$((160 * 2048))
piece() { echo "$1 $2 linear $raw $(($1 + 2048))"; }
# under healthy | dead | slow MS FROM COUNT | bad FROM COUNT: sectors; what is slow are reads
under() {
    local table from=${3:-} count=${4:-}
    case $1 in
    bad) from=$2 count=$3 ;;
    esac
    case $1 in
    healthy) table=$(piece 0 $SECTORS) ;;
    dead) table="0 $SECTORS error" ;;
    *)
        table="$(piece 0 "$from")
$from $count $([ "$1" = bad ] && echo error || echo "delay $raw $((from + 2048)) $2 $raw $((from + 2048)) 0")"
        [ $((from + count)) -eq $SECTORS ] || table+=$'\n'$(piece $((from + count)) $((SECTORS - from - count))) ;;
    esac
    dmsetup load under --table "$table" && dmsetup suspend --nolockfs under && dmsetup resume under
}
prepare() {
    dmsetup create --uuid SNAPFERRY-TEST-under under <<<"$(piece 0 $SECTORS)" && udevadm settle &&
        pvcreate -q /dev/mapper/under && vgcreate -q vg-1 /dev/mapper/under &&
        lvcreate -q -y -L 64M -c 64k --poolmetadatasize 4M --poolmetadataspare n --thinpool tp vg-1 &&
        lvcreate -q -y -V 8M -T vg-1/tp -n vol || return
    pv=$(realpath "$(dev pv)")
    # Of a pool that is full, the default is that writes wait for a minute.
    pvcreate -q "$pv" && vgcreate -q -s 1m vg-0 "$pv" || return
    local make=(lvcreate -q -y -c 64k --poolmetadataspare n --errorwhenfull y)
    "${make[@]}" -L 40M --poolmetadatasize 2M --thinpool fill vg-0 &&
        "${make[@]}" -L 12M --poolmetadatasize 2M --thinpool tiny vg-0 &&
        "${make[@]}" -L 256M --poolmetadatasize 2M --thinpool meta vg-0 &&
        "${make[@]}" -L 64M --poolmetadatasize 8M --thinpool many vg-0 || return
    lvcreate -q -y -V 16M -T vg-0/fill -n f && lvcreate -q -y -V 4M -T vg-0/fill -n fo &&
        lvcreate -q -y -V 32M -T vg-0/fill -n w && lvcreate -q -y -V 16M -T vg-0/tiny -n t &&
        lvcreate -q -y -V 64M -T vg-0/meta -n m &&
        lvcreate -q -y -V 8M -T vg-0/many -n n
}
prepare >"$WORK/prepare" 2>&1 || { echo "Bail out! no LVM"; sed 's/^/# /' "$WORK/prepare"; exit 1; }
V=/dev/vg-1/vol F=/dev/vg-0/f T=/dev/vg-0/t M=/dev/vg-0/m N=/dev/vg-0/n
setup 'changed-blocks = auto' 'verify-sample = 0' 'retries = 0' 'orphan-grace = 1s'
policy /dev/vg-0/fo 'move-data = no'
policy $M 'pool-high-water = 50'
config_add thin "[storage-class \"thin\"]
driver = lvm-thin
match = $V $F /dev/vg-0/fo $M $N
[storage-class \"in-place\"]
driver = device
match = $T
accept-inconsistent = yes"
config_add jobs '[job "keep-f"]
volumes = /dev/vg-0/f
snapshots-to-retain = 2
[job "keep-m"]
volumes = /dev/vg-0/m
snapshots-to-retain = 2'
expect "the configuration is accepted" 0 -- snapferry check-config
check "reload" reload

# ---- blocks that cannot be read ----
unreadable() {
    local at
    step "unreadable blocks"
    put 0 128 $V
    keep $V /srv/vol
    # The first volume of a pool that is written from its beginning has the chunks of the pool in their order.
    at=$(dmsetup table vg--1-tp_tdata | awk '{print $5}')
    at=$((at + 80 * B64))
    check "bad blocks: chunk 80 of the volume is found on the disk" cmp -n $K -i $((at * 512)):$((80 * K)) \
        /dev/mapper/under /srv/vol
    under bad $at 16
    check "bad blocks: it cannot be read" eval \
        "! dd if=$V of=/dev/null bs=4K skip=$((80 * K / 4096)) count=1 iflag=direct 2>/dev/null"
    run $V
    same "bad blocks: the backup fails" "$(op .state)" Failed
    check "bad blocks: it says what and where: $(op .error.message)" eval \
        'op .error.message | grep -qE "cannot read bytes $((80 * K)) to .*Input/output error"'
    expect "bad blocks: the class is the source's" 19 -- ask wait "$B"
    same "bad blocks: the repository has no snapshot of it" \
        "$(sf "$REPO" snapshot list --json | result 'snapshots | length')" 0
    rests "bad blocks: nothing is left of the failed one"

    policy $V 'bad-reads = map'
    check "bad blocks, bad-reads = map" reload
    run $V
    same "bad blocks, map: what it has is said to be a part" "$(state "$B") $(op .state)" "PartiallyFailed Completed"
    same "bad blocks, map: the record has the range" \
        "$(op '[.. | .badRanges? // empty] | first | map([.[0], .[1]])')" "[[$((80 * K)),8192]]"
    cp /srv/vol /srv/expected
    dd if=/dev/zero of=/srv/expected bs=8K seek=$((80 * K / 8192)) count=1 conv=notrunc status=none
    check "bad blocks, map: zeros for it, and the right bytes elsewhere" image_is /srv/expected
    rests "bad blocks, map: nothing is left"

    under healthy
    put 20 1 $V
    keep $V /srv/vol
    run $V
    same "sound again: it is incremental" "$(op '[.state, .fullReason, .listedBytes / 65536]')" '["Completed",null,1]'
    check "sound again: what could not be read counts as changed, too: the image is whole" image_is /srv/vol
    rests "sound again: nothing is left"

    # The disk of the whole group gives nothing for a while: LVM does not find the group.
    step "a disk that is gone for a while"
    kept=$(lvs --noheadings -o lv_full_name,lv_uuid,lv_tags vg-1 | sort)
    under dead
    expect "the disk is gone: a backup is refused, in words" 16 "no logical volume $V: there is no such volume" -- \
        ask backup $V --wait
    ask scan --wait --quiet >/dev/null 2>&1
    under healthy
    check "the disk is back: LVM sees the group" until_true 20 eval 'lvs vg-1/vol'
    same "the disk is back: nothing of ours was removed meanwhile" \
        "$(lvs --noheadings -o lv_full_name,lv_uuid,lv_tags vg-1 | sort)" "$kept"
    check "the disk is back: it is looked at" ask scan --wait --quiet
    put 100 2 $V
    keep $V /srv/vol
    run $V
    same "the disk is back: the backup is incremental" "$(op '[.state, .fullReason]')" '["Completed",null]'
    check "the disk is back: and right" image_is /srv/vol
    rests "the disk is back: nothing is left"
}

# ---- a slow disk ----
slow() {
    local from began took
    step "a slow disk"
    under slow 100 2048 $((SECTORS - 2048))
    began=$SECONDS
    run $V --full
    echo "# a backup of 8 MiB in $((SECONDS - began)) s with 100 ms for each read"
    same "a slow disk: Completed" "$(op .state)" Completed
    check "a slow disk: and right" image_is /srv/vol

    # The data of the pool alone: its metadata, which LVM waits for, are elsewhere.
    from=$(dmsetup table vg--1-tp_tdata | awk '{print $5}')
    # LVM and the kernel read a new snapshot, too.
    policy $V "$SLOWLY" 'snapshot-timeout = 10min'
    check "reload" reload
    under slow 1000 "$from" $((64 * 2048))
    moving $V --full
    check "slower still: in the middle of it" until_true 20 eval \
        '[ "$(doc "$O" | jq -r ".progress.done // 0")" -gt 0 ]'
    began=$SECONDS
    ask cancel "$A" --quiet
    same "slower still: it can be canceled" "$(wait_state "$O" Canceled 60)" Canceled
    took=$((SECONDS - began))
    check "slower still: within 20 s, of which 1 is the read's ($took s)" test $took -le 20
    rests "slower still: nothing is left, while the disk is as slow"
    under healthy
    policy $V
    check "reload" reload
    same "slower still: no native snapshot stays but that of the backup before" "$(natives_of $V | wc -l)" 1
}

# ---- the data of a pool is full ----
full() {
    local first only line id
    step "a pool without room"
    put 0 256 $F
    put 0 8 /dev/vg-0/fo
    run /dev/vg-0/fo
    same "snapshots alone: Completed" "$(op .state)" Completed
    only=$(natives "$B")
    zeros fill w 97
    run $F
    same "97 % of the data: the backup is refused" "$(op '[.state, .error.class]')" '["Failed","no-space"]'
    check "97 % of the data: in words: $(op .error.message)" eval \
        'op .error.message | grep -qE "the data of thin pool vg-0/fill is 9[67]\.. % full"'
    check "97 % of the data: and what to do: $(op .error.hint)" eval 'op .error.hint | grep -q "lvextend --size"'
    expect "97 % of the data: its exit code" 18 -- ask wait "$B"
    run /dev/vg-0/fo
    check "over the mark: no second only copy: $(op .error.message)" eval \
        'op .error.message | grep -qE "pool is 9[67] % full .pool-high-water is 85 %. and the volume.s snapshots are"'
    same "over the mark: the first one stays" "$(natives_of /dev/vg-0/fo)" "$only"
    rests "97 % of the data: nothing is left"

    blkdiscard /dev/vg-0/w
    run --job keep-f
    first=$(natives "$B")
    put 0 256 $F
    zeros fill w 96
    line=$(percent vg-0/fill)
    check "more than 95 % of it again ($line)" test "$line" -ge 9500
    keep $F /srv/f
    run --job keep-f
    same "95 %, and a retained one that has 40 % alone: pruned, and Completed" "$(op '[.state, .fullReason]')" \
        '["Completed","no-parent"]'
    check "95 %: the older one is no longer there" eval '! lvs "vg-0/snapferry-$first"'
    check "95 %: the image is right" image_is /srv/f
    same "95 %: one is kept" "$(natives_of $F)" "$(natives "$B")"
    rests "95 %: nothing is left"

    # It fills while a mover reads. The writer gets an error, the snapshot has all that it needs.
    step "it fills during a backup"
    blkdiscard /dev/vg-0/w
    policy $F "$SLOWLY"
    check "reload" reload
    moving $F --full
    put 0 16 $F
    check "filled during a backup: the writer has no more room" eval \
        'dd if=/dev/zero of=/dev/vg-0/w bs=$K count=500 oflag=direct 2>&1 | grep "No space left on device"'
    same "filled during a backup: the pool is out of space" "$(mode fill)" out_of_data_space
    same "filled during a backup: the mover still reads" "$(state "$O")" Running
    became "filled during a backup: Completed" "$O" Completed 120
    check "filled during a backup: it has the bytes of its beginning" image_is /srv/f "$O"
    rests "filled during a backup: nothing is left"
    policy $F
    check "reload" reload
    run $F
    same "full: the next one is refused" "$(op '[.state, .error.class]')" '["Failed","no-space"]'
    check "full: in words: $(op .error.message)" eval \
        'op .error.message | grep -qE "vg-0/fill is (out of data space|9[0-9]\.. % full)"'
    rests "full: nothing is left"
    check "lvextend" lvextend -q -L +20M vg-0/fill
    keep $F /srv/f
    run $F
    same "extended: Completed" "$(op .state)" Completed
    check "extended: and right" image_is /srv/f

    # ---- under a restore ----
    # 16 MiB are to be written beside the volume that is replaced, and there are 12.
    step "it fills under a restore"
    put 20 30 $F
    keep $F /srv/now
    id=$(lvs --noheadings -o lv_uuid vg-0/f)
    dd if=/dev/zero of=/dev/vg-0/w bs=1M count=32 oflag=direct status=none
    echo "# data of the pool before: $(pool fill 6)"
    restore "$B/$F" $F --overwrite
    # The kernel says EIO, and not ENOSPC, of what was written through the page cache.
    check "a restore fills the pool: its exit code ($RC)" eval '[[ $RC =~ ^(17|18)$ ]]'
    check "a restore fills the pool: in words: ${SAID%%$'\n'*}" eval \
        'grep -qE "restore target $F: (No space left on device|Input/output error)" <<<"$SAID"'
    check "a restore fills the pool: where to look" grep -q "its pool is full" "$WORK/said"
    same "a restore fills the pool: its target is untouched, it says" "$(target_state "$C")" untouched
    check "a restore fills the pool: and it is" cmp /srv/now $F
    same "a restore fills the pool: it is the same volume" "$(lvs --noheadings -o lv_uuid vg-0/f)" "$id"
    rests "a restore fills the pool: nothing of the new volume is left"

    # As pools are by default: writes wait, for a minute, for who extends it.
    lvchange -q --errorwhenfull n vg-0/fill
    C=$(askj restore "$B/$F" $F --overwrite --from repository | jq -r .restore)
    check "a pool that waits: it is full in the middle of a restore" until_true 60 eval \
        '[ "$(mode fill)" = out_of_data_space ]'
    same "a pool that waits: so does the restore" "$(state "$(op_id "$C")")" Running
    check "lvextend" lvextend -q -L +24M vg-0/fill
    became "a pool that waits: once it is extended the restore goes on" "$C" Completed 120
    check "a pool that waits: the bytes are those of the backup" cmp /srv/f $F
    check "a pool that waits: the volume was replaced" eval '[ "$(lvs --noheadings -o lv_uuid vg-0/f)" != "$id" ]'
    rests "a pool that waits: nothing of the old volume is left"

    # In place, into a thin volume of 16 MiB in a pool of 12.
    restore "$B/$F" $T --overwrite
    check "in place: its exit code ($RC)" eval '[[ $RC =~ ^(17|18)$ ]]'
    check "in place: in words: ${SAID%%$'\n'*}" eval \
        'grep -qE "restore target $T: (No space left on device|Input/output error)" <<<"$SAID"'
    same "in place: its target is incomplete, it says" "$(target_state "$C")" incomplete
    check "in place: it is" eval "! cmp -s /srv/f $T"
    check "lvextend" lvextend -q -L +8M vg-0/tiny
    restore "$B/$F" $T --overwrite
    same "in place, extended: Completed" "$RC $(target_state "$C")" "0 complete"
    check "in place, extended: the bytes are those of the backup" cmp /srv/f $T
    rests "after the restores nothing is left"
}

# ---- the metadata of a pool is full ----
# Snapshots by another tool, directly in the pool, each of which then has leaves of its own in the tree of its blocks.
used() { dmsetup status --noflush vg--0-meta-tpool | awk '{split($5, x, "/"); printf "%d", x[1] * 100 / x[2]}'; }
message() { dmsetup message vg--0-meta-tpool 0 "$@"; }
scatter() {
    local b
    for b in $(seq 5 125 1023); do
        dd if=/dev/urandom of=$M bs=4K count=1 seek=$((b * 16)) oflag=direct status=none 2>/dev/null || return
    done
}
LAST=100000 # of its thin ids
other_snapshot() { message "create_snap $((LAST += 1)) $1" && scatter; }
# crowd PERCENT: until so much of the metadata is used
crowd() {
    local id
    id=$(lvs --noheadings -o thin_id vg-0/m | tr -d ' ')
    while [ "$(used)" -lt "$1" ] && [ $LAST -lt 100200 ]; do other_snapshot "$id" || return; done
}
thin_out() { while [ "$(used)" -gt "$1" ] && [ $LAST -gt 100000 ]; do message "delete $LAST"; : $((LAST -= 1)); done; }
metadata() {
    local first
    step "a pool with little room for metadata"
    dd if=/dev/zero of=$M bs=1M count=64 oflag=direct status=none
    put 0 16 $M
    run --job keep-m
    first=$(natives "$B")
    crowd 57 # some of it is given back
    echo "# metadata $(pool meta 5), data $(pool meta 6), with $((LAST - 100000)) snapshots of another tool"
    check "the metadata fill up ($(used) %)" test "$(used)" -ge 55
    check "the data do not" test "$(percent vg-0/meta)" -lt 4000
    keep $M /srv/m
    run --job keep-m
    same "55 % of the metadata, with a mark of 50: Completed" "$(op .state)" Completed
    check "55 % of the metadata: the image is right" image_is /srv/m
    same "55 % of the metadata: the retained one was pruned for it" "$(natives_of $M)" "$(natives "$B")"
    check "55 % of the metadata: it is no longer there" eval '! lvs "vg-0/snapferry-$first"'
    check "55 % of the metadata: that is a problem of status" until_true 10 problem 'over its high-water mark of 50 %'

    # LVM itself wants a quarter of it to be free.
    crowd 77
    check "they fill up further ($(used) %)" test "$(used)" -ge 77
    run $M
    same "77 % of the metadata: the backup fails" "$(op '[.state, .error.class]')" '["Failed","no-space"]'
    check "77 % of the metadata: in the words of LVM: $(op .error.message)" eval \
        'op .error.message | grep -qE "of $M: .*([Ff]ree space in|metadata of) .*thin pool vg-0/meta"'
    check "77 % of the metadata: and what to do: $(op .error.hint)" eval \
        'op .error.hint | grep -q "lvextend --poolmetadatasize"'
    same "77 % of the metadata: no native snapshot of it is there" "$(natives_of $M)" ""
    rests "77 % of the metadata: nothing is left after one sweep"

    # It fills to the end while a mover reads.
    step "they are full during a backup"
    thin_out 60
    policy $M 'pool-high-water = 50' 'read-limit = 2MiB'
    check "reload" reload
    keep $M /srv/m
    moving $M --full
    crowd 99
    echo "# metadata $(pool meta 5), $(mode meta), $(lvs --noheadings -o lv_health_status vg-0/meta | xargs)"
    echo "# the backup: $(state "$O")"
    became "no metadata left: the backup of before is Completed" "$O" Completed 200
    check "no metadata left: and right" image_is /srv/m "$O"
    policy $M 'pool-high-water = 50'
    check "reload" reload
    run $M
    same "no metadata left: the next one fails" "$(op .state)" Failed
    check "no metadata left: in words: $(op .error.message)" eval \
        'op .error.message | grep -qE "thin pool vg-0/meta is read-only|the metadata of thin pool vg-0/meta"'
    check "no metadata left: and what to do: $(op .error.hint)" eval \
        'op .error.hint | grep -q "lvextend --poolmetadatasize"'
    check "lvextend" lvextend -q --poolmetadatasize +4M vg-0/meta
    same "extended: the pool can be written to" "$(mode meta)" rw
    check "extended: so can its volume" scatter
    keep $M /srv/m
    run $M
    same "extended: Completed" "$(op .state)" Completed
    check "extended: and right" image_is /srv/m
    rests "extended: nothing is left"
}

# ---- many snapshots of other tools ----
lap() { # sets MS, since the last call
    local now=${EPOCHREALTIME/[.,]/}
    MS=$(((now - LAP) / 1000)) LAP=$now
}
LAP=0
measure() { # HOW-MANY
    local n x said=
    lap
    n=$(call --match $N snapshot $N "$(uuid)"); lap; said+="snapshot $MS ms"
    x=$(call expose "$n" native ro "$(uuid)"); lap; said+=", activation $MS ms"
    check "$1: it has the bytes of the volume" cmp /srv/n "$(jq -r .path <<<"$x")"
    lap
    call list >"$WORK/list"; lap; said+=", list $MS ms"
    same "$1: the list has ours alone" "$(jq -r .alias "$WORK/list")" "$(jq -r .alias <<<"$n")"
    lap
    swept; lap; said+=", sweep that removes it $MS ms"
    same "$1: it is gone" "$(call list)" ""
    lap
    ask scan --wait --quiet; lap; said+=", scan of the daemon $MS ms"
    echo "# $1: $said"
}
others() {
    lvs --noheadings -o lv_full_name,lv_uuid,lv_tags,lv_active,lv_permissions,thin_id -S 'lv_name=~^other-' | sort
    dmsetup ls | grep other | sort
}
many() {
    local i n=300 before
    step "many snapshots"
    put 0 64 $N
    keep $N /srv/n
    measure "without others"
    LAP=0; lap
    # Not active, as snapshots are whose owners do not read them; the first ten are.
    for i in $(seq $n); do
        echo "lvcreate -qq -y -s -kn -a$([ "$i" -le 10 ] && echo y || echo n) --addtag other -n other-$i vg-0/n"
    done | lvm >"$WORK/others" 2>&1
    lap
    same "snapshots of another tool ($((MS / 1000)) s)" "$(names -S 'lv_name=~^other-' | wc -w)" $n
    before=$(others)
    measure "with $n others"
    put 64 10 $N
    keep $N /srv/now
    lap; run $N; lap
    echo "# with $n others: a backup of 8 MiB in $MS ms"
    same "with $n others: the backup is Completed" "$(op .state)" Completed
    check "with $n others: and right" image_is /srv/now
    same "none of the others was touched" "$(others)" "$before"
    check "one of them has its bytes" cmp /srv/n /dev/vg-0/other-10
    rests "with $n others: nothing is left"
}

unreadable
slow
full
metadata
many
expect "verify" 0 -- ask verify main --read-percent 100 --wait --quiet
finish
