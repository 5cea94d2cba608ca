#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What removes or overwrites data asks on a terminal, names what will be lost, and does nothing unless the answer is
# yes;
# --yes, --json, --dry-run and what is no terminal are not asked.
. "$(dirname "$0")/../lib.sh"
export LC_ALL=C.UTF-8 TERM=xterm TZ=UTC
unset COLUMNS LINES NO_COLOR
T=$TOOLS/terminal
R=$WORK/repo
RUN=$WORK/run
mkdir "$RUN"

# typed TEXT COMMAND...: what is on the screen at the end, folds undone; the exit code in $RC.
typed() { "$T" --size 300x24 --type "$1" "${@:2}" >"$WORK/screen" 2>&1; RC=$?; }
has() { check "$1" grep -qE -- "$2" "$WORK/screen"; }
hasnt() { check "$1" sh -c '! grep -qE -- "$1" "$2"' - "$2" "$WORK/screen"; }
repo() { echo "$SF" -r "$R" --password-file "$WORK/password"; }
count() { sf "$R" snapshot list --json | result 'snapshots | length'; }

# ---- snapshots in a repository ----

sf "$R" repo create --quiet
random_file "$WORK/image" 3000001 1
for i in 1 2 3 4; do sf "$R" backup "$WORK/image" --as snapferry@nas1:/srv/a --quiet; done
ids=($(sf "$R" snapshot list --json | result 'snapshots[].id'))
for reply in n "" no nonsense ^D; do
    typed "$reply" $(repo) snapshot delete "${ids[0]}"
    same "\"$reply\" is no: exit code" $RC 1
    same "\"$reply\" is no: nothing is deleted" "$(count)" 4
done
which="Snapshot ${ids[0]} of snapferry@nas1:/srv/a \(2[0-9-]+ [0-9:]+ UTC, 2\.9 MiB\)"
has "what will be lost is named" "^$which will be deleted from repository $R\.$"
has "the answer that is taken is shown" '^Continue\? \[y/N\]'
has "and that nothing happened" '^snapferry: not confirmed; nothing was changed$'
typed ^C $(repo) snapshot delete "${ids[0]}"
same "an interrupt: exit code" $RC 130
same "an interrupt: nothing is deleted" "$(count)" 4
typed y $(repo) snapshot delete "${ids[0]}"
same "y is yes" "$RC $(count)" "0 3"
typed " YES " $(repo) snapshot delete "${ids[1]}"
same "so is YES" "$RC $(count)" "0 2"
typed n $(repo) snapshot delete "${ids[2]}" "${ids[3]}" --force
has "several are counted" "^2 snapshots will be deleted from repository $R\.$"
typed n $(repo) snapshot delete "${ids[2]}" --dry-run
hasnt "--dry-run does not ask" Continue
typed n $(repo) snapshot delete "${ids[2]}" --yes
hasnt "--yes does not ask" Continue
same "--yes is yes" "$RC $(count)" "0 1"
for i in 1 2; do sf "$R" backup "$WORK/image" --as snapferry@nas1:/srv/a --quiet; done
ids=($(sf "$R" snapshot list --json | result 'snapshots[].id'))
typed n $(repo) snapshot delete "${ids[0]}" --json
hasnt "--json does not ask" Continue
same "--json: deleted" "$RC $(count)" "0 2"
expect "without a terminal nothing is asked" 0 '^1 snapshot deleted' -- sf "$R" snapshot delete "${ids[1]}"
echo n | sf "$R" snapshot delete "${ids[2]}" --force >"$WORK/screen" 2>&1
same "nor is a pipe read" "$(count)" 0

