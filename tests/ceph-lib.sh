# SPDX-License-Identifier: GPL-2.0-or-later
# A cluster of Ceph for tests, after tests/lib.sh: a monitor and a store in memory, of which tests/deps.sh fetches the
# programs (CEPH_ROOT, set before: where they are). One node needs no manager: nobody asks for its statistics.
: "${CEPH_ROOT=$(realpath "${BUILD:-build}")/ceph}" "${RBD_PROGRAM=$(realpath "${BUILD:-build}")/snapferry-rbd}"
CEPH_LIB=$(echo "$CEPH_ROOT"/usr/lib/*-linux-gnu)
CEPH_LIBS=$CEPH_LIB:$CEPH_LIB/ceph:$(echo "$CEPH_ROOT"/lib/*-linux-gnu)

# ceph_cluster DIR [LINE]...: its configuration and first keys; false: the programs are not there. Then ceph_key NAME
# OPTION... for each user, and ceph_start. ceph_failed ends the test with what Ceph's programs have said.
ceph_cluster() {
    ceph_dir=$1
    [ -x "$CEPH_ROOT/usr/bin/ceph-mon" ] || return 1
    mkdir -p "$ceph_dir/mon" "$ceph_dir/osd" "$ceph_dir/run"
    ceph_port=$(/usr/bin/python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    cat >"$ceph_dir/ceph.conf" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:127.0.0.1:$ceph_port]
mon_initial_members = a
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
keyring = $ceph_dir/keyring
run_dir = $ceph_dir/run
crash_dir = $ceph_dir/run
admin_socket =
pid_file =
log_file = $ceph_dir/\$name.log
log_to_stderr = false
erasure_code_dir = $CEPH_LIB/ceph/erasure-code
plugin_dir = $CEPH_LIB/ceph
osd_class_dir = $CEPH_LIB/rados-classes
osd_objectstore = memstore
memstore_device_bytes = 2147483648
osd_crush_chooseleaf_type = 0
osd_crush_update_on_start = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
mon_osd_min_in_ratio = 0
mon_data = $ceph_dir/mon
osd_data = $ceph_dir/osd
$(printf '%s\n' "${@:2}")
END
    ceph_tool ceph-authtool --create-keyring "$ceph_dir/keyring" >>"$ceph_dir/out" 2>&1 || ceph_failed
    ceph_key mon. --cap mon 'allow *'
    ceph_key osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
}
ceph_failed() {
    fail "Ceph starts" "$(tail -n 5 "$ceph_dir"/out "$ceph_dir"/*.log)"
    finish
}
ceph_tool() { LD_LIBRARY_PATH=$CEPH_LIBS "$CEPH_ROOT/usr/bin/$1" "${@:2}"; }
ceph_run() { ceph_tool "$1" -c "$ceph_dir/ceph.conf" "${@:2}" >>"$ceph_dir/out" 2>&1 || ceph_failed; }
ceph_serve() {
    LD_LIBRARY_PATH=$CEPH_LIBS "$CEPH_ROOT/usr/bin/$1" -c "$ceph_dir/ceph.conf" "${@:2}" -f >>"$ceph_dir/out" 2>&1 &
    disown $!
    at_exit "kill -KILL $!"
}
ceph_key() {
    ceph_tool ceph-authtool "$ceph_dir/keyring" --gen-key -n "$@" >>"$ceph_dir/out" 2>&1 || ceph_failed
}
ceph_start() {
    ceph_tool monmaptool --create --fsid "$(sed -n 's/^fsid = //p' "$ceph_dir/ceph.conf")" \
        --addv a "[v2:127.0.0.1:$ceph_port]" "$ceph_dir/monmap" >>"$ceph_dir/out" 2>&1 || ceph_failed
    ceph_run osdmaptool --createsimple 1 "$ceph_dir/osdmap"
    ceph_run ceph-mon -i a --mkfs --monmap "$ceph_dir/monmap" --osdmap "$ceph_dir/osdmap"
    ceph_serve ceph-mon -i a
    ceph_run ceph-osd -i 0 --mkfs --osd-uuid "$(cat /proc/sys/kernel/random/uuid)"
    ceph_serve ceph-osd -i 0
}
# Images (block devices) in such a cluster. False: the programs are not there. A client that does not answer is dropped
# after RBD_WATCH_S; the kernel asks only each 5 s.
rbd_cluster() { # POOL...
    [ -x "$CEPH_ROOT/usr/bin/rbd" ] && ceph_cluster "$WORK/ceph" "osd_pool_default_pg_num = 8" \
        "osd_pool_default_pgp_num = 8" "osd_client_watch_timeout = ${RBD_WATCH_S:-4}" \
        "objecter_tick_interval = 0.5" || return 1
    ceph_key client.admin --cap mon 'allow *' --cap osd 'allow *'
    ceph_key client.snapferry --cap mon 'profile rbd' --cap osd 'profile rbd'
    ceph_key client.other --cap mon 'profile rbd' --cap osd 'profile rbd pool=nix'
    ceph_start
    # As the package installs it, with the libraries where they are here.
    mkdir -p "$WORK/bin"
    cat >"$WORK/bin/snapferry-rbd" <<END
#!/bin/sh
LD_LIBRARY_PATH=$CEPH_LIBS exec $RBD_PROGRAM "\$@"
END
    chmod 755 "$WORK/bin/snapferry-rbd"
    export SNAPFERRY_RBD=$WORK/bin/snapferry-rbd
    LD_LIBRARY_PATH=$CEPH_LIBS timeout 60 /usr/bin/python3 tests/tools/rbd.py "$ceph_dir/ceph.conf" pools "$@" \
        >>"$ceph_dir/out" 2>&1 || { fail "Ceph has pools" "$(tail -n 5 "$ceph_dir/out")"; finish; }
    RBD_CALL=("$TOOLS/driver_call" --driver rbd --option "ceph-config=$ceph_dir/ceph.conf")
}
# rbd_need POOL...: such a cluster, or the test is skipped. rbd_call ARGUMENT...: a call of the driver in the cluster;
# call: as the user snapferry, of a class with the images of pool vms.
rbd_need() {
    if ! rbd_cluster "$@"; then
        skip "images of Ceph" "its programs could not be fetched (tests/deps.sh)"
        finish
    fi
    export SNAPFERRY_NO_SYSTEMD=1 # only snapferryd can be what a unit executes
}
rbd_call() { "${RBD_CALL[@]}" "$@"; }
call() { rbd_call --option ceph-user=snapferry --match 'vms/*' "$@"; }
# The daemon and what it starts in one directory with snapferry-rbd; after tests/daemon-lib.sh. rbd_class WORDS LINE...:
# its storage class.
rbd_beside_daemon() {
    cp "$SNAPFERRYD" "${SNAPFERRYD%d}-mover" "$SNAPFERRY" "$WORK/bin/"
    SNAPFERRYD=$WORK/bin/snapferryd
}
rbd_class() {
    config_add 50-ceph "[storage-class \"ceph\"]
driver = rbd
match = $1
backup-option.ceph-config = $ceph_dir/ceph.conf
backup-option.ceph-user = snapferry
$(printf '%s\n' "${@:2}")"
}
# Ceph's own command.
rbd() {
    LD_LIBRARY_PATH=$CEPH_LIBS timeout 60 "$CEPH_ROOT/usr/bin/rbd" -c "$ceph_dir/ceph.conf" "$@" 2>>"$ceph_dir/out"
}
# rbd_io IMAGE w:START:LENGTH|d:START:LENGTH...: writes random bytes, discards; by a client that stays until the end.
rbd_io() {
    LD_LIBRARY_PATH=$CEPH_LIBS timeout 60 /usr/bin/python3 tests/tools/rbd.py "$ceph_dir/ceph.conf" io "$@"
}
# What else tests/tools/rbd.py does: ceph_does VERB ARGUMENT...
ceph_does() {
    LD_LIBRARY_PATH=$CEPH_LIBS timeout 60 /usr/bin/python3 tests/tools/rbd.py "$ceph_dir/ceph.conf" "$@"
}
# ceph_full yes|no: the cluster takes no more data, or some again.
ceph_full() {
    local n flags ratios=(0.95 0.90 0.85) kinds=(full backfillfull nearfull)
    [ $1 = no ] || ratios=(0.003 0.002 0.001)
    for n in $([ $1 = no ] && echo 0 1 2 || echo 2 1 0); do
        ceph_does mon "{\"prefix\": \"osd set-${kinds[n]}-ratio\", \"ratio\": ${ratios[n]}}" >>"$ceph_dir/out"
    done
    for ((n = 0; n < 100; n++)); do
        flags=$(ceph_does mon '{"prefix": "osd dump", "format": "json"}' | jq -r '.pools[0].flags_names')
        [[ ,$flags, == *,full,* ]] && [ $1 = yes ] && return
        [[ ,$flags, == *,full,* ]] || [ $1 = yes ] || return 0
        sleep 0.3
    done
    return 1
}
# rbd_hold IMAGE FILE: a client that writes until it is killed, as a virtual machine does; sets rbd_writer. rbd_let_go
# IMAGE: kills it, and waits until Ceph has dropped it.
rbd_hold() {
    rm -f "$2"
    LD_LIBRARY_PATH=$CEPH_LIBS /usr/bin/python3 tests/tools/rbd.py "$ceph_dir/ceph.conf" hold "$1" "$2" &
    rbd_writer=$!
    disown $rbd_writer
    at_exit "kill -KILL $rbd_writer 2>/dev/null"
    local n
    for ((n = 0; n < 200; n++)); do
        [ "$(wc -l 2>/dev/null <"$2")" -gt 3 ] 2>/dev/null && return
        sleep 0.1
    done
}
rbd_let_go() {
    local n
    kill -KILL $rbd_writer
    for ((n = 0; n < 200; n++)); do
        rbd status "$1" | grep -q 'Watchers: none' && return
        sleep 0.1
    done
}
