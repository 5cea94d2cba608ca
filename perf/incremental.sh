#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-incremental: the next backup of a large volume of which little changed, by the daemon (driver reflink,
# changed-blocks = auto, verify-sample = 0), against a full read of the same state.
#   SIZE=1024               GiB of the volume: holes, and
#   DATA=4                  GiB of random data in pieces of 4 MiB, evenly all over it
#   CASES="none over:1000:1048576 spread:1000:1048576 spread:250000:4096"
#                           what changes before each run: nothing, or so many pieces of so many bytes: "over" where data
#                           is, "spread" over the whole volume, where mostly holes are
#   SPLITTERS="FIXED-128K FIXED-1M DYNAMIC-4M-BUZHASH"
#   RUNS=3                  of each, both kinds in turns; medians. Where a run takes longer than PATIENCE=120 s: one
#   EMPTY=64                TiB of a volume with 1 GiB of data of which nothing changes, at
#   EMPTY_SPLITTERS="FIXED-1M DYNAMIC-4M-BUZHASH"
#   LIMIT=5                 seconds that such a backup may take
#   DIR=/var/tmp            4 times DATA and 16 GiB; the volumes lie in an XFS of their own there, behind a loop device
#   KOPIA=/path/to/kopia    a volume of KOPIA_SIZE=16 GiB, 1 GiB of it data, of which 1 MiB changes in as many places,
#                           is read by Kopia, too: holes and all, for its rate
#   RESULTS=FILE            JSON lines of all runs
# Where thin-provisioning-tools are installed, thin_delta lists such changes from the metadata of a thin pool that was
# made for it: what a list costs at least.
# Prints a line for each case: seconds from request to end, CPU seconds of the mover, MiB read, stored and peak of the
# mover's memory (all resident pages). What is new is stored by the incremental run, which comes first: the full read
# finds it. Compression is zstd-fastest, since a chunk of a hole with one page in it is stored as a whole. The images of
# both kinds must be the same, or the run ends. Needs root and xfsprogs.
set -euo pipefail
SIZE=${SIZE:-1024} DATA=${DATA:-4} RUNS=${RUNS:-3} PATIENCE=${PATIENCE:-120} EMPTY=${EMPTY:-64} LIMIT=${LIMIT:-5}
CASES=${CASES-none over:1000:1048576 spread:1000:1048576 spread:250000:4096}
SPLITTERS=${SPLITTERS:-FIXED-128K FIXED-1M DYNAMIC-4M-BUZHASH}
EMPTY_SPLITTERS=${EMPTY_SPLITTERS-FIXED-1M DYNAMIC-4M-BUZHASH}
KOPIA_SIZE=${KOPIA_SIZE:-16} DIR=${DIR:-/var/tmp}
OUT=${RESULTS:-}
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
[[ $SIZE$DATA$RUNS$EMPTY =~ ^[0-9]+$ && $DATA -ge 1 && $RUNS -ge 1 ]] ||
    die "SIZE and DATA are GiB, EMPTY is TiB; DATA and RUNS 1 or more"
[ "$(id -u)" = 0 ] || die "root is needed for a file system on a loop device"
command -v mkfs.xfs >/dev/null || die "mkfs.xfs is missing: install xfsprogs"
MAKE_DATA=$BUILD/perf/make_data
for p in "$MAKE_DATA" "$BUILD/snapferryd"; do
    [ -x "$p" ] || die "there is no $p: make bench-incremental builds it"
done
if [ -n "${KOPIA:-}" ]; then
    KOPIA=$(realpath "$KOPIA")
    [ -f "$KOPIA" ] && [ -x "$KOPIA" ] || die "KOPIA=$KOPIA is no program"
    [[ $KOPIA_SIZE =~ ^[1-9][0-9]*$ ]] || die "KOPIA_SIZE is GiB, 1 or more"
else
    note "without kopia: give KOPIA=/path/to/kopia"
