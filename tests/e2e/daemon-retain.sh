#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Native snapshots that stay after their data has moved (RS-01, RS-05..RS-11, RS-16..RS-21): 0, 1, 3; pruned before the
# next is taken; hold; delete; snapshot-only volumes; the last good copy stays.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
for v in zero one three only; do image "$WORK/xfs/$v.img" 2 "$((RANDOM + 1))"; done
# How many native snapshots of the volume there are right after one was taken.
cat >"$WORK/count" <<HOOK
#!/bin/sh
name=\$(basename "\$2" .img)
find $WORK/xfs -path '*/.snapferry/*' -name '*.native' | wc -l >>$WORK/count.\$name
HOOK
chmod 755 "$WORK/count"
daemon_setup 'sweep = 60s'
config_class xfs "$WORK/xfs"
config_add volumes "[volume \"$WORK/xfs/zero.img\"]
snapshots-to-retain = 0
[volume \"$WORK/xfs/one.img\"]
snapshots-to-retain = 1
prune = before
hook-post-snapshot = $WORK/count
[volume \"$WORK/xfs/three.img\"]
snapshots-to-retain = 3
[volume \"$WORK/xfs/only.img\"]
move-data = no
snapshot-only-keep = 2"
starts "the daemon starts"
backup() { ask backup "$WORK/xfs/$1.img" --wait --json | result id; }
count() { natives_of "$WORK/xfs/$1.img" | wc -l; }

t0=$SECONDS
for i in 1 2 3; do echo "$i" | dd of="$WORK/xfs/one.img" bs=1 conv=notrunc status=none; backup one >/dev/null; done
check "a snapshot that waits for the old one's end does not wait for a sweep" test $((SECONDS - t0)) -lt 45
has() { [ "$(count "$1")" -eq "$2" ]; }
settle() { until_true 10 settled; }
settle
same "1: one native snapshot stays (RS-05)" "$(count one)" 1
same "never more than one at once: the old one goes before the new one is taken (RS-17)" \
    "$(sort -u "$WORK/count.one" | tr '\n' ' ')" "1 "
for i in 1 2; do backup zero >/dev/null; done
until_true 10 has zero 0
same "0: none stays" "$(count zero)" 0
first=$(backup three)
held=$(natives_of "$WORK/xfs/three.img")
check "hold" ask hold "$held" --quiet
ids=("$first")
for i in 2 3 4 5; do
    echo "$i" | dd of="$WORK/xfs/three.img" bs=1 conv=notrunc status=none
    ids+=("$(backup three)")
done
settle
same "3 and a held one" "$(count three)" 4
check "the held one is there" grep -qx "$held" <(natives_of "$WORK/xfs/three.img")
check "its reason is told" grep -q hold <<<"$(askj native list |
    jq -r --arg a "$held" '.natives[] | select(.alias == $a) | .reasons')"
check "unhold" ask unhold "$held" --quiet
expect "native prune --dry-run names it" 0 "${held:0:8}" -- ask native prune --dry-run
check "and removes nothing" grep -qx "$held" <(natives_of "$WORK/xfs/three.img")
check "native prune" ask native prune --quiet
until_true 10 has three 3
same "without the hold three stay" "$(count three)" 3
same "the newest three" \
    "$(askj native list |
        jq -r --arg v "$WORK/xfs/three.img" '.natives[] | select(.volume == $v and .state == "present") | .backup' |
        sort | tr '\n' ' ')" \
    "$(printf '%s\n' "${ids[@]:2}" | sort | tr '\n' ' ')"

# Which native snapshot stays, and whether its data was moved, is in the lists and the record (RS-25).
three_doc() { doc "$1" | jq -c '.operations[0] | [.snapshotDataMoved, .preserveLocalSnapshot, .retainedSnapshot]'; }
same "describe: moved, and which native snapshot stays" "$(three_doc "${ids[4]}")" \
    "[true,true,\"$(askj native list | jq -r --arg b "${ids[4]}" '.natives[] | select(.backup == $b) | .alias')\"]"
same "one that was pruned names none" "$(three_doc "${ids[0]}")" "[true,true,null]"
same "backups --json has them" "$(askj backups | jq -r --arg b "${ids[4]}" \
    '.backups[] | select(.id == $b) | .retainedSnapshots[]')" \
    "$(askj native list | jq -r --arg b "${ids[4]}" '.natives[] | select(.backup == $b) | .alias')"
expect "the list shows it" 0 "${ids[4]} .* $(askj native list | jq -r --arg b "${ids[4]}" \
    '.natives[] | select(.backup == $b) | .alias[:8]') " -- ask backups

# A run that is canceled or fails costs none of them: the oldest goes once its successor has moved.
random_file "$WORK/xfs/three.img" $((24 * MIB)) 33 # so much that it is stopped in the middle
running "$WORK/xfs/three.img"
before=$BEFORE
same "one more during the run" "$(count three)" 4
ask cancel "$A" --quiet
kill -CONT "$PID"
same "it is canceled" "$(wait_state "$A" Canceled 40)" Canceled
until_true 15 has three 3
same "a canceled backup lowers the number of retained native snapshots by none (issue 9)" \
    "$(natives_of "$WORK/xfs/three.img" | sort)" "$before"

# Of a volume that is gone nothing newer comes: what is within the limit goes on request, what is held stays.
image "$WORK/xfs/gone.img" 2 5
config_add gone "[volume \"$WORK/xfs/gone.img\"]
snapshots-to-retain = 3"
ask reload --wait --quiet
for i in 1 2; do ask backup "$WORK/xfs/gone.img" --wait --quiet; done
settle
others=$(count three)
gone() { askj native list | jq -r --arg v "$WORK/xfs/gone.img" "[.natives[] | select(.volume == \$v) | $1][0]"; }
same "while it is there, --gone is not about it" "$(ask native prune --gone --dry-run | tail -n 1)" \
    "0 of 0 native snapshots would be removed"
rm "$WORK/xfs/gone.img"
same "volumes: it is gone at once" "$(askj volumes | jq -r --arg v "$WORK/xfs/gone.img" \
    '.volumes[] | select(.name == $v) | .state')" gone
check "its native snapshots stay, and tell how they go" eval \
    'until_true 10 test "$(gone .why | grep -c "its volume is gone: only .native prune --gone. removes it")" = 1'
held=$(gone .alias)
ask hold "$held" --quiet
expect "native prune of a volume that is none" 16 'no volume' -- \
    ask native prune --volume "$WORK/xfs/slip.img" --dry-run
expect "native prune --gone" 0 '1 of 2 native snapshots will be removed' -- ask native prune --gone --yes
until_true 10 has gone 1
same "the held one is left" "$(natives_of "$WORK/xfs/gone.img")" "$held"
check "unhold" ask unhold "$held" --quiet
expect "then that one" 0 '1 of 1 native snapshot will be removed' -- ask native prune --gone --yes
until_true 10 has gone 0
image "$WORK/xfs/out.img" 2 6
config_add out "[volume \"$WORK/xfs/out.img\"]
snapshots-to-retain = 1"
ask reload --wait --quiet
ask backup "$WORK/xfs/out.img" --wait --quiet
config_add out "[volume \"$WORK/xfs/out.img\"]
exclude = yes"
ask reload --wait --quiet
settle
same "of one that is excluded nothing newer comes either" "$(askj native list | jq -r --arg v "$WORK/xfs/out.img" \
    '.natives[] | select(.volume == $v).why |
        test("its volume is no longer backed up: only .native prune --gone")')" true
expect "it goes in the same way" 0 '1 of 1 native snapshot will be removed' -- ask native prune --gone --yes
until_true 10 has out 0
rm "$WORK/xfs/out.img"
same "those of other volumes are there" "$(count gone) $(count three)" "0 $others"

# What is told of the next backups is by the number in force, and by no number of what is held.
image "$WORK/xfs/told.img" 2 6
retain() { config_add told "[volume \"$WORK/xfs/told.img\"]
snapshots-to-retain = $1"; ask reload --wait --quiet; }
why() { askj native list | jq -r --arg v "$WORK/xfs/told.img" '.natives[] | select(.volume == $v).why'; }
retain 1
ask backup "$WORK/xfs/told.img" --wait --quiet
same "by the number it was taken under" "$(why)" "kept: 1 of 1 retained; pruned after 1 newer backup"
retain 3
same "after a reload by the new one" "$(why)" "kept: 1 of 3 retained; pruned after 3 newer backups"
check "explain says the same" eval 'ask explain "$WORK/xfs/told.img" | grep -q "1 of 3 retained"'
ask hold "$(natives_of "$WORK/xfs/told.img")" --quiet
same "held: not pruned after any" "$(why)" "kept: held; also 1 of 3 retained"
ask unhold "$(natives_of "$WORK/xfs/told.img")" --quiet

# A job with a number of its own, which is renamed: nothing newer counts with what it has taken.
mkdir "$WORK/xfs/n"
image "$WORK/xfs/n/named.img" 2 7
config_class named "$WORK/xfs/n" 'snapshots-to-retain = 2'
named() { config_add named "[job \"$1\"]
volumes = $WORK/xfs/n/named.img
snapshots-to-retain = 1"; ask reload --wait --quiet; }
whys() { askj native list | jq -r --arg v "$WORK/xfs/n/named.img" '.natives[] | select(.volume == $v).why'; }
named night
ask backup --job night --wait --quiet
same "only newer ones of that job count" "$(whys)" "kept: 1 of 1 retained; pruned after 1 newer backup of job night"
ask backup "$WORK/xfs/n/named.img" --wait --quiet
until_true 10 has n/named 2
same "as is done" "$(count n/named)" 2
named nacht
ask backup --job nacht --wait --quiet
settle
same "when it has another name nothing will prune them" "$(whys | sort)" \
    "$(echo 'kept: 1 of 1 retained; job night no longer sets snapshots-to-retain for it: only '\
'`native prune --gone` removes it
kept: 1 of 1 retained; pruned after 1 newer backup of job nacht
kept: 1 of 2 retained; pruned after 2 newer backups (jobs with a snapshots-to-retain of their own do not count)')"
same "native prune leaves them" "$(ask native prune --dry-run | tail -n 1)" \
    "0 of $(natives_of | wc -l) native snapshots would be removed"
expect "which does" 0 '1 of [0-9]+ native snapshots will be removed' -- ask native prune --gone --yes
check "the others stay" until_true 10 has n/named 2
rm "$CONF/conf.d/named.ini"
ask reload --wait --quiet

# Deleting a backup takes its native snapshot and its snapshots in the repository along (CF-44).
before=$(sf "$REPO" snapshot list --as "snapferry@testnode:$WORK/xfs/three.img" --json | result 'snapshots | length')
check "delete" ask delete "${ids[4]}" --wait --quiet
same "its native snapshot is gone" "$(count three)" 2
same "one snapshot less in the repository" \
    "$(sf "$REPO" snapshot list --as "snapferry@testnode:$WORK/xfs/three.img" --json |
    result 'snapshots | length')" $((before - 1))
expect "it is no longer known" 16 -- ask describe "${ids[4]}"
restored_same "the others can be restored" "${ids[3]}" "$WORK/xfs/three.img" <(ask restore \
    "${ids[3]}/$WORK/xfs/three.img" "$WORK/x.out" --from native --wait --quiet >&2; cat "$WORK/x.out") repository

# The last good copy goes if that is said, and only then.
image "$WORK/xfs/last.img" 2 9
last=$(submit "$WORK/xfs/last.img"); wait_state "$last" Completed 30 >/dev/null
expect "the last good copy is not deleted" 2 "/last.img: .*last good copy.*nothing deleted" \
    -- ask delete "$last" --wait
expect "the refusal says how" 2 "snapferry delete $last --even-kept" -- ask delete "$last" --wait
expect "by force neither: that is for what runs" 2 'last good copy' -- ask delete "$last" --force --wait
same "it is still there" "$(state "$last")" Completed
ask hold "$last" --quiet 2>/dev/null
check "even if kept" ask delete "$last" --even-kept --wait --quiet
expect "then it is gone" 16 -- ask describe "$last"
rm -f "$WORK/xfs/last.img"

# Retention in the repository that keeps fewer than snapshots-to-retain: those beyond that number go. What somebody else
# removed there is the only copy.
mkdir "$WORK/xfs/few"
img=$WORK/xfs/few/few.img
config_class few "$WORK/xfs/few" "snapshots-to-retain = 2" "changed-blocks = no" "keep-latest = 1" "keep-hourly = 0" \
    "keep-daily = 0" "keep-weekly = 0" "keep-monthly = 0" "keep-annual = 0"
ask reload --wait --quiet
random_file "$img" 300000 3
few() { ask backup "$img" --wait --json | result id; settle; }
for i in 1 2 3 4 5; do echo "$i" | dd of="$img" bs=1 conv=notrunc status=none; few >/dev/null; done
in_repository() { sf "$REPO" snapshot list --json | result "snapshots[] | select(.source.path == \"$img\") | .id"; }
until_true 10 has few/few 2
same "two stay where the repository keeps one snapshot" "$(in_repository | wc -l) $(count few/few)" "1 2"
sed -i 's/^keep-latest = 1/keep-latest = 5/' "$CONF/conf.d/50-few.ini"
ask reload --wait --quiet
for i in 6 7; do echo "$i" | dd of="$img" bs=1 conv=notrunc status=none; few >/dev/null; done
held=$(askj native list | jq -r --arg v "$img" '[.natives[] | select(.volume == $v)] | max_by(.created_ns) | .alias')
victim=$(sql "SELECT json_extract(doc, '\$.snapshot') FROM natives WHERE id = '$held'")
echo 8 | dd of="$img" bs=1 conv=notrunc status=none; few >/dev/null
check "somebody removes a snapshot" sf "$REPO" snapshot delete "$victim" --quiet
for i in 9 10; do echo "$i" | dd of="$img" bs=1 conv=notrunc status=none; few >/dev/null; done
settle
same "its native snapshot stays as the only copy" \
    "$(askj native list | jq -r --arg a "$held" '.natives[] | select(.alias == $a) | .reasons')" only-copy
same "besides the two" "$(count few/few)" 3

# Nothing goes to the repository: the only copies.
for i in 1 2 3 4; do backup only >/dev/null; done
settle
same "snapshot-only-keep = 2" "$(count only)" 2
same "never moved" "$(askj native list |
    jq -r --arg v "$WORK/xfs/only.img" \
    '[.natives[] | select(.volume == $v and .state == "present") | .reasons | test("snapshot-only|only-copy")] |
        all')" true
image "$WORK/only.now" 2 5
ask native prune --quiet
same "native prune leaves them" "$(count only)" 2

# An administrator removes one by hand: it is noticed, and nothing else is touched (RS-21).
gone=$(natives_of "$WORK/xfs/three.img" | head -n 1)
id=$(sql "SELECT parent FROM natives WHERE id = '$gone'")
find "$WORK/xfs" -name "$gone.native" -delete
check "scan" ask scan --wait --quiet
until_true 10 has three 1
same "a native snapshot that vanished is not listed as present" "$(count three)" 1
rm -f "$WORK/x.out"
same "its backup is restored from the repository when the native snapshot is gone (RS-26)" \
    "$(ask restore "$id/$WORK/xfs/three.img" "$WORK/xfs/gone.out" --wait --json 2>/dev/null |
        result 'from // .backup.from')" repository
# One whose tag was stripped: its record stays as long as its file does (RS-11).
image "$WORK/xfs/strip.img" 2 11
config_add strip "[volume \"$WORK/xfs/strip.img\"]
snapshots-to-retain = 1"
check "reload" ask reload --wait --quiet
backup strip >/dev/null
until_true 10 has strip 1
alias=$(natives_of "$WORK/xfs/strip.img")
file=$(find "$WORK/xfs" -name "$alias.native")
cp "$file" "$file.new" && mv -f "$file.new" "$file" # the same without extended attributes
check "scan" ask scan --wait --quiet
check "it is not listed as present" until_true 15 has strip 0
ask native prune --quiet 2>/dev/null
check "its file is not removed" test -f "$file"
same "a native snapshot whose tag was stripped is not forgotten" "$(sql "SELECT id FROM natives WHERE id = '$alias'")" \
    "$alias"
rm -f "$file"
no_record() { [ -z "$(sql "SELECT id FROM natives WHERE id = '$alias'")" ]; }
forgotten() { ask scan --wait --quiet; ask native prune --quiet 2>/dev/null; no_record; }
check "without its file it is" until_true 15 forgotten
# Likewise when that is found out by its removal: somebody is told, and it is not "removing" for good.
strip() { # IMAGE: its only native snapshot loses its tag: $alias, $file
    alias=$(natives_of "$WORK/xfs/$1.img")
    file=$(find "$WORK/xfs" -name "$alias.native")
    cp "$file" "$file.new" && mv -f "$file.new" "$file"
}
warned() { grep "warning.*$alias" "$LOG" | grep -c 'does not have the tag\|no longer has the tag'; }
strip_problem() { ask status | grep -A1 "native snapshot ${alias:0:8} of $WORK/xfs/due.img"; }
image "$WORK/xfs/due.img" 2 12
config_add due "[volume \"$WORK/xfs/due.img\"]
snapshots-to-retain = 1"
check "reload" ask reload --wait --quiet
backup due >/dev/null
until_true 10 has due 1
strip due
check "a backup that prunes one without its tag" ask backup "$WORK/xfs/due.img" --wait --quiet
check "that is a problem" until_true 10 strip_problem
same "which says what to do" "$(strip_problem | grep -c '→ .*remove or move')" 1
expect "status --check" 3 -- ask status --check
same "it is missing, not being removed for good" "$(sql "SELECT state FROM natives WHERE id = '$alias'")" missing
check "a backup more" ask backup "$WORK/xfs/due.img" --wait --quiet
sleep 3 # sweeps
same "the log has it once for each reason" "$(($(warned) <= 2))" 1
check "its file is still there" test -f "$file"
expect "and the list has the reason" 0 'not recognized:.*tag' -- ask native list
rm -f "$file"
check "without its file the record goes, and the problem" until_true 15 eval 'forgotten && ! strip_problem'
# A backup is deleted with it.
until_true 10 has due 1
strip due
B=$(sql "SELECT parent FROM natives WHERE id = '$alias'")
ask delete "$B" --even-kept --yes --wait >/dev/null 2>&1 & waits=$!
deleting() { ask backups | grep -q 'Deleting.*\|does not have the tag'; }
check "its deletion waits, and says so" until_true 10 eval 'askj describe "$B" | grep -q "does not have the tag"'
expect "--force ends that, too" 0 deleted -- ask delete "$B" --even-kept --force --yes --wait
wait $waits
same "the record is gone" "$(sql "SELECT id FROM natives WHERE id = '$alias'")" ""
check "the file, which is not ours, is not" test -f "$file"
rm -f "$file" "$WORK/xfs/due.img"
# The records are lost: what is found again counts as before, and goes when its place is needed.
image "$WORK/xfs/lost.img" 2 7
config_add lost "[volume \"$WORK/xfs/lost.img\"]
snapshots-to-retain = 2"
ask reload --wait --quiet
for i in 1 2; do echo "$i" | dd of="$WORK/xfs/lost.img" bs=1 conv=notrunc status=none; backup lost >/dev/null; done
settle
before=$(natives_of "$WORK/xfs/lost.img" | sort)
rm -f "$STATE"/records.db*
problems() { askj status | jq -r '.problems[].text'; }
check "records that are removed while the daemon runs are a problem" until_true 10 eval \
    'problems | grep -q "was removed or replaced while the daemon runs"'
daemon_kill
starts "it starts without records"
found() { [ "$(natives_of "$WORK/xfs/lost.img" | sort)" = "$before" ] && settled; }
until_true 30 found
same "the native snapshots are found again" "$(natives_of "$WORK/xfs/lost.img" | sort)" "$before"
listed() {
    [ "$(askj backups --all | jq "[.backups[] | select(.volumes == [\"$WORK/xfs/lost.img\"])] | length")" -ge 2 ]
}
until_true 30 listed
for i in 3 4 5; do
    echo "$i" | dd of="$WORK/xfs/lost.img" bs=1 conv=notrunc status=none
    backup lost >/dev/null
    settle
done
until_true 20 has lost 2
same "those of before go as any other" "$(natives_of "$WORK/xfs/lost.img" | grep -cxF "$before") $(count lost)" "0 2"
same "nothing is called damaged for it" "$(problems | grep -c 'damaged or not what was backed up')" 0

clean "nothing is left behind" 8 "$WORK/xfs"
explain_failure
finish
