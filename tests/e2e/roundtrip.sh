#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Backup and restore of files and block devices of all kinds of sizes and contents, compared byte by byte.
ON_DISK=1
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo
DERIVE_KEYS=1 # at first the command as users have it
sf "$R" repo create --quiet

backup() { sf "$R" backup "$1" --as "t@h:/$2" --json "${@:3}"; }
round() { # NAME FILE [BACKUP-OPTIONS]
    local name=$1 file=$2 out
    shift 2
    rm -f "$WORK/out"
    if ! out=$(backup "$file" "$name" "$@" 2>"$WORK/err"); then fail "$name: backup" "$(cat "$WORK/err")"; return; fi
    expect "$name: restore" 0 -- sf "$R" restore "$(result snapshot <<<"$out")" "$WORK/out" --quiet
    check "$name: the same bytes" cmp "$file" "$WORK/out"
}

for size in 0 1 511 512 513 4095 4097 65536 2097151 2097152 2097153 8388608 20971521; do
    random_file "$WORK/f" $size 7
    round "random-$size" "$WORK/f"
    unset DERIVE_KEYS
done
truncate -s 50000001 "$WORK/z"
round zeros "$WORK/z"
dd if=/dev/zero of="$WORK/dense" bs=1M count=40 status=none
round dense-zeros "$WORK/dense"
same "dense zeros store next to nothing" "$(($(backup "$WORK/dense" dense-zeros | result storedBytes) < 65536))" 1
{ head -c 5000000 "$WORK/f"; head -c 30000000 /dev/zero; head -c 100 "$WORK/f"; head -c 3000000 /dev/zero; cat \
    "$WORK/f"; } >"$WORK/mixed"
round mixed "$WORK/mixed"
cp --sparse=always "$WORK/mixed" "$WORK/sparse"
round sparse "$WORK/sparse"
same "a sparse copy is the same object" "$(backup "$WORK/sparse" sparse | result object)" \
    "$(backup "$WORK/mixed" mixed | result object)"
for c in zstd-fastest zstd zstd-best-compression gzip deflate-best-speed pgzip; do
    tar -cf "$WORK/text" -C /usr/include . 2>/dev/null
    head -c 12000000 "$WORK/text" >"$WORK/text2"
    rm -rf "$WORK/rc"; sf "$WORK/rc" repo create --quiet
    out=$(sf "$WORK/rc" backup "$WORK/text2" --compression $c --json)
    same "$c makes text smaller" "$(($(result storedBytes <<<"$out") < $(result newBytes <<<"$out") / 2))" 1
    rm -f "$WORK/out"
    sf "$WORK/rc" restore latest "$WORK/out" --quiet
    check "$c round trip" cmp "$WORK/text2" "$WORK/out"
done
for opts in "--no-io-uring" "--no-direct" "--workers 1" "--memory 96M" "--splitter FIXED-1M" \
    "--splitter DYNAMIC-1M-RABINKARP" "--queue-depth 1"; do
    # shellcheck disable=SC2086
    round "mixed${opts// /}" "$WORK/mixed" $opts
done

# The same again is all duplicate; a change in the middle costs a chunk or two.
out=$(backup "$WORK/mixed" mixed)
same "the same again: nothing new" "$(result newBytes <<<"$out")" 0
check "the same again: parent and hints are used" test "$(result hintedChunks <<<"$out")" -gt 0
cp "$WORK/mixed" "$WORK/changed"
printf 'X' | dd of="$WORK/changed" bs=1 seek=2500000 conv=notrunc status=none
out=$(backup "$WORK/changed" mixed)
check "a changed byte stores at most two chunks" test "$(result newChunks <<<"$out")" -le 2
same "with and without parent: the same object" "$(result object <<<"$out")" \
    "$(backup "$WORK/changed" mixed --no-parent | result object)"
same "with a full scan: the same object" "$(result object <<<"$out")" \
    "$(backup "$WORK/changed" mixed --full-scan | result object)"

