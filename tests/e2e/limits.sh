#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# read-limit and write-limit: kept to by the mover itself, by the command with -r and by the daemon's movers without
# systemd (MS-02). How long something takes at least is certain: all but the first piece at the rate.
. "$(dirname "$0")/../daemon-lib.sh"
R=$WORK/own
sf "$R" repo create --quiet --splitter DYNAMIC-1M-BUZHASH --key-derivation pbkdf2-sha256-600000
random_file "$WORK/image" $((12 * MIB)) 5

# lasts NAME SECONDS COMMAND...: it succeeds, and its own figure is at least that.
lasts() {
    local name=$1 least=$2 s
    shift 2
    s=$("$@" --json 2>"$WORK/err" | result seconds)
    took=${s:-0}
    if [ "$(bc <<<"${s:-0} >= $least")" = 1 ]; then
        pass "$name"
    else
        fail "$name" "took ${s:-nothing} s, not $least" "$(tail -n 5 "$WORK/err")"
    fi
}
lasts "backup --read-limit" 2.4 sf "$R" backup "$WORK/image" --as t@h:/a --read-limit 4MiB
check "it is what it was" \
    sh -c "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' cat latest/volume.img | cmp - '$WORK/image'"
cp -r "$R" "$WORK/once"
random_file "$WORK/image2" $((12 * MIB)) 6
lasts "backup --write-limit" 2.4 sf "$R" backup "$WORK/image2" --as t@h:/b --write-limit 4MiB
s=$(sf "$R" backup "$WORK/image2" --as t@h:/b --write-limit 256KiB --json | result storedBytes)
check "what is there already is not written: it may have the least rate" test "$s" -lt 65536
truncate -s 1T "$WORK/holes"
sf "$R" backup "$WORK/holes" --as t@h:/c --read-limit 256KiB --json >"$WORK/out"
same "holes are not read" "$(result readBytes <"$WORK/out")" 0
lasts "restore --write-limit" 2 sf "$R" restore latest "$WORK/back" --as t@h:/b --write-limit 4MiB
check "into what it was" cmp "$WORK/image2" "$WORK/back"
rm "$WORK/back"
lasts "restore --read-limit" 2 sf "$R" restore latest "$WORK/back" --as t@h:/b --read-limit 4MiB
check "into the same" cmp "$WORK/image2" "$WORK/back"
rm "$WORK/back"
lasts "restore with both" 2 sf "$R" restore latest "$WORK/back" --as t@h:/b --read-limit 4MiB --write-limit 4MiB
same "takes what one of them takes, not the sum: contents wait for both at once ($took s)" "$(bc <<<"$took < 4.8")" 1
check "into the same again" cmp "$WORK/image2" "$WORK/back"
lasts "verify --read-limit" 2 sf "$WORK/once" verify --read-limit 4MiB

# What is left of half-filled packs is stored again.
M=$WORK/short
sf "$M" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 20MiB
for i in 1 2; do
    random_file "$WORK/part" $((4 * MIB)) $((20 + i))
    sf "$M" backup "$WORK/part" --as "t$i@h:/v" --quiet
done
"$TOOLS/age_repository" "$M" "$WORK/password" 3
for limit in read write; do
    rm -rf "$WORK/limited" && cp -a "$M" "$WORK/limited"
    lasts "maintenance --$limit-limit" 1.8 sf "$WORK/limited" maintenance --full --node-name n1 --$limit-limit 4MiB
    check "which has stored 8 MiB again" eval '
        [ "$(find "$WORK/limited/p" -type f -size +7M | wc -l)" = 1 ] && sf "$WORK/limited" verify --quiet'
done

# What is slow is told as it goes, not in leaps of as many chunks as are hashed together.
head -c $((8 * MIB)) "$WORK/image" >"$WORK/eight"
sf "$R" backup "$WORK/eight" --as t@h:/e --read-limit 1MiB --json >"$WORK/out" 2>/dev/null
n=$(jq -r 'select(.type == "progress") | .doneBytes' "$WORK/out" | sort -un | wc -l)
check "progress goes by chunks: $n steps" test "$n" -ge 4

# A cancelled one does not keep to it: hours would be left.
random_file "$WORK/image" $((24 * MIB)) 7
: >"$WORK/out" # it has such lines already
"$SNAPFERRY" -r "$R" --password-file "$WORK/password" backup "$WORK/image" --as t@h:/d --read-limit 1MiB \
    --write-limit 256KiB --json >"$WORK/out" 2>&1 &
