#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The file system of the cache directory is full: what fails says so, and what to do; a verification that could not read
# the index says nothing of how much the repository holds; with room everything goes on.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon and a full file system"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 4 1
daemon_setup
config_class gold "$V" 'retries = 0'
mount -t tmpfs -o size=8m,mode=755 tmpfs "$CACHE" || exit 1
at_exit "umount -l '$CACHE'"
[ "$MOVER_USER" = root ] || chown "$MOVER_USER" "$CACHE"
starts "the daemon starts"
check "a backup while there is room" ask backup "$V/a.img" --wait --quiet
check "a verification while there is room" ask verify main --wait --quiet
stored() { askj status | jq -r '.repositories[].stored'; }
before=$(stored)
head -c 64M /dev/zero >"$CACHE/ballast" 2>/dev/null
expect "a backup fails for lack of space, and says where to make room" 18 'free space on the file system of the cache' \
    -- ask backup "$V/a.img" --wait --quiet
expect "a verification, too" 18 'space' -- ask verify main --wait --quiet
same "how much the repository holds stays known" "$(stored)" "$before"
rm "$CACHE"/ballast*
check "with room it succeeds" ask verify main --wait --quiet
check "so does a backup" ask backup "$V/a.img" --wait --quiet
stops "the daemon stops"
explain_failure
finish