# The newest ten of a source are kept by Kopia's defaults: five of fifteen go.
for i in $(seq 15); do sf "$R" backup "$WORK/image" --as snapferry@nas1:/srv/a --quiet; done
expired=$(sf "$R" snapshot expire --all --dry-run --json | result expired)
check "there is something to expire" test "$expired" -gt 0
typed n $(repo) snapshot expire --all
which="$expired of 15 snapshots in repository $R have expired"
has "expiry counts what goes first" "^$which and will be deleted \(--dry-run --explain lists them\)\.$"
same "no: nothing has expired" "$RC $(count)" "1 15"
typed y $(repo) snapshot expire --all
same "yes: it has" "$RC $(count)" "0 $((15 - expired))"
typed n $(repo) snapshot expire --all
hasnt "nothing to expire: nothing to ask" Continue
same "and no failure" $RC 0

typed n $(repo) maintenance --take-ownership --owner me@nas2
has "ownership of maintenance: both owners are named" \
    "^Maintenance of repository $R will belong to me@nas2 instead of snapferry-maintenance@"
same "ownership: no" $RC 1
typed n $(repo) maintenance --take-ownership --owner me@nas2 --yes
same "ownership: --yes" "$RC $(grep -c Continue "$WORK/screen")" "0 0"

# ---- restores over what is there ----

cp "$WORK/image" "$WORK/other"; printf x >>"$WORK/other"
sum=$(sha256sum <"$WORK/other")
typed n $(repo) restore latest "$WORK/other" --force
has "a restore names what it overwrites" "^The data on $WORK/other \(2\.9 MiB\) will be overwritten\.$"
same "no: it is as it was" "$RC $(sha256sum <"$WORK/other")" "1 $sum"
typed n $(repo) restore latest "$WORK/other" --differential
has "with --differential, too" '^The data on'
same "and as it was" "$(sha256sum <"$WORK/other")" "$sum"
typed n $(repo) restore latest "$WORK/other"
hasnt "what is refused anyway is not asked" Continue
same "but refused" $RC 17
typed n $(repo) restore latest "$WORK/new" --force
hasnt "a new file: nothing to lose" Continue
check "and restored" cmp "$WORK/image" "$WORK/new"
truncate -s 5M "$WORK/sized"
typed n $(repo) restore latest "$WORK/sized" --force
hasnt "a file that was only given a size" Continue
typed y $(repo) restore latest "$WORK/other" --force
check "yes: overwritten" cmp "$WORK/image" "$WORK/other"
printf x >>"$WORK/other"
check "without a terminal --force is enough" sf "$R" restore latest "$WORK/other" --force
check "overwritten" cmp "$WORK/image" "$WORK/other"

if is_root; then
    truncate -s 8M "$WORK/disk"
    dev=$(loop_device "$WORK/disk"); at_exit "losetup -d $dev"
    typed n $(repo) restore latest "$dev"
    hasnt "a device that reads as zeros: nothing to lose" Continue
    same "restored" "$RC $(head -c 3000001 "$dev" | sha256sum)" "0 $(sha256sum <"$WORK/image")"
    typed n $(repo) restore latest "$dev"
    has "a device with data" "^The data on $dev \(8\.0 MiB\) will be overwritten\.$"
    same "no" $RC 1
    typed y $(repo) restore latest "$dev"
    same "yes" $RC 0
    mkfs.ext4 -q -F "$dev" && mkdir "$WORK/mnt" && mount "$dev" "$WORK/mnt" && at_exit "umount $WORK/mnt"
    typed n $(repo) restore latest "$dev" --force
    has "who uses it is named" "^The data on $dev \(8\.0 MiB, mounted at $WORK/mnt\) will be overwritten\.$"
    umount "$WORK/mnt"
else
    skip "a device with data" "needs root for loop devices"
fi

# ---- what asks the daemon ----

backup='{id: "nightly-20261121T020000-3f9a", kind: "backup", state: "Completed",
    
    created_ns: ((now - 7200) * 1e9 | floor), volumes: ["vg0/db1", "vg0/\u001b[2Jdb2"]}'
admin='{id: "admin-expire-1", kind: "admin", does: "expire", state: "Completed", created_ns: 1,
    result: {answers: [{verb: "expire", kept: 17, expired: 3, dryRun: true}]}}'
natives='[{alias: "a", volume: "v", state: "present", created_ns: 1, used: 1048576, prune: true},
    {alias: "b", volume: "v", state: "present", created_ns: 1, prune: false}]'
