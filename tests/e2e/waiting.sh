#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Who waits is told for what and how long: a backup into a repository that is away, each queued operation with its place
# (AO-47), also the first one; what another attempt cannot change is not tried again.
# Its mounts are its own: a mover of another test, in a namespace of its own, would hold a copy of them.
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
fs_make xfs xfs 320 || exit 1
random_file "$WORK/xfs/a.img" $((2 * MIB)) 1
random_file "$WORK/xfs/b.img" $((2 * MIB)) 2
daemon_setup
config_class img "$WORK/xfs" 'repo-outage-max = 2h'
starts "the daemon starts"

# ---- a repository that is away ----
mv "$REPO" "$REPO.away"
check "a reload finds it away" ask reload --quiet
until_true 20 eval 'askj status | jq -e ".repositories[0].up == false"'
ask backup "$WORK/xfs/a.img" "$WORK/xfs/b.img" --wait >"$WORK/waited" 2>&1 &
WAITING=$!
check "backup --wait says at once what it waits for" until_true 15 \
    grep -qE '/a.img waits: repository "main": .* cannot be reached' "$WORK/waited"
check "and when it gives up" until_true 15 grep -qE 'waits: .*; gives up in [0-9]+ (h|min)' "$WORK/waited"
N=$(grep -c 'a.img waits: ' "$WORK/waited")
same "not over and over" "$(sleep 5; grep -c 'a.img waits: ' "$WORK/waited")" "$N"
B=$(askj backups | jq -r '.backups[0].id')
two() { ops "$B" | jq -r '[.state, .position] | @csv' | sort | tr '\n' ' '; }
check "both are queued" until_true 15 eval '[ "$(two)" = "\"Queued\",1 \"Queued\",2 " ]'
same "operations: each with its place" "$(askj operations --state Queued --backup "$B" |
    jq -c '[.operations[] | .position] | sort')" '[1,2]'
same "and its reason" "$(askj operations --state Queued --backup "$B" |
    jq -c '[.operations[] | .why | test("cannot be reached")]')" '[true,true]'
same "each problem of status says what to do" "$(askj status |
    jq -c '[.problems[] | select((.hint // "") == "")]')" '[]'
same "status has the same places" "$(askj status | jq -c --arg b "$B" \
    '[.queue[] | select(.backup == $b) | .position] | sort')" '[1,2]'
mv "$REPO.away" "$REPO"
wait $WAITING
same "it is back: the backup completes" $? 0

# ---- what needs no slot ----
mv "$REPO" "$REPO.away"
check "it is away again" ask reload --quiet
until_true 20 eval 'askj status | jq -e ".repositories[0].up == false"'
declare -A WAITER=()
waiter() { # NAME COMMAND...: in the background, a process of this shell
    "$SNAPFERRY" "${@:2}" --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF" \
        </dev/null >"$WORK/waited-$1" 2>&1 &
    WAITER[$1]=$!
}
waiter scan scan main
waiter verify verify main --wait
waiter maintain maintenance main --wait
waiter expire snapshot expire --wait
for who in "${!WAITER[@]}"; do
    check "$who says at once what it waits for, and when it gives up" until_true 15 \
        grep -qE 'waits: repository "main": .*; gives up in [0-9]+ s' "$WORK/waited-$who"
done
SUBMITTED=$(sed -nE 's/^([a-z0-9T-]+) waits: .*/\1/p' "$WORK"/waited-* | sort -u | jq -R . | jq -sc .)
sent() { askj operations --state Queued | jq -c --argjson ids "$SUBMITTED" \
    '[.operations[] | select(.id as $id | $ids | index($id))]'; } # the daemon may have more to do by itself
queued() { sent | jq -c '[.[].position | select(. > 0)] | unique | length'; }
check "each has its place" until_true 10 eval '[ "$(queued)" = 4 ]'
same "and its reason" "$(sent | jq '[.[].why | test("cannot be reached")] | all')" true
check "also as text" eval '[ "$(ask operations --state Queued | grep -c "position [1-9]$")" -ge 4 ]'
C=$(submit "$WORK/xfs/a.img")
check "a backup is not behind them" until_true 10 eval '[ "$(ops "$C" | jq .position)" = 1 ]'
check "it is canceled" ask cancel "$C" --wait --quiet
for who in "${!WAITER[@]}"; do
    kill "${WAITER[$who]}"
    wait "${WAITER[$who]}"
    same "$who, interrupted" $? 130
    check "says that it continues, and how it is canceled" eval 'grep -qE "interrupted; .* continues" \
        "$WORK/waited-$who" && grep -qE "snapferry cancel [a-z0-9T-]+ cancels it" "$WORK/waited-$who"'
