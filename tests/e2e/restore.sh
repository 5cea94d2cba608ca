#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Restore in all its ways: interrupted and resumed, of a checkpoint's partial image, in ranges, onto devices, onto a
# full file system, and of what the real Kopia stored.
ON_DISK=1
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../lib.sh"
MIB=1048576
R=$WORK/repo
sf "$R" repo create --quiet
sum() { openssl dgst -sha256 -r | cut -d' ' -f1; } # with the instructions of the CPU for it

# Interrupted, and resumed. The image is data in two parts with zeros between them, which is written slowly enough to be
# interrupted behind the first 100 MB.
random_file "$WORK/random" $((180 * MIB)) 41
{ cat "$WORK/random"; head -c $((60 * MIB)) /dev/zero; tail -c $((100 * MIB)) "$WORK/random" |
    tr 'a' 'b'; } >"$WORK/image"
sf "$R" backup "$WORK/image" --as t@h:/v --quiet --no-direct
"$SNAPFERRY" -r "$R" --password-file "$WORK/password" restore latest "$WORK/out" --json --write-limit 120MiB \
    >"$WORK/log" 2>"$WORK/err" &
pid=$!
noted() {
    find "$CACHE" -name 'restore-*' ! -name '*.tmp' -exec grep -qE ' [0-9]{9,}$' {} \; -print 2>/dev/null | grep -q .
}
for _ in $(seq 3000); do noted && break; kill -0 $pid 2>/dev/null || break; sleep 0.005; done
kill -INT $pid; wait $pid; rc=$?
if [ $rc -eq 0 ]; then
    skip "an interrupted restore is resumed" "the restore ended before the signal came"
else
    same "an interrupted restore: exit code" $rc 130
    check "it says how to go on" grep -q 'same command again to resume' "$WORK/err"
    expect "another snapshot does not continue there" 17 -- sf "$R" restore latest/volume.json "$WORK/out"
    # What was restored before the note is compared, not trusted; what lies behind it is written anyway.
    printf 'damage' | dd of="$WORK/out" bs=1M seek=300 conv=notrunc status=none
    printf 'damage' | dd of="$WORK/out" bs=1M seek=40 conv=notrunc status=none
    out=$(sf "$R" restore latest "$WORK/out" --json)
    check "the same command goes on: $(result resumedBytes <<<"$out") bytes were there" \
        test "$(result resumedBytes <<<"$out")" -ge $((80 * MIB))
    check "the right bytes" cmp "$WORK/image" "$WORK/out"
    check "the note is gone" test -z "$(find "$CACHE" -name 'restore-*')"
    expect "a complete file is refused" 17 '[-][-]resume continues' -- sf "$R" restore latest "$WORK/out"
    out=$(sf "$R" restore latest "$WORK/out" --resume --json)
    same "nothing to resume: all is restored again" "$(result resumedBytes <<<"$out")" 0
fi
# kill -9 instead: the same.
rm -f "$WORK/out"
"$SNAPFERRY" -r "$R" --password-file "$WORK/password" restore latest "$WORK/out" --quiet \
    --write-limit 120MiB 2>/dev/null &
pid=$!
for _ in $(seq 3000); do noted && break; kill -0 $pid 2>/dev/null || break; sleep 0.005; done
kill -KILL $pid 2>/dev/null; wait $pid 2>/dev/null
expect "killed and resumed" 0 -- sf "$R" restore latest "$WORK/out" --quiet
check "the right bytes after the kill" cmp "$WORK/image" "$WORK/out"

# A checkpoint's image has the full size: zeros stand for what had not been read.
"$SNAPFERRY" -r "$R" --password-file "$WORK/password" backup "$WORK/image" --as t@h:/partial --quiet --no-parent \
    --splitter DYNAMIC-2M-BUZHASH --compression zstd --read-limit 120MiB 2>/dev/null &
pid=$!
before=$(find "$R/p" -name '*.f' | wc -l)
for _ in $(seq 1000); do [ "$(find "$R/p" -name '*.f' | wc -l)" -gt $((before + 3)) ] && break; sleep 0.01; done
kill -INT $pid; wait $pid; rc=$?
if [ $rc -ne 130 ]; then
    skip "restore of a checkpoint" "the backup ended before the signal came ($rc)"
else
    id=$(sf "$R" snapshot list --all --json | result 'snapshots | map(select(.incomplete)) | .[0].id')
    expect "latest is not a checkpoint" 16 -- sf "$R" ls latest --as t@h:/partial
    name=$(sf "$R" ls "$id" --json | result 'entries | map(select(.name | test("volume.img"))) | .[0].name')
    expect "an incomplete image is not taken for the image" 16 'incomplete' -- sf "$R" restore "$id" "$WORK/part"
    expect "asked for by its name ($name) it is restored" 0 -- sf "$R" restore "$id/$name" "$WORK/part" --verify
    size=$(stat -c %s "$WORK/part")
    data=$(cmp "$WORK/part" "$WORK/image" 2>/dev/null | grep -oE 'byte [0-9]+' | grep -oE '[0-9]+')
    check "it holds the beginning: ${data:-$size} of $size bytes" test "${data:-$size}" -gt $((20 * MIB))
    check "and only zeros behind it" cmp -n $((size - ${data:-$size})) -i $((${data:-$size} - 1)):0 \
        "$WORK/part" /dev/zero
