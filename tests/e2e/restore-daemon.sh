#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# restore --verify, --differential, --offset and --length by the daemon, as with -r: into files of a class (XFS, which
# clones, and ext4, which does not) and onto a device; what they refuse, what their result says, and what a restore that
# does not complete says about its target.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "restores by the daemon"
fs_make xfs xfs
fs_make ext ext4 200
random_file "$WORK/xfs/v.img" $((12 * MIB)) 61
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup || { fail "setup"; finish; }
truncate -s 20M "$WORK/raw"
DEV=$(loop_device "$WORK/raw"); at_exit "losetup -d $DEV"
config_class images "$WORK/xfs" 'snapshots-to-retain = 1'
config_class slow "$WORK/ext"
config_add 60-raw "$(printf '[storage-class "raw"]\ndriver = device\nmatch = %s\n' "$DEV")"
starts "the daemon starts"
A=$(submit "$WORK/xfs/v.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed

restore() { ask restore "$A/$WORK/xfs/v.img" "$@" --wait --progress=no; }
number() { jq -r ".result.$1 // .operations[0].result.$1 // empty"; } # of what --wait --json prints

# ---- verify ----
out=$(restore "$WORK/xfs/new.img" --verify --json | tail -n 1)
same "restored to a new file" "$(jq -r .state <<<"$out")" Completed
check "with equal bytes" cmp "$WORK/v.orig" "$WORK/xfs/new.img"
same "and all was read back" "$(number verifiedBytes <<<"$out")" $((12 * MIB))
same "from the repository, though a native snapshot exists" "$(jq -r .from <<<"$out")" repository
same "and what became of its target is recorded" "$(jq -r '.operations[0].target_state' <<<"$out")" complete
expect "people read it too" 0 '12.* MiB verified' -- restore "$WORK/ext/new.img" --verify

# ---- differential into files ----
for fs in xfs ext; do
    t=$WORK/$fs/old.img
    cp "$WORK/v.orig" "$t"; chmod 640 "$t"
    random_file "$WORK/patch" 5000 62
    dd if="$WORK/patch" of="$t" bs=1 seek=3000000 conv=notrunc status=none
    truncate -s 14M "$t"
    before=$(stat -c %i "$t")
    out=$(restore "$t" --differential --verify --json | tail -n 1)
    same "$fs: differential, without --overwrite" "$(jq -r .state <<<"$out")" Completed
    check "$fs: it is the volume, no longer" cmp "$WORK/v.orig" "$t"
    check "$fs: little was written" test "$(number writtenBytes <<<"$out")" -le 131072
    check "$fs: the rest was there" test "$(number equalBytes <<<"$out")" -ge $((12 * MIB - 131072 - 1048576))
    check "$fs: another file took its place when it was complete" test "$(stat -c %i "$t")" != "$before"
    same "$fs: with its mode" "$(stat -c %a "$t")" 640
done
out=$(restore "$WORK/ext/none.img" --differential --json | tail -n 1)
same "differential to a file that does not exist" "$(jq -r .state <<<"$out")" Completed
check "is a whole restore" cmp "$WORK/v.orig" "$WORK/ext/none.img"

# ---- ranges into files ----
for fs in xfs ext; do
    t=$WORK/$fs/range.img
    random_file "$t" $((14 * MIB)) 63
    cp "$t" "$WORK/want"
    dd if="$WORK/v.orig" of="$WORK/want" bs=1000 skip=3000 seek=3000 count=2000 conv=notrunc status=none
    expect "$fs: a range into a longer file" 0 -- restore "$t" --offset 3000000 --length 2000000 --verify
    check "$fs: leaves the rest, and its length" cmp "$WORK/want" "$t"
done
expect "a range into a new file" 0 -- restore "$WORK/xfs/part.img" --offset 1048576 --length 4096
truncate -s $((MIB + 4096)) "$WORK/want2"
dd if="$WORK/v.orig" of="$WORK/want2" bs=4096 skip=256 seek=256 count=1 conv=notrunc status=none
truncate -s 1M "$WORK/zero"
check "has nothing before it, and ends with it" cmp "$WORK/xfs/part.img" <(cat "$WORK/zero";
    dd if="$WORK/v.orig" bs=4096 skip=256 count=1 status=none)
random_file "$WORK/xfs/short.img" 1000 64
expect "from an offset to the end, into a shorter file" 0 -- restore "$WORK/xfs/short.img" --offset $((10 * MIB))
same "which is longer then" "$(stat -c %s "$WORK/xfs/short.img")" $((12 * MIB))
check "and has the end" cmp --ignore-initial=$((10 * MIB)) "$WORK/v.orig" "$WORK/xfs/short.img"

# ---- a device ----
dd if=/dev/urandom of="$DEV" bs=1M count=20 conv=fsync status=none
cp "$WORK/raw" "$WORK/want"
dd if="$WORK/v.orig" of="$WORK/want" bs=1M skip=2 seek=2 count=3 conv=notrunc status=none
expect "a range onto a device" 0 -- restore "$DEV" --offset $((2 * MIB)) --length $((3 * MIB)) --verify
check "leaves the rest of it" cmp "$WORK/want" "$DEV"
out=$(restore "$DEV" --differential --verify --json | tail -n 1)
same "differential onto a device" "$(jq -r .state <<<"$out")" Completed
check "with equal bytes" cmp -n $((12 * MIB)) "$WORK/v.orig" "$DEV"
check "what the range had brought was not written again" test "$(number equalBytes <<<"$out")" -ge $((2 * MIB))

# ---- what is refused ----
if [ "$(stat -c %d /dev)" != "$(stat -c %d /)" ]; then
    expect "a device that is not there, in no class" 17 'there is no such device' -- restore "/dev/snapferry-none-$$"
    check "nothing was made among devices" eval '! ls /dev/*snapferry-none-* 2>/dev/null'
else
    skip "devices that are not there" "/dev is no file system of its own here"
fi
expect "an offset beyond the end" 2 'beyond the end' -- restore "$WORK/xfs/x.img" --offset 1T
for given in "$A/srv/none.img" "$A//srv/none.img"; do
    expect "a volume that $given does not have is named as volumes are" 16 "backup $A has no volume /srv/none.img" -- \
        ask restore "$given" "$WORK/xfs/x.img"
done
for t in "$WORK/xfs/../up.img" "$WORK//xfs/up.img" "$WORK/./xfs/up.img"; do
    expect "a target by a roundabout path: refused at once" 2 'in its path' -- timeout 60 "$SNAPFERRY" restore \
        "$A/$WORK/xfs/v.img" "$t" --wait --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
done
mkdir "$WORK/xfs/below"
expect "one in the directory above, relative to the present one" 0 -- \
    bash -c 'cd "$1" && shift && exec timeout 60 "$@"' - "$WORK/xfs/below" "$(realpath "$SNAPFERRY")" restore \
    "$A/$WORK/xfs/v.img" .././../xfs/up.img --wait --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
check "with equal bytes" cmp "$WORK/v.orig" "$WORK/xfs/up.img"
expect "a length of nothing" 2 'at least one byte' -- restore "$WORK/xfs/x.img" --length 0
expect "a part of something new" 2 'mutually exclusive' -- restore "$WORK/xfs/x.img" --new --offset 5
for option in --verify --differential '--offset 4096'; do
    # shellcheck disable=SC2086
    expect "$option from a native snapshot" 2 'cannot be combined with --from native' -- \
        restore "$WORK/xfs/x.img" --from native $option
done
check "nothing of it was made" eval '! ls "$WORK"/xfs/x.img* 2>/dev/null'

# ---- what is said about the target of a restore that does not complete ----
exec 9<>"$WORK/xfs/range.img"
expect "a file that is open: refused, and untouched" 17 'in use.*target is untouched' -- \
    restore "$WORK/xfs/range.img" --differential
out=$(restore "$WORK/xfs/range.img" --differential 2>&1)
check "the hint is to release it" grep -q 'unmount or release it first' <<<"$out"
check "and not --force, which the daemon lacks" eval '! grep -q -- --force <<<"$out"'
exec 9>&-
expect "with -r, of a file that is not empty, it is --resume" 17 '--resume continues an interrupted restore' -- \
    sf "$REPO" restore latest "$WORK/xfs/range.img" --as "snapferry@testnode:$WORK/xfs/v.img"
rm "$CONF/conf.d/50-slow.ini"
config_class images "$WORK/xfs" 'snapshots-to-retain = 1' 'write-limit = 3MiB'
check "reload" ask reload --wait --quiet
same "a backup of the device" "$(wait_state "$(submit "$DEV")" Completed 60)" Completed
half() { ask status | grep -A1 "$DEV is incomplete: $1 did not write all of it"; }
R=$(askj restore "$A/$WORK/xfs/v.img" "$DEV" --overwrite --from repository | jq -r .restore)
until_true 30 eval '[ "$(state "$(op_id "$R")")" = Running ]'
expect "a second restore to its target: refused at once" 14 "$DEV is the target of $R, which has not ended" -- \
    ask restore "$A/$WORK/xfs/v.img" "$DEV" --overwrite
B=$(submit "$DEV")
check "a backup of what it writes is tried later, and says why" eval '
    [ "$(wait_state "$(op_id "$B")" Retrying 20)" = Retrying ] &&
    doc "$(op_id "$B")" | grep -q "$DEV is not backed up while $R writes to it"'
check "and took no native snapshot of it" eval 'doc "$(op_id "$B")" | jq -e "(.native // \"\") == \"\""'
same "the restore goes on" "$(state "$(op_id "$R")")" Running
expect "the backup is canceled" 0 -- ask cancel "$B" --wait
expect "one that is canceled: who cancels it is told" 0 'Canceled: its target is incomplete' -- ask cancel "$R" --wait
expect "and who looks at it later" 0 'Target state +incomplete' -- ask describe "$R"
check "as long as it is so, it is a problem" until_true 10 half "$R"
check "with what to do" grep -q "snapferry delete $R" <<<"$(half "$R")"
check "which the list of volumes has, too" grep -q "$R left it incomplete" <<<"$(askj volumes)"
same "a backup of it" "$(wait_state "$(submit "$DEV")" Completed 60)" Completed
check "does not end that" half "$R"
config_class images "$WORK/xfs" 'snapshots-to-retain = 1'
check "reload again" ask reload --wait --quiet
expect "a range of it" 0 -- restore "$DEV" --offset 0 --length 4096
check "neither" half "$R"
expect "a whole restore" 0 -- restore "$DEV" --overwrite --from repository
check "does" until_true 10 eval '! half "$R"'
pack=$(find "$REPO" -path "$REPO/p*" -name '*.f' -size +4M -printf '%T@ %p\n' | sort -n | sed -n '1s/^[^ ]* //p')
dd if=/dev/zero of="${pack:-$WORK/none}" bs=4096 count=100 seek=600 conv=notrunc status=none
random_file "$WORK/xfs/old.img" $((12 * MIB)) 65
cp "$WORK/xfs/old.img" "$WORK/old.copy"
expect "a damaged repository, into a file: untouched" 15 'target is untouched' -- restore "$WORK/xfs/old.img" \
    --overwrite --from repository
check "it is" cmp "$WORK/old.copy" "$WORK/xfs/old.img"
dd if=/dev/urandom of="$DEV" bs=1M count=20 conv=fsync status=none
expect "onto a device: incomplete" 15 'target is incomplete' -- restore "$DEV" --overwrite
R=$(askj backups | jq -r '[.backups[] | select(.kind == "restore" and .state == "Failed")] | max_by(.created_ns).id')
check "which is a problem, too" until_true 10 half "$R"
check "until somebody says that it is right" ask delete "$R" --yes --wait --quiet
check "by the deletion of its record" until_true 10 eval '! half "$R"'
check "nothing is left behind" clean_state "$WORK/xfs" "$WORK/ext"
stops "the daemon stops"
finish
