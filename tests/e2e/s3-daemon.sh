#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon with repositories in S3: two nodes with records of their own back up into one bucket of OpenStack Swift's
# s3api (which verifies signatures), read, verify, delete, expire and restore. fault/s3-daemon.sh has what goes wrong.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "the daemon backs up to S3"
if ! /usr/bin/python3 -c 'import swift, eventlet' 2>/dev/null; then
    skip "the daemon and S3" "python3-swift is not installed"
    finish
fi
fs_make xfs xfs || exit 1
image "$WORK/xfs/a.img" 24 1
cp "$WORK/xfs/a.img" "$WORK/a.orig"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
swift_service swift "$WORK/cert.pem" "$WORK/key.pem"
swift=$endpoint
bucket() { # NAME ENDPOINT BUCKET LINES...
    printf '[repository "%s"]\ntype = s3\nendpoint = %s\nbucket = %s\npassword-file = %s\n' "$1" "$2" "$3" \
        "$WORK/password"
    printf '%s\n' "${@:4}"
}
node() { # NAME: the configuration of this node, in $CONF
    config_main "node-name = $1"
    # Nothing is in a directory: [repository "main"] is in the bucket.
    sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
    bucket main "$swift" bucket "prefix = nas/" "credentials = $WORK/s3-keys" "ca-file = $WORK/cert.pem" \
        >"$CONF/conf.d/10-main.ini"
    config_class gold "$WORK/xfs" 'repository = main' 'snapshots-to-retain = 1'
}
down_because() { # REPOSITORY TEXT
    [[ $(askj status | jq -r --arg r "$1" '.repositories[] | select(.name == $r and .up == false) | .why') =~ $2 ]]
}
is_up() { askj status | jq -e --arg r "$1" '.repositories[] | select(.name == $r) | .up' >/dev/null; }
r() { "$SF" --config-dir "$CONF" -r "$@"; }

# ---- a bucket of a real server ----
node testnode
configured() { "$SNAPFERRY" check-config --config-dir "$CONF" "$@"; }
expect "check-config accepts a bucket" 0 -- configured
same "and warns of nothing that belongs to it" "$(configured 2>&1 | grep -E '10-main.ini:[0-9]+: (warning|error)')" ""
starts "the daemon starts with a bucket as its only repository"
daemon_alive || finish
check "status says that the bucket has no repository yet" until_true 30 down_because main 'no repository at https://'
check "one is created with -r" r main repo create --quiet --splitter DYNAMIC-1M-BUZHASH
check "the daemon finds it" until_true 60 is_up main
same "status names its place" "$(askj status | jq -r '.repositories[0].path')" "$swift/bucket/nas/"
A=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
same "a backup" "$(state "$A")" Completed
check "what it uploaded is counted" [ "$(sql "SELECT value >= $((12 * MIB)) FROM counters
    WHERE name = 'upload_bytes_total' AND json_extract(labels, '\$.repository') = 'main'")" = 1 ]
printf 'changed' | dd of="$WORK/xfs/a.img" bs=1 seek=4096 conv=notrunc status=none
B=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
same "another one" "$(state "$B")" Completed
check "stores what has changed" [ "$(doc "$B" | jq '.new // 99999999')" -lt $((4 * MIB)) ]
restored_same "restored from the bucket" "$A" "$WORK/xfs/a.img" "$WORK/a.orig" repository
check "verified by the daemon" ask verify --wait --quiet
same "the snapshots are those of -r" "$(r main snapshot list --all --json | result 'snapshots | length')" 2
expect "expire by the daemon" 0 -- ask snapshot expire --wait
check "a backup is deleted" ask delete "$A" --yes --wait --quiet
same "in the bucket, too" "$(r main snapshot list --all --json | result 'snapshots | length')" 1
restored_same "the other is as it was" "$B" "$WORK/xfs/a.img" "$WORK/xfs/a.img" repository
# This node is the owner of the maintenance: its daemon does it, in a mover that has the network.
expect "full maintenance by the daemon" 0 'Marked deleted' -- ask maintenance --full --explain --wait
check "and a quick one" ask maintenance --wait --quiet
known() { askj status | jq -r ".repositories[0].maintenance$1"; }
same "status: this node's" "$(known .standing)" own
check "with the times of both" [ "$(known '| .full.success_ns > 0 and .quick.success_ns > 0')" = true ]
config_add 70-maintenance '[repository "main"]
maintenance-full = *:*:0/2'
check "full maintenance every two seconds" ask reload --wait
check "is done by schedule" until_true 60 eval '[ "$(sql "SELECT count(*) FROM operations WHERE
    json_extract(doc, '"'\$.maintain.scheduled'"') AND state = '"'Completed'"'")" -ge 1 ]'
rm "$CONF/conf.d/70-maintenance.ini"
check "no longer" ask reload --wait
restored_same "what is kept is as it was" "$B" "$WORK/xfs/a.img" "$WORK/xfs/a.img" repository
# What the mover had to know is in no file, no line of a log, no argument.
same "the keys are in no file of the daemon and no log" \
    "$(grep -rlF -e 'test:tester' -e testing "$STATE" "$RUN" "$CACHE" "$LOG" 2>/dev/null)" ""

# Another node: its own records, the same bucket.
FIRST=$CONF,$STATE,$RUN,$DPID
CONF=$WORK/conf2 STATE=$WORK/state2 RUN=$WORK/run2 LOG=$WORK/daemon2.log
mkdir -p "$WORK/xfs/two"
cp "$WORK/a.orig" "$WORK/xfs/two/c.img"
node othernode
config_class gold "$WORK/xfs/two" 'repository = main' 'snapshots-to-retain = 0'
starts "a second node starts"
check "it finds the repository" until_true 60 is_up main
C=$(submit "$WORK/xfs/two/c.img")
D=$(CONF=${FIRST%%,*} RUN=$WORK/run STATE=$WORK/state submit "$WORK/xfs/a.img")
same "a backup of the second node" "$(wait_state "$C" Completed 60)" Completed
same "shares the data of the first" "$(doc "$C" | jq '(.new // 99999999) < 4194304')" true
restored_same "and is restored" "$C" "$WORK/xfs/two/c.img" "$WORK/a.orig" repository
stops "the second node stops"
IFS=, read -r CONF STATE RUN DPID <<<"$FIRST"
LOG=$WORK/daemon.log
same "the backup of the first node at that time" "$(wait_state "$D" Completed 60)" Completed
expect "all of it verifies" 0 'no damage found' -- r main verify
clean "nothing is left behind" 30 "$WORK/xfs"
explain_failure
finish
