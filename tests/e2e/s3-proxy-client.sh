#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# S3 through a proxy that the environment names, with -r and by the daemon: backup, restore, what the proxy refuses, and
# no_proxy. The server has names that only the proxy knows, so nothing can get there in another way.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
unset http_proxy https_proxy no_proxy HTTPS_PROXY NO_PROXY all_proxy ALL_PROXY
MODE=$WORK/mode SEEN=$WORK/seen
mode() { echo "$1" >"$MODE"; }
seen() { grep -cE -- "$1" "$SEEN"; }
mode ok
: >"$SEEN"
s3_service proxy /usr/bin/python3 tests/tools/http-proxy.py "$WORK/proxy.port" "$MODE" "$SEEN"
proxy=http://127.0.0.1:$port
s3_service plain /usr/bin/python3 tests/tools/s3-faults.py "$WORK/plain.port"
plain=$port
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=s3.invalid -addext subjectAltName=DNS:s3.invalid \
    -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
mkdir "$WORK/tree"
s3_service tls /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tls.port" "$WORK/tree" "$WORK/cert.pem" "$WORK/key.pem"
printf 'access-key = a\nsecret-key = b\n' | secret "$WORK/keys"
section() { # NAME ENDPOINT [LINE...]
    printf '[repository "%s"]\ntype = s3\nendpoint = %s\nbucket = b\nprefix = nas/\ncredentials = %s\n' "$1" "$2" \
        "$WORK/keys"
    printf '%s\n' "password-file = $WORK/password" "maintenance = no" "${@:3}"
}
config_main
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
section main "http://s3.invalid:$plain" >"$CONF/conf.d/10-main.ini"
section near "http://127.0.0.1:$plain" >"$CONF/conf.d/11-near.ini"
section tls "https://s3.invalid:$port" "ca-file = $WORK/cert.pem" >"$CONF/conf.d/12-tls.ini"
random_file "$WORK/image" $((4 * MIB)) 1
# r [VAR=VALUE...] REPOSITORY ARGS...
r() {
    local vars=()
    while [[ $1 == *=* ]]; do vars+=("$1"); shift; done
    env "${vars[@]}" "$SF" --config-dir "$CONF" -r "$@"
}

# ---- with -r ----
expect "without the proxy there is no such server" 1 'has no address' -- r main snapshot list
for repo in main tls; do
    [ $repo = main ] && var=http_proxy request='^ok PUT http://s3\.invalid' ||
        { var=https_proxy request='^ok CONNECT s3\.invalid'; }
    check "$repo: created through $var" r "$var=$proxy" $repo repo create --quiet
    check "$repo: a backup" r "$var=$proxy" $repo backup "$WORK/image" --as t@h:/v --quiet
    rm -f "$WORK/out"
    check "$repo: restored" r "$var=$proxy" $repo restore latest "$WORK/out" --quiet
    check "$repo: as it was" cmp "$WORK/image" "$WORK/out"
    check "$repo: by the proxy" [ "$(seen "$request")" -gt 0 ]
    mode 403
    : >"$SEEN"
    expect "$repo: refused, and by whom" 20 'the proxy refuses to connect to s3\.invalid:[0-9]+ \(status 403\)' -- \
        r "$var=$proxy" $repo snapshot list
    # Three objects are asked for at a time at an opening.
    check "$repo: not asked again and again" [ "$(seen .)" -le 3 ]
    expect "$repo: what can be done" 20 'allow it in the proxy, or name the server in no_proxy' -- \
        r "$var=$proxy" $repo snapshot list
    mode 407
    expect "$repo: a proxy with a password" 20 "\(status 407\)" -- r "$var=$proxy" $repo snapshot list
    expect "$repo: where it goes" 20 "set them in $var, as http://USER:PASSWORD@PROXY:PORT" -- \
        r "$var=$proxy" $repo snapshot list
    check "$repo: is used with it" r "$var=${proxy/\/\////u:p@}" $repo snapshot list
    mode ok
