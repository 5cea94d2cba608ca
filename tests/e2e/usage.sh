#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What each volume takes in a repository, for itself and together with others (CF-40, CF-41): where the numbers are
# known, in repositories of stock Kopia, and where something cannot be read. What all volumes reach is what maintenance,
# which walks every snapshot anew, finds in use.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo
CHUNK=131072 STORED=131100 # and stored: 28 bytes more
volumes() { sf "${1:-$R}" repo usage --volumes --json; }
of() { jq -c ".volumes[] | select(.source.path == \"$1\") | $2" "$WORK/out"; } # PATH FILTER
# adds_up NAME [REPO]: the sums in $WORK/out are those of their parts, and what maintenance finds.
adds_up() {
    same "$1: all that there is" "$(jq -c '[.exclusive, .shared, .manifests, .unreached |
        .count, .bytes] | [.[0] + .[2] + .[4] + .[6], .[1] + .[3] + .[5] + .[7]]' "$WORK/out")" \
        "$(jq -c '[.total.count, .total.bytes]' "$WORK/out")"
    same "$1: exclusive is that of the volumes" "$(jq '[.volumes[].exclusive.bytes] | add // 0' "$WORK/out")" \
        "$(jq .exclusive.bytes "$WORK/out")"
    same "$1: in use as maintenance finds it" "$(jq -c '[.exclusive, .shared, .manifests | .count, .bytes] |
        [.[0] + .[2] + .[4], .[1] + .[3] + .[5]]' "$WORK/out")" \
        "$(sf "${2:-$R}" repo usage --json | tail -n 1 | jq -c '[.used.count, .used.bytes]')"
}
# contents of the index: id, stored bytes.
entries() { "$TOOLS/index_entries" "$R" "$WORK/password"; }

# ---- two volumes with half of their data in common, and one with several snapshots ----

sf "$R" repo create --quiet --splitter FIXED-128K
volumes >"$WORK/out"
same "nothing yet" "$(jq -c '[.ok, .volumes, .snapshots, .exclusive.count]' "$WORK/out")" '[true,[],0,0]'
expect "which is said" 0 '^No snapshots' -- sf "$R" repo usage --volumes
for i in 1 2 3; do random_file "$WORK/part$i" $((32 * CHUNK)) $i; done
cat "$WORK/part1" "$WORK/part2" >"$WORK/a"
cat "$WORK/part1" "$WORK/part3" >"$WORK/b"
random_file "$WORK/c" $((16 * CHUNK)) 4
sf "$R" backup "$WORK/a" --as t@h:/a --tag volume:first --quiet
sf "$R" backup "$WORK/b" --as t@h:/b --quiet
for i in 1 2 3; do
    [ $i = 1 ] || random_file "$WORK/chunk" $CHUNK 1$i
    [ $i = 1 ] || dd if="$WORK/chunk" of="$WORK/c" bs=$CHUNK seek=$i conv=notrunc status=none
    sf "$R" backup "$WORK/c" --as u@other:/c --quiet
done
volumes >"$WORK/out"
same "as many volumes as there are, the largest first" \
    "$(jq -c '[.volumes[].source.path] | [.[2], length]' "$WORK/out")" \
    '["/c",3]'
same "what two have in common" "$(of /a .shared)$(of /b .shared)" \
    "$(printf '{"bytes":%d,"count":32}' $((32 * STORED)) $((32 * STORED)))"
same "it is counted once" "$(jq -c .shared "$WORK/out")" "{\"bytes\":$((32 * STORED)),\"count\":32}"
# Beside the other half: a directory, volume.json and the index document.
same "what one has for itself" "$(of /a "[.exclusive.count, .exclusive.bytes > 32 * $STORED,
    .exclusive.bytes < 32 * $STORED + 20000]")" '[35,true,true]'
same "several snapshots: what they have in common is counted once" \
    "$(of /c "[.exclusive.count, .exclusive.bytes > 18 * $STORED, .shared.count, .snapshots]")" '[27,true,0,3]'
