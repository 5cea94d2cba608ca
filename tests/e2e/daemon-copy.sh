#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Copies of a repository by schedule and on request, to a directory and to S3: cut short, killed, canceled, missed; a
# place that is not there, was written to by somebody else, or whose keys change.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
export TZ=UTC
SOCK=$WORK/metrics.socket C=$WORK/copy
metrics() { curl -s --unix-socket "$SOCK" http://x/metrics; }
keys() { config_add 70-copy "[copy \"offsite\"]
$(printf '%s\n' "path = $C" "$@")"; }
known() { askj status | jq -r ".copies[] | select(.name == \"${2:-offsite}\") | $1"; }
runs() { sql "SELECT count(*) FROM operations WHERE json_extract(doc, '\$.kind') = 'copy' AND $1"; }
quiet() { [ "$(runs "state NOT IN ('Completed', 'Failed', 'Canceled')")" = 0 ]; }
last() { sql "SELECT id FROM operations WHERE json_extract(doc, '\$.kind') = 'copy' ORDER BY seq DESC LIMIT 1"; }
# The row of the copy as it was SECONDS ago.
ago() {
    sqlite3 "$STATE/records.db" "UPDATE jobs SET doc = json_set(doc, '\$.copy.since_ns', 1,
        '\$.copy.tried_ns', json_extract(doc, '\$.copy.tried_ns') - $1 * 1000000000,
        '\$.copy.good_ns', json_extract(doc, '\$.copy.good_ns') - $1 * 1000000000) WHERE id = '[copy offsite]'"
}
problems() { askj status | jq "[.problems[] | select(.text | test(\"$1\"))] | length"; }
started() { askj copy "$@" | jq -r '.operation // empty'; }

sf "$REPO" repo create --quiet --node-name testnode --splitter FIXED-128K
random_file "$WORK/a" 9000000 1
sf "$REPO" backup "$WORK/a" --as a@h:/v --quiet
config_main
config_add 50-disks "[storage-class \"disks\"]
driver = device
match = $WORK/disk*"
mkdir -p "$C"
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
keys "on-calendar = *:*:0/2" "verify = yes"
starts "daemon" || { explain_failure; finish; }
check "copied by schedule" until_true 30 eval '[ "$(runs "state = '\''Completed'\''")" -ge 2 ]'
keys "on-calendar = *-*-* 04:00" "verify = yes"
check "the schedule is changed to a daily one" ask reload --wait
check "what runs ends" until_true 20 quiet
check "the copy is whole" sf "$C" verify --quiet
check "by its name, with the repository's password" "$SNAPFERRY" --config-dir "$CONF" -r offsite snapshot list --quiet
same "the first run copied all, the next one nothing" "$(sql "SELECT
    json_extract(doc, '\$.result.copy.copiedBytes') > 9000000 FROM operations
    WHERE json_extract(doc, '\$.kind') = 'copy' ORDER BY seq LIMIT 2" | paste -sd' ')" "1 0"
same "each is verified" "$(sql "SELECT min(json_extract(doc, '\$.result.copy.verified')) FROM operations
    WHERE json_extract(doc, '\$.kind') = 'copy'")" 1
expect "status has it" 0 'offsite of main: made .* copied .*; next in .*'"$C" -- env COLUMNS=300 "$SNAPFERRY" status \
    --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
check "no problem" ask status --check
same "metrics" "$(metrics | grep -cE '^snapferry_copy_(overdue|failed|surplus_bytes)\{copy="offsite"\} 0$')" 3
check "when it was made" [ "$(metrics |
    awk '/^snapferry_copy_last_success_timestamp_seconds{copy="offsite"}/ { print $2 }')" -gt 1700000000 ]
expect "explain names it" 0 "Copy .*offsite.* of that repository is made in $C, by schedule" -- \
    ask explain "$WORK/disk1" --json
expect "operations list it" 0 'copy offsite of main' -- ask operations --all
expect "a copy is not maintained" 13 'copy of another one' -- sf "$C" maintenance --node-name testnode --full --quiet

