#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Maintenance on a file system that is full (CF-40, CF-42): what may be deleted is deleted before anything is written,
# the reserve has room for the small blobs that the rest needs, snapshots can be deleted, space comes back; killed
# anywhere nothing is lost. KOPIA=/path/to/kopia: stock Kopia judges each state, too.
cd "$(dirname "$0")/../.." || exit 1
. tests/daemon-lib.sh
need_root "file systems to be filled"
RESERVE=.snapferry-reserve
m() { sf "$R" maintenance --full --node-name n1 "$@"; }
at() { # POINT: killed there
    env SNAPFERRY_CRASH_AT="$1" "$SF" -r "$R" --password-file "$WORK/password" maintenance --full --node-name n1
}
killed() {
    expect "$type: killed at $1" 137 -- at "$1"
    judge "$type, killed at $1"
}
take() { sf "$R" backup "$WORK/$1" --as "$1@h:/v" --quiet; }
bytes() { find "$R/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
reserve() { stat -c %s "$R/$RESERVE" 2>/dev/null || echo none; }
# The last byte, also of what is set aside for root; with [KIB] left free.
fill() {
    local i
    dd if=/dev/zero of="$FS/fill" bs=1M status=none 2>/dev/null
    dd if=/dev/zero of="$FS/fill.more" bs=4k status=none 2>/dev/null
    for i in $(seq 200); do printf 'x%.0s' {1..200} >"$FS/fill.$i" 2>/dev/null || break; done
    sync -f "$FS"
    dd if=/dev/zero of="$FS/fill.last" bs=4k status=none 2>/dev/null
    sync -f "$FS"
    ! dd if=/dev/zero of="$FS/fill.none" bs=64k count=1 conv=fsync status=none 2>/dev/null
}
drain() { rm -f "$FS"/fill*; sync -f "$FS"; }
# Times are changed by a tool that needs room.
age() {
    drain
    "$TOOLS/age_repository" "$R" "$WORK/password" "$1" || fail "aged by $1 hours"
}
k() {
    [ -s "$WORK/kopia.config" ] ||
        "$KOPIA" --config-file "$WORK/kopia.config" --log-dir "$WORK/log" repository connect filesystem --path "$R" \
            --password "test password" --cache-directory "$WORK/kc" --no-check-for-updates \
            --max-list-cache-duration=0s --override-username stock --override-hostname here >/dev/null 2>&1
    "$KOPIA" --config-file "$WORK/kopia.config" --password "test password" --no-progress --log-level=error \
        --log-dir "$WORK/log" "$@" 2>&1
}
judge() { # WHEN: what is kept is whole
    check "$1: whole" sf "$R" verify --quiet
    [ -n "${KOPIA:-}" ] || return
    rm -rf "$WORK/kc" "$WORK/kopia.config"
    check "$1: stock Kopia verifies all snapshots" k snapshot verify --verify-files-percent=100 --no-auto-maintenance
    check "$1: and all contents" k content verify --full --no-auto-maintenance
}
rm -f "$WORK/password"
secret "$WORK/password" <<<"test password"
random_file "$WORK/a" 9000000 1
random_file "$WORK/b" 12000000 2
random_file "$WORK/c" 7000000 3
RIPE=$WORK/ripe

for type in xfs ext4; do
    fs_make "$type" "$type" $([ $type = xfs ] && echo 320 || echo 128) || { fail "a file system: $type"; continue; }
    FS=$WORK/$type R=$WORK/$type/repo
    check "$type: a repository" sf "$R" repo create --quiet --node-name n1
    check "$type: it has a reserve ($(reserve))" test "$(reserve)" -ge 1048576
    check "$type: which takes up room" test "$(stat -c %b "$R/$RESERVE")" -ge 2048
    take a && take b
    full=$(bytes)
    judge "$type, with its reserve"
    [ -z "${KOPIA:-}" ] ||
        same "$type: stock Kopia lists no such blob" "$(k blob list --no-auto-maintenance | grep -c reserve)" 0
    check "$type: a copy" sf "$R" repo sync-to "$WORK/copy" --quiet
    same "$type: leaves it out" "$(find "$WORK/copy" -name '*reserve*' | wc -l)" 0
    check "$type: and is whole" sf "$WORK/copy" verify --quiet
    rm -rf "$WORK/copy"

    # A backup does not use it, a deletion does.
    check "$type: it is full" fill
    before=$(reserve)
    expect "$type: a backup finds no room" 18 'No space left' -- sf "$R" backup "$WORK/c" --as c@h:/v
    same "$type: and leaves the reserve" "$(reserve)" "$before"
    check "$type: a snapshot can be deleted" sf "$R" snapshot delete latest --as b@h:/v --force --quiet
    check "$type: for that there is the reserve" test "$(reserve)" -lt "$before"
    judge "$type, deleted"

    # Three runs on a full file system, a day apart.
    for i in 1 2 3; do
        age 25
        check "$type: full before run $i" fill
        out=$(m --json 2>"$WORK/err")
        same "$type: run $i" $? 0
        [ $i = 3 ] || judge "$type, run $i"
    done
    check "$type: the space is back" test "$(bytes)" -lt $((full - 10000000))
    drain
    check "$type: with room" m --quiet
    check "$type: there is the reserve as it was ($(reserve))" test "$(reserve)" -ge 1048576
    judge "$type, freed"
    check "$type: restored" sf "$R" restore latest --as a@h:/v "$WORK/out-$type" --quiet
    check "$type: as it was" cmp "$WORK/a" "$WORK/out-$type"
    drain

    # A repository without reserve, of an earlier version or of stock Kopia: what killed writers left goes first.
    take c
    sf "$R" snapshot delete latest --as c@h:/v --force --quiet
    for i in 1 2; do age 25 && m --quiet; done
    age 25
    expect "$type: killed before packs are deleted" 137 -- at maintenance-dropped
    age 100
    tmp=$(find "$R/p" -name '*.f' | head -n 1).tmp.0123456789abcdef
    dd if=/dev/zero of="$tmp" bs=100k count=1 status=none
    log=$R/_/log/_20260101000000_abcd_1_2_1_0123456789abcdef0123456789abcdef.f
    mkdir -p "${log%/*}" && head -c 50000 "$WORK/a" >"$log"
    touch -d '40 days ago' "$tmp" "$log"
    rm "$R/$RESERVE"
    rm -rf "$RIPE" && cp -a "$R" "$RIPE"
    check "$type: full without reserve" fill
    before=$(bytes)
    out=$(m --json 2>"$WORK/err") || fail "$type: a run without reserve" "$(cat "$WORK/err")"
    same "$type: files of killed writers, logs and packs are gone" \
        "$(tail -n 1 <<<"$out" | jq -c '[.leftovers.count, .deletedLogs.count, .deletedPacks.count > 0]')" '[1,1,true]'
    check "$type: really" test "$(bytes)" -lt "$before" -a ! -e "$tmp" -a ! -e "$log"
    judge "$type, without reserve"

    # Killed at each point of that, one after the other, still full: nothing is lost, the next run completes it.
    drain
    rm -rf "$R" && cp -a "$RIPE" "$R"
    check "$type: full again" fill
    for at in maintenance-leftovers maintenance-log-deleted maintenance-pack-deleted maintenance-freed-first; do
        killed $at
    done
    killed maintenance-begun
    killed maintenance-recorded:2
    check "$type: the next run completes it" m --quiet
    check "$type: freed" test "$(bytes)" -lt "$before"
    judge "$type, completed"

    # Nothing may be deleted, there is no reserve: one clear error, and nothing has changed.
    age 100
    m --quiet
    rm -f "$R/$RESERVE"
    check "$type: full, and nothing may go" fill
    before=$(cd "$R" && find . -type f | sort | xargs sha256sum | sha256sum)
    expect "$type: no room at all" 18 \
        'freed 0.0 MiB and stopped for lack of room, the rest needs about [0-9.]+ MiB' -- m
    same "$type: nothing was changed" "$(cd "$R" && find . -type f | sort | xargs sha256sum | sha256sum)" "$before"
    expect "$type: quick maintenance says what to do" 18 'full maintenance frees space' -- \
        sf "$R" maintenance --node-name n1
    # The cache lies there as well.
    drain
    mkdir "$FS/cache"
    XDG_CACHE_HOME=$FS/cache sf "$R" verify --quiet
    XDG_CACHE_HOME=$FS/cache m --quiet
    check "$type: full with its cache" fill
    expect "$type: maintained with a full cache" 0 -- env XDG_CACHE_HOME="$FS/cache" "$SF" -r "$R" \
        --password-file "$WORK/password" maintenance --full --node-name n1
    judge "$type, in the end"
    drain
done
finish
