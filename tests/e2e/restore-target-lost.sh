#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a restore by the daemon writes into is removed, renamed, truncated or replaced meanwhile; or what it is to become
# appears, goes or becomes something else. It ends, by itself, in an error that says what happened and in which state
# the target is, and leaves alone what is not its own.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "restores by the daemon"
fs_make xfs xfs
fs_make ext ext4 100
random_file "$WORK/xfs/v.img" $((4 * MIB)) 61
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup || { fail "setup"; finish; }
config_class images "$WORK/xfs" 'write-limit = 3MiB'
config_class slow "$WORK/ext"
starts "the daemon starts"
A=$(submit "$WORK/xfs/v.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed

running_pid() {
    sql "SELECT json_extract(doc, '$.identity.pid') FROM operations WHERE id = '$O' AND state = 'Running'" 2>/dev/null
}
# begin [OPTION...]: a restore to $T, which has "precious" as contents unless it is to be new, whose mover stands still
# in the middle. Sets R, O, PID and F, the file that is written.
begin() {
    local try
    for try in 1 2 3 4 5; do
        rm -rf "$T"
        [ $# = 0 ] || echo precious >"$T"
        R=$(askj restore "$A/$WORK/xfs/v.img" "$T" "$@" --from repository | jq -r '.restore // empty')
        O=$(op_id "$R")
        if until_true 20 eval 'PID=$(running_pid) && [ -n "$PID" ]'; then
            until_true 2 eval 'F=$(readlink /proc/"$PID"/fd/* 2>/dev/null | grep -m 1 "/target.img.snapferry-") &&
                [ "$(stat -c %b "$F")" -gt 100 ]' && kill -STOP "$PID" && return
        fi
        wait_state "$R" none 20 >/dev/null
    done
    fail "a restore can be stopped in the middle"
    explain_failure
    finish
}
# ended NAME STATE TARGET-STATE [PATTERN]: how the restore ended, with an error like that.
ended() {
    kill -CONT "$PID" 2>/dev/null
    same "$1: it ends" "$(wait_state "$R" "$2" 20)" "$2"
    same "$1: the state of the target is told" "$(doc "$O" | jq -r .target_state)" "$3"
    [ -z "${4:-}" ] || check "$1: and what happened" grep -qE "$4" <<<"$(doc "$O" | jq -r .error.message)"
}
each_way() { # FILE-SYSTEM OPTIONS HOW...
    local fs=$1 options=$2 how name said
    T=$WORK/$fs/target.img
    shift 2
    for how; do
        name="$fs, ${options:-a new file}: $how"
        # shellcheck disable=SC2086
        begin $options
        case $how in
        removed) rm "$F"; said='was removed during the restore' ;;
        renamed) mv "$F" "$WORK/$fs/away"; said='was renamed or removed' ;;
        truncated) : >"$F"; said='was truncated by another program' ;;
        replaced) mv "$F" "$WORK/$fs/away"; echo another >"$F"; said='another file has its name' ;;
        esac
        ended "$name" Failed untouched "$said"
        same "$name: it is untouched" "$(cat "$T" 2>&1)" "$([ -n "$options" ] && echo precious ||
            echo "cat: $T: No such file or directory")"
        [ "$how" != replaced ] || same "$name: the other file is left alone" "$(cat "$F")" another
        rm -f "$WORK/$fs/away" "$F"
        clean "$name: nothing is left to do" 10 "$WORK/$fs"
    done
}
each_way xfs '' removed renamed truncated replaced
each_way xfs --overwrite truncated replaced
each_way xfs '--offset 0 --length 3M' renamed
each_way ext --overwrite replaced

# ---- the file that it is to become ----
begin; echo another >"$T"
ended "another file appears" Failed untouched 'exists'
same "it is left alone" "$(cat "$T")" another
begin --overwrite; rm "$T"
ended "the file that is to be replaced goes" Completed complete
check "that is no obstacle" cmp "$WORK/v.orig" "$T"
begin --overwrite; rm "$T"; mkdir "$T"
ended "it becomes a directory" Failed untouched 'is not a regular file'
begin --overwrite; exec 9<>"$T"
ended "another program opens it" Failed untouched 'in use'
exec 9>&-
same "and keeps it" "$(cat "$T")" precious
clean "nothing is left behind" 10 "$WORK/xfs" "$WORK/ext"
# ---- what cannot begin leaves a device as it was, and says so ----
truncate -s 8M "$WORK/dev.raw"
DEV=$(loop_device "$WORK/dev.raw")
at_exit "losetup -d $DEV"
echo precious >"$DEV"
check "the snapshot is removed by somebody" sf "$REPO" snapshot delete --force --quiet \
    "$(doc "$(op_id "$A")" | jq -r .result.snapshotID)"
expect "a restore to a device that cannot begin" 16 'no snapshot.*its target is untouched' -- \
    ask restore "$A/$WORK/xfs/v.img" "$DEV" --from repository --overwrite --yes --wait
same "it is untouched" "$(head -c 8 "$DEV")" precious
stops "the daemon stops"
explain_failure
finish
