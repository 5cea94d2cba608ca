#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `repo sync-to`: a second place with the same repository, brought up to date, interrupted at any point, refused where
# it would mix repositories.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo C=$WORK/copy
sf "$R" repo create --node-name n1 --quiet
random_file "$WORK/a" 30000000 1
random_file "$WORK/b" 25000000 2
sf "$R" backup "$WORK/a" --as t@h:/a --quiet
sync() { sf "$R" repo sync-to "$@" --json | tail -n 1; }
same "a dry run says how much" "$(sync "$C" --dry-run | jq '.copied.bytes > 30000000 and .dryRun')" true
check "and makes nothing" test ! -e "$C"
out=$(sync "$C" --verify)
same "all is copied" "$(jq '.copied.bytes > 30000000 and .present.count == 0 and .verified' <<<"$out")" true
check "the copy is whole" sf "$C" verify --quiet
sf "$C" restore latest "$WORK/out" --as t@h:/a --quiet
check "and restores" cmp "$WORK/a" "$WORK/out"
same "the same again copies nothing" "$(sync "$C" | jq -c '[.copied.count, .copied.bytes]')" "[0,0]"

# More of it, and a change of the password.
sf "$R" backup "$WORK/b" --as t@h:/b --quiet
out=$(sync "$C")
same "only what is new is copied" "$(jq '.copied.bytes > 25000000 and .copied.bytes < 27000000' <<<"$out")" true
rm -f "$WORK/out"
sf "$C" restore latest "$WORK/out" --as t@h:/b --quiet
check "the new one restores" cmp "$WORK/b" "$WORK/out"
echo other >"$WORK/other"
chmod 600 "$WORK/other"
check "another password" sf "$R" repo change-password --new-password-file "$WORK/other" --quiet
check "goes along" "$SNAPFERRY" -r "$R" --password-file "$WORK/other" repo sync-to "$C" --quiet
expect "with the old one it cannot be read" 10 password -- sf "$C" snapshot list
check "with the new one it can" "$SNAPFERRY" -r "$C" --password-file "$WORK/other" snapshot list --quiet
check "and back" "$SNAPFERRY" -r "$R" --password-file "$WORK/other" repo change-password \
    --new-password-file "$WORK/password" --quiet
check "in the copy, too" sf "$R" repo sync-to "$C" --quiet

# What the original deletes stays; what is damaged there is copied again where its length differs.
packs() { find "$1/p" -name '*.f' -size +1M 2>/dev/null; }
pack=$(packs "$C" | head -n 1)
truncate -s 1000 "$pack"
same "a cut one is copied again" "$(sync "$C" | jq .copied.count)" 1
check "and is whole" sf "$C" verify --quiet
# What somebody has overwritten in the original does not replace what the copy has, whatever its length.
cp -a "$R" "$WORK/kept"
changed=$(packs "$R" | head -n 1)
random_file "$changed" 4000 9
expect "a pack that was overwritten in the original" 15 'changed after the copy was made.*keeps its own' -- \
    sf "$R" repo sync-to "$C"
check "the copy is whole" sf "$C" verify --quiet
rm -rf "$R" && cp -a "$WORK/kept" "$R"
find "$R/p" "$R/q" "$R/x" -name '*.f' | while read -r f; do random_file "$f" $((RANDOM + 100)) 7; done
expect "all of them, and indexes" 15 . -- sf "$R" repo sync-to "$C"
for f in "$R"/kopia.*; do random_file "$f" 500 8; done
expect "and the format" 15 . -- sf "$R" repo sync-to "$C"
check "the copy is whole, still" sf "$C" verify --quiet
rm -f "$WORK/out"
sf "$C" restore latest "$WORK/out" --as t@h:/b --quiet
check "and all comes back from it" cmp "$WORK/b" "$WORK/out"
rm -rf "$R" && mv "$WORK/kept" "$R"
check "nothing is left to do with the original as it was" sf "$R" repo sync-to "$C" --quiet
cp -a "$R" "$WORK/kept"
packs "$R" | xargs rm
out=$(sync "$C")
same "what was deleted is kept in the copy" "$(jq '.surplus.bytes > 50000000' <<<"$out")" true
check "from which all can be restored" sf "$C" verify --quiet
rm -rf "$R" && mv "$WORK/kept" "$R"