pid=$!
until_true 60 grep -q '"readBytes": *[1-9]' "$WORK/out"
kill -INT $pid
start=$SECONDS
wait $pid
same "interrupted while it waits: exit code" $? 130
check "within 20 s" test $((SECONDS - start)) -le 20
expect "less than 256 KiB/s is refused" 2 'at least 256KiB' -- sf "$R" backup "$WORK/image" --read-limit 262143
expect "and what is no size" 2 'at least 256KiB' -- sf "$R" restore latest "$WORK/back" --write-limit fast
expect "verify writes nothing" 2 'write-limit' -- sf "$R" verify --write-limit 1MiB

# ---- the daemon's, by its configuration ----

if ! is_root || [ ! -e /dev/loop-control ]; then
    skip "the daemon's movers" "needs root and loop devices"
    finish
fi
fs_make vol xfs || exit 1
random_file "$WORK/vol/a.img" $((12 * MIB)) 8
daemon_setup
rm -rf "$REPO"
sf "$REPO" repo create --quiet --node-name testnode --splitter DYNAMIC-1M-BUZHASH --pack-size 40MiB # it maintains it
config_class vol "$WORK/vol" 'read-limit = 1KiB'
expect "check-config: too little is refused" 2 'read-limit = 1KiB is out of range: at least 256KiB' \
    -- "$SNAPFERRY" check-config --config-dir "$CONF"
config_class vol "$WORK/vol" 'read-limit = 4MiB'
starts "the daemon starts"
# operation_lasts NAME SECONDS OPERATION
operation_lasts() {
    local s
    s=$(doc "$3" | jq -r '.result.seconds // .details.result.seconds // 0')
    if [ "$(bc <<<"$s >= $2")" = 1 ]; then pass "$1"; else fail "$1" "took $s s, not $2" "$(doc "$3")"; fi
}
A=$(submit "$WORK/vol/a.img")
same "a backup with read-limit" "$(wait_state "$A" Completed 60)" Completed
operation_lasts "takes its time" 2.4 "$(op_id "$A")"
config_class vol "$WORK/vol" 'write-limit = 4MiB' 'snapshots-to-retain = 1'
check "reload" ask reload --wait --quiet
random_file "$WORK/vol/a.img" $((12 * MIB)) 9
B=$(submit "$WORK/vol/a.img")
same "a backup with write-limit" "$(wait_state "$B" Completed 60)" Completed
operation_lasts "takes its time, too" 2.4 "$(op_id "$B")"
C=$(askj restore "$B/$WORK/vol/a.img" "$WORK/vol/out.img" --from repository | jq -r '.restore // empty')
same "a restore with write-limit" "$(wait_state "$C" Completed 60)" Completed
operation_lasts "as well" 2 "$(op_id "$C")"
check "and it is what it was" cmp "$WORK/vol/a.img" "$WORK/vol/out.img"
# From the native snapshot, into another file system: a copy by the driver.
D=$(askj restore "$B/$WORK/vol/a.img" "$WORK/copied.img" --from native | jq -r '.restore // empty')
O=$(op_id "$D")
moves() { P=$(doc "$O") && jq -e '.progress.rate > 0' <<<"$P"; }
until_true 60 moves
same "a copy of a native snapshot shows how far it has got" \
    "$(jq -r '.progress | "\(.phase) \(.total) \(.done > 0 and .done < .total)"' <<<"$P")" "moving $((12 * MIB)) true"
same "and is completed" "$(wait_state "$D" Completed 60)" Completed
same "of so much" "$(doc "$D" | jq -r .size)" $((12 * MIB))
check "at the rate" test "$(doc "$D" | jq '.ended_ns - .started_ns')" -ge 2400000000
check "it is what it was, too" cmp "$WORK/vol/a.img" "$WORK/copied.img"
config_class vol "$WORK/vol" 'snapshots-to-retain = 1'
config_add 70-mover '[mover]
write-limit = 4MiB'
check "reload: all movers" ask reload --wait --quiet
"$TOOLS/age_repository" "$REPO" "$WORK/password" 3
E=$(askj maintenance --full | jq -r '.operation // empty')
same "maintenance with write-limit" "$(wait_state "$E" Completed 120)" Completed
check "has stored again what was in half-filled packs" test \
    "$(doc "$E" | jq '.result.maintenance.summary.rewritten.bytes')" -ge $((20 * MIB))
check "at the rate" test "$(doc "$E" | jq '.result.maintenance.seconds | floor')" -ge 4

