#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The metrics endpoint of the real daemon: what is served over TCP and a unix socket; clients that are slow, many or
# hostile; a scrape while the event loop hangs; reloads; keys that were removed; the text file; counters over a restart.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../prometheus-lib.sh"
need_root "the metrics endpoint"
fs_make vol xfs && fs_make slow ext4 64 || { fail "scratch file systems"; finish; }
STATE=$WORK/slow/state
daemon_setup
config_class images "$WORK/vol"
random_file "$WORK/vol/a.img" 3000000 5
PORT=$(free_port) OTHER=$(free_port) TAKEN=$(free_port)
URL=http://127.0.0.1:$PORT SOCK=$WORK/m.sock
metrics_config() { config_add 90-metrics "$(printf '[metrics]\n'; printf '%s\n' "$@")"; }
metrics_config "listen = 127.0.0.1:$PORT" "textfile = $WORK/snapferry.prom" "textfile-period = 1s"
starts "the daemon starts"

get() { curl -s --max-time 10 "$@"; }
code() { get -o "$WORK/body" -w '%{http_code}' "$@"; }
metric() { get "$URL/metrics" | awk -v n="$1" '$1 == n {print $2}'; } # NAME or NAME{labels}
page() { fresh_page "$URL/metrics" >"$WORK/page"; }

# ---- what is served ----
same "metrics" "$(code "$URL/metrics")" 200
check "they begin with a head" grep -q '^# HELP snapferry_build_info' "$WORK/body"
same "their type is the format's" "$(get -o /dev/null -w '%{content_type}' "$URL/metrics")" \
    "text/plain; version=0.0.4; charset=utf-8"
if has_promtool; then
    check "promtool finds nothing to say" eval \
        'out=$(promtool check metrics <"$WORK/body" 2>&1); [ -z "$out" ] || { echo "$out"; false; }'
else
    skip "promtool finds nothing to say" "there is no promtool"
fi
same "health" "$(code "$URL/healthz") $(cat "$WORK/body")" "200 ok"
same "readiness" "$(code "$URL/readyz") $(cat "$WORK/body")" "200 ready"
same "nothing else" "$(code "$URL/") $(code "$URL/metrics/") $(code "$URL/../etc/passwd") $(code "$URL/favicon.ico")" \
    "404 404 404 404"
check "in one sentence" grep -qE '^There is nothing here; .*\.$' "$WORK/body"
same "HEAD" "$(get -I -o "$WORK/head" -w '%{http_code} %{size_download}' "$URL/metrics")" "200 0"
for m in POST PUT DELETE OPTIONS TRACE BREW; do same "$m is refused" "$(code -X $m "$URL/metrics")" 405; done
check "and says what is allowed" eval 'get -i -X POST "$URL/metrics" | grep -q "^Allow: GET, HEAD"'
same "a body is refused" "$(code -X GET -d "$(head -c 3000 /dev/zero | tr '\0' x)" "$URL/metrics")" 413

# ---- the text file ----
check "the text file is written" until_true 10 test -s "$WORK/snapferry.prom"
same "and readable by all" "$(stat -c %a "$WORK/snapferry.prom")" 644
old=$(stat -c %i "$WORK/snapferry.prom")
check "again and again, by a rename" until_true 10 eval '[ "$(stat -c %i "$WORK/snapferry.prom")" != "$old" ]'
check "it has the same families" eval \
    'page; diff <(grep "^# TYPE" "$WORK/page") <(grep "^# TYPE" "$WORK/snapferry.prom")'

metrics_config "listen = 127.0.0.1:$PORT" "textfile = $WORK/other.prom" "textfile-period = 1s"
check "a reload gives it another name" ask reload --wait
check "which is written" until_true 20 test -s "$WORK/other.prom"
check "the one before goes away" until_true 20 eval '[ ! -e "$WORK/snapferry.prom" ]'
metrics_config "listen = 127.0.0.1:$PORT"
check "a reload ends it" ask reload --wait
check "its last state does not stay" until_true 20 eval '[ ! -e "$WORK/other.prom" ]'
sleep 1.2
check "for good" test ! -e "$WORK/other.prom"

