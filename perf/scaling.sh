#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-scaling: how time, CPU and memory grow with the volume, with the repository, and what workers bring.
#   PARTS="volume repository workers"              each can be run alone
#   VOLUMES="1 16 256 1024 4096 16384"             GiB of sparse volumes, DATA=256 MiB of data in each
#   CONTENTS="10000 100000 1000000 10000000"       contents in repositories, to which a volume of DATA MiB is backed up
#   WORKERS="1 2 4" (default: 1, 2, 4 up to twice the CPUs)   over a volume of SIZE=1024 MiB
#   RUNS=3 DIR=/dev/shm RESULTS=perf/results QUICK=1 (small sizes, one run)
# Prints tables; leaves them and a JSON file in RESULTS. Own and mapped memory are sampled (tests/tools/rss_peak.c); an
# index that is mapped from a tmpfs counts as own there, so for the repositories give a DIR on a disk.
set -euo pipefail
if [ -n "${QUICK:-}" ]; then
    VOLUMES=${VOLUMES:-1 1024} CONTENTS=${CONTENTS:-1000 100000} SIZE=${SIZE:-48} DATA=${DATA:-16} RUNS=${RUNS:-1}
fi
PARTS=${PARTS:-volume repository workers} VOLUMES=${VOLUMES:-1 16 256 1024 4096 16384}
CONTENTS=${CONTENTS:-10000 100000 1000000 10000000} SIZE=${SIZE:-1024} DATA=${DATA:-256} RUNS=${RUNS:-3}
[[ $SIZE$DATA$RUNS =~ ^[0-9]+$ && $SIZE -ge 8 && $DATA -ge 8 && $RUNS -ge 1 ]] ||
    { echo "scaling.sh: SIZE and DATA are MiB, 8 or more; RUNS 1 or more" >&2; exit 2; }
here=$(realpath "$(dirname "$0")")
mkdir -p "${RESULTS:=$here/results}"
RESULTS=$(realpath "$RESULTS")
. "$here/lib.sh"
. "$here/machine.sh"
. "$here/data.sh"
PEERS=none
. "$here/peers.sh"
TOOLS=$BUILD/tests/tools
for t in make_index rss_peak; do [ -x "$TOOLS/$t" ] || die "there is no $TOOLS/$t: make bench-scaling builds it"; done

if [ -z "${WORKERS:-}" ]; then
    WORKERS=$(for ((n = 1; n <= 2 * $(nproc); n *= 2)); do printf '%s ' $n; done)
fi

# one PART LABEL X RUN WORK WRITES-MIB ARGS...: the command of this program, timed and its memory sampled, recorded.
one() {
    local part=$1 label=$2 x=$3 run=$4 work=$5 writes=$6 before about
    shift 6
    before=$(stored)
    about=$(jq -cn --arg part "$part" --arg name "$label" --argjson x "$x" --argjson run "$run" --arg work "$work" \
        '{part: $part, label: $name, x: $x, run: $run, work: $work}')
    timed "$about" "$writes" "$TOOLS/rss_peak" "$W/peak" "$SNAPFERRY" -r "$W/repo" --password-file \
        "$W/pw" --quiet "$@" ||
        die "\"$work\" at $label fails: $(tail -n 3 "$W/stderr")"
    record "$(jq -c --slurpfile peak "$W/peak" --argjson n $(($(stored) - before)) \
        '. + {ownBytes: $peak[0].own, mappedBytes: $peak[0].mapped, wall: $peak[0].seconds, storedBytes: $n}' \
        <<<"$LAST")"
}
show() { # PART HEADING
    echo | tee -a "$W/table"
    jq -s -r -L "$here" --arg part "$1" --arg title "$2" \
        'include "summary"; include "text"; scaling_rows | map(select(.part == $part)) | scaling_table($title)' \
        "$RECORDS" | column -t -s '|' -o '  ' -R 3,4,5,6,7,8 | tee -a "$W/table"
}

# A file of so many bytes must be possible: tmpfs and XFS have 16 TiB, ext4 a little less.
scale_volume() {
    local gib run as
    for gib in $VOLUMES; do
        if ! truncate -s "${gib}G" "$W/data/probe" 2>/dev/null; then
            note "the file system of $DIR has no files of $gib GiB (tmpfs and XFS have): left out"
            continue
        fi
        rm "$W/data/probe"
        make_data sparse "$W/data/sparse" $((gib * 1024)) "$DATA" "$SEED"
        present sparse
        as=(--as b@b:/b)
        for run in $(seq "$RUNS"); do
            begin snapferry no
            rm -rf "$W/out"; mkdir "$W/out"
            one volume "$gib GiB" "$gib" "$run" backup $((2 * DATA)) backup "$W/v/volume.img" "${as[@]}"
            one volume "$gib GiB" "$gib" "$run" "backup again" 64 backup "$W/v/volume.img" "${as[@]}"
            one volume "$gib GiB" "$gib" "$run" restore $((2 * DATA)) restore latest "$W/out/volume.img" "${as[@]}"
            one volume "$gib GiB" "$gib" "$run" verify 0 verify
            if [ "$run" = 1 ]; then
                "$BUILD/perf/same_bytes" "$W/v/volume.img" "$W/out/volume.img" ||
                    die "other bytes were restored at $gib GiB"
            fi
            rm -rf "$W/out"
        done
        drop_data sparse
    done
    show volume volume
}

