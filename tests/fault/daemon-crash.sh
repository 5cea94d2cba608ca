#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon (or the step or mover it started) dies at every named point of its state machine, one by one; started again
# it comes to an end by itself, with nothing leaked, and the next backup and restore work (AO-41, MS-36, RS-20, E-04).
# POINTS="a b" tries only these.
SHARDS=4
# All points of the daemon, its steps and its movers: from the sources, so that no new one is forgotten.
all_points() {
    local root
    root=$(realpath "$(dirname "$0")/../..")
    { grep -rohE --include='*.c' 'crash_point\((d, )?"[a-z-]+"\)|"engine-[a-z-]+"' "$root"/{daemon,proc,io} |
        sed 's/.*"\(.*\)".*/\1/'
        sed -n '/points\[.*\] *=/,/};/p' "$root/io/native/tag.c" | grep -oE '"[a-z-]+"' | tr -d '"'; } | sort -u
}
# Those that others of the tests pass, and a backup, restore or delete of a file does not.
ELSEWHERE=$(dirname "$0")/crash-elsewhere.txt
listed() { sed -n 's/^\([a-z-]*\)\t.*/\1/p' "$ELSEWHERE" | sort -u; }
if [ -z "${SHARD:-}" ]; then
    # Most of the time is waiting: several at once, each with a daemon and file systems of its own.
    . "$(dirname "$0")/../lib.sh"
    if ! is_root || [ ! -e /dev/loop-control ]; then
        skip "crashes around real snapshots" "needs root and loop devices"
        finish
    fi
    for i in $(seq 0 $((SHARDS - 1))); do SHARD=$i "$0" >"$WORK/$i" 2>&1 & done
    wait
    reached=0
    for i in $(seq 0 $((SHARDS - 1))); do
        while IFS= read -r line; do
            case $line in
            ok\ *) pass "${line#* - }"; [[ $line == *"crash at"* ]] && reached=$((reached + 1)) ;;
            not\ ok\ *) fail "${line#* - }" ;;
            1..*) ;;
            *) echo "# ${line#\# }" ;;
            esac
        done <"$WORK/$i"
        check "all of part $i ran" grep -q '^1\.\.' "$WORK/$i"
    done
    check "the points are reached ($reached)" test "$reached" -ge 30
    # Each line of the list: a test that has the point, by its name or in a loop over its last words, or a reason.
    wrong() { # FILE
        local point where why words
        while IFS=$'\t' read -r point where; do
            [[ $point != \#* ]] || continue
            why=${where#* } where=${where%% *} words=$point
            all_points | grep -qx -- "$point" || echo "$point: there is no such point"
            if [ "$where" = - ]; then
                [ ${#why} -ge 20 ] || echo "$point: no reason"
                continue
            fi
            [ -f "$(dirname "$0")/../../$where" ] || { echo "$point: there is no $where"; continue; }
            until grep -qE -- "(^|[^a-z-])$words([^a-z-]|\$)" "$(dirname "$0")/../../$where"; do
                [[ $words == *-* ]] || { echo "$point: $where does not die there"; break; }
                words=${words#*-}
            done
        done <"$1"
    }
    same "the others are passed by another test, or it is said why not" "$(wrong "$ELSEWHERE")" ""
    printf '%s\ttests/e2e/restore.sh\n' no-such-point staging-durable frozen >"$WORK/list"
    printf 'frozen\t- no\nfrozen\ttests/e2e/none.sh\n' >>"$WORK/list"
    same "a line that is wrong is noticed" "$(wrong "$WORK/list")" "no-such-point: there is no such point
no-such-point: tests/e2e/restore.sh does not die there
staging-durable: tests/e2e/restore.sh does not die there
frozen: tests/e2e/restore.sh does not die there
frozen: no reason
frozen: there is no tests/e2e/none.sh"
    finish
fi
. "$(dirname "$0")/../daemon-lib.sh"
need_root "crashes around real snapshots"
fs_make xfs xfs && fs_make far btrfs 300 || exit 1
mkdir "$WORK/far/scratch"
image "$WORK/xfs/v.img" 2 13
cp "$WORK/xfs/v.img" "$WORK/v.orig"
printf '#!/bin/sh\necho "$1" >>%s/ran\n' "$WORK" >"$WORK/hook"; chmod 755 "$WORK/hook"
daemon_setup
config_add far "[storage-class \"far\"]
driver = reflink
match =
target = $WORK/far/scratch"
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 1' 'backup-storage-class = far' "hook-pre-snapshot = $WORK/hook" \
    "hook-post-snapshot = $WORK/hook"

# Something that the daemon started, by what it has said from line $from on.
killed() { tail -n +$((from + 1)) "$LOG" | grep -q 'killed by signal 9'; }
# during VERB...: until the command has ended, or the daemon or what it has started has died.
during() {
    local pid
    timeout $((8 * PATIENCE)) "$SNAPFERRY" "$@" --wait --quiet --runtime-dir "$RUN" --state-dir "$STATE" \
        --config-dir "$CONF" >/dev/null 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && daemon_alive && ! killed; do pause 0.1; done
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
}
if [ -z "${POINTS:-}" ]; then
    POINTS=$(all_points | comm -23 - <(listed) | awk -v n=$SHARDS -v k="$SHARD" 'NR % n == k')
fi
for point in $POINTS; do
    rm -f "$WORK/ran"
    touch "$LOG"; from=$(wc -l <"$LOG")
    [[ $point != schedule-* ]] || config_add job "[job \"often\"]
volumes = $WORK/xfs/v.img
on-calendar = *:*:0/2"
    daemon_start SNAPFERRY_CRASH_AT="$point" || true
    A=$(timeout $((10 * PATIENCE)) "$SNAPFERRY" backup "$WORK/xfs/v.img" --json --runtime-dir "$RUN" \
        --state-dir "$STATE" --config-dir "$CONF" 2>/dev/null | tail -n 1 | jq -r '.backup // empty' 2>/dev/null)
    # What does not come by then is not on the way, however busy the machine is.
    end=$((SECONDS + 6 * PATIENCE))
    hit=no
    while [ $SECONDS -lt $end ]; do
        daemon_alive || { hit=daemon; break; }
        killed && { hit=step; break; }
        [ -n "$A" ] && settled && break
        pause 0.1
    done
    daemon_alive || hit=daemon
    if [ $hit = no ] && [ -n "$A" ]; then
        # Not on the way of a backup: a restore, then a delete.
        during restore "$A/$WORK/xfs/v.img" "$WORK/xfs/out.$point"
        ! daemon_alive || killed || during delete "$A"
        daemon_alive || hit=daemon
        killed && hit=step
    fi
    daemon_kill
    rm -f "$CONF/conf.d/job.ini"
    for p in $(pgrep -f "snapferry-mover.*$WORK/"); do kill -KILL "$p"; done
    if [ $hit = no ]; then
        fail "crash at $point" "not passed by backup, restore or delete: is there a test that does, for $ELSEWHERE?"
        continue
    fi
    bad=
    daemon_start || bad="does not start again"
    [ -n "$bad" ] || until_true 20 clean_state "$WORK/xfs" "$WORK/far" ||
        bad="not clean: $(clean_state "$WORK/xfs" "$WORK/far" | tr '\n' ' ')"
    if [ -z "$bad" ] && [ "$(ask backup "$WORK/xfs/v.img" --wait --json 2>/dev/null | result state)" \
        != Completed ]; then
        bad="the next backup fails"
    fi
    daemon_stop
    rm -f "$WORK"/xfs/out.*
    if [ -z "$bad" ]; then
        pass "crash at $point ($hit)"
    else
        fail "crash at $point ($hit)" "$bad" "$(tail -n 15 "$LOG")"
    fi
done
if grep -q engine-hook-intent <<<"$POINTS"; then
    check "the post-snapshot hook ran after each crash" grep -q post-snapshot "$WORK/ran"
fi
finish