# A mover that works follows: a reload, and the times of the limits. 24 MiB would take 96 s.
config_add 70-mover '[mover]
read-limit = 256KiB'
check "reload: slow" ask reload --wait --quiet
slow() { # SEED: a backup that has begun
    random_file "$WORK/vol/a.img" $((24 * MIB)) "$1"
    F=$(submit "$WORK/vol/a.img")
    O=$(op_id "$F")
    moving() { doc "$O" | jq -e '.progress.done > 0' >/dev/null; }
    until_true 60 moving
}
slow 10
sleep 3
done_in_3=$(doc "$O" | jq .progress.done)
check "a backup with a low limit: $done_in_3 bytes" test "$done_in_3" -lt $((8 * MIB))
config_add 70-mover '[mover]
read-limit = 1GiB'
check "reload: fast" ask reload --wait --quiet
same "the backup that runs has the new limit" "$(wait_state "$F" Completed 60)" Completed
check "at once" test "$(doc "$O" | jq '.result.seconds | floor')" -lt 40
# A restore has places in the queue for all that it has fetched: they follow, too.
config_add 70-mover '[mover]
write-limit = 256KiB'
check "reload: slow restores" ask reload --wait --quiet
R2=$(askj restore "$F/$WORK/vol/a.img" "$WORK/vol/out2.img" --from repository | jq -r '.restore // empty')
O=$(op_id "$R2")
until_true 60 moving
config_add 70-mover '[mover]
write-limit = 1GiB'
check "reload: fast restores" ask reload --wait --quiet
same "the restore that runs has the new limit" "$(wait_state "$R2" Completed 60)" Completed
took=$(doc "$O" | jq '.result.seconds | floor')
check "what it has fetched already as well: $took s" test "$took" -lt 20
check "and it is what was backed up" cmp "$WORK/vol/a.img" "$WORK/vol/out2.img"
rm "$WORK/vol/out2.img"
# Reloaded between its native snapshot and its mover.
cat >"$WORK/hook" <<HOOK
#!/bin/sh
: >$WORK/hooked
while [ -e $WORK/hooked ]; do sleep 0.1; done
HOOK
chmod 755 "$WORK/hook"
config_class vol "$WORK/vol" 'snapshots-to-retain = 1' "hook-post-snapshot = $WORK/hook"
config_add 70-mover '[mover]
read-limit = 256KiB'
check "reload: slow again" ask reload --wait --quiet
random_file "$WORK/vol/a.img" $((24 * MIB)) 13
F=$(submit "$WORK/vol/a.img")
until_true 60 test -e "$WORK/hooked"
config_add 70-mover '[mover]
read-limit = 1GiB'
check "reload: fast, before its mover is started" ask reload --wait --quiet
rm "$WORK/hooked"
same "a backup whose mover is started after the reload has the new limit" "$(wait_state "$F" Completed 60)" Completed
check "from its beginning" test "$(doc "$(op_id "$F")" | jq '.result.seconds | floor')" -lt 40
config_class vol "$WORK/vol" 'snapshots-to-retain = 1'
# "now": in this hour, or the next one; "later": in some hours, over midnight or not.
now="$(date -d '-1 hour' +%H:00)-$(date -d '+2 hours' +%H:00)"
later="$(date -d '+3 hours' +%H:00)-$(date -d '+5 hours' +%H:00)"
config_add 70-mover "[mover]
read-limit = 256KiB
limit-times = $later"
check "reload: limits at other times" ask reload --wait --quiet
random_file "$WORK/vol/a.img" $((24 * MIB)) 11
F=$(submit "$WORK/vol/a.img")
same "limit-times: at other times there is no limit" "$(wait_state "$F" Completed 60)" Completed
check "so it is fast" test "$(doc "$(op_id "$F")" | jq '.result.seconds | floor')" -lt 40
config_add 70-mover "[mover]
read-limit = 256KiB
limit-times = $(date -d '+5 hours' +%H:00)-$(date -d '+6 hours' +%H:00), $now"
check "reload: limits at this time" ask reload --wait --quiet
slow 12
sleep 3
done_in_3=$(doc "$O" | jq .progress.done)
check "limit-times: at these it holds: $done_in_3 bytes" test "$done_in_3" -lt $((8 * MIB))
# It ends with the minute after the next one.
end=$(($(date +%s) / 60 * 60 + 60))
[ $((end - $(date +%s))) -ge 8 ] || end=$((end + 60))
config_add 70-mover "[mover]
read-limit = 256KiB
limit-times = $(date -d '-1 hour' +%H:00)-$(date -d "@$end" +%H:%M)"
check "reload: limits until the minute ends" ask reload --wait --quiet
before_end=$(doc "$O" | jq .progress.done)
daemon_kill
starts "the daemon is killed, and started again"
same "limit-times: the mover that goes on is told when they end" "$(wait_state "$F" Completed 80)" Completed
took=$(doc "$O" | jq '.result.seconds | floor')
check "before it would have ended: $took s" test "$took" -lt 94 -a "$before_end" -lt $((20 * MIB))
sf "$REPO" verify --quiet || fail "the repository is whole" "see above"
stops "the daemon stops"
explain_failure
finish
