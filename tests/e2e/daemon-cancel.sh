#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Cancel in every state, bounded in time, ends as Canceled and leaves nothing (MS-37..MS-39, E-06).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "cancel"
fs_make xfs xfs && fs_make far btrfs || exit 1
mkdir "$WORK/far/scratch"
for v in a b; do image "$WORK/xfs/$v.img" 32 "$((${#v} + RANDOM))"; done
printf '#!/bin/sh\necho "$1" >>%s/hooks\n[ "$1" = post-snapshot ] || sleep 100\n' "$WORK" >"$WORK/slow"
chmod 755 "$WORK/slow"
daemon_setup 'slots = 1' 'restore-reserved = 0'
config_add far "[storage-class \"far\"]
driver = reflink
match =
target = $WORK/far/scratch"
BOUND=8 # cancel-grace is 3 s
# Limited, so that what runs still runs when it is cancelled, whatever the machine.
limits=('read-limit = 8MiB' 'write-limit = 8MiB')
policy() { config_class xfs "$WORK/xfs" "${limits[@]}" "$@"; ask reload --wait --quiet; }
config_class xfs "$WORK/xfs" "${limits[@]}"
starts "the daemon starts"

# canceled NAME ID...: cancels, and each of them ends as Canceled within the bound.
canceled() {
    local name=$1 id start=$SECONDS s
    shift
    ask cancel "$@" --quiet || { fail "$name: cancel is refused"; return; }
    for id; do
        s=$(wait_state "$id" Canceled $BOUND)
        same "$name: $id" "$s" Canceled
    done
    check "$name: within $BOUND s" test $((SECONDS - start)) -le $BOUND
}

running "$WORK/xfs/a.img"; OA=$O
B=$(submit "$WORK/xfs/b.img"); OB=$(op_id "$B")
check "the second one waits" grep -qvE 'Running|Completed' <<<"$(state "$OB")"
check "its snapshot is taken all the same, while the other one moves (AO-02)" until_true 10 eval \
    '[ -n "$(natives_of "$WORK/xfs/b.img")" ]'
canceled "waiting for a slot" "$B"
canceled "running, with a mover that does not answer" "$A"
check "its mover is gone" test ! -d "/proc/$PID"
expect "cancel of what has ended says so" 0 'already|Canceled' -- ask cancel "$A"
expect "and of what never was" 16 -- ask cancel no-such-thing

# One that works: a cancel reaches it at the next chunk.
random_file "$WORK/xfs/large.img" $((300 * MIB)) 77
running "$WORK/xfs/large.img"
kill -CONT "$PID"
canceled "running" "$A"
rm -f "$WORK/xfs/large.img"

running "$WORK/xfs/a.img"; OA=$O
kill -CONT "$PID"
canceled "by the operation's id" "$OA"
same "then the backup is" "$(wait_state "$A" 'Canceled|PartiallyFailed|Failed' 5)" Canceled

running "$WORK/xfs/a.img"
expect "a running backup is not deleted (AO-49)" 14 'force|cancel' -- ask delete "$A"
check "unless told" ask delete "$A" --force --wait --quiet
expect "then it is gone" 16 -- ask describe "$A"

policy 'hook-timeout = 60s' "hook-pre-snapshot = $WORK/slow" "hook-post-snapshot = $WORK/slow"
A=$(submit "$WORK/xfs/a.img")
until_true 10 grep -q pre-snapshot "$WORK/hooks"
canceled "in a hook before the snapshot" "$A"
until_true 10 grep -q post-snapshot "$WORK/hooks"
check "the post-snapshot hook has run all the same (CF-48)" grep -q post-snapshot "$WORK/hooks"
check "the hook is dead" test -z "$(pgrep -f "$WORK/slow")"

policy 'backup-storage-class = far' 'copy-limit = 1MiB'
A=$(submit "$WORK/xfs/a.img"); OA=$(op_id "$A")
same "exposing" "$(wait_state "$OA" Exposing 10)" Exposing
sleep 0.5
canceled "while it is exposed" "$A"

# A retry waits: the repository is away.
policy 'retries = 5'
config_main 'slots = 1' 'retry-first = 60s' 'retry-max = 60s'; ask reload --wait --quiet
policy
running "$WORK/xfs/a.img"; OA=$O
kill -KILL "$PID"
same "a killed mover: the operation waits for its retry" "$(wait_state "$OA" Retrying 10)" Retrying
canceled "between two attempts" "$A"

# A restore.
config_main 'slots = 1'; policy
B=$(submit "$WORK/xfs/a.img"); wait_state "$B" Completed 30 >/dev/null
R=$(askj restore "$B/$WORK/xfs/a.img" "$WORK/xfs/out.img" --from repository | jq -r '.restore // empty')
hold_mover "$(op_id "$R")" 20 >/dev/null
canceled "a restore" "$R"
check "no target appears" test ! -e "$WORK/xfs/out.img"
clean "nothing is left behind" 10 "$WORK/xfs" "$WORK/far"
explain_failure
finish
