#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The outcome of a backup is kept in its repository (AO-16 to AO-18, AO-38, CF-49, RS-25): after the loss of the node's
# records scan has it back with the volumes that failed or were skipped and why, a backup that was interrupted is said
# to be, one of an earlier version has no outcome; another node lists and restores it; forged records do no harm.
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../daemon-lib.sh"
need_root "outcomes of backups in the repository"
: "${TOOLS:=$BUILD/tests/tools}"
fs_make xfs xfs 400 || exit 1
image "$WORK/xfs/good.img" 2 1
image "$WORK/xfs/bad.img" 2 2
image "$WORK/xfs/out.img" 2 3
cp "$WORK/xfs/good.img" "$WORK/good.orig"
daemon_setup
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 1'
config_add bad "[volume \"$WORK/xfs/bad.img\"]
hook-pre-snapshot = /bin/false
[volume \"$WORK/xfs/out.img\"]
exclude = yes
[job \"night\"]
volumes = class:xfs"
manifests() { CACHE=$WORK/cache.tool "$TOOLS/manifests" "$REPO" "$WORK/password" "$@"; }
records() { manifests list snapferry-backup; }
lose_records() { rm -rf "$STATE"; mkdir "$STATE"; }
rebuilt() { [ "$(state "$1")" = "$2" ]; }

counts() { # of a scan: snapshots and which of them, volumes, backups
    askj scan main "$@" | jq -c '[.snapshots, .known, .recorded, .incomplete, .untagged, .passed, .added, .outcomes]'
}

starts "daemon"
A=$(submit --job night)
[ -n "$A" ] || { explain_failure; finish; }
same "a backup with one failed volume" "$(wait_state "$A" PartiallyFailed 60)" PartiallyFailed
same "the repository has its outcome" "$(doc "$A" | jq -c .recorded)" '{"main":true}'
same "one final record" "$(records | jq -r '[.labels.state, .labels.backup, .labels.node, .labels.part] | join(" ")')" \
    "final $A testnode 0"
same "of this machine" "$(records | jq '.labels.machine | test("^[0-9a-f]{32}$")')" true
not_in_records() { ! records | grep -qF "$1"; }
check "whose machine id it does not have" not_in_records "$(cat /etc/machine-id 2>/dev/null || echo none)"
R=$(records | jq -c .data)
same "the outcome" "$(jq -r \
    '"\(.version) \(.phase) \(.job) \(.reason) \(.operations.completed) \(.operations.failed)"' <<<"$R")" \
    "1 PartiallyFailed night request 1 1"
volume() { jq -c --arg v "$WORK/xfs/$1.img" '.volumes[] | select(.volumeName == $v)' <<<"$R"; }
same "of the good volume" "$(volume good | jq -r \
    '"\(.result) \(.snapshotDataMoved) \(.preserveLocalSnapshot) \(.skipped) \(.size) \(.storageClass)"')" \
    "Completed true true false $((2 * MIB)) xfs"
same "its snapshot" "$(volume good | jq -r .snapshotDataMovementInfo.snapshotID)" \
    "$(sql "SELECT json_extract(doc, '$.result.snapshotID') FROM operations
        WHERE parent = '$A' AND state = 'Completed'")"
same "its native snapshot was seen again (AO-38)" \
    "$(volume good | jq -r '.nativeSnapshots[0] | "\(.alias) \(.state)"')" \
    "$(natives_of "$WORK/xfs/good.img") present"
same "of the failed one" \
    "$(volume bad | jq -r '"\(.result) \(.snapshotDataMoved) \(.failureReason != "")"')" "Failed false true"
same "of the excluded one" \
    "$(volume out | jq -r '"\(.result) \(.skipped) \(.skippedReason | .[0:8])"')" "Skipped true excluded"
OUT=$(volume out | jq -r .skippedReason)
WHY=$(volume bad | jq -r .failureReason)

# A native snapshot that vanishes before the backup finishes stands in the record as missing (AO-38).
printf '#!/bin/sh\nfind %s -name "*.native" -newer %s -delete\n' "$WORK/xfs" "$WORK/mark" >"$WORK/vanish"
chmod 755 "$WORK/vanish"
config_add vanish "[volume \"$WORK/xfs/good.img\"]
hook-post-backup = $WORK/vanish"
ask reload --wait --quiet
touch "$WORK/mark"; sleep 0.1
V=$(submit "$WORK/xfs/good.img")
wait_state "$V" Completed 60 >/dev/null
same "one that vanished meanwhile" "$(records | jq -r --arg b "$V" 'select(.labels.backup == $b) |
    .data.volumes[0] | "\(.nativeSnapshots[0].state) \(.preserveLocalSnapshot)"')" "missing false"
rm "$CONF/conf.d/vanish.ini"
stops "stop"

# ---- the records are lost ----
lose_records
starts "with new records"
check "the outcome is as it was" until_true 30 rebuilt "$A" PartiallyFailed
same "with the failed volume" "$(doc "$A" | jq -r --arg v "$WORK/xfs/bad.img" \
    '.operations[] | select(.volume == $v) | "\(.state) \(.error.message)"')" "Failed $WHY"
same "and the skipped one" "$(doc "$A" | jq -r '.details.skipped[0] | "\(.volume) \(.reason)"')" \
    "$WORK/xfs/out.img $OUT"
same "its job" "$(doc "$A" | jq -r .job)" night
same "it is known to be in the repository" "$(doc "$A" | jq -c .recorded)" '{"main":true}'
restored_same "its good volume is restored" "$A" "$WORK/xfs/good.img" "$WORK/good.orig" repository
expect "another scan has nothing new to tell" 0 \
    "^2 snapshots of this node in the repository: 2 recorded before$" -- ask scan main
same "nor has it counted anything as new" "$(counts)" "[2,2,0,0,0,0,0,0]"
same "its times are those of the backup" "$(doc "$A" | jq -c '[.created_ns == .started_ns, .created_ns < .ended_ns,
    .recorded_ns > .ended_ns, (.operations | all(.created_ns <= .ended_ns and .recorded_ns > .ended_ns))]')" \
    '[true,true,true,true]'
check "as text as well" eval 'ask describe "$A" | grep -qE "^Recorded .*, by a scan of the repository" &&
    ! ask describe "$A" | grep -q "^Created"'
same "another scan changes nothing" "$(state "$A") $(doc "$A" |
    jq -c '.details.counts | [.attempted, .completed, .failed, .canceled, .skipped]')" "PartiallyFailed [2,1,1,0,0]"