# ---- hostile clients ----
raw() { exec 9<>"/dev/tcp/127.0.0.1/$PORT" && cat >&9 2>/dev/null && timeout 5 cat <&9; exec 9<&-; } # text -> answer
head -c 100000 /dev/urandom | raw >/dev/null 2>&1
printf 'GET /metrics HTTP/9.9\r\n\r\n' | raw >"$WORK/raw" 2>&1
check "another version of HTTP is refused" grep -qE '^HTTP/1.[01] (400|505)' "$WORK/raw"
{ printf 'GET / HTTP/1.1\r\nHost: x\r\nX: '; head -c 70000 /dev/zero | tr '\0' a; printf '\r\n\r\n'; } |
    raw >"$WORK/raw" 2>&1
check "a huge header is refused" eval '[ ! -s "$WORK/raw" ] || grep -qE "^HTTP/1.1 (431|413|400)" "$WORK/raw"'
{ printf 'GET /'; head -c 70000 /dev/zero | tr '\0' a; printf ' HTTP/1.1\r\nHost: x\r\n\r\n'; } | raw >"$WORK/raw" 2>&1
check "a huge request line, too" eval '[ ! -s "$WORK/raw" ] || grep -qE "^HTTP/1.1 (414|431|400)" "$WORK/raw"'
printf 'GET /metrics\0 HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n' | raw >"$WORK/raw" 2>&1
check "the daemon is unimpressed" daemon_alive
rss() { awk '/^VmRSS/ {print $2}' "/proc/$DPID/status"; }
fds() { ls "/proc/$DPID/fd" | wc -l; }
page; rss0=$(rss) fds0=$(fds)
# 500 that connect, ask a half and wait; those that come later are served all the same.
perl -MIO::Socket::INET -e '$| = 1; for (1 .. 500) { my $s = IO::Socket::INET->new("127.0.0.1:'"$PORT"'") or next;
    $s->syswrite("GET /metrics HTTP/1.1\r\nHost"); push @s, $s; } print "ready\n"; sleep 60' >"$WORK/crowd" &
crowd=$!
at_exit "kill $crowd"
until_true 20 grep -q ready "$WORK/crowd"
same "500 unfinished requests: others are served" "$(code "$URL/metrics") $(code "$URL/healthz")" "200 200"
check "and do not fill the daemon ($fds0, $(fds) descriptors)" test "$(fds)" -lt $((fds0 + 110))
kill $crowd; wait $crowd 2>/dev/null
# 200 that ask and never read
perl -MIO::Socket::INET -e '$| = 1; for (1 .. 200) { my $s = IO::Socket::INET->new("127.0.0.1:'"$PORT"'") or next;
    $s->syswrite("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" x 50); push @s, $s; }
    print "ready\n"; sleep 60' >"$WORK/crowd" &
crowd=$!
at_exit "kill $crowd"
until_true 20 grep -q ready "$WORK/crowd"
same "200 that never read: others are served" "$(code "$URL/metrics")" 200
kill $crowd; wait $crowd 2>/dev/null
check "all of them are forgotten" until_true 30 eval '[ "$(fds)" -le $((fds0 + 5)) ]'
check "memory stays in bounds ($rss0, $(rss) KiB)" test "$(rss)" -lt $((rss0 + 40000))
for i in $(seq 40); do get "$URL/metrics" >"$WORK/p.$i" & pids[i]=$!; done
wait "${pids[@]}"
check "scrapes at the same time share pages" test "$(cat "$WORK"/p.* |
    awk '$1 == "snapferry_metrics_timestamp_seconds" {print $2}' | sort -u | wc -l)" -lt 20
same "and all are whole" "$(cat "$WORK"/p.* | grep -c '^snapferry_metrics_dropped_samples 0')" 40

