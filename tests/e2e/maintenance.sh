#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Maintenance of a repository (E-05, CF-40, CF-41, CF-42): space comes back in the third run and not before, nothing
# that a snapshot needs is lost, whatever the run is interrupted by and whoever writes meanwhile.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
[ -z "${THROUGH_S3:-}" ] || through_s3
R=$WORK/repo
m() { sf "$R" maintenance --full --node-name n1 "$@"; }
age() { "$TOOLS/age_repository" "${2-$R}" "$WORK/password" "$1"; }
bytes() { find "$R/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
state() { find "$1" -type f | LC_ALL=C sort | xargs sha256sum | sha256sum; }
take() { sf "${3-$R}" backup "$WORK/$1" --as "$1@h:/$2" --quiet; }
sf "$R" repo create --quiet --node-name n1
random_file "$WORK/a" 9000000 1
random_file "$WORK/b" 12000000 2
take a v && take b v
full=$(bytes)

# What it says before, and that it only says it.
sf "$R" snapshot delete latest --as b@h:/v --force --quiet
before=$(state "$R")
out=$(m --dry-run --explain 2>&1)
check "a young content is kept for 24 hours" \
    grep -qE '11.4 MiB in [0-9]+ contents that no snapshot needs, younger' <<<"$out"
same "a dry run changes nothing" "$(state "$R")" "$before"
age 25
before=$(state "$R")
same "what the next run does" "$(m --dry-run --json | tail -n 1 |
    jq -c '[.dryRun, .marked.bytes > 12000000, .deletedPacks.count]')" '[true,true,0]'
expect "another node does not" 20 'belongs to snapferry-maintenance@n1' -- sf "$R" maintenance --full --node-name n2
same "nothing was changed" "$(state "$R")" "$before"

out=$(sf "$R" repo usage 2>&1)
check "usage shows what comes back" grep -qE '^Unneeded +11.4 MiB  freed by the third full maintenance' <<<"$out"
same "usage changes nothing" "$(state "$R")" "$before"

# Three runs, a day apart: marked, found unneeded again, dropped and deleted.
out=$(m --explain 2>&1)
check "the first run marks" grep -qE '^Marked deleted +[0-9]+ contents, 11.4 MiB' <<<"$out"
check "and says when it is freed" \
    grep -q 'marked deleted just now: until the second full maintenance from now' <<<"$out"
same "no byte came back" "$(bytes)" "$full"
same "at once again: nothing" \
    "$(m --json | tail -n 1 | jq -c '[.marked.count, .dropped.count, .deletedPacks.count]')" '[0,0,0]'
cp -a "$R" "$WORK/marked"
age 25
out=$(m --explain 2>&1)
check "the second one waits" grep -q 'marked deleted earlier: until the next full maintenance' <<<"$out"
same "still no byte" "$(bytes)" "$full"
cp -a "$R" "$WORK/second"
age 3
same "3 hours later, neither" "$(m --json | result dropped.count)$(bytes)" "0$full"
rm -rf "$R" && cp -a "$WORK/second" "$R"
age 25
cp -a "$R" "$WORK/third"
out=$(m 2>&1)
check "the third one frees" grep -qE '^Freed 11.[4-9] MiB of' <<<"$out"
check "really" [ "$(bytes)" -lt $((full - 12000000)) ]
check "the rest is whole" sf "$R" verify --quiet

# What killed writers left is removed a day later, not earlier.
if [ -z "${THROUGH_S3:-}" ]; then
    for file in old young; do head -c 4000 /dev/zero >"$R/p/$file-s1111111111111111147.f.tmp.0123456789abcdef"; done
    touch -d '25 hours ago' "$R"/p/old-*.tmp.*
    find "$R" -name 'kopia.repository.f' -exec touch {} + # by whose time files have an age
    same "a dry run finds an unfinished file" "$(m --dry-run --json | result leftovers.count)" 1
    expect "a full run removes it, and says so" 0 '^Of killed writers 1 file, 3.9 KiB' -- m
    same "a younger one stays" "$(cd "$R/p" && echo *.tmp.*)" young-s1111111111111111147.f.tmp.0123456789abcdef
    rm "$R"/p/young-*
fi
check "and is restored" sf "$R" restore latest "$WORK/out" --quiet
check "as it was" cmp "$WORK/a" "$WORK/out"

# Killed anywhere, one time after the other: the next run completes it, and nothing is lost in between.
rm -rf "$R" && cp -a "$WORK/third" "$R"
for at in maintenance-begun maintenance-recorded:2 maintenance-dropped maintenance-pack-deleted; do
    expect "killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SF" -r "$R" --password-file "$WORK/password" \
        maintenance --full --node-name n1
    case $at in *dropped | *deleted) check "whole, killed at $at" sf "$R" verify --quiet ;; esac
done
check "run again after that" m --quiet
same "freed after that" "$(( $(bytes) < full - 12000000 ))" 1
check "whole after that" sf "$R" verify --quiet

