#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Restores to NBD exports with -r, to the real servers, qemu-nbd and nbdkit: the bytes of the volume, thin images stay
# thin, blocks of the server that two contents share; what is refused; servers that fail, hang or are killed: an error,
# and the next run resumes (E-07, E-08, CF-18, CF-33). tests/unit/test_nbd_target.c has those that break the protocol.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../nbd-lib.sh"
MIB=1048576
REPO=$WORK/repo
S=$WORK/s.sock K=$WORK/k.sock
SIZE=$((48 * MIB + 512))
check "setup" sf "$REPO" repo create
# kit ARGUMENTS...: nbdkit that logs what it is asked for, on $K.
kit() {
    rm -f "$WORK/log"
    nbd_kit "$K" --filter=log "$@" logfile="$WORK/log" || fail "nbdkit starts" "$(cat "$K.log")"
}
restore() { sf "$REPO" restore "$SNAP" "$@"; }
result() { restore --json "$@" 2>"$WORK/err" | tail -n 1; }
has_bytes() { cmp -n "$SIZE" "$WORK/disk" "$1"; }
# logged OPERATION COUNT: waits until the server was asked for it so often.
logged() {
    local n
    for ((n = 0; n < 300 * PATIENCE; n++)); do
        [ "$(grep -c " $1 id=" "$WORK/log" 2>/dev/null)" -ge "$2" ] && return
        sleep 0.1
    done
    return 1
}

# Data at both ends and in the middle, one sector more than whole MiB; the contents' boundaries are at any byte.
truncate -s $SIZE "$WORK/disk"
random_file "$WORK/part" $((25 * MIB)) 1
dd if="$WORK/part" of="$WORK/disk" bs=1M seek=2 conv=notrunc status=none
dd if="$WORK/part" of="$WORK/disk" bs=512 seek=$((48 * 2048 - 100)) count=101 conv=notrunc status=none
SNAP=$(sf "$REPO" backup --json "$WORK/disk" 2>/dev/null | tail -n 1 | jq -r .snapshot)

# qemu-nbd: a new qcow2 image, and a raw one that was full of something else.
qemu-img create -q -f qcow2 "$WORK/t.qcow2" $SIZE
nbd_qemu "$S" vda "$WORK/t.qcow2" -f qcow2 || fail "qemu-nbd starts" "$(cat "$S.log")"
out=$(result "$(uri "$S" vda)" --verify)
same "qcow2: all is verified" "$(jq -r .verifiedBytes <<<"$out")" $SIZE
out=$(result "$(uri "$S" vda)" --differential)
same "differential: nothing is written again" "0 0 $SIZE" \
    "$(jq -r '"\(.writtenBytes) \(.punchedBytes) \(.equalBytes)"' <<<"$out")"
nbd_stop "$S"
qemu-img convert -q -f qcow2 -O raw "$WORK/t.qcow2" "$WORK/out"
check "qcow2: the same bytes" has_bytes "$WORK/out"
check "and holes stay holes" test "$(du -k "$WORK/t.qcow2" | cut -f 1)" -lt $((33 * 1024))
head -c $((SIZE + 3 * MIB)) /dev/zero | tr '\0' x >"$WORK/raw"
nbd_qemu "$S" vda "$WORK/raw" -f raw --discard=unmap || fail "qemu-nbd starts" "$(cat "$S.log")"
expect "a larger export: told" 0 "has $((SIZE + 3 * MIB)) bytes, the image $SIZE: the rest is left as it is" -- \
    restore "$(uri "$S" vda)"
check "raw: the same bytes" has_bytes "$WORK/raw"
same "what is behind the image is as it was" "$(tail -c $((3 * MIB)) "$WORK/raw" | tr -d x | wc -c)" 0
check "zeros are holes" test "$(du -k "$WORK/raw" | cut -f 1)" -lt $((33 * 1024))
dd if="$WORK/part" of="$WORK/raw" bs=1M seek=40 count=1 conv=notrunc status=none
dd if="$WORK/part" of="$WORK/raw" bs=1M seek=14 count=1 conv=notrunc status=none
out=$(result "$(uri "$S" vda)" --differential)
check "differential: the same bytes" has_bytes "$WORK/raw"
check "and little is written" test "$(jq -r '.writtenBytes + .punchedBytes' <<<"$out")" -lt $((4 * MIB))
dd if=/dev/zero of="$WORK/raw" bs=1M count=48 conv=notrunc status=none
check "a range" restore "$(uri "$S" vda)" --offset $((10 * MIB + 77)) --length $((3 * MIB + 5))
check "of the same bytes" cmp -i $((10 * MIB + 77)) -n $((3 * MIB + 5)) "$WORK/disk" "$WORK/raw"
same "and nothing else" "$(head -c $((10 * MIB + 77)) "$WORK/raw" | tr -d '\0' | wc -c) $(tail -c +$((13 * MIB + 83)) \
    "$WORK/raw" | head -c $((30 * MIB)) | tr -d '\0' | wc -c)" "0 0"
