#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The snapshot of a backup is not there when its outcome is recorded, and the mover that finds that out is killed, or
# the daemon that asked it: in the end the volume is not protected, and the backup's record in the repository has it.
# A backup does not wait for a recorder that has failed: it may have ended as Completed before, and its outcome stays.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
: "${TOOLS:=$BUILD/tests/tools}"
fs_make xfs xfs || exit 1
V=$WORK/xfs
daemon_setup
config_class gold "$V" 'snapshots-to-retain = 1' "hook-post-backup = $WORK/take-away"
cat >"$WORK/take-away" <<END
#!/bin/sh
run() { $SNAPFERRY -r "$REPO" --password-file "$WORK/password" --cache-dir "$WORK/cache.take" "\$@"; }
for id in \$(run snapshot list --json | tail -n 1 | jq -r '.snapshots[].id'); do
    run snapshot delete --force --quiet "\$id"
done
END
chmod 755 "$WORK/take-away"
starts "the daemon starts"
recorded() { # BACKUP: what became of its volume, in the repository
    CACHE=$WORK/cache.tool "$TOOLS/manifests" "$REPO" "$WORK/password" list snapferry-backup |
        jq -r --arg b "$1" 'select(.labels.backup == $b and .labels.state == "final").data.volumes[0] |
            "\(.result) \(.snapshotDataMoved)"' | tail -n 1
}
recorder() { # of the last backup, whatever its number; "": it has ended
    sql "SELECT id FROM operations WHERE id LIKE 'record-%' AND state IN ('Queued', 'Starting', 'Running', 'Retrying')
         ORDER BY seq DESC LIMIT 1"
}
result_file() { printf '%s/results/%s.json' "$STATE" "$(printf %s "$1" | sha256sum | cut -c1-32)"; }
hold() { # [ANOTHER]: stops the mover of the recorder, which is not ANOTHER; false: it was too quick
    local end=$((SECONDS + 60))
    R=
    while [ $SECONDS -lt $end ] && { [ -z "$R" ] || [ "$R" = "${1:-}" ]; }; do
        R=$(recorder)
        [ -n "$R" ] || ! terminal "$(state "$A")" || return
    done
    PID=$(hold_mover "$R" 60) || return
    # One that has its result, and is killed then, has not found out less.
    grep -q '"code"' "$(result_file "$R")" 2>/dev/null || return 0
    kill -CONT "$PID"
    return 1
}
verdict() { # NAME
    wait_state "$A" PartiallyFailed 120 >/dev/null
    check "$1: all has ended" until_true 120 settled
    same "$1: its volume is not protected" "$(askj volumes | jq -r --arg n "$V/$n.img" \
        '.volumes[] | select(.name == $n) | .state')" unprotected
    same "$1: the repository has that" "$(recorded "$A")" "Failed false"
    expect "$1: the backup has the reason" 0 'does not have what was backed up: .*there is no such' -- ask describe "$A"
}
begin() { # NAME: a backup whose recorder is stopped; recorders are quick, one that was too quick is followed by another
    local try
    for try in $(seq 30); do
        # Each time another volume: of one whose last backup is not there more is asked before its native snapshot goes.
        n=$1-$try
        image "$V/$n.img" 2 "$RANDOM"
        A=$(submit "$V/$n.img")
        hold && return
        wait_state "$A" none 60 >/dev/null
        until_true 60 settled
    done
    fail "$n: a recorder can be stopped"
    finish
}

begin killed
check "killed: it is the mover of $R" test -d "/proc/$PID"
kill -KILL "$PID"
verdict "killed"

begin twice
kill -KILL "$PID"
hold && kill -KILL "$PID"
verdict "killed twice"

begin alone
daemon_kill
kill -CONT "$PID"
gone() { [ ! -d "/proc/$PID" ] || grep -q '^State:.Z' "/proc/$PID/status"; }
check "daemon killed: the mover ends by itself" until_true 60 gone
starts "daemon killed: the next one starts"
verdict "daemon killed"

begin both
daemon_kill
kill -KILL "$PID"
starts "both killed: the next one starts"
verdict "both killed"

# Killed when it has written its result, and ended its work but for the exit.
if [ -n "${SNAPFERRY_SANITIZED:-}" ] || ! strace -f -o /dev/null -e trace=none true 2>/dev/null; then
    skip "killed behind its result" "strace is missing or may not trace here"
else
    begin late
    strace -f -o "$WORK/trace" -p "$PID" -e trace=exit_group -e inject=exit_group:signal=KILL 2>"$WORK/strace" &
    until_true 60 grep -q ' attached' "$WORK/strace" # all threads are held from here on
    kill -CONT "$PID"
    verdict "killed behind its result"
    expect "killed behind its result: it had one" 0 'result mismatch: .*killed by signal 9' -- ask describe "$R"
    same "killed behind its result: tried again" "$(state "$R")" Completed
fi

# The one that records what was found instead.
begin corrected
first=$R
kill -CONT "$PID"
hold "$first" && kill -KILL "$PID"
verdict "the second recorder killed"
explain_failure
finish
