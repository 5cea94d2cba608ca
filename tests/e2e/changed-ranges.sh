#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# backup --changed-ranges: only what changed is read, and the snapshot is that of a full read (CF-09, CF-13, CF-14).
. tests/lib.sh
R=$WORK/repo
sf "$R" repo create --splitter DYNAMIC-128K-BUZHASH --quiet
random_file "$WORK/image" $((64 << 20)) 1
backup() { sf "$R" backup "$1" --as t@h:/volume --json --quiet "${@:2}"; }
first=$(backup "$WORK/image" | result snapshot)

# 20 pages of 4 KiB change.
for i in $(seq 1 20); do
    random_file "$WORK/page" 4096 $((100 + i))
    dd if="$WORK/page" of="$WORK/image" bs=4096 seek=$((i * 700)) conv=notrunc status=none
    echo "$((i * 700 * 4096)) 4096"
done >"$WORK/ranges"
out=$(backup "$WORK/image" --changed-ranges "$WORK/ranges" --parent "$first")
same "the parent was used" "$(result incremental <<<"$out") $(result parent <<<"$out")" "true $first"
same "the changed bytes are counted" "$(result changedBytes <<<"$out")" $((20 * 4096))
check "less than a quarter is read" test "$(result readBytes <<<"$out")" -lt $((16 << 20))
check "the rest is taken over" test "$(result clonedBytes <<<"$out")" -gt $((48 << 20))
second=$(result snapshot <<<"$out")
full=$(sf "$R" backup "$WORK/image" --as t@h:/full --no-parent --json --quiet)
same "the object is that of a full read" "$(result object <<<"$out")" "$(result object <<<"$full")"
check "it verifies" sf "$R" verify "$second" --quiet
check "it is restored" sf "$R" restore "$second" "$WORK/restored" --quiet
check "bit for bit" cmp "$WORK/restored" "$WORK/image"
same "volume.json has what was taken over" "$(sf "$R" cat "$second/volume.json" | jq .coverage.cloned)" \
    "$(result clonedBytes <<<"$out")"

expect "people read how much was read and what is unchanged" 0 "MiB read, .*unchanged since snapshot $second" -- \
    sf "$R" backup "$WORK/image" --as t@h:/volume --changed-ranges "$WORK/ranges" --parent "$second"

# Nothing changed.
: >"$WORK/none"
out=$(backup "$WORK/image" --changed-ranges "$WORK/none" --parent "$second" --verify-sample 0)
same "nothing changed: nothing is read" "$(result readBytes <<<"$out")" 0
same "and the object is the parent's" "$(result object <<<"$out")" "$(result object <<<"$full")"
third=$(result snapshot <<<"$out")

# A list that omits a change.
printf x | dd of="$WORK/image" bs=1 seek=$((30 << 20)) conv=notrunc status=none
# Positions are random: all of them may miss one chunk of 400, once in three runs.
for i in $(seq 1 20); do
    out=$(backup "$WORK/image" --changed-ranges "$WORK/none" --parent "$third" --verify-sample 100 \
        2>"$WORK/warning")
    [ "$(result incremental <<<"$out")" = true ] || break
done
same "a list that omits a change is found: everything is read" "$(result incremental <<<"$out")" false
check "with a reason" grep -q "not in the list of changes" <<<"$(result fallbackReason <<<"$out")"
check "and a warning" grep -q "the whole volume is read" "$WORK/warning"
check "the snapshot is right" sf "$R" restore "$(result snapshot <<<"$out")" "$WORK/restored" \
    --differential --force --quiet
check "bit for bit" cmp "$WORK/restored" "$WORK/image"

# A parent that cannot be used: everything is read, with the reason.
expect "another splitter" 0 "Read fully: .*was split by DYNAMIC-128K-BUZHASH" -- sf "$R" backup "$WORK/image" \
    --as t@h:/volume --changed-ranges "$WORK/none" --parent "$third" --splitter FIXED-128K
expect "a snapshot of another source" 0 "Read fully: snapshot .* is not of t@h:/volume" -- sf "$R" backup \
    "$WORK/image" --as t@h:/volume --changed-ranges "$WORK/none" --parent "$(result snapshot <<<"$full")"

# Bad input: an error, and no snapshot.
before=$(sf "$R" snapshot list --all --json | result 'snapshots | length')
echo "4096" >"$WORK/bad"
expect "a malformed list: file and line" 2 "bad:1: not a changed range" -- \
    sf "$R" backup "$WORK/image" --as t@h:/volume --changed-ranges "$WORK/bad" --parent "$third"
expect "no list" 16 "cannot open the list of changed ranges" -- \
    sf "$R" backup "$WORK/image" --as t@h:/volume --changed-ranges "$WORK/missing" --parent "$third"
expect "--changed-ranges without --parent" 2 "require each other" -- \
    sf "$R" backup "$WORK/image" --as t@h:/volume --changed-ranges "$WORK/none"
expect "--parent latest: which one that is may change" 2 "id of the snapshot" -- \
    sf "$R" backup "$WORK/image" --as t@h:/volume --changed-ranges "$WORK/none" --parent latest
expect "with --no-parent" 2 "mutually exclusive" -- \
    sf "$R" backup "$WORK/image" --as t@h:/volume --changed-ranges "$WORK/none" --parent "$third" --no-parent
same "none of them made a snapshot" "$(sf "$R" snapshot list --all --json | result 'snapshots | length')" "$before"

# A block device that has grown: what is new is read although it is in no list.
if is_root; then
    truncate -s 32M "$WORK/disk"
    random_file "$WORK/page" $((20 << 20)) 7
    dd if="$WORK/page" of="$WORK/disk" bs=1M seek=4 conv=notrunc status=none
    dev=$(loop_device "$WORK/disk"); at_exit "losetup -d $dev"
    grown=$(sf "$R" backup "$dev" --as t@h:/disk --json --quiet | result snapshot)
    random_file "$WORK/page" $((5 << 20)) 8
    cat "$WORK/page" >>"$WORK/disk"
    losetup -c "$dev"
    out=$(sf "$R" backup "$dev" --as t@h:/disk --json --quiet --changed-ranges "$WORK/none" --parent "$grown")
    same "a device that has grown: incremental" "$(result incremental <<<"$out")" true
    same "the same as a full read" "$(result object <<<"$out")" \
        "$(sf "$R" backup "$dev" --as t@h:/disk2 --no-parent --json --quiet | result object)"
else
    skip "a device that has grown" "needs root"
fi
finish
