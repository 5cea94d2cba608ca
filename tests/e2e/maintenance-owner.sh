#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The owner of maintenance (CF-42, issue 15): a snapferry that has been silent for 72 hours is replaced, nobody else is;
# what is not maintained is a problem; another machine with the name of the owner is refused.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "the owner of maintenance"
export TZ=UTC
age() { "$TOOLS/age_repository" "$REPO" "$WORK/password" "$1" "${2-owner}"; }
known() { askj status | jq -r ".repositories[0].maintenance$1"; }
problems() { askj status | jq -r '.problems[] | select(.text | test("maintenance")) | .text'; }
runs() { sql "SELECT count(*) FROM operations WHERE json_extract(doc, '\$.kind') = 'maintain' ${1:+AND $1}"; }
none_runs() { [ "$(runs "state NOT IN ('Completed', 'Failed', 'Canceled', 'Skipped')")" = 0 ]; }
last_why() { sql "SELECT json_extract(doc, '\$.skip_reason') FROM operations WHERE id LIKE 'maintain-%' AND
    state = 'Skipped' ORDER BY seq DESC LIMIT 1"; }
# look NAME HOURS [MODE]: hours later the daemon's next look, which is daily, comes.
look() {
    local n
    stops "$1: stopped"
    age "$2" "${3-owner}"
    sqlite3 "$STATE/records.db" "UPDATE jobs SET doc = json_set(doc, '\$.maintain.since_ns', 1,
        '\$.maintain.quick.tried_ns', 1, '\$.maintain.full.tried_ns', 1) WHERE id = '[repository main]'"
    n=$(runs)
    starts "$1: started again"
    check "$1: it looks" until_true 30 eval '[ "$(runs)" -gt '"$n"' ]'
    check "$1: and has seen it" until_true 30 none_runs
}
# The same as somebody else: on a machine with another id.
printf '%s\n' 00112233445566778899aabbccddeeff >"$WORK/machine-id"
elsewhere() {
    WORK=$WORK unshare -m sh -c 'mount --bind "$WORK/machine-id" /etc/machine-id && exec "$@"' - "$SF" -r "$REPO" \
        --password-file "$WORK/password" maintenance --node-name testnode "$@"
}

sf "$REPO" repo create --quiet --node-name gone
random_file "$WORK/a" 1000000 1
sf "$REPO" backup "$WORK/a" --as a@h:/v --quiet
config_main
config_add 70-maintenance '[repository "main"]
maintenance = yes'
starts "daemon of another node"
check "it looks after the repository" until_true 10 eval '[ "$(known .standing)" = new ]'
expect "on request nothing is taken over" 20 'maintained by snapferry-maintenance@gone' -- ask maintenance --wait

# A snapferry that is gone.
look "after 60 hours" 60
same "nothing has changed" "$(known .owner)" snapferry-maintenance@gone
same "and nothing is wrong" "$(problems)" ""
cp -a "$REPO" "$WORK/60"
look "cycles disabled" 14 disabled
same "it stays" "$(known .owner)" snapferry-maintenance@gone
same "which is no problem" "$(problems)" ""
stops "stopped"
rm -rf "$REPO" "$CACHE" && cp -a "$WORK/60" "$REPO" && mkdir "$CACHE"
age 14
starts "a repository whose cycles are enabled, after 74 hours"
expect "on request still nothing is taken over" 20 'maintained by snapferry-maintenance@gone' -- ask maintenance --wait
check "but it is a problem" grep -qE 'owned by snapferry-maintenance@gone, which has not run it for 3 days: no space' \
    <<<"$(problems)"
check "for monitoring, too" [ "$(known '.silent_ns > 0')" = true ]
look "by schedule" 0
check "it is taken over" grep -q 'was taken over from snapferry-maintenance@gone' <<<"$(last_why)"
same "this node is the owner" "$(known '| .standing, .owner' | paste -sd' ')" "own snapferry-maintenance@testnode"
same "no problem is left" "$(problems)" ""
check "and asks within the hour" [ "$(known '.quick.next_ns / 1000000000 - now < 3660')" = true ]
expect "not at once" 14 'less than 30 minutes ago' -- ask maintenance --wait
expect "the former owner is refused" 20 'belongs to snapferry-maintenance@testnode' -- \
    sf "$REPO" maintenance --node-name gone
stops "half an hour"
age 1
starts "later"
check "it runs" ask maintenance --wait --quiet
same "as the owner" "$(known .standing)" own

# Of two that have done that, the one that has written last runs, and the other one finds that out.
look "silent as well" 80
sf "$REPO" maintenance --take-ownership --node-name n2 --quiet
look "the other one was later" 1
same "it is the owner" "$(known '| .standing, .owner' | paste -sd' ')" "other snapferry-maintenance@n2"
check "and runs" sf "$REPO" maintenance --node-name n2 --quiet

# A stock client is left alone.
sf "$REPO" maintenance --take-ownership --owner me@elsewhere --quiet
look "a stock client is silent" 80
same "it stays the owner" "$(known '| .standing, .owner' | paste -sd' ')" "other me@elsewhere"
check "it is a problem" grep -q 'owned by me@elsewhere, which has not run it for 3 days: no space' <<<"$(problems)"
check "with the command" grep -q 'snapferry -r main maintenance --take-ownership' <<<"$(ask status)"
expect "which status --check tells" 3 '' -- ask status --check
sf "$REPO" maintenance --owner me@elsewhere --quiet
look "it runs it" 0
same "it is none any more" "$(problems)" ""

# Another machine.
check "taken over by a clone" elsewhere --take-ownership --quiet
age 1
expect "this machine is refused" 20 'on another machine' -- sf "$REPO" maintenance --node-name testnode
expect "the daemon, too" 20 'on another machine' -- ask maintenance --wait
same "whose maintenance it is not" "$(known '| .standing, .owner' | paste -sd' ')" \
    "other snapferry-maintenance@testnode"
check "which is a problem" grep -q 'on another machine' <<<"$(problems)"
check "the clone runs it" elsewhere --quiet
expect "taken over on purpose" 0 'belongs to snapferry-maintenance@testnode now' -- \
    sf "$REPO" maintenance --take-ownership --node-name testnode
expect "again, there is nothing to do" 0 'is the owner already' -- \
    sf "$REPO" maintenance --take-ownership --node-name testnode
age 1
check "this machine runs it" ask maintenance --wait --quiet
same "no problem is left of it" "$(problems)" ""
expect "the clone is refused" 20 'on another machine' -- elsewhere
stops "end"
explain_failure
finish
