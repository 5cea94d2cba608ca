#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The command against the real daemon on a reflink file system: every verb once, JSON as docs/control.md says, and what
# is left when the daemon is stopped (AO-21).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../schema.sh"
DAEMON=$(dirname "$SNAPFERRY")/snapferryd
if ! is_root; then skip "the command against the real daemon" "needs root for a reflink file system"; finish; fi
[ -x "$DAEMON" ] || { fail "there is no $DAEMON"; finish; }
mkdir "$WORK"/{etc,vm,repo,run,cache,state}
truncate -s 320M "$WORK/fs"
mkfs.xfs -q -m reflink=1 "$WORK/fs" && mount -o loop "$WORK/fs" "$WORK/vm" || { fail "a reflink file system"; finish; }
at_exit "umount '$WORK/vm'"
sf "$WORK/repo" repo create --quiet
random_file "$WORK/vm/a.img" 20000000 71; random_file "$WORK/vm/b.img" 5000000 72
cat >"$WORK/etc/snapferry.ini" <<X
[daemon]
node-name = nas1
[repository "main"]
type = filesystem
path = $WORK/repo
password-file = $WORK/password
[mover]
user =
[metrics]
listen =
[storage-class "images"]
driver = reflink
match = $WORK/vm/*.img
snapshots-to-retain = 2
[job "nightly"]
volumes = class:images
on-calendar = *-*-* $(date -d "+5 hours" +%H:%M)
keep-daily = 3
X
start() {
    "$DAEMON" --foreground --config-dir "$WORK/etc" --state-dir "$WORK/state" --runtime-dir "$WORK/run" \
        --cache-dir "$WORK/cache" >>"$WORK/log" 2>&1 &
    SERVER=$!
    for _ in $(seq 200); do ask status --json 2>/dev/null | grep -q '"config"' && return; sleep 0.05; done
    fail "the daemon starts" "$(tail -n 5 "$WORK/log")"
}
ask() { "$SNAPFERRY" --runtime-dir "$WORK/run" --state-dir "$WORK/state" --config-dir "$WORK/etc" "$@"; }
at_exit 'kill $SERVER; wait $SERVER'
start

schema status "status before anything" ask status --json
schema volumes "volumes before anything" ask volumes --json
expect "unprotected" 0 'NO .*a.img' -- ask volumes
schema submitted-backup "backup" ask backup "$WORK/vm/*.img" --json
expect "a volume that no class matches" 2 'no storage class' -- ask backup /nowhere
schema backup "backup --job --wait" ask backup --job nightly --wait --json
expect "backup --wait for people" 0 'Completed in' -- ask backup "$WORK/vm/a.img" --wait
for v in operations backups; do schema $v "$v" ask $v --all --json; done
schema volumes "volumes" ask volumes --json
schema natives "native list" ask native list --json
schema status "status" ask status --json
expect "both protected" 0 '2, all protected' -- ask status
id=$(ask backups --json | jq -r '.backups[] | select(.job == "nightly").id')
native=$(ask native list --json | result 'natives[0].alias')
schema describe "describe a backup" ask describe "$id" --json
expect "for people" 0 "$WORK/vm/b.img" -- ask describe "$id"
schema describe "describe an operation" ask describe "$id/$WORK/vm/a.img" --json
schema describe "describe a native snapshot" ask describe "${native:0:8}" --json
schema describe "describe a volume" ask describe "$WORK/vm/a.img" --json
schema explain "explain" ask explain "$WORK/vm/a.img" --json
expect "explain for people" 0 'snapshots-to-retain +2 +.*snapferry.ini:' -- ask explain "$WORK/vm/a.img"
expect "logs" 0 'begins' -- ask logs "$id/$WORK/vm/a.img"
schema logs "logs in JSON" ask logs "$id/$WORK/vm/a.img" --json
same "the last line alone" "$(ask logs "$id/$WORK/vm/a.img" --json --lines 1 | result 'lines | length')" 1
expect "logs --follow of what has ended" 0 'ends: ok' -- ask logs "$id/$WORK/vm/a.img" --follow
ask logs "$id" --json >"$WORK/merged"
same "logs of a backup: the lines of all its operations" "$(tail -n 1 "$WORK/merged" |
    jq -r '[.lines[] | select(.text | test("ends: ok")) | .operation | select(startswith("up-"))] | unique | length')" 2
same "in the order of time" "$(tail -n 1 "$WORK/merged" | jq '[.lines[].at_ns] | . == sort')" true
same "and their steps" "$(tail -n 1 "$WORK/merged" | jq '[.lines[] | select(.text == "Completed")] | length')" 2
same "what the file of a mover begins with is none of it" "$(grep -c '# operation' "$WORK/merged")" 0
expect "logs --follow of a backup that has ended" 0 'ends: ok' -- ask logs "$id" --follow
schema logs "logs of a backup in JSON" ask logs "$id" --json
expect "the slash of a path is the one behind the backup, too" 0 'ends: ok' -- ask logs "$id$WORK/vm/a.img"
expect "with the beginning of a backup's id, as well" 0 'ends: ok' -- ask logs "${id%??}$WORK/vm/a.img"
ask backup "$WORK/vm/a.img" --wait --quiet
expect "several things may be meant: the newest are named" 2 'name one: manual-.*, manual-' -- ask describe manual
expect "what is not there" 16 'native snapshot or volume "manual-1999"$' -- ask describe manual-1999
expect "a job, mistyped" 16 'did you mean "nightly"' -- ask backup --job nigthly
expect "a repository" 2 'did you mean "main"' -- ask verify maim
expect "a repository to detach" 16 'did you mean "main"' -- ask repo detach maim
expect "a class" 16 'did you mean "images"' -- ask volumes --class image
expect "a class of volumes to back up" 2 'did you mean "images"' -- ask backup class:image
for v in "native list --volume" "operations --volume" "snapshot expire --volume" describe; do
    expect "$v, a volume" 16 "did you mean \"$WORK/vm/a.img\"" -- ask $v "$WORK/vm/a.imgg"
done
expect "a volume that is like none" 16 'is known to the records' -- ask native list --volume nonsense
expect "a backup that is not there" 16 'no backup or restore "nonsense"' -- ask operations --backup nonsense
expect "a state" 2 'did you mean "Running"' -- ask operations --state Runing
schema held "hold" ask hold "${native:0:8}" --note "audit" --json
same "it is held" "$(ask describe "$native" --json | result native.note)" audit
schema held "unhold" ask unhold "$native" --json
schema native-prune "native prune" ask native prune --explain --dry-run --json
schema submitted-restore "restore" ask restore "$id/$WORK/vm/b.img" "$WORK/vm/b2.img" --json
schema backup "restore --wait" ask restore "$id/$WORK/vm/a.img" "$WORK/vm/a2.img" --from repository --wait --json
check "it is the volume" cmp "$WORK/vm/a.img" "$WORK/vm/a2.img"
expect "a target that exists" 17 'exists' -- ask restore "$id/$WORK/vm/b.img" "$WORK/vm/a.img"
schema submitted "verify" ask verify --json
schema scan "scan" ask scan --json
schema operation "snapshot expire --dry-run" ask snapshot expire --dry-run --json
expect "with reasons" 0 '^  [0-9a-f]{16}  .*  kept +latest-1' -- ask snapshot expire --explain --volume "$WORK/vm/a.img"
expect "of a volume with its name" 0 "^$WORK/vm/a.img \\(snapferry@" \
    -- ask snapshot expire --explain --volume "$WORK/vm/a.img"
expect "and the policy" 0 '^  keeps: .*daily 3' -- ask snapshot expire --explain --volume "$WORK/vm/a.img"
expect "times are local and say of which zone" 0 " $(TZ=America/New_York date +%Y-%m-%d).* E[SD]T  kept" -- \
    env TZ=America/New_York "$SNAPFERRY" --runtime-dir "$WORK/run" snapshot expire --explain
dry() { "$SNAPFERRY" -r "$WORK/repo" --password-file "$WORK/password" snapshot "$@"; }
same "with -r in the same form" "$(dry expire --dry-run --explain --all |
    grep -cE "^($WORK/vm/a.img \\(snapferry@|  [0-9a-f]{16}  .*  kept +latest-1)")" \
    "$(ask snapshot expire --dry-run --explain |
        grep -cE "^($WORK/vm/a.img \\(snapferry@|  [0-9a-f]{16}  .*  kept +latest-1)")"
expect "the list has the name of the volume" 0 "iB  +$WORK/vm/a.img  +snapferry@" -- dry list
schema reload "reload --wait" ask reload --wait --json
echo nonsense >"$WORK/etc/conf.d" 2>/dev/null; mv "$WORK/etc/snapferry.ini" "$WORK/etc/good"; rm -f "$WORK/etc/conf.d"
printf '[daemon]\nnode-nam = x\n' >"$WORK/etc/snapferry.ini"
expect "a refused reload" 2 'snapferry.ini:2' -- ask reload --wait
expect "status says so" 0 'REFUSED' -- ask status
schema status "and in JSON" ask status --json
mv "$WORK/etc/good" "$WORK/etc/snapferry.ini"
expect "a good one again" 0 'Configuration reloaded' -- ask reload --wait
expect "debug-bundle" 0 'tar.gz' -- ask debug-bundle "$WORK/bundle.tar.gz"
mkdir "$WORK/bundle" && tar xf "$WORK/bundle.tar.gz" -C "$WORK/bundle"
same "the password is not in it (CF-52)" "$(grep -rl "$(cat "$WORK/password")" "$WORK/bundle")" ""
check "facts of the daemon are" jq -e .metrics "$WORK"/bundle/*/facts.json
expect "cancel what has ended" 0 'has already ended: Completed' -- ask cancel "$id"
schema deleted "delete" ask delete "$id" --json

kill "$SERVER"; wait "$SERVER"
same "the daemon ends with 0" $? 0
check "and takes its socket along" test ! -e "$WORK/run/control.sock"
for v in status operations backups volumes; do schema $v "down: $v" ask $v --json; done
schema natives "down: native list" ask native list --json
expect "down: it is said" 0 'not running.*reading' -- ask backups
last=$(ask backups --json 2>/dev/null | jq -r '[.backups[] | select(.kind == "restore")][0].id')
schema describe "down: describe" ask describe "$last" --json
expect "down: a volume, mistyped" 16 "did you mean \"$WORK/vm/a.img\"" -- ask native list --volume "$WORK/vm/a.imgg"
expect "down: logs" 0 'ends: ok' -- ask logs "$last"
expect "down: a request" 23 'not running' -- ask backup --job nightly
finish
