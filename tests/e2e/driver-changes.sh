#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What the reflink driver lists as changed, against the bytes of both native snapshots, on XFS and btrfs: random writes,
# truncation, holes, allocation, clones between files, defragmentation. (CF-08, CF-13, CF-14, CF-09)
. "$(dirname "$0")/../lib.sh"
is_root || { skip "lists of changes on real file systems" "needs root for mounts"; finish; }

mounted() { # NAME OPTIONS MKFS...
    local name=$1 options=$2
    shift 2
    truncate -s 600M "$WORK/$name.disk"
    "$@" "$WORK/$name.disk" >/dev/null 2>&1 && mkdir "$WORK/$name" &&
        mount -o "loop$options" "$WORK/$name.disk" "$WORK/$name" || return 1
    at_exit "umount -l $WORK/$name"
}
changes() { # WHAT IMAGE SEED ROUNDS DEFRAGMENT...: its TAP becomes ours
    local what=$1 line
    shift
    "$TOOLS/driver_changes" "$@" >"$WORK/tap" 2>&1
    while IFS= read -r line; do
        case $line in
        "ok "*) pass "$what: ${line#*- }" ;;
        "not ok "*) fail "$what: ${line#*- }" ;;
        *) echo "# ${line#\# }" ;;
        esac
    done <"$WORK/tap"
    check "$what: the suite ran to its end" grep -q '^1\.\.' "$WORK/tap"
}
seed=${SEED:-1}
if command -v mkfs.xfs >/dev/null && mounted xfs "" mkfs.xfs -q; then
    EXPECT_SMALL=1 changes XFS "$WORK/xfs/a.img" "$seed" 40 xfs_fsr "$WORK/xfs/a.img" '>/dev/null' '2>&1'
else
    skip "XFS" "no mkfs.xfs, or it cannot be mounted"
fi
if command -v mkfs.btrfs >/dev/null && mounted btrfs "" mkfs.btrfs -q; then
    EXPECT_SMALL=1 changes btrfs "$WORK/btrfs/a.img" "$seed" 40 btrfs -q filesystem defragment -f "$WORK/btrfs/a.img"
    mkdir "$WORK/btrfs/nocow"; chattr +C "$WORK/btrfs/nocow"
    EXPECT_SMALL=1 changes "btrfs nocow" "$WORK/btrfs/nocow/a.img" "$seed" 20
    changes "btrfs with a balance" "$WORK/btrfs/b.img" "$seed" 9 \
        btrfs -q balance start --full-balance "$WORK/btrfs" '>/dev/null' '2>&1'
else
    skip "btrfs" "no mkfs.btrfs, or it cannot be mounted"
fi
if command -v mkfs.btrfs >/dev/null && mounted packed ,compress-force=zstd mkfs.btrfs -q; then
    changes "compressed btrfs" "$WORK/packed/a.img" "$seed" 12
    # Wholly compressed: nothing tells where the data lie.
    yes "compressible" | head -c 4M >"$WORK/packed/c.img"; sync "$WORK/packed/c.img"
    call() { "$TOOLS/driver_call" --match "$WORK/packed/*.img" "$@"; }
    one=$(call snapshot "$WORK/packed/c.img" "$(cat /proc/sys/kernel/random/uuid)")
    two=$(call snapshot "$WORK/packed/c.img" "$(cat /proc/sys/kernel/random/uuid)")
    expect "wholly compressed: not known" 0 '^uncertain: .*is compressed: its file system does not tell' -- \
        call changed "$one" "$two"
fi
finish
