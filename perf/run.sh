#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench: kernels, reader, and whole backups and restores, as ratios to limits and peers measured in the same run.
# Several runs each, medians. Source and repository lie in DIR (default /dev/shm: memory), SIZE MiB of each data set.
#   KOPIA=/path/to/kopia adds the peer; restic and borg are used where installed. RUNS=3 SIZE=1024 DIR=/dev/shm
# Output: a table on standard output, JSON lines in perf/results/.
set -euo pipefail
BUILD=${BUILD:-build} RUNS=${RUNS:-3} SIZE=${SIZE:-1024} DIR=${DIR:-/dev/shm}
BUILD=$(realpath "$BUILD")
W=$(mktemp -d "$DIR/snapferry-bench.XXXXXX")
trap 'rm -rf "$W"' EXIT
export XDG_CACHE_HOME=$W/cache HOME=$W KOPIA_CHECK_FOR_UPDATES=false RESTIC_PASSWORD=x BORG_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_PASSPHRASE=x
mkdir -p perf/results
out=perf/results/$(date +%Y%m%d-%H%M%S).jsonl
(umask 077; echo benchmark >"$W/pw")

echo "machine: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2), $(nproc) CPUs, $(($(grep MemTotal /proc/meminfo | tr -dc 0-9) / 1048576)) GiB, Linux $(uname -r), $(cc -dumpfullversion)"
echo "data sets of $SIZE MiB in $DIR, $RUNS runs each, medians"

# median COMMAND...: wall seconds, core seconds and peak resident MiB of the median run by wall time.
median() {
    local i
    for i in $(seq "$RUNS"); do
        prepare
        /usr/bin/time -f '%e %U %S %M' -o "$W/time" "$@" >/dev/null 2>"$W/stderr" || { cat "$W/stderr" >&2; echo "failed: $*" >&2; exit 1; }
        tail -n1 "$W/time"
    done | sort -n | sed -n "$(((RUNS + 1) / 2))p"
}
prepare() { :; }
first= # seconds of the first line of a group: the others are ratios to it
row() { # GROUP WHO MIB WALL USER SYS KIB
    local rate cpu
    rate=$(bc -l <<<"$3 / ($4 + 0.001)") cpu=$(bc -l <<<"($5 + $6) * 1024 / $3")
    if [ "$2" = snapferry ]; then first=$rate; fi
    printf '%-34s %-22s %8.0f MiB/s  %6.2f core-s/GiB  %5.0f MiB RSS  snapferry is %5.1fx\n' "$1" "$2" "$rate" "$cpu" "$(($7 / 1024))" "$(bc -l <<<"$first / $rate")"
    printf '{"work":"%s","who":"%s","mib":%s,"wall":%s,"user":%s,"sys":%s,"rssKiB":%s}\n' "$1" "$2" "$3" "$4" "$5" "$6" "$7" >>"$out"
}
sf() { "$BUILD/snapferry" -r "$W/sf" --password-file "$W/pw" "$@"; }
k() { "$KOPIA" --config-file "$W/k.config" --password x --no-progress --log-dir "$W/log" "$@"; }

echo
echo "== kernels"
"$BUILD/perf/bench_kernels" | tee -a "$out.txt"
echo
echo "== reader"
openssl enc -aes-128-ctr -nosalt -K 01 -iv 0 </dev/zero 2>/dev/null | head -c $((SIZE << 20)) >"$W/random" || true
"$BUILD/perf/bench_reader" "$W/random" | tee -a "$out.txt"

mkdir "$W/text.d"
tar -cf - /usr/bin /usr/lib /usr/include /usr/share/doc 2>/dev/null | head -c $((SIZE << 20)) >"$W/text" || true
TEXT=$(($(stat -c %s "$W/text") >> 20))
truncate -s 64G "$W/sparse"
for i in 1 20000 40000 65000; do dd if="$W/random" of="$W/sparse" bs=1M count=64 seek=$i conv=notrunc status=none; done
for f in random text sparse; do mkdir "$W/d-$f"; ln "$W/$f" "$W/d-$f/$f"; done

work() { # GROUP FILE MIB OPTIONS-OF-SNAPFERRY KOPIA-COMPRESSION RESTIC-COMPRESSION
    local group=$1 file=$2 mib=$3 opts=$4 kc=$5 rc=$6
    echo
    prepare() { rm -rf "$W/sf" "$W/cache"; sf repo create --quiet; }
    # shellcheck disable=SC2086
    row "$group" snapferry "$mib" $(median "$BUILD/snapferry" -r "$W/sf" --password-file "$W/pw" backup "$W/$file" --as b@b:/b --quiet $opts)
    if [ -n "${KOPIA:-}" ]; then
        prepare() { rm -rf "$W/k" "$W/kc" "$W/k.config"; k repository create filesystem --path "$W/k" --cache-directory "$W/kc" >/dev/null 2>&1
                    k policy set --global --compression="$kc" >/dev/null 2>&1; }
        row "$group" kopia "$mib" $(median "$KOPIA" --config-file "$W/k.config" --password x --no-progress --log-dir "$W/log" snapshot create "$W/d-$file" --no-auto-maintenance)
    fi
    if command -v restic >/dev/null && [ "$file" != sparse ]; then
        prepare() { rm -rf "$W/restic"; restic -r "$W/restic" init -q --repository-version 2; }
        row "$group" restic "$mib" $(median restic -r "$W/restic" --no-cache backup -q --compression "$rc" "$W/d-$file")
    fi
    prepare() { :; }
}
work "unique incompressible" random "$SIZE" "" none off
prepare() { :; }
echo
row "duplicate, full re-read" snapferry "$SIZE" $(median "$BUILD/snapferry" -r "$W/sf" --password-file "$W/pw" backup "$W/random" --as b@b:/b --quiet)
row "duplicate, without parent" "snapferry full scan" "$SIZE" $(median "$BUILD/snapferry" -r "$W/sf" --password-file "$W/pw" backup "$W/random" --as b@b:/b --quiet --no-parent)
if [ -n "${KOPIA:-}" ]; then
    row "duplicate, full re-read" kopia "$SIZE" $(median "$KOPIA" --config-file "$W/k.config" --password x --no-progress --log-dir "$W/log" snapshot create "$W/d-random" --no-auto-maintenance --force-hash=100)
fi
echo
prepare() { rm -f "$W/out"; }
row "restore" snapferry "$SIZE" $(median "$BUILD/snapferry" -r "$W/sf" --password-file "$W/pw" restore latest "$W/out" --quiet)
rm -f "$W/out"
if [ -n "${KOPIA:-}" ]; then
    id=$(k snapshot list --json 2>/dev/null | jq -r '.[-1].id')
    prepare() { rm -rf "$W/kout"; }
    row "restore" kopia "$SIZE" $(median "$KOPIA" --config-file "$W/k.config" --password x --no-progress --log-dir "$W/log" snapshot restore "$id" "$W/kout")
    rm -rf "$W/kout"
fi
prepare() { :; }
echo
row "verify, all data read" snapferry "$SIZE" $(median "$BUILD/snapferry" -r "$W/sf" --password-file "$W/pw" verify --quiet)
if [ -n "${KOPIA:-}" ]; then
    row "verify, all data read" kopia "$SIZE" $(median "$KOPIA" --config-file "$W/k.config" --password x --no-progress --log-dir "$W/log" snapshot verify --verify-files-percent=100)
fi
work "unique compressible, zstd-fastest" text "$TEXT" "--compression zstd-fastest" zstd-fastest auto
work "sparse, 64 GiB with 256 MiB" sparse 65536 "" none off
echo
echo "JSON: $out"
