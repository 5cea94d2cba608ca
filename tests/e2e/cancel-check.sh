#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Looks into the repository obey read-limit, and may take minutes: a cancel of what waits for them, and of them, is
# obeyed at once. (Issue 13, 19)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a file system with native snapshots"
fs_make xfs xfs 500 || exit 1
V=$WORK/xfs
daemon_setup 'cancel-grace = 1h' 'changed-blocks = auto'
config_class images "$V" 'snapshots-to-retain = 1'
random_file "$V/a.img" $((48 * MIB)) 1
random_file "$WORK/noise" $((2 * MIB)) 2
sync "$V/a.img"
starts "the daemon starts" || { explain_failure; finish; }
A=$(submit "$V/a.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed
check "settled" until_true 60 settled
config_add 71-limit "[mover]
read-limit = 256K"
ask reload --wait --quiet
B=$(submit "$V/a.img")
check_runs() { C=$(unfinished | awk '/^admin-check/ && /Running/ {print $1; exit}'); [ -n "$C" ]; }
check "another one asks for what it replaces" until_true 60 check_runs
check_runs
sleep 2
ask cancel "$B" --quiet
check "a cancel of what waits for it ends that" final "$(wait_state "$B" "Canceled|Completed" 10)"
same "its data had been stored" "$(state "$B")" Completed
check "what is not known to be safe stays" [ "$(natives_of "$V/a.img" | wc -l)" = 2 ]
same "the check, which nobody waits for now, ends as well" "$(wait_state "$C" Canceled 20)" Canceled
check "with the reason" eval 'doc "$C" | grep -q "what asked for it was canceled"'

# The outcome is recorded by a mover that reads a sample of the data.
dd if="$WORK/noise" of="$V/a.img" bs=1M seek=3 conv=notrunc status=none
D=$(submit "$V/a.img")
recording() { R=$(unfinished | awk '/^record-/ && /Running/ {print $1; exit}'); [ -n "$R" ]; }
check "a backup whose outcome is being recorded" until_true 60 recording
recording
ask cancel "$D" --quiet
check "a cancel ends it" final "$(wait_state "$D" "Canceled|Completed" 15)"
stops "the daemon does not wait for it when it ends"
explain_failure
finish
