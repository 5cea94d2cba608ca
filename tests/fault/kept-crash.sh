#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon or its child dies while a failed backup is recorded as kept for inspection, while that is released, and
# while it is tried again: nothing leaks, nothing is removed that is to be kept (PVC-11, RS-03, E-04).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots"
fs_make xfs xfs 400 || exit 1
V=$WORK/xfs/v.img
image "$V" 2 23
hook() {
    printf '#!/bin/sh\nexit %s\n' "$1" >"$WORK/hook.new"
    chmod 755 "$WORK/hook.new"
    mv "$WORK/hook.new" "$WORK/hook"
}
hook 1
daemon_setup
config_class xfs "$WORK/xfs" 'backup-read-only = no' "hook-prepare = $WORK/hook" 'expose-keep-on-failure = yes'
intermediates() { find "$WORK/xfs" -name '*.intermediate*' -type f | sort; }
native() { askj native list | jq -c '.natives[0]'; }
dead() { ! daemon_alive; }
child_died() { tail -n +$((from + 1)) "$LOG" | grep -q 'killed by signal 9'; }
# starts_dying POINT: the daemon will die there, or its child.
starts_dying() { touch "$LOG"; from=$(wc -l <"$LOG"); daemon_start SNAPFERRY_CRASH_AT="$1"; }
again() { daemon_kill; daemon_start; }
# kept_whole: one native snapshot with its intermediate, and nobody works on it.
kept_whole() {
    settled && [ "$(intermediates)" = "$(native | jq -r .kept.path)" ] && [ "$(natives_of | wc -l)" = 1 ] &&
        [ -z "$(sql 'SELECT 1 FROM intents')" ]
}

# none_left SECONDS: the record follows the storage, and the next round is not to find it.
none_left() { check "all of it" until_true "$1" eval '[ -z "$(natives_of)" ]'; }

for point in engine-exposure-recorded engine-outcome engine-kept engine-cleaned; do
    starts_dying $point
    submit "$V" >/dev/null
    # After engine-exposure-recorded the hook runs again; engine-cleaned is not passed where nothing is undone.
    PATIENCE=1 until_true 5 dead
    again
    check "dies at $point: kept, once" until_true 20 kept_whole
    sleep 2.5 # orphan-grace is 2 s
    check "and stays" kept_whole
    N=$(native | jq -r .alias)
    ask unhold "$N" --quiet || fail "released"
    clean "removed then" 10 "$WORK/xfs"
    none_left 15
    daemon_stop
done

# fail_once: a backup that is kept: A, N.
fail_once() {
    hook 1
    daemon_start
    A=$(submit "$V")
    until_true 20 kept_whole || fail "a failed backup is kept" "$(doc "$A" | jq -c .operations)" "$(tail -n 40 "$LOG")"
    N=$(native | jq -r .alias)
    daemon_stop
}
for point in engine-kept-released engine-unexposed engine-kept-removed engine-native-removed; do
    fail_once
    starts_dying $point
    ask unhold "$N" --quiet >/dev/null 2>&1
    check "released, dies at $point" until_true 10 eval 'dead || child_died'
    again
    clean "it is removed" 15 "$WORK/xfs"
    none_left 10
    daemon_stop
done
for point in engine-delete-submitted engine-unexposed engine-native-removed engine-delete-natives; do
    fail_once
    starts_dying $point
    timeout 3 "$SNAPFERRY" delete "$A" --even-kept --yes --wait --quiet --runtime-dir "$RUN" --state-dir "$STATE" \
        --config-dir "$CONF" >/dev/null 2>&1
    check "deleted, dies at $point" until_true 10 eval 'dead || child_died'
    again
    clean "it is removed" 30 "$WORK/xfs"
    check "all of it" until_true 10 eval '[ -z "$(natives_of)$(state "$A")" ]'
    daemon_stop
done
for point in engine-retry-submitted engine-exposed engine-outcome; do
    fail_once
    hook 0
    starts_dying $point
    ask retry "$A" --quiet >/dev/null 2>&1
    check "tried again, dies at $point" until_true 10 eval 'dead || child_died'
    again
    until_true 20 settled
    R=$(askj backups | jq -r '.backups[0].id')
    same "Completed" "$(state "$R")" Completed
    same "from the native snapshot taken then" "$(natives_of)" "$N"
    check "which is still kept" until_true 20 kept_whole
    ask unhold "$N" --quiet || fail "released"
    clean "nothing is left behind" 15 "$WORK/xfs"
    none_left 30 # its data were moved: it is pruned when they were seen in the repository
    daemon_stop
done
finish
