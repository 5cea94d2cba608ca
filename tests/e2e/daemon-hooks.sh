#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Hooks around a snapshot: order, failure, continue, and that what was stopped goes on whatever dies (CF-48, E-18); the
# example hook on a file system that is in use; groups of volumes (CF-47).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "hooks around real snapshots"
fs_make xfs xfs || exit 1
image "$WORK/xfs/v.img" 4 3
cat >"$WORK/hook" <<HOOK
#!/bin/sh
n=\$(find $WORK/xfs -path '*/.snapferry/*' -name '*.native' | wc -l)
echo "\$1 \$(basename "\$2") natives=\$n result=\$SNAPFERRY_RESULT" >>$WORK/ran
cat >$WORK/facts.\$1
[ ! -e $WORK/slow.\$1 ] || sleep \$(cat $WORK/slow.\$1)
[ ! -e $WORK/fail.\$1 ] || { echo "the database says no" >&2; exit 3; }
HOOK
chmod 755 "$WORK/hook"
daemon_setup
policy() { config_class xfs "$WORK/xfs" "hook-pre-snapshot = $WORK/hook" "hook-post-snapshot = $WORK/hook" \
    "hook-timeout = ${LIMIT:-5s}" \
    "hook-post-backup = $WORK/hook" "hook-post-restore = $WORK/hook" "retries = ${RETRIES:-0}" "$@"; }
policy
starts "the daemon starts"
ran() { awk '{print $1}' "$WORK/ran" 2>/dev/null | tr '\n' ' '; }
run() { rm -f "$WORK/ran"; ask backup "$WORK/xfs/v.img" --wait --json 2>/dev/null | tail -n 1; }

out=$(run)
same "Completed" "$(result state <<<"$out")" Completed
until_true 5 grep -q post-backup "$WORK/ran"
same "order" "$(ran)" "pre-snapshot post-snapshot post-backup "
same "before the snapshot there is none, after it one" "$(sed -n 's/.*natives=\([0-9]*\).*/\1/p' "$WORK/ran" |
    head -n 2 | tr '\n' ' ')" "0 1 "
check "facts come as JSON" jq -e '.version == 1 and .phase == "post-snapshot" and .volume.size == 4194304' \
    "$WORK/facts.post-snapshot"
B=$(result id <<<"$out")
check "the time in between is recorded" jq -e '.operations[0].details.frozen_ms >= 0' <<<"$(doc "$B")"
check "restore" ask restore "$B/$WORK/xfs/v.img" "$WORK/xfs/out.img" --wait --quiet
until_true 5 grep -q post-restore "$WORK/ran"
check "the post-restore hook ran" grep -q post-restore "$WORK/ran"
rm -f "$WORK/xfs/out.img"

# ---- before a backup, and before a restore ----
before=("hook-pre-backup = $WORK/hook" "hook-pre-restore = $WORK/hook")
policy "${before[@]}"; ask reload --wait --quiet
out=$(run)
until_true 5 grep -q post-backup "$WORK/ran"
same "pre-backup comes first" "$(ran)" "pre-backup pre-snapshot post-snapshot post-backup "
B=$(result id <<<"$out")
rm -f "$WORK/ran"
check "a restore with its hooks" ask restore "$B/$WORK/xfs/v.img" "$WORK/xfs/out.img" --wait --quiet
until_true 5 grep -q post-restore "$WORK/ran"
same "pre-restore and post-restore" "$(ran)" "pre-restore post-restore "
same "they know the target" "$(jq -r .device "$WORK/facts.pre-restore" "$WORK/facts.post-restore" | sort -u)" \
    "$WORK/xfs/out.img"
