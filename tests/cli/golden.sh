#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a person sees, compared byte by byte with tests/cli/golden/*.txt: every list and screen, at several widths, with
# colour and without, with 0, 1 and 200 volumes and with names and numbers that are hard to show. The answers come from
# golden/answers.jq (checked against the schema of docs/control.md, so that they are the daemon's), the clock stands
# still. GOLDEN_ACCEPT=1 takes what is there for right and shows what changes.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../schema.sh"
GOLD=$(realpath "$(dirname "$0")/golden")
RUN=$WORK/run
OUT=$WORK/golden
mkdir -p "$RUN" "$OUT" "$WORK/etc/conf.d"
command -v faketime >/dev/null || { fail "faketime is missing" "make deps installs it"; finish; }
unset COLUMNS LINES NO_COLOR
export TZ=Europe/Berlin LC_ALL=C.UTF-8 TERM=xterm FAKETIME_DONT_FAKE_MONOTONIC=1
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0"
NOON=(faketime -f '2026-11-21 13:00:00') # 12:00 UTC

# answers NAME: what the server says from now on. Records are shown with their members in the order in which they come.
answers() {
    local jq=jq
    [ "$1" != one ] || jq=$JQ
    "$jq" -n -c -f "$GOLD/answers.jq" --arg what "$1" | sed -E 's/"@(-?[0-9]+)@"/\1/g' >"$RUN/script.new" &&
        mv "$RUN/script.new" "$RUN/script.json"
}
answers none
"$TOOLS/script_server" "$RUN" "$RUN/script.json" >"$RUN/log" 2>&1 &
SERVER=$!
at_exit 'kill $SERVER'
for _ in $(seq 100); do grep -q ready "$RUN/log" && break; sleep 0.05; done

# A daemon that takes requests and does not answer: what can be told is told from its records, after a while.
STUCK=$WORK/stuck
mkdir "$STUCK"
"$TOOLS/control_server" "$STUCK" 3 1 >"$STUCK/log" 2>&1 & FIRST=$!
for _ in $(seq 100); do grep -q ready "$STUCK/log" && break; sleep 0.05; done
"$SNAPFERRY" backup vg0/db1 fail-2 --wait --quiet --runtime-dir "$STUCK" >/dev/null 2>&1
kill $FIRST; wait $FIRST 2>/dev/null
echo '{"status": {"hang": true}, "backups": {"hang": true}, "submit-backup": {"hang": true}}' >"$STUCK/script.json"
"$TOOLS/script_server" "$STUCK" "$STUCK/script.json" >"$STUCK/log" 2>&1 & STUCK_PID=$!
at_exit 'kill $(pgrep -P $STUCK_PID) $STUCK_PID'
for _ in $(seq 100); do grep -q ready "$STUCK/log" && break; sleep 0.05; done
for v in status backups; do
    "$TOOLS/terminal" "$SNAPFERRY" $v --runtime-dir "$STUCK" --state-dir "$STUCK/state" --config-dir "$WORK/none" \
        >"$STUCK/$v.out" 2>&1 &
    STUCK_ASKED="${STUCK_ASKED:-} $!"
done

own_paths() {
    sed -e "s,$RUN,/run/snapferry,g; s,$WORK/etc,/etc/snapferry,g; s,$WORK/state,/var/lib/snapferry,g; s,$WORK,/WORK,g"
}
where() { echo --runtime-dir "$RUN" --state-dir "$WORK/state"; }
# shown FILE TITLE SIZE COMMAND...: appends what COMMAND shows on a terminal of that size ("pipe": without one).
shown() {
    local file=$1 title=$2 size=$3 rc
    shift 3
    {
        printf '=== %s: %s\n' "$title" "$size"
        if [ "$size" = pipe ]; then "$@" 2>&1
        elif [ "$1" = here ]; then (cd "$WORK" && "$TOOLS/terminal" --size "$size" "${@:2}" 2>&1)
        else "$TOOLS/terminal" --size "$size" "$@" 2>&1; fi
        rc=$?
        [ $rc -eq 0 ] || echo "exit $rc"
    } | own_paths >>"$OUT/$file.txt"
}
# screen FILE SCENARIO SIZE VERB...: a verb of the daemon.
screen() {
    local file=$1 scenario=$2 size=$3
    shift 3
    shown "$file" "$* ($scenario)" "$size" "${NOON[@]}" "$SNAPFERRY" "$@" $(where)
}