# ---- deleted with the backup ----
check "delete" ask delete "$V" --even-kept --wait --quiet
same "its record is gone, too" "$(records | jq -r --arg b "$V" 'select(.labels.backup == $b) | .id')" ""

# ---- another node ----
# It is another machine: a mount namespace with a machine id of its own. exec keeps the process.
printf '0123456789abcdef%s\n' "$(openssl rand -hex 8)" >"$WORK/machine-id"
cat >"$WORK/elsewhere" <<ELSEWHERE
#!/bin/sh
exec unshare --mount --propagation private sh -c 'mount --bind "$WORK/machine-id" /etc/machine-id && exec "\$0" "\$@"' \
    "$SNAPFERRYD" "\$@"
ELSEWHERE
chmod 755 "$WORK/elsewhere"
HERE=$SNAPFERRYD OWN=$STATE
stops "this one rests"
STATE=$WORK/state2 RUN=$WORK/run2 CONF=$WORK/conf2 SNAPFERRYD=$WORK/elsewhere
config_main 'node-name = othernode'
starts "the daemon of another node"
expect "its scan finds nothing of its own" 0 "0 snapshots of this node" -- ask scan main
told="1 snapshot of node testnode in the repository: 1 recorded now The outcome of 1 backup was taken over from the"
expect "told whose they are it lists them" 0 \
    "$told repository 1 volume of backups recorded that has no snapshot there" -- \
    eval "ask scan main --node testnode | tr '\n' ' '"