# Restores in other ways.
id=$(result snapshot <<<"$out")
cp "$WORK/mixed" "$WORK/target"
out=$(sf "$R" restore "$id" "$WORK/target" --differential --json)
check "differential: right" cmp "$WORK/changed" "$WORK/target"
check "differential: writes little" test "$(result writtenBytes <<<"$out")" -le 131072
# Many chunks that differ in one batch, some of them alike: each is compared with its own place.
out=$(backup "$WORK/changed" fine --splitter FIXED-128K)
cp "$WORK/changed" "$WORK/target"
for at in 0 131072 262144 400000 9000000 20000000 30000000 38100100; do
    printf 'Y' | dd of="$WORK/target" bs=1 seek=$at conv=notrunc status=none
done
out=$(sf "$R" restore "$(result snapshot <<<"$out")" "$WORK/target" --differential --json --verify)
check "differential in many places: right" cmp "$WORK/changed" "$WORK/target"
check "differential in many places: writes little" test "$(result writtenBytes <<<"$out")" -le $((8 * 65536))
rm -f "$WORK/part"
sf "$R" restore "$id" "$WORK/part" --offset 2000000 --length 7000001 --quiet
same "range: the right bytes at their place" "$(tail -c +2000001 "$WORK/part" | sha256sum)" \
    "$(tail -c +2000001 "$WORK/changed" | head -c 7000001 | sha256sum)"
cp "$WORK/mixed" "$WORK/target"
dd if=/dev/zero of="$WORK/target" bs=1M seek=3 count=2 conv=notrunc status=none
expect "range into an existing file" 0 -- sf "$R" restore "$id" "$WORK/target" --offset 3145728 \
    --length 2097152 --verify
cp "$WORK/changed" "$WORK/want"; printf "$(dd if="$WORK/mixed" bs=1 skip=2500000 count=1 status=none | od -An -to1 |
    sed 's/ /\\/')" | dd of="$WORK/want" bs=1 seek=2500000 conv=notrunc status=none
check "the rest is left alone" cmp "$WORK/want" "$WORK/target"
rm -f "$WORK/out"
expect "verify after restore" 0 'verified' -- sf "$R" restore "$id" "$WORK/out" --verify
same "holes stay holes" "$(($(stat -c %b "$WORK/out") * 512 < 35000000))" 1
expect "all snapshots verify" 0 'no damage found' -- sf "$R" verify
# Where the time went, for people and for programs.
times() { # NAME LINE STAGES: the text says it, and every stage of the JSON is known
    check "$1: the text names the bottleneck" grep -qzE 'Time  +[a-z]+ [0-9.]+ s[^;]*;\s+bottleneck:\s+[a-z]+' <<<"$2"
    check "$1: stages and bottleneck in JSON" jq -e '[.stages[].name] as $names | (.stages | length) >= 3 and
        all(.stages[]; .busySeconds >= 0 and .stalledSeconds >= 0 and .bytes >= 0) and (.bottleneck | IN($names[])) and
        ([.stages[].busySeconds] | add) > 0' <<<"$(tail -n 1 <<<"$3")"
}
rm -f "$WORK/out" "$WORK/out2"
plain=$(sf "$R" backup "$WORK/changed" --as t@h:/plain; sf "$R" restore "$id" "$WORK/plain" --verify; sf "$R" verify)
check "without --verbose the amounts alone" sh -c '! grep -qE "Time|Read|Fetched|Index" <<X
$1
X' - "$plain"
same "in one or two lines each" "$(wc -l <<<"$plain")" 5
times backup "$(sf "$R" backup "$WORK/changed" --as t@h:/times1 --verbose)" "$(backup "$WORK/changed" times2)"
times verify "$(sf "$R" verify -v)" "$(sf "$R" verify --json)"
times restore "$(sf "$R" restore "$id" "$WORK/out" -v)" "$(sf "$R" restore "$id" "$WORK/out2" --json)"
expect "verify reads a share" 0 -- sf "$R" verify --read-percent 10

