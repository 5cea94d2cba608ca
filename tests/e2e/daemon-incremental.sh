#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Incremental backups: the second one reads what changed, its snapshot is that of a full read; the parent's native
# snapshot is kept, replaced after the next success, and whatever is missing or wrong means a full read with a reason.
# (CF-08..CF-14, CF-19, RS-28, E-07)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "incremental backups of images on a real file system"
fs_make xfs xfs 400 && fs_make btrfs btrfs 400 || exit 1
for fs in xfs btrfs; do random_file "$WORK/$fs/a.img" $((24 * MIB)) 1; done
daemon_setup 'changed-blocks = auto' 'verify-sample = 0'
sed -i '/^changed-blocks/d' "$CONF/snapferry.ini"
config_class xfs "$WORK/xfs"
config_class btrfs "$WORK/btrfs"
starts "the daemon starts"
same "changed-blocks is auto where it is not set" "$(askj explain "$WORK/xfs/a.img" |
    jq -r '.policy["changed-blocks"].value // empty')" auto

backup() { askj backup "$1" --wait "${@:2}" | jq -r .id; }
# op BACKUP FILTER: of its operation
op() { doc "$1" | jq -rc ".operations[0] | $2"; }
# rewrite IMAGE COUNT SEED: pages of 4 KiB, scattered over its first 5 MiB
rewrite() {
    local i
    random_file "$WORK/page" 4096 "$3"
    for i in $(seq 1 "$2"); do
        dd if="$WORK/page" of="$1" bs=4096 seek=$(((i * 571 + $3 * 17) % 1280)) conv=notrunc status=none
    done
}
# restored BACKUP FILE: what it restores is equal to the file.
restored() {
    sf "$REPO" restore "$(op "$1" .result.snapshotID)" "$WORK/restored" --force --quiet && cmp "$WORK/restored" "$2"
}
natives() { natives_of "$1" | wc -l; }
one_native() { [ "$(natives "$1")" -eq 1 ]; }

for fs in xfs btrfs; do
    img=$WORK/$fs/a.img
    first=$(backup "$img")
    same "$fs: the first one reads all: no parent" "$(op "$first" .fullReason)" no-parent
    until_true 10 one_native "$img"
    same "$fs: its native snapshot is kept for the next" "$(askj native list |
        jq -r --arg v "$img" '.natives[] | select(.volume == $v) | .reasons')" cbt-parent
    rewrite "$img" 20 $((RANDOM + 1))
    cp "$img" "$WORK/expected"
    second=$(backup "$img")
    same "$fs: the second one is incremental" "$(op "$second" '.result.cbtSource')" reflink
    same "$fs: it was based on the first one" "$(op "$second" .parentSnapshot)" "$(op "$first" .result.snapshotID)"
    check "$fs: it has read less than two thirds" test "$(op "$second" .result.readBytes)" -lt $((16 * MIB))
    check "$fs: the list is what was written" test "$(op "$second" .listedBytes)" -le $((20 * 65536))
    check "$fs: restored bit for bit" restored "$second" "$WORK/expected"
    until_true 10 one_native "$img"
    same "$fs: the parent was replaced" "$(natives_of "$img")" "$(askj native list |
        jq -r --arg b "$second" '.natives[] | select(.backup == $b) | .alias')"
    [ $fs = xfs ] || continue
    # Nothing changed, grown, shrunk.
    third=$(backup "$img")
    same "$fs: nothing changed: nothing in the list" "$(op "$third" .listedBytes)" 0
    cat "$WORK/page" >>"$img"
    truncate -s $((26 * MIB + 700)) "$img"
    fourth=$(backup "$img")
    same "$fs: grown: incremental" "$(op "$fourth" .fullReason)" null
    check "$fs: grown: bit for bit" restored "$fourth" "$img"
    truncate -s $((23 * MIB + 4097)) "$img"
    fifth=$(backup "$img")
    check "$fs: shrunk: bit for bit" restored "$fifth" "$img"
    same "$fs: shrunk: incremental" "$(op "$fifth" .fullReason)" null
done

img=$WORK/xfs/a.img
# Whatever is missing means a full read.
same "--full reads all" "$(op "$(backup "$img" --full)" .fullReason)" forced
until_true 10 one_native "$img"
rm -f "$WORK"/xfs/.snapferry/*.native
lost=$(backup "$img")
same "the parent's native snapshot was removed: Completed" "$(state "$lost")" Completed
check "all is read, with the reason" grep -qE '^(parent-lost|no-parent)$' <<<"$(op "$lost" .fullReason)"
reason=$(op "$lost" .fullReason)
words='no earlier backup has a native snapshot'
[ "$reason" = no-parent ] || words='the native snapshot to compare with is no longer there'
why=$(op "$lost" '.fullWhy // empty')
check "which describe shows for the backup, too" grep -q "all data, not only what changed: ${why:-$words}" \
    <<<"$(ask describe "$lost" | tr -s ' \n' ' ')"
check "and backups" grep -q "all data of 1 volume was read, not only what changed: $words" \
    <<<"$(ask backups | tr -s ' \n' ' ')"
same "with how many volumes, for machines" \
    "$(ask backups --json | jq -c --arg b "$lost" '.backups[] | select(.id == $b) | .fullReasons')" "{\"$reason\":1}"
sf "$REPO" snapshot delete "$(op "$lost" .result.snapshotID)" --quiet --yes
unfit=$(backup "$img")
same "the parent's snapshot was deleted from the repository: Completed" "$(state "$unfit")" Completed
same "all is read" "$(op "$unfit" .fullReason)" parent-unfit
rewrite "$img" 3 77
again=$(backup "$img")
same "the next one is incremental again" "$(op "$again" .fullReason)" null
check "bit for bit" restored "$again" "$img"
check "all of the repository verifies" sf "$REPO" verify --quiet

same "the mover knows all that its job has" "$(cat "$STATE"/logs/* | grep -c 'unknown member')" 0
same "and has read all of it" "$(op "$again" .result.ignoredMembers)" '[]'

# changed-blocks = no: nothing is kept.
config_class btrfs "$WORK/btrfs" 'changed-blocks = no'
ask reload --wait --quiet
none=$(backup "$WORK/btrfs/a.img")
same "changed-blocks = no: as it was, no reason is needed" "$(op "$none" .fullReason)" null
none_left() { [ "$(natives "$WORK/btrfs/a.img")" -eq 0 ]; }
check "changed-blocks = no: no native snapshot stays" until_true 10 none_left
config_class btrfs "$WORK/btrfs" 'full-every = 1s'
ask reload --wait --quiet
backup "$WORK/btrfs/a.img" >/dev/null
sleep 1
same "full-every: due" "$(op "$(backup "$WORK/btrfs/a.img")" .fullReason)" periodic

finish
