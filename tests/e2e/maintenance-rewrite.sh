#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What is needed in packs that are nearly empty is stored again, together, and the old packs are deleted by a later run
# (CF-40, CF-42): not within the hour in which others may still read there, whatever the run is killed at; what cannot
# be read is left and named, and keeps nothing else from being done.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
[ -z "${THROUGH_S3:-}" ] || through_s3
R=$WORK/repo
m() { sf "$R" maintenance --full --node-name n1 "$@"; }
age() { "$TOOLS/age_repository" "$R" "$WORK/password" "$1"; }
packs() { find "$R/p" -type f | sort; }
bytes() { find "$R/p" "$R/q" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
take() { sf "$R" backup "$WORK/$1" --as "$1@h:/v" --quiet; }
entries() { "$TOOLS/index_entries" "$R" "$WORK/password"; }
sf "$R" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 10MiB
for v in a b c; do random_file "$WORK/$v" 2500000 $((RANDOM + 1)) && take $v; done
same "a pack for each backup" "$(packs | wc -l)" 3
same "contents younger than two hours stay" "$(m --json | result rewrittenPacks)" 0
age 3
first=$(packs)
before=$(entries | awk '$1 !~ /^[a-z]/ { print $1 }' | sort)
same "what would be done" "$(m --dry-run --json | tail -n 1 | jq -c '[.rewritten.count > 60, .rewrittenPacks > 3]')" \
    '[true,true]'
cp -a "$R" "$WORK/short"

# Killed: nothing of it counts, or all that is in the index does. Either way the old packs stay for an hour.
for at in maintenance-rewriting maintenance-rewritten; do
    expect "killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SF" -r "$R" --password-file "$WORK/password" \
        maintenance --full --node-name n1
    check "whole, killed at $at" sf "$R" verify --quiet
    [ $at = maintenance-rewritten ] || age 25
done
m --quiet
same "the old packs are kept for those who read there" "$(comm -23 <(echo "$first") <(packs) | wc -l)" 0
age 3
m --quiet
same "hours later they are deleted" "$(comm -12 <(echo "$first") <(packs) | wc -l)" 0
check "whole without them" sf "$R" verify --quiet

rm -rf "$R" && cp -a "$WORK/short" "$R"
out=$(m)
check "rewritten" grep -qE '^Rewritten +7\.2 MiB in [0-9]+ contents of [0-9]+ short packs' <<<"$out"
same "in one pack more" "$(packs | wc -l)" 4
same "the same contents" "$(entries | awk '$1 !~ /^[a-z]/ { print $1 }' | sort)" "$before"
same "all of them there" "$(entries | awk '$1 !~ /^[a-z]/ { print $2 }' | sort -u | wc -l)" 1
full=$(bytes)
same "at once again: nothing is rewritten or deleted" \
    "$(m --json | tail -n 1 | jq -c '[.rewrittenPacks, .deletedPacks.count]')" '[0,0]'
age 25
check "the next run deletes" m --quiet
check "the old packs" [ "$(bytes)" -lt $((full - 7000000)) ]
same "the new one stays as it is" "$(m --json | result rewrittenPacks)$(packs | wc -l)" 01
for v in a b c; do
    check "$v is restored" sf "$R" restore latest --as "$v@h:/v" "$WORK/out" --force --quiet
    check "$v as it was" cmp "$WORK/$v" "$WORK/out"
    rm -f "$WORK/out"
done

# The index blob of such a run is lost, and the old packs are gone: the new one contains all that is left, however old.
rm -rf "$R" && cp -a "$WORK/short" "$R"
index() { find "$R"/x -type f -printf '%T@ %p\n' | sort -n | cut -d' ' -f2; }
known=$(index | wc -l)
m --quiet
mkdir "$WORK/lost"
lost=$(index | tail -n +$((known + 1)))
mv $lost "$WORK/lost/"
rm -f $first
age 400
sleep 1.1 # what it stores again is newer than what is lost, whose times are in seconds
out=$(m 2>&1)
check "a pack that no index has, of contents whose pack is missing, is kept" [ "$(packs | wc -l)" = 1 ]
check "and named" grep -q "pack p.* is kept: no index has it, but it contains what snapshots need" <<<"$out"
mv "$WORK"/lost/* "$(dirname "$(head -n 1 <<<"$lost")")/"
check "with its index all is whole" sf "$R" verify --quiet
rm -rf "$R" "$CACHE"
sf "$R" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 10MiB

# What is left of a full pack gives its room back, although other contents in it were only marked deleted for a time.
random_file "$WORK/d" 9000000 77
take d
openssl rand 7600000 | dd of="$WORK/d" bs=1M conv=notrunc status=none
old=$(sf "$R" snapshot list --json | tail -n 1 | jq -r '.snapshots[] | select(.source.userName == "d") | .id')
take d
sf "$R" snapshot delete "$old" --quiet
for _ in 1 2 3 4 5 6; do age 25 && m --quiet; done
needed=$(entries | awk '$6 == "live" { s += $4 } END { print s }')
check "of $(bytes) bytes $needed are needed" [ "$(bytes)" -lt $((needed + 500000)) ]
check "it is restored" sf "$R" restore latest --as d@h:/v "$WORK/out" --quiet
check "as it was" cmp "$WORK/d" "$WORK/out"

# A damaged content: left, named, and all else is done.
rm -rf "$R" && cp -a "$WORK/short" "$R"
read -r id pack end _ < <(entries | awk '$1 !~ /^[a-z]/ && $4 > 100000 { print $1, $2, $3; exit }')
f=$R/${pack:0:1}/${pack:1:3}/${pack:4}.f
touch -r "$f" "$WORK/time"
printf 'damage' | dd of="$f" bs=1 seek=$((end - 5000)) conv=notrunc status=none
touch -r "$WORK/time" "$f"
expect "a content is damaged" 15 "cannot move a content .*$id.*1 content of short packs cannot be read" -- sh -c \
    "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' maintenance --full --node-name n1 2>&1 | tr '\n' ' '; \
     exit \${PIPESTATUS:-15}"
same "the others were rewritten" "$(entries | grep -v '^[a-z]' | awk -v p="$pack" '$2 == p' | wc -l)" 1
age 25
expect "the next run" 15 'cannot be read; all else was done' -- m
same "deletes what has become empty, and keeps that pack" \
    "$(comm -12 <(echo "$first") <(packs))" "$f"

# A needed content that another client marked deleted, and that is damaged, so that it cannot be stored again: it is not
# dropped, and if it was, its pack stays; all else is done. Once it can be read again it is stored again.
rm -rf "$R"
sf "$R" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 10MiB
random_file "$WORK/e" 200000 5
random_file "$WORK/h" 200000 6
take e
read -r id pack end < <(entries | awk '$4 > 130000 { print $1, $2, $3 }')
take h # two packs, so that all else in the first one is moved
f=$R/${pack:0:1}/${pack:1:3}/${pack:4}.f
age 30
cp -p "$f" "$WORK/good"
check "marked deleted although needed" "$TOOLS/delete_content" "$R" "$WORK/password" "$id"
printf 'damage' | dd of="$f" bs=1 seek=$((end - 5000)) conv=notrunc status=none
touch -r "$WORK/good" "$f"
for i in 1 2 3; do
    expect "damaged, run $i" 15 "cannot store a deleted content again" -- m
    age 30
done
same "it was not dropped" "$(entries | awk -v id="$id" '$1 == id { print $6 }')" deleted
printf deletion-watermark >"$R/xw$(date +%s).f"
same "dropped by another client" "$(entries | awk -v id="$id" '$1 == id { print $6 }')" dropped
age 30
expect "the run after that" 15 "cannot store a deleted content again" -- m
same "its pack is still there" "$(ls "$f")" "$f"
cp -p "$WORK/good" "$f"
same "it can be read again, and is stored again" "$(m --json | result restored.count)" 1
check "whole" sf "$R" verify --quiet
check "e is restored" sf "$R" restore latest --as e@h:/v "$WORK/e.out" --quiet
check "e as it was" cmp "$WORK/e" "$WORK/e.out"
finish
