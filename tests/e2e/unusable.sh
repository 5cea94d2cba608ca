#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What would make every backup fail is told by `status`, `status --check` and the metrics before a backup runs: a wrong
# password, a repository that is another one or gone, a class whose driver this build lacks, a job that names nothing.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
fs_make xfs xfs 320 || exit 1
random_file "$WORK/xfs/a.img" $((2 * MIB)) 1
daemon_setup
config_class img "$WORK/xfs"
config_add metrics "[metrics]
textfile = $WORK/metrics.prom
textfile-period = 1s"
problems() { askj status | jq -r '.problems[] | .severity + " " + .text'; }
hints() { askj status | jq -r '.problems[].hint'; }
red() { ask status --check --quiet; [ $? = 3 ]; }
metric() { awk -v m="snapferry_$1" '$1 == m { print $2 }' "$WORK/metrics.prom"; }
# becomes NAME REGEX METRIC VALUE: a problem, a failing check and the metric, without anybody asking for a backup.
becomes() {
    check "$1: a problem of status" until_true 40 eval "problems | grep -qE '$2'"
    check "$1: status --check fails" red
    check "$1: $3 is $4" until_true 20 eval "[ \"\$(metric '$3')\" = $4 ]"
}
fine() { check "$1" until_true 40 eval '! problems | grep -v "is not protected"'; }
UP='repository_up{repository="main"}'

secret "$WORK/password.other" <<<"another password"
mv "$WORK/password" "$WORK/password.right"
cp "$WORK/password.other" "$WORK/password"
starts "the daemon starts"
becomes "a wrong password at the start" '^error repository "main": wrong password' "$UP" 0
check "with what to do" grep -q 'check the password file' <<<"$(hints)"
cp "$WORK/password.right" "$WORK/password"
fine "the right one: all is well without a reload"
check "and the metric" until_true 10 eval '[ "$(metric "$UP")" = 1 ]'
same "no backup was needed to find out" "$(askj backups --all | jq '.backups | length')" 0

# ---- the directory of the caches is read-only: what is wrong is said, not what came of it ----
if [ "$MOVER_USER" = root ]; then
    stops "the daemon ends"
    rm -rf "$CACHE"; mkdir "$CACHE" "$WORK/read-only"
    mount --bind "$WORK/read-only" "$CACHE" && at_exit "umount -l '$CACHE'"
    mount -o remount,bind,ro "$CACHE"
    starts "with a read-only directory of caches"
    becomes "no cache" "^error repository \"main\": cannot create .*$CACHE/root: Read-only file system" "$UP" 0
    check "with what to do" grep -q 'cache-dir in .daemon., must be a writable directory' <<<"$(hints)"
    umount "$CACHE"
    fine "writable again: all is well"
fi

# ---- another repository at the same place (CF-31) ----
B=$(submit "$WORK/xfs/a.img")
same "a backup" "$(wait_state "$B" Completed 60)" Completed
check "the unique id is recorded" until_true 10 grep -q '^snapferry_repository_recorded_timestamp_seconds{' \
    "$WORK/metrics.prom"
ID=$(sf "$REPO" repo status --json | result format.uniqueID)
same "that of the repository" "$ID" \
    "$(sed -n 's/.*recorded_timestamp.*{.*id="\([0-9a-f]*\)".*/\1/p' "$WORK/metrics.prom")"
mv "$REPO" "$REPO.right"
sf "$REPO" repo create --quiet
check "a reload" ask reload --wait --quiet
becomes "an empty repository at its place" '^error repository "main": another repository is at .*recorded one' "$UP" 0
B=$(submit "$WORK/xfs/a.img")
sleep 2
same "a backup waits" "$(ops "$B" | jq -r .state)" Queued
same "nothing is written into it" "$(sf "$REPO" snapshot list --json | result 'snapshots | length')" 0
daemon_kill
starts "a new daemon"
becomes "the id survives" '^error repository "main": another repository is at ' "$UP" 0
rm -rf "$REPO"
mv "$REPO.right" "$REPO"
same "the right one is back: the backup goes on" "$(wait_state "$B" Completed 60)" Completed
fine "all is well"

# While nobody has looked yet: the mover refuses it by itself.
mv "$REPO" "$REPO.right"
sf "$REPO" repo create --quiet
B=$(submit "$WORK/xfs/a.img")
check "a mover refuses another repository" until_true 20 eval \
    'ask operations | grep -q "another repository is at"'
