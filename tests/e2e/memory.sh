#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Anonymous and shared memory stay within --memory, mapped pages within --index-memory and what is documented beside it,
# whatever the sizes of volume, chunks, packs and index. On a disk: tables mapped from a tmpfs would count as memory.
# The index has MEMORY_CONTENTS contents: four million, of which less than half may be mapped; `make memory-long`: ten.
TMPDIR=${MEMORY_TEST_DIR:-/var/tmp} SCRATCH=
DERIVE_KEYS=1 # what is measured is the command as users have it
. "$(dirname "$0")/../lib.sh"
unset DERIVE_KEYS
if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then skip "memory" "a sanitizer's own memory would be measured"; finish; fi
MIB=1048576
R=$WORK/repo

# within NAME BUDGET-MIB CODE ARGS...: runs the command under the sampler; both bounds and the exit code are asserted.
# MAPPED: what may be mapped, MiB: index pages, and a little for what the kernel maps around a fault. The report is left
# in $WORK/peak, the output in $WORK/out.json and $WORK/err.
MAPPED=66
within() {
    local name=$1 budget=$2 code=$3 own mapped rc
    shift 3
    "$TOOLS/rss_peak" "$WORK/peak" "$SNAPFERRY" --password-file "$WORK/password" "$@" --json \
        >"$WORK/out.json" 2>"$WORK/err"
    rc=$?
    own=$(jq .own "$WORK/peak") mapped=$(jq .mapped "$WORK/peak")
    local told="$((own / MIB)) of $budget MiB, $((mapped / MIB)) MiB mapped, $(jq \
        -r '"\(.seconds) s, \(.samples) samples"' "$WORK/peak")"
    if [ $rc -ne "$code" ]; then
        fail "$name" "exited with $rc, not $code: $(tail -n 3 "$WORK/err")"
    elif [ "$own" -gt $((budget * MIB)) ] || [ "$mapped" -gt $((MAPPED * MIB)) ]; then
        fail "$name" "too much memory: $told (at most $MAPPED)"
    elif [ "$(jq .samples "$WORK/peak")" -lt 5 ]; then
        fail "$name" "not measured: $told"
    else
        pass "$name: $told"
    fi
}

random_file "$WORK/random" $((256 * MIB)) 21
sf "$R" repo create --quiet
within "incompressible, 96 MiB" 96 0 -r "$R" backup "$WORK/random" --as t@h:/random --memory 96M
within "the same again with its parent, 96 MiB" 96 0 -r "$R" backup "$WORK/random" --as t@h:/random \
    --memory 96M --compression zstd
same "nothing is new" "$(result newBytes <"$WORK/out.json")" 0
within "restore, 96 MiB" 96 0 -r "$R" restore latest "$WORK/out" --memory 96M
within "differential restore, 96 MiB" 96 0 -r "$R" restore latest "$WORK/out" --memory 96M --differential --verify
check "the right bytes" cmp "$WORK/random" "$WORK/out"
rm "$WORK/out"
within "restore, default" 256 0 -r "$R" restore latest "$WORK/out" --workers 8
rm "$WORK/out"
within "verify, 96 MiB" 96 0 -r "$R" verify --memory 96M
within "verify, default" 256 0 -r "$R" verify --workers 8
rm -rf "$R"

truncate -s 1T "$WORK/sparse"
for i in $(seq 0 15); do
    dd if="$WORK/random" of="$WORK/sparse" bs=1M skip=$((i * 8)) seek=$((i * 65000 + 17)) count=8 \
        conv=notrunc status=none
done
sf "$R" repo create --quiet
within "1 TiB sparse, 96 MiB" 96 0 -r "$R" backup "$WORK/sparse" --as t@h:/sparse --memory 96M
within "1 TiB sparse with its parent, default" 256 0 -r "$R" backup "$WORK/sparse" --as t@h:/sparse
within "1 TiB sparse restored, 96 MiB" 96 0 -r "$R" restore latest "$WORK/out" --memory 96M
rm "$WORK/out"
within "1 TiB sparse verified, 96 MiB" 96 0 -r "$R" verify --memory 96M
rm -rf "$R" "$WORK/sparse"

# The longest chunks and packs there are.
sf "$R" repo create --quiet --splitter DYNAMIC-8M-BUZHASH --pack-size 120MiB
within "8 MiB chunks in 120 MiB packs, 96 MiB" 96 0 -r "$R" backup "$WORK/random" --as t@h:/none --memory 96M
# The best compression needs more: the refusal tells how much, and that is enough.
within "8 MiB chunks compressed: 96 MiB are refused" 96 22 -r "$R" backup "$WORK/random" --as t@h:/best --memory 96M \
    --compression zstd-best-compression
