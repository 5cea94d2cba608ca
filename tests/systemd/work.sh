#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The installed, sandboxed service does its work: clones in a volume's own directory, devices, hooks, both kinds of
# plugins, restores to files and devices, verification; what its units look like from outside. (MS-01, MS-02, MS-47,
# AP-21)
DERIVE_KEYS=1 # programs as users have them
. "$(dirname "$0")/../service-lib.sh"
need_container "the installed service at work"
service_install || { fail "make install" "$(cat "$WORK/install.log")"; finish; }
fs_make xfs xfs 320 || exit 1
repository_make || { fail "a repository"; finish; }
mkdir "$WORK/xfs/img" "$WORK/xfs/vm" "$WORK/xfs/arc" "$WORK/archive"
image "$WORK/xfs/img/a.img" 24 1; image "$WORK/xfs/vm/p.img" 8 2; image "$WORK/xfs/arc/q.img" 8 3
cp "$WORK/xfs/img/a.img" "$WORK/a.orig"; cp "$WORK/xfs/vm/p.img" "$WORK/p.orig"; cp "$WORK/xfs/arc/q.img" "$WORK/q.orig"
random_file "$WORK/disk" $((16 * MIB)) 4; truncate -s 16M "$WORK/disk2"
# Others use them as well.
free_loop() { for try in $(seq 60); do loop_device "$1" 2>/dev/null && return; sleep 1; done; false; }
disk=$(free_loop "$WORK/disk") && disk2=$(free_loop "$WORK/disk2") || { fail "loop devices"; finish; }
at_exit "losetup -d $disk $disk2"
install -m 755 examples/plugins/driver-dir examples/plugins/mover-archive "$WORK"
printf '%s\n' "store = $WORK/archive" 'style = run' >"$WORK/mover-archive.conf"
cat >"$WORK/hook" <<HOOK
#!/bin/sh
# What the daemon may not do, a hook may.
mkdir -p $WORK/mnt && mount -t tmpfs none $WORK/mnt && umount $WORK/mnt && mounted=yes
touch /etc/hook-was-here && written=yes
unit=\$(sed -n 's/.*\///; /service/p' /proc/self/cgroup | tail -n 1)
echo "\$1 mounted=\$mounted written=\$written \$unit \$(grep NoNewPrivs /proc/self/status | tr -d '\t')" >>$WORK/ran
HOOK
chmod 755 "$WORK/hook"
config_service 'sweep = 5s' # each asks the plugin for its volumes, in a unit of its own
config_class img "$WORK/xfs/img" "hook-pre-snapshot = $WORK/hook" "hook-post-snapshot = $WORK/hook" \
    'snapshots-to-retain = 1'