# ---- the pretended answers are such as the daemon gives ----

for s in none one busy many fine trouble names numbers states; do
    answers $s
    schema status "answers.jq: status ($s)" "$SNAPFERRY" status --json $(where)
    schema volumes "answers.jq: volumes ($s)" "$SNAPFERRY" volumes --json $(where)
done
schema operations "answers.jq: operations" "$SNAPFERRY" operations --json $(where)
schema backups "answers.jq: backups" "$SNAPFERRY" backups --json $(where)
schema natives "answers.jq: natives" "$SNAPFERRY" native list --json $(where)
schema jobs "answers.jq: jobs" "$SNAPFERRY" jobs --json $(where)
schema describe "answers.jq: describe" "$SNAPFERRY" describe x --json $(where)
schema explain "answers.jq: explain" "$SNAPFERRY" explain x --json $(where)

# ---- status ----

for s in none one busy many fine trouble; do
    answers $s
    screen status $s 80x24 status
    lines=$("$TOOLS/terminal" --size 80x24 "${NOON[@]}" "$SNAPFERRY" status $(where) | wc -l)
    check "status ($s) fits 80x24: $lines lines" test "$lines" -le 23
done
answers busy
for size in 40x24 120x40 pipe; do screen status busy $size status; done
answers many
for size in 40x24 200x60 pipe; do screen status many $size status; done
answers names
screen status names 80x24 status

# ---- lists ----

answers states
for size in 40x24 80x24 120x40 200x60 pipe; do
    screen operations states $size operations
    screen backups states $size backups
    screen jobs states $size jobs
    screen native-list states $size native list
done
answers none
for v in operations backups volumes jobs "native list"; do screen empty none 80x24 $v; done
answers names
for v in operations volumes jobs "native list"; do
    screen names names 80x24 $v
    screen names names pipe $v
done
screen names names 40x24 volumes
answers numbers
screen numbers numbers 80x24 volumes
screen numbers numbers pipe volumes
answers busy
for size in 40x24 80x24 pipe; do screen volumes busy $size volumes; done
answers many
screen volumes many 80x24 volumes

# ---- one thing ----

answers described
for size in 40x24 80x24 pipe; do
    screen describe described $size describe nightly-20261121T020000-3f9a
    screen explain described $size explain vg0/db1
    screen explain described $size explain vg0/db1 --all
done

answers one
screen describe one 80x24 describe up-nightly-20261121T020000-3f9a.00000001
screen describe one 80x24 describe up-nightly-20261121T020000-3f9a.00000001 --verbose

# ---- no colour where none is wanted ----

answers busy
for v in NO_COLOR=1 TERM=dumb TERM=; do
    out=$(env "$v" "$TOOLS/terminal" "${NOON[@]}" "$SNAPFERRY" status $(where))
    if grep -qE '\{(red|green|yellow|dim)\}' <<<"$out"; then
        fail "no colour with $v" "$out"
    else
        pass "no colour with $v"
    fi
done
check "colour without" grep -qF '{red}' <<<"$("$TOOLS/terminal" "${NOON[@]}" "$SNAPFERRY" status $(where))"
check "none in a pipe" sh -c "! grep -q \$'\033' '$OUT'/*.txt"
plain() { sed -E 's/\{(red|green|yellow|dim|\/)\}//g'; }
same "the words are the same" "$(NO_COLOR=1 "$TOOLS/terminal" "${NOON[@]}" "$SNAPFERRY" status $(where))" \
    "$("$TOOLS/terminal" "${NOON[@]}" "$SNAPFERRY" status $(where) | plain)"

# ---- --wide, --check ----

answers states
same "--wide on a terminal is what a pipe gets" \
    "$("$TOOLS/terminal" --size 40x24 "${NOON[@]}" "$SNAPFERRY" operations --wide $(where) | tr -d '\\\n' | plain)" \
    "$("${NOON[@]}" "$SNAPFERRY" operations $(where) | tr -d '\n')"
