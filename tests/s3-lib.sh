# SPDX-License-Identifier: GPL-2.0-or-later
# S3 services for tests, after tests/lib.sh.

# s3_service NAME PROGRAM [ARGUMENTS]: starts a service, which writes its port into a file. Sets $port.
s3_service() {
    local name=$1 i
    shift
    "$@" >"$WORK/$name.log" 2>&1 &
    disown $!
    at_exit "kill -KILL $!"
    for i in $(seq 600); do
        [ -s "$WORK/$name.port" ] && break
        kill -0 $! 2>/dev/null || break
        sleep 0.05
    done
    port=$(cat "$WORK/$name.port" 2>/dev/null) || { fail "$name starts" "$(tail -n 5 "$WORK/$name.log")"; finish; }
}
# Swift, of Debian, with the bucket "bucket" and signatures that are verified. With certificate and key: TLS.
swift_service() { # NAME [CERTIFICATE KEY]
    local name=$1 scheme=http
    shift
    s3_service "$name" /usr/bin/python3 tests/tools/swift-s3.py "$WORK/$name" "$WORK/$name.port" "$@"
    [ $# -eq 0 ] || scheme=https
    endpoint=$scheme://127.0.0.1:$port
    s3_request PUT "$endpoint/bucket" || { fail "a bucket is made" "$(tail -n 5 "$WORK/$name.log")"; finish; }
}
# Ceph's object store with a monitor and a store in memory, of which tests/deps.sh fetches the programs; the user and
# the bucket are as swift_service() has them. A cluster of one needs no manager: nobody asks for its statistics.
radosgw_service() { # NAME; false: the programs are not there
    local w=$WORK/$1 root=${BUILD:-build}/ceph lib libs mon i
    [ -x "$root/usr/bin/radosgw" ] || return 1
    lib=$(echo "$(realpath "$root")"/usr/lib/*-linux-gnu)
    libs=$lib:$lib/ceph:$(echo "$(realpath "$root")"/lib/*-linux-gnu)
    mkdir -p "$w/mon" "$w/osd" "$w/run"
    read -r mon port < <(/usr/bin/python3 -c 'import socket
s = [socket.socket(), socket.socket()]
for one in s: one.bind(("127.0.0.1", 0))
print(*[one.getsockname()[1] for one in s])')
    cat >"$w/ceph.conf" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:127.0.0.1:$mon]
mon_initial_members = a
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
keyring = $w/keyring
run_dir = $w/run
crash_dir = $w/run
admin_socket =
pid_file =
log_file = $w/\$name.log
log_to_stderr = false
erasure_code_dir = $lib/ceph/erasure-code
plugin_dir = $lib/ceph
osd_class_dir = $lib/rados-classes
osd_objectstore = memstore
memstore_device_bytes = 2147483648
osd_crush_chooseleaf_type = 0
osd_crush_update_on_start = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
mon_osd_min_in_ratio = 0
mon_data = $w/mon
osd_data = $w/osd
rgw_data = $w/rgw
rgw_frontends = beast endpoint=127.0.0.1:$port
rgw_dns_name = localhost
END
    ours() { LD_LIBRARY_PATH=$libs "$root/usr/bin/$1" "${@:2}" >>"$w/out" 2>&1; }
    run() { ours "$1" -c "$w/ceph.conf" "${@:2}"; }
    serve() {
        LD_LIBRARY_PATH=$libs "$root/usr/bin/$1" -c "$w/ceph.conf" "${@:2}" -f >>"$w/out" 2>&1 &
        disown $!
        at_exit "kill -KILL $!"
    }
    key() { ours ceph-authtool "$w/keyring" --gen-key -n "$@"; }
    ours ceph-authtool --create-keyring "$w/keyring" &&
        key mon. --cap mon 'allow *' &&
        key osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' &&
        key client.rgw.a --cap mon 'allow rw' --cap osd 'allow rwx' &&
        ours monmaptool --create --fsid "$(sed -n 's/^fsid = //p' "$w/ceph.conf")" \
            --addv a "[v2:127.0.0.1:$mon]" "$w/monmap" &&
        run osdmaptool --createsimple 1 "$w/osdmap" &&
        run ceph-mon -i a --mkfs --monmap "$w/monmap" --osdmap "$w/osdmap" &&
        serve ceph-mon -i a &&
        run ceph-osd -i 0 --mkfs --osd-uuid "$(cat /proc/sys/kernel/random/uuid)" &&
        serve ceph-osd -i 0 &&
        run radosgw-admin -n client.rgw.a user create --uid=t --display-name=t --access-key=test:tester \
            --secret-key=testing &&
        serve radosgw -n client.rgw.a ||
        { fail "radosgw starts" "$(tail -n 5 "$w"/out "$w"/*.log)"; finish; }
    endpoint=http://127.0.0.1:$port
    for i in $(seq $((100 * ${PATIENCE:-1}))); do
        curl -s -o /dev/null --noproxy '*' "$endpoint/" && break
        sleep 0.2
    done
    s3_request PUT "$endpoint/bucket" || { fail "radosgw has a bucket" "$(tail -n 5 "$w"/out "$w"/*.log)"; finish; }
}
s3_request() { /usr/bin/python3 tests/tools/s3-request.py "$@"; }
s3_names() { # PREFIX: the keys below it
    s3_request GET "$endpoint/bucket?list-type=2&prefix=$1" | grep -o '<Key>[^<]*' | sed 's/<Key>//'
}
# The file of credentials that swift_service() knows.
secret "$WORK/s3-keys" <<'END'
# of the tests
access-key = test:tester
secret-key = testing
END
# From now on the command uses the repositories below $WORK through S3, by the service of the project's own
# (s3-faults.py), where they are the same files: what looks into the directories, ages or damages them works as before.
through_s3() { # [tls]
    local scheme=http
    if [ $# -gt 0 ]; then
        scheme=https
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
            -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
        export S3_CA=$WORK/cert.pem
        set -- "$WORK/cert.pem" "$WORK/key.pem"
    fi
    s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK" "$@"
    export S3_TREE=$WORK S3_CONF=$WORK/through S3_SNAPFERRY=$SNAPFERRY S3_ENDPOINT=$scheme://127.0.0.1:$port
    mkdir -p "$S3_CONF/conf.d"
    printf '[daemon]\nnode-name = n1\n' >"$S3_CONF/snapferry.ini"
    printf 'access-key = a\nsecret-key = b\n' | secret "$S3_CONF/keys"
    secret "$S3_CONF/password" <"$WORK/password"
    SNAPFERRY=$(realpath tests/tools/through-s3.sh)
}
fault() { curl -s -k --noproxy '*' "$S3_ENDPOINT/$1"; } # PATH: of s3-faults.py
