#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A file of the cache that is mapped is truncated meanwhile (as it is unreadable when its disk fails): the command ends
# with a message that names it, a mover's operation is tried again, and the next one finds the cache as it must be.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "restores by the daemon"
fs_make xfs xfs
random_file "$WORK/xfs/v.img" $((72 * MIB)) 81
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup || { fail "setup"; finish; }
config_class images "$WORK/xfs" 'write-limit = 3MiB' 'retries = 5' 'splitter = DYNAMIC-128K-BUZHASH'
starts "the daemon starts"
A=$(submit "$WORK/xfs/v.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed

# A restore looks up what is behind its second position, at 40 MiB, when what is before its first one, at 8 MiB, has
# been written: at that rate there are seconds in between.

# cut PID FILE: once the process has written to the file, its mapped index is truncated. Fails if it ended before.
cut() {
    file=$2
    until_true 30 eval '[ "$(stat -c %b "$file" 2>/dev/null || echo 0)" -gt 0 ]' || return
    kill -STOP "$1" || return
    local mapped
    mapped=$(sed -n "s,.* \\($CACHE/.*/indexes/[^ ]*\\)$,\\1,p" "/proc/$1/maps" | sort -u)
    # shellcheck disable=SC2086
    ls -S $mapped | head -n 1 >"$WORK/cut"
    : >"$(cat "$WORK/cut")"
    kill -CONT "$1"
}
"$SNAPFERRY" -r "$REPO" --password-file "$WORK/password" restore latest "$WORK/out" --quiet --write-limit 3MiB \
    2>"$WORK/err" &
pid=$!
check "the index of a restore is truncated" cut $pid "$WORK/out"
wait $pid 2>/dev/null
same "exit code, not a signal" $? 1
check "it says what happened, and to which file" grep -qF \
    "a mapped file of the cache directory cannot be read any more: it was truncated, or its disk failed: $(cat \
        "$WORK/cut")" "$WORK/err"
expect "the same command goes on, with a checked cache" 0 'is damaged .*: discarded' -- \
    sf "$REPO" restore latest "$WORK/out" --resume
check "with the right bytes" cmp "$WORK/v.orig" "$WORK/out"

R=$(askj restore "$A/$WORK/xfs/v.img" "$WORK/xfs/new.img" --from repository | jq -r '.restore // empty')
O=$(op_id "$R")
until_true 30 eval 'PID=$(sql "SELECT json_extract(doc, '"'$.identity.pid'"') FROM operations WHERE id = '"'$O'"' AND
    state = '"'Running'"'") && [ -n "$PID" ]'
until_true 30 eval 'F=$(readlink /proc/"$PID"/fd/* 2>/dev/null | grep -m 1 "/new.img.snapferry-")'
check "the index of a mover is truncated" cut "$PID" "$F"
same "it is tried again, Completed" "$(wait_state "$R" Completed 60)" Completed
check "with equal bytes" cmp "$WORK/v.orig" "$WORK/xfs/new.img"
check "the log names signal and cause" grep -q 'killed by signal 7.*' "$LOG"
check "and the mover's own words the file" grep -rqF "it was truncated, or its disk failed: $(cat "$WORK/cut")" \
    "$LOG" "$STATE"
stops "the daemon stops"
finish
