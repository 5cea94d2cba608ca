#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Settings that could be given and did nothing: each works, or is refused with file and line (E.21 rule 12).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
mkdir "$WORK/xfs/vm" "$WORK/xfs/img"
chmod 755 "$WORK"
image "$WORK/xfs/img/a.img" 2 1
image "$WORK/xfs/vm/b.img" 2 2
daemon_setup 'log-level = info' 'cache-max = 8MiB'
config_class img "$WORK/xfs/img" 'snapshot-timeout = 7s'
starts "the daemon starts"
B=$(askj backup "$WORK/xfs/img/a.img" --wait | jq -r .id)
same "Completed" "$(state "$B")" Completed
check "log-level = info: a backup that succeeds is logged" grep -q ': Completed' "$LOG"
sed -i 's/^log-level = .*/log-level = error/' "$CONF/snapferry.ini"
check "reload" ask reload --wait --quiet
: >"$LOG"
ask backup "$WORK/xfs/img/a.img" --wait --quiet
same "log-level = error: nothing is logged of a backup that succeeds" "$(cat "$LOG")" ""
sed -i 's/^log-level = .*/log-level = info/' "$CONF/snapferry.ini"

# Refused, with file and line.
refused() { expect "$1" 2 "$2" -- "$SNAPFERRY" check-config --config-dir "$CONF"; }
config_class img "$WORK/xfs/img" 'backup-option.colour = blue'
refused "an option that the driver does not know" \
    'img.ini:[0-9]*: .*backup-option.colour has no effect with driver reflink'
config_class img "$WORK/xfs/img"
config_add own "[volume \"$WORK/xfs/img/a.img\"]
backup-option.colour = blue"
refused "also in a section of a volume" 'own.ini:2: .*backup-option.colour has no effect with driver reflink'
config_add own "[job \"colourful\"]
volumes = $WORK/xfs/img/a.img
backup-option.colour = blue"
refused "and of a job, for the drivers of its volumes" \
    'own.ini:3: .*backup-option.colour has no effect with driver reflink'
rm "$CONF/conf.d/own.ini"
config_add second "[storage-class \"second\"]
driver = reflink
match = $WORK/xfs/img/a*"
expect "of two classes that match one volume the other one is warned of, with file and line" 0 \
    'second.ini:3: warning: .*belongs to storage class "img", which comes first: .*/a.img' -- \
    "$SNAPFERRY" check-config --config-dir "$CONF" --quiet
check "and explain has the one that counts" eval 'ask reload --wait --quiet 2>/dev/null;
    ask explain "$WORK/xfs/img/a.img" | grep -q "^Storage class  *img,"'
rm "$CONF/conf.d/second.ini"
cat >"$WORK/driver" <<DRIVER
#!/bin/sh
if [ "\$1" = describe ]; then "$WORK/real" "\$@" | jq -c '. + {"max-retain": 2}'; else exec "$WORK/real" "\$@"; fi
DRIVER
example_plugin driver-dir "$WORK/real"
chmod 755 "$WORK/driver"
vm() {
    config_add vm "[plugin \"dir\"]
kind = driver
program = $WORK/driver
privileged = yes
[storage-class \"vm\"]
driver = plugin:dir
match = $WORK/xfs/vm/*.img
target = $WORK/xfs/vm/.snap
snapshots-to-retain = $1"
}
vm 2
check "as many as the storage of a plugin can hold" "$SNAPFERRY" check-config --config-dir "$CONF"
vm 3
refused "more than that" 'vm.ini:[0-9]*: .*snapshots-to-retain is 3, and the storage of plugin:dir holds 2'
rm "$CONF/conf.d/vm.ini"
clean "nothing is left behind" 8 "$WORK/xfs"
explain_failure
finish