fi
room $((DATA * 4096 + 16384))
export SNAPFERRY_NO_SYSTEMD=1 XDG_CACHE_HOME=$W/cache HOME=$W KOPIA_CHECK_FOR_UPDATES=false
DAEMON='' LOOP=''
chmod 755 "$W"
leave() {
    stop
    umount "$W/fs" 2>/dev/null || umount -l "$W/fs" 2>/dev/null || true
    [ -z "$LOOP" ] || losetup -d "$LOOP" 2>/dev/null || true
}
stop() {
    [ -z "$DAEMON" ] || { kill "$DAEMON" && wait "$DAEMON"; } 2>/dev/null || true
    DAEMON=
}
trap 'leave; rm -rf "$W"' EXIT
dirs=(--runtime-dir "$W/run" --state-dir "$W/state" --config-dir "$W/conf")
ask() { "$SNAPFERRY" "$@" "${dirs[@]}"; }
sf() { "$SNAPFERRY" -r "$W/repo" --password-file "$W/pw" --quiet "$@"; }
show() { tee -a "$W/table"; }

mkdir "$W/fs"
truncate -s 4T "$W/fs.img"
mkfs.xfs -q -m reflink=1 "$W/fs.img"
LOOP=$(losetup --find --show "$W/fs.img")
blockdev --setrw "$LOOP"
mount -o discard "$LOOP" "$W/fs"
IMAGE=$W/fs/volume.img