# A big sparse file: seconds, not hours.
truncate -s 1T "$WORK/huge"
dd if="$WORK/f" of="$WORK/huge" bs=1M seek=700000 conv=notrunc status=none
start=$SECONDS
out=$(backup "$WORK/huge" huge)
check "1 TiB sparse is backed up in under a minute" test $((SECONDS - start)) -lt 60
same "its size is exact" "$(result sizeBytes <<<"$out")" 1099511627776
check "the file reads little" test "$(result readBytes <<<"$out")" -lt 60000000
sf "$R" restore "$(result snapshot <<<"$out")" "$WORK/huge.out" --quiet
same "and is restored with its data in place" "$(dd if="$WORK/huge.out" bs=1M skip=700000 count=20 status=none |
    sha256sum)" "$(head -c 20971520 "$WORK/f" | sha256sum)"
same "at its size" "$(stat -c %s "$WORK/huge.out")" 1099511627776

if is_root; then
    for sector in 512 4096; do
        truncate -s 96M "$WORK/disk-$sector"
        mkfs.ext4 -q -F "$WORK/disk-$sector"
        dd if="$WORK/f" of="$WORK/disk-$sector" bs=1M seek=30 conv=notrunc status=none
        if ! dev=$(loop_device "$WORK/disk-$sector" --sector-size $sector); then
            skip "loop device with $sector" "losetup refuses"
            continue
        fi
        at_exit "losetup -d $dev"
        truncate -s 96M "$WORK/disk2-$sector"
        dev2=$(loop_device "$WORK/disk2-$sector" --sector-size $sector); at_exit "losetup -d $dev2"
        out=$(sf "$R" backup "$dev" --json)
        same "device ($sector): io_uring and O_DIRECT" \
            "$(result reader.ioUring <<<"$out") $(result reader.direct <<<"$out")" "true true"
        check "device ($sector): a stable source" grep -qvE '/dev/loop' <<<"$(result source <<<"$out")"
        expect "device ($sector): restore" 0 -- sf "$R" restore "$(result snapshot <<<"$out")" "$dev2" --verify
        check "device ($sector): the same bytes" cmp "$dev" "$dev2"
        dd if=/dev/urandom of="$dev2" bs=4096 seek=1000 count=1 conv=notrunc,fsync status=none
        out2=$(sf "$R" restore "$(result snapshot <<<"$out")" "$dev2" --differential --json)
        check "device ($sector): differential" cmp "$dev" "$dev2"
        check "device ($sector): differential writes little" test "$(result writtenBytes <<<"$out2")" -le 131072
    done
    mkfs.ext4 -q -F "$dev2"; mkdir "$WORK/mnt"; mount "$dev2" "$WORK/mnt"; at_exit "umount $WORK/mnt"
    expect "a mounted target is refused" 17 'mounted' -- sf "$R" restore "$id" "$dev2"
    expect "a mounted source is told" 0 'mounted read-write' -- sf "$R" backup "$dev2"
    umount "$WORK/mnt"
    truncate -s 8M "$WORK/small"; dev3=$(loop_device "$WORK/small"); at_exit "losetup -d $dev3"
    expect "a target that is too small is refused" 17 'small' -- sf "$R" restore "$id" "$dev3"
else
    skip "block devices" "needs root"
fi
# What has an effect on a terminal is escaped in JSON, too: a C1 control, DEL, a mark that reverses the direction.
odd=$(printf 'a\xc2\x9b31m\x7f\xe2\x80\xaeb\xc3\xa4')
backup "$WORK/text" odd --description "$odd" >/dev/null
out=$(sf "$R" snapshot list --json)
check "controls are escaped in --json" grep -qF 'a\u009b31m\u007f\u202ebä' <<<"$out"
check "and none is left" test -z "$(grep -P '[\x7f\x{80}-\x{9f}\x{200e}\x{200f}\x{202a}-\x{202e}]' <<<"$out")"
same "the text is the same" "$(jq -r '.. | .description? // empty' <<<"$out" | grep -F "$odd")" "$odd"

finish