same "once" "$(counts --node testnode)" "[1,1,0,0,0,0,0,0]"
same "with their outcome" "$(doc "$A" | jq -r '"\(.state) \(.node)"')" "PartiallyFailed testnode"
expect "shown as of that node" 0 "of node testnode" -- ask backups
cp "$WORK/good.orig" "$WORK/xfs/good.img"
restored_same "and restores them" "$A" "$WORK/xfs/good.img" "$WORK/good.orig" repository
expect "it does not delete them" 20 "is of node testnode" -- ask delete "$A" --force --even-kept --wait
same "nor do they protect anything" "$(askj volumes | jq -c .volumes)" "[]"
same "nor is there a native snapshot" "$(askj native list | jq -c .natives)" "[]"
same "status has no problem for it" "$(askj status | jq -r '[.problems[]?.text] | join(" ")')" ""
ask expire --quiet >/dev/null 2>&1
same "the record stays" "$(records | jq -r .labels.backup)" "$A"
image "$WORK/xfs/other.img" 2 8
config_class xfs "$WORK/xfs"
check "it backs up for itself" eval 'ask reload --wait --quiet && ask backup "$WORK/xfs/other.img" --wait --quiet'
machines() { records | jq -r .labels.machine | sort -u | wc -l; }
check "and records its outcome" until_true 20 eval '[ "$(records | wc -l)" = 2 ]'
same "as another machine" "$(machines)" 2
rm "$CONF/conf.d/50-xfs.ini"
# refused VALUE PATTERN: other-nodes
refused() {
    sed "/^path = /a other-nodes = $1" -i "$CONF/snapferry.ini"
    expect "other-nodes = $1 is refused" 2 "snapferry.ini:[0-9]*: .*$2" -- \
        "$SNAPFERRY" check-config --config-dir "$CONF"
    sed '/^other-nodes/d' -i "$CONF/snapferry.ini"
}
refused 'nas*' 'nas\* is a pattern; names are expected'
refused 'othernode' 'othernode is this node'
# As a permanent key: nobody asks for a scan.
stops "the other node stops"
lose_records
sed '/^path = /a other-nodes = testnode' -i "$CONF/snapferry.ini"
starts "the other node with other-nodes = testnode"
check "other-nodes: they are listed without a request" until_true 20 rebuilt "$A" PartiallyFailed
same "as of that node" "$(doc "$A" | jq -r .node)" testnode
until_true 20 eval '[ "$(askj status | jq ".repositories[0].other_nodes[0].scanned_ns > 0")" = true ]'
same "status shows when" "$(askj status | jq -c '.repositories[0].other_nodes[0] | [.node, .scanned_ns > 0]')" \
    '["testnode",true]'
expect "also as text" 0 'other nodes: testnode \(scanned ' -- ask status
restored_same "other-nodes: restored" "$A" "$WORK/xfs/good.img" "$WORK/good.orig" repository
scans() { askj operations --all | jq '[.operations[].id | select(startswith("admin-scan"))] | length'; }
own=$(scans)
for i in 1 2 3; do
    at=$(askj status | jq '.repositories[0].other_nodes[0].scanned_ns')
    ask reload --wait --quiet
    check "other-nodes: scanned after reload $i" until_true 20 eval \
        '[ "$(askj status | jq ".repositories[0].other_nodes[0].scanned_ns")" -gt "$at" ]'
done
same "these scans leave no operations behind" "$(scans)" "$own"
stops "stop the other node"
STATE=$OWN RUN=$WORK/run CONF=$WORK/conf SNAPFERRYD=$HERE
rm "$WORK/xfs/other.img"

