#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Limits of movers other than memory are those of their cgroup, on the devices that are meant: the volume's and the
# repository's (MS-02, E-14).
VM_DISKS="raw:40M data:400M repo:400M"
. "$(dirname "$0")/lib.sh"
raw=$(realpath "$(dev raw)")
random_file /srv/raw.orig $((40 * MIB)) 1
dd if=/srv/raw.orig of="$raw" bs=1M oflag=direct status=none
disk_fs data xfs /data && disk_fs repo xfs /srv/repo || exit 1
image /data/v.img 32 2
setup
config_add raw "[storage-class \"raw\"]
driver = device
match = $(dev raw)
read-limit = 4MiB
write-limit = 16MiB
cpu-quota = 150
tasks-max = 40
nice = 5
io-weight = 50"
config_class images /data 'read-limit = 2MiB' 'cpu-weight = 20' 'slice = system-backup.slice'
check "reload" systemctl reload snapferryd
number() { printf '%d:%d' "0x$(stat -Lc %t "$1")" "0x$(stat -Lc %T "$1")"; }
limits_of() { cat "/sys/fs/cgroup$(cut -d: -f3- "/proc/$PID/cgroup")/$1"; }

moving "$(dev raw)"
check "read-limit: the volume's device" grep -qE "^$(number "$raw") .*rbps=4194304( |$)" <<<"$(limits_of io.max)"
check "write-limit: the repository's device" grep -qE "^$(number "$(dev repo)") .*wbps=16777216( |$)" \
    <<<"$(limits_of io.max)"
same "cpu-quota" "$(limits_of cpu.max)" "150000 100000"
same "tasks-max" "$(limits_of pids.max)" 40
same "nice" "$(awk '{print $19}' "/proc/$PID/stat")" 5
became "Completed" "$A" Completed 300
# Slower is what this machine may be; faster is what it may not.
check "40 MiB at 4 MiB/s took no less than 8 s" jq -e '.result.seconds >= 8' <<<"$(doc "$O")"

moving /data/v.img
check "read-limit of an image: its file system's device" grep -qE "^$(number "$(dev data)") .*rbps=2097152( |$)" \
    <<<"$(limits_of io.max)"
same "cpu-weight" "$(limits_of cpu.weight)" 20
check "slice" grep -q '/system-backup.slice/' "/proc/$PID/cgroup"
became "Completed" "$A" Completed 300
clean "nothing is left behind" 60 /data
finish
