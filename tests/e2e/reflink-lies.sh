#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver reflink on a file system that tells wrongly where data lie (tests/tools/fiemap_lies.c): a change that looks as
# the parent's data is found by verify-sample; a parent whose blocks are moved while it is compared means a full read.
# (CF-08, CF-10, CF-12)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../lies-lib.sh"
need_root "lists of changes by a file system that lies"
fs_make xfs xfs 400 || exit 1
img=$WORK/xfs/a.img
random_file "$img" $((16 * MIB)) 1
daemon_setup 'changed-blocks = auto' 'verify-sample = 100' || { fail "setup"; finish; }
lies_metrics
config_class xfs "$WORK/xfs" 'splitter = DYNAMIC-128K-BUZHASH' # many chunks: a quarter of them is not overlooked
export FIEMAP_LIES=$WORK/fiemap
starts "the daemon starts" LD_PRELOAD="$TOOLS/fiemap_lies.so"
# changed SEED: what is written between two backups; of the second range the file system may lie.
changed() {
    random_file "$WORK/page" $((4 * MIB)) "$1"
    dd if="$WORK/page" of="$img" bs=4096 count=1 conv=notrunc status=none
    dd if="$WORK/page" of="$img" bs=1M seek=8 conv=notrunc status=none
}
lie() { echo "$1 $((8 * MIB)) $((4 * MIB))" >"$FIEMAP_LIES"; }
truth() { rm "$FIEMAP_LIES"; }
told() { sort "$FIEMAP_LIES.told" | uniq -c | xargs; }

backup "$img" >/dev/null
changed 2
right=$(backup "$img")
same "the truth is told: what was written is listed" "$(op "$right" '[.fullReason, .result.cbtSource]')" \
    '[null,"reflink"]'
check "both ranges" test "$(op "$right" .listedBytes)" -ge $((4 * MIB + 4096))
check "bit for bit" restored "$right" "$img"

changed 3
before=$(mismatches)
lie same
lied=$(backup "$img")
truth
same "a lie was told" "$(told)" "1 same"
same "it is found: all is read" "$(op "$lied" '[.state, .fullReason]')" '["Completed","mismatch"]'
check "really" test "$(op "$lied" .result.readBytes)" -gt $((16 * MIB))
check "and the backup is right" restored "$lied" "$img"
same "the metric counts it" "$before $(mismatches)" "0 1"
alert "which is an alert" "$before" "$(mismatches)"
check "the log has the place" found_within 8 4
expect "status has it as a problem" 3 "list of changes of .*a.img was wrong" -- ask status --check
changed 4
next=$(backup "$img")
same "the next one relies on no list" "$(op "$next" '[.fullReason, .listedBytes]')" '["distrusted",null]'
check "and is right" restored "$next" "$img"
same "--full: as asked for" "$(op "$(backup "$img" --full)" .fullReason)" forced
changed 5
again=$(backup "$img")
same "from then on it is used again" "$(op "$again" '[.fullReason, .result.cbtSource]')" '[null,"reflink"]'
check "and this backup is right" restored "$again" "$img"
check "nothing is left to complain about" eval '! ask status | grep -q "list of changes of"'

# Moved while it is compared: its old place may be that of other data by now, which then look as the parent's.
rm "$FIEMAP_LIES.told"
changed 6
lie moved
moved=$(backup "$img")
truth
same "the parent was moved after it was looked at" "$(told)" "1 moved 1 same"
same "blocks that are moved meanwhile: all is read" "$(op "$moved" '[.state, .fullReason]')" \
    '["Completed","uncertain"]'
check "with the reason" grep -q 'blocks of .* were moved while it was compared' <<<"$(doc "$moved")"
check "nothing was taken over" test "$(op "$moved" .result.readBytes)" -ge $((16 * MIB))
check "and its backup is right" restored "$moved" "$img"
same "which distrusts nothing" "$(mismatches)" 1
changed 7
after=$(backup "$img")
same "the next one is incremental" "$(op "$after" '[.fullReason, .result.cbtSource]')" '[null,"reflink"]'
check "and right, too" restored "$after" "$img"
stops "the daemon stops"
finish
