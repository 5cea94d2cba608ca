#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a volume's source is called in the repository: so that a person recognises it in any client's list, the same
# whether the daemon or -r made it, and for ever: after the volume is renamed, after the records are lost, and for
# histories that earlier versions began under other names.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "names of sources"
NODE=Cellar.example # of the configuration, not of the host
fs_make xfs xfs
random_file "$WORK/xfs/v.img" $((3 * MIB)) 71
random_file "$WORK/xfs/w.img" $((3 * MIB)) 72
truncate -s 20M "$WORK/disk" "$WORK/disk2"
mkfs.ext4 -q -F "$WORK/disk"; mkfs.ext4 -q -F "$WORK/disk2"
DEV=$(loop_device "$WORK/disk"); at_exit "losetup -d $DEV"
DEV2=$(loop_device "$WORK/disk2"); at_exit "losetup -d $DEV2"
uuid() { blkid -p -o value -s UUID "$1"; }
daemon_setup "node-name = $NODE" || { fail "setup"; finish; }
config_class images "$WORK/xfs" 'snapshots-to-retain = 1'
config_add 60-raw "$(printf '[storage-class "raw"]\ndriver = device\nmatch = %s %s\n' "$DEV" "$DEV2")"
starts "the daemon starts"
backup() { ask backup "$@" --wait --quiet; }
by_config() { sf "$REPO" "$@" --config "$CONF/snapferry.ini"; }
# sources: of all snapshots, with how many each has; their host is cut off.
sources() {
    sf "$REPO" snapshot list --all --json | tail -n 1 |
        jq -r '.snapshots[].source | "\(.userName)@:\(.path)"' | sort | uniq -c | sed 's/^ *//' | sort
}
# host_of ARGS...: the node in the source of a backup with -r.
host_of() {
    local out
    out=$(sf "$REPO" backup "$WORK/password" --json "$@" | tail -n 1)
    sf "$REPO" snapshot delete "$(jq -r .snapshot <<<"$out")" --force --yes --quiet
    jq -r .source.host <<<"$out"
}
printf '[daemon]\n' >"$WORK/empty.ini"
same "with -r the node's name is that of the configuration" "$(host_of --config "$CONF/snapferry.ini")" "$NODE"
same "where that has none it is the host's, as with the daemon" "$(host_of --config "$WORK/empty.ini")" "$(uname -n)"
same "--node-name sets another one" "$(host_of --config "$CONF/snapferry.ini" --node-name other)" other
printf '[daemon]\nnode-nam = x\n[job "j"]\nvolumes = /a\n' >"$WORK/wrong.ini"
for text in 'wrong.ini:2: .*node-nam' '--node-name NAME'; do
    expect "it is not guessed: $text" 2 "$text" -- sf "$REPO" backup "$WORK/password" --config "$WORK/wrong.ini"
done
same "and can be given" "$(host_of --config "$WORK/wrong.ini" --node-name other)" other
printf '[daemon]\nnode-name = known\nbogus = 1\n' >"$WORK/wrong.ini"
same "another error does not matter" "$(host_of --config "$WORK/wrong.ini" 2>/dev/null)" known
expect "a name that no source can have" 2 "cannot be the node's name" -- sf "$REPO" backup "$WORK/password" \
    --node-name a:b

check "an image" backup "$WORK/xfs/v.img"
check "a device" backup "$DEV"
same "a person recognises them in the list of any client" "$(sources)" \
    "$(sort <<<"1 snapferry@:$DEV@device:fs-uuid:$(uuid "$DEV")
1 snapferry@:$WORK/xfs/v.img")"
check "the image with -r" by_config backup "$WORK/xfs/v.img" --quiet
check "the device with -r" by_config backup "$DEV" --quiet
check "by another name of it" eval 'mknod "$WORK/alias" b $((0x$(stat -c %t "$DEV"))) $((0x$(stat -c %T "$DEV"))) &&
    by_config backup "$WORK/alias" --quiet'
