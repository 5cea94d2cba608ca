#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A pool over its high-water mark (RS-30): retained native snapshots are pruned one at a time, and what that has freed
# is measured before the next one, also where a file system frees the space of a removed file only later (XFS, btrfs),
# and where several volumes lie in one pool. What is said of it is of now.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots"
SIZE=24 # MiB that each native snapshot has alone
fs_make xfs xfs 400 && fs_make btrfs btrfs 400 || { fail "file systems"; finish; }
daemon_setup
for fs in xfs btrfs; do
    mkdir "$WORK/$fs/vm"
    config_class $fs "$WORK/$fs/vm" 'snapshots-to-retain = 9'
done
config_add job "[job \"all\"]
volumes = $WORK/xfs/vm/*.img $WORK/btrfs/vm/*.img"
starts "the daemon starts"

used() { # FS: of each 10000 of its size
    local s
    s=$(sync -f "$WORK/$1"; stat -f -c '%b %a' "$WORK/$1")
    echo $(((${s% *} - ${s#* }) * 10000 / ${s% *}))
}
# Each native snapshot keeps what the image held alone, once it is written anew.
fill() { # FS IMAGE N
    local i
    for i in $(seq "$3"); do
        random_file "$WORK/$1/vm/$2.img" $((SIZE * MIB)) "$i$2"
        ask backup "$WORK/$1/vm/$2.img" --wait --quiet || return
    done
    random_file "$WORK/$1/vm/$2.img" $((SIZE * MIB)) "last$2"
}
# mark FS N: such that N native snapshots have to go.
mark() {
    local one=$((SIZE * MIB * 10000 / ($(stat -f -c '%b * %S' "$WORK/$1")))) full
    full=$(used "$1")
    MARK=$(((full - $2 * one + one / 2) / 100))
    config_class "$1" "$WORK/$1/vm" 'snapshots-to-retain = 9' "pool-high-water = $MARK"
    ask reload --wait --quiet
}
no_mark() {
    config_class "$1" "$WORK/$1/vm" 'snapshots-to-retain = 9' 'pool-high-water = 99'
    ask reload --wait --quiet
}
count() { natives_of "$1" | wc -l; }
due() { ask native list | grep -c 'due for pruning'; }
problems() { ask status | grep -c 'over its high-water mark'; }

for fs in xfs btrfs; do
    check "$fs: five are retained" fill $fs a 5
    same "$fs: of which none is due" "$(count "$WORK/$fs/vm/a.img") $(due)" "5 0"
    mark $fs 2
    same "$fs: with a mark below what is used, that is a problem" "$(problems)" 1
    same "$fs: and the list names one that is due" "$(due)" 1
    check "$fs: a backup" ask backup "$WORK/$fs/vm/a.img" --wait --quiet
    same "$fs: it has pruned the two that were too many, and no more" "$(count "$WORK/$fs/vm/a.img")" 4
    same "$fs: at once no other one is due" "$(due)" 0
    same "$fs: and the problem is gone" "$(problems)" 0

    no_mark $fs
    check "$fs: another volume" fill $fs b 3
    mark $fs 3
    check "$fs: pruning by hand" ask native prune --yes --quiet
    same "$fs: removes what has to go, not one of each volume" \
        "$(($(count "$WORK/$fs/vm/a.img") + $(count "$WORK/$fs/vm/b.img")))" 4
    same "$fs: after it none is due" "$(due)" 0

    mark $fs 1
    check "$fs: a job with both volumes" ask backup --job all --wait --quiet
    same "$fs: has pruned one of one of them" "$(($(count "$WORK/$fs/vm/a.img") + $(count "$WORK/$fs/vm/b.img")))" 5
    config_class $fs "$WORK/$fs/vm" 'snapshots-to-retain = 0'
    rm -f "$WORK/$fs"/vm/*.img
    ask reload --wait --quiet
done
explain_failure
finish
