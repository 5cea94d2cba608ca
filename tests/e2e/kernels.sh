#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every kernel level that this CPU has backs up, restores and verifies; all of them make the same objects, and what one
# level wrote another reads.
. "$(dirname "$0")/../lib.sh"

# at LEVEL COMMAND...: with all kernels at that level; those that have none there are scalar.
names=(BUZHASH RABINKARP BLAKE2B BLAKE2S BLAKE3 AESGCM SHA256 MD5)
has() { # LEVEL NAME: is there such a kernel, on this CPU? (Told before the repository is looked for.)
    ! env "SNAPFERRY_KERNEL_$2=$1" "$SNAPFERRY" -r "$WORK/nothing" --password-file "$WORK/password" ls latest 2>&1 |
        grep -q "SNAPFERRY_KERNEL_$2"
}
declare -A settings
levels=()
for level in scalar avx2 avx512; do
    some=
    for n in "${names[@]}"; do
        if has $level "$n"; then
            some=1
            settings[$level]+=" SNAPFERRY_KERNEL_$n=$level"
        else
            settings[$level]+=" SNAPFERRY_KERNEL_$n=scalar"
        fi
    done
    if [ -n "$some" ]; then levels+=($level); else skip "$level" "this CPU runs no $level kernel"; fi
done
check "there is a scalar level" [ "${levels[0]:-}" = scalar ]
at() {
    # shellcheck disable=SC2086
    env ${settings[$1]} "$SF" -r "$R" --password-file "$WORK/password" "${@:2}"
}

# Noise, runs of zeros and of another byte, short periods, text, and an odd end.
random_file "$WORK/noise" 9000000 3
{
    cat "$WORK/noise"
    head -c 3000001 /dev/zero
    head -c 700000 "$WORK/noise"
    head -c 1500000 /dev/zero | tr '\0' 'x'
    yes "a line of text that repeats" | head -c 1000003
    tail -c 5000000 "$WORK/noise"
    head -c 64 /dev/zero
    seq 1 400000
} >"$WORK/file"

for hash in BLAKE2B-256-128 BLAKE3-256 HMAC-SHA256-128 BLAKE2S-256; do
    R=$WORK/$hash
    at scalar repo create --block-hash $hash --key-derivation pbkdf2-sha256-600000 --quiet
    for splitter in DYNAMIC-4M-BUZHASH DYNAMIC-128K-BUZHASH DYNAMIC-128K-RABINKARP DYNAMIC-1M-RABINKARP; do
        first=
        for level in "${levels[@]}"; do
            out=$(at $level backup "$WORK/file" --as t@h:/f --splitter $splitter --no-parent --full-scan \
                --json 2>"$WORK/err") ||
                { fail "$hash, $splitter: backup at $level" "$(cat "$WORK/err")"; continue; }
            object=$(result object <<<"$out")
            : "${first:=$object}"
            same "$hash, $splitter: the object of $level" "$object" "$first"
            if [ $level != "${levels[0]}" ]; then
                same "... and $level stores nothing new" "$(result newBytes <<<"$out")" 0
            fi
        done
    done
    # The last snapshot is that of the highest level: each reads it.
    for level in "${levels[@]}"; do
        rm -f "$WORK/out"
        expect "$hash: restore at $level" 0 -- at $level restore latest "$WORK/out" --quiet
        check "$hash: the bytes restored at $level" cmp "$WORK/file" "$WORK/out"
        expect "$hash: verify at $level" 0 -- at $level verify --quiet
    done
done
finish