done
same "so they do" "$(queued)" 4
X=$(askj backups | jq -r '[.backups[] | select(.state == "Completed")][-1].id')
waiter delete delete "$X" --even-kept --force --wait --yes
check "a deletion says at once why it does not end" until_true 15 \
    grep -qE '^delete-[^ ]*: repository "main": .* cannot be reached' "$WORK/waited-delete"
kill "${WAITER[delete]}"
wait "${WAITER[delete]}"
check "interrupted, that it cannot be canceled" grep -q 'that has begun cannot be canceled' "$WORK/waited-delete"
waiter again scan main
check "a second scan" until_true 15 grep -q 'waits: ' "$WORK/waited-again"
ask cancel "$(sed -n 's/.*scan-\([^ ]*\) waits: .*/admin-scan-\1/p' "$WORK/waited-again")" >/dev/null
wait "${WAITER[again]}"
same "that is canceled ends with it" $? 24
check "and says so" grep -q 'was canceled' "$WORK/waited-again"
mv "$REPO.away" "$REPO"
check "it is back" ask reload --quiet
ran() { # those that were submitted, whatever else the daemon does by itself; maintenance may find that it is not due
    local id
    for id in $(jq -r '.[]' <<<"$SUBMITTED"); do [[ $(state "$id") =~ ^(Completed|Skipped)$ ]] || return; done
}
check "all of them run" until_true 60 ran

# Its mover is the first that sees it gone, and no retry is allowed (AO-31).
config_class img "$WORK/xfs" 'repo-outage-max = 2h' 'retries = 0'
check "without retries" ask reload --wait --quiet
mv "$REPO" "$REPO.away"
ask backup "$WORK/xfs/a.img" --wait >"$WORK/waited" 2>&1 &
WAITING=$!
check "one that has just gone away: it waits as well, and tells so" until_true 15 \
    grep -qE '/a.img waits: .*(cannot be reached|no repository at)' "$WORK/waited"
[ $failures -eq 0 ] || sed 's/^/# waited: /' "$WORK/waited"
mv "$REPO.away" "$REPO"
wait $WAITING
same "it completes when that is back" $? 0
check "who had a repository before is not told to make another" \
    eval '! askj operations --all | jq -c ".operations[].error.hint" | grep -q "repo create"'
config_class img "$WORK/xfs" 'repo-outage-max = 2h'

# ---- prepared when its repository goes away ----
cat >"$WORK/prepare" <<PREPARE
#!/bin/sh
touch $WORK/prepared
until [ -e $WORK/go-on ]; do sleep 0.1; done
PREPARE
chmod 755 "$WORK/prepare"
config_class img "$WORK/xfs" 'repo-outage-max = 2h' 'backup-read-only = no' "hook-prepare = $WORK/prepare" \
    'hook-timeout = 10min'
check "with a prepare hook" ask reload --wait --quiet
ask backup "$WORK/xfs/a.img" --wait >"$WORK/waited" 2>&1 &
WAITING=$!
check "a hook works on the intermediate" until_true 30 test -e "$WORK/prepared"
mv "$REPO" "$REPO.away"
check "meanwhile the repository goes away" until_true 20 eval \
    'askj status | jq -e ".repositories[0].up == false"'
touch "$WORK/go-on"
check "one that is prepared says what it waits for, and when it gives up" until_true 15 \
    grep -qE '/a.img waits: repository "main": .* cannot be reached.*; gives up in [0-9]+ (h|min)' "$WORK/waited"
same "it stays prepared, and has a place" "$(askj operations | jq -c '.operations[] |
    select(.kind == "backup" and .ended_ns == null) | [.state, .position]')" '["Exposing",1]'
[ $failures -eq 0 ] || sed 's/^/# waited: /' "$WORK/waited"
mv "$REPO.away" "$REPO"
wait $WAITING
same "when that is back it completes" $? 0
config_class img "$WORK/xfs" 'repo-outage-max = 2h'
check "without the hook" ask reload --wait --quiet

# ---- a configuration that is changed meanwhile ----
mv "$REPO" "$REPO.away"
check "it is away again" ask reload --quiet
until_true 20 eval 'askj status | jq -e ".repositories[0].up == false"'
B=$(submit "$WORK/xfs/a.img")
O=$(op_id "$B")
until_true 15 eval 'state "$O" | grep -q Queued'
sed -i "s|^path = .*|path = $REPO.away|; s|^password-file = .*|password-file = $WORK/password.new|" \
    "$CONF/snapferry.ini"
cp -p "$WORK/password" "$WORK/password.new"
config_class img "$WORK/xfs" 'repo-outage-max = 2h' 'retries = 17' 'repository = other'
config_add 60-other "[repository \"other\"]
type = filesystem
path = $WORK/other
password-file = $WORK/password"
expect "a reload tells that it has reached the waiting operation" 0 \
    '1 waiting operation has taken it over' -- ask reload
