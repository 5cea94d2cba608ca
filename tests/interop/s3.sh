#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One bucket for snapferry and stock Kopia: each creates, reads, verifies and restores what the other wrote.
# KOPIA=/path/to/kopia; without it everything is skipped, and says so.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
. tests/s3-lib.sh
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "S3 with stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
export KOPIA_PASSWORD="test password" KOPIA_CHECK_FOR_UPDATES=false KOPIA_CONFIG_PATH=$WORK/k.config \
    KOPIA_LOG_DIR=$WORK/klog KOPIA_CACHE_DIRECTORY=$WORK/kcache AWS_EC2_METADATA_DISABLED=true
kopia() { "$KOPIA" --no-progress "$@"; }
# Over TLS: without it stock Kopia signs bodies in chunks, which this Swift does not know.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
swift_service secure "$WORK/cert.pem" "$WORK/key.pem"
kopia_s3() { # VERB PREFIX
    kopia repository "$1" s3 --root-ca-pem-path="$WORK/cert.pem" --endpoint="127.0.0.1:$port" --bucket=bucket \
        --prefix="$2" --region=us-east-1 --access-key=test:tester --secret-access-key=testing
}
mkdir -p "$WORK/c/conf.d"
for name in ours theirs; do
    printf '[repository "%s"]\ntype = s3\nendpoint = %s\nbucket = bucket\nprefix = %s/\n' $name "$endpoint" $name
    printf 'credentials = %s/s3-keys\npassword-file = %s/password\nca-file = %s/cert.pem\n' "$WORK" "$WORK" "$WORK"
done >"$WORK/c/conf.d/r.ini"
printf '[daemon]\nnode-name = n1\n' >"$WORK/c/snapferry.ini"
s3() { "$SNAPFERRY" --config-dir "$WORK/c" -r "$@"; }
both() { # NAME: a backup of each, which the other reads
    local name=$1 id root
    random_file "$WORK/$name.img" 30M 1
    check "$name: snapferry backs up" s3 "$name" backup "$WORK/$name.img" --quiet
    mkdir -p "$WORK/$name.dir" && random_file "$WORK/$name.dir/file" 25M 2
    check "$name: stock Kopia backs up" kopia snapshot create "$WORK/$name.dir"
    check "$name: stock Kopia verifies all of it" kopia snapshot verify --verify-files-percent=100
    expect "$name: so does snapferry" 0 'no damage found' -- s3 "$name" verify
    root=$(kopia snapshot list --all --json | jq -r '.[] | select(.source.userName == "snapferry") | .rootEntry.obj')
    kopia show "$root/volume.img" >"$WORK/$name.got"
    check "$name: stock Kopia restores the volume" cmp "$WORK/$name.got" "$WORK/$name.img"
    id=$(s3 "$name" snapshot list --json | jq -r '.snapshots[] | select(.source.userName != "snapferry") | .id')
    check "$name: snapferry restores the file" s3 "$name" restore "$id/file" "$WORK/$name.file"
    check "$name: which is the same" cmp "$WORK/$name.file" "$WORK/$name.dir/file"
    check "$name: a snapshot that stock Kopia deletes" kopia snapshot delete --delete "$id"
    same "$name: is gone for snapferry" "$(s3 "$name" snapshot list --json | jq '.snapshots | length')" 1
}
check "snapferry creates a repository" s3 ours repo create --quiet
check "stock Kopia connects to it" kopia_s3 connect ours/
both ours
check "stock Kopia disconnects" kopia repository disconnect
check "stock Kopia creates a repository" kopia_s3 create theirs/
both theirs
same "all names are flat" "$(s3_names ours/ | sed 's,^ours/,,' | grep -c /)" 0
finish