need=$(grep -oE 'use --memory [0-9]+' "$WORK/err" | grep -oE '[0-9]+$')
within "8 MiB chunks compressed: what was asked for" "${need:-0}" 0 -r "$R" backup "$WORK/random" --as t@h:/best \
    --memory "${need:-0}M" --compression zstd-best-compression
within "8 MiB chunks in 120 MiB packs, default" 256 0 -r "$R" backup "$WORK/random" --as t@h:/d --no-parent
# A list of changes: two more chunks are held, one read apart and one of the sample.
for i in $(seq 0 31); do echo "$((i * 8 * MIB + 4096)) 4096"; done >"$WORK/ranges"
latest=$(sf "$R" snapshot list --json | jq -r '.snapshots | map(select(.source.path == "/d"))[-1].id')
within "8 MiB chunks from a list of changes, default" 256 0 -r "$R" backup "$WORK/random" --as t@h:/d \
    --parent "$latest" --changed-ranges "$WORK/ranges"
within "8 MiB chunks restored, default" 256 0 -r "$R" restore latest "$WORK/out" --as t@h:/d --workers 8
check "the right bytes" cmp "$WORK/random" "$WORK/out"
within "8 MiB chunks restored, 96 MiB" 96 0 -r "$R" restore latest "$WORK/out" --as t@h:/d --memory 96M --force --verify
within "8 MiB chunks, differential, 96 MiB" 96 0 -r "$R" restore latest "$WORK/out" --as t@h:/d \
    --memory 96M --differential
within "8 MiB chunks verified, 96 MiB" 96 0 -r "$R" verify --memory 96M
rm -rf "$R" "$WORK/out"

# Error correction needs a content as a whole, twice. The refusal tells how much that is, and that is enough.
head -c $((64 * MIB)) "$WORK/random" >"$WORK/part"
sf "$R" repo create --quiet --splitter DYNAMIC-8M-BUZHASH --ecc-percent 5
check "a backup with error correction" sf "$R" backup "$WORK/part" --as t@h:/ecc --quiet
within "8 MiB chunks with error correction restored, 96 MiB" 96 0 -r "$R" restore latest "$WORK/out" --memory 96M
within "8 MiB chunks with error correction, differential: 96 MiB are refused" 96 22 -r "$R" restore latest "$WORK/out" \
    --memory 96M --differential
need=$(grep -oE 'use --memory [0-9]+' "$WORK/err" | grep -oE '[0-9]+$')
within "8 MiB chunks with error correction, differential, what was asked for" "${need:-0}" 0 -r "$R" \
    restore latest "$WORK/out" \
    --memory "${need:-0}M" --differential
check "the right bytes" cmp "$WORK/part" "$WORK/out"
rm -rf "$R" "$WORK/out" "$WORK/part" "$CACHE"

# An index of many contents, in packs of a thousand.
: "${MEMORY_CONTENTS:=4000000}"
truncate -s $((128 * MIB)) "$WORK/random"
sf "$R" repo create --quiet
check "an index of millions of contents is made" "$TOOLS/make_index" --contents "$MEMORY_CONTENTS" --blobs 20 \
    "$R" "$WORK/password"
within "opened cold" 96 0 -r "$R" snapshot list
within "opened warm" 96 0 -r "$R" snapshot list
check "opening it warm takes $(jq .seconds "$WORK/peak") s, less than 3" jq -e '.seconds < 3' "$WORK/peak"
within "backup beside millions of contents, 96 MiB" 96 0 -r "$R" backup "$WORK/random" --as t@h:/r --memory 96M
MAPPED=12
within "backup beside millions of contents, 8 MiB of index pages" 96 0 -r "$R" backup "$WORK/random" --as t@h:/r2 \
    --memory 96M --index-memory 8MiB
MAPPED=66
within "restore beside millions of contents, 96 MiB" 96 0 -r "$R" restore latest "$WORK/out" --as t@h:/r --memory 96M
check "the right bytes" cmp "$WORK/random" "$WORK/out"
# The made-up contents have no packs: verify finds that, for each pack once.
MAPPED=130
within "verify of millions of entries, 96 MiB" 96 15 -r "$R" verify --memory 96M
same "each missing pack is told" "$(result damages <"$WORK/out.json")" $((MEMORY_CONTENTS / 1000))
finish
