#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon's main job: a [job] of image volumes on XFS and btrfs goes through native snapshot and mover into the
# repository and comes back from either place (MS-01, MS-11, AO-30, RS-01, RS-26, CF-49).
DERIVE_KEYS=1 # programs as users have them
ON_DISK=1
. "$(dirname "$0")/../daemon-lib.sh"
need_root "the daemon backs volumes up"
fs_make xfs xfs && fs_make btrfs btrfs || exit 1
image "$WORK/xfs/a.img" 24 1
image "$WORK/btrfs/b.img" 16 2
cp "$WORK/xfs/a.img" "$WORK/a.orig"; cp "$WORK/btrfs/b.img" "$WORK/b.orig"
daemon_setup
config_class gold "$WORK/xfs" 'snapshots-to-retain = 2'
config_class silver "$WORK/btrfs" 'snapshots-to-retain = 1'
config_add job "[job \"nightly\"]
volumes = $WORK/xfs/a.img $WORK/btrfs/*.img"
check "the configuration is accepted" "$SNAPFERRY" check-config --config-dir "$CONF"
starts "the daemon starts without systemd and answers"
expect "a second daemon on the same records is refused" 14 'in use|another|already|held' -- timeout 10 \
    "$SNAPFERRYD" --foreground --config-dir "$CONF" --state-dir "$STATE" --runtime-dir "$WORK/run2" --cache-dir "$CACHE"
same "both volumes are seen" "$(askj volumes | jq -r '.volumes[].name' | sort | tr '\n' ' ')" \
    "$WORK/btrfs/b.img $WORK/xfs/a.img "
expect "an unknown volume is refused and leaves nothing behind" 2 "no storage class matches" \
    -- ask backup /no/such/volume
same "no record of it" "$(sql 'SELECT count(*) FROM backups')" 0

out=$(ask backup --job nightly --wait --json); rc=$?
same "backup of the job: exit code" $rc 0
B=$(result id <<<"$out")
same "Completed" "$(result state <<<"$out")" Completed
same "one operation per volume, all Completed" "$(ops "$B" | jq -r .state | tr '\n' ' ')" "Completed Completed "
check "the id tells the job" grep -q '^nightly-20' <<<"$B"
same "it is in the list" "$(askj backups | jq -r '.backups[0].id')" "$B"
check "Velero's name of the state is shown" test -n "$(doc "$B" | jq -r '.velero // empty')"
same "two snapshots in the repository, tagged with the backup" \
    "$(sf "$REPO" snapshot list --all --json | result 'snapshots | length')" 2
img=$(askj volumes | jq -r '.volumes[] | select(.name | endswith("a.img")) | .name')
check "the source is snapferry@NODE:/PATH" sf "$REPO" snapshot show latest --as "snapferry@testnode:$img"
same "exact size, not padded" "$(sf "$REPO" ls latest --as "snapferry@testnode:$img" --json |
    result 'entries | map(select(.name == "volume.img")) | .[0].size')" $((24 * MIB))

check "when its snapshots were there is recorded beside its end (AO-42)" \
    jq -e '.snapshots_done_ns > 0 and .snapshots_done_ns <= .ended_ns' <<<"$(doc "$B")"
check "each operation names its native snapshot (RS-14, RS-25)" \
    jq -e '[.operations[].details.native_doc | (.alias | length) == 36 and .handle != "" and .size > 0] | all' \
    <<<"$(doc "$B")"

# The volume goes on changing: the backup is of then.
printf 'changed' | dd of="$WORK/xfs/a.img" bs=1 seek=4096 conv=notrunc status=none
restored_same "restored from the native snapshot" "$B" "$WORK/xfs/a.img" "$WORK/a.orig" native
restored_same "restored from the repository" "$B" "$WORK/xfs/a.img" "$WORK/a.orig" repository
restored_same "the btrfs volume from the repository" "$B" "$WORK/btrfs/b.img" "$WORK/b.orig" repository
same "auto prefers the native snapshot (RS-26)" "$(askj restore "$B$WORK/xfs/a.img" "$WORK/xfs/auto.out" --wait |
    jq -r '.from // .backup.from')" native
check "the same bytes" cmp "$WORK/a.orig" "$WORK/xfs/auto.out"
expect "a target that exists is refused" 17 -- ask restore "$B/$WORK/xfs/a.img" "$WORK/xfs/auto.out" --wait
check "and is as it was" cmp "$WORK/a.orig" "$WORK/xfs/auto.out"
check "unless told: --overwrite" ask restore "$B/$WORK/btrfs/b.img" "$WORK/xfs/auto.out" --overwrite --wait --quiet
check "then it is the other volume" cmp "$WORK/b.orig" "$WORK/xfs/auto.out"
rm -f "$WORK/xfs/auto.out"
expect "no such backup" 16 -- ask restore nightly-20200101T000000-0000 "$WORK/xfs/x.out"

# The second run moves only what changed.
out=$(ask backup "$WORK/xfs/a.img" --wait --json)
same "by hand: Completed" "$(result state <<<"$out")" Completed
B2=$(result id <<<"$out")
check "its id says so: $B2" grep -q '^manual-' <<<"$B2"
new=$(doc "$B2" | jq '.new // (.operations[0].result.new) // 0')
check "little is new: $new bytes" test "$new" -lt $((4 * MIB))
restored_same "it has the change" "$B2" "$WORK/xfs/a.img" "$WORK/xfs/a.img" repository
# Where the time of movers went is recorded with each operation, and added up.
op=$(op_id "$B2")
check "an operation's record has its stages and bottleneck" jq -e '.result | (.stages | length) > 3 and
    (.bottleneck | IN("read", "zero", "split", "hash", "lookup", "compress", "encrypt", "write", "commit"))' \
    <<<"$(doc "$op")"
expect "describe tells them in words" 0 'time +read [0-9.]+ s' -- ask describe "$op" --verbose
expect "and the memory of its mover" 0 'of CPU, at most [0-9.]+ [KM]iB of memory' -- ask describe "$op"
same "seconds in stages are counted by kind" \
    "$(sql "SELECT count(*) FROM counters WHERE name = 'stage_busy_seconds_total' AND value > 0
    AND json_extract(labels, '\$.direction') = 'backup' AND json_extract(labels, '\$.stage') IN ('read', 'hash')")" 2
same "restores too" "$(sql \
    "SELECT count(*) > 0 FROM counters WHERE name = 'stage_busy_seconds_total'
        AND json_extract(labels, '\$.direction') = 'restore'")" 1
same "stalls" "$(sql "SELECT count(*) > 0 FROM counters WHERE name = 'stage_stall_seconds_total' AND value > 0")" 1
same "each backup has one bottleneck" \
    "$(sql "SELECT sum(value) FROM counters WHERE name = 'bottleneck_total'
        AND json_extract(labels, '\$.direction') = 'backup'")" 3.0
for verb in status operations backups volumes "native list" "describe $B" "explain $WORK/xfs/a.img" \
    "logs $(op_id "$B")"; do
    expect "$verb" 0 -- ask $verb
done
clean "nothing is left behind" 5 "$WORK/xfs" "$WORK/btrfs"
stops "SIGTERM ends it in order"
expect "while it is down, backups are listed from its files" 0 "$B" -- ask backups
sqlite3 "$STATE/records.db" "UPDATE operations SET doc = json_set(doc, '$.mover.memory_peak', 0) WHERE id = '$op'"
expect "a short one's may not be known: nothing is said" 0 '[0-9] s of CPU$' -- ask describe "$op"
explain_failure
finish
