#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# After a loss of the records the daemon may be started before its configuration is back, or before a file system is
# mounted. Whenever that is: native snapshots of before are recorded again, not removed as orphans, and held if they
# were, what the repository has of this node is found, and nothing is said not to have happened that is merely not
# known.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "records that are lost"
fs_make a xfs && fs_make b xfs || exit 1
image "$WORK/a/v.img" 2 1
image "$WORK/a/only.img" 2 2
image "$WORK/a/none.img" 2 4
image "$WORK/b/w.img" 2 3
daemon_setup 'sweep = 1s' 'orphan-grace = 1s' || { fail "a repository"; finish; }
config_class a "$WORK/a" 'snapshots-to-retain = 1'
config_class b "$WORK/b" 'snapshots-to-retain = 1'
for v in only none; do
    config_add "$v" "[volume \"$WORK/a/$v.img\"]
move-data = no
snapshot-only-keep = 2"
done
starts "the daemon starts"
check "backups" ask backup "$WORK/a/v.img" "$WORK/a/only.img" "$WORK/b/w.img" --wait --quiet
check "a verification" ask verify main --wait --quiet
aliases() { askj native list | jq -r '.natives[].alias' | sort; }
why() { askj volumes | jq -r --arg v "$1" '.volumes[] | select(.name == $v) | .why'; }
check "a volume without a backup" until_true 20 \
    eval '[ "$(why "$WORK/a/none.img")" = "not backed up yet, and no job names it" ]'
text() { ask status | tr -s ' '; }
said() { text | grep -qE -- "$1"; }
before=$(aliases)
same "three native snapshots" "$(wc -l <<<"$before")" 3
check "it was verified" said '; verified [0-9]+ (s|min) ago, no damage'
check "nothing was lost" eval '! said rebuilt'
native_of() { askj native list | jq -r --arg v "$1" '.natives[] | select(.volume == $v) | .alias' | head -n 1; }
kept_v=$(native_of "$WORK/a/v.img") kept_w=$(native_of "$WORK/b/w.img")
check "one is held" ask hold "$kept_v" --note "until the audit" --quiet
check "and one on a file system that will be away" ask hold "$kept_w" --quiet
stops "the daemon ends"

# As after an installation: the package starts it, then the configuration is put back and it is started again.
rm -f "$STATE"/records.db*
mv "$CONF" "$CONF.away"
mkdir -p "$CONF/conf.d"
sed -E '/^\[repository/,$d' "$CONF.away/snapferry.ini" >"$CONF/snapferry.ini"
mv "$CONF.away/conf.d/50-b.ini" "$WORK"
starts "it starts without repository and classes"
check "which it looks at" until_true 10 said 'Volumes none found yet'
held() { askj native list | jq -c '[.natives[] | select(.hold) | [.alias, .state, .note // ""]] | sort'; }
both() { printf '[["%s","%s","until the audit"],["%s","%s",""]]' "$kept_v" "$1" "$kept_w" "$2" | jq -c sort; }
same "what was held is, before it is found" "$(held)" "$(both missing missing)"
check "and is listed with its volume" grep -q "$WORK/a/v.img" <<<"$(ask native list)"
stops "it ends"
starts "it starts again"
rm -r "$CONF"; mv "$CONF.away" "$CONF"
check "a reload with the configuration that was" ask reload --wait
there() { askj native list | jq -r '.natives[] | select(.state == "present") | .alias' | sort; }
check "its native snapshots are recorded again" until_true 20 eval '[ "$(there | wc -l)" = 2 ]'
check "the repository is scanned without being asked" \
    until_true 20 eval 'askj volumes | jq -e --arg v "$WORK/a/v.img" ".volumes[] | select(.name == \$v) | .protected"'
check "a verification of before is not denied" said 'not verified since the records were rebuilt [0-9]+ (s|min) ago'
same "one that was held is found and held, the other one waits" "$(held)" "$(both present missing)"
check "which is no loss" said 'records rebuilt .* ago from storage and repositories: verifications of before'
check "a backup with a held native snapshot is not deleted before that is found" \
    eval '! ask delete "$(askj native list | jq -r ".natives[] | select(.alias == \"$kept_w\") | .backup")" --yes'