# Interrupted: the next run goes on.
rm -rf "$C"
"$SNAPFERRY" -r "$R" --password-file "$WORK/password" repo sync-to "$C" --write-limit 5MiB --quiet &
for _ in $(seq 600); do
    [ "$(packs "$C" | wc -l)" = 0 ] || break
    sleep 0.1
done
check "it had begun" test "$(packs "$C" | wc -l)" -gt 0
kill -KILL %1
wait %1 2>/dev/null
check "killed in the middle it has no format, and is no repository" test -z "$(find "$C" -name 'kopia.repository*')"
check "the next run completes it" sf "$R" repo sync-to "$C" --quiet
check "nothing of the killed one counts" sf "$C" verify --quiet

# What a killed one leaves of the blobs it was writing is removed by a later run, by the rule of expire.
unfinished() { find "$C" -name '*.tmp.*'; }
random_file "$WORK/e" 60000000 5
sf "$R" backup "$WORK/e" --as t@h:/e --quiet
for n in 1 2 3; do
    "$SNAPFERRY" -r "$R" --password-file "$WORK/password" repo sync-to "$C" --write-limit 4MiB --quiet &
    for _ in $(seq 600); do
        [ "$(unfinished | wc -l)" -lt "$n" ] || break
        sleep 0.1
    done
    kill -KILL %1
    wait %1 2>/dev/null
done
left=$(unfinished | wc -l)
check "killed ones leave unfinished files" test "$left" -ge 3
check "a run leaves them while they are young" sf "$R" repo sync-to "$C" --quiet
same "they may be of a client elsewhere" "$(unfinished | wc -l)" "$left"
unfinished | xargs touch -d '-25 hours'
expect "a dry run counts the old ones" 0 "^$left unfinished files of killed writers would be removed" -- \
    sf "$R" repo sync-to "$C" --dry-run
same "and leaves them" "$(unfinished | wc -l)" "$left"
out=$(sync "$C")
same "the next run removes them" "$(jq .leftovers.count <<<"$out")" "$left"
same "none is left" "$(unfinished)" ""
check "the copy is whole without them" sf "$C" verify --quiet

# One process writes to a copy at a time; what a killed one leaves does not stand in the way.
locks() { find "$C" -name '*copy-lock*'; }
random_file "$WORK/d" 12000000 4
sf "$R" backup "$WORK/d" --as t@h:/d --quiet
"$SNAPFERRY" -r "$R" --password-file "$WORK/password" repo sync-to "$C" --write-limit 1MiB --quiet &
for _ in $(seq 600); do
    [ -z "$(locks)" ] || break
    sleep 0.1
done
same "it puts a lock" "$(locks | wc -l)" 1
lock=$(locks)
expect "another one gives way" 14 "is being written by $(hostname), process" -- sf "$R" repo sync-to "$C"
same "and leaves none" "$(locks | wc -l)" 1
kill -KILL %1
wait %1 2>/dev/null
same "the killed one leaves its lock" "$(locks | wc -l)" 1
check "which is void: its process is dead" sf "$R" repo sync-to "$C" --quiet
same "none is left" "$(locks)" ""
check "the copy is whole" sf "$C" verify --quiet
rm -f "$WORK/out"
sf "$C" restore latest "$WORK/out" --as t@h:/d --quiet
check "and has the last backup" cmp "$WORK/d" "$WORK/out"
other=${lock%.????????????????.f}.0123456789abcdef.f
printf 'host elsewhere\nboot b\nnamespace 1\nprocess 1\n' >"$other"
expect "one of another machine counts" 14 'written by elsewhere' -- sf "$R" repo sync-to "$C"
printf 'something newer' >"$other"
expect "one that is not understood, too" 14 'written by another host' -- sf "$R" repo sync-to "$C"
touch -d '-31 minutes' "$other"
check "for half an hour" sf "$R" repo sync-to "$C" --quiet
same "and is removed then" "$(locks)" ""
rm -rf "$WORK/two"
for _ in 1 2 3 4; do
    "$SNAPFERRY" -r "$R" --password-file "$WORK/password" repo sync-to "$WORK/two" --quiet 2>>"$WORK/two.err" &
