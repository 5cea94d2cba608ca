#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The dialer of movers whose repository is in S3 (CF-53, MS-04, issue 15): the mover itself has no way into the network,
# the dialer makes its connections to the endpoints of the repository and of a copy and to the proxy, and ends with it.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "the daemon backs up to S3"
unset http_proxy https_proxy no_proxy HTTPS_PROXY NO_PROXY all_proxy ALL_PROXY
fs_make xfs xfs || exit 1
image "$WORK/xfs/a.img" 24 1
cp "$WORK/xfs/a.img" "$WORK/a.orig"
s3_service second /usr/bin/python3 tests/tools/s3-faults.py "$WORK/second.port"
second=$port
echo ok >"$WORK/mode"
: >"$WORK/seen"
s3_service proxy /usr/bin/python3 tests/tools/http-proxy.py "$WORK/proxy.port" "$WORK/mode" "$WORK/seen"
proxy=http://127.0.0.1:$port
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=s3.invalid -addext subjectAltName=DNS:s3.invalid \
    -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
mkdir "$WORK/tree"
s3_service tls /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tls.port" "$WORK/tree" "$WORK/cert.pem" "$WORK/key.pem"
tls=$port
s3_service first /usr/bin/python3 tests/tools/s3-faults.py "$WORK/first.port"
first=$port
config_main
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
far() { # ENDPOINT [LINE...]
    printf '[repository "far"]\ntype = s3\nendpoint = %s\nbucket = b\nprefix = x/\nmaintenance = no\n' "$1"
    printf '%s\n' "credentials = $WORK/s3-keys" "password-file = $WORK/password" "${@:2}"
}
look() { askj status | jq -r '.repositories[] | select(.name == "far") | '"$1"; }
is_up() { [ "$(look .up)" = true ]; }
down_because() { [[ $(look 'select(.up == false) | .why') =~ $1 ]]; } # TEXT
moved() { [ "$(doc "$1" | jq '.progress.done // .details.progress.done // 0')" -gt "$2" ]; }
moving() { # starts a backup: F, O, PID, DIALER; it is in the middle when this returns
    F=$(submit "$WORK/xfs/a.img")
    O=$(op_id "$F")
    until_true 60 moved "$O" 2000000 || fail "a backup is under way" "$(doc "$O")"
    PID=$(mover_pid "$O")
    DIALER=$(pgrep -P "$PID")
}
running() { [ -e "/proc/$1/stat" ] && ! grep -q ') Z ' "/proc/$1/stat"; }

# ---- by name ----
far "http://localhost:$first" >"$CONF/conf.d/11-far.ini"
config_class gold "$WORK/xfs" 'repository = far' 'write-limit = 4MiB' 'retries = 3'
config_add 70-second "[copy \"second\"]
repository = far
type = s3
endpoint = http://localhost:$second
bucket = b
prefix = y/
credentials = $WORK/s3-keys"
check "a repository" "$SF" --config-dir "$CONF" -r far repo create --quiet --splitter DYNAMIC-1M-BUZHASH
starts "the daemon starts" || { explain_failure; finish; }
check "the repository is available, by its name" until_true 60 is_up
moving
same "its mover has a child" "$(cat "/proc/$DIALER/comm")" snapferry-dial
same "with a filter of its own" "$(grep -E '^(Seccomp|NoNewPrivs|CapEff):' "/proc/$DIALER/status" | awk '{ print $2 }' |
    tr '\n' ' ')" "0000000000000000 1 2 "
same "which has no descriptor of the job" "$(find "/proc/$DIALER/fd" -type l -printf '%f\n' | awk '$1 > 2' | wc -l)" 1
check "it is no mover for those that look for movers" \
    [ "$(pgrep -f -- "snapferry-mover --socket .* $O\$" | tr '\n' ' ')" = "$PID " ]
kill -KILL "$DIALER"
same "without it the backup still ends" "$(wait_state "$F" Completed 120)" Completed
restored_same "and is whole" "$F" "$WORK/xfs/a.img" "$WORK/a.orig" repository
random_file "$WORK/xfs/a.img" 24M 5
cp "$WORK/xfs/a.img" "$WORK/b.orig"
moving
kill -KILL "$PID"
check "a mover that is killed takes it along" until_true 10 eval '! running "$DIALER"'
same "and its backup is run again" "$(wait_state "$F" Completed 120)" Completed
restored_same "which is whole" "$F" "$WORK/xfs/a.img" "$WORK/b.orig" repository
check "a copy to another endpoint" ask copy second --wait --quiet
check "there are no dialers without movers" until_true 10 eval '! pgrep -P 1 -x snapferry-dial >/dev/null'
stops "the daemon stops"

# ---- through a proxy ----
far "https://s3.invalid:$tls" "ca-file = $WORK/cert.pem" >"$CONF/conf.d/11-far.ini"
rm -f "$CONF/conf.d/70-second.ini"
check "a repository that only the proxy can reach" env "https_proxy=$proxy" "$SF" --config-dir "$CONF" -r far \
    repo create --quiet
rm -rf "$STATE"
starts "the daemon starts with https_proxy" "https_proxy=$proxy"
check "it can use the repository" until_true 60 is_up
: >"$WORK/seen"
A=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
same "a backup" "$(state "$A")" Completed
check "went by CONNECT" grep -q '^ok CONNECT s3\.invalid' "$WORK/seen"
restored_same "and is restored so" "$A" "$WORK/xfs/a.img" "$WORK/b.orig" repository
echo 407 >"$WORK/mode"
place() { # ENDPOINT: another one in the section
    sed -i "s,^endpoint = .*,endpoint = $1," "$CONF/conf.d/11-far.ini"
    ask reload --wait >/dev/null 2>&1
}
place "https://s3.invalid:$((tls + 1))"
check "what the proxy refuses" until_true 60 \
    down_because 'the proxy refuses to connect to s3\.invalid:[0-9]+ \(status 407\)'
stops "the daemon stops again"

# ---- what cannot be reached ----
starts "it starts without the proxy"
check "a name that nobody knows" until_true 60 \
    down_because 'the name of s3\.invalid:[0-9]+ has no address: Could not resolve host: s3\.invalid'
place "https://localhost:1"
check "a port where nobody listens" until_true 60 \
    down_because 'no connection to localhost:1: Failed to connect to localhost port 1: Connection refused'
stops "the daemon stops at last"
finish
