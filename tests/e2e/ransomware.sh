#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The scenario of docs/ransomware.md: an attacker with the keys and the password of a node overwrites and deletes all
# objects of a bucket with versions and locks. The repository is read as it was at a time before (--at), its volumes are
# restored, and it is copied to a new place, where backups go on. What cannot work is refused (CF-53, E-12).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
C=$WORK/conf
mkdir -p "$C/conf.d"
printf '[daemon]\nnode-name = n1\n' >"$C/snapferry.ini"
printf 'access-key = a\nsecret-key = b\n' | secret "$C/keys"
curl() { command curl -sS --noproxy '*' -H "x-amz-date: $(date -u +%Y%m%dT%H%M%SZ)" "$@"; }
put() { # FILE KEY HEADERS...
    curl -f -o "$WORK/answer" -X PUT --data-binary @"$1" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
        -H "Content-MD5: $(openssl md5 -binary "$1" | base64)" "${@:3}" "$http/$2"
}
section() { # NAME LINES...: in the configuration of -r
    printf '[repository "%s"]\ntype = s3\nendpoint = %s\nbucket = b\ncredentials = %s\npassword-file = %s\n' "$1" \
        "$endpoint" "$C/keys" "$WORK/password"
    printf '%s\n' "${@:2}"
}
# The bucket of this test is in memory, where it has versions.
s3_service versions /usr/bin/python3 tests/tools/s3-faults.py "$WORK/versions.port"
endpoint=http://127.0.0.1:$port http=$endpoint/b
server() { curl "$endpoint/$1"; }
section main 'prefix = nas/' >"$C/conf.d/main.ini"
section saved 'prefix = saved/' >"$C/conf.d/saved.ini"
section asked 'prefix = asked/' >"$C/conf.d/asked.ini"
r() { "$SF" --config-dir "$C" -r "$@"; }
keys() { curl "$http?list-type=2&prefix=nas/" | grep -o '<Key>[^<]*' | sed 's/<Key>//'; }
snapshots() { r "$@" snapshot list --all --json | jq -c '[.snapshots[].source.path] | sort'; }
later() { sleep 2.1; } # times in lists are whole seconds

# ---- before ----
# Retention is set as stock Kopia does; a new repository gets it before its first backup.
sf "$WORK/new" repo create --quiet
check "locks of ten days are set" "$TOOLS/lock_repository" "$WORK/new" "$WORK/password" COMPLIANCE 240
random_file "$WORK/a" 3000000 1
random_file "$WORK/b" 2000000 2
expect "a bucket without versions has no past" 2 'has no versions' -- r main --at 1s snapshot list
server _versions/Enabled >"$WORK/out"
# A copy is put with locks from the start, where the bucket has them, and it can be asked for.
copy_to() { "$SF" --config-dir "$C" -r "$WORK/new" --password-file "$WORK/password" repo sync-to "$1"; }
removal() { # PREFIX PATTERN: how the attempt to remove versions of such keys is answered
    local key id
    curl "$http?versions&prefix=$1" | grep -o '<Version>.*' | sed 's/<Version>/\n/g' |
        sed -n 's,^<Key>\([^<]*\)</Key><VersionId>\([^<]*\)<.*,\1 \2,p' | grep -E "^$1$2" |
        while read -r key id; do
            curl -o "$WORK/answer" -w '%{http_code}\n' -X DELETE "$http/$key?versionId=$id"
        done | sort -u | xargs
}
server _refuse/object-lock >"$WORK/out"
expect "who may not ask is told that the copy has no locks" 0 'not locked: .*s3:GetBucketObjectLockConfiguration' -- \
    copy_to asked
server _refuse/ >"$WORK/out"
same "it has none" "$(removal asked/ '[pqx]')" 204
check "a copy that is the repository from now on" copy_to main
same "all that it consists of is locked" "$(removal nas/ '([pqx]|kopia\.(repository|blobcfg))')" 403
rm -r "$WORK/new"
later
BEFORE=$(date -u +%FT%TZ)
later
check "a backup" r main backup "$WORK/a" --as n@h:/a --quiet
check "another" r main backup "$WORK/b" --as n@h:/b --quiet
later
THEN=$(date -u +%FT%TZ)
later
random_file "$WORK/c" 1000000 3
check "one that is newer than what is restored" r main backup "$WORK/c" --as n@h:/c --quiet
later

