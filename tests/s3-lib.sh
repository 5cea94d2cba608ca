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
