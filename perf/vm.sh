#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-vm: the next backup of a large volume of which little changed, as perf/incremental.sh measures it, but of
# real volumes: LVM thin and ZFS in a virtual machine (tests/vm/run.sh), by the installed service under its systemd.
#   KINDS="lvm-thin zfs"    the drivers
#   SIZE=1024               GiB of the thin volume: not mapped, and
#   DATA=512                MiB of random data in pieces of 4 MiB, evenly all over it
#   ZVOL_SIZE=4             GiB of the sparse zvol, with as much data. If these are a quarter of it or less the driver
#                           lists them for the first backup and each full read, by a stream of all of them
#   CASES="none over:64:1048576 over:1000:65536"
#                           what changes before each run: nothing, or so many pieces of so many bytes: "over" where data
#                           is, "spread" over the whole volume
#   SPLITTERS="FIXED-1M DYNAMIC-4M-BUZHASH"
#   RESULTS=FILE            JSON lines of all runs
# For each case one incremental backup; beside it what lists the same changes without it: thin_delta of both thin ids,
# or `zfs send -i` of both snapshots to nowhere, and the list as the driver makes it (the whole call, without
# transient units); then a full read of the same state, whose image has to be the same object. Of a thin volume that is
# what is read where the parent's native snapshot has been lost (all that is mapped), of a zvol `--full`.
# Where /dev/kvm cannot be used the machine is emulated: no figure says anything by itself then, only their ratios in
# one run do. Needs root (the machine's image).
set -euo pipefail
: "${KINDS:=lvm-thin zfs}" "${SIZE:=1024}" "${DATA:=512}" "${ZVOL_SIZE:=4}"
: "${CASES:=none over:64:1048576 over:1000:65536}" "${SPLITTERS:=FIXED-1M DYNAMIC-4M-BUZHASH}"
PIECE=4194304
if [ -z "${SNAPFERRY_IN_VM:-}" ]; then
    here=$(realpath "$(dirname "$0")")
    [[ $SIZE$DATA$ZVOL_SIZE =~ ^[0-9]+$ && $SIZE -ge 1 && $DATA -ge 4 && $ZVOL_SIZE -ge 1 ]] ||
        { echo "vm.sh: SIZE and ZVOL_SIZE are GiB, DATA is MiB, 4 or more" >&2; exit 1; }
    export KINDS SIZE DATA ZVOL_SIZE CASES SPLITTERS VM_PASS="KINDS SIZE DATA ZVOL_SIZE CASES SPLITTERS"
    # Data, what native snapshots hold of it, and room enough not to come near a high-water mark.
    VM_DISKS="repo:$((8 * DATA + 2048))M"
    for kind in $KINDS; do VM_DISKS+=" $kind:$((4 * DATA + 1024))M"; done
    export VM_DISKS VM_MEMORY="${VM_MEMORY:-2048}"
    export VM_TIMEOUT="${VM_TIMEOUT:-7200}" VM_VARIANT=
    [[ " $KINDS " != *" zfs "* ]] || VM_VARIANT=zfs
    "$here/../tests/vm/run.sh" "$here/vm.sh" | while IFS= read -r line; do
        case $line in
        "{"*) [ -z "${RESULTS:-}" ] || printf '%s\n' "$line" >>"$RESULTS" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done
    exit "${PIPESTATUS[0]}"
fi
set +eu +o pipefail # as the tests have it
. "$(dirname "$0")/../tests/vm/lib.sh"
MAKE_DATA=/vm/stage/tools/make_data CALL=/vm/stage/tools/driver_call REPO=/srv/bench/repo
# die WHAT: nothing is measured that could not be.
die() {
    echo "vm.sh: $*"
    { tail -n 5 "$WORK/ask.err"; log -n 40; } 2>/dev/null | sed 's/^/# /'
    exit 1
}
mkdir -p "$WORK"
(umask 077; echo benchmark >$PASSWORD)
for p in "$MAKE_DATA" "$CALL"; do [ -x "$p" ] || die "there is no $p: make bench-vm brings it"; done
disk_fs repo xfs /srv/bench || die "no file system for the repository"