# volume GIB DATA-GIB: the image that all begin with, kept for the next.
volume() {
    local base=$W/fs/base-$1-$2
    if [ ! -e "$base" ]; then
        truncate -s "$1G" "$base"
        "$MAKE_DATA" spread "$base" $(($2 * 256)) 4194304 1 >/dev/null
    fi
    rm -f "$IMAGE"
    cp --reflink=always "$base" "$IMAGE"
}
# begin SPLITTER: an empty repository, a daemon without records.
begin() {
    local i
    stop
    find "$W/fs" -mindepth 1 -maxdepth 1 -name .snapferry -exec rm -rf {} +
    rm -rf "$W"/{conf,state,run,cache,repo}
    mkdir -p "$W"/{conf,state,run,cache}
    sf repo create --splitter "$1"
    cat >"$W/conf/snapferry.ini" <<INI
[daemon]
node-name = bench
[metrics]
listen =
[mover]
user = root
[repository "main"]
type = filesystem
path = $W/repo
password-file = $W/pw
compression = zstd-fastest
maintenance = no
[storage-class "images"]
driver = reflink
match = $IMAGE
changed-blocks = auto
verify-sample = 0
INI
    "$BUILD/snapferryd" --foreground --config-dir "$W/conf" --state-dir "$W/state" --runtime-dir "$W/run" \
        --cache-dir "$W/cache" >"$W/daemon.log" 2>&1 </dev/null &
    DAEMON=$!
    for i in $(seq 200); do
        if ask status --json 2>/dev/null | tail -n 1 | jq -e '.offline != true' >/dev/null 2>&1; then return; fi
        kill -0 $DAEMON 2>/dev/null || break
        sleep 0.1
    done
    die "the daemon does not start: $(tail -n 3 "$W/daemon.log")"
}
# run KIND ABOUT [OPTION...]: one backup; its JSON line is in LAST, the root of its image in OBJECT.
run() {
    local kind=$1 about=$2 from seconds id op
    shift 2
    sync -f "$W/fs"
    drop_caches
    from=${EPOCHREALTIME/./}
    ask backup "$IMAGE" --wait --json "$@" >"$W/out" 2>"$W/err" ||
        die "the backup fails: $(tail -n 3 "$W/err") $(tail -n 1 "$W/out")"
    seconds=$(bc -l <<<"scale=3; (${EPOCHREALTIME/./} - $from) / 1000000")
    id=$(tail -n 1 "$W/out" | jq -r .id)
    op=$(ask describe "$id" --json | tail -n 1 | jq -c '.backup.operations[0]')
    case $kind in
    incremental) jq -e '.fullReason == null and .result.cbtSource == "reflink"' <<<"$op" >/dev/null ||
        die "all was read: $(jq -r '.fullWhy // .fullReason // .result.fallbackReason' <<<"$op")" ;;
    full) jq -e '.fullReason != null' <<<"$op" >/dev/null || die "not all was read" ;;
    esac
    OBJECT=$(sf ls "$(jq -r .result.snapshotID <<<"$op")" --json | tail -n 1 |
        jq -r '[.. | objects | select(.name? == "volume.img") | .object] | first')
    [ -n "$OBJECT" ] && [ "$OBJECT" != null ] || die "no object of the image in snapshot of backup $id"
    LAST=$(jq -c --argjson about "$about" --arg kind "$kind" --argjson s "${seconds/#./0.}" '$about + {kind: $kind,
        seconds: $s, moverSeconds: .result.seconds, cpuSeconds: .mover.cpu_seconds, readBytes: .result.readBytes,
        peakBytes: .mover.memory_peak, newBytes: .result.incrementalBytes, listedRanges, listedBytes}' <<<"$op")
    [ -z "$OUT" ] || echo "$LAST" >>"$OUT"
    echo "$LAST" >>"$W/$kind"
}
# median KIND MEMBER [DIVISOR [DIGITS]]
median() {
    jq -s --arg m "$2" --argjson d "${3:-1}" --argjson n "${4:-0}" 'map(.[$m] // 0) | sort | .[length / 2 | floor] / $d
        | . * pow(10; $n) | round / pow(10; $n)' "$W/$1"
}
row() { printf '%-20s %-22s %-12s %9s %9s %10s %8s %10s %6s\n' "$@" | show; }
heading() { row splitter changed backup seconds 'CPU s' 'MiB read' 'of list' 'MiB new' 'MiB' ; }
kind_row() { # SPLITTER CASE KIND: Kopia does not say what it has read and stored
    local listed mib='' of=-
    listed=$(median incremental listedBytes)
    if [ "$3" != kopia ]; then
        mib=1048576
        [ "$listed" = 0 ] || of=$(bc -l <<<"scale=2; $(median "$3" readBytes) / $listed")
    fi
    row "$1" "$2" "$3" "$(median "$3" seconds 1 2)" "$(median "$3" cpuSeconds 1 2)" \
        "$([ -z "$mib" ] && echo - || median "$3" readBytes $mib)" "$of" \
        "$([ -z "$mib" ] && echo - || median "$3" newBytes $mib)" "$(median "$3" peakBytes 1048576)"
}

seed=100
# change CASE: one more change of that kind.
change() {
    local how pieces bytes
    IFS=: read -r how pieces bytes <<<"$1"
    [ "$how" != none ] || return 0
    seed=$((seed + 1))
    "$MAKE_DATA" "$how" "$IMAGE" "$pieces" "$bytes" $seed >/dev/null
}
# case_run SPLITTER CASE [BESIDE]: before ours the function BESIDE reads the same state.
case_run() {
    local about r a
    rm -f "$W"/{full,incremental,kopia}
    about=$(jq -cn --arg s "$1" --arg c "$2" --argjson g "$SIZE" --argjson d "$DATA" \
        '{splitter: $s, case: $c, sizeGiB: $g, dataGiB: $d}')
    for ((r = 0; r < RUNS; r++)); do
        change "$2"
        ${3:-:} "$about"
        run incremental "$about"
        a=$OBJECT
        run full "$about" --full
        [ "$a" = "$OBJECT" ] || die "the images differ: $a, $OBJECT"
        [ "$(jq '.seconds | floor' <<<"$LAST")" -lt "$PATIENCE" ] || break
    done
    kind_row "$1" "$2" incremental
    kind_row "$1" "$2" full
    [ "$2" != none ] || jq -s -r --arg s "$1" --argjson g "$SIZE" 'map(.readBytes / 1048576 / .moverSeconds) | sort |
        .[length / 2 | floor] | "\($s): full reads of what is allocated run at \(round) MiB/s: all of it, without " +
        "holes, would take \($g * 1024 / . | round) s"' "$W/full" >>"$W/rates"
}

