#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Verification by schedule (E-12): each run reads the share that follows; cut short, killed, missed; damage stays a
# problem until all has been read since and is whole.
. "$(dirname "$0")/../daemon-lib.sh"
export TZ=UTC
SOCK=$WORK/metrics.socket
metrics() { curl -s --unix-socket "$SOCK" http://x/metrics; }
keys() { config_add 70-verification "[repository \"main\"]
$(printf '%s\n' "$@")"; }
known() { askj status | jq -r ".repositories[0].verification$1"; }
runs() { sql "SELECT count(*) FROM operations WHERE json_extract(doc, '\$.kind') = 'verify' AND $1"; }
scheduled="json_extract(doc, '\$.read_from_ppm') IS NOT NULL"
quiet() { [ "$(runs "state NOT IN ('Completed', 'Failed', 'Canceled')")" = 0 ]; }
# The row of a repository as it was SECONDS ago.
ago() {
    sqlite3 "$STATE/records.db" "UPDATE jobs SET doc = json_set(doc, '\$.verification.since_ns', 1,
        '\$.verification.tried_ns', json_extract(doc, '\$.verification.tried_ns') - $1 * 1000000000,
        '\$.verification.done_ns', json_extract(doc, '\$.verification.done_ns') - $1 * 1000000000)
        WHERE id = '[repository main]'"
}
problems() { askj status | jq "[.problems[] | select(.text | test(\"$1\"))] | length"; }

sf "$REPO" repo create --quiet --node-name testnode --splitter FIXED-128K
random_file "$WORK/a" 9000000 1
sf "$REPO" backup "$WORK/a" --as a@h:/v --quiet
config_main
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
keys "verification = *:*:0/2" "verification-read = 50"
starts "daemon" || { explain_failure; finish; }
check "verified by schedule" until_true 30 eval '[ "$(runs "state = '\''Completed'\'' AND $scheduled")" -ge 2 ]'
keys "verification = *-*-* 04:00" "verification-read = 50"
check "the schedule is changed to a daily one" ask reload --wait
check "what runs ends" until_true 20 quiet
same "each run begins where the last one ended" "$(sql "SELECT json_extract(doc, '\$.read_from_ppm')
    FROM operations WHERE $scheduled ORDER BY seq LIMIT 2" | paste -sd' ')" "0 500000"
same "two runs have read all contents, each once" "$(sql "SELECT sum(json_extract(doc, '\$.result.contentsRead'))
    FROM (SELECT doc FROM operations WHERE $scheduled ORDER BY seq LIMIT 2)")" \
    "$(sql "SELECT json_extract(doc, '\$.result.contents') FROM operations WHERE $scheduled ORDER BY seq LIMIT 1")"
check "and neither all of them" [ "$(sql "SELECT min(json_extract(doc, '\$.result.contentsRead'))
    FROM (SELECT doc FROM operations WHERE $scheduled ORDER BY seq LIMIT 2)")" -gt 0 ]
check "since when all have been read" [ "$(known '| .all_began_ns > 0 and .all_ns > .all_began_ns')" = true ]
check "status says so, and when the next run is" grep -qE 'no damage; all data since .* ago; next in' \
    <<<"$(COLUMNS=200 ask status)"
check "no problem" ask status --check
same "metrics" "$(metrics | grep -cE '^snapferry_verify_(overdue|damages)\{repository="main"\} 0$')" 2

# Missed: one run, with the next share.
stops "stopped"
ago 400000
n=$(runs "$scheduled") from=$(sql "SELECT json_extract(doc, '\$.verification.from_ppm') FROM jobs
    WHERE id = '[repository main]'")
starts "started again after four days"
check "a missed run comes at once" until_true 20 eval '[ "$(runs "$scheduled")" -gt "$n" ]'
check "and ends" until_true 20 quiet
sleep 2
same "it is one, with the next share" "$(runs "$scheduled") $(sql "SELECT json_extract(doc, '\$.read_from_ppm')
    FROM operations WHERE $scheduled ORDER BY seq DESC LIMIT 1")" "$((n + 1)) ${from:-0}"

# Not possible for a while: overdue.
stops "stopped"
ago 400000
config_add 71-slots "[daemon]
slots = 0"
starts "no operation may start"
check "it is overdue, which is a problem" until_true 10 eval '[ "$(problems "verification is overdue")" = 1 ]'
same "and a metric" "$(metrics | grep -c '^snapferry_verify_overdue{repository="main"} 1$')" 1
rm "$CONF/conf.d/71-slots.ini"
check "they may" ask reload --wait
check "it is made up for" until_true 30 eval '[ "$(problems "verification is overdue")" = 0 ]'
check "and ends" until_true 20 quiet

# Its mover is killed.
random_file "$WORK/b" 20000000 2
sf "$REPO" backup "$WORK/b" --as b@h:/v --quiet
stops "stopped"
ago 400000
n=$(runs "$scheduled")
config_add 72-limit "[mover]
read-limit = 2M"
starts "another one is due, at 2 MB a second"
until_true 20 eval '[ "$(runs "$scheduled")" -gt "$n" ]'
O=$(sql "SELECT id FROM operations WHERE $scheduled ORDER BY seq DESC LIMIT 1")
PID=$(hold_mover "$O" 20)
if [ "$PID" ]; then
    rm "$CONF/conf.d/72-limit.ini"
    ask reload --wait --quiet
    kill -KILL "$PID"
    same "its mover is killed: it is done again" "$(wait_state "$O" Completed 40)" Completed
    check "with another attempt" [ "$(doc "$O" | jq .attempt)" -gt 1 ]
else
    fail "its mover can be held" "$(doc "$O")"
fi

# Damage.
pack=$(find "$REPO/p" -name '*.f' -size +100k -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
mv "$pack" "$WORK/pack"
expect "a pack is missing" 15 'damage' -- ask verify --read-percent 1 --wait
check "damage is a problem" [ "$(problems 'found [0-9]+ damaged or missing pieces?, less than an hour ago')" = 1 ]
expect "status --check fails" 3 . -- ask status --check
check "the metric counts it" [ "$(metrics | awk '/^snapferry_verify_damages{repository="main"}/ { print $2 }')" -gt 0 ]
mv "$WORK/pack" "$pack"
check "it is back: a share is whole" ask verify --read-percent 1 --wait --quiet
same "which does not prove that all is" "$(problems 'damaged or missing')" 1
check "all has been read" ask verify --wait --quiet
same "and is whole: no problem is left" "$(problems 'damaged or missing')" 0
check "status --check is content" ask status --check

# Refused, and switched off.
keys "verification = often"
expect "no calendar" 2 'verification.*often|often' -- ask reload --wait
keys "verification ="
check "no schedule" ask reload --wait
check "is noted" until_true 20 eval '[ "$(sql "SELECT json_extract(doc, '\''\$.verification.since_ns'\'') FROM jobs
    WHERE id = '\''[repository main]'\''")" = "" ]'
same "no next run" "$(known .next_ns)" null
stops "end"
explain_failure
finish
