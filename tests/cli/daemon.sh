#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What the verbs without -r show: the real control socket, a pretended engine behind it. Tables fit, nothing on the
# screen comes from a name, JSON is as docs/control.md says, and what can be told while the daemon is down is told
# (AO-21).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../schema.sh"
RUN=
ask() { "$SNAPFERRY" --runtime-dir "$RUN" --state-dir "$RUN/state" --config-dir "$WORK/etc" "$@"; }
# serve ROWS [TICKS]: a daemon with that many volumes and operations.
serve() {
    [ -n "$RUN" ] && kill "$SERVER" && wait "$SERVER" 2>/dev/null
    RUN=$WORK/run-$1; mkdir "$RUN"
    "$TOOLS/control_server" "$RUN" "$@" >"$RUN/log" 2>&1 &
    SERVER=$!
    for _ in $(seq 100); do grep -q ready "$RUN/log" && return; sleep 0.05; done
    fail "the server starts" "$(cat "$RUN/log")"
}
at_exit 'kill $SERVER'
export COLUMNS=80 # where there is no terminal; unset, tables are as wide as they need
# No line is wider than 80 columns, and no control character but the newline is there (colour neither: no terminal).
fits() {
    local out wide
    out=$("${@:2}" 2>&1)
    wide=$(LC_ALL=C.UTF-8 grep -E "^.{$((${COLUMNS_WANTED:-80} + 1))}" <<<"$out" | head -n 3)
    if [ -n "$wide" ]; then fail "$1 fits" "$wide"; else pass "$1 fits"; fi
    if LC_ALL=C.UTF-8 grep -qP '[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}]' <<<"$out"; then
        fail "$1 has no control characters" "$(cat -v <<<"$out" | grep -n '\^\|M-' | head -n 3)"
    else
        pass "$1 has no control characters"
    fi
}

mkdir -p "$WORK/etc/conf.d"
for n in 0 1 200; do
    serve $n
    fits "status with $n" ask status
    fits "volumes with $n" ask volumes
    lines=$(ask status | wc -l)
    check "status with $n is one screen ($lines lines)" test "$lines" -le 23
    schema status "status with $n in JSON" ask status --json
    schema volumes "volumes with $n in JSON" ask volumes --json
done
same "200 rows are 200 in JSON" "$(ask volumes --json | result 'volumes | length')" 200
expect "unprotected volumes come first" 0 'NO ' -- sh -c "'$SNAPFERRY' --runtime-dir '$RUN' volumes | sed -n 2p"
COLUMNS_WANTED=70 fits "status in 70 columns" env COLUMNS=70 "$SNAPFERRY" --runtime-dir "$RUN" status

# On a terminal there is colour, unless NO_COLOR or TERM say no.
terminal() { script -qec "$*" /dev/null </dev/null; }
cmd="'$SNAPFERRY' --runtime-dir '$RUN' status"
check "colour on a terminal" grep -q $'\033\[3' <(TERM=xterm terminal "$cmd")
check "none with NO_COLOR" bash -c '! grep -q "$1" <<<"$2"' - $'\033\[3' "$(TERM=xterm NO_COLOR=1 terminal "$cmd")"
check "none on a dumb terminal" bash -c '! grep -q "$1" <<<"$2"' - $'\033\[3' "$(TERM=dumb terminal "$cmd")"

serve 12
expect "nothing yet: operations" 0 'No operations' -- ask operations
expect "nothing yet: backups" 0 'No backups' -- ask backups
expect "nothing yet: native snapshots" 0 'No native snapshots' -- ask native list
schema operations "no operations in JSON" ask operations --json

expect "backup tells how to follow it" 0 'Show progress: snapferry wait manual-' -- ask backup vg0/db1 skip-me
expect "and what it skips" 0 'skip-me skipped: excluded' -- ask backup vg0/db1 skip-me
schema submitted-backup "backup in JSON" ask backup vg0/db1 skip-me --json
expect "a refused request" 16 'there is no volume nope' -- ask backup nope
expect "backup --wait" 0 'Completed in' -- ask backup vg0/db1 vg0/db2 --wait
schema backup "backup --wait in JSON" ask backup vg0/db1 --wait --json
check "with progress before it" grep -q '"type":"progress"' <(ask backup vg0/db1 --wait --json)
expect "backup --job" 0 'nightly-' -- ask backup --job nightly
expect "both job and volume" 2 'not both' -- ask backup vg0/db1 --job nightly
expect "neither" 2 'volumes or --job' -- ask backup
expect "--from-timer without a job" 2 'requires --job' -- ask backup x --from-timer
expect "--from-timer does nothing" 0 'the daemon runs its jobs itself' -- ask backup --job nightly --from-timer
expect "without a daemon neither" 0 '' -- "$SNAPFERRY" backup --job nightly --from-timer --runtime-dir "$WORK/nowhere"
expect "no jobs" 0 'No jobs' -- ask jobs
schema jobs "no jobs in JSON" ask jobs --json
expect "an option of the other form" 2 'does not take --compression' -- ask backup x --compression zstd
expect "-r with a verb of the daemon" 2 'does not take -r' -- ask -r x status
expect "one word of two" 2 'list, prune' -- ask native
expect "overwrite and new" 2 'mutually exclusive' -- ask restore b t --overwrite --new
expect "a wrong place to restore from" 2 'auto, native or repository' -- ask restore b t --from tape

