#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A node that lost everything, and whose bucket an attacker has emptied: an empty daemon uses the repository as it was
# (point-in-time), finds its backups and restores them. It writes nothing there, and no class can back up to it.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "the daemon and a bucket as it was"
fs_make xfs xfs || exit 1
image "$WORK/xfs/a.img" 8 1
s3_service versions /usr/bin/python3 tests/tools/s3-faults.py "$WORK/versions.port"
endpoint=http://127.0.0.1:$port
server() { curl -sS --noproxy '*' "$endpoint/$1" >"$WORK/answer"; }
main() { # LINES...: [repository "main"], in the bucket
    printf '[repository "main"]\ntype = s3\nendpoint = %s\nbucket = b\nprefix = nas/\ncredentials = %s\n' "$endpoint" \
        "$WORK/s3-keys"
    printf '%s\n' "password-file = $WORK/password" "$@"
}
r() { "$SF" --config-dir "$CONF" -r main "$@"; }
is_up() { askj status | jq -e '.repositories[0].up' >/dev/null; }
configured() { "$SNAPFERRY" check-config --config-dir "$CONF" "$@" 2>&1; }
server _versions/Enabled
config_main
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
main >"$CONF/conf.d/10-main.ini"
config_class gold "$WORK/xfs" 'repository = main' 'snapshots-to-retain = 0'
check "a repository" r repo create --quiet --splitter DYNAMIC-1M-BUZHASH
starts "the daemon starts"
check "it uses the bucket" until_true 60 is_up
cp "$WORK/xfs/a.img" "$WORK/a.orig"
A=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
same "a backup" "$(state "$A")" Completed
sleep 2.1
THEN=$(date -u +%FT%TZ)
sleep 1.1
printf 'encrypted' | dd of="$WORK/xfs/a.img" bs=1 seek=4096 conv=notrunc status=none
B=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
same "one of what the attacker left of the volume" "$(state "$B")" Completed
stops "the daemon stops"
rm -rf "$STATE" "$CACHE"
mkdir "$STATE" "$CACHE"
for key in $(curl -sS --noproxy '*' "$endpoint/b?list-type=2&prefix=nas/" -H "x-amz-date: $(date -u +%Y%m%dT%H%M%SZ)" |
    grep -o '<Key>[^<]*' | sed 's/<Key>//'); do
    curl -sS --noproxy '*' -X DELETE -H "x-amz-date: $(date -u +%Y%m%dT%H%M%SZ)" "$endpoint/b/$key"
done
expect "nothing is left in the bucket" 11 'no repository' -- r snapshot list

main "point-in-time = $THEN" >"$CONF/conf.d/10-main.ini"
expect "no class backs up to the past" 2 'gold.*backs up to .repository "main".*, which is read only' -- configured
rm "$CONF/conf.d/50-gold.ini"
expect "the configuration is that of a restore" 0 -- configured
same "-r uses it as well" "$(r snapshot list --all --json | result 'snapshots | length')" 1
expect "what writes is refused" 2 'cannot be changed: it is shown as it was' -- r backup "$WORK/xfs/a.img" --as n@h:/x
main "point-in-time = soon" >"$CONF/conf.d/10-main.ini"
expect "a time is a time" 2 'point-in-time: time such as' -- configured
main "point-in-time = 2199-01-01" >"$CONF/conf.d/10-main.ini"
expect "that has passed" 2 'point-in-time: 2199-01-01 has not come yet' -- configured
printf '[repository "dir"]\npath = %s\npoint-in-time = %s\n' "$WORK/dir" "$THEN" >"$CONF/conf.d/20-dir.ini"
expect "of a directory it is an error" 2 'point-in-time belongs to type = s3' -- configured
rm "$CONF/conf.d/20-dir.ini"
main "point-in-time = $THEN" >"$CONF/conf.d/10-main.ini"
starts "an empty daemon starts"
check "it uses the bucket as it was" until_true 60 is_up
check "it is scanned" ask scan main --wait --quiet
found() { [ "$(askj backups --all | jq -r '[.backups[].id] | join(" ")')" = "$A" ]; }
check "the backup from before is found, and no other" until_true 30 found
check "restored" ask restore "$A/$WORK/xfs/a.img" "$WORK/xfs/a.out" --from repository --wait --quiet
check "as it was" cmp "$WORK/a.orig" "$WORK/xfs/a.out"
check "verified" ask verify --wait --quiet
expect "maintenance is refused" 2 -- ask maintenance --full --wait
same "nothing was written" "$(curl -sS --noproxy '*' "$endpoint/b?list-type=2&prefix=nas/" \
    -H "x-amz-date: $(date -u +%Y%m%dT%H%M%SZ)" | grep -o '<Key>[^<]*')" ""
stops "the daemon stops again"
explain_failure
finish
