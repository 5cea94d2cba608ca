#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A result is a failed operation and a removed file, never the end of the daemon: 62 MiB found at the start, one that
# has ended each daemon that read it, and lists without end.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
image "$WORK/xfs/a.img" 2 1
daemon_setup 'retries = 0'
config_class xfs "$WORK/xfs"
starts "the daemon starts"
result_file() { printf '%s/results/%s.json' "$STATE" "$(printf %s "$1" | sha256sum | cut -c1-32)"; }

running "$WORK/xfs/a.img"
daemon_kill
file=$(result_file "$O")
check "its result file is there" test -f "$file"
kill -KILL "$PID"
{
    printf '{"operation":"%s","kind":"backup","code":0,"pid":%d,"snapshotID":"%032d","x":[0' "$O" "$PID" 1
    head -c 62M /dev/zero | sed 's/\x0/,0/g' | head -c 62M
    printf ']}'
} >"$file"
check "62 MiB" test "$(stat -c %s "$file")" -gt 62000000
starts "the daemon starts although a mover left 62 MiB"
same "the backup has failed" "$(wait_state "$A" 'Failed|PartiallyFailed' 40)" Failed
check "its error has the size of the result" grep -q 'unreadable: size of 6[0-9]* bytes' \
    <<<"$(doc "$O" | jq -r .error.message)"
check "the file is gone" test ! -e "$file"
check "the daemon lives" daemon_alive

running "$WORK/xfs/a.img"
daemon_kill
kill -KILL "$PID"
sqlite3 "$STATE/records.db" "UPDATE operations SET doc = json_set(doc, '\$.adoptions', 20) WHERE id = '$O'"
left=$(result_file ended-before) # of a daemon that was killed when it had recorded the end
cp "$(result_file "$O")" "$left"
starts "the daemon starts although twenty before it ended at this operation"
same "which has failed" "$(wait_state "$A" 'Failed|PartiallyFailed' 40)" Failed
check "with the reason" grep -q '20 times in a row' <<<"$(doc "$O" | jq -r .error.message)"
check "and its file is gone" test ! -e "$(result_file "$O")"
check "so is the file of an operation that is not there" until_true 20 test ! -e "$left"

# 1 MiB of it is no failure of the daemon, whatever is in it: it is parsed beside the loop, within bounds.
running "$WORK/xfs/a.img"
daemon_kill
file=$(result_file "$O")
kill -KILL "$PID"
{
    printf '{"operation":"%s","kind":"backup","code":0,"pid":%d,"snapshotID":"%032d","x":[[]' "$O" "$PID" 1
    for ((i = 0; i < 300; i++)); do printf ',[]%.0s' {1..1000}; done
    printf ']}'
} >"$file"
check "less than 1 MiB, and 300,000 lists" test "$(stat -c %s "$file")" -lt 1048576
starts "the daemon starts over it"
check "and answers" ask status
same "the backup has failed" "$(wait_state "$A" 'Failed|PartiallyFailed' 40)" Failed
check "its error says why it was refused" grep -q 'more than 131072 values' <<<"$(doc "$O" | jq -r .error.message)"
check "the file is gone" test ! -e "$file"

# A daemon that lives with it forgets how often it was taken over.
running "$WORK/xfs/a.img"
daemon_kill
starts "the daemon starts over a mover that lives"
same "taken over once" "$(sql "SELECT json_extract(doc, '\$.adoptions') FROM operations WHERE id = '$O'")" 1
kill -CONT "$PID"
same "and it completes" "$(wait_state "$A" Completed 40)" Completed
clean "nothing is left behind" 8 "$WORK/xfs"
explain_failure
finish