# ---- owed ----
# The repository is away when the outcome is to be recorded.
printf '#!/bin/sh\nmv %s %s.away\n' "$REPO" "$REPO" >"$WORK/away"
chmod 755 "$WORK/away"
config_add owed "[volume \"$WORK/xfs/good.img\"]
hook-post-backup = $WORK/away
[metrics]
textfile = $WORK/metrics.prom
textfile-period = 1s"
starts "this one again"
W=$(submit "$WORK/xfs/good.img")
same "its backup ends" "$(wait_state "$W" Completed 60)" Completed
owed() { askj status | jq -c '.repositories[0].owed.backups // 0'; }
metric() { awk -v m="$1" 'index($1, m "{") == 1 { print $2 }' "$WORK/metrics.prom" 2>/dev/null; }
metric_is() { [ "$(metric "$1")" = "$2" ]; }
same "its outcome is owed to the repository" "$(owed)" 1
expect "and status tells" 0 'outcome of 1 backup not recorded in it yet' -- ask status
check "as the metric does" until_true 10 metric_is snapferry_repository_outcomes_owed 1
SINCE=$(metric snapferry_repository_outcomes_owed_since_timestamp_seconds)
check "with the time" test "${SINCE%%.*}" -gt 1000000000
mv "$REPO.away" "$REPO"
check "it is recorded when the repository is back" until_true 60 eval '[ "$(owed)" = 0 ]'
check "nothing is owed any more" until_true 10 metric_is snapferry_repository_outcomes_owed 0
check "delete" ask delete "$W" --even-kept --wait --quiet
W=$(submit "$WORK/xfs/good.img")
same "another one, whose recorder is canceled" "$(wait_state "$W" Completed 60)" Completed
expect "it is not recorded yet" 0 'Outcome +not yet recorded in repository main' -- ask describe "$W"
ask cancel "$(sql "SELECT id FROM operations WHERE id LIKE 'record-%' ORDER BY seq DESC LIMIT 1")" --quiet
owes_none() { [ "$(owed)" = 0 ]; }
check "nothing is owed after a cancel" until_true 60 owes_none
expect "and that it will not be recorded is told, with why" 0 'Outcome +not recorded in repository main: .' -- \
    ask describe "$W"
mv "$REPO.away" "$REPO"
check "delete that one" ask delete "$W" --even-kept --wait --quiet
stops "stop"
rm "$CONF/conf.d/owed.ini"

# ---- interrupted ----
# The first volume was moved, the records are lost before the second is.
image "$WORK/xfs/slow.img" 64 4
rm "$CONF/conf.d/bad.ini"
config_add slow "[volume \"$WORK/xfs/slow.img\"]
read-limit = 1MiB"
config_main 'per-device = 4' 'restore-reserved = 0'
starts "two volumes at a time"
B=$(submit "$WORK/xfs/good.img" "$WORK/xfs/slow.img")
O=$(op_id "$B" "$WORK/xfs/good.img")
same "the first volume is moved" "$(wait_state "$O" Completed 30)" Completed
PID=$(mover_pid "$(op_id "$B" "$WORK/xfs/slow.img")")
prov() { records | jq -r --arg b "$B" 'select(.labels.backup == $b) | .labels.state'; }
same "the first mover has written a provisional record" "$(prov)" provisional
daemon_kill; kill -KILL "$PID"
rm "$CONF/conf.d/slow.ini"
lose_records
# The node was installed anew: the same name, and another machine id. What the name had is its own.
SNAPFERRYD=$WORK/elsewhere
starts "with new records, as another machine"
check "it comes back as interrupted" until_true 30 rebuilt "$B" PartiallyFailed
same "and it says so" "$(doc "$B" | jq -r '.error.message' | grep -c interrupted)" 1
same "which volume it lacks" "$(doc "$B" | jq -r --arg v "$WORK/xfs/slow.img" \
    '.operations[] | select(.volume == $v) | .state')" Failed
check "delete" ask delete "$B" --even-kept --wait --quiet
same "with its provisional record" "$(prov)" ""

# ---- written by an earlier version ----
sf "$REPO" backup "$WORK/good.orig" --as snapferry@testnode:/old --tag backup:old-1 --tag operation:up-old-1.old \
    --tag volume-id:old --tag volume:/srv/old.img --tag job:old --quiet
same "scan records it" "$(counts)" "[2,1,1,0,0,0,1,0]"
same "when it began is not known" "$(doc old-1 | jq -c '[.started_ns == null, .created_ns == .ended_ns]')" '[true,true]'
check "nor said, nor how long it took" eval 'ask describe old-1 | grep -q "^Recorded" &&
    ! ask describe old-1 | grep -qE "^(Created|Started)|^State +Unknown in "'
sf "$REPO" backup "$WORK/good.orig" --as snapferry@testnode:/old --tag backup:old-2 --tag operation:up-old-2.old \
    --tag volume-id:old --tag volume:/srv/old.img --tag job:old --quiet
