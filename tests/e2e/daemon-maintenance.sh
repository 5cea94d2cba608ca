#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Maintenance by the daemon (CF-35 to CF-41, E-05): by schedule, missed runs once, on request; canceled, its mover
# killed, the daemon killed; of a repository that another client maintains; switched off.
. "$(dirname "$0")/../daemon-lib.sh"
export TZ=UTC
keys() { config_add 70-maintenance "[repository \"main\"]
$(printf '%s\n' "$@")"; }
age() { "$TOOLS/age_repository" "$REPO" "$WORK/password" "$1"; }
packs() { find "$REPO/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
runs() { # runs WHERE: how many operations of maintenance
    sql "SELECT count(*) FROM operations WHERE json_extract(doc, '\$.kind') = 'maintain' ${1:+AND $1}"
}
known() { askj status | jq -r ".repositories[0].maintenance$1"; }
none_runs() { [ "$(runs "state NOT IN ('Completed', 'Failed', 'Canceled', 'Skipped')")" = 0 ]; }
# held [ARG...]: a full maintenance whose mover stands still in the middle: sets O and PID.
held() {
    for _ in $(seq 30); do
        O=$(askj maintenance --full "$@" | jq -r '.operation // empty')
        if [ "$O" ] && PID=$(hold_mover "$O" 20); then
            [ "$(find "$STATE/results" -name '*.json' -size +0)" ] || return
            kill -CONT "$PID" # it had done all
        fi
        until_true 20 none_runs
    done
    fail "a mover can be stopped in the middle" "$(doc "$O")"
    finish
}

sf "$REPO" repo create --quiet --node-name testnode
random_file "$WORK/a" 3000000 1
random_file "$WORK/b" 6000000 2
for v in a b; do sf "$REPO" backup "$WORK/$v" --as "$v@h:/v" --quiet; done
sf "$REPO" snapshot delete latest --as b@h:/v --force --quiet
age 25
full=$(packs)
config_main
keys "maintenance = yes"
starts "daemon"
check "it looks after the repository" until_true 10 eval '[ "$(known .standing)" = new ]'
check "and has a time for each kind of run" [ "$(known '.quick.next_ns > 0 and .full.next_ns > .quick.next_ns')" ]

# On request.
out=$(ask maintenance --full --dry-run --explain 2>&1)
check "a dry run says what would happen" grep -q 'marked deleted by the next run' <<<"$out"
same "and that nothing was changed" "$(tail -n 1 <<<"$out" | grep -c 'nothing was changed')" 1
check "it counts for nothing" [ "$(known .full.last_ns)" = null ]
out=$(ask maintenance main --full --explain --wait 2>&1)
check "the first run marks" grep -qE '^Marked deleted +[0-9]+ contents, 5.7 MiB' <<<"$out"
check "and says when it is freed" grep -q 'until the second full maintenance from now' <<<"$out"
O=$(sql "SELECT id FROM operations WHERE id LIKE 'maintain-%' ORDER BY seq DESC LIMIT 1")
check "its record has the numbers" [ "$(doc "$O" | jq '.result.maintenance.summary.marked.bytes')" -gt 5900000 ]
check "and what is kept, until when" [ "$(doc "$O" |
    jq '.result.maintenance | .reclaimableBytes > 5900000 and .backFromNs > 0')" = true ]
check "describe shows them" grep -qE 'Task +full maintenance of main' <<<"$(ask describe "$O")"
check "with the reasons" grep -q 'marked deleted just now' <<<"$(ask describe "$O")"
check "it is among the operations" grep -q 'full maintenance of main' <<<"$(ask operations)"
same "status: this node's" "$(known .standing)" own
check "and when space comes back" grep -qE 'to come back, not before' <<<"$(ask status)"
check "a quick one" ask maintenance --wait --quiet
check "is noted as well" [ "$(known '.quick.success_ns > 0')" = true ]

# By schedule.
age 25
left=$REPO/p/dead-s1111111111111111147.f.tmp.0123456789abcdef
head -c 4000 /dev/zero >"$left"
touch -d '25 hours ago' "$left"
find "$REPO" -name 'kopia.repository.f' -exec touch {} + # by whose time files have an age
keys "maintenance = yes" "maintenance-full = *:*:0/2"
check "full maintenance every two seconds" ask reload --wait
scheduled() { runs "json_extract(doc, '\$.maintain.scheduled') AND state = 'Completed'"; }
check "is done" until_true 30 eval '[ "$(scheduled)" -ge 2 ]'
check "what a killed writer left is gone" test ! -e "$left"
same "and was counted" "$(sql "SELECT sum(json_extract(doc, '$.result.maintenance.summary.leftovers.count'))
    FROM operations")" 1
keys "maintenance = no"
check "switched off" ask reload --wait
check "what runs ends" until_true 20 none_runs
n=$(runs)
sleep 3
same "and no other begins" "$(runs)" "$n"
same "status says so" "$(known .standing)" off
check "on request it is done all the same" ask maintenance --wait --quiet
age 25
check "the last run" ask maintenance --full --wait --quiet
check "has freed the space" [ "$(packs)" -lt $((full - 5500000)) ]
check "status: how much" [ "$(known .freed)" -gt 5500000 ]
check "the rest is whole" sf "$REPO" verify --quiet

# Missed while the daemon was down: once.
stops "stopped"
sqlite3 "$STATE/records.db" "UPDATE jobs SET doc = json_set(doc, '\$.maintain.since_ns', 1,
    '\$.maintain.quick.tried_ns', 1, '\$.maintain.full.tried_ns', 1) WHERE id = '[repository main]'"
keys "maintenance = yes"
n=$(runs)
starts "started again"
check "a missed run comes at once" until_true 20 eval '[ "$(runs)" -gt "$n" ]'
check "and ends" until_true 20 none_runs
sleep 3
same "it is one, and full" "$(runs) $(sql "SELECT json_extract(doc, '\$.maintain.full') FROM operations
    ORDER BY seq DESC LIMIT 1")" "$((n + 1)) 1"

# Canceled; the mover killed, and the daemon.
held
check "another one is refused meanwhile" grep -q 'is under way' <<<"$(ask maintenance 2>&1)"
check "canceled" ask cancel "$O"
same "ends as Canceled" "$(wait_state "$O" Canceled 30)" Canceled
held
kill -KILL "$PID"
same "its mover is killed: it is done again" "$(wait_state "$O" Completed 40)" Completed
check "with another attempt" [ "$(doc "$O" | jq .attempt)" -gt 1 ]
held
daemon_kill
starts "the daemon was killed"
kill -CONT "$PID"
same "the same mover goes on" "$(wait_state "$O" Completed 40)" Completed
held
kill -KILL "$PID"
daemon_kill
starts "both were killed"
same "it is done again" "$(wait_state "$O" Completed 60)" Completed
stops "stopped"
starts "a daemon whose movers die in the middle of it" SNAPFERRY_CRASH_AT=maintenance-begun
ask maintenance --full --wait >"$WORK/out" 2>&1
same "it fails at last" "$?" 25
check "which is a problem" grep -q 'full maintenance failed' <<<"$(ask status)"
stops "stopped again"
starts "and one whose movers live"
check "the next run mends it" ask maintenance --full --wait --quiet
check "no problem is left" [ "$(askj status | jq '[.problems[] | select(.text | test("maintenance"))] | length')" = 0 ]
check "all is whole" sf "$REPO" verify --quiet

# Another client's.
sf "$REPO" maintenance --take-ownership --owner me@elsewhere --quiet
expect "refused, with the reason" 20 'maintained by me@elsewhere' -- ask maintenance --wait
same "which is no failure" "$(sql "SELECT state FROM operations WHERE id LIKE 'maintain-%'
    ORDER BY seq DESC LIMIT 1")" Skipped
same "status names the owner" "$(known '| .standing, .owner' | paste -sd' ')" "other me@elsewhere"
check "for people, too" grep -q 'maintained by me@elsewhere' <<<"$(ask status)"
same "it is no problem" "$(askj status | jq '[.problems[] | select(.text | test("maintenance"))] | length')" 0
check "it is asked again after a day" [ "$(known ".quick.next_ns / 1000000000 - now > 0")" = true ]
stops "end"
explain_failure
finish
