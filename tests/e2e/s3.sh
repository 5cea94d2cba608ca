#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A repository in S3 (OpenStack Swift's s3api, which verifies signatures), with -r: created, written by two nodes,
# verified, restored; over TLS with a certificate authority of its own; and what is wrong is said.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
. tests/s3-lib.sh
if ! /usr/bin/python3 -c 'import swift, eventlet' 2>/dev/null; then
    skip "a repository in S3" "python3-swift is not installed"
    finish
fi
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
swift_service secure "$WORK/cert.pem" "$WORK/key.pem"
secure=$endpoint
swift_service plain
mkdir -p "$WORK/c/conf.d"
section() { # NAME ENDPOINT LINES...: in the configuration
    printf '[repository "%s"]\ntype = s3\nendpoint = %s\nbucket = bucket\n' "$1" "$2"
    echo "password-file = $WORK/password"
    grep -q '^credentials' <<<"${*:3}" || echo "credentials = $WORK/s3-keys"
    printf '%s\n' "${@:3}"
} >>"$WORK/c/conf.d/r.ini"
echo '[daemon]
node-name = n1' >"$WORK/c/snapferry.ini"
section far "$endpoint" 'prefix = nas/'
section tls "$secure" "ca-file = $WORK/cert.pem"
section distrusted "$secure"
section elsewhere "$endpoint" 'prefix = empty/'
section missing "$endpoint/" 'prefix = x/' && sed -i '/"missing"/,$s/^bucket = .*/bucket = none/' "$WORK/c/conf.d/r.ini"
printf 'access-key = nobody\nsecret-key = testing\n' | secret "$WORK/unknown"
printf 'access-key = test:tester\nsecret-key = guessed\n' | secret "$WORK/guessed"
section unknown "$endpoint" "credentials = $WORK/unknown"
section guessed "$endpoint" "credentials = $WORK/guessed"
section region "$endpoint" 'prefix = nas/' 'region = mars-1'
section host "${endpoint/127.0.0.1/localhost}" 'prefix = nas/' 'virtual-host = yes'
s3() { "$SF" --config-dir "$WORK/c" -r "$@"; }

expect "no repository yet" 11 'no repository at http://127.0.0.1:[0-9]*/bucket/nas/' -- s3 far snapshot list
expect "a repository is created" 0 'Created a repository in http' -- s3 far repo create
expect "not a second one in the same place" 12 'already exists' -- s3 far repo create
random_file "$WORK/image" 24M 1
check "a backup" s3 far backup "$WORK/image"
check "another, of the same" s3 far --node-name n2 backup "$WORK/image"
check "the same data is stored once" [ "$(s3 far repo status --json | result packBytes)" -lt 26000000 ]
same "names are flat: prefix, then the name of the blob" "$(s3_names nas/ | grep -vE '^nas/[a-z_.]+[0-9a-zA-Z_-]*$')" ""
same "no marker of a session is left" "$(s3_names nas/s)" ""
same "no file of a pack is left" "$(find "$CACHE" -name '.pack*')" ""
expect "it verifies" 0 'no damage found' -- s3 far verify
id=$(s3 far snapshot list --json | jq -r '.snapshots[0].id')
check "a restore" s3 far restore "$id" "$WORK/restored"
check "has what was backed up" cmp "$WORK/image" "$WORK/restored"
check "without a cache too" env XDG_CACHE_HOME="$WORK/cache2" "$SNAPFERRY" --config-dir "$WORK/c" -r far verify
section copy "$endpoint" 'prefix = copy/'
check "a copy in the same store" s3 far repo sync-to copy --verify --quiet
expect "verifies" 0 'no damage found' -- s3 copy verify
same "again nothing is copied" "$(s3 far repo sync-to copy --json | result copied.count)" 0
check "a copy in a directory" s3 far repo sync-to "$WORK/copy" --quiet
check "restores" sf "$WORK/copy" restore "$id" "$WORK/from-copy" --quiet
check "the same" cmp "$WORK/image" "$WORK/from-copy"
check "and back into a store" sf "$WORK/copy" --config-dir "$WORK/c" repo sync-to copy --quiet
check "a snapshot is deleted" s3 far --yes snapshot delete --force "$id"
expect "what it would free" 0 'Would free' -- s3 far maintenance --full --dry-run
expect "maintenance" 0 'Freed 0 B of' -- s3 far maintenance --full
packs=$(s3_names nas/p)
for pack in $packs; do # the longest
    s3_request GET "$endpoint/bucket/$pack" >"$WORK/pack"
    [ "$(stat -c %s "$WORK/pack")" -lt 10000000 ] || break
