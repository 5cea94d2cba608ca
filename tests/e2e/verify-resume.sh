#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A verification of a repository that is killed, canceled or shut down in the middle goes on from there:
# what it has read is not read again, what it has found is in the result, and what is damaged behind it is found (E-12).
. "$(dirname "$0")/../daemon-lib.sh"
SIZE=$((48 * MIB))
notes() { find "$CACHE" -name 'verify-*' | grep -q .; }
# Packs in the order of their names, in which they are read.
packs() { find "$REPO/p" -name '*.f' -size +1M | sort; }
# flip FILE OFFSET
flip() {
    local byte
    byte=$(od -An -tu1 -j"$2" -N1 "$1")
    printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
daemon_setup || { fail "setup"; finish; }
random_file "$WORK/a" $SIZE 1
sf "$REPO" backup "$WORK/a" --as a@h:/v --quiet || { fail "a backup"; finish; }
[ "$MOVER_USER" = root ] || own_user

# ---- with -r ----

# begin LIMIT: a verification of all, at LIMIT a second; sets PID.
begin() {
    env --default-signal=INT "$SF" -r "$REPO" --password-file "$WORK/password" --cache-dir "$CACHE" verify \
        --read-limit "$1" --workers 1 --json >"$WORK/out" 2>"$WORK/err" &
    PID=$!
}
# some: until a third of it is noted; at least, by 8 bytes for about 1 MiB, and 24 for each block.
some() { until_true 10 eval '[ -n "$(find "$CACHE" -name "verify-*" -size +189c 2>/dev/null)" ]'; }
verified() { sf "$REPO" --cache-dir "$CACHE" verify --json --workers 1 2>"$WORK/err"; }
# went_on NAME RESULT: about a third to all of it had been read.
went_on() {
    local read resumed
    read=$(result bytesRead <<<"$2") resumed=$(result resumedBytes <<<"$2")
    if [ "$read" -ge $SIZE ] && [ "$resumed" -gt $((SIZE / 5)) ] && [ "$resumed" -lt "$read" ]; then
        pass "$1: it goes on"
    else
        fail "$1: it goes on" "$read read, of these $resumed before: $2"
    fi
}
begin 8MiB; some; kill -KILL $PID; wait $PID 2>/dev/null
check "killed: what it has read is noted" notes
out=$(verified)
went_on "killed" "$out"
check "all counts, and nothing is left" test "$(result ok <<<"$out")" = true -a -z "$(find "$CACHE" -name "verify-*")"
same "it came to its end: the next one begins anew" "$(verified | result resumedBytes)" 0
SNAPFERRY_CRASH_AT=verify-noted begin 8MiB; wait $PID 2>/dev/null
same "it dies right behind its first note" $? 137
out=$(verified)
same "what that note has is not read again" \
    "$(jq -s 'last | .ok and .resumedBytes > 0 and .resumedBytes < .bytesRead' <<<"$out")" true
begin 8MiB; some; kill -INT $PID; wait $PID
same "interrupted" $? 130
check "it says how to go on" grep -q 'next verification of the same goes on' "$WORK/err"
begin 8MiB; sleep 1; kill -TERM $PID; wait $PID
out=$(verified)
went_on "interrupted twice" "$out"
same "it reads the rest, and no more" \
    "$(jq -s 'last | .stages[0].bytes - (.bytesRead - .resumedBytes) | fabs < 100000' <<<"$out")" true
begin 8MiB; some; kill -KILL $PID; wait $PID 2>/dev/null
same "anew: all is read" "$(sf "$REPO" --cache-dir "$CACHE" verify --anew --json --workers 1 2>"$WORK/err" |
    jq -s -c 'last | [.ok, .bytesRead >= '$SIZE', .resumedBytes]')" '[true,true,0]'
same "words say so" "$(begin 8MiB; some; kill -KILL $PID; wait $PID 2>/dev/null
    sf "$REPO" --cache-dir "$CACHE" verify 2>&1 | grep -cE 'read in .*, .* before the interruption, no damage found')" 1

# ---- by the daemon ----

