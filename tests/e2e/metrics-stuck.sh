#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A mover that hangs goes on telling where it is: its last progress is when it last got on, not when it last spoke.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a file system that can be frozen"
command -v fsfreeze >/dev/null || { skip "a mover that hangs" "there is no fsfreeze"; finish; }
fs_make far xfs 400 && fs_make xfs xfs || exit 1
at_exit "fsfreeze -u '$WORK/far' 2>/dev/null"
V=$WORK/xfs REPO=$WORK/far/repo SOCK=$WORK/m.sock
random_file "$V/a.img" $((128 * MIB)) 1
mkdir "$REPO"
daemon_setup
config_class gold "$V" 'write-limit = 8MiB'
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
starts "the daemon starts"
page() { curl -s --max-time 10 --unix-socket "$SOCK" http://x/metrics; }
value() { page | sed -n "s/^snapferry_operation_$1{direction=\"backup\",volume=\"[^\"]*\"} //p" | cut -d. -f1; }
more() { [ "$(value done_bytes)" != "" ] && [ "$(value done_bytes)" -gt 0 ]; }
still() { # neither gets on within some seconds, while the mover speaks
    local at bytes
    at=$(value last_progress_timestamp_seconds) bytes=$(value done_bytes)
    sleep 4
    [ -n "$at" ] && [ "$(value last_progress_timestamp_seconds) $(value done_bytes)" = "$at $bytes" ]
}
spoken() { askj operations | jq -r '.operations[0].progress.at_ns // 0'; }

A=$(submit "$V/a.img")
check "it gets on" until_true 40 more
fsfreeze -f "$WORK/far"
check "the repository hangs: no progress" until_true 60 still
S=$(spoken)
check "it goes on speaking" until_true 20 eval '[ "$(spoken)" != "$S" ]'
AT=$(value last_progress_timestamp_seconds)
fsfreeze -u "$WORK/far"
check "it gets on again" until_true 60 eval '[ "$(value last_progress_timestamp_seconds)" != "$AT" ]'
same "and ends well" "$(wait_state "$A" Completed 90)" Completed
stops "the end"
explain_failure
finish