# A client whose view of the index is old refers to contents that were just marked: they are stored again.
late() { # what a writer adds that has not seen the marks
    rm -rf "$WORK/other" && cp -a "$WORK/clean" "$WORK/other"
    take b v "$WORK/other"
    (cd "$WORK/other" && find . -type f -newer "$WORK/stamp" ! -name 'kopia.*') |
        while read -r f; do mkdir -p "$R/${f%/*}" && cp -an "$WORK/other/$f" "$R/$f"; done
}
rm -rf "$R" && sf "$R" repo create --quiet --node-name n1
take a v && take b v
sf "$R" snapshot delete latest --as b@h:/v --force --quiet
age 25
cp -a "$R" "$WORK/clean"
touch "$WORK/stamp"
check "marked" m --quiet
for at in "" maintenance-marking maintenance-marked; do
    if [ "$at" ]; then
        rm -rf "$R" && cp -a "$WORK/clean" "$R"
        expect "killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SF" -r "$R" --password-file \
            "$WORK/password" maintenance --full --node-name n1
    fi
    late
    check "the late snapshot is whole${at:+, $at}" sf "$R" verify --quiet
    age 25
    if [ ! "$at" ]; then
        expect "killed when they are stored again" 137 -- env SNAPFERRY_CRASH_AT=maintenance-restored "$SNAPFERRY" \
            -r "$R" --password-file "$WORK/password" maintenance --full --node-name n1
        same "they are" "$(m --json | result restored.count)" 0
    elif [ "$at" = maintenance-marking ]; then
        same "nothing was marked, $at" "$(m --json | result restored.count)" 0
    else
        # A backup stores the same at the same time: its entries are newer, those of the run all superseded.
        rm -rf "$WORK/other" && cp -a "$R" "$WORK/other"
        check "stored again, $at" [ "$(m --json | result restored.count)" -gt 0 ]
        was=$(date +%s)
        until [ "$(date +%s)" -gt "$was" ]; do sleep 0.05; done
        take b again "$WORK/other"
        cp -an "$WORK/other/." "$R"
        check "twice, which is no damage" sf "$R" verify --quiet
    fi
    # What was marked would be dropped by the second one of these.
    [ "$at" = maintenance-marking ] || for i in 2 3; do age 25 && m --quiet; done
    check "whole for good${at:+, $at}" sf "$R" verify --quiet
done
check "the late one is restored" sf "$R" restore latest --as b@h:/v "$WORK/out-b" --quiet
check "as it was, too" cmp "$WORK/b" "$WORK/out-b"

# Backups at the same time, and a second maintenance.
sf "$R" snapshot delete latest --as b@h:/v --force --quiet
for i in 1 2; do random_file "$WORK/c$i" 8000000 $((10 + i)); done
for i in 1 2; do
    age 25
    take b "w$i" & one=$!
    take "c$i" v & two=$!
    m --quiet >"$WORK/m1" 2>&1 & three=$!
    m --quiet >"$WORK/m2" 2>&1
    wait $one && wait $two && pass "backups while it runs" || fail "backups while it runs"
    wait $three
done
check "all is whole" sf "$R" verify --quiet
check "a volume of then is restored" sf "$R" restore latest --as b@h:/w2 "$WORK/out-w" --quiet
check "byte by byte" cmp "$WORK/b" "$WORK/out-w"

