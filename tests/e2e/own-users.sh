#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Movers and plugins run as users of their own, not as root: the built-in mover (MS-01), tests that run as root
# otherwise, plugins of both kinds as one more user, and plugin-check by somebody who is not root (AP-21).
MOVER_USER=nobody PLUGIN_USER=backup # every Debian has them
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
here=$(realpath "$(dirname "$0")")
fs_make xfs xfs || exit 1
mkdir "$WORK/xfs/own" "$WORK/xfs/vm" "$WORK/xfs/img" "$WORK/xfs/archive"
image "$WORK/xfs/own/m.img" 24 3
image "$WORK/xfs/vm/a.img" 16 1
image "$WORK/xfs/img/b.img" 16 2
for f in own/m vm/a img/b; do cp "$WORK/xfs/$f.img" "$WORK/${f##*/}.orig"; done
chmod 600 "$WORK/xfs/own/m.img"
# A driver plugin that is not root needs the images and their directory, a mover plugin its store and what it reads:
# here the native snapshots of the driver plugin.
chown -R "$PLUGIN_USER" "$WORK/xfs/vm" "$WORK/xfs/img" "$WORK/xfs/archive"
for p in driver-dir mover-archive; do example_plugin $p "$WORK/$p"; done
for p in driver-dir mover-archive; do # each call leaves its user
    printf '#!/bin/bash\nid -un >>%s\nexec %s "$@"\n' "$WORK/xfs/archive/users" "$WORK/$p" >"$WORK/$p.told"
    chmod 755 "$WORK/$p.told"
done
daemon_setup 'retries = 0'
config_class own "$WORK/xfs/own" 'snapshots-to-retain = 1'
config_add 10-plugins "[plugin \"dir\"]
kind = driver
program = $WORK/driver-dir.told
user = $PLUGIN_USER
[plugin \"archive\"]
kind = mover
program = $WORK/mover-archive.told
user = $PLUGIN_USER
poll = 1s
[storage-class \"vm\"]
driver = plugin:dir
match = $WORK/xfs/vm/*.img
target = $WORK/xfs/vm/.snap
snapshots-to-retain = 1
[storage-class \"img\"]
driver = plugin:dir
match = $WORK/xfs/img/*.img
target = $WORK/xfs/img/.snap
mover = plugin:archive
keep-latest = 1"
printf 'store = %s\nstyle = run\n' "$WORK/xfs/archive" >"$WORK/mover-archive.conf"
check "the configuration is accepted" "$SNAPFERRY" check-config --config-dir "$CONF"
starts "the daemon starts"
not_root() { [ -s "$WORK/xfs/archive/users" ] && ! grep -vx "$PLUGIN_USER" "$WORK/xfs/archive/users"; }

# ---- the built-in mover ----
running "$WORK/xfs/own/m.img"
same "the mover is not root" "$(ps -o user= -p "$PID" | tr -d ' ')" "$MOVER_USER"
kill -CONT "$PID"
same "it reads an image that its user may not open" "$(wait_state "$A" Completed 60)" Completed
same "what it writes belongs to the repository's owner" "$(find "$REPO" ! -user "$MOVER_USER")" ""
restored_same "restored" "$A" "$WORK/xfs/own/m.img" "$WORK/m.orig" repository
check "verified" ask verify --wait --quiet
mkdir "$WORK/copy"
config_add 20-copy "[copy \"offsite\"]
path = $WORK/copy"
expect "a copy in a directory of root is a warning" 0 "user $MOVER_USER cannot write to $WORK/copy" -- \
    "$SNAPFERRY" check-config --config-dir "$CONF"
ask reload --wait --quiet
expect "and cannot be made" 20 'copy.*(ermission|ead-only)' -- ask copy offsite --wait
chown "$MOVER_USER" "$WORK/copy"
check "in one of the movers' user it is" ask copy offsite --wait --quiet
same "and belongs to it" "$(find "$WORK/copy" ! -user "$MOVER_USER")" ""
check "it is whole" sf "$WORK/copy" verify --quiet
rm "$CONF/conf.d/20-copy.ini"
ask reload --wait --quiet
check "deleted from the repository" ask delete "$A" --even-kept --wait --quiet

# ---- plugins ----
out=$(ask backup "$WORK/xfs/vm/a.img" --wait --json)
same "a driver plugin that is not root: Completed" "$(result state <<<"$out")" Completed
B=$(result id <<<"$out")
restored_same "restored" "$B" "$WORK/xfs/vm/a.img" "$WORK/a.orig" repository
check "deleted" ask delete "$B" --even-kept --wait --quiet
same "with its native snapshot" "$(find "$WORK/xfs/vm/.snap" -type f)" ""
for style in run start; do
    printf 'store = %s\nstyle = %s\n' "$WORK/xfs/archive" "$style" >"$WORK/mover-archive.conf"
    out=$(ask backup "$WORK/xfs/img/b.img" --wait --json)
    same "a mover plugin that is not root, style $style: Completed" "$(result state <<<"$out")" Completed
    B=$(result id <<<"$out")
    expect "style $style: verified" 0 '1 backup intact' -- ask verify plugin:archive --wait
    check "style $style: its log" eval 'ask logs "$B" | grep -q "backup of"'
done
same "the first one has expired" "$(find "$WORK/xfs/archive/archives" -name '*.json' | wc -l)" 1
same "what it stores belongs to it" "$(find "$WORK/xfs/archive/archives" ! -user "$PLUGIN_USER")" ""
check "deleted" ask delete "$B" --even-kept --wait --quiet
check "no call was made as another user" not_root
stops "the end"

# ---- plugin-check by somebody who is not root ----
mkdir "$WORK/user" && chown "$PLUGIN_USER" "$WORK/user"
as_user() { setpriv --reuid "$PLUGIN_USER" --regid "$(id -g "$PLUGIN_USER")" --clear-groups env HOME="$WORK/user" \
    TMPDIR="$WORK/user" SNAPFERRY_NO_SYSTEMD=1 "$@"; }
for style in run start; do
    printf 'store = %s\nstyle = %s\n' "$WORK/user/store" "$style" >"$WORK/mover-archive.conf"
    check "plugin-check of the mover, style $style" as_user "$SNAPFERRY" plugin-check "$WORK/mover-archive"
done
check "plugin-check of the driver" as_user "$SNAPFERRY" plugin-check "$WORK/driver-dir" volume="$WORK/xfs/vm/a.img" \
    match="$WORK/xfs/vm/*.img" target="$WORK/xfs/vm/.snap"

# ---- tests that run as root otherwise ----
for t in daemon-first daemon-cancel; do
    out=$(MOVER_USER=nobody bash "$here/$t.sh" 2>&1)
    same "$t with movers of an own user" "$(grep '^not ok' <<<"$out")" ""
    check "$t ran to its end" grep -q '^1\.\.' <<<"$out"
done
explain_failure
finish
