# SPDX-License-Identifier: GPL-2.0-or-later
# Whole backups and restores. A group is a data set with steps; in each round every contender in turn goes through the
# steps with a repository of its own, which is gone before the next one's: so they are interleaved, and all have the
# same memory.

# group NAME COMPRESSION MIB WRITES-MIB ROUNDS STEPS CONTENDER...
#   STEPS: words KIND=WORK[@DATASET], WORK with _ for blanks; KIND is a step of peers.sh, DATASET is presented before.
#   A step that a contender has not is left out. PEER_ROUNDS: rounds of others than snapferry, when fewer.
group() {
    local name=$1 compression=$2 mib=$3 writes=$4 rounds=$5 steps=$6 round who
    shift 6
    local failed=" "
    for round in $(seq "$rounds"); do
        for who in "$@"; do
            takes_part "$who" "$name" || continue
            if [[ $failed == *" $who "* ]]; then continue; fi
            if [[ $who != snapferry* ]] && [ "$round" -gt "${PEER_ROUNDS:-$rounds}" ]; then continue; fi
            begin "$who" "$compression"
            if ! one_round "$name" "$who" "$mib" "$writes" "$round" "$steps"; then
                failed+="$who "
                [[ $who == snapferry* ]] && die "$who failed at $name"
            fi
        done
    done
    rm -rf "$W/repo" "$W/out" "$W/cache"
    "$HERE/render.sh" --records "$RECORDS" "$name" | tee -a "$W/table"
}

# Variants of snapferry: VARIANTS="scalar blake3 fixed"; in a quick run the scalar kernels are for the first group only.
takes_part() { # WHO GROUP
    case $1 in
    snapferry) true ;;
    snapferry-scalar) [[ " $VARIANTS " == *" scalar "* ]] && { [ -z "${QUICK:-}" ] || [ "$2" = random ]; } ;;
    snapferry-*) [[ " $VARIANTS " == *" ${1#*-} "* ]] ;;
    kopia-*) have kopia && [[ " $VARIANTS " == *" ${1#*-} "* ]] ;;
    *) have "$1" ;;
    esac
}

one_round() {
    local name=$1 who=$2 mib=$3 writes=$4 round=$5 step kind work data before after about touch
    for step in $6; do
        kind=${step%%=*} work=${step#*=} data=
        if [[ $work == *@* ]]; then data=${work#*@} work=${work%@*}; fi
        work=${work//_/ }
        if [ -n "$data" ]; then present "$data"; fi
        command_for "$who" "$kind" || continue
        rm -rf "$W/out"
        mkdir "$W/out"
        before=$(stored)
        about=$(jq -cn --arg group "$name" --arg work "$work" --arg who "$who" --arg step "$kind" --argjson mib "$mib" \
            --argjson run "$round" '{group: $group, work: $work, who: $who, step: $step, mib: $mib, run: $run}')
        case $kind:$who in
        verify:*) touch=0 ;;
        restore:kopia*) touch=$((2 * writes)) ;; # it writes what it reads into its cache
        *) touch=$writes ;;
        esac
        if ! timed "$about" "$touch" "${CMD[@]}"; then
            note "$who failed at \"$work\": $(tail -n 3 "$W/stderr" | tr '\n' ' ')"
            return 1
        fi
        after=$(stored)
        record "$(jq -c --argjson n $((after - before)) '. + {storedBytes: $n}' <<<"$LAST")"
        if [ "$kind" = restore ] && [ "$round" = 1 ] && ! same_bytes; then
            note "$who restored other bytes than it was given at \"$work\""
            return 1
        fi
    done
}

# What came back is what was given.
same_bytes() {
    local out
    out=$(find "$W/out" -name volume.img -type f | head -n1)
    [ -n "$out" ] && "$BUILD/perf/same_bytes" "$W/v/volume.img" "$out" >&2
}

# The groups, each with data sets of its own: WORK="random text zeros image database sparse tib".
DEFAULTS=(snapferry kopia snapferry-scalar restic borg casync)

work_random() {
    make_data random "$W/data/random" "$SIZE" "$SEED"
    reading_limits
    local steps='backup=unique_incompressible@random again=duplicate,_full_re-read scan=duplicate,_every_cut_searched'
    steps+=' restore=restore,_incompressible verify=verify,_all_data_read'
    group random no "$SIZE" "$writes" "$RUNS" "$steps" \
        snapferry kopia snapferry-scalar restic snapferry-blake3 kopia-blake3 borg snapferry-fixed kopia-fixed casync
    drop_data random
}

