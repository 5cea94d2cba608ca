#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What has the tag of this node on the storage and is in no record: `native list` shows it, `native release` removes it
# at once, and why one cannot be removed is said in both, in status and in the log. What a record has is never touched.
# (RS-12, RS-22, E-04)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../schema.sh"
need_root "native snapshots"
fs_make xfs xfs || exit 1
X=$WORK/xfs
mkdir "$X/img"
for i in a b c d; do image "$X/img/$i.img" 1 "$(printf %d "'$i")"; done
daemon_setup 'orphan-grace = 1h' 'log-level = info'
config_class img "$X/img" 'snapshots-to-retain = 1'
starts "the daemon starts"
for i in a b c d; do ask backup "$X/img/$i.img" --wait --quiet; done
alias_of() { sqlite3 "$STATE/records.db" "SELECT id FROM natives" | while read -r n; do
    [ "$(askj describe "$n" | jq -r .native.volume)" = "$X/img/$1.img" ] && echo "$n"; done; }
A=$(alias_of a) B=$(alias_of b) C=$(alias_of c) D=$(alias_of d)
same "four native snapshots" "$(natives_of | sort)" "$(printf '%s\n' "$A" "$B" "$C" "$D" | sort)"
stops "stop"
# Of these records, but not in them; and an intermediate of a backup that they do not have.
sqlite3 "$STATE/records.db" "DELETE FROM natives WHERE id IN ('$A', '$B', '$C');
    DELETE FROM backups WHERE seq > (SELECT min(seq) FROM backups) - 1 AND id NOT IN (
        SELECT parent FROM natives)"
I=$(cat /proc/sys/kernel/random/uuid)
call() { SNAPFERRY_NO_SYSTEMD=1 "$TOOLS/driver_call" --name img --node testnode --match "$X/img/*.img" "$@"; }
check "an intermediate" call expose "$(call list | grep "$D")" clone rw "$I"
there() { find "$X" -name "*$1*" -type f; }
orphans() { askj native list | jq -r '.orphans // [] | sort_by(.alias) | .[].alias' | xargs; }
problems() { askj status | jq -r '.problems[].text'; }
starts "the daemon without the records of three"
all=$(printf '%s\n' "$A" "$B" "$C" "$I" | sort | xargs)
check "they are listed" until_true 20 eval '[ "$(orphans)" = "$all" ]'
schema natives "in JSON" ask native list --json
expect "and to be read" 0 "^${A:0:8} +native snapshot +$X/img/a.img .*in [0-9]+ min" -- ask native list
expect "an intermediate by the storage's name for it" 0 "^${I:0:8} +intermediate .*/.snapferry/$I" -- ask native list
expect "status says how many" 0 '4 objects with our tag are on the storage' -- ask status
expect "and how to remove them" 0 'snapferry native release' -- ask status
same "none of them is removed before its grace is over" "$(there "$A" | wc -l) $(there "$I" | wc -l)" "1 1"

# ---- what is refused ----
expect "neither an alias nor --all" 2 'needs the alias of one, or --all' -- ask native release
expect "both" 2 'needs the alias of one, or --all' -- ask native release "$A" --all
expect "no such alias" 16 'nothing on the storage has the alias nonsense' -- ask native release nonsense
expect "what is in the records" 2 "$D of $X/img/d.img is in the records" -- ask native release "$D"
check "stays" test -n "$(there "$D")"
expect "an empty one" 2 'name an alias, or ask for all' -- ask native release ''

# ---- one, a dry run, one that cannot be removed, all ----
expect "a dry run" 0 '4 objects would be removed' -- ask native release --all --dry-run
same "removes nothing" "$(orphans)" "$all"
schema native-release "in JSON, too" ask native release --all --dry-run --json
expect "one, by the beginning of its alias" 0 '1 of 1 object removed' -- ask native release "${A:0:8}"
same "it is gone" "$(there "$A")" ""
same "the others stay" "$(orphans)" "$(printf '%s\n' "$B" "$C" "$I" | sort | xargs)"
check "the log has it" grep -q "native snapshot $A of $X/img/a.img had the tag of this node and was in no record: rem" \
    "$LOG"
chattr +i "$(there "$B")"
expect "one that cannot be removed" 19 "native $B cannot be removed: " -- ask native release --all
same "stays, the others are removed" "$(orphans) $(there "$C")$(there "$I")" "$B "
check "the list says why" eval 'askj native list | jq -e ".orphans[0].error | test(\"not permitted|cannot\")"'
expect "also to read" 0 "${B:0:8} .*cannot be" -- ask native list
check "so does status" eval 'problems | grep -q "native $B of class .img., in no record, cannot be removed: "'
same "the log says it once" "$(grep -c "native snapshot $B .*cannot be removed" "$LOG")" 1
ask native release "$B" >/dev/null 2>&1
same "also if it is tried again" "$(grep -c "native snapshot $B .*cannot be removed" "$LOG")" 1
chattr -i "$(there "$B")"
expect "when that has ended it is" 0 '1 of 1 object removed' -- ask native release --all
same "nothing is left but what is recorded" "$(orphans)$(there "$B")$(problems)" ""
check "that is still there" test -n "$(there "$D")"
expect "nothing to release" 0 '0 of 0 objects removed' -- ask native release --all

# ---- the sweep, when its grace is over: what it cannot remove is told as well ----
stops "stop"
sqlite3 "$STATE/records.db" "DELETE FROM natives; DELETE FROM backups"
sed -i 's/^orphan-grace = .*/orphan-grace = 1s/' "$CONF/snapferry.ini"
chattr +i "$(there "$D")"
starts "a short grace"
check "the sweep cannot remove it: status says so" until_true 20 \
    eval 'problems | grep -q "native $D of class .img., in no record, cannot be removed: "'
chattr -i "$(there "$D")"
expect "it is released" 0 '1 of 1 object removed' -- ask native release "$D" --yes
same "nothing is left" "$(there "$D")$(orphans)$(problems)" ""
stops "the end"
expect "without a daemon: refused" 23 'the daemon is not running' -- ask native release --all
finish
