#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keys that decide who goes next, by what a daemon with movers does: one volume is at work, slowly, and another one
# waits, with that key as the reason, or does not. Cases begin with the name of their key; tests/keys.md has all keys.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
X=$WORK/xfs
mkdir "$X/a" "$X/b"
for v in a/1 a/2 a/3 b/4; do image "$X/$v.img" 128 "${v#*/}"; done
hook() { # a hook that takes as long as the file is there
    printf '#!/bin/sh\nwhile [ -e %s ]; do sleep 0.1; done\n' "$WORK/busy" >"$WORK/hook"
    chmod 755 "$WORK/hook"
}
hook
daemon_setup
SLOW='read-limit = 256KiB'
# conf LINE...: the lines of [daemon]; classes a and b, each with the lines of A and B.
A=() B=()
conf() {
    local line lines
    lines=("$@")
    for line in "slots = 4" "per-device = 4" "memory-total = 4GiB"; do
        [[ " ${*%% =*} " = *" ${line%% =*} "* ]] || lines+=("$line")
    done
    config_main "${lines[@]}"
    config_class a "$X/a" "$SLOW" "${A[@]}"
    config_class b "$X/b" "$SLOW" "${B[@]}"
    ask reload --wait --quiet || fail "a reload" "$*"
}
live() { askj operations | jq -c --arg v "$X/$1.img" 'first(.operations[] | select(.volume == $v and
    (.state | IN("Completed", "Failed", "Canceled") | not))) // empty'; }
is() { [ "$(live "$1" | jq -r .state)" = "$2" ]; }
waits() { live "$1" | jq -r .why | grep -qE "$2"; }
quiet() { ask cancel --all --wait --quiet; until_true 30 settled; }
starts_work() { submit "$X/$1.img" >"$WORK/id"; until_true 60 is "$1" Running; }
# at_work NAME VOLUME: it is Running, while another one is.
at_work() { check "$1" until_true 60 is "$2" Running; }

A=() B=()
config_class a "$X/a" "$SLOW"
config_class b "$X/b" "$SLOW"
starts "the daemon starts"

# ---- how many at a time ----
conf 'slots = 1'
starts_work a/1; submit "$X/a/2.img" >/dev/null
check "slots: the second one waits" until_true 60 waits a/2 'the only slot is in use'
quiet
conf
starts_work a/1; submit "$X/a/2.img" >/dev/null
at_work "slots, per-device: with room for both it does not" a/2
quiet
conf 'per-device = 1'
starts_work a/1; submit "$X/a/2.img" >/dev/null
check "per-device: the second one waits" until_true 60 waits a/2 'its device group .* has 1 running already'
quiet
A=('max-per-device = 1')
conf
starts_work a/1; submit "$X/a/2.img" "$X/b/4.img" >/dev/null
check "max-per-device: the second one of the class waits" until_true 60 waits a/2 'device group .* has [12] running'
at_work "max-per-device: one of another class does not" b/4
quiet
A=()
conf 'max-per-class = 1'
starts_work a/1; submit "$X/a/2.img" "$X/b/4.img" >/dev/null
check "max-per-class: the second one of the class waits" until_true 60 waits a/2 'class "a" has 1 running already'
at_work "max-per-class: one of another class does not" b/4
quiet
conf 'memory-total = 300MiB' # a mover needs 224 MiB
starts_work a/1; submit "$X/a/2.img" >/dev/null
check "memory-total: the second one waits" until_true 60 waits a/2 'memory-total would be exceeded'
quiet

# ---- how many are exposed ----
conf 'slots = 1' 'prepare-ahead = 1'
starts_work a/1; submit "$X/a/2.img" >/dev/null
check "prepare-ahead = 1: it is not exposed" until_true 60 waits a/2 'prepared already .prepare-ahead.'
check "prepare-ahead = 1: nor does it look so" is a/2 Queued
quiet
conf 'slots = 1' 'prepare-ahead = 2'
starts_work a/1; submit "$X/a/2.img" >/dev/null
check "prepare-ahead = 2: it is exposed, and waits for the slot" until_true 60 is a/2 Exposing
quiet

# ---- which one ----
config_add 60-first "[volume \"$X/a/3.img\"]
priority = 90"
conf 'slots = 1' 'prepare-ahead = 1'
starts_work a/1; submit "$X/a/2.img" >/dev/null; until_true 60 is a/2 Queued
submit "$X/a/3.img" >/dev/null; until_true 60 is a/3 Queued
until_true 60 waits a/3 prepared
check "priority: the later one is first in the queue" until_true 60 eval '[ "$(askj status |
    jq -r "[.queue[] | select(.state == \"Queued\") | .volume][0]")" = "$X/a/3.img" ]'
ask cancel "$(live a/1 | jq -r .id)" --wait --quiet
at_work "priority: and goes first" a/3
check "priority: before the earlier one" is a/2 Queued
quiet
rm "$CONF/conf.d/60-first.ini"

# ---- backups ----
A=("hook-pre-snapshot = $WORK/hook" 'hook-timeout = 5min') B=()
conf 'concurrent-backups = 1'
touch "$WORK/busy"
ONE=$(submit "$X/a/1.img"); until_true 60 eval '[ "$(state "$ONE")" = Snapshotting ]'
TWO=$(submit "$X/b/4.img"); sleep 1
same "concurrent-backups = 1: the second backup is queued" "$(state "$ONE") $(state "$TWO")" "Snapshotting Queued"
conf 'concurrent-backups = 2'
check "concurrent-backups = 2: it is not" until_true 60 eval '[ "$(state "$TWO")" = Moving ]'
rm "$WORK/busy"
quiet
A=()

# ---- restores ----
config_class a "$X/a" 'snapshots-to-retain = 0'
conf_fast() { config_main 'slots = 4' 'per-device = 4' "$@"; config_class a "$X/a"; ask reload --wait --quiet; }
conf_fast
R=$(submit "$X/a/1.img")
same "a backup to restore from" "$(wait_state "$R" Completed 60)" Completed
restore_op() { askj operations | jq -c 'first(.operations[] | select(.kind == "restore" and
    (.state | IN("Completed", "Failed", "Canceled") | not))) // empty'; }
restoring() { ask restore "$R" "$X/out.$1.img" --from repository --quiet; }
conf 'slots = 1' 'restore-reserved = 0'
starts_work a/2; restoring 1
check "restore-reserved = 0: a restore waits for the slot" until_true 60 eval \
    'restore_op | jq -r .why | grep -q "the only slot is in use"'
quiet
conf 'slots = 1' 'restore-reserved = 1'
starts_work a/2; restoring 2
check "restore-reserved = 1: it does not" until_true 60 eval '[ "$(restore_op | jq -r .state)" = Running ]'
quiet
rm -f "$X"/out.*.img

# ---- [volume] ----
config_add 60-class "[volume \"$X/a/1.img\"]
class = b
[volume \"short\"]
name = $X/a/2.img
exclude = yes"
conf
check "class of a volume: regardless of match" eval 'ask explain "$X/a/1.img" | grep -q "^Storage class  *b,"'
expect "name of a volume: the section is that volume's" 16 'excluded by .volume "short".' -- \
    ask backup "$X/a/2.img" --wait
quiet
clean "nothing is left behind" 20 "$X"
explain_failure
finish
