#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Reads from a service that is far away: several at a time, small contents together, also where a restore that was
# killed goes on; manifests likewise.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
MIB=$((1 << 20)) SIZE=$((96 << 20))
random_file "$WORK/image" $SIZE 5
for r in large small; do
    splitter=DYNAMIC-4M-BUZHASH
    [ $r = large ] || splitter=FIXED-128K
    check "$r: a repository" sf "$WORK/$r" repo create --splitter $splitter --quiet
    check "$r: a backup" sf "$WORK/$r" backup "$WORK/image" --as t@h:/v --quiet
done
s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK"
ask_service() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1"; }
mkdir "$WORK/conf"
printf 'access-key = a\nsecret-key = a\n' | secret "$WORK/keys"
for r in large small; do
    printf '[repository "%s"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = %s/\n' $r "$port" $r
    printf 'credentials = %s\npassword-file = %s\n' "$WORK/keys" "$WORK/password"
done >"$WORK/conf/snapferry.ini"
far() { "$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.far" -r "$@"; }

ask_service _set/far/100 >/dev/null

# One by one, or 256 KiB at a time, small contents take 384 requests and more; runs end where they end by chance.
# reads WHAT MOST: there were at least four reads of packs at a time, and not more than MOST in all.
reads() {
    local most packs
    most=$(ask_service _reads) packs=$(ask_service _packs)
    check "$1: several reads at a time ($most)" test "$most" -ge 4
    check "$1: neighbours are read together ($packs requests)" test "$packs" -le "$2"
}
anew() { ask_service _requests >/dev/null; ask_service _reads >/dev/null; }

# Of some 25 contents, and of 768, in five packs. Eight lanes of a hash must not take the memory of the reads.
for r in large small; do
    anew
    check "$r: a restore" far $r restore latest "$WORK/out" --quiet
    reads "$r, restore" 120
    check "$r: is what was backed up" cmp "$WORK/out" "$WORK/image"
    rm "$WORK/out"
    anew
    check "$r: a verification" far $r verify --quiet
    reads "$r, verify" 120
done
anew
check "with little memory" far large restore latest "$WORK/out" --memory 128MiB --quiet
reads "with little memory" 120
check "is what was backed up, too" cmp "$WORK/out" "$WORK/image"
rm "$WORK/out"

# One that goes on compares what is below its position, and reads the rest as any other.
"$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.far" -r small restore latest "$WORK/out" --write-limit 8MiB \
    --quiet 2>/dev/null &
pid=$!
noted() {
    find "$CACHE.far" -name 'restore-*' ! -name '*.tmp' -exec grep -qE ' [0-9]{8,}$' {} \; -print 2>/dev/null |
        grep -q .
}
for _ in $(seq 600); do noted && break; sleep 0.1; done
check "a slow restore has recorded a position" noted
kill -KILL $pid
wait $pid 2>/dev/null
anew
out=$(far small restore latest "$WORK/out" --json)
from=$(result resumedFrom <<<"$out")
check "it goes on from there: $from" test "$from" -ge 10000000 -a "$from" -lt $((80 * MIB))
reads "it goes on" 120
check "and is what was backed up" cmp "$WORK/out" "$WORK/image"
# Each backup leaves a manifest in a pack of its own.
rm -rf "$CACHE.far"
random_file "$WORK/little" 5000 6
for i in $(seq 11); do sf "$WORK/large" backup "$WORK/little" --as "t@h:/little$i" --quiet; done
anew
same "twelve manifests are listed" "$(far large snapshot list --json | tail -n 1 | jq '.snapshots | length')" 12
most=$(ask_service _reads)
check "and were read several at a time ($most)" test "$most" -ge 4

# What was read is in the cache then, whatever becomes of that; who has to know the store asks it.
listed() { far large snapshot list --json | tail -n 1 | jq -r '.snapshots[].id' | sort; }
want=$(sf "$WORK/large" snapshot list --json | tail -n 1 | jq -r '.snapshots[].id' | sort)
anew
same "listed once more" "$(listed)" "$want"
n=$(ask_service _requests)
check "without a request for each manifest ($n)" test "$n" -le 5
cached=$(find "$CACHE.far" -name metadata -size +1k | head -n 1)
check "they are in a file of the cache" test -n "$cached"
check "which only its owner can read" test "$(stat -c %a "$cached")" = 600
bytes=$(stat -c %s "$cached")
random_file "$WORK/nonsense" "$bytes" 7
cat "$WORK/nonsense" >"$cached"
same "nonsense in it: the same list" "$(listed)" "$want"
perl -e 'open(F, "+<", $ARGV[0]); local $/; $_ = <F>;
    s/(snapmet1.{504}).{40}/$1 . "\0" x 40/sge; seek(F, 0, 0); print F $_' "$cached"