sf "$REPO" backup "$WORK/good.orig" --as snapferry@testnode:/hand --quiet
old=$(manifests list snapshot | jq -c 'select(.data.tags["tag:backup"] == "old-2")')
jq -c 'del(.id) | .data.incomplete = "checkpoint" | .data.tags["tag:operation"] = "up-old-3.old"' <<<"$old" |
    manifests add
jq -c 'del(.id) | .data.tags["tag:operation"] = "up-old-4\u001b"' <<<"$old" | manifests add
told="2 recorded before, 1 recorded now, 1 of interrupted backups, 1 made without the daemon, 1 passed over"
expect "another one of that volume, one by hand, one that was interrupted, a malformed one" 0 \
    "^6 snapshots of this node in the repository: $told" -- ask scan main
same "a second time" "$(counts)" "[6,3,0,1,1,1,0,0]"
check "those go" eval 'manifests remove $(manifests list snapshot | jq -r "select(.data.incomplete // \"\" != \"\" or
    (.data.tags[\"tag:operation\"] // \"\" | test(\"up-old-[12]|^up-[a-z]*-2\") | not)) | .id")'
same "its outcome is not known" "$(state old-1)" Unknown
same "its volume is there" "$(doc old-1 | jq -r '.operations[0].state')" Completed
expect "and it says so" 0 "has no record of its outcome" -- ask backups

# ---- hostile records ----
good=$(records | jq -c --arg b "$A" 'select(.labels.backup == $b)')
forge() { jq -c "del(.id) | $1" <<<"$good"; }
{
    forge '.labels.backup = "forged" | .data.backup = "forged" |
        .data.volumes[].snapshotDataMovementInfo.operationID = "admin-x"'
    forge '.labels.backup = "forged2" | .data.backup = "else"'
    forge '.labels.backup = "forged3\u001b[2J"'
    forge '.labels.part = "100000"'
    forge '.labels.machine = "../x"'
    forge '.data = []'
    forge '.data = null'
    forge '.labels.backup = "forged4" | .data.backup = "forged4" | .data.parts = 1e9'
    forge '.labels.backup = "forged5" | .data.backup = "forged5" | .data.description = ("x" * 900000)'
    forge '.labels.backup = "forged6" | .data.backup = "forged6" |
        .data.volumes = [range(3000) | {volumeName: "v\(.)", skipped: true, result: "Skipped"}]'
    forge '.labels.backup = "forged7" | .data.backup = "forged7" | .data.volumes[0].size = -1'
    # Well-formed, but there is no such snapshot.
    forge '.labels.backup = "claim" | .data.backup = "claim" | .data.volumes |= map(select(.snapshotDataMoved) |
        .snapshotDataMovementInfo.operationID = "up-claim.\(.volumeID)" |
        .snapshotDataMovementInfo.snapshotID = "00000000000000000000000000000000")'
    for i in $(seq 2000); do printf '{"labels":{"type":"snapferry-backup","n":"%d"},"data":{"x":%d}}\n' "$i" "$i"; done
} >"$WORK/forged"
check "forged records" eval 'manifests add <"$WORK/forged"'
expect "are counted in one line" 0 "^2011 malformed records of backups in the repository passed over" -- ask scan main
check "the daemon is alive" daemon_alive
same "none of them is a backup" \
    "$(askj backups --all | jq -r '[.backups[].id | select(test("forged|else"))] | length')" 0
same "what is claimed and not there is lost, not protected" \
    "$(sql "SELECT json_extract(doc, '$.lost') FROM operations WHERE parent = 'claim'")" 1
same "the last good backup is a real one" \
    "$(sql "SELECT count(*) FROM volumes WHERE json_extract(doc, '$.last_good_backup') = 'claim'")" 0

# ---- a second machine with this node's name ----
# The records above are of the first machine; this one, of now, may be of a backup that runs there.
forge '.labels.state = "provisional" | .labels.backup = "twin" | .data.backup = "twin" | .data.state = "provisional" |
    .data.phase = "" | .data.volumes |= map(select(.snapshotDataMoved) | .result = "" | .snapshotDataMoved = false |
        .snapshotDataMovementInfo.operationID = "up-twin.\(.volumeID)" |
        .snapshotDataMovementInfo.phase = "")' | manifests add
