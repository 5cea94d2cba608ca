#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The process that writes the records is killed, at named points and at any moment: rows are before or after, never
# between, and an intent is never lost (E-04). One writer at a time (MS-11).
. "$(dirname "$0")/../lib.sh"
R=$TOOLS/records
# rows DIR: how many are there, checked for halves.
rows() { "$R" "$1" check 2>&1; }

for how in write beside; do
    in=; [ $how = beside ] && in=" in a thread"
    for point in records-commit records-committed; do
        for n in 1 2 7; do
            S=$WORK/$point-$n-$how
            done_rows=$(SNAPFERRY_CRASH_AT=$point:$n "$R" "$S" $how 0 10 2>/dev/null | wc -l)
            want=$((n - 1)); [ $point = records-committed ] && want=$n
            same "$point:$n$in: told $((n - 1)), found $want" "$done_rows $(rows "$S")" "$((n - 1)) $want rows"
        done
    done
done
S=$WORK/created
(SNAPFERRY_CRASH_AT=records-created "$R" "$S" check) >/dev/null 2>&1
same "killed while it was created" "$(rows "$S")" "0 rows, created"

S=$WORK/random told=0 bad=
for i in $(seq 8); do
    : >"$WORK/told" # or a life that ended before it began would be told the rows of the one before
    how=write; [ $((i % 2)) = 0 ] && how=beside
    "$R" "$S" $how $((i * 100000)) 100000 >"$WORK/told" 2>/dev/null &
    pid=$!
    sleep 0.$((RANDOM % 20 + 5))
    kill -9 $pid; wait $pid 2>/dev/null
    before=$told told=$((told + $(grep -cE '^[0-9]+$' "$WORK/told")))
    found=$(rows "$S"); n=${found%% *}
    # The last one may be durable without having been told.
    # Killed before it had begun anything: the next one begins.
    [ "$found $told" != "0 rows, created 0" ] || found="0 rows"
    if ! [[ $found =~ ^[0-9]+\ rows$ ]] || [ "$n" -lt $told ] || [ "$n" -gt $((told + 1)) ]; then
        bad="$bad $i: $before+ $told $found;"
    fi
    told=$n
done
same "killed at any moment, $told rows in eight lives" "$bad" ""

# Reading does not disturb, and needs no writer's leave. A reader copies the records, which a writer that rewrites them
# all the time faster than they can be read would never allow (14: it says so): this one does some hundred transactions
# a second.
"$R" "$WORK/beside" write 0 100000 2 >"$WORK/told" 2>/dev/null &
pid=$!
for i in $(seq 200); do [ -s "$WORK/told" ] && break; sleep 0.05; done
worst=0 grown=0
for i in 1 2 3 4 5 6; do
    out=$("$R" "$WORK/beside" peek 2>&1); rc=$?
    [ $rc -le $worst ] || worst=$rc
    grown="$grown ${out%% *}"
    sleep 0.1
done
kill -9 $pid; wait $pid 2>/dev/null
same "a reader beside the writer sees whole transactions ($grown)" $worst 0
expect "and after it was killed" 0 ' rows' -- "$R" "$WORK/beside" peek
rm -rf "$WORK/beside"

"$R" "$S" hold 60 >"$WORK/held" &
pid=$!
for i in $(seq 100); do grep -q held "$WORK/held" && break; sleep 0.05; done
expect "14: a second writer is refused" 14 "held by another process, number $pid" -- "$R" "$S" check
expect "a reader is not" 0 ' rows' -- "$R" "$S" peek
kill -9 $pid; wait $pid 2>/dev/null
expect "the lock dies with its process" 0 ' rows' -- "$R" "$S" check

# Damage, and death in the middle of its repair: the damaged database is set aside, a new one is empty.
cp "$S/records.db" "$WORK/whole.db"
for point in records-new records-rebuilt records-log-aside records-aside records-swapped; do
    rm -rf "$S"/*; cp "$WORK/whole.db" "$S/records.db"
    pages=$(($(stat -c %s "$S/records.db") / 4096))
    printf '\xff\xff\xff\xff' | dd of="$S/records.db" bs=1 seek=$((pages / 2 * 4096)) conv=notrunc status=none
    (SNAPFERRY_CRASH_AT=$point "$R" "$S" check) >/dev/null 2>&1
    same "killed at $point" $? 137
    news=", recovered"; [ $point = records-swapped ] && news= # it was done
    same "what opens next is whole" "$(rows "$S" | tail -1)" "0 rows$news"
    check "the damaged one is kept, nothing else" \
        sh -c "[ \$(ls '$S' | grep -c 'corrupt-[0-9T-]*\$') = 1 ] && ! ls '$S' | grep -qE 'new|rebuilt'"
done
finish