rm -f "$WORK/xfs/out.img"
touch "$WORK/fail.pre-restore"
ask restore "$B/$WORK/xfs/v.img" "$WORK/xfs/out.img" --wait --quiet >"$WORK/out" 2>&1
check "a failing pre-restore hook: no restore" grep -q 'the database says no' "$WORK/out"
check "the target is untouched" test ! -e "$WORK/xfs/out.img"
rm -f "$WORK/fail.pre-restore"
touch "$WORK/fail.pre-backup"
RETRIES=5 policy "${before[@]}"; ask reload --wait --quiet
out=$(run)
same "a failing pre-backup hook: no backup" "$(result state <<<"$out")" Failed
same "and no other attempt, nor a native snapshot" "$(ran)" "pre-backup post-backup "
B=$(result id <<<"$out")
expect "the problem says what to do" 0 "→ .*snapferry logs $B. has its output; correct $WORK/hook" -- ask status
expect "where it says so there is its output" 0 'the database says no' -- ask logs "$B"
policy "${before[@]}" 'hook-on-error = continue'; ask reload --wait --quiet
out=$(run)
same "on-error continue: the backup is made" "$(result state <<<"$out")" PartiallyFailed
rm -f "$WORK/fail.pre-backup"
LIMIT=60s policy "${before[@]}"; ask reload --wait --quiet
echo 50 >"$WORK/slow.pre-backup"; rm -f "$WORK/ran"
A=$(submit "$WORK/xfs/v.img")
until_true 10 grep -q pre-backup "$WORK/ran"
start=$SECONDS
ask cancel "$A" --quiet
same "a cancel ends it" "$(wait_state "$A" Canceled 20)" Canceled
check "at once" test $((SECONDS - start)) -le 15
rm -f "$WORK/slow.pre-backup"
# The daemon ends behind the hook: it is not run again.
touch "$WORK/slow.pre-snapshot"; echo 3 >"$WORK/slow.pre-snapshot"; rm -f "$WORK/ran"
A=$(submit "$WORK/xfs/v.img")
until_true 10 grep -q pre-snapshot "$WORK/ran"
rm -f "$WORK/slow.pre-snapshot"
daemon_kill
starts "a restart after the pre-backup hook"
wait_state "$A" 'Completed|Failed|PartiallyFailed' 30 >/dev/null
same "it has run once" "$(grep -c '^pre-backup' "$WORK/ran")" 1
policy; ask reload --wait --quiet

touch "$WORK/fail.pre-snapshot"
out=$(run)
same "a failing pre-snapshot hook: no backup" "$(result state <<<"$out")" Failed
check "with its last words" grep -q 'the database says no' <<<"$out$(ops "$(result id <<<"$out")")"
check "the post-snapshot hook ran all the same" grep -q '^post-snapshot' "$WORK/ran"
policy 'hook-on-error = continue'; ask reload --wait --quiet
out=$(run)
same "on-error continue: it goes on, and the failure is not forgotten" "$(result state <<<"$out")" PartiallyFailed
same "its operation is Completed" "$(ops "$(result id <<<"$out")" | jq -r .state)" Completed
expect "who waits is told why" 3 'the database says no' -- ask wait "$(result id <<<"$out")"
expect "also with --quiet" 3 'PartiallyFailed: .*the database says no' -- ask wait "$(result id <<<"$out")" --quiet
config_add job "[job \"all\"]
volumes = $WORK/xfs/v.img"
ask reload --wait --quiet
expect "likewise a job" 3 'the database says no' -- ask backup --job all --wait
expect "which is a problem of status until its next run" 3 \
    'job "all": its last backup, .*, is PartiallyFailed, though all volumes are stored: .*the database says no' -- \
    ask status --check
rm "$CONF/conf.d/job.ini"
image "$WORK/xfs/w.img" 1 4
policy
config_add w "[volume \"$WORK/xfs/w.img\"]
hook-pre-snapshot ="
ask reload --wait --quiet
expect "one of two volumes has failed: it is named, with the reason" 3 \
    "^  $WORK/xfs/v.img Failed: .*the database says no" -- ask backup "$WORK/xfs/*.img" --wait --progress=no
rm "$WORK/xfs/w.img" "$CONF/conf.d/w.ini"
policy; ask reload --wait --quiet
rm -f "$WORK/fail.pre-snapshot"
echo 30 >"$WORK/slow.pre-snapshot"
out=$(run)
same "a hook that hangs is ended" "$(result state <<<"$out")" Failed
check "and named" grep -q 'timed out after 5 s' <<<"$out$(ops "$(result id <<<"$out")")"
check "nothing of it runs" test -z "$(pgrep -f "$WORK/hook")"
rm -f "$WORK/slow.pre-snapshot"