nbd_stop "$S"

# A server with blocks: no request for a part of one, and what shares a block with another content is kept.
head -c $((SIZE + 4096 - 512)) /dev/zero | tr '\0' y >"$WORK/t"
kit --filter=blocksize-policy file "$WORK/t" blocksize-minimum=4096 blocksize-maximum=1M blocksize-preferred=4096 \
    blocksize-error-policy=error
out=$(result "$(uri "$K")" --verify)
same "blocks of 4 KiB: all is verified" "$(jq -r .verifiedBytes <<<"$out")" $SIZE
check "the same bytes" has_bytes "$WORK/t"
same "the rest of the last block is kept" "$(tail -c 3584 "$WORK/t" | tr -d y | wc -c)" 0
nbd_stop "$K"
# One that cannot zero.
head -c $SIZE /dev/zero | tr '\0' y >"$WORK/t"
kit --filter=nozero file "$WORK/t"
check "a server without WRITE_ZEROES" restore "$(uri "$K")"
check "gets zeros that are written" has_bytes "$WORK/t"
same "and is not asked to zero" "$(grep -c ' Zero id=' "$WORK/log")" 0
nbd_stop "$K"

# What is refused.
kit -r file "$WORK/t"
expect "an export that is read-only" 20 "is exported read-only" -- restore "$(uri "$K")"
nbd_stop "$K"
kit memory 48M
expect "one that is too small" 17 "too small: it has $((48 * MIB)) bytes, the image has $SIZE" -- restore "$(uri "$K")"
nbd_stop "$K"
expect "no server" 16 "cannot connect" -- restore "$(uri "$WORK/none")"
expect "no address" 2 "is expected" -- restore "nbd+unix:///x"
expect "TLS" 2 "TLS is not supported" -- restore "nbds://host/x"

# Servers that fail. fails NAME CODE PATTERN ARGUMENTS...
fails() {
    local name=$1 code=$2 pattern=$3
    shift 3
    head -c $SIZE /dev/zero | tr '\0' z >"$WORK/t"
    kit --filter=error file "$WORK/t" "$@"
    expect "$name" "$code" "$pattern" -- restore "$(uri "$K")"
    nbd_stop "$K"
}
fails "a write is refused: no space" 18 "cannot write bytes .*No space left" error-pwrite=ENOSPC error-pwrite-rate=100%
fails "a write fails" 17 "cannot write bytes .*Input/output error" error-pwrite=EIO error-pwrite-rate=90%
fails "zeroing fails" 17 "cannot zero bytes .*Input/output error" error-zero=EIO error-zero-rate=100%
cat >"$WORK/lies.sh" <<END
f=$WORK/t
case \$1 in
get_size) stat -c %s "\$f" ;;
pread) dd if="\$f" iflag=skip_bytes,count_bytes skip=\$4 count=\$3 bs=1M status=none ;;
pwrite) if [ \$4 -le $((20 * MIB)) ] && [ \$((\$4 + \$3)) -gt $((20 * MIB)) ]; then cat >/dev/null; else
        dd of="\$f" oflag=seek_bytes seek=\$4 conv=notrunc bs=1M iflag=fullblock status=none; fi ;;
can_write | can_flush) exit 0 ;;
flush) if [ -e "$WORK/sick" ]; then echo "EIO no cache" >&2; exit 1; fi ;;
*) exit 2 ;;
esac
END
chmod +x "$WORK/lies.sh"
: >"$WORK/t"; truncate -s $SIZE "$WORK/t"
kit sh "$WORK/lies.sh"
expect "a server that loses a write is found by --verify" 17 "verification failed: .* differs at" -- \
    restore "$(uri "$K")" --verify