fi
rm -f "$WORK/part" "$WORK/out" "$WORK/random"; rm -rf "$R"

# Ranges that begin and end anywhere, over borders of chunks and zeros.
sf "$R" repo create --quiet --splitter DYNAMIC-1M-BUZHASH
{ head -c 5000001 "$WORK/image"; head -c 9000007 /dev/zero; head -c 12000003 "$WORK/image" |
    tail -c 6000000; head -c 3000000 /dev/zero; echo end; } >"$WORK/v"
size=$(stat -c %s "$WORK/v")
sf "$R" backup "$WORK/v" --as t@h:/v --quiet
tr '\0' 'x' </dev/zero | head -c "$size" >"$WORK/filled"
bad=
for range in "0 1" "1 4095" "511 513" "4999999 4" "5000000 9000010" "999 13000000" "6000000 1000" \
    "14000007 2" "13999999 6000100" \
    "$((size - 5)) 5" "$((size - 1)) 1000" "0 $size" "20000000 3000000" "1048575 2097154"; do
    read -r offset length <<<"$range"
    cp "$WORK/filled" "$WORK/out"
    end=$((offset + length < size ? offset + length : size))
    { head -c "$offset" "$WORK/filled"; tail -c +$((offset + 1)) "$WORK/v" |
        head -c $((end - offset)); tail -c +$((end + 1)) "$WORK/filled"; } >"$WORK/want"
    sf "$R" restore latest "$WORK/out" --offset "$offset" --length "$length" --verify --quiet 2>"$WORK/err" &&
        cmp -s "$WORK/want" "$WORK/out" || bad="$bad [$range: $(tail -n 1 "$WORK/err")]"
done
same "ranges change what they should, and nothing else" "$bad" ""
out=$(sf "$R" restore latest "$WORK/out" --offset 6000000 --length 1000 --json)
same "a range of zeros fetches nothing" "$(result fetchedBytes <<<"$out")" 0

if is_root; then
    # Differential onto a device full of other data: zeros are zeroed, what is equal stays.
    truncate -s 24M "$WORK/disk"; head -c $((24 * MIB)) "$WORK/filled" >"$WORK/disk"
    truncate -s $((24 * MIB)) "$WORK/disk"
    dev=$(loop_device "$WORK/disk"); at_exit "losetup -d $dev"
    expect "differential onto a device of other data" 0 -- sf "$R" restore latest "$dev" --differential --verify
    check "the right bytes on the device" cmp -n "$size" "$WORK/v" "$dev"
    same "behind the image nothing is touched" "$(tail -c +$((size + 1)) "$dev" | tr -d 'x' | tr -d '\0' | wc -c)" 0
    out=$(sf "$R" restore latest "$dev" --differential --json)
    same "once more: nothing is written" "$(result writtenBytes <<<"$out")" 0
    same "and nothing is zeroed" "$(result punchedBytes <<<"$out")" 0
    tr '\0' 'y' </dev/zero | dd of="$dev" bs=4096 seek=2000 count=3 iflag=fullblock conv=notrunc,fsync status=none
    out=$(sf "$R" restore latest "$dev" --differential --json)
    check "zeros that were overwritten are zeros again" cmp -n "$size" "$WORK/v" "$dev"

    # Interrupted onto a device that has another number when it is back, as after a reboot: it is known by its name.
    ln -s "$dev" "$WORK/name"
    dd if=/dev/zero of="$dev" bs=1M count=24 conv=fsync status=none
    SNAPFERRY_CRASH_AT=restore-written sf "$R" restore latest "$WORK/name" --verify --quiet 2>/dev/null
    cp "$WORK/disk" "$WORK/disk2"
    printf damage | dd of="$WORK/disk2" bs=1M seek=2 conv=notrunc status=none
    dev2=$(loop_device "$WORK/disk2"); at_exit "losetup -d $dev2"
    ln -sfn "$dev2" "$WORK/name"
    out=$(cd "$WORK" && sf "$R" restore latest name --force --verify --json)
    same "a device of another number: it resumes at what was recorded" "$(result resumedFrom <<<"$out")" "$size"
    check "what has become other since is restored again" cmp -n "$size" "$WORK/v" "$dev2"
    fetched=$(result fetchedBytes <<<"$out")
    check "and only that: $fetched bytes" test "$fetched" -gt 0 -a "$fetched" -le $((4 * MIB))
    check "the record is removed" test -z "$(find "$CACHE" -name 'restore-*')"

    # A file, likewise: its file system is on a device of another number.
    mkdir "$WORK/fs"
    for type in ext4 xfs btrfs; do
        rm -f "$WORK/fs.img"; truncate -s 400M "$WORK/fs.img"
        "mkfs.$type" -q "$WORK/fs.img" >/dev/null ||
            { skip "a file on $type after a reboot" "no mkfs.$type"; continue; }
        dev=$(loop_device "$WORK/fs.img")
        mount "$dev" "$WORK/fs"
        SNAPFERRY_CRASH_AT=restore-written sf "$R" restore latest "$WORK/fs/out" --verify --quiet 2>/dev/null
        before=$(stat -c %d "$WORK/fs/out")
        umount "$WORK/fs"
        dev2=$(loop_device "$WORK/fs.img")
        losetup -d "$dev"
        mount "$dev2" "$WORK/fs"; at_exit "umount -l $WORK/fs; losetup -d $dev2"
        [ "$type" = btrfs ] || # whose numbers are given at each mount
            check "$type: the file is on another device number" test "$(stat -c %d "$WORK/fs/out")" != "$before"
        printf damage | dd of="$WORK/fs/out" bs=1M seek=2 conv=notrunc status=none
        out=$(sf "$R" restore latest "$WORK/fs/out" --verify --json 2>"$WORK/err")
        same "$type: a file of a device of another number: it resumes at what was recorded" \
            "$(result resumedFrom <<<"$out")" "$size"
        check "$type: with the right bytes" cmp "$WORK/v" "$WORK/fs/out"
        rm -f "$WORK/fs/out"
        cp "$WORK/v" "$WORK/fs/out"
        expect "$type: another file of that name is not taken for it" 17 'not empty' -- \
            sf "$R" restore latest "$WORK/fs/out" --quiet
        umount "$WORK/fs"; losetup -d "$dev2"
    done

    mkdir "$WORK/tiny"
    mount -t tmpfs -o size=8m tmpfs "$WORK/tiny"; at_exit "umount -l $WORK/tiny"

    # A device that turns out to have no room, as a thin volume of a full pool.
    truncate -s 24M "$WORK/tiny/thin"
    dev=$(loop_device "$WORK/tiny/thin"); at_exit "losetup -d $dev"
    expect "a device without room: where to look is said" 18 'its pool is full' -- \
        sf "$R" restore latest "$dev" --force --quiet
    losetup -d "$dev"; rm "$WORK/tiny/thin"
    expect "18: a full file system" 18 'No space left' -- sf "$R" restore latest "$WORK/tiny/out" --quiet
    expect "18: a full file system, ordinary writes" 18 'No space left' -- sf "$R" restore latest "$WORK/tiny/out" \
        --force --no-io-uring