# ---- the attack ----
printf 'pay 3 BTC' >"$WORK/note"
keys >"$WORK/keys"
versions() { curl "$http?versions&prefix=nas/" | grep -o '<Version>.*' | sed 's/<Version>/\n/g' |
    sed -n 's,^<Key>\([^<]*\)</Key><VersionId>\([^<]*\)<.*,\1 \2,p'; }
versions >"$WORK/versions.list"
check "there is something to attack" [ "$(grep -c . "$WORK/versions.list")" -gt 8 ]
while read -r key id; do # removal for good, with the right to bypass governance
    curl -o "$WORK/answer" -w '%{http_code} ' -X DELETE -H 'x-amz-bypass-governance-retention: true' \
        "$http/$key?versionId=$id"
    echo "$key"
done <"$WORK/versions.list" >"$WORK/removals"
refused() { grep -E "^[0-9]+ nas/$1" "$WORK/removals" | cut -d' ' -f1 | sort -u | xargs; }
same "no version of a pack that is locked can be removed" "$(refused '[pq]')" 403
same "nor of an index" "$(refused 'x')" 403
same "nor of the format" "$(refused 'kopia.(repository|blobcfg)')" 403
while read -r key; do
    put "$WORK/note" "$key"
    curl -o "$WORK/answer" -X DELETE "$http/$key"
done <"$WORK/keys"
put "$WORK/note" nas/kopia.repository
same "nothing of the repository is there but the note" "$(keys)" nas/kopia.repository
expect "it cannot be opened" 15 'kopia.repository is damaged'  -- r main snapshot list

# ---- after ----
expect "it can as it was" 0 . -- r main --at "$THEN" snapshot list
same "with what was there then, and nothing newer" "$(snapshots main --at "$THEN")" '["/a","/b"]'
same "in local time, too" "$(TZ=Asia/Tokyo r main --at "$(TZ=Asia/Tokyo date -d "$THEN" '+%F %T')" snapshot list \
    --all --json | jq '.snapshots | length')" 2
same "or so long ago" "$(snapshots main --at "$(($(date +%s) - $(date -d "$THEN" +%s)))s")" '["/a","/b"]'
expect "all of it is whole" 0 'no damage found' -- r main --at "$THEN" verify
check "restored" r main --at "$THEN" restore latest "$WORK/a.out" --as n@h:/a --quiet
check "as it was" cmp "$WORK/a" "$WORK/a.out"
check "as a stream" eval 'r main --at "$THEN" cat latest/volume.img --as n@h:/b | cmp - "$WORK/b"'
expect "which repository and time it is" 0 "^Repository +$endpoint/b/nas/ as of $THEN" -- \
    r main --at "$THEN" repo status
check "usage" r main --at "$THEN" repo usage
expect "before its first backup it was empty" 0 . -- r main --at "$BEFORE" repo status
same "without snapshots" "$(snapshots main --at "$BEFORE")" '[]'
expect "before it was made there is none" 11 'no repository|no blob kopia.repository' -- \
    r main --at 2020-01-01 snapshot list
expect "a time to come" 2 'a time that has passed' -- r main --at 2199-01-01 snapshot list
expect "no time" 2 'requires a time' -- r main --at yesterday snapshot list
expect "nor one that the calendar does not have" 2 'requires a time' -- r main --at '2026-02-30 10:00' snapshot list
expect "verbs that write do not take it" 2 'at' -- r main --at "$THEN" backup "$WORK/c"
expect "a directory has no past" 2 'in a directory, which has no versions' -- \
    r "$WORK/dir" --password-file "$WORK/password" --at "$THEN" snapshot list