# Doubt: an index blob that is gone, or cannot be read, a snapshot that cannot be understood.
age 120
take a doubt
age 25
cp -a "$R" "$WORK/whole"
newest=$(find "$R"/x/n* -type f -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
mv "$newest" "$WORK/lost"
expect "an index blob is missing" 15 'nothing is removed|its index may have been lost' -- m
packs() { find "$1/p" "$1/q" -type f | wc -l; }
same "no pack was deleted" "$(packs "$R")" "$(packs "$WORK/whole")"
cp -a "$R" "$WORK/now"
age 400
expect "and is for 16 days" 15 'nothing is removed|its index may have been lost' -- m
same "no pack was deleted after 16 days" "$(packs "$R")" "$(packs "$WORK/whole")"
rm -rf "$R" && mv "$WORK/now" "$R"
mv "$WORK/lost" "$newest"
# Marks of deleted contents, which another index blob has, do not show that the blob of their backup is there.
rm -rf "$R" && cp -a "$WORK/whole" "$R"
random_file "$WORK/f" 9000000 30
take f doubt
age 25
blob=$(find "$R"/x/n* -type f -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
session=$(grep -oE 's[0-9a-f]{16,}-c1' <<<"$blob")
id=$("$TOOLS/index_entries" "$R" "$WORK/password" |
    awk -v s="${session%-c1}" '$2 ~ /^q/ && index($2, s) && $1 !~ /^m/ { print $1; exit }')
check "one of its contents is marked deleted" "$TOOLS/delete_content" "$R" "$WORK/password" "$id"
had=$(packs "$R")
rm "$blob"
expect "the index blob of the others is missing" 15 'its index may have been lost' -- m
same "no pack was deleted beside the mark" "$(packs "$R")" "$had"
rm -rf "$R" && cp -a "$WORK/whole" "$R"
# The mark of a client whose clock was wrong: all that is marked deleted would count as dropped.
for at in "$(date -d '2 days' +%s)" 9223372036854775807; do
    printf deletion-watermark >"$R/xw$at.f"
    expect "what is marked deleted until $at is dropped" 21 'that time has not come' -- m
    same "no pack was deleted for that" "$(packs "$R")" "$(packs "$WORK/whole")"
    rm "$R"/xw*.f
done
check "it is back" m --quiet
printf 'damaged' | dd of="$newest" bs=1 seek=40 conv=notrunc status=none # one byte may be what is there
rm -rf "$CACHE"
expect "an index blob is damaged" 15 'index' -- m

# A backup was killed before its index was written, and the next one comes when its packs are too old to be used.
rm -rf "$R" "$CACHE" && cp -a "$WORK/whole" "$R"
expect "killed before its index" 137 -- env SNAPFERRY_CRASH_AT=pack-renamed:2 "$SF" -r "$R" --password-file \
    "$WORK/password" backup "$WORK/c1" --as k@h:/v --quiet
id=$(find "$R/s" -name '*.f' | grep -oE 's[0-9a-f]+\.f$')
age 25
check "the next backup leaves them" take a next
check "they are no lost index" sf "$R" verify --quiet
check "and do not stop maintenance" m --quiet
age 100
check "which deletes them in the end" m --quiet
same "with their marker" "$(find "$R/p" "$R/q" "$R/s" -name "*${id:-none}" | wc -l)" 0

# Without delays: only while nobody writes.
rm -rf "$R" "$CACHE" && cp -a "$WORK/marked" "$R"
take c1 v
sf "$R" snapshot delete latest --as c1@h:/v --force --quiet
expect "with a marker" 14 'younger than 96 hours' -- env SNAPFERRY_CRASH_AT=marker-put sh -c \
    "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' backup '$WORK/c2' --as c2@h:/v --quiet
    exec env -u SNAPFERRY_CRASH_AT '$SNAPFERRY' -r '$R' --password-file '$WORK/password' maintenance --full \
        --safety=none --node-name n1"
check "the killed one is adopted" take c2 v
out=$(m --safety=none 2>&1)
check "without delays" grep -q 'safety=none: data of backups that run now' <<<"$out"
# How many packs are short, and so rewritten, depends on how many were written at a time.
check "it frees in one run" grep -qE '^Freed [1-9][0-9]*\.[0-9] MiB of' <<<"$out"
check "all that is left is whole" sf "$R" verify --quiet

# A pack that nothing needs and whose end is missing has no index of its own: it is deleted all the same.
random_file "$WORK/g" 9000000 40
take g short
cut=$(find "$R/p" -type f -newer "$WORK/g" -size +8000k -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
sf "$R" snapshot delete latest --as g@h:/short --force --quiet
truncate -s -200 "${cut:-/none}"
for i in 1 2 3; do # what is marked in a second is dropped in a later one
    m --safety=none --quiet 2>/dev/null
    was=$(date +%s)
    until [ "$(date +%s)" -gt "$was" ]; do sleep 0.05; done
done
same "a pack that is cut short is deleted" "$(find "$cut" 2>/dev/null)" ""
check "and what is left is whole" sf "$R" verify --quiet

# Times of files that somebody has set, later than 64 bits of nanoseconds can say: as late as can be, never long ago.
if [ -z "${THROUGH_S3:-}" ]; then
    cp -r "$R" "$WORK/late"
    find "$WORK/late" -type f -name '*.f' -exec touch -d 2300-01-01 {} +
    blobs=$(find "$WORK/late/p" -type f | wc -l)
    if [ "$(find "$WORK/late/p" -type f -printf '%TY\n' | sort -u)" = 2300 ]; then
        expect "files of the year 2300" 0 "" -- sf "$WORK/late" maintenance --full --node-name n1
        same "none of them is deleted as old" "$(find "$WORK/late/p" -type f | wc -l)" "$blobs"
        check "and all is whole" sf "$WORK/late" verify --quiet
    else
        skip "files of the year 2300" "this file system cannot have them"
    fi
fi

# The owner.
expect "taken over" 0 'belongs to snapferry-maintenance@n2 now' -- sf "$R" maintenance --take-ownership --node-name n2
expect "runs later" 14 'less than 30 minutes ago' -- sf "$R" maintenance --full --node-name n2
expect "not here any more" 20 'belongs to snapferry-maintenance@n2' -- m
sf "$WORK/v1" repo create --quiet --format-version 1
expect "without epochs" 13 'has no epochs' -- sf "$WORK/v1" maintenance --full --node-name n1

# One that is forgotten would be a step at which no test has killed a run.
points=$(grep -rhoE 'crash_point\("maintenance-[a-z-]+"\)' repo daemon --include=*.c | grep -oE 'maintenance-[a-z-]+' |
    sort -u)
check "there are crash points" [ "$(wc -w <<<"$points")" -ge 10 ]
for p in $points; do
    check "killed at $p by one of these scripts" sh -c "grep -hv '^ *#' tests/*/maintenance*.sh |
        grep -E 'CRASH_AT=|for at in' | grep -qwF -- $p"
done
finish
