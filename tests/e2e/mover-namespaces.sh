#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a forked mover may open (MS-04): no network, a system that is read-only without devices, but for the repository
# and its cache.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "namespaces, native snapshots on a real file system"
fs_make xfs xfs || exit 1
image "$WORK/xfs/a.img" 2 1
daemon_setup
config_class xfs "$WORK/xfs"
starts "the daemon starts"
running "$WORK/xfs/a.img"
inside() { nsenter -t "$PID" -m -- "$@"; }
same "no interface but lo" "$(tail -n +3 "/proc/$PID/net/dev" | cut -d: -f1 | tr -d ' ' | tr '\n' ' ')" "lo "
different() { [ "$(readlink "/proc/$PID/ns/$1")" != "$(readlink "/proc/self/ns/$1")" ]; }
for ns in mnt net ipc; do check "a namespace of its own: $ns" different "$ns"; done
for dir in / /etc /usr "$STATE" "$WORK/xfs" "$CONF"; do
    expect "it cannot write to $dir" 1 'Read-only file system' -- inside touch "$dir/written"
done
expect "it has no devices" 1 'Permission denied' -- inside head -c 1 /dev/zero
check "it can write to the repository" inside touch "$REPO/written"
check "and to its cache" inside touch "$CACHE/root/written"
rm -f "$REPO/written" "$CACHE/root/written"
kill -CONT "$PID"
same "the backup completes" "$(wait_state "$A" Completed 40)" Completed
clean "nothing is left behind" 8 "$WORK/xfs"
explain_failure
finish
