#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# System calls of the reflink driver that fail, the first, the second, ... of each kind: the call ends well or with one
# clear sentence, the sweep sees all that is left, and the same call made again completes the work. (RS-20, RS-21,
# PVC-21)
. "$(dirname "$0")/../lib.sh"
is_root || { skip "failing system calls of drivers" "needs root for mounts"; finish; }
if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then
    skip "failing system calls of drivers" "sanitizers do not run under strace"
    finish
fi
if ! strace -f -o /dev/null -e trace=none true 2>/dev/null; then
    skip "failing system calls of drivers" "strace is missing or may not trace here"; finish
fi
command -v mkfs.xfs >/dev/null || { skip "failing system calls of drivers" "mkfs.xfs is not installed"; finish; }
uuid() { cat /proc/sys/kernel/random/uuid; }
for fs in "xfs 320" "ext4 100"; do
    name=${fs% *}; truncate -s "${fs#* }M" "$WORK/$name.disk"; mkdir "$WORK/$name"
    mkfs.$name -q "$WORK/$name.disk" && mount -o loop "$WORK/$name.disk" "$WORK/$name" ||
        { fail "$name: make and mount"; finish; }
    at_exit "umount -l $WORK/$name"
done
M=$WORK/xfs/vm; mkdir "$M"; head -c 3000001 /dev/urandom >"$M/disk.img"
call() { ${INJECT:-} "$TOOLS/driver_call" --match "$M/*.img" "$@"; }
far() { ${INJECT:-} "$TOOLS/driver_call" --match "$M/*.img" --into-name far --into-target "$WORK/ext4" "$@"; }
files() { find "$M" "$WORK/ext4" -type f ! -path '*/lost+found*' ! -name disk.img ! -name final.img | sort; }
told() { { call list; call exposures; far exposures; } 2>/dev/null | jq -r .handle | sort -u; }

N= T= X= A=
# Each way: what has to be there before (not injected), the call itself, and what undoes it.
before_snapshot() { A=$(uuid); }
do_snapshot() { call snapshot "$M/disk.img" "$A"; }
undo_snapshot() { call list | while IFS= read -r n; do call remove "$n"; done; }
before_remove() { A=$(uuid); N=$(call snapshot "$M/disk.img" "$A"); }
do_remove() { call remove "$N"; }
undo_remove() { :; }
before_copy() { A=$(uuid); N=$(call snapshot "$M/disk.img" "$(uuid)"); }
do_copy() { far expose "$N" copy ro "$A"; }
undo_copy() { far unexpose "$(far exposures)"; call remove "$N"; }
before_clone() { before_copy; }
do_clone() { call expose "$N" clone rw "$A"; }
undo_clone() { call unexpose "$(call exposures)"; call remove "$N"; }
before_target() { A=$(uuid); }
do_target() { call target "$M/final.img" 3000001 "$A" keep; }
undo_target() { call abort "$(call target "$M/final.img" 3000001 "$A" keep)"; }
before_commit() { A=$(uuid); T=$(call target "$M/final.img" 3000001 "$A" keep); }
do_commit() { call commit "$T"; }
undo_commit() { rm "$M/final.img"; }

# faults WAY CALLS ERROR
faults() {
    local way=$1 calls=$2 error=$3 n=0 runs=0 failed=0 wrong= rc
    while [ $n -lt 40 ]; do
        n=$((n + 1))
        before_$way >/dev/null 2>&1
        INJECT="timeout -k 5 30 strace -f -qq -o $WORK/trace -e trace=$calls -e inject=$calls:error=$error:when=$n" \
            do_$way >"$WORK/out" 2>"$WORK/err"
        rc=$?
        if grep -q INJECTED "$WORK/trace"; then
            runs=$((runs + 1)); [ $rc -eq 0 ] || failed=$((failed + 1))
            if [ $rc -ge 90 ]; then wrong="$wrong [$n: exit $rc: $(tail -n1 "$WORK/err")]"; fi
            if [ $rc -ne 0 ] && ! grep -qE '.{15}' "$WORK/err"; then wrong="$wrong [$n: exit $rc without a word]"; fi
            [ "$(files)" = "$(told)" ] ||
                wrong="$wrong [$n: not all is seen: $(grep INJECTED "$WORK/trace" | head -n1)]"
            do_$way >"$WORK/out" 2>"$WORK/err" || wrong="$wrong [$n: again: $(tail -n1 "$WORK/err")]"
        fi
        undo_$way >/dev/null 2>"$WORK/err"
        [ -z "$(files)" ] || { wrong="$wrong [$n: left: $(files)]"; rm -rf "$M/.snapferry" "$M"/*.snapferry-* \
            "$WORK/ext4/.snapferry"; }
        grep -q INJECTED "$WORK/trace" || break
    done
    if [ -n "$wrong" ]; then fail "$way, $calls: $error" "$wrong"
    elif [ $runs -eq 0 ]; then fail "$way, $calls: no such call is made"
    else pass "$way, $calls fails with $error: $runs runs, $failed of them failed"; fi
}

faults snapshot fsync,fdatasync EIO
faults snapshot ioctl ENOSPC
faults snapshot fsetxattr ENOSPC
faults snapshot linkat EIO
faults snapshot fchmod EIO
faults snapshot fgetxattr EIO
faults remove unlinkat EIO
faults remove fsync EIO
faults copy pwrite64,ftruncate ENOSPC
faults copy fsync,linkat,fsetxattr EIO
faults copy fstatfs EIO
faults clone ioctl EIO
faults clone fsync,linkat,fsetxattr EDQUOT
faults target fsync,linkat,fsetxattr,ftruncate ENOSPC
faults commit fsync,renameat2,fsetxattr,fremovexattr EIO
faults commit fchmod,flistxattr,fgetxattr EIO
finish