before=$(askj scan main | jq .elsewhere)
check "records of another machine under this name are counted ($before)" test "$before" -ge 1
expect "and told" 0 "Another machine has recorded $before backups under this node's name" -- ask scan main
same "its unfinished backup may be running there" "$(state twin)" ""
# ---- of other nodes, old and provisional (AO-17) ----
forge '.labels.state = "provisional" | .labels.node = "third" | .labels.backup = "young"' | manifests add
same "a young one is not offered" "$(askj scan main | jq .stale)" 0
config_main 'provisional-ttl = 1s'
check "reload" ask reload --wait --quiet
sleep 1.1
ask scan main --quiet
same "after provisional-ttl that of the other machine was interrupted" \
    "$(doc twin | jq -r '"\(.state) \(.error.message[0:11])"')" "Failed interrupted"
same "an old one is" "$(askj scan main | jq .stale)" 1
same "and is no backup here" "$(askj backups --all | jq -r '[.backups[].id | select(. == "young")] | length')" 0
same "removed when asked for" "$(askj scan main --remove-provisional | jq .removed)" 1
same "that one alone" "$(records | jq -r 'select(.labels.backup == "young" or .id == $id) | .id' \
    --arg id "$(jq -r .id <<<"$good")")" "$(jq -r .id <<<"$good")"
# ---- many: one mover lists them all, and one lists the records ----
scans() { sql "SELECT count(*) FROM operations WHERE id LIKE 'admin-scan-%'"; }
snap=$(manifests list snapshot | jq -c --arg v "$WORK/xfs/good.img" 'select(.labels.hostname == "testnode" and
    .data.tags["tag:volume"] == $v)' | head -n 1)
volume=$(jq -r '.data.tags["tag:volume-id"]' <<<"$snap")
last_good() { sql "SELECT json_extract(doc, '\$.last_good_backup') FROM volumes WHERE id = '$volume'"; }
real=$(last_good)
check "the volume has a last good backup" test -n "$real"
# In the order of a scan the latest ones come first, so that each that is gone was the last good one.
forge_snapshot() { jq -c "del(.id) | $1" <<<"$snap"; }
at=$(date -u +%Y-%m-%dT%H:%M:%S)
sleep 1
forge_snapshot 'range(3000) as $i | .data.startTime = "2026-01-01T00:00:00.\(100000000 + $i)Z" |
    .data.endTime = "'"$at"'.\(100003000 - $i)Z" | .data.tags["tag:backup"] = "many\($i)" |
    .data.tags["tag:operation"] = "up-many\($i)" | .labels["tag:backup"] = "many\($i)"' >"$WORK/forged"
check "3,000 more snapshots" eval 'manifests add <"$WORK/forged"'
before=$(scans)
expect "are added to the records" 0 \
    "^3003 snapshots of this node.*: 3 recorded before, 3000 recorded now$" -- ask scan main
same "by two operations" $(($(scans) - before)) 2
same "the volume's last good backup is the newest of them" "$(last_good)" many0
manifests list snapshot | jq -r 'select(.data.tags["tag:backup"] // "" | startswith("many")) | .id' >"$WORK/ids"
same "in the repository" "$(wc -l <"$WORK/ids")" 3000
check "they are removed" eval 'manifests remove $(cat "$WORK/ids")'
expect "a scan misses them all" 0 "3000 recorded snapshots are missing" -- ask scan main
same "and the last good backup is the one before" "$(last_good)" "$real"
# Dated ahead, it would be the newest for ever, and missed by no scan.
forge_snapshot '.data.endTime = "2199-01-01T00:00:00Z" | .data.tags["tag:backup"] = "ahead" |
    .data.tags["tag:operation"] = "up-ahead" | .labels["tag:backup"] = "ahead"' | manifests add
