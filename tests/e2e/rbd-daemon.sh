#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver rbd under the daemon, on a real cluster of Ceph: images are backed up in full, then by what has changed,
# native snapshots are retained and pruned, kills of the daemon and removals by others leave nothing and lose nothing.
# (CF-08..CF-10, MS-09, RS-12, RS-21)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "driver rbd under the daemon"
rbd_need vms
rbd_beside_daemon
rbd create -s 64M vms/web1
rbd create -s 16M vms/db1
rbd image-meta set vms/db1 snapferry.tag night >/dev/null
rbd_io vms/web1 w:1048576:20971520 w:50331648:1048576
rbd_io vms/db1 w:0:4194304
daemon_setup 'changed-blocks = auto' 'verify-sample = 100' 'retries = 2' || { fail "setup"; finish; }
checks() { "$WORK/bin/snapferry" check-config --config-dir "$CONF"; }
rbd_class web1
expect "match: what is no image" 2 '50-ceph.ini:3:.*POOL/IMAGE' -- checks
rbd_class 'vms/*' 'backup-option.keyring = /etc/x'
expect "an option that is none" 2 'backup-option.keyring' -- checks
rbd_class 'vms/*' 'backup-read-only = no'
expect "a writable intermediate" 2 'neither clones nor overlays' -- checks
rbd_class 'vms/web* tag:night' 'snapshots-to-retain = 2'
expect "the class is accepted" 0 -- checks
starts "the daemon starts"
op() { doc "$1" | jq -rc ".operations[0] | $2"; }
# restored BACKUP FILE
restored() {
    sf "$REPO" restore "$(op "$1" .result.snapshotID)" "$WORK/restored" --force --quiet && cmp "$WORK/restored" "$2"
}
kept() { rbd snap ls vms/web1 --format json | jq -r '.[].name | select(startswith("snapferry"))' | wc -l; }
tags() { rbd image-meta ls "vms/$1" --format json | jq -r 'keys[] | select(startswith("snapferry.native"))' | wc -l; }
export_now() { rbd export --no-progress vms/web1 - >"$WORK/now"; }

both() { [ "$(askj volumes | jq '.volumes | length')" = 2 ]; }
until_true 20 both
same "its volumes" "$(askj volumes | jq -r '.volumes[].name' | sort | xargs)" "vms/db1 vms/web1"
export_now
id=$(submit vms/web1)
same "the first backup reads everything" \
    "$(wait_state "$id" Completed 90) $(op "$id" .fullReason)" "Completed no-parent"
check "bit for bit" restored "$id" "$WORK/now"
check "but what holds nothing" test "$(op "$id" .result.readBytes)" -lt $((40 << 20))
same "crash-consistent, by the driver" \
    "$(sf "$REPO" cat latest/volume.json | jq -r .crashConsistent) $(op "$id" .volume)" "true vms/web1"
rbd_io vms/web1 w:2097152:65536 w:66060288:1048576 d:50331648:524288
export_now
id=$(submit vms/web1)
same "the second one reads what has changed" "$(wait_state "$id" Completed 90) $(op "$id" .result.cbtSource)" \
    "Completed rbd"
check "a few MiB of it" test "$(op "$id" .listedBytes)" -le $((6 << 20))
check "bit for bit" restored "$id" "$WORK/now"
check "the command restores it by its name" ask restore "$id/vms/web1" "$WORK/by-name" --from repository --wait
check "as it was" cmp "$WORK/by-name" "$WORK/now"
expect "not from its native snapshot" 16 'cannot be restored from its native snapshot' -- \
    ask restore "$id/vms/web1" "$WORK/native" --from native --wait
check "which is no hindrance" ask restore "$id/vms/web1" "$WORK/native" --wait
check "as it was" cmp "$WORK/native" "$WORK/now"
for i in 1 2; do
    rbd_io vms/web1 "w:$((i * 4))194304:4096"
    id=$(submit vms/web1)
    wait_state "$id" Completed 90 >/dev/null
done
two() { [ "$(kept)" -eq 2 ] && [ "$(tags web1)" -eq 2 ]; }
until_true 20 two
same "two native snapshots are retained" "$(kept) $(tags web1)" "2 2"

# Another tool removes them: a full read, and nothing is left of them.
for snap in $(rbd snap ls vms/web1 --format json | jq -r '.[].name | select(startswith("snapferry"))'); do
    rbd snap rm --no-progress "vms/web1@$snap"