id=$(ask backup vg0/db1 fail-2 --json | result backup)
expect "wait" 3 'fail-2 Failed: the device has a bad sector' -- ask wait "$id"
expect "describe a backup with its operations (AO-53)" 0 'PartiallyFailed' -- ask describe "$id"
schema describe "in JSON" ask describe "$id" --json
expect "describe an operation as BACKUP/VOLUME" 0 'bad sector' -- ask describe "$id/fail-2"
expect "by its beginning, if that is unique" 2 'may mean' -- ask describe "manual-"
expect "describe a volume" 0 '27.0 GiB' -- ask describe vg0/db1
expect "describe nothing" 16 'there is no' -- ask describe nothing-at-all
expect "the reason is below the row" 0 '^    the device has a bad sector' -- ask operations --state Failed
schema operations "operations in JSON" ask operations --json
schema backups "backups in JSON" ask backups --json
expect "explain" 0 'snapshots-to-retain' -- ask explain vg0/db1
schema explain "explain in JSON" ask explain vg0/db1 --json

expect "a restore, relative to the working directory" 0 'from the native snapshot: the native snapshot is there' \
    -- ask restore "$id/vg0/db1" out.img
check "arrives as an absolute path" grep -q "\"target\":\"$PWD/out.img\"" "$RUN/log"
ask restore "$id/vg0/db1" /srv/x --class-map gold=silver --class-map a=b --overwrite --allow-incomplete \
    --from repository --quiet
check "class map, overwrite and incomplete backups are passed on (CF-51, AO-14)" \
    grep -q '"from":"repository","overwrite":true,"allow_incomplete":true,"class_map":{"gold":"silver","a":"b"}' \
    "$RUN/log"
schema submitted-restore "restore in JSON" ask restore "$id" /x --json
schema held "hold in JSON" ask hold 0b5e --note "for the audit" --json
check "with its note" grep -q 'for the audit' "$RUN/log"
schema held "unhold in JSON" ask unhold 0b5e --json
schema deleted "delete in JSON" ask delete "$id" --json
schema native-prune "native prune in JSON" ask native prune --dry-run --json
schema reload "reload in JSON" ask reload --wait --json
expect "reload without --wait" 0 'Configuration reloaded' -- ask reload
kill -HUP "$SERVER"; sleep 0.1
expect "a refused reload" 2 'snapferry.ini:7.*mtach' -- ask reload --wait
expect "also without --wait" 2 'snapferry.ini:7.*mtach' -- ask reload
kill -HUP "$SERVER"

h=$(ask backup hang-1 --json | result backup)
env --default-signal=INT "$SNAPFERRY" --runtime-dir "$RUN" wait "$h" >"$WORK/out" 2>&1 &
waiter=$!
# Once it catches or blocks SIGINT.
heeds() {
    local blocked caught
    blocked=$(sed -n 's/^SigBlk:\t*//p' "/proc/$1/status") caught=$(sed -n 's/^SigCgt:\t*//p' "/proc/$1/status")
    [ $(((0x$blocked | 0x$caught) & 2)) -ne 0 ]
}
for _ in $(seq 400); do heeds $waiter && break; sleep 0.05; done
sleep 0.3
kill -INT $waiter
wait $waiter
same "an interrupt ends the waiting" $? 130
check "and says that the backup goes on" grep -q "snapferry cancel $h" "$WORK/out"
expect "it did" 0 'Running' -- ask describe "$h"
expect "cancel --wait (AO-37)" 0 'being canceled' -- ask cancel "$h" --wait
expect "what has ended is left alone" 0 'has already ended: Canceled' -- ask cancel "$h"

# A wait survives a restart of the daemon.
serve 2 150
b=$(ask backup vg0/slow --json | result backup)
ask wait "$b" >"$WORK/out" 2>&1 & waiting=$!
sleep 0.7; kill "$SERVER"; wait "$SERVER" 2>/dev/null; sleep 0.7
"$TOOLS/control_server" "$RUN" 2 5 >>"$RUN/log" 2>&1 & SERVER=$!
wait $waiting
same "a wait survives a restart" "$? $(grep -c 'lost the connection' "$WORK/out")" "0 1"

