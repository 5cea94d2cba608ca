#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The state directory is full while the daemon runs: a request is refused with the reason, failed writes are counted,
# work goes on with room, and the count survives a restart (MS-21, D.3). In mid-backup and on a real disk:
# tests/vm/05-full-state.sh.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon on a full disk"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 4 1
SOCK=$WORK/m.sock
daemon_setup
cat >"$WORK/hook" <<HOOK
#!/bin/sh
[ ! -e $WORK/wait ] || touch $WORK/waits
while [ -e $WORK/wait ]; do sleep 0.1; done
HOOK
chmod 755 "$WORK/hook"
config_class gold "$V" "hook-pre-snapshot = $WORK/hook" 'hook-timeout = 60s' 'snapshots-to-retain = 1'
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
mount -t tmpfs -o size=8m tmpfs "$STATE" || exit 1
at_exit "umount -l '$STATE'"
starts "the daemon starts"
errors() {
    curl -s --max-time 10 --unix-socket "$SOCK" http://x/metrics |
        awk '$1 == "snapferry_record_write_errors_total" {print $2}'
}
degraded() { askj status | jq -e .daemon.degraded >/dev/null; }
same "nothing has failed" "$(errors)" 0
check "a backup while there is room" eval '[ "$(askj backup "$V/a.img" --wait | result state)" = Completed ]'

head -c 64M /dev/zero >"$STATE/ballast" 2>/dev/null
expect "no room: the request is refused, with the reason" 18 'space' -- ask backup "$V/a.img"
check "the daemon is degraded" degraded
check "failed writes are counted" eval 'until_true 10 eval "[ \"\$(errors)\" -ge 1 ]"'
rm "$STATE/ballast"
A=
again() { A=$(submit "$V/a.img"); [ -n "$A" ]; }
check "with room it is taken" until_true 20 again
check "... and nothing is degraded" until_true 20 eval '! degraded'
# The sweep, once a second here, moves the count into the records.
before=$(errors)
check "the count stays" test "${before:-0}" -ge 1
sleep 2
same "... when it is recorded" "$(errors)" "$before"

# A hold is in the records and in its file, or in neither.
check "the backup ends" until_true 60 settled
N=$(askj native list | jq -r '.natives[0].alias')
is_held() { askj native list | jq -e '.natives[0].hold' >/dev/null; }
before=$(cat "$STATE/holds")
head -c 64M /dev/zero >"$STATE/ballast" 2>/dev/null
expect "no room: a native snapshot is not held, with the reason" 18 'No space' -- ask hold "$N"
check "not in part either" eval '! is_held && [ "$(cat "$STATE/holds")" = "$before" ]'
rm "$STATE/ballast"
check "with room it is" until_true 20 ask hold "$N" --quiet
check "and is released" ask unhold "$N" --quiet
check "... with nothing degraded" until_true 20 eval '! degraded'

# The file of holds alone cannot be written: nothing is held that a loss of the records would lose.
mkdir "$STATE/holds.new"
expect "without its file it is not held" 1 'cannot write .*/holds.new: ' -- ask hold "$N"
check "and the records do not have it" eval '! is_held'
check "nor is the daemon degraded by that" eval '! degraded'
rmdir "$STATE/holds.new"
check "then it is" ask hold "$N" --quiet
check "which the file has" grep -q "$N" "$STATE/holds"
mkdir "$STATE/holds.new"
check "it can be released all the same" ask unhold "$N" --quiet
check "it is" eval '! is_held'
check "that the file still has it is a problem" grep -q "the file of what is held .*/holds.new: " <<<"$(ask status)"
rmdir "$STATE/holds.new"
check "until it is written" until_true 10 eval '! grep -q "$N" "$STATE/holds"'
check "and then no longer" eval '! ask status | grep -q "the file of what is held"'

# What was decided cannot be recorded: it is tried again, but not all the time.
touch "$WORK/wait"
B=$(submit "$V/a.img")
check "a backup waits for its hook" until_true 20 test -e "$WORK/waits"
head -c 64M /dev/zero >"$STATE/ballast" 2>/dev/null
pid=$(askj status | jq .daemon.pid)
ticks() { awk '{print $14 + $15}' "/proc/$pid/stat"; }
began=$(ticks)
rm "$WORK/wait"
check "its end cannot be recorded" until_true 20 degraded
sleep 3
used=$(($(ticks) - began))
check "meanwhile the daemon is idle ($used ticks)" test "$used" -lt 100
rm "$STATE/ballast"
check "with room it goes on" until_true 40 eval '[ "$(doc "$B" | jq -r .state)" = Completed ]'
before=$(errors)
sleep 2

stops "the daemon ends"
starts "and starts again"
same "the count survives a restart" "$(errors)" "$before"
clean "nothing is left behind" 20 "$V"

# The kernel makes its file system read-only in the middle of a backup, as after an error: what is wrong is said, the
# repository is not blamed, and with the file system back the backup ends well.
stops "it ends"
umount "$STATE"
truncate -s 100M "$WORK/state.ext4" && mkfs.ext4 -q "$WORK/state.ext4"
DEV=$(loop_device "$WORK/state.ext4")
at_exit "losetup -d $DEV"
mount "$DEV" "$STATE" || exit 1
touch "$WORK/wait"; rm -f "$WORK/waits"
starts "the daemon starts"
B=$(submit "$V/a.img")
check "a backup waits for its hook" until_true 20 test -e "$WORK/waits"
mount -o remount,abort "$STATE"
rm "$WORK/wait"
check "its end cannot be recorded" until_true 20 degraded
timeout 12 "$SNAPFERRY" wait "$B" --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF" >"$WORK/wait.out" 2>&1
check "who waits for it learns why" grep -q 'the records cannot be written' "$WORK/wait.out"
problems() { askj status | jq -c "[.problems[].$1] | tostring"; }
check "the reason is a problem" grep -qE 'cannot be written: (Input/output error|Read-only file system)' \
    <<<"$(problems text)"
check "with what to do about it" grep -q "the kernel's log" <<<"$(problems hint)"
check "which is not to free space" eval '! problems hint | grep -q "free space"'
same "the repository is not to blame" "$(problems text | grep -c '"repository')" 0
same "and is up" "$(askj status | jq -c '[.repositories[].up]')" '[true]'
daemon_kill
# A copy of it: the mount may live on for a while in the mount namespace of another test.
umount "$STATE" || umount -l "$STATE"
sync
cp "$WORK/state.ext4" "$WORK/repaired.ext4"
e2fsck -fp "$WORK/repaired.ext4" >/dev/null
DEV2=$(loop_device "$WORK/repaired.ext4")
at_exit "losetup -d $DEV2"
check "its file system is repaired" mount "$DEV2" "$STATE"
starts "it starts with the file system repaired"
check "the backup ends well" until_true 60 eval '[ "$(doc "$B" | jq -r .state)" = Completed ]'
clean "nothing is left behind of it" 20 "$V"
finish
