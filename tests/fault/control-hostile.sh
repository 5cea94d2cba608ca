#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Unfriendly clients of the real daemon: garbage, endless lines, crowds that hold connections, ask without reading, or
# stop in the middle. It answers others promptly all the time, holds no more memory or descriptors afterwards, and goes
# on.
. "$(dirname "$0")/../lib.sh"
DAEMON=$(dirname "$SNAPFERRY")/snapferryd
[ -x "$DAEMON" ] || { fail "there is no $DAEMON"; finish; }
CLIENT=$TOOLS/control_client
mkdir "$WORK"/{etc,run,cache,state,repo}
cat >"$WORK/etc/snapferry.ini" <<X
[metrics]
listen =
[repository "main"]
type = filesystem
path = $WORK/repo
password-file = $WORK/password
X
"$DAEMON" --foreground --config-dir "$WORK/etc" --state-dir "$WORK/state" --runtime-dir "$WORK/run" \
    --cache-dir "$WORK/cache" >"$WORK/log" 2>&1 &
SERVER=$!
at_exit 'kill $SERVER; wait $SERVER'
SOCK=$WORK/run/control.sock
for _ in $(seq 200); do [ -S "$SOCK" ] && break; sleep 0.05; done
ask() { "$SNAPFERRY" --runtime-dir "$WORK/run" --state-dir "$WORK/state" "$@"; }
fds() { ls "/proc/$SERVER/fd" | wc -l; }
memory() { awk '/^RssAnon/ {print $2}' "/proc/$SERVER/status"; }
# prompt NAME: another client is answered within five seconds.
prompt() {
    local from to
    from=$(date +%s%N)
    if ! timeout 10 "$SNAPFERRY" --runtime-dir "$WORK/run" operations --json >"$WORK/out" 2>&1 ||
        grep -q offline "$WORK/out"; then
        fail "$1" "$(cat "$WORK/out")"
        return
    fi
    to=$(date +%s%N)
    check "$1 ($(((to - from) / 1000000)) ms)" test $((to - from)) -lt 5000000000
}
# The records are read once first: their second connection opens its files then and keeps them.
ask status >/dev/null; ask operations --all >/dev/null; sleep 0.5
fds0=$(fds) memory0=$(memory)
prompt "answered in peace"

out=$(printf '{"id":1,"verb":"ping"}\n{"id":2,"verb":"fly"}\n' | "$CLIENT" "$SOCK" say)
same "two answers" "$(jq -c '[.id, .ok]' <<<"$out" | tr -d '\n')" '[1,true][2,false]'
out=$(printf 'GET / HTTP/1.1\nHost: x\n\nAccept: y\nmore\nand more\n' | "$CLIENT" "$SOCK" say); rc=$?
same "garbage gets an error each time and is cut off after the fourth" "$(wc -l <<<"$out") $rc" "4 3"
out=$(head -c 3000000 /dev/zero | tr '\0' a | "$CLIENT" "$SOCK" say); rc=$?
same "a line without end is cut off" $rc 3
printf '%s' '{"id":1,"verb":"operations","args":{"before":-1}}' >"$WORK/line"
out=$( (cat "$WORK/line"; echo) | "$CLIENT" "$SOCK" say)
same "an argument of the wrong kind" "$(jq -r .error.class <<<"$out")" usage
"$CLIENT" "$SOCK" noise 300
prompt "answered after 300 connections of noise"

"$CLIENT" "$SOCK" mute 8 6 & crowd=$!
sleep 1
for i in 1 2 3; do prompt "answered while 8 clients ask without reading ($i)"; done
# less NAME KIB: it has grown by less; a sanitizer keeps what was freed.
less() {
    if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then
        skip "$1" "memory under a sanitizer says nothing"
    else
        check "$1 ($memory0 to $(memory) KiB)" test $(($(memory) - memory0)) -lt "$2"
    fi
}
less "which costs a bounded amount of memory" 70000
wait $crowd

"$CLIENT" "$SOCK" hold 600 4 & crowd=$!
sleep 1
expect "with all connections taken a client is told so" 14 'connections' -- ask cancel x
kill $crowd; wait $crowd 2>/dev/null
sleep 0.3
prompt "answered when they are gone"
"$CLIENT" "$SOCK" half 30 3 & crowd=$!
sleep 1
prompt "answered while 30 clients are in the middle of a request"
kill $crowd; wait $crowd 2>/dev/null

# Commands killed while they wait.
for i in $(seq 10); do ask wait nothing >/dev/null 2>&1 & done; wait $(jobs -p | grep -v "^$SERVER$") 2>/dev/null
sleep 2.5
same "no descriptor is left open" "$(fds)" "$fds0"
less "nor memory" 8000
check "the daemon still runs" kill -0 "$SERVER"
same "and has not complained about itself" "$(grep -cE 'Assertion|ERROR: AddressSanitizer' "$WORK/log")" 0
finish