# The daemon is killed while all stands still: the watchdog lets it go on at once, and so does the next start.
touch "$WORK/fail.post-snapshot"; echo 4 >"$WORK/slow.pre-snapshot"; rm -f "$WORK/ran"
A=$(submit "$WORK/xfs/v.img")
until_true 5 grep -q pre-snapshot "$WORK/ran"
rm -f "$WORK/fail.post-snapshot" "$WORK/slow.pre-snapshot"
start=$SECONDS
daemon_kill
until_true 5 grep -q post-snapshot "$WORK/ran"
check "killed in between: the watchdog runs the post-snapshot hook" grep -q post-snapshot "$WORK/ran"
check "at once" test $((SECONDS - start)) -le 3
starts "restart"
wait_state "$A" 'Completed|Failed|PartiallyFailed' 20 >/dev/null
check "the operation comes to an end: $(state "$A")" terminal "$(state "$A")"

# The example: a file system inside an image, mounted here, with a writer.
if command -v mkfs.ext4 fsfreeze findmnt >/dev/null; then
    truncate -s 64M "$WORK/xfs/fs.img"; mkfs.ext4 -q "$WORK/xfs/fs.img"
    mkdir "$WORK/inner"
    dev=$(loop_device "$WORK/xfs/fs.img"); at_exit "losetup -d $dev"
    blockdev --setrw "$dev"
    mount "$dev" "$WORK/inner"; at_exit "fsfreeze -u $WORK/inner; umount $WORK/inner"
    example=$(realpath examples/hooks/loop-freeze)
    cp "$example" "$WORK/loop-freeze"; chown root "$WORK/loop-freeze"; chmod 755 "$WORK/loop-freeze"
    config_add fs "[volume \"$WORK/xfs/fs.img\"]
hook-pre-snapshot = $WORK/loop-freeze
hook-post-snapshot = $WORK/loop-freeze"
    ask reload --wait --quiet
    for i in $(seq 50); do echo "$i" >"$WORK/inner/$i"; done
    ( i=0; while echo "$i" >>"$WORK/inner/log"; do i=$((i + 1)); sleep 0.01; done ) 2>/dev/null &
    writer=$!
    same "example: a mounted file system is backed up" "$(ask backup "$WORK/xfs/fs.img" --wait --json 2>/dev/null |
        result state)" Completed
    before=$(stat -c %s "$WORK/inner/log")
    check "its writer goes on afterwards" until_true 5 eval "[ \$(stat -c %s '$WORK/inner/log') -gt $before ]"
    kill $writer; wait $writer 2>/dev/null
    B=$(askj backups | jq -r '.backups[0].id')
    ask restore "$B/$WORK/xfs/fs.img" "$WORK/xfs/fs.out" --from repository --wait --quiet
    check "its file system is whole" e2fsck -fn "$WORK/xfs/fs.out"
    check "frozen, not merely crash-consistent: no journal to replay" eval \
        '! dumpe2fs -h "$WORK/xfs/fs.out" 2>/dev/null | grep -q needs_recovery'
    check "thawed twice: no error" "$WORK/loop-freeze" post-snapshot "$WORK/xfs/fs.img"
    umount "$WORK/inner"; losetup -d "$dev"
    rm -f "$WORK/xfs/fs.img" "$WORK/xfs/fs.out" "$CONF/conf.d/fs.ini"
else
    skip "the example hook" "no mkfs.ext4, fsfreeze or findmnt"
fi

# A group: all members stand still together, then all are snapshotted.
image "$WORK/xfs/w.img" 4 4
config_add group "[volume \"$WORK/xfs/v.img\"]
group = db
group-consistency = strict
group-max-skew = 2s
[volume \"$WORK/xfs/w.img\"]
group = db
group-consistency = strict
group-max-skew = 2s"
ask reload --wait --quiet
rm -f "$WORK/ran"
out=$(ask backup "$WORK/xfs/v.img" "$WORK/xfs/w.img" --wait --json 2>/dev/null | tail -n 1)
same "a group: Completed" "$(result state <<<"$out")" Completed
same "all hooks before the first snapshot (CF-47)" "$(ran | tr ' ' '\n' | grep snapshot | tr '\n' ' ')" \
    "pre-snapshot pre-snapshot post-snapshot post-snapshot "
check "the skew is recorded" jq -e '[.operations[].details | .. | .group_skew_ms? // empty] | length > 0' \
    <<<"$(doc "$(result id <<<"$out")")"
clean "nothing is left behind" 8 "$WORK/xfs"
explain_failure
finish