server _fault/denied/1 >"$WORK/out"
expect "the rights that it takes are named" 20 's3:GetBucketVersioning' -- r main --at "$THEN" snapshot list

# A place that can be used again.
check "it is copied as it was" r main --at "$THEN" repo sync-to saved --verify --quiet
same "to a repository" "$(snapshots saved)" '["/a","/b"]'
expect "that is whole" 0 'no damage found' -- r saved verify
expect "which is a copy at first" 13 'is a copy of another one' -- r saved maintenance --full
check "and a repository of its own when its maintenance is taken" r saved maintenance --take-ownership --quiet
check "which is done" r saved maintenance --full --quiet
check "where backups go on" r saved backup "$WORK/a" --as n@h:/a --quiet
same "with what there is already" "$(r saved snapshot list --all --json | jq '.snapshots | length')" 3
check "and to a directory" r main --at "$THEN" repo sync-to "$WORK/dir" --quiet
check "as well" r "$WORK/dir" --password-file "$WORK/password" verify --quiet

# Pages of lists, versions by the dozen, versioning that the attacker suspends.
server _set/page/3 >"$WORK/out"
for _ in 1 2 3 4 5 6 7; do put "$WORK/note" nas/kopia.repository; done
same "with pages of three versions" "$(snapshots main --at "$THEN")" '["/a","/b"]'
server _set/page/1000 >"$WORK/out"
server _versions/Suspended >"$WORK/out"
expect "suspended versioning hides nothing" 0 'versioning is suspended' -- r main --at "$THEN" snapshot list
server _versions/Enabled >"$WORK/out"

# The lifecycle rule removes what is noncurrent, and not what is locked.
check "the lifecycle rule removes something" [ "$(server _expire)" -gt 0 ]
expect "not what is locked" 0 'no damage found' -- r main --at "$THEN" verify
server _set/skew/864300 >"$WORK/out" # ten days and five minutes: the clock of the server
check "after the locks it removes the rest" [ "$(server _expire)" -gt 3 ]
server _set/skew/0 >"$WORK/out"
expect "then nothing comes back" 11 . -- r main --at "$THEN" snapshot list
check "but for the copy" r saved verify --quiet

# ---- versions of a real server, which verifies signatures ----
if ! /usr/bin/python3 -c 'import swift, eventlet' 2>/dev/null; then
    skip "the past of a bucket in Swift" "python3-swift is not installed"
    finish
fi
swift_service swift
printf '<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status>%s' \
    '</VersioningConfiguration>' >"$WORK/enabled"
printf '[repository "swift"]\ntype = s3\nendpoint = %s\nbucket = bucket\nprefix = nas/\ncredentials = %s\n' \
    "$endpoint" "$WORK/s3-keys" >"$C/conf.d/swift.ini"
echo "password-file = $WORK/password" >>"$C/conf.d/swift.ini"
expect "Swift: no versions" 2 'has no versions' -- r swift --at 1s snapshot list
check "versioning is enabled" s3_request PUT "$endpoint/bucket?versioning" "$WORK/enabled"
check "a repository" r swift repo create --quiet
check "a backup" r swift backup "$WORK/a" --as n@h:/a --quiet
later
THEN=$(date -u +%FT%TZ)
later
check "a newer one" r swift backup "$WORK/c" --as n@h:/c --quiet
s3_names nas/ >"$WORK/keys"
while read -r key; do
    [ "$key" = nas/kopia.repository ] || s3_request DELETE "$endpoint/bucket/$key"
    s3_request PUT "$endpoint/bucket/$key" "$WORK/note"
done <"$WORK/keys"
expect "overwritten and deleted" 15 'kopia.repository is damaged' -- r swift snapshot list
same "the snapshots of that time" "$(snapshots swift --at "$THEN")" '["/a"]'
expect "are whole" 0 'no damage found' -- r swift --at "$THEN" verify
check "and restored" r swift --at "$THEN" restore latest "$WORK/swift.out" --as n@h:/a --quiet
check "byte for byte" cmp "$WORK/a" "$WORK/swift.out"
finish