work_text() {
    make_text "$SIZE"
    compressing_limit
    group text yes "$(mib_of text)" "$writes" "$RUNS" \
        "backup=unique_compressible,_zstd-fastest@text restore=restore,_compressed" "${DEFAULTS[@]}"
    drop_data text
}

work_zeros() {
    make_data zeros "$W/data/zeros" "$SIZE"
    group zeros no "$SIZE" 256 "$RUNS" "backup=zeros,_written@zeros again=zeros,_the_second_time" "${DEFAULTS[@]}"
    drop_data zeros
}

work_image() {
    make_image "$SIZE"
    change_image
    group image no "$SIZE" "$writes" "$RUNS" \
        "backup=ext4_image,_first@image backup=ext4_image,_after_changes@image-after" "${DEFAULTS[@]}"
    drop_data image image-after
}

work_database() {
    make_data database "$W/data/database" "$SIZE" "$SEED"
    cp "$W/data/database" "$W/data/database-after"
    make_data rewrite "$W/data/database-after" 1 "$((SEED + 1))"
    group database no "$SIZE" "$writes" "$RUNS" \
        "backup=database_file,_first@database backup=database_file,_1_%_of_pages_rewritten@database-after" \
        "${DEFAULTS[@]}"
    drop_data database database-after
}

# Peers that read holes at the pace of data get one round, and of those that take minutes only Kopia.
work_sparse() {
    make_data sparse "$W/data/sparse" $((SPARSE_GIB * 1024)) $((SIZE / 4)) "$SEED"
    SPARSE=yes PEER_ROUNDS=1 group sparse no $((SPARSE_GIB * 1024)) $((SIZE / 2 + 256)) "$RUNS" \
        "backup=sparse,_${SPARSE_GIB}_GiB_with_$((SIZE / 4))_MiB@sparse restore=restore,_sparse" snapferry kopia borg
    drop_data sparse
}
work_tib() {
    make_data sparse "$W/data/sparse" $((1024 * 1024)) "$SIZE" "$SEED"
    group sparse-tib no $((1024 * 1024)) "$writes" "$RUNS" \
        "backup=sparse,_1_TiB_with_${SIZE}_MiB@sparse again=sparse,_1_TiB,_the_second_time" snapferry
    drop_data sparse
}

all_work() {
    local writes=$((SIZE + 256)) g
    for g in ${WORK:-random text zeros image database sparse tib}; do
        declare -F "work_$g" >/dev/null || die "WORK: there is no \"$g\""
        "work_$g"
    done
}
mib_of() { echo $(($(stat -c %s "$W/data/$1") / 1048576)); }

# What reading costs anybody: fio on the same file, with one job and with one for each CPU.
reading_limits() {
    if ! command -v fio >/dev/null; then note "without fio's read rate: it is not installed"; return; fi
    local jobs run engine=(--ioengine=psync)
    on_tmpfs || engine=(--ioengine=io_uring --iodepth=16 --direct=1)
    for run in $(seq "$RUNS"); do
        for jobs in 1 $(nproc); do
            drop_caches
            fio --name=read --filename="$W/data/random" --rw=read --bs=1M --thread --group_reporting "${engine[@]}" \
                --numjobs="$jobs" --size=$((SIZE / jobs))M --offset_increment=$((SIZE / jobs))M --output-format=json \
                2>"$W/stderr" >"$W/fio" || { note "fio failed: $(head -n1 "$W/stderr")"; return; }
            jq -c --argjson jobs "$jobs" \
                '{limit: "fio read", jobs: $jobs, mibPerSecond: (.jobs[0].read.bw_bytes / 1048576)}' \
                "$W/fio" >>"$RECORDS"
        done
    done
}

# What libzstd gives with all CPUs, in pieces as large as chunks are, nothing else done.
compressing_limit() {
    if ! command -v zstd >/dev/null; then note "without libzstd's own rate: zstd is not installed"; return; fi
    local run mib
    mib=$(mib_of text)
    for run in $(seq "$RUNS"); do
        drop_caches
        timed '{}' 0 zstd -q -1 -B4194304 -T"$(nproc)" -c "$W/data/text"
        jq -c --argjson mib "$mib" \
            '{limit: "zstd -1, all CPUs", mibPerSecond: ($mib / .wall),
                coreSecondsPerGiB: ((.user + .sys) * 1024 / $mib)}' <<<"$LAST" >>"$RECORDS"
    done
}