same "changed parts of it: the same list" "$(listed)" "$want"
# Whoever may write to the file can make the checksum right: that is not what decides.
cat >"$WORK/forge.py" <<'END'
import struct, sys
table = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0xC96C5795D7870F42 if n & 1 else 0)
    table.append(n)
def crc(data):
    c = 2**64 - 1
    for b in data:
        c = table[(c ^ b) & 255] ^ c >> 8
    return c ^ (2**64 - 1)
data = bytearray(open(sys.argv[1], "rb").read())
forged = right = 0
for at in range(0, len(data), 16384):
    if data[at:at + 8] != b"snapmet1":
        continue
    n = struct.unpack_from("<H", data, at + 22)[0]
    part = at + 512
    summed = lambda: crc(data[at:at + 8] + data[at + 16:at + 512] + data[part:part + n])
    right += summed() == struct.unpack_from("<Q", data, at + 8)[0]
    for i in range(part, part + n, 7):
        data[i] ^= 0x55
    struct.pack_into("<Q", data, at + 8, summed())
    forged += 1
open(sys.argv[1], "r+b").write(data)
print("forged" if forged and right == forged else "%d of %d were right" % (right, forged))
END
same "it is what the service sent" "$(listed)" "$want"
same "all parts are forged, with right checksums" "$(/usr/bin/python3 "$WORK/forge.py" "$cached")" forged
ask_service _requests >/dev/null
same "forged parts of it: the same list" "$(listed)" "$want"
n=$(ask_service _requests)
check "none was believed: all were asked for again ($n)" test "$n" -ge 10
rm "$cached"
mkdir "$cached"
same "a directory in its place: the same list" "$(listed)" "$want"
rmdir "$cached"
same "without it: the same list" "$(listed)" "$want"
rm "$cached"
anew
ask_service _fault/whole/1000 >/dev/null
same "from a service that sends a small blob as a whole: the same list" "$(listed)" "$want"
ask_service _fault/none/0 >/dev/null
n=$(ask_service _requests)
check "with one request for each ($n)" test "$n" -le 17
same "listed, and in the cache again" "$(listed)" "$want"
check "in its file" test -s "$cached"
bytes=$(find "${cached%/*}/indexes" -type f -printf '%s\n' | awk '{n += $1} END {print int(n * 1.03)}')
same "with room for the index only: the same list" \
    "$(far large snapshot list --cache-size "$bytes" --json | tail -n 1 | jq -r '.snapshots[].id' | sort)" "$want"
check "and the file is empty" test ! -s "$cached"
same "with room again" "$(listed)" "$want"
gone=$(find "$WORK/large" -name '*.f' -path '*/q*' | sort | sed -n 5p)
mv "$gone" "$WORK/gone"
same "a pack of metadata is missing: the list has what was read before" "$(listed)" "$want"
check "but a verification fails" eval "! far large verify --quiet 2>'$WORK/far'"
check "and names the content" grep -q 'content [a-z0-9]* in pack' "$WORK/far"
sf "$WORK/large" snapshot list >/dev/null 2>"$WORK/near"; near=$?
"$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.other" -r large snapshot list >/dev/null 2>"$WORK/far"; rc=$?
same "with another cache the exit code is that of a directory" $rc $near
check "and not 0" test $near -ne 0
same "and the content is named" "$(grep -o 'content [a-z0-9]*' "$WORK/far" | head -n 1)" \
    "$(grep -o 'content [a-z0-9]*' "$WORK/near" | head -n 1)"
mv "$WORK/gone" "$gone"
# The manifest, directory and table of a small backup are in one pack, which is one request; and one of its data.
id=$(sf "$WORK/large" snapshot list --json | tail -n 1 |
    jq -r '[.snapshots[] | select(.source.path == "/little7") | .id][0]')
third() { "$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.third" -r large "$@"; }
third snapshot list >/dev/null
anew
rm -f "$WORK/out"
check "a small restore" third restore "$id" "$WORK/out" --quiet
n=$(ask_service _requests)
check "takes a request for its data, and few others ($n)" test "$n" -le 6
check "and is what was backed up, too" cmp "$WORK/out" "$WORK/little"
rm -rf "$CACHE.other" "$CACHE.third"
finish