# Who waits does not start a daemon that was stopped: for systemd, which has the socket then, any connection would be a
# reason to.
serve 4 100000
b=$(ask backup vg0/slow --json | result backup)
ask wait "$b" >"$WORK/waits" 2>&1 & waiting=$!
ask logs "$b" --follow >"$WORK/follows" 2>&1 & following=$!
until_said() { for _ in $(seq 200); do [ "$(grep -c "$1" "$2")" -gt 0 ] && return; sleep 0.1; done; false; } # TEXT FILE
check "somebody waits" until_said vg0/slow "$WORK/waits"
check "somebody follows the log" until_said begun "$WORK/follows" # its first question may start a daemon
kill "$SERVER"; wait "$SERVER" 2>/dev/null
"$TOOLS/script_server" "$RUN" >"$RUN/stopped" 2>&1 & SERVER=$!
check "the daemon is stopped, systemd has its socket" until_said ready "$RUN/stopped"
check "who waited is told" until_said "lost the connection" "$WORK/waits"
expect "who begins to wait, too" 23 'waiting does not start it' -- ask wait "$b"
sleep 3 # in which they ask again
check "both go on waiting" eval 'kill -0 $waiting && kill -0 $following'
same "nobody has started it" "$(grep -c connected "$RUN/stopped")" 0
ask operations >/dev/null 2>&1
same "a command that needs it would" "$(grep -c connected "$RUN/stopped")" 1
kill $waiting $following; wait $waiting; wait $following

# Down: from the files.
cat >"$WORK/etc/snapferry.ini" <<X
[repository "main"]
type = filesystem
path = /srv/backup
password-file = $WORK/pw
[storage-class "gold"]
driver = reflink
match = /srv/vm/*.img
X
serve 3
f=$(ask backup fail-3 fine --json | result backup); ask wait "$f" --quiet >/dev/null 2>&1
kill "$SERVER"; wait "$SERVER" 2>/dev/null
expect "down: status" 0 'NOT RUNNING' -- ask status
expect "and it says where this comes from" 0 "reading $RUN/state" -- ask operations
schema status "down: status in JSON" ask status --json
same "with the reason" "$(ask status --json 2>/dev/null | result offline)" true
for v in operations backups volumes; do schema $v "down: $v in JSON" ask $v --json; done
schema natives "down: native list in JSON" ask native list --json
schema describe "down: describe in JSON" ask describe "$f" --json
expect "down: what has ended can be waited for" 3 'PartiallyFailed' -- ask wait "$f"
expect "down: BACKUP/VOLUME" 0 'bad sector' -- ask describe "$f/fail-3"
expect "down: logs" 0 'No log of' -- ask logs "$f/fail-3"
expect "down: explain, from the configuration" 0 'gold' -- ask explain /srv/vm/a.img
expect "down: a request" 23 'not running' -- ask backup vg0/db1
out=$(ask backup vg0/db1 --json 2>/dev/null)
same "in JSON" "$(result class <<<"$out") $(result exitCode <<<"$out")" "no-daemon 23"
RUN=$WORK/nowhere
expect "no daemon, no records" 23 'the records cannot be read' -- ask status

# CF-52: no secret in the bundle, wherever it hid.
RUN=$WORK/run-3
secret "$WORK/pw" <<<hunter2-correct-horse
cat >"$WORK/etc/conf.d/10.ini" <<'X'
[storage-class "remote"]
driver = plugin:x
backup-option.api-token = tok-4711
backup-option.url = https://admin:sesame@example.org/x
; password = oldpassword-in-a-comment
backup-option.secret-key =
    continued-secret-value
X
printf 'note = hunter2-correct-horse stood here\n' >"$WORK/etc/conf.d/20.ini"
umask 022
expect "debug-bundle" 0 'Secrets have been removed' -- ask debug-bundle "$WORK/bundle.tar.gz"
same "it is for its owner alone" "$(stat -c %a "$WORK/bundle.tar.gz")" 600
mkdir "$WORK/bundle"
check "a tar file that tar reads" tar xf "$WORK/bundle.tar.gz" -C "$WORK/bundle" --strip-components 1
check "with records, configuration and status" test -s "$WORK/bundle/records/operations.jsonl" \
    -a -s "$WORK/bundle/config/snapferry.ini" -a -s "$WORK/bundle/status.json"
for secret in hunter2 tok-4711 sesame oldpassword continued-secret; do
    same "no $secret in it" "$(grep -rl "$secret" "$WORK/bundle")" ""
done
check "the path of a password file stays" grep -q "password-file = $WORK/pw" "$WORK/bundle/config/snapferry.ini"
check "and other keys" grep -q 'match = /srv/vm' "$WORK/bundle/config/snapferry.ini"
expect "an existing file is left alone" 12 'already exists' -- ask debug-bundle "$WORK/bundle.tar.gz"
check "to standard output" tar tzf <(ask debug-bundle - 2>/dev/null)
finish
