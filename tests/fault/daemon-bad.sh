#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Bad surroundings: a repository that is gone, a volume that vanishes, a broken configuration, records that are corrupt,
# newer or on a full disk, a file system that does not answer. One clear sentence each, visible in status, everything
# else goes on.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "bad surroundings"
fs_make xfs xfs && fs_make btrfs btrfs 300 || exit 1
image "$WORK/xfs/v.img" 2 21
image "$WORK/xfs/w.img" 2 22
image "$WORK/btrfs/x.img" 2 23
expect "no configuration at all" 2 'snapferry.ini' \
    -- timeout 10 "$SNAPFERRYD" --foreground --config-dir "$WORK/nothing" \
    --state-dir "$STATE" --runtime-dir "$RUN" --cache-dir "$CACHE"
daemon_setup
config_class xfs "$WORK/xfs"
config_class btrfs "$WORK/btrfs"
problems() { ask status --json | tail -n 1 | jq -r '.problems[].text'; }

# The repository is gone at start: the daemon runs and says so; backups wait; when it is back they go on.
mv "$REPO" "$REPO.away"
starts "it starts without its repository"
check "status says so" until_true 5 eval 'problems | grep -q "$REPO"'
A=$(submit "$WORK/xfs/v.img")
sleep 1.5
check "a backup waits ($(state "$A"))" eval '! terminal "$(state "$A")"'
mkdir "$REPO"
sleep 2
check "an empty directory (a missing mount) is not written to (E-19)" test -z "$(ls -A "$REPO")"
rmdir "$REPO"; mv "$REPO.away" "$REPO"
same "it is back: Completed" "$(wait_state "$A" Completed 90)" Completed
check "the problem is gone" until_true 10 eval '! problems | grep -q "$REPO"'

# Names that nobody could type are backed up like others; what cannot be recorded is passed over and told.
cp "$WORK/btrfs/x.img" "$WORK/btrfs/"$'bell\a and\nline.img'
cp "$WORK/btrfs/x.img" "$WORK/btrfs/"$'latin\xe9.img'
config_add names "[job \"names\"]
volumes = class:btrfs"
check "reload with odd names" ask reload --wait --quiet
check "a run over the class" ask backup --job names --wait --quiet
same "has those that have a name" \
    "$(askj backups --all | jq -r '[.backups[] | select(.job == "names")][0].volumes | length' 2>/dev/null)" 2
odd=$(askj backups --all | jq -r '[.backups[] | select(.job == "names")][0].id')
check "both are restored" ask restore "$odd/$WORK/btrfs/"$'bell\a and\nline.img' "$WORK/btrfs/"$'back\t.img' \
    --from repository --wait --quiet
check "to what they were" cmp "$WORK/btrfs/x.img" "$WORK/btrfs/"$'back\t.img'
check "the log tells of the other" grep -q "ignored: .*rename the file" "$LOG"
rm -f "$WORK"/btrfs/bell* "$WORK"/btrfs/back* "$WORK"/btrfs/latin* "$CONF/conf.d/names.ini"
check "reload without them" ask reload --wait --quiet

# Of two volumes one has vanished.
config_add job "[job \"both\"]
volumes = $WORK/xfs/v.img $WORK/xfs/w.img"
config_add more "[volume \"$WORK/xfs/w.img\"]
hook-pre-snapshot = $WORK/vanish
retries = 0"
printf '#!/bin/sh\nrm -f "$2"\n' >"$WORK/vanish"; chmod 755 "$WORK/vanish"
check "reload" ask reload --wait --quiet
out=$(ask backup --job both --wait --json 2>/dev/null); rc=$?
same "a volume vanishes: PartiallyFailed (AO-25)" "$(result state <<<"$out")" PartiallyFailed
same "exit code" $rc 3
same "degraded from the first failure on (AO-13)" "$(result degraded <<<"$out")" true
check "it names the volume" grep -q 'w.img' <<<"$(ops "$(result id <<<"$out")" |
    jq -r 'select(.state == "Failed") | .error.message')"
rm -f "$CONF/conf.d/job.ini" "$CONF/conf.d/more.ini"
ask reload --wait --quiet

# A broken reload keeps the old configuration.
hash=$(askj status | jq -r .config.hash)
config_class xfs "$WORK/xfs" 'snapshots-to-retian = 3' 'retries = many'
out=$(ask reload --wait 2>&1); rc=$?
same "a broken file: reload's exit code" $rc 2
check "file:line and the nearest name" grep -qE '50-xfs.ini:4.*snapshots-to-retain' <<<"$out"
same "the old one is in force" "$(askj status | jq -r .config.hash)" "$hash"
check "status tells" test "$(askj status | jq -r .config.ok)" = false
same "backups go on" "$(ask backup "$WORK/xfs/v.img" --wait --json 2>/dev/null | result state)" Completed
kill -HUP "$DPID"; sleep 0.3
check "SIGHUP with it: still alive" daemon_alive
config_class xfs "$WORK/xfs"
kill -HUP "$DPID"
check "SIGHUP with a good one" until_true 5 eval '[ "$(askj status | jq -r .config.ok)" = true ]'

