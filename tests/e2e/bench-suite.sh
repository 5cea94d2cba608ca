#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The benchmark suite in its smallest size, without peers: every part runs, and the tables and the JSON files are
# complete. No figure is judged.
. "$(dirname "$0")/../lib.sh"
if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then skip "benchmarks" "nothing to learn from them under a sanitizer"; finish; fi
PERF=$(realpath "$(dirname "$0")/../../perf")
DIR=$WORK
[ ! -w /dev/shm ] || DIR=/dev/shm
LOOK=$(type -P jq)
PATH=${PATH#"$WORK/.jq:"} # measured with the jq of users
export MEASURED=$SF # derives each key once
export BUILD DIR QUICK=1 SIZE=8 RUNS=1 PEERS=none
left() { find "$DIR" -maxdepth 1 -name 'snapferry-bench.*' | wc -l; }
before=$(left)

RESULTS=$WORK/r VARIANTS=scalar PARTS="memory kernels reader index work" "$PERF/run.sh" >"$WORK/out" 2>"$WORK/err"
same "a run of everything" $? 0
J=$(find "$WORK/r" -name '*.json') T=$(find "$WORK/r" -name '*.txt')
# holds NAME FILTER FILE: the JSON fulfils it.
holds() {
    if "$LOOK" -e "$2" "$3" >/dev/null 2>&1; then pass "$1"; else fail "$1" "not so: $2" "$(tail -n 3 "$WORK/err")"; fi
}
holds "the machine is described" \
    '.machine | [.cpu, .level, .governor, .kernel, .dataFileSystem, .compiler, .snapferry, .source]
    | all(type == "string" and . != "")' "$J"
holds "its memory, CPUs and load too" '.machine | [.cpus, .memoryMiB, .others.busyPercent] | all(type == "number")' "$J"
holds "whether free memory is taken back" '.machine.freeMemoryTakenBack | type == "boolean"' "$J"
holds "memory bandwidth" '[.memory.rates[].gbPerSecond] | length == 6 and all(. > 0)' "$J"
holds "kernels, beside scalar ones" '[.kernels.kernels[] | select(.kernel == "scalar")] | length >= 5' "$J"
holds "reading, every way" '[.reader[].way] | unique | length == 4' "$J"
holds "the index" '[.index[].contents] == [10000, 20000]' "$J"
want='["random unique incompressible", "random duplicate, full re-read", "random duplicate, every cut searched",
    "random restore, incompressible", "random verify, all data read", "text unique compressible, zstd-fastest",
    "text restore, compressed", "zeros zeros, written", "zeros zeros, the second time", "image ext4 image, first",
    "image ext4 image, after changes", "database database file, first",
    "database database file, 1 % of pages rewritten", "sparse sparse, 2 GiB with 2 MiB", "sparse restore, sparse",
    "sparse-tib sparse, 1 TiB with 8 MiB", "sparse-tib sparse, 1 TiB, the second time"]'
holds "all the work, in order" "[.work[] | select(.who == \"snapferry\") | .group + \" \" + .work] == $want" "$J"
holds "each with time, CPU and memory" \
    '[.work[] | .seconds, .coreSeconds, .mibPerSecond, .rssMiB] | all(type == "number" and . > 0)' "$J"
holds "as many runs as asked for" \
    '.parameters.runs == 1 and ([.work[] | .runs == 1 and (.single | length) == 1] | all)' "$J"
holds "backups tell what they stored" \
    '[.work[] | select(.step != "restore" and .step != "verify") | .storedMiB] | all(type == "number")' "$J"
holds "duplicates store next to nothing" '[.work[] | select(.step == "again") | .storedMiB] | all(. < 0.5)' "$J"
holds "ratios to scalar and to memory" \
    '[.work[] | select(.who == "snapferry" and .group == "random") | .ratios | .toScalar, .coreToScalar, .toMemoryRead]
    | all(type == "number")' "$J"
holds "fio's rate, or why not" \
    '([.limits[] | select(.limit == "fio read")] | length > 0) or (.notes | any(test("fio")))' "$J"
"$PERF/render.sh" "$J" >"$WORK/markdown"
for work in "unique incompressible" "verify, all data read" "ext4 image, after changes" "1 % of pages rewritten" \
    "the second time"; do
    check "the table has: $work" grep -q "$work" "$T"
    check "the Markdown has: $work" grep -qE "^\| [^|]*$work" "$WORK/markdown"
done
check "the terminal gets the same table" grep -qF "$(head -n 1 "$T")" "$WORK/out"

RESULTS=$WORK/s VOLUMES=64 CONTENTS=1000 WORKERS=2 DATA=8 "$PERF/scaling.sh" >"$WORK/out" 2>"$WORK/err"
same "scaling" $? 0
J=$(find "$WORK/s" -name '*.json')
holds "volumes, repositories and workers" \
    '[.scaling[] | [.part, .x]] | unique == [["repository", 1000], ["volume", 64], ["workers", 2]]' "$J"
holds "each with time and memory" \
    '[.scaling[] | .seconds, .coreSeconds, .ownMiB] | length == 33 and all(type == "number" and . > 0)' "$J"
check "its Markdown" grep -qE '^\| 64 GiB \| restore' <("$PERF/render.sh" "$J")

expect "a place that is too small is refused, with the need" 1 "MiB are needed in DIR" \
    -- env SIZE=100000000 RESULTS="$WORK/x" "$PERF/run.sh"
expect "a wrong size is refused" 2 "SIZE is MiB" -- env SIZE=big RESULTS="$WORK/x" "$PERF/run.sh"
expect "a peer that is no program is refused" 1 "is no program" -- env PEERS=kopia KOPIA="$WORK" \
    RESULTS="$WORK/x" "$PERF/run.sh"
same "nothing is left behind" "$(left)" "$before"
finish
