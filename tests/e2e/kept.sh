#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a failed backup leaves: with expose-keep-on-failure its native snapshot and its intermediate are kept for
# inspection until somebody releases them (PVC-11); with either key it is backed up again from the snapshot that was
# taken then, and from no other (RS-03).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots"
fs_make xfs xfs || exit 1
V=$WORK/xfs/v.img
image "$V" 4 21
cp "$V" "$WORK/v.1"
hook() {
    printf '#!/bin/sh\nexit %s\n' "$1" >"$WORK/hook.new"
    chmod 755 "$WORK/hook.new"
    mv "$WORK/hook.new" "$WORK/hook"
}
hook 1
daemon_setup
config_class xfs "$WORK/xfs" 'backup-read-only = no' "hook-prepare = $WORK/hook" 'expose-keep-on-failure = yes'
config_add metrics "[metrics]
textfile = $WORK/metrics.prom
textfile-period = 1s"
starts "the daemon starts"
# fails NAME: a backup that fails: B.
fails() { B=$(submit "$V"); same "$1" "$(wait_state "$B" Failed 20)" Failed; }
intermediates() { find "$WORK/xfs" -name '*.intermediate*' -type f | sort; }
native() { askj native list | jq -c '.natives[0]'; }
metric_is() { grep -qxF "$1" "$WORK/metrics.prom"; }

# ---- kept for inspection ----
fails "the prepare hook fails: Failed"
A=$B N=$(native | jq -r .alias)
X=$(native | jq -r '.kept.path')
check "its intermediate is there" test -f "$X"
same "as it was read" "$(cmp "$X" "$WORK/v.1" && echo equal)" equal
same "the list says why it is kept" "$(native | jq -r .reasons)" inspection
expect "with the intermediate" 0 'intermediate .*: /' -- ask native list
expect "status: how many and since when" 0 \
    '^Kept +1 snapshot of failed backups and 1 intermediate for inspection, since' \
    -- ask status
expect "describe has the error it was kept for" 0 'prepare hook|exited with' -- ask describe "$N"
check "a metric counts it" until_true 20 metric_is 'snapferry_inspection_objects{kind="intermediate"} 1'
fails "it fails again"
same "of a second failure of the volume nothing is kept" "$(intermediates | wc -l) $(natives_of | wc -l)" "1 1"
check "pruning" ask native prune --yes --quiet
daemon_kill
starts "the daemon is killed, and another one begins"
sleep 3 # orphan-grace is 2 s
same "neither pruning nor a sweep removes it" "$(intermediates) $(natives_of)" "$X $N"
expect "delete refuses, and says how" 14 "unhold $N. removes what was kept" -- \
    ask delete "$A" --yes --wait

# ---- again, from the snapshot that was taken then ----
random_file "$V" $((4 * MIB)) 22
hook 0
R=$(askj retry "$A" | jq -r .backup)
same "retry: Completed" "$(wait_state "$R" Completed 30)" Completed
check "restored" ask restore "$R" "$WORK/xfs/out.img" --from repository --wait --quiet
same "it is of the time of the backup that failed" "$(cmp "$WORK/xfs/out.img" "$WORK/v.1" && echo equal)" equal
rm -f "$WORK/xfs/out.img"
same "the first one stays Failed" "$(state "$A")" Failed
same "and the other names it" "$(askj describe "$R" | jq -r .backup.retry_of)" "$A"
expect "not a second time" 16 "belongs to backup $R" -- ask retry "$A"
expect "what succeeded is not tried again" 16 'has no volume that failed' -- ask retry "$R"
same "what was kept is still there" "$(intermediates)" "$X"
expect "the backup that failed is not deleted with it unasked" 14 "kept for inspection.*native snapshot $N of" -- \
    ask delete "$A" --yes --wait
expect "nor the other one, and that says of whose failure it is" 14 "since backup $A failed" -- \
    ask delete "$R" --yes --wait
check "released by the name of the backup that failed, though the native snapshot is the other's now" \
    ask unhold "$A" --quiet
clean "then all of it is removed" 10 "$WORK/xfs"
check "the native snapshot, too" until_true 10 eval '[ "$(natives_of | wc -l)" = 0 ]'

# ---- deleted with the backup that failed, after it was tried again ----
hook 1
fails "it fails again"
hook 0
check "and is tried again" ask retry "$B" --wait --quiet
X=$(native | jq -r '.kept.path')
check "what was kept is there" test -f "$X"
expect "delete --even-kept" 0 deleted -- ask delete "$B" --even-kept --yes --wait
same "its intermediate is removed when that says deleted" "$(intermediates)" ""
clean "and the native snapshot, which nothing needs any more" 10 "$WORK/xfs"
same "status has nothing for inspection" "$(ask status | grep -c 'for inspection')" 0

# ---- gone; deleted with the backup ----
hook 1
fails "it fails again"
stored_natives "$WORK/xfs" | xargs rm -f
find "$WORK/xfs" -path '*/.snapferry/*' -name "*$(native | jq -r .alias)*" ! -name '*.intermediate*' -delete
expect "without its native snapshot it cannot be tried again" 16 'native snapshot .* no longer on the storage' -- \
    ask retry "$B/$V"
check "delete --even-kept" ask delete "$B" --even-kept --yes --wait --quiet
clean "and nothing is left" 10 "$WORK/xfs"

# ---- keep-on-failure: the native snapshot alone ----
config_class xfs "$WORK/xfs" 'backup-read-only = no' "hook-prepare = $WORK/hook" 'keep-on-failure = yes'
check "reload" ask reload --wait --quiet
fails "it fails"
same "the native snapshot stays" "$(native | jq -r .reasons)" keep-on-failure
clean "and nothing else" 10 "$WORK/xfs"
hook 0
expect "retry waits for its end" 0 'Completed' -- ask retry "$B/$V" --wait
clean "nothing is left behind" 10 "$WORK/xfs"
explain_failure
finish