echo "$("$BUILD/snapferryd" --version | head -n 1), $(date -u +%Y-%m-%d), $(nproc) CPUs," \
    "load $(cut -d ' ' -f 1 /proc/loadavg), $RUNS run(s), medians" | show
if [ -n "$CASES" ]; then
    echo "volume of $SIZE GiB, sparse, with $DATA GiB of data; zstd-fastest; full reads store nothing new" | show
    heading
    for splitter in $SPLITTERS; do
        volume "$SIZE" "$DATA"
        begin "$splitter"
        rm -f "$W"/{full,incremental,first}
        run first "$(jq -cn --arg s "$splitter" '{splitter: $s, case: "first"}')"
        cp "$W/first" "$W/incremental" # what is listed: nothing
        kind_row "$splitter" - first
        for c in $CASES; do case_run "$splitter" "$c"; done
    done
    [ ! -e "$W/rates" ] || show <"$W/rates"
fi

# thin_metadata CASE: of a pool with blocks of 64 KiB, in which device 1 has the data of the volume and device 2, its
# snapshot, the changes of the case, too.
thin_blocks() { # base, or HOW PIECES BYTES: a line for each block of the volume that is mapped
    local length=$(((${3:-0} + 65535) / 65536))
    awk -v how="$1" -v n="${2:-0}" -v l=$length -v c=$((SIZE << 14)) -v p=$((DATA * 256)) 'BEGIN {
        for (i = 0; how == "base" && i < p; i++)
            for (j = 0; j < 64; j++) print int(i * c / p) + j, b++, 0
        for (b = p * 64; i < n; i++) {
            s = how == "over" ? int(int(i * p / n) * c / p) + i * 37 % (65 - l) : int((i + 0.5) * c / n)
            for (j = 0; j < l; j++) print s + j, b++, 1
        } }'
}
thin_device() { # NUMBER
    echo "<device dev_id='$1' mapped_blocks='$(wc -l <"$W/map")' transaction='$1' creation_time='$1' snap_time='1'>"
    awk '{ printf "<single_mapping origin_block=\"%d\" data_block=\"%d\" time=\"%d\"/>\n", $1, $2, $3 }' "$W/map"
    echo "</device>"
}
thin_metadata() {
    local how pieces bytes
    IFS=: read -r how pieces bytes <<<"$1"
    {
        echo "<superblock uuid='' time='2' transaction='3' version='2' data_block_size='128' nr_data_blocks='67108864'>"
        thin_blocks base >"$W/map"
        thin_device 1
        { thin_blocks base && thin_blocks "$how" "$pieces" "$bytes"; } | sort -k1,1n -k3,3nr |
            awk '$1 != last { print; last = $1 }' >"$W/map"
        thin_device 2
        echo "</superblock>"
    } >"$W/xml"
    truncate -s 0 "$W/meta"
    truncate -s 512M "$W/meta"
    thin_restore -q -i "$W/xml" -o "$W/meta" >"$W/stderr" 2>&1 || die "thin_restore: $(tail -n 3 "$W/stderr")"
}
if ! command -v thin_delta >/dev/null; then
    note "without thin_delta: install thin-provisioning-tools"