same "size, name and source" "$(of /a "[.size > 64 * $CHUNK and .size < 64 * $CHUNK + 1000, .volume,
    .source.host, .source.userName, .snapshots]")" "[true,\"first\",\"h\",\"t\",1]"
adds_up "ours"
same "of the index, manifests apart" "$(jq '.exclusive.bytes + .shared.bytes' "$WORK/out")" \
    "$(entries | awk '$1 !~ /^m/ { s += $4 } END { print s }')"
out=$(sf "$R" repo usage --volumes)
check "a row for each" grep -qE '^ *[2-5]\.[0-9] MiB +4\.0 MiB +1 +8\.0 MiB +first +t@h:/a$' <<<"$out"
check "and their total" grep -qE '^ *10\.[0-9] MiB +4\.0 MiB +5 +total: 3 volumes$' <<<"$out"
same "nothing is written into the repository" "$(find "$R" -type f -newer "$WORK/out" | wc -l)" 0

# ---- what is exclusive is what comes back ----

exclusive=$(of /a .exclusive.bytes) unneeded=$(jq .unreached.bytes "$WORK/out")
sf "$R" snapshot delete latest --as t@h:/a --force --quiet
volumes >"$WORK/out"
same "deleted: its own is not needed any more" "$(jq .unreached.bytes "$WORK/out")" $((unneeded + exclusive))
same "and what was shared is the other's now" "$(of /b '[.shared.count, .exclusive.count]')" '[0,67]'
adds_up "after that"

# ---- an index document of several blocks is read once for what is the same in it ----