else
    skip "devices and full file systems" "needs root"
fi

# Longer chunks than the repository's splitter makes: those of a backup with a splitter of its own.
odd=$WORK/odd-repo
sf "$odd" repo create --splitter DYNAMIC-128K-BUZHASH --quiet
random_file "$WORK/long" $((40 * MIB)) 77
expect "a backup with larger chunks than the repository's" 0 -- sf "$odd" backup "$WORK/long" \
    --splitter DYNAMIC-4M-RABINKARP --quiet
expect "is restored" 0 -- sf "$odd" restore latest "$WORK/long.out" --verify --memory 96MiB --quiet
check "with the right bytes" cmp "$WORK/long" "$WORK/long.out"
printf x | dd of="$WORK/long.out" bs=1 seek=$((20 * MIB)) conv=notrunc status=none
out=$(sf "$odd" restore latest "$WORK/long.out" --differential --json)
same "differentially: only the piece that differs" "$(result writtenBytes <<<"$out")" 65536
check "and again the right bytes" cmp "$WORK/long" "$WORK/long.out"
expect "and verified" 0 'no damage found' -- sf "$odd" verify
rm -rf "$odd" "$WORK/long" "$WORK/long.out"

# What the real Kopia stored: the largest files of the snapshots of these repositories, by their hashes.
for g in compress-all v1-compress-all v1-compressed sections indirect-two-levels odd-names ecc-2-damaged two-clients; do
    expected=$GOLDEN/$g.expected.json
    jq -j .password "$expected" | secret "$WORK/pw"
    n=0 bad=
    while IFS=$'\t' read -r id path hash; do
        [ $n -ge 8 ] && break
        rm -f "$WORK/out"
        "$SF" -r "$GOLDEN/$g" --password-file "$WORK/pw" restore "$id/$path" "$WORK/out" \
            --quiet --verify 2>"$WORK/err"
        [ "$(sum <"$WORK/out")" = "$hash" ] || bad="$bad $id/$path: $(tail -n 1 "$WORK/err")"
        n=$((n + 1))
    done < <(jq -r '.snapshots[] | .id as $i | .entries | map(select(.entry.type == "f" and .sha256)) |
        max_by(.length) |
        select(. != null) | [$i, .path, .sha256] | @tsv' "$expected")
    if [ $n -eq 0 ]; then fail "$g: no files"; else same "$g: $n files restored as Kopia stored them" "$bad" ""; fi
done
finish
