#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A verification finds a backup damaged: its volume is not protected by it, the backup says so, and describe lists what
# is affected, until the data is whole again.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon and its repository"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 4 1
image "$V/b.img" 4 2
daemon_setup
config_class gold "$V"
starts "the daemon starts"
check "a backup of one volume" ask backup "$V/a.img" --wait --quiet
A=$(askj backups | jq -r '.backups[0].id')
pack=$(find "$REPO/p" -name '*.f' -size +500k -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
cp "$pack" "$WORK/pack"
check "and one of another" ask backup "$V/b.img" --wait --quiet
dd if=/dev/zero of="$pack" bs=64 seek=1000 count=1 conv=notrunc status=none
expect "verify finds damage" 15 'damage' -- ask verify --wait
O=$(askj operations --all | jq -r '[.operations[] | select(.kind == "verify")][0].id')
expect "describe shows what is affected" 0 "Damaged +snapferry@testnode:$V/a.img, snapshot [0-9a-f]+" \
    -- env COLUMNS=400 "$SNAPFERRY" describe "$O" --runtime-dir "$RUN" --state-dir "$STATE"
volumes() { askj volumes | jq -c '[.volumes | sort_by(.name)[] | {(.name | sub(".*/"; "")): .state}] | add'; }
same "what has no whole backup left is not protected" "$(volumes)" '{"a.img":"unprotected","b.img":"protected"}'
expect "explain says why" 0 'Protected +NO: no backups are left.*is damaged in repository' -- ask explain "$V/a.img"
expect "the backup says so" 0 'not whole in the repository since .*damaged' -- ask backups
expect "status names it" 3 "1 snapshot of a backup is damaged: $A" -- env COLUMNS=400 "$SNAPFERRY" status --check \
    --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
cp "$WORK/pack" "$pack"
check "whole again: verify" ask verify --wait --quiet
same "... and all are protected" "$(volumes)" '{"a.img":"protected","b.img":"protected"}'
check "... and nothing is a problem" ask status --check
stops "the daemon stops"
explain_failure
finish