verify_begin() { O=$(askj verify main | jq -r .operation); }
mover() { sql "SELECT json_extract(doc, '\$.identity.pid') FROM operations WHERE id = '$O' AND state = 'Running'"; }
op() { doc "$O" | jq -r "$1"; }
created() { sql "SELECT created_ns FROM operations WHERE id = '$O'"; }
# went_on_there NAME: the operation is complete, and its last mover has fetched only what was missing.
went_on_there() {
    local figures
    same "$1: Completed" "$(wait_state "$O" Completed 60)" Completed
    figures=$(op '.result | "\(.bytesRead) \(.resumedBytes) \(.repository.downloadedBytes)"')
    # shellcheck disable=SC2086
    set -- "$1" $figures
    if [ "$2" -ge $SIZE ] && [ "$3" -gt $((SIZE / 5)) ] && [ "$4" -lt $((SIZE + 4 * MIB - $3)) ]; then
        pass "$1: it goes on, and reads the rest"
    else
        fail "$1: it goes on, and reads the rest" "$figures"
    fi
}
config_add 72-limit "[mover]
read-limit = 8M"
starts "a daemon, at 8 MB a second" || { explain_failure; finish; }
verify_begin; some; kill -KILL "$(mover)"
went_on_there "mover killed"
check "describe says so" grep -q 'MiB read before it was interrupted, no damage found' <<<"$(ask describe "$O")"
check "its log, too" grep -q 'resuming a verification that was interrupted, begun at 20' <<<"$(ask logs "$O")"
check "since when: wait --verbose" grep -q 'resumed: [0-9]* of them were read before, since 20' \
    <<<"$(COLUMNS=250 ask wait "$O" --verbose)"

verify_begin; some; pid=$(mover); daemon_kill; kill -KILL "$pid"
sqlite3 "$STATE/records.db" "UPDATE operations SET doc = json_set(doc, '$.identity.bootId',
    '0123456789abcdef0123456789abcdef') WHERE id = '$O'"
starts "the daemon after a reboot"
went_on_there "shut down"

verify_begin; some; daemon_kill
starts "the daemon again"
same "the daemon is killed: its mover goes on" "$(wait_state "$O" Completed 60) $(op '.attempt // 1')" "Completed 1"

verify_begin; some; check "it is canceled" ask cancel "$O" --wait --quiet
check "it says how far it came" grep -qE ': [123][0-9.]+ MiB in [^,]*, no damage found until it was interrupted' \
    <<<"$(ask describe "$O" | tr -s '\n ' ' ')"
check "and how to go on" grep -q 'the next verification of the same goes on' <<<"$(ask describe "$O" | tr -s '\n ' ' ')"
began=$(created)
verify_begin
went_on_there "canceled, and a new one"
check "all has been read since the first one began" \
    test "$(askj status | jq '.repositories[0].verification.all_began_ns')" -ge "$began" -a \
    "$(askj status | jq '.repositories[0].verification.all_began_ns')" -lt \
    "$(created)"

# Anew: its second attempt resumes the first one, and nothing before that.
verify_begin; some; ask cancel "$O" --wait --quiet
first=$(packs | head -n 1)
flip "$first" 1000000
O=$(askj verify main --anew | jq -r .operation)
state=$(wait_state "$O" Failed 60)
same "anew: what was read before is read again, and found" \
    "$state $(op '"\(.result.damages) \(.result.resumedBytes)"')" "Failed 1 0"
flip "$first" 1000000
verify_begin; some; ask cancel "$O" --wait --quiet
touch "$WORK/mark"
O=$(askj verify main --anew | jq -r .operation)
until_true 20 eval 'find "$CACHE" -name "verify-*" -newer "$WORK/mark" -size +189c | grep -q .'; kill -KILL "$(mover)"
went_on_there "anew, and its mover is killed"
check "what it counts as read it has read itself" test "$(op '.result.readSinceNs')" -ge "$(created)"

# Damage before and behind.
first=$(packs | head -n 1) last=$(packs | tail -n 1)
flip "$first" 1000000
verify_begin; some; kill -STOP "$(mover)"; flip "$last" $(($(stat -c %s "$last") - 1000000)); kill -KILL "$(mover)"
same "damage" "$(wait_state "$O" Failed 60)" Failed
same "what was found before it was killed, and what is behind that" \
    "$(op '"\(.error.class) \(.result.damages) \(.result.damageList | length) \(.result.resumedBytes > 4000000)"')" \
    "damage 2 2 true"

# Mended, and all read anew.
flip "$first" 1000000; flip "$last" $(($(stat -c %s "$last") - 1000000))
check "status --check is content once all has been read anew" eval 'ask verify main --wait --quiet; ask status --check'
stops "end"
explain_failure
finish
