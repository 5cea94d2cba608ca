#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Backups of NBD exports with -r, from the real servers, qemu-nbd and nbdkit: the bytes of the volume, its holes not
# read (CF-08), identities that stay (MS-05); and servers that fail, hang, disappear or shrink: an error in bounded
# time and never zeros (E-02). tests/unit/test_nbd.c has those that break the protocol.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../nbd-lib.sh"
MIB=1048576
REPO=$WORK/repo
S=$WORK/s.sock K=$WORK/k.sock
check "setup" sf "$REPO" repo create
backup() { sf "$REPO" backup --json "$@" 2>"$WORK/err" | tail -n 1; }
# restores SNAPSHOT FILE: it has the bytes of the file.
restores() { rm -f "$WORK/out"; sf "$REPO" restore "$1" "$WORK/out" --quiet && cmp "$WORK/out" "$2"; }

# A disk with data at both ends, and one sector more than whole MiB.
truncate -s $((64 * MIB + 512)) "$WORK/disk"
random_file "$WORK/part" $((5 * MIB)) 1
dd if="$WORK/part" of="$WORK/disk" bs=1M seek=20 conv=notrunc status=none
dd if="$WORK/part" of="$WORK/disk" bs=512 seek=$((64 * 2048 - 100)) count=101 conv=notrunc status=none
qemu-img convert -q -f raw -O qcow2 "$WORK/disk" "$WORK/disk.qcow2"
qemu-img convert -q -f qcow2 -O raw "$WORK/disk.qcow2" "$WORK/size" # of whole sectors, as qcow2 has it
same "the image has the size of the disk" "$(stat -c %s "$WORK/size")" $((64 * MIB + 512))

nbd_qemu "$S" vda "$WORK/disk.qcow2" -f qcow2 -r || fail "qemu-nbd starts" "$(cat "$S.log")"
out=$(backup "$(uri "$S" vda)")
check "qemu-nbd: the same bytes" restores "$(jq -r .snapshot <<<"$out")" "$WORK/disk"
same "its size is exact" "$(jq -r .sizeBytes <<<"$out")" $((64 * MIB + 512))
check "holes are not read" test "$(jq -r '.readBytes' <<<"$out")" -lt $((12 * MIB))
same "a name that a person recognises" "$(jq -r .source.path <<<"$out")" \
    "/device:nbd-unix$(sed 's#_#_5f#g; s#/#:#g' <<<"$S"):vda"
first=$(jq -r .snapshot <<<"$out")
out=$(backup "$(uri "$S" %76da)")
same "written in another way it is the same source" "$(jq -r .parent <<<"$out")" "$first"
same "and nothing is new" "$(jq -r .newBytes <<<"$out")" 0
out=$(backup "$(uri "$S" vda)" --as me@here:/disk)
same "--as gives another name" "$(jq -r '"\(.source.userName // .source.user)@\(.source.host):\(.source.path)"' \
    <<<"$out")" me@here:/disk
same "volume.json has the address of the export" "$(sf "$REPO" cat "$first/volume.json" |
    jq -r '"\(.driver) \(.source.path)"')" "nbd $(uri "$S" vda)"
expect "an export that is not there" 16 "no export .*/vdb" -- sf "$REPO" backup "$(uri "$S" vdb)"
expect "a socket that is not there" 16 "cannot connect .*No such file" -- sf "$REPO" backup "$(uri "$WORK/none" vda)"
expect "no server behind it" 19 "cannot connect .*Connection refused.*" -- eval \
    'python3 -c "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])" "$WORK/dead" &&
    sf "$REPO" backup "$(uri "$WORK/dead" vda)"'
expect "TLS is refused, and not done without" 2 "TLS is not supported" -- sf "$REPO" backup "nbds://host/vda"
expect "what is no address" 2 "is expected" -- sf "$REPO" backup "nbd+unix:///vda"
kill -STOP "${nbd_pid[$S]}"
sf "$REPO" backup "$(uri "$S" vda)" >"$WORK/int" 2>&1 &
pid=$!
sleep 1
kill -CONT "${nbd_pid[$S]}"
wait $pid
same "a server that pauses is waited for" $? 0
nbd_stop "$S"

# Odd sizes, over TCP.
port=$((20000 + $$ % 20000))
nbdkit -f -p $port --ipaddr 127.0.0.1 -r pattern $((3 * MIB + 777)) >"$WORK/tcp.log" 2>&1 &
tcp=$!
at_exit "kill $tcp"
python3 -c 'import struct,sys
for i in range(0, (3 << 20) + 784, 8): sys.stdout.buffer.write(struct.pack(">Q", i))' |
    head -c $((3 * MIB + 777)) >"$WORK/pattern"
