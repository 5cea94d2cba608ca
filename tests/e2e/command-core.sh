#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The command with -r has passwords and keys in its memory: nothing of it gets into a core dump, and the secret key of
# S3 is in one place only, which a core dump would leave out.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
is_root || { skip "the memory of other processes" "needs root"; finish; }
ulimit -c unlimited 2>/dev/null
chmod 755 "$WORK"
USER_ID=65534
SECRET=$(head -c 24 /dev/urandom | base64 | tr '+/' 'ab')
OTHER=$(head -c 24 /dev/urandom | base64 | tr '+/' 'ab')
s3_service faults /usr/bin/python3 tests/tools/s3-faults.py "$WORK/faults.port"
endpoint=http://127.0.0.1:$port
fault() { curl -s --noproxy '*' "$endpoint/$1"; }
mkdir "$WORK/conf"
printf '[daemon]\nnode-name = n1\n[repository "far"]\ntype = s3\nendpoint = %s\nbucket = b\nprefix = nas/
credentials = %s\npassword-file = %s\n' "$endpoint" "$WORK/keys" "$WORK/password" >"$WORK/conf/snapferry.ini"
keys() { printf 'access-key = %s\nsecret-key = %s\n' "$1" "$2" | secret "$WORK/keys"; chown $USER_ID "$WORK/keys"; }
keys one "$SECRET"
chown $USER_ID "$WORK/password"
install -d -o $USER_ID "$WORK/user-cache"
r() { "$SF" --config-dir "$WORK/conf" --cache-dir "$WORK/user-cache" -r far "$@"; }
check "a repository" r repo create --quiet
random_file "$WORK/image" 1000000 1
check "a backup" r backup "$WORK/image" --as t@h:/v --quiet
chown -R $USER_ID "$WORK/user-cache"

# at TEXT ARGS...: starts the command as an ordinary user and waits until such a request of it has been made, whose
# answer is held back.
at() {
    fault "_hold/$1" >/dev/null
    setpriv --reuid=$USER_ID --regid=$USER_ID --clear-groups "$SF" --config-dir "$WORK/conf" --cache-dir \
        "$WORK/user-cache" -r far "${@:2}" >"$WORK/out" 2>&1 &
    PID=$!
    for _ in $(seq 400); do
        [ "$(fault _held)" -lt 1 ] || return 0
        kill -0 $PID 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}
found() { "$TOOLS/find_key" -t "$1" "$PID" "${@:2}" | cut -d' ' -f1 | sort | uniq -c | xargs; }
# As a test of its own: a subshell would not have it as its child.
ends() { fault _hold >/dev/null; if wait "$PID"; then pass "$1"; else fail "$1" "$(cat "$WORK/out")"; fi; }

at "GET%20/b/nas/p" verify && pass "a command that works" || fail "a command that works" "$(cat "$WORK/out")"
same "has no core dump" "$(awk '/^Max core file size/ { print $5, $6 }' "/proc/$PID/limits")" "0 0"
same "nor one by a pipe, and only root reads its memory" "$(stat -c %u "/proc/$PID/mem")" 0
same "a shell beside it has both" "$(stat -c %u "/proc/$$/mem") $(ulimit -c)" "$(id -u) $(ulimit -H -c)"
same "its secret key is in one place, of which no core dump has anything" "$(found "$SECRET")" "1 kept"
same "and in no file but that of the keys" "$(found "$SECRET" "$WORK")" "1 file 1 kept"
ends "it ends as ever"

# Keys that are replaced meanwhile.
fault _set/key/one >/dev/null
at "GET%20/b/nas/kopia.repository" verify && pass "another one" || fail "another one" "$(cat "$WORK/out")"
keys two "$OTHER"
fault _set/key/two >/dev/null
fault "_hold/GET%20/b/nas/p" >/dev/null
for _ in $(seq 400); do
    [ "$(found "$OTHER")" != "1 kept" ] || break
    kill -0 $PID 2>/dev/null || break
    sleep 0.05
done
same "the new key is in one place, too" "$(found "$OTHER")" "1 kept"
same "and the old one nowhere" "$(found "$SECRET")" ""
ends "it ends with the new one"
finish