R=$WORK/large
sf "$R" repo create --quiet --splitter FIXED-128K
# 10,000 chunks with a few bytes of their own, of which all else is a hole.
make_image() { # FILE TEXT CHUNK...
    perl -e 'open F, "+<", $ARGV[0] or die;
        for (@ARGV[2 .. $#ARGV]) { seek F, $_ * 131072, 0; print F "$ARGV[1]-$_" }
        close F or die' "$@"
}
truncate -s $((10000 * CHUNK)) "$WORK/image"
make_image "$WORK/image" first $(seq 0 9999)
sf "$R" backup "$WORK/image" --as t@h:/v --compression zstd-fastest --quiet
volumes >"$WORK/out"
blocks=$(jq .blocksRead "$WORK/out")
check "a document of several blocks: $blocks" [ "$blocks" -ge 4 ]
# Entries across the border of two blocks, whose number is in one and whose id is in the next: when such an id is
# another one, the block before it is as it was, and yet the entry is to be read.
border=$(perl -e '$n = 38; for (0 .. 9999) { # {"s":N,"l":131072,"o":"ID"},
    $id = $n + 1 + ($_ ? 5 + length($_ * 131072) : 0) + 11 + 5; $end = $n - $n % 131072 + 131072;
    print "$_ " if $n < $end && $end <= $id && $found++ < 2; $n = $id + 32 + 3; }')
same "entries at borders: $border" "$(wc -w <<<"$border")" 2
for n in 17 $border; do
    cp --sparse=always "$WORK/image" "$WORK/changed"
    make_image "$WORK/changed" again "$n"
    for image in image changed; do
        sf "$R" backup "$WORK/$image" --as "t@h:/v$n" --compression zstd-fastest --quiet
    done
done
volumes >"$WORK/out"
check "of each document most is known ($(jq -c '[.blocksRead, .blocksKnown]' "$WORK/out"))" \
    jq -e ".blocksRead + .blocksKnown == $blocks * .snapshots and
        .blocksRead <= (.volumes | length) * ($blocks + 3) and .blocksKnown > 0" "$WORK/out"
reached() {
    jq -c '[.volumes[] | select(.source.path != "/v") | .exclusive.count + .shared.count] | unique' "$WORK/out"
}
# Chunks, and the other one; two directories, two volume.json; document and blocks of it, two of these twice.
same "no entry at a border is left out" "$(reached)" "[$((10001 + 4 + 1 + blocks + 2))]"
adds_up "blocks"
sf "$R" backup "$WORK/image" --as t@h:/w --compression zstd-fastest --quiet
volumes >"$WORK/out"
check "another volume is walked for itself" jq -e '.volumes | map(.shared.count > 10000) | all' "$WORK/out"
adds_up "another volume"

# ---- what cannot be read is reported, and the rest is counted ----

R=$WORK/repo
cp -a "$R" "$WORK/whole"
id=$(sf "$R" snapshot list --json | jq -r '.snapshots[] | select(.source.path == "/b") | .rootEntry.obj')
read -r _ pack end packed _ <<<"$(entries | grep "^$id ")"
dd if=/dev/zero of="$(find "$R" -name "${pack:4}.f")" bs=1 \
    seek=$((end - packed / 2)) count=8 conv=notrunc status=none
rm -rf "$CACHE"
expect "a damaged directory: reported" 15 'lower bounds: 1 object, 0 contents and 0 manifests' -- \
    sf "$R" repo usage --volumes
expect "by volume" 15 'at least: 1 object cannot be read' -- sf "$R" repo usage --volumes
volumes >"$WORK/out" 2>"$WORK/err"
same "with JSON" "$(jq -c '[.type, .ok, .lowerBounds, .unreadableObjects]' "$WORK/out")" '["result",false,true,1]'
check "which one" grep -q "t@h:/b: object $id cannot be read" "$WORK/err"
same "the volume's own directory is counted, what is below is not" \
    "$(of /b '[.exclusive.count, .lowerBound]')" '[1,true]'
same "others are whole" "$(of /c '[.exclusive.count, .lowerBound]')" '[27,false]'

# ---- stock Kopia's repositories: sources with files and directories ----

R=$WORK/stock
stock() { # NAME
    rm -rf "$R" && cp -a "$GOLDEN/$1" "$R"
    jq -j .password "$GOLDEN/$1.expected.json" | secret "$WORK/password"
    volumes >"$WORK/out"
    same "$1: sources and their snapshots" "$(jq -c '[.volumes[] | [(.source | .host, .userName, .path),
        .snapshots + .incompleteSnapshots]] | sort' "$WORK/out")" \
        "$(jq -c '[.snapshots[].source | [.host, .userName, .path]] | group_by(.) | map(.[0] + [length])' \
            "$GOLDEN/$1.expected.json")"
    adds_up "$1" "$R"
}
for name in two-clients big-directory incomplete-checkpoint indirect-two-levels gc-undelete; do stock $name; done
stock two-clients
check "stock clients share contents" \
    jq -e '.shared.count > 0 and ([.volumes[] | select(.shared.count > 0)] | length) > 1' "$WORK/out"
rm -rf "$R" && cp -a "$GOLDEN/missing-index-blob-first" "$R"
jq -j .password "$GOLDEN/missing-index-blob-first.expected.json" | secret "$WORK/password"
volumes >"$WORK/out" 2>"$WORK/err"
same "a lost index blob: contents are missing" "$(jq -c '[.ok, .unreadableObjects, .missingContents] +
    [.volumes[0] | .missingContents, .lowerBound]' "$WORK/out")" '[false,1,4,4,true]'
# A repository without epochs has no maintenance of ours, but volumes.
rm -rf "$R" && cp -a "$GOLDEN/v1-compressed" "$R"
jq -j .password "$GOLDEN/v1-compressed.expected.json" | secret "$WORK/password"
volumes >"$WORK/out"
same "without epochs: all that is in the index" "$(jq -c '.volumes[0].exclusive.bytes > 0 and
    .total.bytes - .manifests.bytes - .unreached.bytes == .volumes[0].exclusive.bytes' "$WORK/out")" true
finish
