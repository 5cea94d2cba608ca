#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A sweep that is due comes, also while turns follow one another more quickly than it may: here with each answer to
# clients that ask for the status all the time (AO-23).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots"
fs_make xfs xfs || exit 1
V=$WORK/xfs/v.img
image "$V" 2 31
printf '#!/bin/sh\nexit 1\n' >"$WORK/hook"
chmod 755 "$WORK/hook"
daemon_setup
config_class xfs "$WORK/xfs" 'backup-read-only = no' "hook-prepare = $WORK/hook" 'expose-keep-on-failure = yes'
intermediates() { find "$WORK/xfs" -name '*.intermediate*' -type f; }

# What only a sweep removes: an intermediate that a daemon released, which died then.
starts "the daemon starts"
B=$(submit "$V")
same "a backup fails" "$(wait_state "$B" Failed 20)" Failed
same "its intermediate is kept" "$(intermediates | wc -l)" 1
stops "it ends"
starts "another one" SNAPFERRY_CRASH_AT=engine-kept-released
ask unhold "$B" --quiet >/dev/null 2>&1
if daemon_gone 10; then pass "dies when it has released it"; else fail "dies when it has released it"; fi
same "which is still there" "$(intermediates | wc -l)" 1

touch "$WORK/asked"
asks() { while [ -e "$WORK/asked" ]; do ask status --json; done >/dev/null 2>&1; }
asks & ONE=$!
asks & OTHER=$!
at_exit 'rm -f "$WORK/asked"'
starts "the next one, with two clients that ask for its status all the time"
check "removes it nevertheless" until_true 10 eval '[ -z "$(intermediates)" ]'
check "and the native snapshot" until_true 10 eval '[ -z "$(natives_of)" ]'
rm "$WORK/asked"
wait $ONE $OTHER
clean "nothing is left behind" 10 "$WORK/xfs"
stops "the daemon ends"
explain_failure
finish
