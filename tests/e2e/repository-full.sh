#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A repository whose file system is full: status and its first line say so before a backup fails, the metrics have both
# numbers of the alert, and it is over when there is room again. One that is mounted read-only is told of, too.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../prometheus-lib.sh"
need_root "a file system to be filled"
fs_make small ext4 64 || exit 1
REPO=$WORK/small/repo SOCK=$WORK/m.sock
mkdir "$REPO"
daemon_setup
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
starts "the daemon starts"
value() {
    fresh_page --unix-socket "$SOCK" http://x/metrics | sed -n "s/^snapferry_$1{repository=\"main\"} //p"
}
number() { local v; v=$(value "$1"); printf '%.0f' "${v:-0}"; }
# A reload looks again.
seen() { ask reload --wait --quiet && [ "$(askj status | jq -r '.repositories[0].full')" = "$1" ]; }
texts() { askj status | jq -r '.problems[].text'; }

check "there is room" until_true 40 seen false
check "its size is known" test "$(number repository_size_bytes)" -gt $((40 * MIB))
check "so is what is free" test "$(number repository_free_bytes)" -gt $((20 * MIB))
same "no problem" "$(texts)" ""
dd if=/dev/zero of="$WORK/small/fill" bs=1M status=none 2>/dev/null
check "it is full" until_true 40 seen true
check "a problem of status" eval \
    'texts | grep -qE "^repository \"main\" is full: [0-9.]+ % of its file system \([0-9]+ MiB\) are free$"'
check "why space does not come back, and what to do" eval \
    'askj status | jq -r ".problems[].hint" | grep -qE "give it room|no space comes back"'
check "in its table" eval 'ask status | grep -qE "^ *Repository +main FULL"'
# Whoever scrapes gets what the last look found, a moment later than status.
alerting() { [ "$(($(number repository_free_bytes) * 20))" -lt "$(number repository_size_bytes)" ]; }
check "size and room are what the alert asks for" until_true 40 alerting
rm "$WORK/small/fill"
check "there is room again" until_true 40 seen false
same "the problem is gone" "$(texts)" ""

# Mounted read-only, as after an error of its storage.
read_only() { ask reload --wait --quiet && [ "$(askj status | jq -r '.repositories[0].read_only // false')" = "$1" ]; }
mount -o remount,ro "$WORK/small"
check "it is read-only" until_true 40 read_only true
check "a problem of status" eval \
    'texts | grep -qx "repository \"main\": its file system is mounted read-only, no backup into it can succeed"'
check "in its table" eval 'ask status | grep -qE "^ *Repository +main READ-ONLY"'
expect "--check fails" 3 . -- ask status --check
mount -o remount,rw "$WORK/small"
check "it can be written again" until_true 40 read_only false
same "the problem is gone" "$(texts)" ""
stops "the end"
explain_failure
finish
