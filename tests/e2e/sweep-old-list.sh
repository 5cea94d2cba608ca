#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The list that a sweep of the storage works on may be older than the removal of a native snapshot: what is gone is not
# recorded again (RS-11).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "plugins under the daemon"
fs_make xfs xfs || exit 1
mkdir "$WORK/xfs/vm"
chmod 755 "$WORK"
image "$WORK/xfs/vm/a.img" 2 1
example_plugin driver-dir "$WORK/driver-real"
example_plugin driver-dir "$WORK/driver-dir"
daemon_setup 'retries = 0'
config_add 10-plugins "[plugin \"dir\"]
kind = driver
program = $WORK/driver-dir
privileged = yes
[storage-class \"vm\"]
driver = plugin:dir
match = $WORK/xfs/vm/*.img
target = $WORK/xfs/vm/.snap
snapshots-to-retain = 1"
starts "the daemon starts"
B=$(askj backup "$WORK/xfs/vm/a.img" --wait | jq -r .id)
same "a backup" "$(state "$B")" Completed
first=$(natives_of)
stops "the daemon ends"
cat >"$WORK/slow" <<SLOW
#!/bin/bash
# Only the first list is held up.
[ "\$1" = list ] && mkdir $WORK/first 2>/dev/null || exec $WORK/driver-real "\$@"
out=\$($WORK/driver-real "\$@") || exit
touch $WORK/listed
until [ -e $WORK/go-on ]; do sleep 0.1; done
touch $WORK/told
printf '%s\n' "\$out"
SLOW
chmod 755 "$WORK/slow"
mv "$WORK/slow" "$WORK/driver-dir"
starts "it starts again, with a sweep"
check "the storage was listed" until_true 20 test -e "$WORK/listed"
B2=$(askj backup "$WORK/xfs/vm/a.img" --wait | jq -r .id)
same "meanwhile: a second backup" "$(state "$B2")" Completed
pruned() { [ "$(natives_of | wc -l)" -eq 1 ] && [ "$(natives_of)" != "$first" ]; }
check "which prunes the native snapshot of the first" until_true 10 pruned
second=$(natives_of)
touch "$WORK/go-on"
check "the sweep has its list" until_true 20 test -e "$WORK/told"
sleep 1
same "what is gone is not recorded again" "$(natives_of)" "$second"
stops "the daemon ends again"
finish