# A file system that does not answer: its volume waits, the others do not.
fsfreeze -f "$WORK/btrfs"; at_exit "fsfreeze -u $WORK/btrfs"
B=$(submit "$WORK/btrfs/x.img")
same "one file system hangs: another volume is backed up" \
    "$(timeout 20 "$SNAPFERRY" backup "$WORK/xfs/v.img" --wait --json --runtime-dir "$RUN" 2>/dev/null |
        result state)" Completed
check "status answers" timeout 5 "$SNAPFERRY" status --runtime-dir "$RUN"
fsfreeze -u "$WORK/btrfs"
[ -z "$B" ] || same "it answers again: Completed" "$(wait_state "$B" Completed 90)" Completed

# Garbage on the control socket hurts nobody.
throw() {
    timeout 5 perl -MIO::Socket::UNIX \
        -e '$SIG{PIPE} = "IGNORE"; $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die; print $s <STDIN>; sleep 1' \
        "$RUN/control.sock"
}
for g in 'garbage' '{"id":1}' '[]' "$(head -c 100000 /dev/zero | tr '\0' '[')"; do
    printf '%s\n' "$g" | throw
done
head -c 3000000 /dev/urandom | throw
check "garbage on the control socket: it answers" ask status
daemon_stop

# Records.
cp -a "$STATE" "$WORK/state.good"
newer=$(($(sql "SELECT value FROM meta WHERE key = 'schema'") + 1))
sqlite3 "$STATE/records.db" "UPDATE meta SET value = '$newer' WHERE key = 'schema'"
sum=$(sha256sum <"$STATE/records.db")
expect "records of a newer version are refused" 13 'newer|version|schema' \
    -- timeout 10 "$SNAPFERRYD" --foreground --config-dir "$CONF" \
    --state-dir "$STATE" --runtime-dir "$RUN" --cache-dir "$CACHE"
same "and not touched" "$(sha256sum <"$STATE/records.db")" "$sum"
rm -rf "$STATE"; cp -a "$WORK/state.good" "$STATE"
printf 'garbage' | dd of="$STATE/records.db" bs=1 seek=4096 conv=notrunc status=none
head -c 4096 /dev/urandom | dd of="$STATE/records.db" bs=1 seek=8192 conv=notrunc status=none
starts "corrupt records: it starts"
check "the old file is kept" eval 'ls "$STATE"/records.db.corrupt-* >/dev/null'
check "status tells" eval 'askj status | jq -r ".daemon.news, .problems[].text" | grep -qi corrupt'
same "and backs up" "$(ask backup "$WORK/xfs/v.img" --wait --json 2>/dev/null | result state)" Completed
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 1'
ask reload --wait --quiet
ask backup "$WORK/xfs/v.img" --wait --quiet 2>/dev/null
kept=$(natives_of "$WORK/xfs/v.img")
daemon_stop
rm -rf "$STATE"; mkdir "$STATE"
starts "no records at all (a re-installed node): it starts"
check "scan" ask scan --wait --quiet
check "it finds the backups in the repository (RS-15)" test "$(askj backups --all | jq '.backups | length')" -ge 3
same "one of volumes with odd names, with its outcome" "$(askj backups --all |
    jq -r --arg b "$odd" '.backups[] | select(.id == $b) | "\(.state) \(.volumes | length)"')" "Completed 2"
check "and the native snapshot that was kept" grep -qx "$kept" <(natives_of)
restored_same "from which a volume comes back" "$(sql "SELECT parent FROM natives WHERE id = '$kept'")" \
    "$WORK/xfs/v.img" "$WORK/xfs/v.img" native
same "and new ones work" "$(ask backup "$WORK/xfs/v.img" --wait --json 2>/dev/null | result state)" Completed
clean "nothing is left behind" 10 "$WORK/xfs" "$WORK/btrfs"

# Somebody removes the runtime directory: movers cannot reach the daemon, nor can anybody else.
config_add job "[job \"often\"]
volumes = $WORK/xfs/v.img
on-calendar = *:*:0/2"
rm -rf "$RUN"
expect "the runtime directory is removed: what to do is said" 23 'removed: .systemctl restart snapferryd.' -- ask reload
kill -HUP $DPID
check "why a mover does not start is said" until_true 20 grep -q 'its last words: .*cannot reach the daemon at' "$LOG"
rm "$CONF/conf.d/job.ini"
stops "the daemon ends"
mkdir "$RUN"
starts "and is there again"
same "with backups that work" "$(ask backup "$WORK/xfs/v.img" --wait --json 2>/dev/null | result state)" Completed
explain_failure
finish
