#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Storage classes by the prefix of blobs, as the object .storageconfig of the bucket says, and session tokens that
# expire while a backup runs.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
. tests/s3-lib.sh
s3_service faulty /usr/bin/python3 tests/tools/s3-faults.py "$WORK/faulty.port"
ask() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1"; }
hold() { ask "_hold/$1" >/dev/null; }
holds() { [ "$(ask _held)" -ge "$1" ]; }
within() { # COMMAND...: it succeeds within some seconds
    local i
    for i in $(seq $((150 * ${PATIENCE:-1}))); do "$@" && return 0; sleep 0.1; done
    return 1
}
mkdir "$WORK/conf"
keys() { printf 'access-key = a\nsecret-key = a\nsession-token = %s\n' "$1" | secret "$WORK/keys"; }
keys first
section() { # NAME ENDPOINT BUCKET CREDENTIALS
    printf '[repository "%s"]\ntype = s3\nendpoint = %s\nbucket = %s\nprefix = %s/\n' "$1" "$2" "$3" "$1"
    printf 'credentials = %s\npassword-file = %s\n' "$4" "$WORK/password"
} >>"$WORK/conf/snapferry.ini"
section r "http://127.0.0.1:$port" b "$WORK/keys"
section copy "http://127.0.0.1:$port" b "$WORK/keys"
s3() { "$SF" --config-dir "$WORK/conf" -r "$@"; }
classes() { # PREFIX ENTRY...: the object of a place; an entry is PREFIX=CLASS
    local entry text=
    for entry in "${@:2}"; do text+="${text:+,}{\"prefix\":\"${entry%%=*}\",\"storageClass\":\"${entry#*=}\"}"; done
    curl -sf --noproxy '*' -X PUT --data-binary "{\"blobOptions\":[$text]}" \
        "http://127.0.0.1:$port/_put/$1/.storageconfig" >/dev/null
}
put_as() { # PLACE: what was put there since the last question, each kind of blob with its class
    local name
    ask _log >"$WORK/log"
    grep -oE "^PUT /b/$1/[^ ]*" "$WORK/log" | cut -d/ -f4 | sort -u | while read -r name; do
        echo "$(grep -oE '^(kopia\.[a-z]*|_[a-z]*|[a-z])' <<<"$name") $(ask "_class/$1/$name")"
    done | sort -u | paste -sd,
}
random_file "$WORK/image" 6M 1

# ---- classes ----

classes r p=STANDARD_IA q=GLACIER_IR kopia.r=ONEZONE_IA
ask _log >/dev/null
check "a repository" s3 r repo create --quiet
check "a backup" s3 r backup "$WORK/image" --as t@h:/v --quiet
same "packs, metadata, and the rest as the bucket has it" "$(put_as r)" "kopia.blobcfg none,\
kopia.repository ONEZONE_IA,p STANDARD_IA,q GLACIER_IR,s none,x none"
same "the object was read once by each of the two commands" "$(grep -c 'GET /b/r/.storageconfig' "$WORK/log")" 2
check "a list does not have it as a blob" s3 r verify --quiet
classes copy p=ONEZONE_IA
ask _log >/dev/null
check "a copy" s3 r repo sync-to copy --quiet
same "has its own classes" "$(put_as copy | grep -oE '\b[pqx] [A-Z_]+|\b[qx] none' | paste -sd,)" \
    "p ONEZONE_IA,q none,x none"
check "and verifies" s3 copy verify --quiet

# ---- what is refused ----

classes r q=GLACIER
expect "metadata in an archive are refused at opening" 2 'packs of metadata\) into the archive GLACIER' -- \
    s3 r snapshot list
expect "with what to do" 2 'use GLACIER_IR or STANDARD_IA' -- s3 r snapshot list
classes r 'p=A B'
expect "what is malformed too" 2 'storageconfig of http.*/b/r/ are malformed.*other characters' -- s3 r snapshot list
classes copy =DEEP_ARCHIVE
classes r p=GLACIER
expect "a copy whose place is so" 2 'storageconfig of http.*/b/copy/ puts what begins with' -- s3 r repo sync-to copy
random_file "$WORK/other" 2M 2
s3 r backup "$WORK/other" --as t@h:/other --quiet >"$WORK/out" 2>&1
same "packs of data in an archive: a backup is made" $? 0
same "with a warning, once: $(grep -o 'puts packs.*' "$WORK/out" | head -c 60)" \
    "$(grep -c 'into the archive GLACIER: nothing can be restored' "$WORK/out")" 1
expect "what is readable is read" 0 '/other' -- s3 r snapshot list
id=$(s3 r snapshot list --json | tail -n 1 | jq -r '[.snapshots[] | select(.source.path == "/other") | .id][0]')
expect "what is in the archive says so" 20 'is in an archive of' -- s3 r restore "$id" "$WORK/out.img"
classes r p=STANDARD_IA

# ---- session tokens ----

ask _set/token/first >/dev/null
check "with the session token that the service wants" s3 r snapshot list --quiet
hold PUT%20/b/r/xn
random_file "$WORK/third" 2M 3
s3 r backup "$WORK/third" --as t@h:/third -v >"$WORK/out" 2>&1 &
pid=$!
check "a backup is in the middle" within holds 1
ask _set/token/second >/dev/null
keys second
hold ""
wait $pid
same "its token expires, and the file has another: it goes on" $? 0
check "and says so" grep -q 'have changed and were read again' "$WORK/out"
same "no token is in what it says" "$(grep -c 'first\|second' "$WORK/out")" 0
ask _set/token/third >/dev/null
expect "one that is not renewed" 20 'session-token in .*/keys has expired' -- s3 r snapshot list
ask _set/token/ >/dev/null

# ---- a service that verifies signatures ----

if ! /usr/bin/python3 -c 'import swift, eventlet' 2>/dev/null; then
    skip "classes and tokens are signed" "python3-swift is not installed"
    finish
fi
swift_service plain
{ cat "$WORK/s3-keys"; echo 'session-token = a/token+of==many'; } | secret "$WORK/swift-keys"
section swift "$endpoint" bucket "$WORK/swift-keys"
printf '{"blobOptions":[{"prefix":"","storageClass":"STANDARD"}]}' >"$WORK/config"
s3_request PUT "$endpoint/bucket/swift/.storageconfig" "$WORK/config"
check "classes and tokens are signed: a repository" s3 swift repo create --quiet
check "classes and tokens are signed: a backup" s3 swift backup "$WORK/image" --quiet
sed -i 's/STANDARD/STANDARD_IA/' "$WORK/config"
s3_request PUT "$endpoint/bucket/swift/.storageconfig" "$WORK/config"
expect "a class that the service lacks" 2 'does not have the storage class STANDARD_IA' -- \
    s3 swift backup "$WORK/other" --quiet
finish
