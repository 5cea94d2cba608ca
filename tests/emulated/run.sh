#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs test programs on an emulated CPU that has AVX-512 (F, BW, DQ, VL, VBMI), for machines whose own has not: Bochs
# boots Debian's kernel with nothing but the programs, their libraries and the test vectors, and what they say comes
# back over a serial port. Slow: some 20 million instructions per second, a minute until the first test.
# usage: tests/emulated/run.sh PROGRAM...     BUILD=build (a directory "emulated" is made in it)
#   EMULATED_CPU=corei3_cnl (bochs -help cpu)  EMULATED_KERNEL=/boot/vmlinuz-... (default: fetched by apt)
#   EMULATED_TIMEOUT=3600 (seconds for all)
# The last line is "N passed, N failed". What is skipped counts as failed: here nothing may be.
set -eu
: "${BUILD:=build}" "${EMULATED_CPU:=corei3_cnl}" "${EMULATED_KERNEL:=}" "${EMULATED_TIMEOUT:=3600}"
here=$(cd "$(dirname "$0")" && pwd)
dir=$BUILD/emulated
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

install_packages() {
    local p missing=() sudo=
    for p in bochs bochs-term bochsbios vgabios isolinux syslinux-common xorriso cpio dpkg-dev; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "installing ${missing[*]} needs root or sudo" >&2; exit 1; }
        sudo=sudo
    fi
    echo "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Debian's kernel for virtual machines has the serial port built in; it is unpacked, not installed.
fetch_kernel() {
    if [ -n "$EMULATED_KERNEL" ]; then
        cp "$EMULATED_KERNEL" "$dir/iso/vmlinuz"
        return
    fi
    if ! ls "$dir"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
        local package
        package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p')
        [ -n "$package" ] || { echo "apt knows no linux-image-cloud-amd64; set EMULATED_KERNEL" >&2; exit 1; }
        echo "fetching $package"
        rm -f "$dir"/linux-image-*.deb
        (cd "$dir" && apt-get download -qq "$package" 2>/dev/null && dpkg-deb -x linux-image-*.deb kernel)
        rm -f "$dir"/linux-image-*.deb
    fi
    cp "$dir"/kernel/boot/vmlinuz-* "$dir/iso/vmlinuz"
}

# The file system in memory: programs in the order given, what they are linked with, the vectors.
make_initrd() {
    local root=$dir/root n=10 p lib
    rm -rf "$root"
    mkdir -p "$root/tests" "$root/fixtures/vectors"
    "${CC:-gcc}" -O2 -Wall -Wextra -Werror -static -o "$root/init" "$here/init.c"
    for p in "$@"; do
        cp "$p" "$root/tests/$n-$(basename "$p")"
        n=$((n + 1))
        ldd "$p" | grep -o '/[^ ]*' | sort -u | while read -r lib; do
            [ -e "$root$lib" ] || install -D "$lib" "$root$lib"
        done
    done
    cp "$here"/../fixtures/vectors/hash.jsonl "$root/fixtures/vectors/"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$dir/iso/initrd"
}

# Why these parameters: the emulator's XSAVEC tells sizes that the kernel refuses; delays are counted in ticks of a
# clock that runs much slower than the CPU's name promises; without ACPI and APICs there is less to set up.
make_disk() {
    local append='console=ttyS0,115200 quiet loglevel=3 panic=-1 nokaslr mitigations=off nowatchdog audit=0 lsm='
    append+=' lpj=10000 tsc=reliable tsc_early_khz=2000 no_timer_check nolapic noapic acpi=off cryptomgr.notests'
    append+=' clearcpuid=aperfmperf,pku,xsavec,xsaves'
    local append='console=ttyS0,115200 quiet loglevel=3 panic=-1 nokaslr mitigations=off nowatchdog audit=0 lsm='
    append+=' lpj=10000 tsc=reliable tsc_early_khz=2000 no_timer_check nolapic noapic acpi=off cryptomgr.notests'
    append+=' clearcpuid=aperfmperf,pku,xsavec,xsaves'
    cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$dir/iso/"
    cat >"$dir/iso/isolinux.cfg" <<EOF
DEFAULT linux
PROMPT 0
LABEL linux
 KERNEL /vmlinuz
 INITRD /initrd
 APPEND $append
EOF
    xorriso -as mkisofs -quiet -o "$dir/disk.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
        -boot-info-table "$dir/iso" 2>/dev/null
    rm -f "$dir/disk.iso.lock" "$dir/serial.txt" "$dir/bochs.log"
    cat >"$dir/bochsrc" <<EOF
plugin_ctrl: es1370=0, sb16=0, speaker=0, gameport=0, e1000=0, parallel=0
config_interface: textconfig
display_library: term
megs: 512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
cpu: model=$EMULATED_CPU, count=1, ips=100000000
clock: sync=none
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$dir/disk.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$dir/serial.txt
log: $dir/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
EOF
    printf 'c\nq\n' >"$dir/commands" # for the debugger that Debian's Bochs starts in
}

# Shows the lines of the serial port as they come, until the emulator ends.
emulate() {
    local lines=0 now pid
    : >"$dir/serial.txt"
    # Its screen wants a terminal.
    TERM=vt100 script -qec "timeout -s KILL $EMULATED_TIMEOUT bochs-bin -q -f $dir/bochsrc -rc $dir/commands" \
        /dev/null \
        </dev/null >"$dir/screen.txt" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        sleep 1
        now=$(wc -l <"$dir/serial.txt")
        [ "$now" -eq "$lines" ] || sed -n "$((lines + 1)),${now}p" "$dir/serial.txt"
        lines=$now
    done
    wait $pid || true
    sed -n "$((lines + 1)),\$p" "$dir/serial.txt"
}

[ $# -gt 0 ] || { sed -n '6,9s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$dir/iso"
install_packages
fetch_kernel
make_initrd "$@"
make_disk
echo "booting $# programs on an emulated $EMULATED_CPU"
emulate

log=$dir/serial.txt
passed=$(grep -cE '^ok [0-9]+' "$log" || true)
failed=$(grep -cE '^not ok [0-9]+' "$log" || true)
ended=$(grep -cE '^== exit [^ ]+ 0$' "$log" || true)
if ! grep -q '^== end' "$log"; then
    echo "the emulated machine did not come to the end; its log is $dir/bochs.log"
    failed=$((failed + 1))
elif [ "$ended" -ne $# ] && [ "$failed" -eq 0 ]; then
    failed=$(($# - ended))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