# On request: what is new, and one at a time.
random_file "$WORK/b" 30000000 2
sf "$REPO" backup "$WORK/b" --as b@h:/v --quiet
keys "on-calendar = *-*-* 04:00" "write-limit = 256K" # two minutes, on a slow machine as well
ask reload --wait --quiet
O=$(started offsite)
locked() { [ -n "$(find "$C" -name '*copy-lock*.f' -print -quit)" ]; } # not while it is being written
check "its mover has the copy's lock" until_true 20 locked
PID=$(hold_mover "$O" 20)
if [ "$PID" ]; then
    expect "the command gives way to its mover" 14 'is being written by' -- "$SNAPFERRY" --config-dir "$CONF" -r main \
        repo sync-to offsite
    expect "one is under way" 14 "under way: $O" -- ask copy offsite
    same "nothing else is affected by its limit: it has its own" "$(doc "$O" |
        jq .details.policy.limits.write_limit)" 262144
    daemon_kill
    kill -CONT "$PID"
    starts "the daemon is killed, and started again"
    check "its mover goes on" kill -0 "$PID"
    reports() { [ "$(doc "$O" | jq ".progress.done // 0")" -gt 1000000 ]; }
    check "and reports" until_true 20 reports
    same "of all that is to be copied" "$(doc "$O" |
        jq '.progress.total > 30000000 and .progress.total < 40000000')" true
    kill -KILL "$PID"
    check "killed, it is done again" until_true 20 eval '[ "$(doc "$O" | jq .attempt)" -gt 1 ]'
    check "it can be canceled" ask cancel "$O"
    same "and ends at once" "$(wait_state "$O" Canceled 20)" Canceled
else
    fail "its mover can be held" "$(doc "$O")"
fi
check "what is there is a repository without the new backup" sf "$C" verify --quiet
# At a limit of reads the copy of 30 MB takes more than two seconds.
keys "on-calendar = *-*-* 04:00" "read-limit = 8M"
ask reload --wait --quiet
expect "the next run goes on" 0 'were there' -- ask copy offsite --wait
check "reads have a limit of their own" [ "$(doc "$(last)" | jq '.result.copy.seconds > 1')" = true ]
check "to a copy that has it" sf "$C" restore latest "$WORK/out" --as b@h:/v --quiet
check "as it was" cmp "$WORK/b" "$WORK/out"

# Missed: one run. Not possible for a while: overdue.
stops "stopped"
ago 400000
n=$(runs 1)
starts "started again after four days"
check "a missed run comes at once" until_true 20 eval '[ "$(runs 1)" -gt "$n" ]'
check "and ends" until_true 20 quiet
sleep 2
same "it is one" "$(runs 1)" "$((n + 1))"
stops "stopped"
ago 400000
config_add 71-slots "[daemon]
slots = 0"
starts "no operation may start"
check "it is overdue, which is a problem" until_true 10 eval '[ "$(problems "copy .* is overdue: last made")" = 1 ]'
same "and a metric" "$(metrics | grep -c '^snapferry_copy_overdue{copy="offsite"} 1$')" 1
rm "$CONF/conf.d/71-slots.ini"
check "they may" ask reload --wait
check "it is made up for" until_true 30 eval '[ "$(problems "is overdue")" = 0 ]'
check "and ends" until_true 20 quiet

# The file system of the copy is not mounted: what is below the mount point stays empty.
mv "$C" "$WORK/unmounted"
expect "no directory" 25 'cannot be reached' -- ask copy offsite --wait
mkdir "$C"
expect "an empty one" 25 'is not there' -- ask copy offsite --wait
same "nothing is written there" "$(ls -A "$C")" ""
check "it is a problem" [ "$(problems 'copy .offsite. of repository .main. failed: .*is not there')" = 1 ]
expect "status --check fails" 3 . -- ask status --check
same "and a metric" "$(metrics | grep -c '^snapferry_copy_failed{copy="offsite"} 1$')" 1
check "another one is made on request" ask copy offsite --new --wait --quiet
check "which is whole" sf "$C" verify --quiet
check "and no problem" ask status --check
rm -rf "$C"
mv "$WORK/unmounted" "$C"
check "the first one is back" ask copy offsite --wait --quiet

# Somebody else has written to it.
cp -a "$C" "$WORK/kept"
random_file "$WORK/c" 200000 3
sf "$C" backup "$WORK/c" --as c@h:/v --quiet
expect "it has diverged" 12 'has diverged' -- ask copy offsite --wait
check "and stays as it is" sf "$C" snapshot show latest --as c@h:/v --quiet
rm -rf "$C"
mv "$WORK/kept" "$C"
check "as it was before it goes on" ask copy offsite --wait --quiet

# In S3, with keys of its own, which change while it copies.
s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK"
fault() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1" >/dev/null; }
fault _set/key/first
printf 'access-key = first\nsecret-key = s\n' | secret "$WORK/cloud.keys"
config_add 72-cloud "[copy \"cloud\"]
repository = main
type = s3
endpoint = http://127.0.0.1:$port
bucket = bucket
prefix = cloud/
credentials = $WORK/cloud.keys
write-limit = 8M"
check "a second copy, in a bucket" ask reload --wait
expect "which one, has to be said" 2 'several' -- ask copy
O=$(started cloud)
if PID=$(hold_mover "$O" 20); then
    sleep 1
    fault _set/key/second
    printf 'access-key = second\nsecret-key = s\n' | secret "$WORK/cloud.keys"
    kill -CONT "$PID"
    same "with the keys that are valid now it goes on" "$(wait_state "$O" Completed 60)" Completed
    same "in one attempt" "$(doc "$O" | jq '.attempt // 1')" 1
else
    fail "the mover of the bucket can be held" "$(doc "$O")"
fi
check "it is whole" sf "$WORK/cloud" verify --quiet
check "and read by its name" "$SNAPFERRY" --config-dir "$CONF" -r cloud snapshot list --quiet
printf 'access-key = third\nsecret-key = s\n' | secret "$WORK/cloud.keys"
expect "wrong keys" 20 'key' -- ask copy cloud --wait
same "are the problem of this copy alone" "$(problems 'copy .cloud. .*failed') $(problems 'copy .offsite.')" "1 0"

# Of another repository than the first one.
rm "$CONF/conf.d/72-cloud.ini"
sf "$WORK/second" repo create --quiet --node-name testnode
sf "$WORK/second" backup "$WORK/a" --as second@h:/v --quiet
keys "repository = main"
config_add 72-second "[daemon]
repository = main
[repository \"second\"]
path = $WORK/second
password-file = $WORK/password
[copy \"of-second\"]
repository = second
path = $WORK/of-second"
mkdir "$WORK/of-second"
check "a copy of another repository" ask reload --wait
check "is made" ask copy of-second --wait --quiet
sources() { sf "$1" snapshot list --json | tail -n 1 | jq -c '[.snapshots[].source]'; }
same "it has what that one has" "$(sources "$WORK/of-second")" "$(sources "$WORK/second")"
check "and not what the first one has" [ "$(sources "$WORK/of-second")" != "$(sources "$C")" ]

# Refused, and switched off.
rm "$CONF/conf.d/72-second.ini"
for bad in "[copy \"x\"]
path = $REPO=at the place of" "[copy \"x\"]
path = $REPO/sub=one is in the other" "[copy \"x\"]
path = $C=at the place of" "[copy \"x\"]
repository = other
path = /x=no .repository .other" "[copy \"main\"]
path = /x=has the name of" "[copy \"x\"]
type = s3
bucket = b=has no endpoint" "[copy \"x\"]
path = /x
on-calendar = often=on-calendar"; do
    config_add 73-bad "${bad%=*}"
    expect "refused: ${bad##*=}" 2 "${bad##*=}" -- ask reload --wait
done
rm "$CONF/conf.d/73-bad.ini"
keys
check "no schedule" ask reload --wait
check "is noted" until_true 20 eval '[ "$(sql "SELECT json_extract(doc, '\''\$.copy.since_ns'\'') FROM jobs
    WHERE id = '\''[copy offsite]'\''")" = "" ]'
same "no next run" "$(known .next_ns)" null
rm "$CONF/conf.d/70-copy.ini"
check "no copy" ask reload --wait
expect "there is none" 2 'no .copy' -- ask copy offsite
check "status has none" [ "$(askj status | jq .copies)" = null ]
stops "end"
explain_failure
finish
