#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Ceph's radosgw, which verifies signatures, sums and conditions of its own: backups, kills, maintenance, copies; what
# its refusals mean; versions and object locks as a real service has them.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
if ! radosgw_service ceph; then
    skip "Ceph's radosgw" "it could not be fetched (tests/deps.sh)"
    finish
fi
export S3_ENDPOINT=$endpoint S3_BUCKET=bucket S3_KEYS=$WORK/s3-keys
. "$(dirname "$0")/../s3-work.sh"

# ---- an index that is lost ----
prefix=$(sed -n 's/^prefix = //p' "$WORK/conf/snapferry.ini")
for key in $(s3_names "${prefix}x"); do s3_request DELETE "$endpoint/bucket/$key" >/dev/null; done
rm -rf "$WORK/cache" "$XDG_CACHE_HOME"
expect "without its index it is damaged" 15 'repo repair' -- far verify
check "it is repaired from its packs" far repo repair --quiet
expect "nothing is missing" 0 'no damage found' -- far verify
check "a restore" far restore latest --as a@h:/v "$WORK/repaired.img" --quiet
check "is what was backed up" cmp "$WORK/a" "$WORK/repaired.img"

# ---- refusals ----
section() { # NAME LINES...
    printf '[repository "%s"]\ntype = s3\nendpoint = %s\npassword-file = %s\n' "$1" "$endpoint" "$WORK/password"
    printf '%s\n' "${@:2}"
} >>"$WORK/conf/snapferry.ini"
printf 'access-key = nobody\nsecret-key = testing\n' | secret "$WORK/unknown"
printf 'access-key = test:tester\nsecret-key = guessed\n' | secret "$WORK/guessed"
section unknown 'bucket = bucket' "credentials = $WORK/unknown"
section guessed 'bucket = bucket' "credentials = $WORK/guessed"
section missing 'bucket = none' "credentials = $WORK/keys"
section locked 'bucket = locked' "credentials = $WORK/keys" 'prefix = nas/'
r() { "$SF" --config-dir "$WORK/conf" -r "$@"; }
expect "a key that nobody has" 20 'does not know the access-key' -- r unknown repo create
expect "a wrong secret" 20 'does not belong to its access-key' -- r guessed repo create
expect "no such bucket" 11 'bucket' -- r missing repo create

# ---- versions and locks ----
check "a bucket with object locks" s3_request PUT "$endpoint/locked" /dev/null x-amz-bucket-object-lock-enabled:true
sf "$WORK/new" repo create --quiet
check "locks of ten days are set" "$TOOLS/lock_repository" "$WORK/new" "$WORK/password" COMPLIANCE 240
check "it is copied there" "$SF" --config-dir "$WORK/conf" -r "$WORK/new" --password-file "$WORK/password" \
    repo sync-to locked --quiet
check "a backup into it" r locked backup "$WORK/a" --as n@h:/a --quiet
pack=$(s3_request GET "$endpoint/locked?list-type=2&prefix=nas/p" | grep -o '<Key>[^<]*' | sed 's/<Key>//' | head -n 1)
until=$(s3_request GET "$endpoint/locked/$pack?retention=" | grep -o '<RetainUntilDate>[^<]*' | sed 's/.*>//')
days=$((($(date -d "$until" +%s) - $(date +%s)) / 86400))
same "its packs are locked for ten days" "$((days == 9 || days == 10))" 1
sleep 2.1
then=$(date -u +%FT%TZ)
sleep 2.1
for key in $(s3_request GET "$endpoint/locked?list-type=2&prefix=nas/" | grep -o '<Key>[^<]*' | sed 's/<Key>//'); do
    s3_request DELETE "$endpoint/locked/$key" >/dev/null
done
expect "somebody deletes everything" 11 'no repository' -- r locked snapshot list
expect "as of a time before it verifies" 0 'no damage found' -- r locked --at "$then" verify
check "and is restored" r locked --at "$then" restore latest --as n@h:/a "$WORK/then" --quiet
check "as it was" cmp "$WORK/then" "$WORK/a"
version=$(s3_request GET "$endpoint/locked?versions=&prefix=$pack" | grep -o '<VersionId>[^<]*' | tail -n 1)
version=${version#*>}
expect "what is locked cannot be removed" 1 'AccessDenied|403' -- \
    s3_request DELETE "$endpoint/locked/$pack?versionId=$version"
finish