health() {
    answers "$1"
    "$SNAPFERRY" status --check --quiet $(where) >"$WORK/check" 2>&1
    echo "$? $(wc -c <"$WORK/check")"
}
same "--check: all is well" "$(health fine)" "0 0"
same "--check: a volume is not protected" "$(health many)" "3 0"
same "--check: problems" "$(health trouble)" "3 0"
same "--check: no daemon" \
    "$("$SNAPFERRY" status --check --quiet --runtime-dir "$WORK/nowhere" --state-dir "$STUCK/state" \
        --config-dir "$WORK/none" >/dev/null 2>&1; echo $?)" 23
same "without it status is an answer" "$(answers trouble; "$SNAPFERRY" status --quiet $(where); echo $?)" 0

# ---- whatever a name holds ----

answers names
for v in status operations volumes jobs "native list"; do
    for size in 20x5 37x24 80x24 133x43; do
        out=$("$TOOLS/terminal" --size $size "${NOON[@]}" "$SNAPFERRY" $v $(where) 2>&1); rc=$?
        check "$v at $size: nothing but text and colours" test $rc -eq 0
        if [ $size != 20x5 ] && grep -q '\\$' <<<"$out"; then
            fail "$v at $size: no line is folded" "$(grep -A 1 '\\$' <<<"$out")"
        else
            pass "$v at $size: no line is folded"
        fi
    done
    "${NOON[@]}" "$SNAPFERRY" $v $(where) >"$WORK/pipe" 2>&1
    if grep -qP '[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{200b}\x{202e}\x{feff}]' "$WORK/pipe"; then
        fail "$v in a pipe: no control characters" "$(cat -v "$WORK/pipe" | head -n 5)"
    else
        pass "$v in a pipe: no control characters"
    fi
