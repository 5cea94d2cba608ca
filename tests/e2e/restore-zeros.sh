#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Zeros among the data of a chunk are not written where they need take no space: a restored file, device or export is no
# larger than what was backed up. What was there before is zeroed. (AP-06, CF-16; thin volumes: tests/vm/11-lvm-thin.sh)
ON_DISK=1
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../nbd-lib.sh"
MIB=1048576
R=$WORK/repo
sf "$R" repo create --quiet
# Each chunk of 4 MiB has data at its beginning, in its middle and at its end; 9 MiB of 16 are zeros.
random_file "$WORK/data" $((7 * MIB)) 5
truncate -s $((16 * MIB + 5000)) "$WORK/image"
piece() { dd if="$WORK/data" of="$WORK/image" bs=4k skip="$1" seek="$2" count="$3" conv=notrunc status=none; }
piece 0 0 256        # 1 MiB, zeros up to 2 MiB
piece 256 512 512    # 2 MiB, the rest of the first chunk
piece 768 1040 16    # the second chunk: 64 KiB at 64 KiB behind its beginning
piece 784 2047 1     # and its last 4 KiB
piece 800 2048 1     # the third: its first 4 KiB
piece 816 2560 512   # 2 MiB to its end
piece 1328 3073 255  # the fourth: 1020 KiB behind 4 KiB
printf end | dd of="$WORK/image" bs=1 seek=$((16 * MIB + 4997)) conv=notrunc status=none
backup() { sf "$R" backup "$WORK/image" --as t@h:/v --splitter "$1" --json | result snapshot; }
id=$(backup FIXED-4M)
kib() { du -k "$1" | cut -f 1; }
least=$(kib "$WORK/image")
back() { # NAME TARGET [OPTIONS]: restored, the same bytes
    local name=$1 to=$2
    shift 2
    out=$(sf "$R" restore "$id" "$to" --verify --json "$@" 2>"$WORK/err") || cat "$WORK/err"
    check "$name: the same bytes" cmp -n $((16 * MIB + 5000)) "$WORK/image" "$to"
}

back "a new file" "$WORK/new"
check "a new file is not larger: $(kib "$WORK/new") KiB, $least before" test "$(kib "$WORK/new")" -le $((least + 256))
same "what is not written is counted" "$(($(result writtenBytes <<<"$out") + $(result zeroBytes <<<"$out")))" \
    $((16 * MIB + 5000))
random_file "$WORK/old" $((16 * MIB + 5000)) 6
back "a file of other bytes" "$WORK/old" --differential
check "a file of other bytes is not larger" test "$(kib "$WORK/old")" -le $((least + 256))
back "the same with little memory" "$WORK/small" --memory 96M --workers 1
random_file "$WORK/part" $((16 * MIB + 5000)) 7
cp "$WORK/part" "$WORK/want"
dd if="$WORK/image" of="$WORK/want" bs=1 skip=1000000 seek=1000000 count=3000001 conv=notrunc status=none
out=$(sf "$R" restore "$id" "$WORK/part" --offset 1000000 --length 3000001 --json 2>&1)
check "a part: the same bytes, and no others" cmp "$WORK/want" "$WORK/part"

# An export: the clusters of its image stay free.
qemu-img create -q -f qcow2 "$WORK/disk.qcow2" 17M
nbd_qemu "$WORK/nbd" d "$WORK/disk.qcow2" -f qcow2 --discard=unmap || fail "an export"
expect "is restored to" 0 -- sf "$R" restore "$id" "$(uri "$WORK/nbd" d)" --verify --quiet
nbd_stop "$WORK/nbd"
check "an export: the same bytes" eval 'qemu-img convert -f qcow2 -O raw "$WORK/disk.qcow2" "$WORK/raw" &&
    cmp -n $((16 * MIB + 5000)) "$WORK/image" "$WORK/raw"'
check "an export is not larger: $(kib "$WORK/disk.qcow2") KiB" \
    test "$(kib "$WORK/disk.qcow2")" -le $((9 * 1024 + 512))

if is_root && [ -e /dev/loop-control ]; then
    random_file "$WORK/disk" $((17 * MIB)) 8
    dev=$(losetup -f --show "$WORK/disk")
    at_exit "losetup -d $dev"
    back "a device that can unmap" "$dev" --force
    losetup -d "$dev"
    # Runs shorter than 1 MiB are written to a device: 7 are not; behind the image is 1 MiB of another's.
    check "a device is not larger: $(kib "$WORK/disk") KiB" test "$(kib "$WORK/disk")" -le $(((1 + 9) * 1024 + 256))
else
    skip "a device that can unmap" "needs root and loop devices"
fi
# A limit counts all of it, so that it holds for what is written.
id=$(backup DYNAMIC-4M-BUZHASH)
back "chunks by content" "$WORK/dynamic" --write-limit 100MiB
check "chunks by content: not larger" test "$(kib "$WORK/dynamic")" -le $((least + 512))
finish