done
check "HTTPS_PROXY is as good" r "HTTPS_PROXY=$proxy" tls snapshot list
# One for all, as curl has it: those of the scheme come first, and http_proxy in capitals does not count.
for var in all_proxy ALL_PROXY; do
    for repo in main tls; do
        : >"$SEEN"
        check "$repo: $var is as good" r "$var=$proxy" $repo snapshot list
        check "$repo: and used" [ "$(seen '^ok (GET http|CONNECT s3)')" -gt 0 ]
    done
done
check "http_proxy comes before it" r "http_proxy=$proxy" all_proxy=http://127.0.0.1:1 main snapshot list
check "so does https_proxy" r "HTTPS_PROXY=$proxy" all_proxy=http://127.0.0.1:1 tls snapshot list
expect "but not http_proxy for https" 1 'no connection to' -- \
    r "http_proxy=$proxy" all_proxy=http://127.0.0.1:1 tls snapshot list
check "HTTP_PROXY is not taken" r HTTP_PROXY=http://127.0.0.1:1 "all_proxy=$proxy" main snapshot list
check "an empty one does not count" r http_proxy= "all_proxy=$proxy" main snapshot list
mode 403
expect "one for all refuses, and is known as a proxy" 20 'the proxy refuses to connect to s3\.invalid' -- \
    r "all_proxy=$proxy" main snapshot list
mode 407
expect "it wants a password: where that goes" 20 "set them in ALL_PROXY, as http" -- \
    r "ALL_PROXY=$proxy" tls snapshot list
mode ok
: >"$SEEN"
check "a server of no_proxy, with a proxy for all" r all_proxy=http://127.0.0.1:1 no_proxy=127.0.0.1 near snapshot list
: >"$SEEN"
check "a server of no_proxy" r "http_proxy=$proxy" no_proxy=127.0.0.1 near snapshot list
check "NO_PROXY is as good" r "http_proxy=$proxy" NO_PROXY=other,127.0.0.1 near snapshot list
same "is asked without the proxy" "$(seen .)" 0
check "others are not" r "http_proxy=$proxy" no_proxy=other near snapshot list
check "but by the proxy" [ "$(seen '^ok GET http://127\.0\.0\.1')" -gt 0 ]
expect "a proxy that is not there" 1 'no connection to' -- r "http_proxy=http://127.0.0.1:1" main snapshot list

# ---- by the daemon ----
need_root "the daemon and a proxy"
fs_make xfs xfs || exit 1
cp "$WORK/image" "$WORK/xfs/a.img"
cp "$WORK/image" "$WORK/a.orig"
rm "$CONF/conf.d/11-near.ini" "$CONF/conf.d/12-tls.ini"
config_class gold "$WORK/xfs" 'repository = main'
look() { askj status | jq -r '.repositories[] | select(.name == "main") | '"$1"; }
: >"$SEEN"
starts "the daemon starts with http_proxy" "http_proxy=$proxy"
check "it can use the repository" until_true 60 eval '[ "$(look .up)" = true ]'
A=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
same "a backup" "$(state "$A")" Completed
check "went through the proxy" [ "$(seen '^ok PUT http://s3\.invalid')" -gt 0 ]
restored_same "and is restored through it" "$A" "$WORK/xfs/a.img" "$WORK/a.orig" repository
stops "the daemon stops"
mode 403
starts "it starts while the proxy refuses" "http_proxy=$proxy"
check "status says so" until_true 60 eval '[[ $(look .why) == *"the proxy refuses to connect to s3.invalid"* ]]'
mode ok
check "until the proxy lets it through" until_true 60 eval '[ "$(look .up)" = true ]'
stops "the daemon stops again"
for var in all_proxy ALL_PROXY; do
    : >"$SEEN"
    starts "it starts with $var" "$var=$proxy"
    check "and its movers use it" until_true 60 eval '[ "$(look .up)" = true ]'
    check "by the proxy" [ "$(seen '^ok GET http://s3\.invalid')" -gt 0 ]
    stops "it stops"
done
section main "http://127.0.0.1:$plain" >"$CONF/conf.d/10-main.ini"
: >"$SEEN"
starts "it starts with no_proxy, and with a proxy that is not there" http_proxy=http://127.0.0.1:1 no_proxy=127.0.0.1
check "and uses the repository without it" until_true 60 eval '[ "$(look .up)" = true ]'
same "no request went to a proxy" "$(seen .)" 0
stops "the daemon stops at last"
finish