done
wait
same "of several at the same time none disturbs another" \
    "$(grep -vE 'is being written|wait for its end|is making the copy' "$WORK/two.err")" ""
strace -f -e trace=write -o "$WORK/trace" "$SNAPFERRY" -r "$WORK/none" --password-file "$WORK/password" snapshot list \
    2>/dev/null
same "an error and its hint are written at once, into a log that others write to" \
    "$(grep -c 'write(2, ' "$WORK/trace")" 1
check "the next one has what they have left to do" sf "$R" repo sync-to "$WORK/two" --quiet
check "and the copy is whole" sf "$WORK/two" verify --quiet
blobs_of() { (cd "$1" && find . -name '*.f' ! -name '*.copy.f' -exec sha256sum {} + | sort -k 2); }
same "it is the other, blob for blob" "$(blobs_of "$WORK/two")" "$(blobs_of "$C")"

# A copy is not maintained, until it takes the place of a lost original.
m() { sf "$C" maintenance --node-name n1 "$@"; }
expect "a copy is not maintained" 13 'is a copy of another one' -- m --full --quiet
check "but looked at" m --full --dry-run --quiet
cp -a "$C" "$WORK/c2"
check "it takes the place of the original" m --take-ownership --quiet
check "and is maintained" m --full --quiet
expect "and not copied to any more" 12 'not as a copy' -- sf "$R" repo sync-to "$C"
rm -rf "$C" && mv "$WORK/c2" "$C"

# Refusals.
expect "into itself" 2 'one is in the other' -- sf "$R" repo sync-to "$R/sub"
expect "onto itself" 2 'one is in the other' -- sf "$R" repo sync-to "$R"
mkdir "$WORK/files" && echo x >"$WORK/files/x.f"
expect "where files are" 12 'not empty' -- sf "$R" repo sync-to "$WORK/files"
sf "$WORK/r2" repo create --quiet
expect "where another repository is" 12 'another repository' -- sf "$R" repo sync-to "$WORK/r2"
cp -a "$R" "$WORK/twin"
expect "where the same is, which is no copy" 12 'not as a copy' -- sf "$R" repo sync-to "$WORK/twin"
expect "where a copy of another one is" 12 'another repository' -- sf "$WORK/r2" repo sync-to "$C"
mark=$(find "$C" -name '*.copy.f')
cp -a "$mark" "$WORK/mark"
for bad in "" junk "copy of repository zz" "$(head -c 5000 /dev/zero | tr '\0' x)"; do
    printf %s "$bad" >"$mark"
    expect "a mark of ${#bad} bytes that says nothing" 15 'of a copy|copy of|more than the expected' -- \
        sf "$R" repo sync-to "$C"
done
cp -a "$WORK/mark" "$mark"
sf "$C" backup "$WORK/other" --as t@h:/other --quiet
expect "a copy that was written to has diverged" 12 'has diverged' -- sf "$R" repo sync-to "$C"
check "and stays as it is" sf "$C" verify --quiet
sf "$WORK/v1" repo create --format-version 1 --quiet
expect "without epochs" 13 'no epochs' -- sf "$WORK/v1" repo sync-to "$WORK/c1"
finish