# The cache of indexes is empty for "cold", as on a new machine, and filled for the others.
scale_repository() {
    local n run label
    make_data random "$W/data/random" "$DATA" "$SEED"
    for n in $CONTENTS; do
        label="$n contents"
        for run in $(seq "$RUNS"); do
            begin snapferry no
            "$TOOLS/make_index" --contents "$n" "$W/repo" "$W/pw" >/dev/null || die "no repository of $n contents"
            present random
            rm -rf "$W/cache"; mkdir "$W/cache"
            one repository "$label" "$n" "$run" "backup, cold cache" $((DATA + 64)) backup "$W/v/volume.img" --as b@b:/b
            one repository "$label" "$n" "$run" "backup again" 64 backup "$W/v/volume.img" --as b@b:/b
            rm -rf "$W/out"; mkdir "$W/out"
            one repository "$label" "$n" "$run" restore $((DATA + 64)) restore latest "$W/out/volume.img" --as b@b:/b
            rm -rf "$W/out"
        done
    done
    rm -rf "$W/repo" "$W/cache"
    drop_data random
    "$BUILD/perf/bench_index" --json --dir "$W" --seconds "$([ -n "${QUICK:-}" ] && echo 0.1 || echo 2)" \
        $(printf -- '--contents %s ' $CONTENTS) | jq -s . >"$W/index"
    show repository contents
    "$here/render.sh" --part index "$W/index" | tee -a "$W/table"
}

scale_workers() {
    local n run label
    make_data random "$W/data/random" "$SIZE" "$SEED"
    for run in $(seq "$RUNS"); do
        for n in $WORKERS; do
            label="$n"
            begin snapferry no
            present random
            one workers "$label" "$n" "$run" "backup, unique" $((SIZE + 256)) backup "$W/v/volume.img" --as b@b:/b \
                --workers "$n"
            one workers "$label" "$n" "$run" "backup, duplicate" 64 backup "$W/v/volume.img" --as b@b:/b --workers "$n"
            rm -rf "$W/out"; mkdir "$W/out"
            one workers "$label" "$n" "$run" restore $((SIZE + 256)) restore latest "$W/out/volume.img" --as b@b:/b \
                --workers "$n"
            rm -rf "$W/out"
            one workers "$label" "$n" "$run" verify 0 verify --workers "$n"
        done
    done
    rm -rf "$W/repo" "$W/cache"
    drop_data random
    show workers workers
}

# Index blobs take some 50 bytes for each content, in the repository and again in the cache.
needed=$((3 * SIZE + 512))
for n in $CONTENTS; do
    case " $PARTS " in *" repository "*) [ $((n / 8000 + 3 * DATA + 512)) -le $needed ] ||
        needed=$((n / 8000 + 3 * DATA + 512)) ;; esac
done
room $needed

started=$SECONDS stamp=$(date +%Y%m%d-%H%M%S)-scaling
machine_json >"$W/machine"
echo '{}' >"$W/peers"
echo '[]' >"$W/index"
if jq -e '.others.busyPercent > 10 or .others.stolenPercent > 5' "$W/machine" >/dev/null; then
    note "other work takes $(jq -r '"\(.others.busyPercent) % of the CPUs, the hypervisor \(.others.stolenPercent) %"' \
        "$W/machine"): wall times will mislead"
fi
"$here/render.sh" --machine "$W/machine" "$W/peers" | tee -a "$W/table"
for part in $PARTS; do
    declare -F "scale_$part" >/dev/null || die "PARTS: there is no \"$part\""
    "scale_$part"
done
jq -n -L "$here" --slurpfile machine "$W/machine" --slurpfile records "$RECORDS" --slurpfile index "$W/index" \
    --rawfile notes "$W/notes" \
    --arg date "$(date -uIseconds)" --argjson size "$SIZE" --argjson data "$DATA" --argjson runs "$RUNS" \
    --arg dir "$DIR" \
    --argjson seconds $((SECONDS - started)) 'include "summary";
    {schema: 1, kind: "scaling", date: $date, seconds: $seconds,
     parameters: {sizeMiB: $size, dataMiB: $data, runs: $runs, dir: $dir},
     machine: $machine[0], notes: ($notes | split("\n") | map(select(. != ""))), index: $index[0],
     scaling: ($records | scaling_rows)}' \
    >"$RESULTS/$stamp.json"
cat "$W/notes" >>"$W/table"
cp "$W/table" "$RESULTS/$stamp.txt"
echo
echo "$((SECONDS - started)) s. JSON: $RESULTS/$stamp.json, tables: $RESULTS/$stamp.txt"
