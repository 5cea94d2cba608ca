#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench: kernels, stages, and whole backups and restores beside peers, in one run on one machine.
#   SIZE=1024      MiB of each data set            RUNS=3     rounds; medians are told
#   DIR=/dev/shm   where source and repository lie (memory: what the program itself can do; or a disk)
#   KOPIA=/path    the peer that ratios refer to   PEERS="kopia restic borg casync", or none
#   VARIANTS="scalar blake3 fixed"  kernels without SIMD; other choices of the format, for snapferry and Kopia
#   QUICK=1        small sizes and one round: everything is exercised, the figures say little
#   PARTS="memory kernels bench reader index work"  WORK="random text zeros image database sparse tib"
#   SEED=1 RESULTS=perf/results
# Prints tables; leaves them and a JSON file in RESULTS. perf/README.md tells what is measured and how.
set -euo pipefail
if [ -n "${QUICK:-}" ]; then
    SIZE=${SIZE:-48} RUNS=${RUNS:-1} SPARSE_GIB=${SPARSE_GIB:-2}
fi
SIZE=${SIZE:-1024} RUNS=${RUNS:-3} SPARSE_GIB=${SPARSE_GIB:-64} PARTS=${PARTS:-memory kernels bench reader index work}
VARIANTS=${VARIANTS-scalar blake3 fixed}
[[ $SIZE =~ ^[0-9]+$ && $RUNS =~ ^[0-9]+$ && $SIZE -ge 8 && $RUNS -ge 1 ]] ||
    { echo "run.sh: SIZE is MiB, 8 or more; RUNS 1 or more" >&2; exit 2; }
here=$(realpath "$(dirname "$0")")
mkdir -p "${RESULTS:=$here/results}"
RESULTS=$(realpath "$RESULTS")
. "$here/lib.sh"
. "$here/machine.sh"
. "$here/data.sh"
. "$here/peers.sh"
. "$here/work.sh"

# At once: two data sets (or one and what is restored), a repository, and what is touched before a run.
room $((SIZE * 4 + 512))
part() { case " $PARTS " in *" $1 "*) true ;; *) false ;; esac; }
quick_or() { [ -n "${QUICK:-}" ] && echo "$1" || echo "$2"; }

started=$SECONDS stamp=$(date +%Y%m%d-%H%M%S)
find_peers
machine_json >"$W/machine"
peers_json >"$W/peers"
if jq -e '.others.busyPercent > 10 or .others.stolenPercent > 5' "$W/machine" >/dev/null; then
    note "other work takes $(jq -r '"\(.others.busyPercent) % of the CPUs, the hypervisor \(.others.stolenPercent) %"' \
        "$W/machine"): wall times will mislead"
fi
pgrep -x snapferryd >/dev/null && note "snapferryd is running"
"$here/render.sh" --machine "$W/machine" "$W/peers" | tee -a "$W/table"
echo "data sets of $SIZE MiB in $DIR, medians of $RUNS runs" | tee -a "$W/table"

for p in memory kernels; do
    part $p && { "$BUILD/perf/bench_$p" --json --runs "$(quick_or 1 9)" \
        --size "$(quick_or 8 $([ $p = memory ] && echo 256 || echo 32))" 2>/dev/null >"$W/$p"
                 "$here/render.sh" --part $p "$W/$p" | tee -a "$W/table"; }
done
if part bench; then # snapferry bench: more kernels, ciphers, compressors
    "$SNAPFERRY" bench --json $(quick_or "--quick --seconds 0.01 --size 8MiB" "--seconds 0.1") 2>/dev/null |
        tail -n 1 >"$W/bench" || die "snapferry bench fails: $(jq -r .message "$W/bench")"
    "$here/render.sh" --part bench "$W/bench" | tee -a "$W/table"
fi
if part reader; then
    make_data random "$W/data/random" "$SIZE" "$SEED"
    "$BUILD/perf/bench_reader" --json --runs "$(quick_or 1 5)" "$W/data/random" | jq -s . >"$W/reader"
    drop_data random
    "$here/render.sh" --part reader "$W/reader" | tee -a "$W/table"
fi
if part index; then
    "$BUILD/perf/bench_index" --json --dir "$W" --seconds "$(quick_or 0.1 2)" --contents 10000 \
        --contents "$(quick_or 20000 1000000)" | jq -s . >"$W/index"
    "$here/render.sh" --part index "$W/index" | tee -a "$W/table"
fi
part work && all_work

jq -n --slurpfile machine "$W/machine" --slurpfile peers "$W/peers" --slurpfile records "$RECORDS" \
    --rawfile notes "$W/notes" \
    $(for p in memory kernels bench reader index; do [ -s "$W/$p" ] && echo "--slurpfile $p $W/$p" ||
        echo "--argjson $p []"; done) \
    --arg date "$(date -uIseconds)" --argjson size "$SIZE" --argjson runs "$RUNS" --arg dir "$DIR" \
    --arg quick "${QUICK:-}" \
    --argjson seconds $((SECONDS - started)) -L "$here" -f "$here/results.jq" >"$RESULTS/$stamp.json"
"$here/render.sh" --limits "$RESULTS/$stamp.json" | tee -a "$W/table"
cat "$W/notes" >>"$W/table"
cp "$W/table" "$RESULTS/$stamp.txt"
echo
echo "$((SECONDS - started)) s. JSON: $RESULTS/$stamp.json, tables: $RESULTS/$stamp.txt"