done
for f in "$OUT"/*.txt; do
    check "$(basename "$f"): no blanks at the end of a line" sh -c "! grep -n '[[:blank:]]\$' '$f'"
done

# ---- errors ----

answers one
# Relative names, so that lines do not depend on where this runs.
here() { (cd "$WORK" && "$@"); }
for size in 40x24 80x24 pipe; do
    shown errors "no daemon, no records" $size here "$SNAPFERRY" status --runtime-dir nowhere --state-dir no-records
    shown errors "no daemon, a request" $size here "$SNAPFERRY" backup vg0/db1 --runtime-dir nowhere
done
mkdir "$WORK/dead"
"$TOOLS/script_server" "$WORK/dead" "$RUN/script.json" >/dev/null & DEAD=$!
for _ in $(seq 100); do [ -S "$WORK/dead/control.sock" ] && break; sleep 0.05; done
kill $DEAD; wait $DEAD 2>/dev/null
shown errors "the socket of a dead daemon" pipe "$SNAPFERRY" backup vg0/db1 --runtime-dir "$WORK/dead"
shown errors "another version" pipe "$SNAPFERRY" scan $(where)
echo '{"status": {"line": "HTTP/1.0 200 OK"}, "ping": {"answer": {"version": "0.0.9", "pid": 1, "protocol": 1}}}' \
    >"$RUN/script.json"
shown errors "another program" pipe "$SNAPFERRY" status $(where)
echo '{"submit-backup": {"close": true}}' >"$RUN/script.json"
shown errors "it goes away" pipe "$SNAPFERRY" backup vg0/db1 $(where)
echo '{"status": {"error": {"class": "permission", "code": 20, "message": "user 1000 may not use the control socket",
    "hint": "allowed are root and members of the group set by [daemon] socket-group"}}}' >"$RUN/script.json"
shown errors "not in the group" pipe "$SNAPFERRY" status $(where)
echo "{\"status\": {\"error\": {\"class\": \"error\", \"code\": 1, \"message\": \"an escape \\u001b[2J in an error\",
    \"hint\": \"and \\u009b2J in its hint\"}}}" >"$RUN/script.json"
shown errors "an error with control characters" 80x24 "$SNAPFERRY" status $(where)
if is_root && id nobody >/dev/null 2>&1 && command -v setpriv >/dev/null; then
    chmod 711 "$WORK"; chmod 700 "$RUN"
    cp "$SNAPFERRY" "$WORK/snapferry"; chmod 755 "$WORK/snapferry"
    shown errors "the socket is not for this user" pipe setpriv --reuid=nobody --regid=nogroup --clear-groups \
        "$WORK/snapferry" status $(where)
else
    skip "the socket is not for this user" "needs root and setpriv"
    sed -n '/^=== the socket is not for this user/,/^===/p' "$GOLD/errors.txt" | sed '$d' >>"$OUT/errors.txt"
fi

# ---- check-config ----

cat >"$WORK/etc/snapferry.ini" <<X
[daemon]
slots = many
colour = blue

[mover]
user = root
X
cat >"$WORK/etc/conf.d/10-main.ini" <<X
[repository "main"]
path = $WORK/repository
password-file = $WORK/password
X
printf '%s\n' '[storage-class "gold"]' 'driver = reflink' 'mtach = /srv/vm/*.img' 'match = /srv/vm/*.img' \
    '[jbo "nightly"]' '[job "weekly"]' 'on-calendar = every blue moon' >"$WORK/etc/conf.d/50-gold.ini"
for size in 40x24 80x24 pipe; do
    shown check-config "two files with mistakes" $size here "$SNAPFERRY" check-config --config-dir etc
done

# ---- the snapshots in a repository ----

sf "$WORK/repository" repo create --quiet
head -c 100000 /dev/zero >"$WORK/image"
for path in /srv/vm/a.img /srv/vm/a-directory-with-a-name-of-some-length/db.img; do
    sf "$WORK/repository" backup "$WORK/image" --as "snapferry@nas1:$path" --quiet >>"$WORK/log" 2>&1
done
sf "$WORK/repository" snapshot pin "$(sf "$WORK/repository" snapshot list --json | result 'snapshots[0].id')" audit \
    --quiet
# Ids and times are new in each run.
for size in 80x24 40x24 pipe; do
    shown snapshot-list "snapshot list" $size env TZ=UTC "$SNAPFERRY" -r "$WORK/repository" --password-file \
        "$WORK/password" snapshot list
done
sed -E 's/^[0-9a-f]{16}  /0123456789abcdef  /; s/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC/2026-11-21 12:00:00 UTC/' \
    "$OUT/snapshot-list.txt" >"$WORK/list" && mv "$WORK/list" "$OUT/snapshot-list.txt"

# ---- what volumes take, in repositories of stock Kopia ----

for name in two-clients missing-index-blob-first; do
    jq -j .password "$GOLDEN/$name.expected.json" | secret "$WORK/stock"
    cp -a "$GOLDEN/$name" "$WORK/repository-$name"
    for size in 40x24 80x24 200x60 pipe; do
        shown usage-volumes "repo usage --volumes ($name)" $size env TZ=UTC "$SNAPFERRY" -r "$WORK/repository-$name" \
            --password-file "$WORK/stock" repo usage --volumes
    done
done

# ---- the daemon that does not answer ----

for p in $STUCK_ASKED; do wait "$p"; same "a daemon that does not answer: exit code" $? 0; done
check "status says so" grep -q 'NOT RESPONDING.*; the following is from its records' "$STUCK/status.out"
check "as a problem, with what to do" \
    sh -c "grep -q '{red}!{/} the daemon does not answer' '$STUCK/status.out' &&
        grep -q 'journalctl -u snapferryd' '$STUCK/status.out'"
check "backups are listed from the records" \
    sh -c "grep -q 'PartiallyFailed.*manual-' '$STUCK/backups.out' && tr -s '\n ' ' ' <'$STUCK/backups.out' |
        grep -q 'the daemon does not answer; reading'"
check "no trace of the waiting is left" sh -c "! grep -q 'waiting for the daemon' '$STUCK/status.out'"

# ---- compare ----

for f in "$OUT"/*.txt; do
    name=$(basename "$f")
    if [ -n "${GOLDEN_ACCEPT:-}" ] && ! cmp -s "$f" "$GOLD/$name"; then
        diff -u "$GOLD/$name" "$f" 2>/dev/null | sed 's/^/# /'
        cp "$f" "$GOLD/$name"
    fi
    if cmp -s "$f" "$GOLD/$name"; then
        pass "golden/$name"
    else
        fail "golden/$name" "$(diff -u "$GOLD/$name" "$f" | head -n 60)" \
            "GOLDEN_ACCEPT=1 tests/cli/golden.sh takes it for right"
    fi
done
for f in "$GOLD"/*.txt; do [ -e "$OUT/$(basename "$f")" ] || fail "golden/$(basename "$f") is still made"; done
finish