# ---- counters ----
B=$(submit "$WORK/vol/a.img"); wait_state "$B" Completed 60 >/dev/null
page
ended=$(grep '^snapferry_operations_total{' "$WORK/page" | sort)
check "a backup is counted" grep -q 'direction="backup".*result="completed".* 1$' <<<"$ended"
check "no id is a label" eval '! grep -qF -e "$B" -e "$(op_id "$B")" "$WORK/page"'
series=$(grep -vc '^#' "$WORK/page")
B=$(submit "$WORK/vol/a.img"); wait_state "$B" Completed 60 >/dev/null
page
same "another backup adds no series" "$(grep -vc '^#' "$WORK/page")" "$series"
ended=$(grep '^snapferry_operations_total{' "$WORK/page" | sort)
daemon_stop; starts "after a restart"
page
same "the counters go on" "$(grep '^snapferry_operations_total{' "$WORK/page" | sort)" "$ended"

# ---- the event loop hangs: its records are on a file system that stands still ----
at_exit "fsfreeze -u '$WORK/slow'"
fsfreeze -f "$WORK/slow"
submit "$WORK/vol/a.img" >/dev/null 2>&1 & asking=$!
hangs() { [ "$(get -o /dev/null -D - "$URL/metrics" | tr -d '\r' | awk '/^Age:/ {print $2}')" -ge 1 ]; }
if until_true 15 hangs; then
    pass "while it hangs the last page is handed out, with its age"
    t0=$(date +%s%N)
    for i in 1 2 3 4 5; do code "$URL/metrics" >/dev/null; done
    t1=$(date +%s%N)
    check "at once (five in $(((t1 - t0) / 1000000)) ms)" test $((t1 - t0)) -lt 1500000000
    at0=$(metric snapferry_metrics_timestamp_seconds); sleep 0.5
    same "the page tells its time" "$(metric snapferry_metrics_timestamp_seconds)" "$at0"
    check "unhealthy after ten seconds" until_true 20 eval '[ "$(code "$URL/healthz")" = 503 ]'
    same "and not ready" "$(code "$URL/readyz") $(grep -c 'the event loop has not turned for [0-9]* s' "$WORK/body")" \
        "503 1"
else
    fail "while it hangs the last page is handed out, with its age" "the loop did not hang"
fi
fsfreeze -u "$WORK/slow"
wait $asking
check "it goes on where it was" until_true 20 eval '[ "$(code "$URL/readyz")" = 200 ] && ! hangs'
until_true 60 settled

# ---- records that cannot be written ----
head -c 64M /dev/zero >"$WORK/slow/ballast" 2>/dev/null; sync -f "$WORK/slow"
submit "$WORK/vol/a.img" >/dev/null 2>&1
if until_true 20 eval '[ "$(code "$URL/readyz")" = 503 ]'; then
    check "not ready while the records cannot be written" grep -q 'the records cannot be written' "$WORK/body"
    same "but healthy" "$(code "$URL/healthz")" 200
else
    fail "not ready while the records cannot be written" "$(ask status 2>&1 | tail -5)"
fi
rm "$WORK/slow/ballast"
check "ready when there is room" until_true 30 eval '[ "$(code "$URL/readyz")" = 200 ]'
until_true 60 settled

# ---- changes by reload ----
exec 8<>"/dev/tcp/127.0.0.1/$PORT" # a connection that is older than the change
metrics_config "listen = 127.0.0.1:$PORT" "series-max = 20000"
check "a reload of something else" ask reload --wait
printf 'GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&8
check "connections go on" eval 'timeout 5 cat <&8 | grep -q "200 OK"'
exec 8<&-
perl -MIO::Socket::INET \
    -e 'my $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:'"$TAKEN"'", Listen => 1) or die; sleep 60' &
thief=$!
at_exit "kill $thief"
sleep 0.3
metrics_config "listen = 127.0.0.1:$TAKEN"
check "a reload to a port that is taken" ask reload --wait
check "is a problem of status" eval \
    'askj status | jq -e ".problems[] | select(.text | test(\"127.0.0.1:'"$TAKEN"'.*in use\"))"'
