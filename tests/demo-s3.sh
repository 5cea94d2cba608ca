#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make demo-s3: object storage. Two nodes, each a daemon with records, volumes and keys of its own, back up into one
# bucket of Swift's s3api (from Debian's packages, over TLS, signatures verified). What both have is stored once, each
# sees and restores the other's backups. One node is lost with all it had, and rebuilt from the bucket and a printed
# page; then a backup is deleted, and maintenance returns its space. The last line is the verdict.
# SIZE=N: MiB that the volumes have in common (default 64). The default tests run all of it small, with SERVER=own: the
# service of the project's own in place of Swift, whose requests are cheap (e2e/demo-s3.sh).
set -euo pipefail
SNAPFERRY=$(realpath -s "${SNAPFERRY:-build/snapferry}")
SIZE=${SIZE:-64} SERVER=${SERVER:-swift}
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "the demo mounts file systems: run it as root or install sudo" >&2; exit 1; }
    exec sudo SNAPFERRY="$SNAPFERRY" SIZE="$SIZE" SERVER="$SERVER" "$0" "$@"
fi
cd "$(dirname "$0")/.."
DIR=$(mktemp -d "${TMPDIR:-/var/tmp}/snapferry-demo-s3.XXXXXX")
export SNAPFERRY_NO_SYSTEMD=1 # movers are children of the two daemons, not units of this machine's systemd
export no_proxy='*' NO_PROXY='*'
step="at the start"
pids=()
cleanup() {
    local rc=$? pid
    trap - EXIT ERR
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null && { wait "$pid" 2>/dev/null || true; }
    done
    # A mover that its daemon did not wait for, of this demo only.
    for pid in $(pgrep -f -- "$DIR/" || true); do
        [ "$pid" = $$ ] || kill -KILL "$pid" 2>/dev/null || true
    done
    for node in one two; do
        ! mountpoint -q "$DIR/$node/vm" || umount "$DIR/$node/vm" || umount -l "$DIR/$node/vm" || true
    done
    [ $rc -eq 0 ] || { echo "FAILED: $step (exit code $rc)" >&2
                       tail -n 5 "$DIR"/*/daemon.log "$DIR/server.log" >&2 2>/dev/null || true; }
    rm -rf "$DIR"
    exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT TERM
trap 'echo "the demo failed at line $LINENO: $BASH_COMMAND" >&2' ERR
say() { step="step $1"; printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { echo "$*" >&2; exit 1; }
run() { printf '$ %s\n' "$*"; "$@"; }
# The command of a node: asks its daemon; or, with -r, works on the bucket itself by the node's configuration.
quiet() { local n=$1; shift; "$SNAPFERRY" "$@" --config-dir "$DIR/$n/etc" --runtime-dir "$DIR/$n/run" \
    --state-dir "$DIR/$n/state"; }
node() { local n=$1; shift; printf '%s$ snapferry %s\n' "$n" "$*"; quiet "$n" "$@"; }
repo() { local n=$1; shift; printf '%s$ snapferry -r main %s\n' "$n" "$*"; "$SNAPFERRY" --config-dir "$DIR/$n/etc" \
    --cache-dir "$DIR/$n/cache" -r main "$@"; }
value() { grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d: -f2; } # of a member in JSON
stored() { repo one repo status --json | value packBytes; }
mib() { echo $((($1 + 524288) / 1048576)); }
backup() { # NODE: one run of its job; what it prints is in NODE.out
    node "$1" backup --job nightly --wait >"$DIR/$1.out" 2>&1 || { cat "$DIR/$1.out"; return 1; }
}
backed_up() { # NODE: prints that, and sets ${id[NODE]}
    cat "$DIR/$1.out"
    id[$1]=$(sed -n 's/^\(nightly-[^ ]*\) Completed in .*/\1/p' "$DIR/$1.out")
    [ -n "${id[$1]}" ] || die "the backup of node $1 is not Completed"
}
up() { # NODE: its daemon uses the bucket
    kill -0 "${daemon[$1]}" 2>/dev/null || die "the daemon of node $1 has ended"
    quiet "$1" status --json 2>/dev/null | grep -q '"up":true'
}
until_true() { # SECONDS WHAT COMMAND...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || die "$what: not within the time allowed"
        sleep 0.2
    done
}

make_volumes() { # NODE: a file system with two images; what the second begins with, all nodes have
    local n=$1
    mkdir -p "$DIR/$n/vm"
    truncate -s $((SIZE * 6 + 400))M "$DIR/$n/xfs.img"
    mkfs.xfs -q -m reflink=1 "$DIR/$n/xfs.img"
    mount -o loop "$DIR/$n/xfs.img" "$DIR/$n/vm"
    head -c 8M /dev/urandom >"$DIR/$n/vm/data.img"
    { cat "$DIR/template.img"; head -c 4M /dev/urandom; } >"$DIR/$n/vm/system.img"
}
configure() { # NODE OTHER
    mkdir -p "$DIR/$1/etc"
    cat >"$DIR/$1/etc/snapferry.ini" <<END
[daemon]
node-name = $1
[metrics]
listen =
[mover]
user = root
memory = 96MiB
[repository "main"]
type = s3
endpoint = $endpoint
bucket = bucket
prefix = nodes/
credentials = $DIR/$1/s3-keys
ca-file = $DIR/ca.pem
password-file = $DIR/$1/password
splitter = DYNAMIC-1M-BUZHASH
other-nodes = $2
[storage-class "images"]
driver = reflink
match = $DIR/$1/vm/*.img
repository = main
snapshots-to-retain = 1
[job "nightly"]
volumes = class:images
on-calendar = *-*-* 02:00
keep-daily = 14
END
}
start() { # NODE
    local n=$1
    SNAPFERRYD=$(dirname "$SNAPFERRY")/snapferryd
    "$SNAPFERRYD" --foreground --config-dir "$DIR/$n/etc" --state-dir "$DIR/$n/state" --runtime-dir "$DIR/$n/run" \
        --cache-dir "$DIR/$n/cache" 2>>"$DIR/$n/daemon.log" &
    daemon[$n]=$!
    pids+=($!)
    until_true 120 "node $n uses the bucket" up "$n"
    echo "node $n: snapferryd runs, with its own records, and the bucket is up"
}
stop() { # NODE
    kill "${daemon[$1]}"
    wait "${daemon[$1]}" || true
}
declare -A daemon id

say "1. Object storage: a server of Debian's packages, with TLS and keys"
export FAKETIME_TIMESTAMP_FILE=$DIR/clock FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1
FAKE=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1) || true
[ -n "$FAKE" ] || die "libfaketime is not installed: apt install faketime"
[ "$SERVER" != swift ] || /usr/bin/python3 -c 'import swift, eventlet' 2>/dev/null ||
    die "Swift is not installed: apt install python3-swift"
clock() { echo "+$1h" >"$DIR/clock.new"; mv "$DIR/clock.new" "$DIR/clock"; sleep 2; } # which is read once a second
clock 0
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$DIR/ca.key" -out "$DIR/ca.pem" 2>/dev/null
case $SERVER in
swift) service=(swift-s3.py "$DIR/swift" "$DIR/port") ;;
own) service=(s3-faults.py "$DIR/port" "$DIR/objects"); mkdir "$DIR/objects" ;;
*) die "SERVER is swift or own" ;;
esac
LD_PRELOAD=$FAKE /usr/bin/python3 "tests/tools/${service[0]}" "${service[@]:1}" "$DIR/ca.pem" "$DIR/ca.key" \
    >"$DIR/server.log" 2>&1 &
server=$!
pids+=($!)
up_or_dead() { [ -s "$DIR/port" ] || ! kill -0 "$server" 2>/dev/null; }
until_true 120 "the S3 server" up_or_dead
[ -s "$DIR/port" ] || die "the S3 server did not start"
endpoint=https://127.0.0.1:$(cat "$DIR/port")
if [ "$SERVER" = swift ]; then
    /usr/bin/python3 tests/tools/s3-request.py PUT "$endpoint/bucket"
    echo "OpenStack Swift with its S3 interface at $endpoint, bucket \"bucket\""
fi

say "2. Two nodes: each with file system, images, configuration, keys, daemon and records of its own"
head -c "${SIZE}M" /dev/urandom >"$DIR/template.img"
for n in one two; do
    mkdir "$DIR/$n"
    make_volumes "$n"
    (umask 077; printf 'access-key = test:tester\nsecret-key = testing\n' >"$DIR/$n/s3-keys")
done
configure one two
configure two one
cat "$DIR/one/etc/snapferry.ini"
repo one repo create --make-password
(umask 077; cp "$DIR/one/password" "$DIR/two/password") # as an administrator would, by hand
start one
start two

say "3. Both back up into the same bucket; what they have in common is stored once"
backup one
backed_up one
first=$(stored | tail -n 1)
backup two
backed_up two
second=$(stored | tail -n 1)
echo "node one: $((SIZE + 12)) MiB of volumes, $(mib "$first") MiB stored; node two: as many, $(mib \
    $((second - first))) MiB more"
[ $((second - first)) -lt $(((SIZE / 2 + 12) * 1048576)) ] || die "the second node stored the template again"
echo "And now at the same time, after changes, without a lock or a server between them:"
for n in one two; do
    printf 'change of %s' "$n" | dd of="$DIR/$n/vm/data.img" bs=1 seek=4096 conv=notrunc status=none
done
backup one &
both=$!
backup two
wait "$both" || die "the backup of node one at that time failed"
backed_up one
backed_up two

say "4. Each node sees the other's backups, and restores them"
for n in one two; do
    other=$([ $n = one ] && echo two || echo one)
    node $n scan main --node $other --wait
    node $n backups --all
    theirs=${id[$other]}
    quiet $n backups --all --json | grep -q "$theirs" || die "node $n does not see the backup $theirs of node $other"
    node $n restore "$theirs/$DIR/$other/vm/data.img" "$DIR/$n/vm/of-$other.restored" --from repository --wait
    run cmp "$DIR/$other/vm/data.img" "$DIR/$n/vm/of-$other.restored"
done

say "5. A recovery kit of the repository, to be printed and kept elsewhere"
mkdir "$DIR/safe"
repo one repo export-key "$DIR/safe/kit"
(umask 077; cp "$DIR/two/s3-keys" "$DIR/safe/s3-keys")
grep -E '^(Repository|Unique id)' "$DIR/safe/kit"
echo "In the safe: that page, and a pair of keys for the bucket. Nothing else."

say "6. Node one is lost, with volumes, native snapshots, configuration, password, records and cache"
mkdir "$DIR/compare"
cp "$DIR/one/vm/data.img" "$DIR/one/vm/system.img" "$DIR/compare/" # to compare with; snapferry knows nothing of them
lost=${id[one]}
{ kill -KILL "${daemon[one]}" && wait "${daemon[one]}"; } 2>/dev/null || true
umount "$DIR/one/vm"
rm -rf "$DIR/one"
echo "\$ ls $DIR/one: $(ls "$DIR/one" 2>&1 | sed 's/.*: //')"

say "7. It is rebuilt: keys and password from the safe, a configuration with its name, an empty daemon"
mkdir -p "$DIR/one/vm"
truncate -s $((SIZE * 6 + 400))M "$DIR/one/xfs.img"
mkfs.xfs -q -m reflink=1 "$DIR/one/xfs.img"
mount -o loop "$DIR/one/xfs.img" "$DIR/one/vm"
(umask 077
 cp "$DIR/safe/s3-keys" "$DIR/one/s3-keys"
 sed -n 's/^Password  *//p' "$DIR/safe/kit" >"$DIR/one/password")
configure one two
repo one repo open-key "$DIR/safe/kit"
start one
node one scan main --wait
node one backups
quiet one backups --json | grep -q "$lost" || die "the backup $lost of the lost node was not found"
for image in data system; do
    node one restore "$lost/$DIR/one/vm/$image.img" "$DIR/one/vm/$image.img" --from repository --wait
    run cmp "$DIR/compare/$image.img" "$DIR/one/vm/$image.img"
done
backup one
backed_up one
echo "the rebuilt node backs up again"
node one status

say "8. A backup is deleted, and maintenance returns its space"
for n in one two; do stop $n; done
head -c 40M /dev/urandom >"$DIR/old.img"
repo one backup "$DIR/old.img" --as demo@one:/old --quiet
repo one snapshot delete latest --as demo@one:/old --force
repo one repo usage
before=$(stored | tail -n 1)
echo "Maintenance is done by the daemon of the owner once a day while backups go on, and frees it in the third run."
echo "Nobody waits for three days here: the clock of the server and of these commands is moved by 25 hours before each"
echo "run (libfaketime). The daemons, whose movers have the machine's clock, are stopped for that."
for hours in 25 50 75; do
    clock $hours
    echo "# $hours hours later"
    export LD_PRELOAD=$FAKE
    repo one maintenance --full
    unset LD_PRELOAD
done
export LD_PRELOAD=$FAKE
after=$(stored | tail -n 1)
echo "packs in the bucket: $(mib "$before") MiB before, $(mib "$after") MiB now"
[ "$after" -lt $((before - 39 * 1048576)) ] || die "the space did not come back"
repo two verify
repo two restore latest "$DIR/after.img" --as "snapferry@one:$DIR/one/vm/system.img"
unset LD_PRELOAD
run cmp "$DIR/compare/system.img" "$DIR/after.img"

say "Done: two nodes, one bucket, data in common stored once; a lost node came back from the bucket and a page of" \
    "paper, every byte compared; and what was deleted is free."