elif [ -n "$CASES" ]; then
    for c in $CASES; do
        [ "$c" != none ] || continue
        thin_metadata "$c"
        rm -f "$W/thin"
        for ((r = 0; r < RUNS; r++)); do
            timed '{}' 0 thin_delta --snap1 1 --snap2 2 "$W/meta" || die "thin_delta: $(tail -n 3 "$W/stderr")"
            echo "$LAST" >>"$W/thin"
        done
        jq -c --arg c "$c" '{kind: "thin_delta", case: $c, seconds: .wall, cpuSeconds: (.user + .sys),
            peakBytes: (.rssKiB * 1024)}' "$W/thin" >"$W/thin_delta"
        echo "plain thin_delta, $c: $(median thin_delta seconds 1 2) s, $(median thin_delta cpuSeconds 1 2) s of CPU" \
            "time, $(median thin_delta peakBytes 1048576) MiB" | show
        [ -z "$OUT" ] || cat "$W/thin_delta" >>"$OUT"
    done
fi

if [ "$EMPTY" -gt 0 ]; then
    missed=
    echo "volume of $EMPTY TiB, sparse, with 1 GiB of data, of which nothing changed" | show
    heading
    for splitter in $EMPTY_SPLITTERS; do
        volume $((EMPTY * 1024)) 1
        begin "$splitter"
        rm -f "$W"/{incremental,first}
        about=$(jq -cn --arg s "$splitter" --argjson t "$EMPTY" '{splitter: $s, case: "empty", sizeGiB: ($t * 1024)}')
        run first "$about"
        for ((r = 0; r < RUNS; r++)); do run incremental "$about"; done
        kind_row "$splitter" - first
        kind_row "$splitter" none incremental
        [ "$(bc <<<"$(median incremental seconds 1 3) < $LIMIT")" = 1 ] || missed+=" $splitter"
    done
    [ -z "$missed" ] || note "nothing changed: more than $LIMIT s with:$missed"
fi

# Kopia reads all of a volume each time, holes too; ours of the same state, incrementally and in full, are beside it.
k() { "$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log" "$@"; }
kopia_begin() { # SPLITTER
    rm -rf "$W/kopia-repo" "$W/cache/kopia" "$W"/kopia.config*
    k repository create filesystem --path "$W/kopia-repo" --cache-directory "$W/cache/kopia" --object-splitter "$1" \
        >/dev/null 2>"$W/stderr" && k policy set --global --compression zstd-fastest >/dev/null 2>"$W/stderr" &&
        k snapshot create "$IMAGE" >/dev/null 2>"$W/stderr" || die "kopia: $(tail -n 3 "$W/stderr")"
}
kopia_run() { # ABOUT
    timed "$1" 0 "$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log" \
        snapshot create "$IMAGE" || die "kopia: $(tail -n 3 "$W/stderr")"
    LAST=$(jq -c '{splitter, case, sizeGiB, dataGiB, kind: "kopia", seconds: .wall, cpuSeconds: (.user + .sys),
        peakBytes: (.rssKiB * 1024)}' <<<"$LAST")
    [ -z "$OUT" ] || echo "$LAST" >>"$OUT"
    echo "$LAST" >>"$W/kopia"
}
if [ -n "${KOPIA:-}" ]; then
    whole=$SIZE SIZE=$KOPIA_SIZE DATA=1 c=over:$KOPIA_SIZE:1048576
    echo "volume of $SIZE GiB, sparse, with 1 GiB of data: beside Kopia's snapshot of the same state" | show
    heading
    rm -f "$W/rates"
    for splitter in $SPLITTERS; do
        volume "$SIZE" "$DATA"
        begin "$splitter"
        kopia_begin "$splitter"
        run first "$(jq -cn --arg s "$splitter" '{splitter: $s, case: "kopia-first"}')"
        case_run "$splitter" "$c" kopia_run
        kind_row "$splitter" "$c" kopia
        jq -s -r --arg s "$splitter" --argjson g "$SIZE" --argjson w "$whole" 'map($g * 1024 / .seconds) | sort |
            .[length / 2 | floor] | "\($s): Kopia reads at \(round) MiB/s, \($w) GiB in \($w * 1024 / . | round) s"' \
            "$W/kopia" >>"$W/rates"
    done
    show <"$W/rates"
fi