check "a volume that has native snapshots alone is protected by them" \
    eval 'askj volumes | jq -e --arg v "$WORK/a/only.img" ".volumes[] | select(.name == \$v) | .protected"'
same "of one whose native snapshot, if any, is gone it is not denied that there was one" "$(why "$WORK/a/none.img")" \
    "no backup of it is known since the records were rebuilt, and no job names it"
image "$WORK/a/new.img" 1 9
listed_new() { [ -n "$(why "$WORK/a/new.img")" ]; }
check "a volume that comes later is found" until_true 20 listed_new
same "and is new" "$(why "$WORK/a/new.img")" "not backed up yet, and no job names it"
rm "$WORK/a/new.img"
sleep 3
same "none of them is an orphan" "$(askj status | jq '[.problems[] | select(.text | test("objects with our tag"))] |
    length')" 0
same "two are there" "$(find "$WORK/a/.snapferry" -name '*.native' | wc -l)" 2
same "those that were moved are known to be" \
    "$(askj native list | jq -r --arg v "$WORK/a/v.img" '.natives[] | select(.volume == $v) | .reasons')" \
    "retained hold"
check "it is verified again" ask verify main --wait --quiet
check "which status says" said '; verified [0-9]+ s ago, no damage'

# A class that comes later: a file system that was not mounted.
mv "$WORK/50-b.ini" "$CONF/conf.d"
check "the class is back" ask reload --wait
check "its native snapshot is recorded again, too" until_true 20 eval '[ "$(there)" = "$before" ]'
same "as one whose data is in the repository" \
    "$(askj native list | jq -r --arg v "$WORK/b/w.img" '.natives[] | select(.volume == $v) | .reasons')" \
    "retained hold"
same "and held" "$(held)" "$(both present present)"
check "a newer backup" ask backup "$WORK/a/v.img" --wait --quiet
check "does not prune what is held" test -e "$WORK/a/.snapferry/$kept_v.native"
check "until it is released" ask unhold "$kept_v" --quiet
check "and a newer one is there" ask backup "$WORK/a/v.img" --wait --quiet
check "then it is pruned" until_true 10 eval '! test -e "$WORK/a/.snapferry/$kept_v.native"'

# What these records have made and do not have is an orphan as ever.
check "another backup" ask backup "$WORK/b/w.img" --wait --quiet
same "no dedup ratio is made of what was counted since" \
    "$(askj status | jq '.repositories[0] | .added > 0 and .dedup == null')" true
check "nor shown" said 'stored, dedup ratio unknown;'
made=$(askj native list | jq -r --arg v "$WORK/b/w.img" '[.natives[] | select(.volume == $v)][0].alias')
stops "the daemon ends"
sqlite3 "$STATE/records.db" "DELETE FROM natives WHERE id = '$made';
    DELETE FROM backups WHERE seq = (SELECT max(seq) FROM backups)"
sleep 1.5 # its grace
starts "and starts without the record of one"
check "it is removed after its grace" until_true 10 eval '! ls "$WORK/b/.snapferry/$made"*'
stops "the daemon ends"

# Whether a job has run is not known before the repositories were scanned; backups come back in the order of their time.
config_add runs "[job \"never\"]
volumes = $WORK/a/none.img"
rm -f "$STATE"/records.db*
mv "$REPO" "$REPO.away"
starts "and starts without records or repository"
check "a job is not said never to have run" said 'Jobs never .* no run known'
expect "nor by jobs" 0 'never +unknown' -- ask jobs
same "nor a volume not to have been backed up" "$(why "$WORK/a/none.img")" \
    'no backup is known: repository "main" has not been scanned since the records began'
check "nor the repository never to have been verified" eval '! said "never verified"'
mv "$REPO.away" "$REPO"
scanned() { askj backups --all | jq -e '.backups | length >= 4' && settled; }
check "the repository is scanned when it is back" until_true 30 scanned
same "the newest backup is listed first" \
    "$(askj backups --all | jq '[.backups[].created_ns] | . == (sort | reverse)')" true
check "that a job never ran is not said then either" said 'Jobs never .* no run known'
stops "the daemon ends"
explain_failure
finish
