#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The installed service where no system bus is to be had when it starts: what needs units works all the same, over
# systemd's own socket. (MS-01, CF-45)
. "$(dirname "$0")/../service-lib.sh"
need_container "the service without a system bus"
service_install || { fail "make install" "$(cat "$WORK/install.log")"; finish; }
fs_make xfs xfs 320 || exit 1
repository_make || { fail "a repository"; finish; }
mkdir "$WORK/xfs/img"
for i in 1 2 3 4; do image "$WORK/xfs/img/$i.img" 2 $i; done
config_service
config_class img "$WORK/xfs/img" 'snapshots-to-retain = 1'
config_add 60-job "[job \"nightly\"]
volumes = class:img
on-calendar = *-*-* 02:00"
at_exit "systemctl start dbus.socket dbus.service"
systemctl stop dbus.socket dbus.service
expect "there is no bus" 1 -- busctl --system list
check "the service starts" systemctl start snapferryd.socket snapferryd.service
check "it says how movers run" until_true 20 eval \
    'journalctl -u $UNIT --no-pager -o cat | grep -q "movers, hooks and plugins run as units of systemd"'
expect "a backup completes" 0 -- ask backup --job nightly --wait --quiet
check "its movers had units" eval 'journalctl --no-pager -o cat _SYSTEMD_SLICE=snapferry.slice | grep -q .'
expect "the daemon has the job" 0 'nightly' -- ask jobs
same "nothing is a problem" "$(askj status | jq -c .problems)" "[]"

# ---- the bus comes and goes while it runs ----
systemctl start dbus.socket dbus.service
check "with a bus again: a backup" ask backup --job nightly --wait --quiet
systemctl stop dbus.socket dbus.service
check "and without it: a backup" ask backup --job nightly --wait --quiet
systemctl start dbus.socket dbus.service
check "after a restart: a backup" eval 'systemctl restart $UNIT && ask backup --job nightly --wait --quiet'

explain_service 120
finish