expect "one that is dated ahead is added" 0 "[0-9]+ recorded before, 1 recorded now" -- ask scan main
same "as of now" "$(sql "SELECT count(*) FROM operations WHERE parent = 'ahead' AND
    json_extract(doc, '$.completed_ns') / 1000000000 <= $(date +%s)")" 1
manifests remove $(manifests list snapshot | jq -r 'select(.data.tags["tag:backup"] == "ahead") | .id')
expect "and missed when it is gone" 0 "1 recorded snapshot is missing" -- ask scan main
same "the last good backup is the one before it" "$(last_good)" "$real"
# ---- a completed backup whose snapshot is gone ----
ask expire --quiet >/dev/null 2>&1
G=$(submit "$WORK/xfs/good.img")
wait_state "$G" Completed 60 >/dev/null
same "a backup completes" "$(state "$G")" Completed
snap=$(manifests list snapshot | jq -c --arg b "$G" 'select(.data.tags["tag:backup"] == $b)')
same "it is the last good one" "$(last_good)" "$G"
check "nothing is said of it" eval '! ask backups --limit 1 | grep -q "not whole in the repository"'
check "its snapshot is removed by somebody" manifests remove "$(jq -r .id <<<"$snap")"
expect "a scan misses it" 0 "recorded snapshot is missing" -- ask scan main
same "it stays Completed" "$(state "$G")" Completed
said="not whole in the repository since 20[0-9-]* [0-9:]* .*(.*): a scan of the repository did not find its snapshot"
check "backups says so" eval 'ask backups | grep -A2 "$G" | grep -q "$said"'
check "describe says the same" eval 'ask describe "$G" | tr -s " \n" "  " | grep -q "Missing $said"'
check "and operations" eval 'ask operations --all --backup "$G" | tr -s " \n" "  " | grep -q "$said"'
same "in --json, too" "$(doc "$G" | jq -c '[.gone, (.gone_ns > 0), .gone_why, .operations[0].snapshotDataMoved]')" \
    '[1,true,"a scan of the repository did not find its snapshot",false]'
same "it is not the last good one" "$(last_good)" "$real"
manifests add <<<"$(jq -c 'del(.id)' <<<"$snap")"
ask scan main --quiet
# An older one that is gone may have expired.
older=$(manifests list snapshot | jq -c --arg b "$real" 'select(.data.tags["tag:backup"] == $b)')
check "an older one is removed" manifests remove "$(jq -r .id <<<"$older")"
expect "a scan misses it, too" 0 "recorded snapshot is missing" -- ask scan main
same "which may be retention's work" "$(doc "$real" | jq -c '[.gone, .gone_ns]')" '[null,null]'
manifests add <<<"$(jq -c 'del(.id)' <<<"$older")"
ask scan main --quiet
same "where it is found again nothing is said" "$(doc "$G" | jq -c '[.gone, .gone_ns]')" '[null,null]'
same "and it is the last good one" "$(last_good)" "$G"
snap=$(manifests list snapshot | jq -c --arg b "$G" 'select(.data.tags["tag:backup"] == $b)')

# ---- hostile snapshots ----
{
    forge_snapshot '.data.description = "\u202egnp.\u0085\u009b2J\u2066" | .labels.path = "/forged" |
        .data.source.path = "/forged"'
    forge_snapshot 'range(1500) as $i | .data.rootEntry = $i'
} >"$WORK/forged"
check "forged snapshots" eval 'manifests add <"$WORK/forged"'
sf "$REPO" snapshot list --json >"$WORK/out" 2>"$WORK/err"
same "1500 that are malformed are one warning" "$(grep -c 'warning: 1500 malformed snapshot manifests' "$WORK/err")" 1
check "of few lines" test "$(wc -l <"$WORK/err")" -le 3
expect "they are no damage of a snapshot that is verified" 0 "" -- sf "$REPO" verify "$(jq -r .id <<<"$snap")" --quiet
check "controls and bidi marks are escaped in --json" grep -qF '"\u202egnp.\u0085\u009b2J\u2066"' "$WORK/out"
expect "a scan says that it could not look for what is missing" 0 "1500 snapshots of the repository cannot be read" -- \
    ask scan main
check "the daemon lives" daemon_alive

stops "stop"
explain_failure
finish