same "its limits are the new ones" "$(doc "$O" | jq .details.policy.retries)" 17
check "what cannot be changed is told, with what to do" eval \
    'doc "$O" | jq -r .config_kept | grep -q "repository = other is not taken over.*cancel .* and submit it again"'
same "it completes with the new path and password file" "$(wait_state "$B" Completed 60)" Completed
mv "$REPO.away" "$REPO"
rm "$CONF/conf.d/60-other.ini"
config_class img "$WORK/xfs" 'repo-outage-max = 2h'
sed -i "s|^path = .*|path = $REPO|; s|^password-file = .*|password-file = $WORK/password|" "$CONF/snapferry.ini"
check "as it was" ask reload --quiet

# ---- one volume's failure does not hold up the next job ----
check "a second repository" sf "$WORK/second" repo create --quiet --splitter DYNAMIC-1M-BUZHASH
config_class img "$WORK/xfs" 'repo-outage-max = 2h' 'repository = main'
config_add 60-next "[repository \"second\"]
type = filesystem
path = $WORK/second
password-file = $WORK/password
[volume \"$WORK/xfs/a.img\"]
repository = second
[job \"first\"]
volumes = $WORK/xfs/a.img $WORK/xfs/b.img
[job \"next\"]
volumes = $WORK/xfs/b.img"
check "a job of two volumes in two repositories" ask reload --wait --quiet
mv "$WORK/second" "$WORK/second.away"
check "of which one goes away" until_true 60 eval \
    'askj status | jq -e "[.repositories[] | select(.up == false)] | length == 1"'
B=$(askj backup --job first | jq -r .backup)
check "its volume waits" until_true 60 eval \
    '[ "$(ops "$B" | jq -r .state | sort | tr "\n" " ")" = "Completed Queued " ]'
expect "which the status of its job says" 0 'first .*(Moving|Snapshotting), begun ' -- ask status
C=$(askj backup --job next | jq -r .backup)
same "the next job with the other volume is done" "$(wait_state "$C" Completed 60)" Completed
mv "$WORK/second.away" "$WORK/second"
same "then the first one, when it is back" "$(wait_state "$B" Completed 60)" Completed
rm "$CONF/conf.d/60-next.ini"
config_class img "$WORK/xfs" 'repo-outage-max = 2h'
check "without them" ask reload --wait --quiet

# ---- the first in line ----
running "$WORK/xfs/a.img"
C=$(submit "$WORK/xfs/a.img")
same "behind one with the same volume: the reason" "$(ops "$C" | jq -r .why)" \
    "its backup waits for $A, which has the same volumes"
same "and the place" "$(ops "$C" | jq -r .position)" 1
kill -CONT "$PID"
same "then it goes" "$(wait_state "$C" Completed 60)" Completed

# ---- a reload ----
echo 'retreis = 3' >>"$CONF/conf.d/50-img.ini"
expect "a refused reload prints the line" 2 '^5: retreis = 3$' -- ask reload
sed -i '/retreis/d' "$CONF/conf.d/50-img.ini"
check "without it" ask reload --quiet

# ---- what another attempt cannot change ----
truncate -s 32M "$WORK/disk"
mkfs.ext4 -q "$WORK/disk"
DEV=$(loop_device "$WORK/disk"); at_exit "losetup -d $DEV"
mkdir "$WORK/mounted"
mount "$DEV" "$WORK/mounted"; at_exit "umount $WORK/mounted"
config_add 60-device "[storage-class \"dev\"]
driver = device
match = $DEV"
check "a class of devices" ask reload --quiet
D=$(submit "$DEV")
same "a mounted device is refused" "$(wait_state "$D" Failed 30)" Failed
same "in its first attempt" "$(doc "$(op_id "$D")" | jq -r '.attempt // 1')" 1
check "with the reason" eval 'doc "$D" | jq -r .error.message | grep -q "is in use"'

# ---- a mover that may not reach the daemon ----
sed -i 's/^user = .*/user = nobody/' "$CONF/snapferry.ini"
chmod 700 "$RUN"
check "movers of another user" ask reload --quiet
D=$(submit "$WORK/xfs/a.img")
same "which may not enter the runtime directory: it fails" "$(wait_state "$D" Failed 60)" Failed
same "in its first attempt, too" "$(doc "$(op_id "$D")" | jq -r '.attempt // 1')" 1
check "with the reason" eval 'doc "$D" | jq -r .error.message | grep -q "cannot reach the daemon.*Permission denied"'
chmod 755 "$RUN"
sed -i 's/^user = .*/user = root/' "$CONF/snapferry.ini"
check "as before" ask reload --quiet

# ---- two devices of one identity ----
umount "$WORK/mounted"
cp "$WORK/disk" "$WORK/clone"
CLONE=$(loop_device "$WORK/clone"); at_exit "losetup -d $CLONE"
D=$(submit "$DEV")
same "alone a device is backed up" "$(wait_state "$D" Completed 60)" Completed
# Held for a moment longer, as after an unmount.
perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_RDONLY | O_EXCL) or die; open(my $told, ">", $ARGV[1]); sleep 600' \
    "$DEV" "$WORK/held" &
HOLDER=$!
at_exit "kill $HOLDER"
until_true 10 test -e "$WORK/held"
(sleep 1.2; kill $HOLDER) &
D=$(submit "$DEV"); O=$(op_id "$D")
same "what is released within two seconds is waited for" "$(wait_state "$D" Completed 60)" Completed
same "in the first attempt" "$(doc "$O" | jq -r '.attempt // 1')" 1
sed -i "s|^match = .*|match = $DEV $CLONE|" "$CONF/conf.d/60-device.ini"
check "a copy of it joins its class" ask reload --quiet
check "neither is taken for the other: a problem of status" until_true 20 eval \
    'askj status | jq -r ".problems[].text" | grep -q "have the same identity"'
expect "nor is one backed up" 19 'have the same identity' -- ask backup "$CLONE" --wait
sed -i "s|^match = .*|match = $DEV|" "$CONF/conf.d/60-device.ini"
check "without it all is well" ask reload --quiet
config_add 61-clone "$(printf '[storage-class "clones"]\ndriver = device\nmatch = %s\n' "$CLONE")"
check "it joins another class" ask reload --quiet
check "which is no difference: a problem of status" until_true 20 eval \
    'askj status | jq -r ".problems[].text" | grep -q "have the same identity"'
expect "the copy is not backed up" 19 'have the same identity' -- ask backup "$CLONE" --wait
expect "nor is the original" 19 'have the same identity' -- ask backup "$DEV" --wait
config_add 61-clone "$(printf '[storage-class "clones"]\ndriver = device\nmatch = %s\n' "$DEV")"
check "where no class has the copy" ask reload --quiet
D=$(submit "$DEV")
same "the original is backed up, also if two classes match it" "$(wait_state "$D" Completed 60)" Completed
rm "$CONF/conf.d/61-clone.ini"
check "without the other class" ask reload --quiet

# ---- a verification ----
random_file "$WORK/xfs/b.img" $((40 * MIB)) 3
B=$(submit "$WORK/xfs/b.img")
same "a larger volume" "$(wait_state "$B" Completed 60)" Completed
B=$(submit "$WORK/xfs/b.img")
same "and again" "$(wait_state "$B" Completed 60)" Completed
sf "$REPO" verify --json --progress --read-limit 8MiB >"$WORK/verify" 2>&1
same "verify" $? 0
all=$(jq -s '[.[] | select(.type == "progress" and .phase == "moving") | .totalBytes] | max' "$WORK/verify")
check "its total is what is read, once" test "$all" -ge $((40 * MIB)) -a "$all" -le $((60 * MIB))
check "what was done is what was read, with what was fetched of packs that are not complete" jq -s -e '
    [.[] | select(.type == "progress" and .phase == "moving")] | length > 2 and
    all(.doneBytes >= .readBytes and .doneBytes <= .totalBytes) and any(.doneBytes > .readBytes)' "$WORK/verify"
stops "with all there"

# ---- a repository that is not there yet, or is mended ----
# Sweeps are rare here: it is not they that find it.
config_main 'sweep = 1h' 'repo-outage-max = 2h'
mv "$REPO" "$REPO.away"
starts "without a repository"
until_true 20 eval 'askj status | jq -e ".repositories[0].up == false"'
hint() { askj status | jq -r '[.problems[].hint // empty] | join(" ")'; }
check "one that was here before: nobody is told to make another" eval '! hint | grep -q "repo create"'
mv "$REPO.away" "$REPO"
check "it is looked at again by and by" until_true 60 eval 'askj status | jq -e ".repositories[0].up"'
stops "the daemon"
rm -rf "$STATE"
REPO=$WORK/repo2
config_main 'sweep = 1h' 'repo-outage-max = 2h'
starts "a new node"
until_true 20 eval 'askj status | jq -e ".repositories[0].up == false"'
check "status tells how a repository is made" eval 'hint | grep -qF "snapferry -r main repo create"'
B=$(submit "$WORK/xfs/a.img") # waits for it
check "as it says" "$SNAPFERRY" --config-dir "$CONF" -r main repo create --quiet
same "it is used as soon as it is there" "$(wait_state "$B" Completed 60)" Completed
stops "the end"
explain_failure
finish
