#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Index blobs of other nodes are fetched several at a time, from a service that answers late; each that is damaged,
# missing or refused is the same error as when it is fetched alone.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
R=$WORK/repo
sf "$R" repo create --quiet
random_file "$WORK/image" 3000000 5
check "a backup" sf "$R" backup "$WORK/image" --as t@h:/v --quiet
check "other nodes have written 60 index blobs" "$TOOLS/make_index" --contents 6000 --blobs 60 "$R" "$WORK/password"
s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK"
ask_service() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1"; }
mkdir "$WORK/conf"
printf 'access-key = a\nsecret-key = a\n' | secret "$WORK/keys"
printf '[repository "far"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = repo/\n' "$port" \
    >"$WORK/conf/snapferry.ini"
printf 'credentials = %s\npassword-file = %s\n' "$WORK/keys" "$WORK/password" >>"$WORK/conf/snapferry.ini"
far() { "$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.far" -r far "$@"; }
blobs() { find "$R"/x/n* -name '*.f' | sort; }
cached() { find "$CACHE.far" -name 'xn*' | wc -l; }

ask_service _set/late/200 >/dev/null
ask_service _indexes >/dev/null
check "a node that has nothing opens it" far snapshot list
most=$(ask_service _indexes)
check "eight index blobs at a time ($most)" test "$most" -eq 8
same "all are in its cache" "$(cached)" "$(blobs | wc -l)"
check "a restore" far restore latest "$WORK/out" --quiet
check "is what was backed up" cmp "$WORK/out" "$WORK/image"
check "one more" "$TOOLS/make_index" --contents 100 --blobs 2 --seed 7 "$R" "$WORK/password"
ask_service _requests >/dev/null
check "later, what is new" far snapshot list
same "is fetched alone" "$(cached)" "$(blobs | wc -l)"

ask_service _indexes >/dev/null
expect "verify reads each once more, and misses the packs of these nodes" 15 'missing-pack' -- far verify
most=$(ask_service _indexes)
check "eight at a time, too ($most)" test "$most" -eq 8

# Damage: named, whichever thread meets it; nothing wrong is kept in the cache.
for nth in 1 30 63; do
    rm -rf "$CACHE.far"
    f=$(blobs | sed -n "${nth}p")
    name=$(tr -d / <<<"${f#"$R"}" | sed 's/\.f$//')
    cp -p "$f" "$WORK/kept"
    printf XXXX | dd of="$f" bs=1 seek=40 conv=notrunc status=none
    expect "blob $nth is damaged: named" 15 "$name" -- far snapshot list
    expect "blob $nth is damaged: verify names it" 15 "$name" -- sf "$R" verify
    cp -p "$WORK/kept" "$f"
    check "blob $nth is whole again: opened" far snapshot list
done
rm -rf "$CACHE.far"
ask_service _fault/slowdown/3/20 >/dev/null
check "answers that say to come later are waited for" far snapshot list
finish