check "a device that -r knows first" by_config backup "$DEV2" --quiet
check "and then the daemon" backup "$DEV2"
both="3 snapferry@:$DEV@device:fs-uuid:$(uuid "$DEV")
2 snapferry@:$DEV2@device:fs-uuid:$(uuid "$DEV2")
2 snapferry@:$WORK/xfs/v.img"
same "both name the same volume in the same way" "$(sources)" "$(sort <<<"$both")"

expired() { sf "$REPO" snapshot expire --dry-run --json "$@" | result 'sources | length'; }
same "expire with -r has this node's volumes" "$(expired --config "$CONF/snapferry.ini")" 3
same "and not those of a node with the host's name" "$(expired --config "$WORK/empty.ini")" 0
same "a new repository is owned by it" "$(sf "$WORK/repo2" repo create --json --config "$CONF/snapferry.ini" |
    result owner)" "snapferry-maintenance@$NODE"

# Another file of the same name is another volume; a renamed file is the same.
mv "$WORK/xfs/v.img" "$WORK/xfs/renamed.img"
mv "$WORK/xfs/w.img" "$WORK/xfs/v.img"
check "a renamed image" backup "$WORK/xfs/renamed.img"
check "another one with its former name" backup "$WORK/xfs/v.img"
same "the renamed one keeps its history" "$(sources | grep -c "^3 snapferry@:$WORK/xfs/v.img\$")" 1
same "the other one has its own" "$(sources | grep -cE "^1 snapferry@:$WORK/xfs/v.img@reflink\.")" 1
parent() { doc "$(op_id "$1")" | jq -r '.result.parent // empty'; }
A=$(submit "$WORK/xfs/renamed.img")
same "its next backup" "$(wait_state "$A" Completed 60)" Completed
check "has a parent" test -n "$(parent "$A")"

# Retention, pruning and expiry mean the same source.
expect "expire by volume finds it" 0 "$WORK/xfs/v.img" -- ask snapshot expire --volume "$WORK/xfs/renamed.img" \
    --dry-run --explain --wait
until_true 30 eval '[ "$(natives_of "$WORK/xfs/renamed.img" | wc -l)" -le 1 ]'
same "older native snapshots are pruned: their snapshots were recognised" \
    "$(natives_of "$WORK/xfs/renamed.img" | wc -l)" 1

# The records are lost.
stops "the daemon stops"
rm -rf "${STATE:?}"; mkdir "$STATE"
starts "the daemon with empty records"
check "the renamed image" backup "$WORK/xfs/renamed.img"
same "still has its history" "$(sources | grep -c "^5 snapferry@:$WORK/xfs/v.img\$")" 1
A=$(submit "$DEV")
same "the device" "$(wait_state "$A" Completed 60)" Completed
same "too" "$(sources | grep -c "^4 snapferry@:$DEV@")" 1
check "with a parent" test -n "$(parent "$A")"

# Histories of earlier versions: the daemon's by the volume's id, those of -r by the device's stable name.
stops "the daemon stops again"
rm -rf "${STATE:?}" "${REPO:?}" "${CACHE:?}"; mkdir -p "$STATE" "$CACHE"
sf "$REPO" repo create --quiet --splitter DYNAMIC-1M-BUZHASH
id=device:fs-uuid:$(uuid "$DEV")
sf "$REPO" backup "$DEV" --as "snapferry@$NODE:/$id" --quiet
sf "$REPO" backup "$DEV2" --as "snapferry@$NODE:/fs-uuid/$(uuid "$DEV2")" --quiet
starts "the daemon on an older repository"
for d in "$DEV" "$DEV2"; do check "backs up $d" backup "$d"; check "and -r" by_config backup "$d" --quiet; done
old="3 snapferry@:/$id
3 snapferry@:/fs-uuid/$(uuid "$DEV2")"
same "histories of earlier versions are continued under their names" "$(sources)" "$(sort <<<"$old")"
same "as a new one is not: with --as" "$(sf "$REPO" backup "$DEV" --as a@b:/c --json | tail -n 1 |
    jq -r .source.path)" /c
stops "the daemon stops at last"
finish