# ---- volumes: V is the device, GIB its size, DISK is for the pool ----

lvm_thin_begin() {
    GIB=$SIZE
    pvcreate -q "$DISK" && vgcreate -q vg-0 "$DISK" &&
        lvcreate -q -y -L $((4 * DATA + 768))M --poolmetadatasize 64M --thinpool tp vg-0
}
lvm_thin_volume() {
    V=/dev/vg-0/vol
    lvs --noheadings -o lv_full_name -S 'lv_attr=~^V' | xargs -r lvremove -q -f -y &&
        lvcreate -q -y -V "${SIZE}G" -T vg-0/tp -n vol
}
lvm_thin_class() { printf 'driver = lvm-thin\nmatch = /dev/vg-0/vol\ntarget = vg-0/tp\n'; }
# lvm_thin_peer BASE NEW: handles of two native snapshots.
lvm_thin_peer() {
    local a b
    a=$(lvs --noheadings -o thin_id "vg-0/${1##*/}" | tr -d ' ')
    b=$(lvs --noheadings -o thin_id "vg-0/${2##*/}" | tr -d ' ')
    [[ $a$b =~ ^[0-9]+$ ]] || die "no ids of the thin snapshots $1, $2"
    dmsetup message vg--0-tp-tpool 0 reserve_metadata_snap || die "no metadata snapshot"
    drop_caches
    timed /dev/null thin_delta --metadata-snap --snap1 "$a" --snap2 "$b" /dev/mapper/vg--0-tp_tmeta
    dmsetup message vg--0-tp-tpool 0 release_metadata_snap || die "the metadata snapshot is not released"
}
lvm_thin_peer_name=thin_delta
# The base is lost: what is mapped is read, and nothing else.
lvm_thin_full() {
    lvremove -q -f -y "vg-0/${1##*/}" >/dev/null || die "$1 cannot be removed"
    run full
    jq -e '.fullReason == "parent-lost" or .fullReason == "no-parent"' <<<"$OP" >/dev/null ||
        die "not read because the parent is lost: $(jq -r .fullReason <<<"$OP")"
}

zfs_begin() {
    GIB=$ZVOL_SIZE
    # The peer and the full read must not find in the cache what the backup has read.
    modprobe zfs zfs_arc_max=134217728 && zpool create -f -O compression=lz4 tank "$DISK"
}
zfs_volume() {
    V=/dev/zvol/tank/vol
    if zfs list tank/vol >/dev/null 2>&1; then zfs destroy -R tank/vol || return; fi
    zfs create -s -V "${ZVOL_SIZE}G" -o volblocksize=16K tank/vol && until_true 60 test -b $V
}
zfs_class() { printf 'driver = zfs\nmatch = %s\ntarget = tank\n' "$V"; }
# On some kernels zfs refuses to write to /dev/null itself.
zfs_send() { (set -o pipefail && zfs send -i "$1" "$2" | cat); }
zfs_peer() { drop_caches && timed /dev/null zfs_send "$1" "$2"; }
zfs_peer_name="zfs send -i"
zfs_full() { run full --full; }

# ---- runs ----

drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }'; }
# timed FILE COMMAND...: FILE gets its output, TIMED has seconds, and CPU seconds of the process.
timed() {
    local TIMEFORMAT='%R %U %S' into=$1
    shift
    { time "$@" >"$into" 2>"$WORK/peer.err"; } 2>"$WORK/peer.time" || die "$1: $(tail -n 3 "$WORK/peer.err")"
    TIMED=$(awk '{ printf "{\"seconds\": %.3f, \"cpuSeconds\": %.3f}", $1, $2 + $3 }' "$WORK/peer.time")
}
# keep KIND DOCUMENT: a run, for the host and for the lines of the table.
keep() {
    jq -cn --arg v "$KIND" --arg s "$SPLITTER" --arg c "$CASE" --arg k "$1" --argjson g "$GIB" --argjson d "$DATA" \
        --argjson x "$2" '{volume: $v, sizeGiB: $g, dataMiB: $d, splitter: $s, case: $c, kind: $k} + $x' >"$WORK/$1" ||
        die "no figures of $1: $2"
    cat "$WORK/$1"
}
begin() {
    systemctl stop snapferryd.socket snapferryd.service 2>/dev/null
    rm -rf $STATE/* $CACHE/* $CONF/conf.d "$REPO"
    install -d -o snapferry-mover -g snapferry-mover -m 700 "$REPO"
    sf "$REPO" repo create --quiet --splitter "$SPLITTER" || die "no repository"
    {
        # Nothing that is due by time is to run beside what is measured.
        printf '[daemon]\nnode-name = bench\nsweep = 10min\n[metrics]\nlisten =\n'
        printf '[repository "main"]\ntype = filesystem\npath = %s\npassword-file = %s\n' "$REPO" $PASSWORD
        printf 'compression = zstd-fastest\nmaintenance = no\n[storage-class "volumes"]\n'
        "${KIND//-/_}_class"
        printf 'changed-blocks = auto\nverify-sample = 0\nsnapshots-to-retain = 2\n'
    } >$CONF/snapferry.ini
    daemon_start || die "the daemon does not start"
}
present() { askj native list | jq -c '[.natives[]? | select(.state == "present")] | sort_by(.created_ns)'; }
two_present() { [ "$(present | jq length)" -le 2 ] && [ -z "$(mover_units)" ]; }
# run KIND [OPTION...]: one backup; OP is its operation, OBJECT the root of its image.
run() {
    local kind=$1 from seconds id
    shift
    PATIENCE=1 until_true 300 two_present || die "older native snapshots are not pruned"
    drop_caches
    from=$EPOCHREALTIME
    ask backup "$V" --wait --json "$@" >"$WORK/out" 2>>"$WORK/ask.err" ||
        die "the backup fails: $(tail -n 1 "$WORK/out")"
    seconds=$(seconds_since "$from")
    id=$(tail -n 1 "$WORK/out" | jq -r .id)
    OP=$(askj describe "$id" | jq -c '.backup.operations[0]')
    case $kind in
    incremental) jq -e --arg d "$KIND" '.fullReason == null and .result.cbtSource == $d' <<<"$OP" >/dev/null ||
        die "all was read: $(jq -r '.fullWhy // .fullReason // .result.fallbackReason' <<<"$OP")" ;;
    *) jq -e '.fullReason != null' <<<"$OP" >/dev/null || die "not all was read" ;;
    esac
    OBJECT=$(sf "$REPO" ls "$(jq -r .result.snapshotID <<<"$OP")" --json | tail -n 1 |
        jq -r '[.. | objects | select(.name? == "volume.img") | .object] | first')
    [ -n "$OBJECT" ] && [ "$OBJECT" != null ] || die "no object of the image in the snapshot of backup $id"
    keep "$kind" "$(jq -c --argjson s "$seconds" '{seconds: $s, moverSeconds: .result.seconds,
        cpuSeconds: .mover.cpu_seconds, readBytes: .result.readBytes, peakBytes: .mover.memory_peak,
        newBytes: .result.incrementalBytes, listedRanges, listedBytes, attempts: (.attempt // 1)}' <<<"$OP")"
}
seed=100
# change: one more change of the case.
change() {
    local how pieces bytes
    IFS=: read -r how pieces bytes <<<"$CASE"
    seed=$((seed + 1))
    case $how in
    none) ;;
    over) "$MAKE_DATA" within $V "$pieces" "$bytes" $seed $((DATA / 4)) $PIECE 1 >/dev/null ;;
    spread) "$MAKE_DATA" spread $V "$pieces" "$bytes" $seed >/dev/null ;;
    *) false ;;
    esac || die "no change \"$CASE\""
}
row() { printf '%-20s %-18s %-14s %8s %8s %8s %9s %8s %8s %5s\n' "$@"; }
heading() { row splitter changed backup seconds 'CPU s' 'mover s' 'MiB read' 'of list' 'MiB new' MiB; }
# show KIND [NAME]: a line of the table.
show() {
    local cells
    mapfile -t cells < <(jq -r --argjson of "$(jq '.listedBytes // 0' "$WORK/incremental" 2>/dev/null || echo 0)" '
        def r(n): if . == null then "-" else . * pow(10; n) | round / pow(10; n) end;
        def mib: if . == null then "-" else . / 1048576 | round end;
        (.seconds | r(2)), (.cpuSeconds | r(2)), (.moverSeconds | r(2)), (.readBytes | mib),
        (if $of > 0 and .readBytes then .readBytes / $of | r(2) else "-" end), (.newBytes | mib), (.peakBytes | mib)' \
        "$WORK/$1")
    [ ${#cells[@]} -eq 7 ] || die "no figures of $1"
    row "$SPLITTER" "$CASE" "${2:-$1}" "${cells[@]}"
    jq -r 'select((.attempts // 1) > 1) | "  \(.attempts) attempts: the seconds contain failed ones, and the waiting"' \
        "$WORK/$1"
}
# times A B MEMBER: how many times of B A took.
times() {
    jq -rn --slurpfile a "$WORK/$1" --slurpfile b "$WORK/$2" --arg m "$3" '$a[0][$m] as $x | $b[0][$m] as $y |
        if ($x // 0) == 0 or ($y // 0) == 0 then "-" else $x / $y * 100 | round / 100 end'
}
native() {
    sql "SELECT json_extract(doc, '\$.native') FROM natives WHERE json_extract(doc, '\$.native.handle') = '$1'"
}
# list_by_driver BASE NEW: handles of two native snapshots; the list as the driver makes it for the daemon.
list_by_driver() {
    local -x SNAPFERRY_NO_SYSTEMD=1
    drop_caches
    timed "$WORK/list.out" "$CALL" --driver "$KIND" --name volumes --node bench changed \
        "$(native "$1")" "$(native "$2")"
    grep -q '^listed' "$WORK/list.out" || die "the driver lists nothing: $(head -n 1 "$WORK/list.out")"
}

echo "$("$SNAPFERRYD" --version | head -n 1), $(date -u +%Y-%m-%d), $(nproc) CPUs (${VM_ACCEL/tcg/emulated})," \
    "$VM_MEMORY MiB, Debian $(cat /etc/debian_version), Linux $(uname -r)"
for KIND in $KINDS; do
    k=${KIND//-/_} DISK=$(realpath "$(dev "$KIND")")
    declare -F "${k}_begin" >/dev/null || die "no kind of volume \"$KIND\""
    "${k}_begin" >"$WORK/begin" 2>&1 || die "no pool for $KIND: $(tail -n 3 "$WORK/begin")"
    peer_name=${k}_peer_name
    echo "$KIND: volume of $GIB GiB, sparse, with $DATA MiB of data; zstd-fastest; full reads store nothing new"
    heading
    for SPLITTER in $SPLITTERS; do
        systemctl stop snapferryd.socket snapferryd.service 2>/dev/null
        "${k}_volume" >"$WORK/begin" 2>&1 || die "no volume of $KIND: $(tail -n 3 "$WORK/begin")"
        "$MAKE_DATA" spread $V $((DATA / 4)) $PIECE 1 >/dev/null || die "no data"
        begin
        rm -f "$WORK"/{first,incremental,full,list,peer}
        CASE=-
        run first
        show first
        for CASE in $CASES; do
            change
            run incremental
            show incremental
            a=$OBJECT natives=$(present)
            base=$(jq -r '.[-2].handle' <<<"$natives") new=$(jq -r '.[-1].handle' <<<"$natives")
            [ "$(jq length <<<"$natives")" -ge 2 ] || die "no two native snapshots: $natives"
            "${k}_peer" "$base" "$new"
            keep peer "$TIMED"
            show peer "${!peer_name}"
            list_by_driver "$base" "$new"
            keep list "$TIMED"
            show list
            "${k}_full" "$new"
            show full
            [ "$a" = "$OBJECT" ] || die "the images differ: $a, $OBJECT"
            echo "  full / incremental: $(times full incremental seconds) of the seconds," \
                "$(times full incremental moverSeconds) of the mover's," \
                "$(times full incremental cpuSeconds) of its CPU time," \
                "$(times full incremental readBytes) of the bytes read;" \
                "incremental / ${!peer_name}: $(times incremental peer seconds)"
        done
    done
done