check "which is then a problem" until_true 20 eval 'problems | grep -q "^error repository \"main\": another"'
same "nothing is written into it" "$(sf "$REPO" snapshot list --json | result 'snapshots | length')" 0
check "replaced on purpose" ask scan main --replaced --quiet
same "then the backup goes into it" "$(wait_state "$B" Completed 60)" Completed
same "as a whole" "$(sf "$REPO" snapshot list --json | result 'snapshots | length')" 1
fine "all is well"

# ---- gone ----
mv "$REPO" "$REPO.away"
check "whoever asks for the status learns it at once" grep -q 'main DOWN' <<<"$(ask status)"
mv "$REPO.away" "$REPO"
check "and that it is back" grep -q 'main ok' <<<"$(ask status)"
mv "$REPO" "$REPO.away"
becomes "a repository that is gone" '^error repository "main": .* cannot be reached' "$UP" 0
mkdir "$REPO"
becomes "nothing at its place" '^error repository "main": there is no repository in' "$UP" 0
check "nobody is told to make another" eval 'hints | grep -q "bring it back" && ! hints | grep -q "repo create"'
rmdir "$REPO"
mv "$REPO.away" "$REPO"
fine "it is back"

# ---- classes and jobs ----
config_add 60-lv '[storage-class "lv"]
driver = rbd
match = tank/*'
check "a reload with a class whose driver is in a package that is not there" ask reload --wait --quiet
becomes "a driver whose package is not there" 'storage class "lv" cannot be listed: cannot run .*/snapferry-rbd' \
    config_warnings 1
config_add 61-job "[job \"lost\"]
volumes = class:lv
on-calendar = *-*-* $(later):00"
check "a job of it alone" ask reload --wait --quiet
becomes "a job that names nothing" '^error job "lost" backs up nothing' config_warnings 1
daemon_stop
starts "the next daemon"
becomes "also at the start" '^error job "lost" backs up nothing' config_warnings 1
rm "$CONF/conf.d/60-lv.ini" "$CONF/conf.d/61-job.ini"
# Its name stands in a message once.
mkdir "$WORK/xfs/dir"
mount -t tmpfs -o size=1M none "$WORK/xfs/dir"
at_exit "umount '$WORK/xfs/dir'"
config_add 62-dir "[storage-class \"nowhere\"]
driver = reflink
match = $WORK/xfs/dir/*.img"
truncate -s 64K "$WORK/xfs/dir/x.img"
expect "a class whose file system has no reflinks" 2 'storage class "nowhere": files in' -- ask reload --wait --quiet
same "a message has the name of its class once" \
    "$({ problems; ask volumes --wide; ask reload --wait; ask check-config; } 2>&1 |
        grep -E 'storage class "([^"]*)":? .*storage class "\1"')" ""
rm "$CONF/conf.d/62-dir.ini"
umount "$WORK/xfs/dir"
check "without all of them" ask reload --wait --quiet
fine "all is well"
check "no warning is counted" until_true 20 eval '[ "$(metric config_warnings)" = 0 ]'

# ---- the last result ----
job() { askj jobs | jq -r '.jobs[] | select(.job == "night") | .last_result.state'; }
config_add 62-job "[job \"night\"]
volumes = $WORK/xfs/*.img
on-calendar = *-*-* $(later):00"
check "a job" ask reload --wait --quiet
for _ in 1 2 3 4 5 6 7 8 9 10; do # its mover is quick
    A=$(submit --job night); O=$(op_id "$A")
    hold_mover "$O" 20 >/dev/null && break
    wait_state "$A" none 30 >/dev/null
done
ask cancel "$A" --quiet
same "a backup is canceled" "$(wait_state "$A" Canceled 30)" Canceled
same "a canceled backup is no failed one" "$(doc "$A" | jq -r '.failed')" 0
same "its volume counts as canceled" "$(doc "$A" | jq -r '.canceled')" 1
same "nor is its job" "$(job)" Canceled
check "and it is no problem" ask status --check --quiet
cat >"$WORK/hook" <<'X'
#!/bin/sh
echo "the database is down" >&2
exit 1
X
chmod 755 "$WORK/hook"
config_class img "$WORK/xfs" "retries = 0" "hook-pre-snapshot = $WORK/hook"
check "a hook that fails" ask reload --wait --quiet
A=$(submit --job night)
same "the backup fails" "$(wait_state "$A" Failed 60)" Failed
becomes "the last backup failed, the one before counts" "^error the last backup of $WORK/xfs/a.img failed: " \
    "volume_last_status{volume=\"$WORK/xfs/a.img\"}" 0
stops "the end"
explain_failure
finish