touch "$WORK/sick"
expect "a flush fails" 17 "cannot flush .*Input/output error" -- restore "$(uri "$K")" --force
nbd_stop "$K"

# A position is recorded after a flush, and not trusted.
find "$CACHE" -name 'restore-*' -delete
head -c $SIZE /dev/zero | tr '\0' z >"$WORK/t"
kit file "$WORK/t"
SNAPFERRY_CRASH_AT=restore-noted:2 restore "$(uri "$K")" >/dev/null 2>&1
same "killed when a position is recorded" $? 137
# What is behind it is written meanwhile.
at=$(awk '{print $NF}' "$(find "$CACHE" -name 'restore-*' ! -name '*.lock' ! -name '*.tmp')")
check "a flush was asked for, and nothing that ends before the position ($at) was written after the last one" \
    perl -ne 'BEGIN { $at = shift } $flushed = 1, $bad = 0 if / Flush id=/;
        $bad = $some = 1 if / (Write|Zero) id=\S+ offset=0x([0-9a-f]+) count=0x([0-9a-f]+)/ && hex($2) + hex($3) <= $at;
        END { $? = !($flushed && $some && !$bad && $at > 8 << 20) }' "$at" "$WORK/log"
dd if=/dev/zero of="$WORK/t" bs=1M seek=4 count=2 conv=notrunc status=none
out=$(result "$(uri "$K")")
check "the next run resumes ($(jq -r .resumedFrom <<<"$out"))" test "$(jq -r .resumedFrom <<<"$out")" -gt $((6 * MIB))
check "and finds what was lost" has_bytes "$WORK/t"
same "when it is complete no position is left, and no lock" "$(find "$CACHE" -name 'restore-*' | wc -l)" 0
nbd_stop "$K"

# A server that is killed; it is back with what was durable.
slow=(--write-limit 4MiB) # so that a second restore has time to begin meanwhile
head -c $SIZE /dev/zero | tr '\0' z >"$WORK/t"
kit file "$WORK/t"
restore "$(uri "$K")" "${slow[@]}" >"$WORK/killed" 2>&1 &
pid=$!
logged Flush 1
position() { find "$CACHE" -name 'restore-*' ! -name '*.lock' ! -name '*.tmp'; }
for ((i = 0; i < 1200; i++)); do
    [ -z "$(position)" ] || break
    sleep 0.1
done
expect "a second restore to it is refused" 17 "another restore writes to" -- restore "$(uri "$K")"
kill -KILL "${nbd_pid[$K]}"
wait $pid
same "a server that is killed is an error" $? 17
check "and says so" grep -q "cannot be written any more: the connection is lost" "$WORK/killed"
check "and that it can be resumed" grep -q "the same command resumes" "$WORK/killed"
nbd_stop "$K"
kit file "$WORK/t"
out=$(result "$(uri "$K")" --verify)
check "the next run resumes ($(jq -r .resumedFrom <<<"$out"))" test "$(jq -r .resumedFrom <<<"$out")" -gt 0
check "with the same bytes" has_bytes "$WORK/t"
nbd_stop "$K"

# A server that hangs does not hold up a cancel: while it is written, flushed, connected to.
for when in Write Flush; do
    rm -f "$WORK/t"; truncate -s $SIZE "$WORK/t"
    kit --filter=delay file "$WORK/t" delay-write=100ms
    "$SNAPFERRY" -r "$REPO" --password-file "$WORK/password" restore "$SNAP" "$(uri "$K")" >"$WORK/hangs" 2>&1 &
    pid=$!
    logged $when 1
    kill -STOP "${nbd_pid[$K]}"
    sleep 0.5
    kill -TERM $pid
    wait $pid
    same "cancelled after a $when, of a server that hangs" $? 130
    nbd_stop "$K"
done
kit file "$WORK/t"
kill -STOP "${nbd_pid[$K]}"
"$SNAPFERRY" -r "$REPO" --password-file "$WORK/password" restore "$SNAP" "$(uri "$K")" >"$WORK/hangs" 2>&1 &
pid=$!
sleep 2
kill -TERM $pid
wait $pid
same "cancelled while it is connected to" $? 130
kill -CONT "${nbd_pid[$K]}"
check "afterwards all of it" restore "$(uri "$K")"
check "is the same" has_bytes "$WORK/t"
nbd_stop "$K"
finish