check "the address before is closed" eval '! get "$URL/metrics"'
check "the daemon goes on" daemon_alive
kill $thief; wait $thief 2>/dev/null
check "and is tried again" until_true 25 eval '[ "$(code "http://127.0.0.1:$TAKEN/healthz")" = 200 ]'
same "status has the address, and no problem" "$(askj status | jq -c '[.metrics.listen, .problems]')" \
    "[[{\"address\":\"127.0.0.1:$TAKEN\",\"error\":null}],[]]"
metrics_config "listen = unix:$SOCK"
check "a reload to a unix socket" ask reload --wait
same "which is served" "$(code --unix-socket "$SOCK" http://x/metrics)" 200
same "is root's" "$(stat -c '%a %U' "$SOCK")" "600 root"
check "nobody else may connect" eval \
    '! setpriv --reuid=65534 --clear-groups curl -s --max-time 5 --unix-socket "$SOCK" http://x/metrics'
metrics_config "listen = unix:$SOCK" "unix-group = nogroup"
check "a reload to a group" ask reload --wait
same "which may connect" "$(stat -c '%a %U %G' "$SOCK")" "660 root nogroup"
same "and is served" "$(code --unix-socket "$SOCK" http://x/metrics)" 200
metrics_config "listen ="
check "a reload to nowhere" ask reload --wait
check "leaves no socket" test ! -e "$SOCK"
same "and no address" "$(askj status | jq -c .metrics.listen)" "[]"

# ---- a configuration of 0.1: TLS, passwords, several addresses ----
metrics_config "listen = 127.0.0.1:$PORT 127.0.0.1:$OTHER" "tls-certificate = /etc/m.crt" "tls-key = cred:m" \
    "users-file = /etc/m.users"
expect "removed keys are warnings of check-config" 0 \
    'tls-certificate was removed in 0\.2; metrics are not served while it is set' -- \
    "$SNAPFERRY" check-config --config-dir "$CONF"
check "a reload takes it" ask reload --wait
same "the address is closed, and so is the other" "$(code "$URL/metrics") $(code "http://127.0.0.1:$OTHER/metrics")" \
    "000 000"
same "which is a problem of status" "$(askj status | jq -r '.problems[].text' | head -n 1)" \
    "metrics are not served at 127.0.0.1:$PORT: tls-certificate was removed in 0.2"
check "with a way out" eval \
    'askj status | jq -e ".problems[0].hint | test(\"reverse proxy, see snapferry-metrics\\\\(7\\\\)\")"'
daemon_stop; starts "a daemon starts with it"
same "closed as well" "$(code "$URL/metrics")" 000
B=$(submit "$WORK/vol/a.img"); same "its backups go on" "$(wait_state "$B" Completed 60)" Completed
metrics_config "listen = 127.0.0.1:$PORT 127.0.0.1:$OTHER"
check "a reload without the keys" ask reload --wait
same "one address is served" "$(code "$URL/metrics") $(code "http://127.0.0.1:$OTHER/metrics")" "200 000"
same "the other one is a problem" "$(askj status | jq -r '.problems[].text')" \
    "metrics are not served at 127.0.0.1:$OTHER: one address since 0.2, which is 127.0.0.1:$PORT"
stops "it ends in order"

# ---- what check-config says ----
conf_says() { # NAME CODE PATTERN LINE...
    local name=$1 code=$2 pattern=$3
    shift 3
    metrics_config "$@"
    expect "$name" "$code" "$pattern" -- "$SNAPFERRY" check-config --config-dir "$CONF"
}
conf_says "a name is no address" 2 'names are not resolved' "listen = localhost:9747"
conf_says "a port of 0" 2 'port out of range .1 to 65535' "listen = 127.0.0.1:0"
conf_says "a text file that nobody reads" 2 'only reads files \*.prom' "textfile = $WORK/x.txt"
conf_says "a directory that is not there" 0 'no directory' "textfile = $WORK/none/x.prom"
conf_says "a group that is not there" 2 'unknown group' "unix-group = nosuchgroup"
explain_failure
finish
