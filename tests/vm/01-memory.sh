#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The memory limit of movers is the kernel's (MS-02, MS-03, MS-40): a mover that reaches it is killed, is recorded as
# out of memory in words that help, and takes nothing with it.
VM_DISKS="data:400M more:400M"
. "$(dirname "$0")/lib.sh"
disk_fs data xfs /data && disk_fs more xfs /more || exit 1
image /data/v.img 16 1
image /more/w.img 16 2
cp /data/v.img /srv/v.orig
setup
config_class images /data 'snapshots-to-retain = 1' "$SLOWLY"
config_class others /more 'snapshots-to-retain = 1' "$SLOWLY"
config_add limits '[storage-class "images"]
memory-max = 192MiB'
check "reload" systemctl reload snapferryd

# Less than it has already: the kernel has to kill it.
starve() { systemctl set-property --runtime "$UNIT" MemoryHigh=infinity MemoryMax=4M; }

moving /data/v.img /more/w.img
cgroup=/sys/fs/cgroup$(cut -d: -f3- "/proc/$PID/cgroup")
same "memory-max is in the mover's cgroup" "$(cat "$cgroup/memory.max")" $((192 * MIB))
same "without swap" "$(cat "$cgroup/memory.swap.max")" 0
check "the record says that the limit is enforced" jq -e '[.. | .memoryEnforced? // .memory_enforced? // empty] | any' \
    <<<"$(doc "$O")"
check "it has what it needs in much less: $(cat "$cgroup/memory.peak" 2>/dev/null || cat "$cgroup/memory.current")" \
    test "$(cat "$cgroup/memory.current")" -lt $((192 * MIB))
other=$(op_id "$A" /more/w.img)
same "the other volume's mover runs, too" "$(wait_state "$other" Running 120)" Running
UNIT=$(basename "$(dirname "$cgroup/x")")
starve
became "the kernel kills it, and another attempt would end the same way: it failed" "$O" Failed 60
check "it is told from other deaths" grep -qE 'memory limit of ' <<<"$(error_of "$O")"
check "and what to do about it" grep -q 'raise memory-max' <<<"$(doc "$O" | jq -r .error.hint)"
became "the other one goes on to its end" "$other" Completed 300
became "the backup is there in part" "$A" PartiallyFailed 30
restored_same "with the other volume" "$A" /more/w.img /more/w.img repository

moving /data/v.img
starve
became "alone: failed" "$A" Failed 60
expect "the command's exit code and words" 22 'memory limit' -- ask wait "$A"
check "status names it" eval 'ask status | grep -qi "memory limit"'
became "with memory again it completes" "$(submit /data/v.img)" Completed 300
same "both are counted" "$(metric mover_oom_total)" 2
clean "nothing is left behind" 60 /data /more
finish
