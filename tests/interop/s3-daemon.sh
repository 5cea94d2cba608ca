#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemons of two nodes and stock Kopia back up into one bucket at the same time; each reads what the others wrote.
# KOPIA=/path/to/kopia; without it everything is skipped, and says so.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "the daemon, S3 and stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
need_root "the daemon backs up to S3"
export KOPIA_PASSWORD="test password" KOPIA_CHECK_FOR_UPDATES=false KOPIA_CONFIG_PATH=$WORK/k.config \
    KOPIA_LOG_DIR=$WORK/klog KOPIA_CACHE_DIRECTORY=$WORK/kcache AWS_EC2_METADATA_DISABLED=true
kopia() { "$KOPIA" --no-progress "$@"; }
fs_make xfs xfs || exit 1
# Over TLS: without it stock Kopia signs bodies in chunks, which this Swift does not know.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
swift_service secure "$WORK/cert.pem" "$WORK/key.pem"
node() { # NAME: its volume, configuration and daemon
    CONF=$WORK/$1/conf STATE=$WORK/$1/state RUN=$WORK/$1/run LOG=$WORK/$1.log
    mkdir -p "$WORK/xfs/$1"
    image "$WORK/xfs/$1/v.img" 24 "$2"
    config_main "node-name = $1"
    sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
    {
        printf '[repository "main"]\ntype = s3\nendpoint = %s\nbucket = bucket\nprefix = shared/\n' "$endpoint"
        printf 'credentials = %s/s3-keys\npassword-file = %s/password\nca-file = %s/cert.pem\n' "$WORK" "$WORK" "$WORK"
    } >"$CONF/conf.d/10-main.ini"
    config_class gold "$WORK/xfs/$1" 'repository = main'
    starts "$1 starts"
    check "$1 finds the repository" until_true 60 found
}
found() { askj status | jq -e '.repositories[0].up' >/dev/null; }
of() { CONF=$WORK/$1/conf STATE=$WORK/$1/state RUN=$WORK/$1/run; }
check "stock Kopia creates a repository" kopia repository create s3 --root-ca-pem-path="$WORK/cert.pem" \
    --endpoint="127.0.0.1:$port" --bucket=bucket --prefix=shared/ --region=us-east-1 --access-key=test:tester \
    --secret-access-key=testing
node n1 1
node n2 2
mkdir "$WORK/files"
random_file "$WORK/files/one" 20M 3
A=$(of n1; submit "$WORK/xfs/n1/v.img")
B=$(of n2; submit "$WORK/xfs/n2/v.img")
check "stock Kopia backs up at the same time" kopia snapshot create "$WORK/files"
of n1
same "the first node's backup" "$(wait_state "$A" Completed 120)" Completed
of n2
same "the second node's backup" "$(wait_state "$B" Completed 120)" Completed
check "stock Kopia verifies all of it" kopia snapshot verify --verify-files-percent=100
for n in n1 n2; do
    root=$(kopia snapshot list --all --json |
        jq -r --arg n $n '.[] | select(.source.userName == "snapferry" and .source.host == $n) | .rootEntry.obj')
    kopia show "$root/volume.img" >"$WORK/got"
    check "stock Kopia restores the volume of $n" cmp "$WORK/got" "$WORK/xfs/$n/v.img"
done
of n1
check "the daemon verifies all of it" ask verify --wait --quiet
id=$("$SNAPFERRY" --config-dir "$CONF" -r main snapshot list --json |
    jq -r '.snapshots[] | select(.source.userName != "snapferry") | .id')
check "the file of stock Kopia is restored" "$SNAPFERRY" --config-dir "$CONF" -r main restore "$id/one" "$WORK/one"
check "and is the same" cmp "$WORK/one" "$WORK/files/one"
# The first one expires what it wrote, and the others' stays.
check "a backup of the first node is deleted" ask delete "$A" --even-kept --yes --wait --quiet
same "the snapshots of the others stay" "$(kopia snapshot list --all --json | jq -r '.[].source.host' | grep -c n1)" 0
check "and are whole" kopia snapshot verify --verify-files-percent=100
explain_failure
finish
