#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The reverse proxy of snapferry-metrics(7), as it is in the manual, before a live daemon: TLS, a password, both ways to
# the daemon. The commands of the manual make its certificate and its password file.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../prometheus-lib.sh"
export PATH="$PATH:$(realpath -m "$BUILD")/nginx/usr/sbin:/usr/sbin"
POD=$(realpath "$(dirname "$0")/../../docs/man/snapferry-metrics.7.pod")
section() { sed -n '/^=head1 REVERSE PROXY/,/^=head1 VELERO/p' "$POD"; }
# block FIRST: the indented lines from the one that begins with FIRST on.
block() {
    section | awk -v first="    $1" 'index($0, first) == 1 { on = 1 } on && /^[^ ]/ { exit } on { print substr($0, 5) }'
}
block 'server {' >"$WORK/proxy.conf"
block 'openssl req' >"$WORK/make.sh"
block '[metrics]' >"$WORK/metrics.ini"
for f in proxy.conf make.sh metrics.ini; do check "the manual has its $f" test -s "$WORK/$f"; done
command -v nginx >/dev/null || { skip "a proxy before a live daemon" "there is no nginx"; finish; }
need_root "a proxy before a live daemon"
PORT=$(free_port) PROXY=$(free_port) SOCK=$WORK/m.sock
URL=https://localhost:$PROXY

# In the manual's words, but for places: files here, ports that are free, the group of nginx, no question for the
# password.
there() {
    sed -e "s,/etc/nginx/snapferry-metrics,$WORK/proxy,g; s,127\.0\.0\.1:9747,127.0.0.1:$PORT,g" \
        -e "s,\([: ]\)9748,\1$PROXY,g; s,/run/snapferry/metrics\.sock,$SOCK,g; s/www-data/nogroup/" \
        -e 's/openssl passwd -6/openssl passwd -6 secret/' \
        -e 's/\$(hostname -f)/localhost/g' "$1"
}
there "$WORK/make.sh" | grep -v '^nginx ' >"$WORK/make-here.sh"
check "its commands make certificate and password file" sh -e "$WORK/make-here.sh"
same "which nobody else can read" "$(stat -c '%a %G' "$WORK/proxy.users")" "640 nogroup"
chmod 755 "$WORK"
proxy() { # FILTER: nginx with the manual's server, its lines through sed
    cat >"$WORK/nginx.conf" <<X
pid $WORK/nginx.pid;
error_log $WORK/nginx.log;
user nobody nogroup;
daemon on;
events {}
http {
    access_log off;
    client_body_temp_path $WORK/t1; proxy_temp_path $WORK/t2; fastcgi_temp_path $WORK/t3;
    uwsgi_temp_path $WORK/t4; scgi_temp_path $WORK/t5;
$(there "$WORK/proxy.conf" | sed "$1" | { [ -e /proc/net/if_inet6 ] && cat || grep -v 'listen \['; })
}
X
    nginx -e "$WORK/nginx.log" -c "$WORK/nginx.conf" -p "$WORK"
}
stop_proxy() { [ -s "$WORK/nginx.pid" ] && kill "$(cat "$WORK/nginx.pid")"; until_true 10 test ! -e "$WORK/nginx.pid"; }
at_exit 'stop_proxy 2>/dev/null'
code() { curl -s --max-time 10 --cacert "$WORK/proxy.crt" -o "$WORK/body" -w '%{http_code}' "$@"; }

daemon_setup
config_add 90-metrics "$(printf '[metrics]\nlisten = 127.0.0.1:%s' "$PORT")"
starts "the daemon starts"
check "nginx takes the manual's configuration" proxy ''
same "with the password" "$(code -u prometheus:secret "$URL/metrics")" 200
check "the metrics are served" grep -q '^snapferry_metrics_dropped_samples 0' "$WORK/body"
same "without one they are not" "$(code "$URL/metrics")" 401
same "nor with a wrong one" "$(code -u prometheus:Secret "$URL/metrics") $(code -u other:secret "$URL/metrics")" \
    "401 401"
same "nor without TLS" "$(code -u prometheus:secret "http://localhost:$PROXY/metrics")" 400
check "nor with an old TLS" eval '! code --tls-max 1.1 -u prometheus:secret "$URL/metrics"'
same "liveness needs no password" "$(code "$URL/healthz")" 200
same "nothing else is there" "$(code -u prometheus:secret "$URL/readyz") $(code "$URL/")" "404 404"
same "nothing but GET" "$(code -u prometheus:secret -X POST "$URL/metrics")" 403
stop_proxy

config_add 90-metrics "$(there "$WORK/metrics.ini")"
check "a reload to the unix socket of the manual" ask reload --wait
check "nginx takes the manual's other way" proxy \
    "s,http://127.0.0.1:$PORT,http://unix:$SOCK:,; /= .metrics/,/}/s,m.sock:,&/metrics,
    /= .healthz/,/}/s,m.sock:,&/healthz,"
same "with the password" "$(code -u prometheus:secret "$URL/metrics")" 200
same "without one" "$(code "$URL/metrics") $(code "$URL/healthz")" "401 200"
check "and past the proxy there is nothing" eval '! curl -s --max-time 5 "http://127.0.0.1:$PORT/metrics"'
check "but for the group" eval \
    '! setpriv --reuid=65534 --clear-groups --regid=12345 curl -s --max-time 5 --unix-socket "$SOCK" http://x/metrics'
stops "SIGTERM ends the daemon in order"
finish
