#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Copies and verifications by schedule while the daemon, their movers or both are killed at any moment: each ends in a
# state that is true, goes on where it was, and nothing is left behind.
. "$(dirname "$0")/../daemon-lib.sh"
export TZ=UTC
C=$WORK/copy ROUNDS=${ROUNDS:-12}
runs() { sql "SELECT count(*) FROM operations WHERE json_extract(doc, '\$.kind') = '$1' AND $2"; }
schedule() { # CALENDAR OF BOTH
    config_add 70-both "[repository \"main\"]
verification = $1
verification-read = 100
[copy \"near\"]
path = $C
on-calendar = $1
verify = yes
[daemon]
retry-first = 1s
retry-max = 1s
[mover]
read-limit = 16M"
}
unfinished_files() { find "$C" "$REPO" -name '*.tmp.*'; }
movers() { pgrep -f -- "snapferry-mover.*$WORK/"; }

sf "$REPO" repo create --quiet --node-name testnode --splitter FIXED-128K
random_file "$WORK/a" 12000000 1
sf "$REPO" backup "$WORK/a" --as a0@h:/v --quiet
config_main
config_add 50-disks "[storage-class \"disks\"]
driver = device
match = $WORK/disk*"
mkdir -p "$C"
schedule '*:*:0/2'
starts "the daemon starts" || { explain_failure; finish; }
for ((i = 1; i <= ROUNDS; i++)); do
    # Something new to copy, and to verify.
    random_file "$WORK/a" 6000000 $((i + 1))
    sf "$REPO" backup "$WORK/a" --as "a$i@h:/v" --quiet || fail "round $i: a backup"
    sleep "0.$((RANDOM % 10))"
    until_true 20 movers
    sleep "0.$((RANDOM % 10))"
    who=$((RANDOM % 3))
    [ $who = 0 ] || for p in $(movers); do kill -KILL "$p" 2>/dev/null; done
    if [ $who != 1 ]; then
        daemon_kill
        daemon_start || { fail "round $i: the daemon starts again"; explain_failure; finish; }
    fi
done
pass "killed $ROUNDS times"
schedule '*-*-* 04:00'
check "the schedule is changed to a daily one" ask reload --wait
check "all that had begun ends" until_true 120 settled
# One that was killed in all of its attempts has failed, and says so; nothing else has.
killed="state = 'Failed' AND json_array_length(doc, '\$.attempts') = 4 AND
    (SELECT min(value ->> '\$.message' LIKE '%died while running%' OR value ->> '\$.message' LIKE '%never started%' OR
        value ->> '\$.message' LIKE '%killed by signal 9%') FROM json_each(doc, '\$.attempts'))"
for kind in copy verify; do
    same "$kind: each run completed, or was killed four times" "$(runs $kind "NOT (state = 'Completed' OR $killed)")" 0
done
check "the copy is whole" sf "$C" verify --quiet
check "the next run completes" ask copy near --wait --quiet
packs() { (cd "$1" && find p q -type f -name '*.f' ! -name '*.tmp.*' -printf '%P %s\n' | sort); }
same "then it has all blobs of the repository" "$(comm -23 <(packs "$REPO") <(packs "$C") | wc -l)" 0
# What a killed writer has left without its name is no lock, and is removed by a later run.
same "no lock is left" "$(find "$C" -name '*copy-lock*' ! -name '*.tmp.*')" ""
same "no mover runs" "$(movers)" ""
no_result() { [ "$(find "$STATE/results" -type f -name '*.json' | wc -l)" = 0 ]; }
check "no result is left" until_true 20 no_result # it is removed a moment after its operation has ended
check "and a verification" ask verify --wait --quiet
expect "nothing is damaged" 0 'no damage' -- ask status
unfinished_files | xargs -r touch -d '-25 hours'
random_file "$WORK/a" 1000000 99
sf "$REPO" backup "$WORK/a" --as last@h:/v --quiet
check "a run a day later" ask copy near --wait --quiet
check "retention of the repository" sf "$REPO" snapshot expire --quiet
same "removes what killed ones left unfinished" "$(unfinished_files)" ""
check "the copy is whole then" sf "$C" verify --quiet
stops "the daemon ends"
explain_failure
finish