config_add 60-more "[storage-class \"disk\"]
driver = device
match = $disk
accept-inconsistent = yes
read-limit = 64MiB
[plugin \"dir\"]
kind = driver
program = $WORK/driver-dir
privileged = yes
[plugin \"archive\"]
kind = mover
program = $WORK/mover-archive
privileged = yes
poll = 1s
[storage-class \"vm\"]
driver = plugin:dir
match = $WORK/xfs/vm/*.img
target = $WORK/xfs/vm/.snap
[storage-class \"arc\"]
driver = reflink
match = $WORK/xfs/arc/*.img
mover = plugin:archive
snapshots-to-retain = 0"
expect "the configuration is accepted" 0 -- "$SNAPFERRY" check-config

# ---- the units ----
same "systemd-analyze verify has nothing to say" \
    "$(systemd-analyze verify --man=no /etc/systemd/system/snapferry*.s*[!d] 2>&1)" ""
check "systemctl start: exit code" systemctl start snapferryd.socket snapferryd.service
same "active" "$(show ActiveState)" active
check "it says what it does" grep -q '^Idle' <<<"$(show StatusText)"
level() { systemd-analyze security --no-pager "$@" 2>&1 | sed -n 's/.*exposure level for .*: \([0-9.]*\) .*/\1/p'; }
at_most() { [ -n "$1" ] && [ "$(tr -d . <<<"$1")" -le "$(tr -d . <<<"$2")" ]; } # both with one decimal
l=$(level $UNIT)
check "exposure of the running daemon: $l, at most 3.2" at_most "$l" 3.2

# ---- images: clone, hook, mover, restore, verify ----
out=$(ask backup "$WORK/xfs/img/a.img" --wait --json)
same "an image: Completed" "$(result state <<<"$out")" Completed
B=$(result id <<<"$out"); O=$(op_id "$B")
check "hooks are outside of the sandbox, in units of their own" \
    test "$(grep -c 'mounted=yes written=yes snapferry-run-.*\.service NoNewPrivs:0' "$WORK/ran")" -eq 2
same "restored from the native snapshot" \
    "$(ask restore "$B/$WORK/xfs/img/a.img" "$WORK/xfs/back.img" --from native --wait --quiet; echo $?)" 0
check "the same bytes" cmp "$WORK/a.orig" "$WORK/xfs/back.img"
mkdir -p /home/u
restored() { # NAME BACKUP VOLUME TARGET ORIGINAL
    expect "$1" 0 -- ask restore "$2/$3" "$4" --from repository --wait --quiet
    check "$1: the same bytes" cmp -n "$(stat -c %s "$5")" "$5" "$4"
}
restored "restored from the repository into /home" "$B" "$WORK/xfs/img/a.img" /home/u/back.img "$WORK/a.orig"
restored "into /var/tmp" "$B" "$WORK/xfs/img/a.img" /var/tmp/back.img "$WORK/a.orig"
rm -f /home/u/back.img /var/tmp/back.img "$WORK/xfs/back.img"
expect "where the system's own files are, nothing is restored" 20 'Read-only|read-only|not permitted' \
    -- ask restore "$B/$WORK/xfs/img/a.img" /usr/back.img --from repository --wait
expect "verify" 0 -- ask verify main --read-percent 100 --wait --quiet

# ---- the journal ----
check "snapferry logs: what the mover said" grep -q 'backup .* begins' <<<"$(ask logs "$O")"
check "and what the daemon says of its end" grep -q "): Completed" <<<"$(ask logs "$O")"
out=$(ask backup "$WORK/xfs/img/a.img" "$WORK/xfs/arc/q.img" --wait --json)
same "a backup of two volumes, one of them by a plugin: Completed" "$(result state <<<"$out")" Completed
ask logs "$(result id <<<"$out")" --json | tail -n 1 >"$WORK/merged"
same "snapferry logs BACKUP: the lines of all its operations" \
    "$(jq '[.lines[].operation | select(startswith("up-"))] | unique | length' "$WORK/merged")" 2
same "in the order of time" "$(jq '[.lines[].at_ns] | . == sort' "$WORK/merged")" true
check "journalctl OPERATION=" grep -q 'backup .* begins' <<<"$(journalctl --no-pager -o cat "OPERATION=$O")"
same "journalctl BACKUP= has both" "$(journalctl --no-pager -o json "BACKUP=$B" |
    jq -r '.SYSLOG_IDENTIFIER // empty' | grep ^snap | sort -u | tr '\n' ' ')" "snapferry-mover snapferryd "
same "journalctl VOLUME= has both" "$(journalctl --no-pager -o json "VOLUME=$WORK/xfs/img/a.img" |
    jq -r '.SYSLOG_IDENTIFIER // empty' | grep ^snap | sort -u | tr '\n' ' ')" "snapferry-mover snapferryd "
# What a node logs that is not asked for more: one line for the volume, one for the whole.
ended() { journalctl --no-pager -o cat -p info -t snapferryd "$1" | grep -cE "$2"; }
same "a line for the volume, with its name" \
    "$(ended "OPERATION=$O" "^$O \($WORK/xfs/img/a.img\): Completed, 24.0 MiB, [0-9.]+ MiB new, [0-9.]+ s$")" 1
same "a line for the backup" \
    "$(ended "BACKUP=$B" "^$B: Completed: 1 of 1 volume, 24.0 MiB, [0-9.]+ MiB new, [0-9.]+ s$")" 1
same "states are for debugging" "$(ended "BACKUP=$B" ' -> ')" 0

# ---- devices; the mover's unit ----
running "$disk"
M=$(unit_of "$O")
same "a device: its mover is a unit" "$(show MainPID "$M")" "$PID"
same "as its own user" "$(ps -o user:20= -p "$PID" | tr -d ' ')" snapferry-mover
check "described by its volume" grep -q "^snapferry $disk: $O of " <<<"$(show Description "$M")"
same "in snapferry.slice" "$(show Slice "$M")" snapferry.slice
check "systemctl status snapferry.slice shows it" grep -q "$PID" <<<"$(systemctl status --no-pager snapferry.slice)"
check "the limit on reading is on the unit" grep -q "$disk 67108864" <<<"$(show IOReadBandwidthMax "$M")"
check "it is stopped after the daemon" grep -qw snapferryd.service <<<"$(show Before "$M")"
check "and before what holds its repository" grep -q "$REPO" <<<"$(show RequiresMountsFor "$M")"
l=$(level "$M")
check "exposure of the running mover: $l, at most 1.6" at_most "$l" 1.6
l=$(level --offline=true "$(show FragmentPath "$M")")
check "and of the unit file that systemd wrote of its properties: $l" at_most "$l" 1.6
check "the daemon's status line counts it" until_true 10 eval 'grep -q "^1 backup running" <<<"$(show StatusText)"'
kill -CONT "$PID"
same "Completed" "$(wait_state "$A" Completed 60)" Completed
check "said to be inconsistent" grep -qi inconsistent <<<"$(ops "$A")$(doc "$A")"
restored "restored to a device" "$A" "$disk" "$disk2" "$WORK/disk"
check "the mover's unit is gone" until_true 5 eval '[ "$(show LoadState "$M")" = not-found ]'

# ---- plugins ----
out=$(ask backup "$WORK/xfs/vm/p.img" --wait --json)
same "a driver plugin: Completed" "$(result state <<<"$out")" Completed
restored "restored" "$(result id <<<"$out")" "$WORK/xfs/vm/p.img" "$WORK/xfs/vm/back.img" "$WORK/p.orig"
out=$(ask backup "$WORK/xfs/arc/q.img" --wait --json)
same "a mover plugin: Completed" "$(result state <<<"$out")" Completed
restored "restored by it" "$(result id <<<"$out")" "$WORK/xfs/arc/q.img" "$WORK/xfs/arc/back.img" "$WORK/q.orig"
rm -f "$WORK/xfs/arc/back.img"
printf '%s\n' "store = $WORK/archive" 'style = run' 'pause = 2' >"$WORK/mover-archive.conf"
B=$(submit "$WORK/xfs/arc/q.img"); O=$(op_id "$B")
check "while it runs it is a unit" until_true 10 eval \
    '[ -n "$(systemctl list-units --plain --no-legend --state=running "snapferry-plugin-run-*")" ]'
old=$(main_pid); kill -KILL "$old"
check "the daemon is killed, and is back" until_true 40 back "$old"
same "the plugin's operation completes" "$(wait_state "$B" Completed 30)" Completed
# Files of the journal that systemd leaves behind: those of units that went, and what an earlier daemon could not
# remove.
fields() { ls /run/systemd/units | grep '^log-extra-fields:snapferry-mover@'; }
check "nothing is left in /run/systemd/units of movers that ended" until_true 20 eval '[ -z "$(fields)" ]'
running "$disk"
touch '/run/systemd/units/log-extra-fields:snapferry-mover@up-before.service'
systemctl restart $UNIT
check "what was left of an earlier one goes" until_true 20 eval '[ "$(fields)" = "log-extra-fields:$(unit_of "$O")" ]'
kill -CONT "$PID"
same "Completed" "$(wait_state "$A" Completed 60)" Completed
check "and in the end there is none" until_true 20 eval '[ -z "$(fields)" ]'
same "no failed unit is left" "$(systemctl list-units --plain --no-legend --failed 'snapferry*')" ""
explain_service 120
finish