done
export_now
id=$(submit vms/web1)
same "and the next backup reads everything" "$(wait_state "$id" Completed 90)" Completed
check "with the reason ($(op "$id" .fullReason))" \
    eval '[[ $(op "$id" .fullReason) =~ parent-lost|base-lost|no-parent ]]'
check "bit for bit" restored "$id" "$WORK/now"
same "nothing is left of what others removed" "$(kept) $(tags web1)" "1 1"

# One loses its tag: it is not recognized any more, and its record stays as long as it is there (RS-11).
snap=$(rbd snap ls vms/web1 --format json | jq -r '.[].name | select(startswith("snapferry"))')
tag=$(rbd image-meta ls vms/web1 --format json | jq -r 'keys[] | select(startswith("snapferry.native"))')
value=$(rbd image-meta get vms/web1 "$tag")
alias=${snap#snapferry-}
recorded() { sql "SELECT state FROM natives WHERE id = '$alias'"; }
rbd image-meta rm vms/web1 "$tag" >/dev/null
check "scan" ask scan --wait --quiet
until_true 20 eval '[ "$(recorded)" = missing ]'
for _ in 1 2; do
    ask native prune --quiet 2>/dev/null
    ask scan --wait --quiet
done
same "a native snapshot without its tag stays recorded" "$(recorded) $(kept)" "missing 1"
expect "which is a problem, with what to do" 3 'does not have the tag.*|rbd snap rm' -- ask status --check
rbd image-meta set vms/web1 "$tag" "$value" >/dev/null
check "scan" ask scan --wait --quiet
until_true 20 eval '[ "$(recorded)" = present ]'
same "with the tag it is what it was" "$(recorded)" present

# The daemon is killed while a mover reads: that goes on, the server with it.
rbd_io vms/web1 w:0:67108864
export_now
config_add 60-slow '[mover]
read-limit = 8MiB'
check "a slow mover" ask reload --wait --quiet
id=$(submit vms/web1)
reads() { [ "$(op "$id" .state)" = Running ]; }
until_true 30 reads
sleep 1
daemon_kill
starts "killed during a backup, the daemon starts again"
same "the backup is completed" "$(wait_state "$id" Completed 120)" Completed
same "by the same mover" "$(op "$id" '.attempts // [] | length')" 0
check "bit for bit" restored "$id" "$WORK/now"
# The server of a mover dies.
rbd_io vms/web1 w:0:67108864
export_now
id=$(submit vms/web1)
servers() { pgrep -f "snapferry-rbd .*$ceph_dir/ceph.conf.* serve"; }
served() { reads && servers; }
until_true 30 served
sleep 1 # the mover is at it
kill -KILL "$(servers)"
same "its server is killed: the backup fails" "$(wait_state "$id" Failed 120)" Failed
check "with the reason" grep -q 'NBD' <<<"$(doc "$id")"
id=$(submit vms/web1)
same "the next one has another server" "$(wait_state "$id" Completed 120)" Completed
check "bit for bit" restored "$id" "$WORK/now"
rm "$CONF/conf.d/60-slow.ini"
check "the limit is taken off" ask reload --wait --quiet

# The image is renamed, and a canceled backup leaves nothing.
rbd rename vms/web1 vms/web9
renamed() { askj volumes | jq -e '.volumes[] | select(.name == "vms/web9")'; }
until_true 30 renamed
id=$(submit vms/web9)
same "after a rename it is the same volume" "$(wait_state "$id" Completed 90) $(op "$id" .result.cbtSource)" \
    "Completed rbd"
rbd rename vms/web9 vms/web1

rbd_class 'vms/web* tag:night' 'snapshots-to-retain = 0' 'changed-blocks = no'
check "reload: nothing is kept" ask reload --wait --quiet
id=$(submit vms/db1)
same "a volume by its label" "$(wait_state "$id" Completed 90)" Completed
until_true 30 eval '[ "$(tags db1)" -eq 0 ]'
same "of which nothing stays" "$(tags db1) $(rbd snap ls vms/db1 | wc -l)" "0 0"
stops "the daemon stops"
same "no server is left" "$(pgrep -fc "snapferry-rbd .*$ceph_dir/ceph.conf.* serve")" 0
finish