for ((n = 0; n < 100 * PATIENCE; n++)); do (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
out=$(backup "nbd://127.0.0.1:$port/")
check "nbdkit over TCP, of odd size" restores "$(jq -r .snapshot <<<"$out")" "$WORK/pattern"
kill $tcp

# What the medium cannot read.
touch "$WORK/sick"
nbd_kit "$K" -r --filter=error file "$WORK/disk" error-pread-rate=100% error-pread=EIO error-file="$WORK/sick" ||
    fail "nbdkit starts" "$(cat "$K.log")"
expect "nothing can be read: an error" 19 "cannot be read" -- sf "$REPO" backup "$(uri "$K")"
expect "with --bad-reads map, too" 19 "cannot be read" -- sf "$REPO" backup "$(uri "$K")" --bad-reads map
rm "$WORK/sick"
out=$(backup "$(uri "$K")")
check "afterwards: the same bytes" restores "$(jq -r .snapshot <<<"$out")" "$WORK/disk"
nbd_stop "$K"
cat >"$WORK/bad.sh" <<END
case \$1 in
get_size) stat -c %s "$WORK/disk" ;;
pread) if [ \$4 -le $((21 * MIB + 1024)) ] && [ \$((\$4 + \$3)) -gt $((21 * MIB + 1024)) ]; then
           echo "EIO a bad sector" >&2; exit 1
       fi
       dd if="$WORK/disk" iflag=skip_bytes,count_bytes skip=\$4 count=\$3 bs=1M status=none ;;
can_write) exit 3 ;;
*) exit 2 ;;
esac
END
chmod +x "$WORK/bad.sh"
nbd_kit "$K" sh "$WORK/bad.sh" || fail "nbdkit sh starts" "$(cat "$K.log")"
expect "a bad sector: an error" 19 "cannot read bytes $((21 * MIB + 1024)) to $((21 * MIB + 1535))" \
    -- sf "$REPO" backup "$(uri "$K")"
out=$(sf "$REPO" backup --json "$(uri "$K")" --bad-reads map 2>/dev/null | tail -n 1)
same "with --bad-reads map that sector alone is zeros" "$(jq -r '.badRanges[] | "\(.offset) \(.length)"' <<<"$out")" \
    "$((21 * MIB + 1024)) 512"
cp "$WORK/disk" "$WORK/mapped"
dd if=/dev/zero of="$WORK/mapped" bs=512 seek=$((21 * 2048 + 2)) count=1 conv=notrunc status=none
check "and the rest is what was there" restores "$(jq -r .snapshot <<<"$out")" "$WORK/mapped"
nbd_stop "$K"

# The volume behind an export has become smaller since it was connected: reads behind its new end are refused.
cat >"$WORK/smaller.sh" <<END
case \$1 in
get_size) stat -c %s "$WORK/disk" ;;
pread) if [ \$((\$4 + \$3)) -gt $((10 * MIB)) ]; then echo "\$(cat "$WORK/errno") it ends before" >&2; exit 1; fi
       dd if="$WORK/disk" iflag=skip_bytes,count_bytes skip=\$4 count=\$3 bs=1M status=none ;;
can_write) exit 3 ;;
*) exit 2 ;;
esac
END
chmod +x "$WORK/smaller.sh"
nbd_kit "$K" sh "$WORK/smaller.sh" || fail "nbdkit starts" "$(cat "$K.log")"
for errno in EIO EINVAL ENOSPC; do
    echo $errno >"$WORK/errno"
    for policy in fail map; do
        expect "a volume that has become smaller is an error ($errno, $policy)" 19 "last bytes of NBD|server answers" \
            -- sf "$REPO" backup "$(uri "$K")" --as me@here:/shrinks --bad-reads $policy
    done
done
nbd_stop "$K"
same "none of them is in the repository" "$(sf "$REPO" snapshot list --all --json 2>/dev/null | tail -n 1 |
    jq '[.snapshots[] | select(.source.path == "/shrinks" and (.incomplete // "") == "")] | length')" 0

# A server that is killed, and one that hangs.
nbd_kit "$K" -r --filter=log --filter=delay pattern 1G rdelay=300ms logfile="$WORK/reads" ||
    fail "nbdkit starts" "$(cat "$K.log")"
sf "$REPO" backup "$(uri "$K")" >"$WORK/killed" 2>&1 &
pid=$!
for ((n = 0; n < 300 * PATIENCE; n++)); do grep -q 'Read id=' "$WORK/reads" 2>/dev/null && break; sleep 0.1; done
kill -KILL "${nbd_pid[$K]}"
wait $pid
same "a server that is killed is an error" $? 19
check "and says so" grep -q "connection is lost" "$WORK/killed"
nbd_stop "$K"
rm -f "$WORK/reads"
nbd_kit "$K" -r --filter=log --filter=delay pattern 1G rdelay=500ms logfile="$WORK/reads" ||
    fail "nbdkit starts" "$(cat "$K.log")"
"$SNAPFERRY" -r "$REPO" --password-file "$WORK/password" backup "$(uri "$K")" >"$WORK/hangs" 2>&1 & # not a subshell
pid=$!
for ((n = 0; n < 300 * PATIENCE; n++)); do grep -q 'Read id=' "$WORK/reads" 2>/dev/null && break; sleep 0.1; done
kill -STOP "${nbd_pid[$K]}"
sleep 0.5
kill -TERM $pid
wait $pid
same "a server that hangs does not hold up a cancel" $? 130
nbd_stop "$K"

# Without libnbd: in words.
nbd_kit "$K" -r memory 1M || fail "nbdkit starts" "$(cat "$K.log")"
if is_root; then
    lib=$(ldconfig -p | sed -n 's/.*libnbd\.so\.0 .*=> //p' | head -n 1)
    expect "without libnbd it says what to install" 2 "apt install libnbd0" -- unshare -m sh -c \
        'mount --bind /dev/null "$1" && shift && exec "$@"' sh "$(realpath "$lib")" "$SNAPFERRY" -r "$REPO" \
        --password-file "$WORK/password" backup "$(uri "$K")"
else
    skip "without libnbd it says what to install" "needs root to hide it"
fi
finish