# A request that is not expected is an error of the server, with another exit code.
script() { jq -n -c "$1" >"$RUN/script.new" && mv "$RUN/script.new" "$RUN/script.json"; }
script "{describe: {answer: {kind: \"backup\", backup: $backup}}, expire: {answer: {operation: \"admin-expire-1\"}},
    wait: {answer: $admin}, \"native-prune\": {answer: {natives: $natives, started: 0}}}"
"$TOOLS/script_server" "$RUN" "$RUN/script.json" >"$RUN/log" 2>&1 &
SERVER=$!
at_exit 'kill $(pgrep -P $SERVER) $SERVER'
for _ in $(seq 100); do grep -q ready "$RUN/log" && break; sleep 0.05; done
daemon() { typed "$1" "$SNAPFERRY" "${@:2}" --runtime-dir "$RUN"; }

daemon n delete nightly
which='Backup nightly-20261121T020000-3f9a of 2 volumes \(vg0/db1, vg0/\\x1b\[2Jdb2\), 2 h ago'
has "delete names the backup, its volumes and its age" \
    "^$which, will be deleted: its snapshots in the repository, its native snapshots and its records\.$"
same "no: nothing is asked of the daemon" $RC 1
daemon y delete nightly
same "yes: it is" "$RC $(grep -c 'the daemon has no verb "delete"' "$WORK/screen")" "2 1"
daemon n delete nightly --yes
same "--yes" "$RC $(grep -c Continue "$WORK/screen")" "2 0"
expect "without a terminal" 2 'has no verb "delete"' -- "$SNAPFERRY" delete nightly --runtime-dir "$RUN"
daemon n snapshot expire
has "expire" '^3 of 20 snapshots in the repository have expired and will be deleted'
same "expire: no" $RC 1
daemon n native prune
has "native prune" '^1 of 2 native snapshots \(1\.0 MiB\) will be removed'
same "native prune: no" $RC 1
daemon n native prune --dry-run
hasnt "native prune --dry-run" Continue
daemon n forget vg0/old
has "forget" '^Volume vg0/old will be removed from the records\. Its backups and native snapshots are kept '\
'\(`snapferry native prune --gone`'
same "forget: no" $RC 1
daemon n repo detach old
which='The backups in repository old will be removed from the records and no longer protect their volumes\.'
has "repo detach" "^$which The data in the repository are kept\.$"
same "repo detach: no" $RC 1
daemon n restore nightly/vg0/db1 vg0/db1 --overwrite
has "restore --overwrite" '^The data on vg0/db1 will be overwritten if it exists\.$'
same "restore --overwrite: no" $RC 1
daemon n restore nightly/vg0/db1 "$WORK/other" --overwrite
has "of a file" "^The data on $WORK/other \(2\.9 MiB\) will be overwritten\.$"
daemon n restore nightly/vg0/db1 "$WORK/not-there" --overwrite
hasnt "of one that does not exist" Continue
daemon n restore nightly/vg0/db1 "$WORK/other"
hasnt "the daemon refuses what exists" Continue
daemon n maintenance --full --safety=none
has "maintenance --safety=none" '^The repository will be maintained without safety delays: no client may use'
same "maintenance: no" $RC 1
daemon n maintenance --full --safety=none --yes
same "maintenance: --yes" "$RC $(grep -c 'the daemon has no verb "maintenance"' "$WORK/screen")" "2 1"
daemon n copy vault --delete-most
has "copy --delete-most" '^What its repository does not have any more will be deleted from vault, also'
same "copy: no" $RC 1
daemon y copy vault --delete-most
same "copy: yes" "$RC $(grep -c 'the daemon has no verb "copy"' "$WORK/screen")" "2 1"
daemon n copy vault
hasnt "copy alone" Continue
script "{describe: {error: {class: \"not-found\", code: 16, message: \"there is nothing\"}}}"
daemon y delete nonsense
same "a backup that is not there" "$RC $(grep -c Continue "$WORK/screen")" "16 0"
finish
