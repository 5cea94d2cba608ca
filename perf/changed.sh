#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-changed: an incremental backup (--changed-ranges) against a full read of the same volume.
#   PLACES="10 100 1000"     so many places of 4 KiB have changed
#   SIZE=1024                MiB of random data
#   HOLE=1023                GiB of holes behind it (tmpfs and XFS have files of that size)
#   SPLITTERS="DYNAMIC-4M-BUZHASH FIXED-1M FIXED-128K"
#   RUNS=3 DIR=/dev/shm      both kinds of run in turns, medians
# Prints one line for each splitter and number of places: seconds, MiB read and peak of the memory (KiB, all kinds) of
# both, and the ratio of the seconds. Both make the same object: a difference ends the run.
set -euo pipefail
PLACES=${PLACES:-10 100 1000} SIZE=${SIZE:-1024} HOLE=${HOLE:-1023} RUNS=${RUNS:-3}
SPLITTERS=${SPLITTERS:-DYNAMIC-4M-BUZHASH FIXED-1M FIXED-128K}
. "$(dirname "$0")/lib.sh"
[[ $SIZE$HOLE$RUNS =~ ^[0-9]+$ && $SIZE -ge 8 && $RUNS -ge 1 ]] ||
    die "SIZE is MiB, 8 or more; HOLE is GiB; RUNS 1 or more"
export XDG_CACHE_HOME=$W/cache HOME=$W
room $((4 * SIZE))
sf() { "$SNAPFERRY" -r "$W/repo" --password-file "$W/pw" --quiet "$@"; }
median() { sort -g | sed -n "$(((RUNS + 1) / 2))p"; }

# run NAME ARGS...: one backup; appends seconds, MiB read and peak to $W/NAME, and prints the object.
run() {
    local name=$1 out
    shift
    out=$(/usr/bin/time -o "$W/peak" -f %M "$SNAPFERRY" -r "$W/repo" --password-file "$W/pw" --quiet --json \
        backup "$W/v/image" "$@" | tail -n 1)
    jq -r --arg peak "$(tail -n 1 "$W/peak")" '[.seconds, (.readBytes / 1048576 | floor), $peak] | @tsv' <<<"$out" \
        >>"$W/$name"
    jq -r .object <<<"$out"
}
# change N: rewrites N pages, spread over the data, and lists them. The positions are those of a fixed sequence.
change() {
    local i page
    : >"$W/ranges"
    openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "$1")" -iv 0 </dev/zero 2>/dev/null |
        head -c $((4096 * $1)) >"$W/pages" || true
    for ((i = 0; i < $1; i++)); do
        page=$(((i * 7919 + $1) % (SIZE * 256)))
        dd if="$W/pages" of="$W/v/image" bs=4096 skip=$i seek=$page count=1 conv=notrunc status=none
        echo "$((page * 4096)) 4096" >>"$W/ranges"
    done
}

printf '%-20s %7s  %9s %9s %6s  %9s %9s  %9s %9s\n' splitter places full incr. ratio 'full MiB' 'incr. MiB' \
    'full KiB' 'incr. KiB'
for splitter in $SPLITTERS; do
    rm -rf "$W"/{repo,cache,v}
    mkdir "$W/v"
    openssl enc -aes-128-ctr -nosalt -K 1 -iv 0 </dev/zero 2>/dev/null | head -c "${SIZE}M" >"$W/v/image" || true
    truncate -s +"${HOLE}G" "$W/v/image"
    sf repo create --splitter "$splitter" >/dev/null
    parent=$(sf backup "$W/v/image" --as t@h:/v --json | tail -n 1 | jq -r .snapshot)
    for places in $PLACES; do
        change "$places"
        rm -f "$W"/{full,incremental}
        # What is new is stored once, before: all runs find it, and differ in reading and searching only.
        sf backup "$W/v/image" --as t@h:/new --no-parent
        for ((r = 0; r < RUNS; r++)); do
            a=$(run full --as t@h:/full --no-parent)
            b=$(run incremental --as t@h:/v --parent "$parent" --changed-ranges "$W/ranges" --verify-sample 0)
            [ "$a" = "$b" ] || die "the objects differ: $a, $b"
        done
        parent=$(sf snapshot list --json --as t@h:/v | jq -r '.snapshots[-1].id')
        read -r fs is < <(echo "$(cut -f1 "$W/full" | median) $(cut -f1 "$W/incremental" | median)")
        printf '%-20s %7s  %9.3f %9.3f %6.1f  %9s %9s  %9s %9s\n' "$splitter" "$places" "$fs" "$is" \
            "$(bc -l <<<"$fs / $is")" "$(cut -f2 "$W/full" | median)" "$(cut -f2 "$W/incremental" | median)" \
            "$(cut -f3 "$W/full" | median)" "$(cut -f3 "$W/incremental" | median)"
    done
done
