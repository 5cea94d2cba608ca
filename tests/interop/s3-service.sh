#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Backups and maintenance in any S3 service (MinIO, AWS): S3_ENDPOINT=http://HOST:PORT S3_BUCKET=NAME, and a file of
# credentials, S3_KEYS=FILE; S3_CA=FILE has the certificate of its authority. First with -r, as tests/e2e/radosgw.sh
# does with Ceph's, then by a daemon, whose movers have a child that connects.
. "$(dirname "$0")/../daemon-lib.sh"
if [ -z "${S3_ENDPOINT:-}" ]; then
    skip "backups and maintenance in an S3 service" "no S3_ENDPOINT=http://HOST:PORT was given"
    finish
fi
. "$(dirname "$0")/../s3-work.sh"

need_root "a daemon and an S3 service"
fs_make xfs xfs || exit 1
image "$WORK/xfs/a.img" 24 1
cp "$WORK/xfs/a.img" "$WORK/a.orig"
far=$(sed -n '/^\[repository/,$p' "$WORK/conf/snapferry.ini")
config_main "node-name = n1" # which owns the maintenance
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
config_add 10-far "$far"
config_class gold "$WORK/xfs" 'repository = far' 'snapshots-to-retain = 1'
starts "a daemon with the same repository"
daemon_alive || finish
A=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
same "its backup" "$(state "$A")" Completed
printf 'changed' | dd of="$WORK/xfs/a.img" bs=1 seek=4096 conv=notrunc status=none
B=$(result id <<<"$(ask backup "$WORK/xfs/a.img" --wait --json)")
check "another one stores what has changed" [ "$(doc "$B" | jq '.new // 99999999')" -lt $((4 * MIB)) ]
restored_same "restored from the bucket" "$A" "$WORK/xfs/a.img" "$WORK/a.orig" repository
check "verified" ask verify --wait --quiet
expect "snapshots expire" 0 -- ask snapshot expire --wait
expect "maintained" 0 -- ask maintenance --wait
check "with the command, too" "$SF" --config-dir "$CONF" -r far verify --quiet
finish