done
s3_request GET "$endpoint/bucket/$pack" >"$WORK/pack"
printf 'XXXX' | dd of="$WORK/pack" bs=1 seek=1000000 conv=notrunc 2>/dev/null
s3_request PUT "$endpoint/bucket/$pack" "$WORK/pack"
expect "damage is found, with the name of the pack" 15 "DAMAGE.*${pack#nas/}" -- s3 far verify
s3_request DELETE "$endpoint/bucket/$pack"
expect "a missing pack too" 15 "${pack#nas/}: pack missing" -- s3 far verify
expect "the password is changed" 0 'Changed the password' -- \
    s3 far repo change-password --new-password-file <(echo "another")
expect "the old one opens nothing" 10 -- s3 far snapshot list

check "over TLS, with a certificate authority of its own" s3 tls repo create
check "a backup over TLS" s3 tls backup "$WORK/image"
expect "it verifies over TLS" 0 'no damage found' -- s3 tls verify
expect "a certificate that nobody vouches for" 20 'TLS connection to 127.0.0.1:[0-9]* is not trusted' -- \
    s3 distrusted snapshot list
expect "another place of the same bucket" 11 'no repository at' -- s3 elsewhere snapshot list
expect "a region that the server does not have" 2 'set region = us-east-1' -- s3 region snapshot list
# Names below localhost are this machine; the server takes the bucket from them (storage_domain).
expect "the bucket in the name of the host" 10 'wrong password|password' -- s3 host snapshot list
expect "no bucket" 11 'there is no bucket of that name' -- s3 missing repo create
expect "a key that the server does not know" 20 'refuses the credentials|denies it' -- s3 unknown repo create
expect "a wrong secret" 20 'the secret-key in .*/guessed does not belong to its access-key' -- s3 guessed repo create
chmod 644 "$WORK/guessed"
expect "credentials that others can read" 2 'credentials file .* is readable by others' -- s3 guessed repo create

# A service that misbehaves: an error of the server is no damage of the repository, and a cancel ends a wait for it.
s3_service faulty /usr/bin/python3 tests/tools/s3-faults.py "$WORK/faulty.port"
fault() { curl -s --noproxy '*' "http://127.0.0.1:$port/_fault/$1" >/dev/null; }
section faulty "http://127.0.0.1:$port"
sed -i '/"faulty"/,$s/^bucket = .*/bucket = b/' "$WORK/c/conf.d/r.ini"
check "a repository of another service" s3 faulty repo create
fault slowdown/5/3
check "a backup while the server is busy" s3 faulty backup "$WORK/image"
fault reset/3/3
expect "a verification while connections break" 0 'no damage found' -- s3 faulty verify
fault denied/1000/6
s3 faulty verify >"$WORK/out" 2>&1
same "a server that denies reads: no result" "$?" 20
same "and no damage" "$(grep -c DAMAGE "$WORK/out")" 0
fault stall/1000/6
count() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1"; }
count _requests >/dev/null
"$SNAPFERRY" --config-dir "$WORK/c" -r faulty verify >"$WORK/out" 2>&1 &
pid=$!
for _ in $(seq 400); do [ "$(count _count)" -lt 7 ] || break; sleep 0.05; done
from=$SECONDS
kill -INT $pid
wait $pid
same "a cancel while the server does not answer" "$?" 130
check "which is obeyed soon" [ $((SECONDS - from)) -lt 8 ]
same "no program links libcurl" \
    "$(for p in snapferry snapferryd snapferry-mover; do readelf -dW "$BUILD/$p"; done | grep -c 'NEEDED.*libcurl')" 0
mkdir "$WORK/lib"
: >"$WORK/lib/libcurl.so.4"
expect "without libcurl" 2 'object storage needs libcurl .*libcurl\.so\.4.*|apt install libcurl4' -- \
    env LD_LIBRARY_PATH="$WORK/lib" "$SNAPFERRY" --config-dir "$WORK/c" -r faulty snapshot list
finish
