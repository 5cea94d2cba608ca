#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The installed service with an image of Ceph: what uses the cluster runs in units outside of its sandbox, and the
# mover, which has no network, reads from one of them. (MS-01, CF-08)
. "$(dirname "$0")/../service-lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_container "the installed service with Ceph"
if ! rbd_cluster vms; then
    skip "the installed service with Ceph" "its programs could not be fetched (tests/deps.sh)"
    finish
fi
service_install || { fail "make install" "$(cat "$WORK/install.log")"; finish; }
install -m 755 "$WORK/bin/snapferry-rbd" $OPT/libexec/snapferry/snapferry-rbd
repository_make || { fail "a repository"; finish; }
rbd create -s 64M vms/web1
rbd_io vms/web1 w:1048576:62914560
config_service 'changed-blocks = auto'
rbd_class 'vms/*' 'read-limit = 8MiB'
expect "the configuration is accepted" 0 -- "$SNAPFERRY" check-config
systemctl start $UNIT || { fail "the service starts"; finish; }
until_true 30 answers
rbd export --no-progress vms/web1 - >"$WORK/now"
id=$(submit vms/web1)
serving() {
    unit=$(systemctl list-units --plain --no-legend 'snapferry-serve-*' | sed -n '/running/ { s/ .*//p; q }')
    [ -n "$unit" ]
}
until_true 30 serving
check "a unit serves the snapshot" serving
check "in a cgroup of its own, not that of the service" \
    grep -q "^.*/$unit$" "/proc/$(systemctl show -P MainPID "$unit")/cgroup"
systemctl restart $UNIT
until_true 30 answers
same "the service is restarted: the backup is completed" "$(wait_state "$id" Completed 120)" Completed
restored() {
    sf "$REPO" restore "$(doc "$id" | jq -r '.operations[0].result.snapshotID')" "$WORK/restored" --force --quiet &&
        cmp "$WORK/restored" "$WORK/now"
}
check "bit for bit" restored
gone() { ! systemctl list-units --plain --no-legend --all 'snapferry-serve-*' | grep -q .; }
check "and its unit ends with the mover" until_true 30 gone
rbd_io vms/web1 w:0:65536
rbd export --no-progress vms/web1 - >"$WORK/now"
id=$(submit vms/web1)
same "the next one reads what has changed" \
    "$(wait_state "$id" Completed 120) $(doc "$id" | jq -r '.operations[0].result.cbtSource')" "Completed rbd"
check "bit for bit" restored
until_true 30 gone
# A restore to an image: the mover writes to a unit, and goes on over a restart of the service.
R=$(askj restore "$id/vms/web1" vms/web2 --from repository 2>/dev/null | jq -r .restore)
until_true 30 serving
check "a unit serves the target" serving
systemctl restart $UNIT
until_true 30 answers
same "a restore to a new image is completed" "$(wait_state "$R" Completed 120)" Completed
check "bit for bit" cmp <(rbd export --no-progress vms/web2 -) "$WORK/now"
rbd_io vms/web2 w:0:65536
R=$(askj restore "$id/vms/web1" vms/web2 --differential 2>/dev/null | jq -r .restore)
same "and into one that exists" "$(wait_state "$R" Completed 120)" Completed
check "bit for bit" cmp <(rbd export --no-progress vms/web2 -) "$WORK/now"
# From the native snapshot: a step of the service, in its sandbox, reads from a unit and writes to another.
R=$(askj restore "$id/vms/web1" vms/web3 --from native 2>/dev/null | jq -r .restore)
same "from the native snapshot" "$(wait_state "$R" Completed 120)" Completed
check "bit for bit" cmp <(rbd export --no-progress vms/web3 -) "$WORK/now"
until_true 60 gone
same "nothing runs any more" \
    "$(systemctl list-units --plain --no-legend --all 'snapferry-run-*' 'snapferry-serve-*')" ""
finish
