#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What error correction had to restore is no damage, is told, and is stored again, by the next backup that meets it or
# by the next full maintenance: what its old place becomes does not matter any more (issue 15, CF-15). With
# KOPIA=/path/to/kopia stock Kopia verifies that, too.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo
take() { sf "$R" backup "$WORK/$1" --as "$1@h:/v" --json | result newBytes; }
m() { sf "$R" maintenance --full --node-name n1 "$@"; }
file_of() { echo "$R/${1:0:1}/${1:1:3}/${1:4}.f"; }
corrected() { tail -n 1 | jq -c '[.ok, .damages, .corrected, .correctedPacks, .correctedIndexBlobs]'; }
numbers() { sf "$R" verify --json 2>/dev/null | corrected; }
# places: "PACK OFFSET LENGTH" of two contents of each pack with data, one line each.
places() {
    "$TOOLS/index_entries" "$R" "$WORK/password" | awk '$1 !~ /^[a-z]/ { print $2, $3 - $4, $4 }' | sort -k1,1 -k2,2n |
        awk '{ n[$1]++ } n[$1] == 3 || n[$1] == 30'
}
# decay BYTES: so many bytes in the middle of each of the places.
decay() {
    local pack offset length
    while read -r pack offset length; do
        head -c "$1" /dev/urandom |
            dd of="$(file_of "$pack")" bs=1 seek=$((offset + length / 2)) conv=notrunc status=none
    done <"$WORK/places"
}
again() { rm -rf "$R" "$CACHE" && cp -a "$WORK/whole" "$R"; }
sf "$R" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 10MiB --ecc-percent 10
for v in a b; do random_file "$WORK/$v" 8000000 "$((RANDOM + 1))" && take $v >/dev/null; done
"$TOOLS/age_repository" "$R" "$WORK/password" 3h
places >"$WORK/places"
same "two contents in each of two packs" "$(cut -d' ' -f1 "$WORK/places" | uniq -c | awk '{ printf "%s ", $1 }')" "2 2 "
same "nothing has decayed" "$(numbers)" '[true,0,0,0,0]'
cp -a "$R" "$WORK/whole"

# lost_places WHAT: what is at the old places now is beyond correction, and nobody misses it.
lost_places() {
    decay 60000
    rm -rf "$CACHE"
    same "$1: the old places do not matter any more" "$(numbers)" '[true,0,0,0,0]'
    for v in a b; do
        sf "$R" restore latest --as "$v@h:/v" "$WORK/out" --force --quiet
        check "$1: $v is restored as it was" cmp "$WORK/$v" "$WORK/out"
        rm -f "$WORK/out"
    done
    [ -x "${KOPIA:-/nonexistent}" ] || return 0
    "$KOPIA" --config-file "$WORK/k" --password "test password" repository connect filesystem --path "$R" \
        --cache-directory "$WORK/kc" --no-check-for-updates >/dev/null 2>&1
    check "$1: stock Kopia verifies" "$KOPIA" --config-file "$WORK/k" --password "test password" --log-dir "$WORK/log" \
        snapshot verify --verify-files-percent=100 --no-auto-maintenance
    rm -rf "$WORK/k" "$WORK/kc"
}

decay 1
expect "verify: nothing is lost, and what happens next" 0 \
    '4 contents in 2 packs had decayed and could be corrected: the next backup' -- sf "$R" verify
same "in numbers" "$(numbers)" '[true,0,4,2,0]'

# By backups.
same "the next backup stores again what it meets" "$(take a)" 262144
same "the rest is left" "$(numbers)" '[true,0,2,1,0]'
same "... to the backup of the other volume" "$(take b)" 262144
same "nothing needs to be corrected any more" "$(numbers)" '[true,0,0,0,0]'
same "nothing is stored once more" "$(take a) $(take b)" "0 0"
lost_places "backups"

# By maintenance, whatever the volumes contain by now.
again
decay 1
same "what was not read is not known" "$(m --dry-run --json | result renewed.count)" 0
sf "$R" verify --quiet
same "a dry run tells" "$(m --dry-run --json | result renewed.count)" 4
check "and does nothing" [ "$(numbers)" = '[true,0,4,2,0]' ]
expect "maintenance stores them again" 0 '^Renewed +[0-9.]+ KiB in 4 contents' -- m
same "nothing needs to be corrected after that" "$(numbers)" '[true,0,0,0,0]'
same "it is done once" "$(m --json | result renewed.count)" 0
lost_places "maintenance"
same "the next backups have nothing to store" "$(take a) $(take b)" "0 0"

# What has decayed further meanwhile is damage.
again
decay 1
sf "$R" verify --quiet
decay 60000
expect "beyond correction: maintenance says so" 15 '4 needed contents cannot be read' -- m
expect "verify, too" 15 '4 damaged' -- sf "$R" verify
"$TOOLS/age_repository" "$R" "$WORK/password" 25h
check "it does not try again" m --quiet
same "a backup mends it" "$(take a) $(take b)" "262144 262144"
same "whole" "$(numbers)" '[true,0,0,0,0]'

# Index blobs.
again
f=$(find "$R/x/n0_" -name '*.f' | sort | head -n 1)
printf X | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") / 2)) conv=notrunc status=none
expect "an index blob" 0 '1 index blob had decayed and could be corrected' -- sf "$R" verify
same "in numbers, too" "$(numbers)" '[true,0,0,0,1]'
finish
