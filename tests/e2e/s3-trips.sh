#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A service that is far away: what need not wait for an answer does not, and what must wait does. The service holds
# requests back, so that no times are compared.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
MIB=$((1 << 20))
random_file "$WORK/image" $((96 * MIB)) 5
check "a repository" sf "$WORK/r" repo create --splitter FIXED-1M --quiet
s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK"
ask() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1"; }
mkdir "$WORK/conf"
printf 'access-key = a\nsecret-key = a\n' | secret "$WORK/keys"
printf 'another\n' | secret "$WORK/wrong"
{
    printf '[repository "r"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = r/\n' "$port"
    printf 'credentials = %s\npassword-file = %s\n' "$WORK/keys" "$WORK/password"
} >"$WORK/conf/snapferry.ini"
far() { "$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.far" -r r "$@"; }
hold() { ask "_hold/$1" >/dev/null; }
anew() { ask _log >/dev/null; : >"$WORK/log"; }
logged() { ask _log >>"$WORK/log"; echo >>"$WORK/log"; grep -qE "$1" "$WORK/log"; }
holds() { [ "$(ask _held)" -ge "$1" ]; }
# within COMMAND...: it succeeds within some seconds.
within() {
    local i
    for i in $(seq $((150 * ${PATIENCE:-1}))); do "$@" && return 0; sleep 0.1; done
    return 1
}

# ---- opening ----

anew
hold GET%20/b/r/kopia.repository
far snapshot list --quiet >/dev/null 2>"$WORK/err" &
pid=$!
check "kopia.blobcfg is read while kopia.repository is" within logged 'GET /b/r/kopia.blobcfg'
check "and what says the storage classes" within logged 'GET /b/r/.storageconfig'
check "and no index is listed before the format is there" eval '! logged "prefix=r/x"'
hold ""
wait $pid
same "opened" $? 0
anew
far snapshot list --password-file "$WORK/wrong" >/dev/null 2>"$WORK/err"
check "a wrong password: $(head -n 1 "$WORK/err")" grep -q 'wrong password' "$WORK/err"
check "the index is listed while the key is derived" logged 'prefix=r/x'

# ---- a backup ----

spooled() { # bytes of packs that wait for their upload, in files without a name
    find "/proc/$pid/fd" -lname "$CACHE.far*(deleted)" -exec stat -L -c %s {} + 2>/dev/null |
        awk -v n="$1" '{s += $1} END {exit s < n}'
}
anew
hold PUT%20/b/r/s
"$SF" --config-dir "$WORK/conf" --cache-dir "$CACHE.far" -r r backup "$WORK/image" --as t@h:/v --quiet \
    2>"$WORK/err" &
pid=$!
check "the marker of the session is put" within holds 1
check "packs are filled meanwhile" within spooled $((20 * MIB))
sleep 1
check "but none is put before the marker is there" eval '! logged "PUT /b/r/[pq]"'
hold HEAD%20/b/r/s
check "the time of the marker is asked for" within holds 1
sleep 1
check "no pack is put before the clock is known, either" eval '! logged "PUT /b/r/[pq]"'
hold ""
wait $pid
same "a backup" $? 0
logged "DELETE /b/r/s"
same "the index is listed when the repository is opened, and when its table was written" \
    "$(grep -c 'prefix=r/x' "$WORK/log")" 2
order=$(grep -oE '(PUT /b/r/(s|p|q|xn)|DELETE /b/r/s)' "$WORK/log" | uniq | tr '\n' ' ')
same "marker, packs, metadata, index, marker removed" "$order" \
    "PUT /b/r/s PUT /b/r/p PUT /b/r/q PUT /b/r/xn DELETE /b/r/s "
rm -rf "$CACHE.far"
check "it verifies" far verify --quiet

random_file "$WORK/other" $((30 * MIB)) 6
ask _set/stale/2 >/dev/null
check "a time of the marker that is an hour old twice, and then right" \
    far backup "$WORK/other" --as t@h:/stale --quiet
anew
ask _set/stale/3 >/dev/null
far backup "$WORK/other" --as t@h:/stale --quiet 2>"$WORK/err"
check "an hour old three times: a backup fails" test $? -ne 0
check "as with a wrong clock: $(head -n 1 "$WORK/err")" grep -q 'clocks differ by more than 5 minutes' "$WORK/err"
logged 'DELETE /b/r/s'
same "after three looks" "$(grep -c 'HEAD /b/r/s' "$WORK/log")" 3
ask _set/stale/0 >/dev/null
ask _set/skew/-400 >/dev/null
anew
far backup "$WORK/other" --as t@h:/other --quiet 2>"$WORK/err"
check "the clock is 400 s wrong: a backup fails" test $? -ne 0
check "and says why: $(head -n 1 "$WORK/err")" grep -q 'clocks differ by more than 5 minutes' "$WORK/err"
check "its marker was put, and removed" logged 'DELETE /b/r/s'
check "no pack was put" eval '! logged "PUT /b/r/[pq]"'
ask _set/skew/0 >/dev/null
ask _set/readonly/1 >/dev/null
far backup "$WORK/other" --as t@h:/other --quiet 2>"$WORK/err"
check "without the right to write a backup fails" test $? -ne 0
check "and says why: $(head -n 1 "$WORK/err")" grep -q 'denies it' "$WORK/err"
ask _set/readonly/0 >/dev/null
check "another backup" far backup "$WORK/other" --as t@h:/other --quiet

# ---- a restore ----

# The position is recorded for the first time after 8 MiB; what is behind it is read before.
anew
id=$(far snapshot list --json | tail -n 1 | jq -r '[.snapshots[] | select(.source.path == "/v") | .id][0]')
hold GET%20/b/r/p
far restore "$id" "$WORK/out" --quiet 2>"$WORK/err" &
pid=$!
check "eight reads at a time, before any of them is answered" within holds 8
hold ""
wait $pid
same "a restore" $? 0
check "is what was backed up" cmp "$WORK/out" "$WORK/image"
finish
