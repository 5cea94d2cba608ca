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
expect "a dry run" 0 '4 of 4 objects would be removed' -- ask native release --all --dry-run
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
# ---- several with that alias ----
sed -i 's/^orphan-grace = .*/orphan-grace = 1h/' "$CONF/snapferry.ini"
ask reload --wait --quiet
I2=${I:0:8}${A:8}
for i in "$I" "$I2"; do
    ask backup "$X/img/d.img" --wait --quiet
    of=$(call list | grep "$(alias_of d | tail -n 1)")
    check "an intermediate of the same beginning" call expose "$of" clone rw "$i"
done
expect "an alias of several is refused" 2 "alias ${I:0:8} is ambiguous: use more characters of it" -- \
    ask native release "${I:0:8}"
expect "more of it is enough" 0 '1 of 1 object removed' -- ask native release "${I2:0:13}"
same "the other stays" "$(there "$I2")$(orphans)" "$I"
expect "and is released by what is enough now" 0 '1 of 1 object removed' -- ask native release "${I:0:8}"

# ---- a class that does not answer, and what an operation is making ----
mkdir "$X/vm"
image "$X/vm/1.img" 1 7
example_plugin driver-dir "$WORK/driver-real"
cat >"$WORK/driver" <<END
#!/bin/bash
if [ "\$1" = list ] && [ -e $WORK/down ]; then
    echo '{"protocol": 1, "error": "the array is off"}'
    exit 19
fi
if [ "\$1" = snapshot ] && [ -e $WORK/hold ]; then # it fails behind that, and its removal hangs
    $WORK/driver-real "\$@" >/dev/null
    echo '{"protocol": 1, "error": "the array has lost its mind"}'
    exit 19
fi
while [ "\$1" = remove ] && [ -e $WORK/hold ]; do sleep 0.1; done
exec $WORK/driver-real "\$@"
END
chmod 755 "$WORK" "$WORK/driver"
config_add 60-vm "[plugin \"dir\"]
kind = driver
program = $WORK/driver
privileged = yes
[storage-class \"vm\"]
driver = plugin:dir
match = $X/vm/*.img
target = $X/vm/.snap
snapshots-to-retain = 1
snapshot-timeout = 10min
retries = 0"
ask reload --wait --quiet
ask backup "$X/vm/1.img" --wait --quiet
V=$(natives_of "$X/vm/1.img")
check "a native snapshot of a plugin" test -n "$V"
stops "stop"
sqlite3 "$STATE/records.db" "DELETE FROM natives WHERE id = '$V'; DELETE FROM backups WHERE id NOT IN (
    SELECT parent FROM natives)"
starts "without its record"
check "it is listed" until_true 20 eval '[ "$(orphans)" = "$V" ]'
touch "$WORK/down"
expect "its storage does not answer: it is not removed" 19 \
    "native snapshot $V is of class .vm., whose storage does not answer: .*the array is off" -- ask native release "$V"
expect "nor with all others" 19 'whose storage does not answer: .*the array is off' -- ask native release --all
expect "a dry run says so" 19 '0 of 1 object would be removed' -- ask native release --all --dry-run
same "it stays in the list" "$(orphans)" "$V"
schema natives "in JSON" ask native list --json
expect "which does not know whether it is there" 0 "${V:0:8} .*not known" -- ask native list
same "the log says once that it does not answer" \
    "$(grep -c 'class "vm": it is not known what is left on its storage: .*the array is off' "$LOG")" 1
check "it is there" test -n "$(there "$V")"
rm "$WORK/down"
expect "when it answers it is removed" 0 '1 of 1 object removed' -- ask native release --all
same "it is gone" "$(there "$V")$(orphans)" ""
touch "$WORK/hold"
B=$(submit "$X/vm/1.img")
made() { find "$X/vm/.snap/snapshots" -name '*.img'; }
check "the native snapshot of a step that failed is being undone" until_true 20 eval '[ -n "$(made)" ]'
M=$(basename "$(made)" .img)
# Its record and its backup are lost, the operation that undoes it is not.
daemon_kill
sqlite3 "$STATE/records.db" "DELETE FROM natives WHERE id = '$M'; DELETE FROM backups WHERE id = '$B'"
starts "without the record of what is being undone"
check "it is listed" until_true 20 eval '[ "$(orphans)" = "$M" ]'
expect "it is left alone" 0 '1 in use by an operation: left alone' -- ask native release --all
expect "also by its alias" 14 "native snapshot $M is being made or removed by an operation" -- ask native release "$M"
schema native-release "in JSON" ask native release --all --json
expect "the list says so" 0 "${M:0:8} .*in use" -- ask native list
check "it is there" test -n "$(made)"
rm "$WORK/hold"
check "it is gone when that has ended" until_true 20 eval '[ -z "$(made)" ]'
check "the operation of a backup that is in no record has ended" until_true 20 settled
expect "a look finds nothing more" 0 '0 of 0 objects removed' -- ask native release --all
same "so does the list" "$(orphans)" ""
stops "the end"
expect "without a daemon: refused" 23 'the daemon is not running' -- ask native release --all
finish
