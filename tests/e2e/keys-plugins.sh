#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keys of mover plugins, by what a daemon does with them. Cases begin with the name of their key; tests/keys.md has all
# keys.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
X=$WORK/xfs
mkdir "$X/arc" "$WORK/archive"
chmod 755 "$WORK"
image "$X/arc/c.img" 1 4
example_plugin mover-archive "$WORK/mover-real"
printf 'store = %s\nstyle = start\n' "$WORK/archive" >"$WORK/mover-archive.conf"
# wrap [SCRIPT]: the plugin runs SCRIPT first, and notes its calls.
wrap() {
    printf '#!/bin/bash\necho "$1" >>%s/calls\n%s\nexec %s/mover-real "$@"\n' "$WORK" "${1:-}" \
        "$WORK" >"$WORK/mover.new"
    chmod 755 "$WORK/mover.new"
    mv "$WORK/mover.new" "$WORK/mover"
}
calls() { grep -cx "$1" "$WORK/calls" 2>/dev/null; }
wrap
daemon_setup 'retries = 0'
plugin() { # LINE of its section
    config_add 61-mover "[plugin \"archive\"]
kind = mover
program = $WORK/mover
privileged = yes
$1"
    ask reload --wait --quiet 2>/dev/null
}
plugin ''
config_class arc "$X/arc" 'mover = plugin:archive'
starts "the daemon starts"

wrap '[ "$1" != start ] || sleep 20'
plugin 'start-timeout = 2s'
B=$(submit "$X/arc/c.img")
same "start-timeout: a start that takes longer fails" "$(wait_state "$B" Failed 15)" Failed
# It is asked for progress: without the verb watch.
polled='if [ "$1" = describe ]; then "$0-real" describe | jq -c ".abilities -= [\"watch\"] | $MORE"; exit; fi'
polled=${polled//\$0/$WORK/mover}
wrap "MORE=.
$polled
[ \"\$1\" != progress ] || exit 5"
plugin 'poll = 1s
progress-retry = 2'
: >"$WORK/calls"
B=$(submit "$X/arc/c.img")
same "progress-retry: after as many failures the operation fails" "$(wait_state "$B" Failed 60)" Failed
# Once more where its end is looked for at the same time.
check "progress-retry: it is repeated twice" eval '[[ $(calls progress) == [34] ]]'
wrap "MORE=.
$polled
[ \"\$1\" != progress ] || { echo '{\"protocol\":1,\"completed\":false,\"done\":1}'; exit; }"
plugin 'poll = 1h'
: >"$WORK/calls"
B=$(submit "$X/arc/c.img"); O=$(op_id "$B")
same "poll: it is at work" "$(wait_state "$O" Running 20)" Running
sleep 4
check "poll: it is not asked before that time" test "$(calls progress)" -le 1
ask cancel "$B" --wait --quiet
until_true 30 settled
plugin 'poll = 1s'
: >"$WORK/calls"
B=$(submit "$X/arc/c.img")
check "poll: each second" until_true 90 eval '[ "$(calls progress)" -ge 4 ]'
ask cancel "$B" --wait --quiet
until_true 30 settled
# It wants a minute for a verb that takes ten seconds.
wrap "MORE='.timeouts = {\"progress\": 60}'
$polled
[ \"\$1\" != progress ] || sleep 10"
plugin 'poll = 1s
progress-retry = 1
max-timeout = 2s'
B=$(submit "$X/arc/c.img")
same "max-timeout: not more than that, whatever the plugin asks for" "$(wait_state "$B" Failed 60)" Failed
plugin 'poll = 1s
progress-retry = 1
max-timeout = 10min'
B=$(submit "$X/arc/c.img")
same "max-timeout: with more it has what it asks for" "$(wait_state "$B" Completed 60)" Completed
clean "nothing is left behind" 20 "$X/arc"
explain_failure
finish
