# SPDX-License-Identifier: GPL-2.0-or-later
# S3 services for tests, after tests/lib.sh.
. "${BASH_SOURCE[0]%/*}/ceph-lib.sh"

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
# Ceph's object store, of a cluster of ceph-lib.sh; the user and the bucket are as swift_service() has them.
radosgw_service() { # NAME; false: the programs are not there
    local w=$WORK/$1 port i
    [ -x "$CEPH_ROOT/usr/bin/radosgw" ] || return 1
    port=$(/usr/bin/python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    ceph_cluster "$w" "rgw_data = $w/rgw" "rgw_frontends = beast endpoint=127.0.0.1:$port" "rgw_dns_name = localhost" \
        "osd_pool_default_pg_num = 4" "osd_pool_default_pgp_num = 4" || return 1
    ceph_key client.rgw.a --cap mon 'allow rw' --cap osd 'allow rwx'
    ceph_start
    ceph_run radosgw-admin -n client.rgw.a user create --uid=t --display-name=t --access-key=test:tester \
        --secret-key=testing
    ceph_serve radosgw -n client.rgw.a
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
    opener
}
fault() { curl -s -k --noproxy '*' "$S3_ENDPOINT/$1"; } # PATH: of s3-faults.py
