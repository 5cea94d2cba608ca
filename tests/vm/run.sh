#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs one test of tests/vm in a virtual machine of its own: stock Debian 12, systemd as PID 1, device-mapper, cgroup
# controllers, and snapferry as VM_STAGE has it (the directory root/ from `make install`, or packages). The root disk is
# as new each time; what the test writes there survives its reboots, not its end. The test's output is this program's.
# usage: tests/vm/run.sh TEST        (`make test-vm` runs all and counts)
#   VM_STAGE=build/vm  VM_DISKS="NAME:SIZE ..." (/dev/disk/by-id/virtio-NAME)  VM_MEMORY=1024 (MiB)  VM_TIMEOUT=900
#   (seconds)
#   VM_PASS="NAME ..." (variables that the machine gets, too)
#   VM_ACCEL=auto|kvm|tcg  VM_CONSOLE=FILE (keeps what the kernel says)  VM_REBUILD=1 (tests/vm/image.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(realpath "$here/../..")
: "${VM_STAGE:=${BUILD:-build}/vm}" "${VM_DISKS:=}" "${VM_MEMORY:=1024}" "${VM_TIMEOUT:=900}" "${VM_ACCEL:=auto}"
[ $# -eq 1 ] || { sed -n '6,10s/^# //p' "$0" >&2; exit 2; }
test=$(realpath --relative-to="$source" "$1")
image=$("$here/image.sh")
[ -d "$VM_STAGE/root" ] || ls "$VM_STAGE"/*.deb >/dev/null 2>&1 ||
    { echo "nothing to install in $VM_STAGE: make vm-stage" >&2; exit 1; }
VM_STAGE=$(realpath "$VM_STAGE")

work=$(mktemp -d /var/tmp/snapferry-vm.XXXXXX)
qemu=
leave() {
    [ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null || true
    [ -z "${VM_CONSOLE:-}" ] || cp "$work/console" "$VM_CONSOLE" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM HUP

# q35, and not the smaller microvm, whose clock an emulated machine cannot always calibrate.
machine=(qemu-system-x86_64 -nodefaults -no-user-config -display none -machine "q35,sata=off,smbus=off,i8042=off"
    -kernel "$image/vmlinux" -initrd "$image/initrd")
append='console=ttyS0 panic=-1 reboot=t mitigations=off'

# That there is a /dev/kvm does not mean that it can run a stock kernel: nested ones may stop in mid-boot, for ever. So
# one boot decides, for as long as this host is up.
kvm_boots() {
    local answer
    [ -r /dev/kvm ] && [ -w /dev/kvm ] || return 1
    answer=$(dirname "$image")/kvm-$(cat /proc/sys/kernel/random/boot_id)
    if [ ! -e "$answer" ]; then
        rm -f "$(dirname "$image")"/kvm-*
        (timeout -k 1 15 "${machine[@]}" -accel kvm -cpu host -m 512 -no-reboot -serial "file:$work/probe" \
            -append "$append vm.probe" </dev/null) >/dev/null 2>&1 || true
        if grep -qsa 'vm: kernel boots' "$work/probe"; then echo yes; else echo no; fi >"$answer"
    fi
    [ "$(cat "$answer")" = yes ]
}
if [ "$VM_ACCEL" = auto ]; then
    if kvm_boots; then VM_ACCEL=kvm; else VM_ACCEL=tcg; fi
fi
case $VM_ACCEL in
kvm) machine+=(-accel kvm -cpu host) ;;
# QEMU before version 8 translates a program anew at each address where it finds it: random ones make each start slow.
*) machine+=(-accel "tcg,thread=multi" -cpu "max,-svm,-la57") append+=' norandmaps' ;;
esac

# The tests as they are now, whatever is edited while the machine runs.
mkdir -p "$work/source/tests"
cp -r "$source"/tests/*.sh "$source/tests/tools" "$here" "$work/source/tests/"
mkdir -p "$work/source/${test%/*}" && cp "$source/$test" "$work/source/$test" # perf/vm.sh lies elsewhere
control=$work/control
mkdir "$control"
echo 0 >"$control/boots"
echo "$test" >"$control/test"
: >"$control/out"
{
    echo "SNAPFERRY_IN_VM=1"
    for v in VM_DISKS VM_MEMORY VM_ACCEL VERBOSE ${VM_PASS:-}; do printf '%s=%q\n' "$v" "${!v:-}"; done
} >"$control/environment"
for d in $VM_DISKS; do
    truncate -s "${d#*:}" "$work/${d%%:*}.disk"
    echo "${d%%:*}" >>"$control/disks.new"
    machine+=(-drive "file=$work/${d%%:*}.disk,format=raw,if=none,id=${d%%:*},cache=unsafe,discard=unmap"
        -device "virtio-blk-pci,drive=${d%%:*},serial=${d%%:*}")
done
cat "$control"/disks.new >"$control/disks" 2>/dev/null || : >"$control/disks"
for s in "control $control" "source $work/source" "stage $VM_STAGE"; do
    ro=,readonly=on
    [ "${s%% *}" != control ] || ro=
    machine+=(-fsdev "local,id=${s%% *},path=${s#* },security_model=none,multidevs=remap$ro"
        -device "virtio-9p-pci,fsdev=${s%% *},mount_tag=${s%% *}")
done

# Runs the machine to the end of the test: rc, or empty. snapshot=on: what the root disk takes goes to a file in TMPDIR.
boot() {
    local shown started=$SECONDS
    rc= stuck=
    TMPDIR=$work "${machine[@]}" -m "$VM_MEMORY" -smp 2 -append "$append quiet systemd.show_status=0 net.ifnames=0" \
        -drive "file=$image/root.ext4,format=raw,if=none,id=root,snapshot=on,cache=unsafe" \
        -device virtio-blk-pci,drive=root,serial=root -serial "file:$work/console" -monitor none \
        >"$work/qemu" 2>&1 </dev/null &
    qemu=$!
    tail -s 0.2 -n +1 -f --pid=$qemu "$control/out" 2>/dev/null &
    shown=$!
    while kill -0 $qemu 2>/dev/null && [ $SECONDS -lt $end ]; do
        if [ -e "$control/rc" ]; then rc=$(cat "$control/rc"); break; fi
        if [ "$(cat "$control/boots")" = 0 ] && [ $((SECONDS - started)) -gt 240 ]; then stuck=yes; break; fi
        sleep 0.3
    done
    kill -KILL $qemu 2>/dev/null || true
    wait $qemu 2>/dev/null || true
    qemu=
    wait $shown || true
}
end=$((SECONDS + VM_TIMEOUT))
# An emulated machine on a busy host may lock up while it boots, before any test has begun.
for try in 1 2 3; do
    boot
    [ -n "$stuck" ] || break
    echo "# boot $try got stuck"
done
if [ -z "$rc" ]; then
    echo "not ok 999 - the machine came to the end of the test"
    if [ $SECONDS -ge $end ]; then echo "# no end after $VM_TIMEOUT s"; else echo "# it stopped"; fi
    { cat "$work/qemu"; tail -n 40 "$work/console"; } 2>/dev/null | tr -d '\r' | sed 's/^/# /'
    rc=1
fi
exit "$rc"
