#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stock Kopia as the judge, in both directions. KOPIA=/path/to/kopia; without it everything is skipped, and says so.
. "$(dirname "$0")/../lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "interop with stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
export KOPIA_CHECK_FOR_UPDATES=false KOPIA_DANGEROUS_COMMANDS=enabled
PW="test password"
k() { local n=$1; shift; "$KOPIA" --config-file "$WORK/k-$n.config" --password "$PW" --no-progress --log-level=error \
        --log-dir "$WORK/log" "$@" --no-auto-maintenance 2>&1 || return; }
kconnect() { k "$1" repository connect filesystem --path "$2" --cache-directory "$WORK/kc-$1" --no-check-for-updates \
    --override-username "${3:-snapferry-maintenance}" --override-hostname "${4:-$(hostname -s | tr A-Z a-z)}"; }

{ random_file "$WORK/a" 30000000 3; tar -cf - -C /usr/include . 2>/dev/null |
    head -c 20000000; head -c 20000000 /dev/zero; } >"$WORK/tail"
cat "$WORK/a" "$WORK/tail" >"$WORK/image"
cp "$WORK/image" "$WORK/image2"
random_file "$WORK/b" 100000 4
dd if="$WORK/b" of="$WORK/image2" bs=1000 seek=20000 conv=notrunc status=none

judge() { # NAME REPO: everything that stock can check about a repository of ours
    local name=$1 repo=$2 id
    check "$name: connect" kconnect "$name" "$repo"
    check "$name: snapshot list" test "$(k "$name" snapshot list --all --json 2>/dev/null | jq length)" -ge 2
    check "$name: snapshot verify" k "$name" snapshot verify --verify-files-percent=100
    check "$name: content verify" k "$name" content verify --full
    check "$name: index inspect" k "$name" index inspect --all
    check "$name: index recover" k "$name" index recover
    id=$(sf "$repo" snapshot list --json | result 'snapshots[-1].id')
    check "$name: restore" k "$name" snapshot restore "$id" "$WORK/kr-$name"
    check "$name: the same bytes" cmp "$WORK/kr-$name/volume.img" "$WORK/image2"
    rm -rf "$WORK/kr-$name"
}
variant() { # NAME CREATE-OPTIONS...
    local name=$1 repo=$WORK/repo-$1
    shift
    check "$name: create" sf "$repo" repo create "$@"
    check "$name: backup" sf "$repo" backup "$WORK/image" --as snapferry@n:/v --quiet
    check "$name: second backup" sf "$repo" backup "$WORK/image2" --as snapferry@n:/v --quiet --compression zstd-fastest
    judge "$name" "$repo"
}
variant default
variant v1 --format-version 1
variant v2 --format-version 2
variant ecc --ecc-percent 5
variant ecc1 --ecc-percent 1 --splitter FIXED-128K
variant wide --block-hash BLAKE2B-256 --encryption CHACHA20-POLY1305-HMAC-SHA256
variant rabin --splitter DYNAMIC-1M-RABINKARP --block-hash HMAC-SHA224
variant b3 --splitter FIXED-1M --block-hash BLAKE3-256 --key-derivation pbkdf2-sha256-600000
variant bigpack --pack-size 120MiB --splitter DYNAMIC-8M-BUZHASH --block-hash HMAC-SHA3-256
variant small --splitter DYNAMIC-128K-BUZHASH --block-hash BLAKE2S-256

# One repository shared by both.
R=$WORK/repo-default
mkdir "$WORK/src"; cp "$WORK/image" "$WORK/src/disk.img"; cp -r /usr/share/doc/base-files "$WORK/src/docs"
check "stock snapshots its own files beside ours" k default snapshot create "$WORK/src"
kid=$(sf "$R" snapshot list --json | jq -r '.snapshots[] | select(.source.path | endswith("/src")) | .id')
ours=$(sf "$R" backup "$WORK/image" --as snapferry@n:/same --json)
same "the same bytes are the same object" "$(sf "$R" ls "$kid/disk.img" --json | result 'entries[0].object')" \
    "$(result object <<<"$ours")"
same "and are not stored again" "$(result newBytes <<<"$ours")" 0
check "we read what stock wrote" \
    sh -c "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' cat '$kid/disk.img' | cmp - '$WORK/image'"
check "a file over 2 GiB" truncate -s 4400M "$WORK/src/large"
for i in 1 1500 2047 2048 3000 4095 4096 4390; do
    dd if="$WORK/image" of="$WORK/src/large" bs=1M seek=$i count=8 conv=notrunc status=none
done
check "stock takes it" k default snapshot create "$WORK/src"
kid=$(sf "$R" snapshot list --json | jq -r '[.snapshots[] | select(.source.path | endswith("/src"))][-1].id')
ours=$(sf "$R" backup "$WORK/src/large" --as snapferry@n:/large --json)
same "over 2 GiB: the same object" "$(sf "$R" ls "$kid/large" --json | result 'entries[0].object')" \
    "$(result object <<<"$ours")"
rm -rf "$WORK/src/large"
check "verify takes both clients' snapshots" sf "$R" verify
check "maintenance" k default maintenance run --full --safety=none
check "maintenance again" k default maintenance run --full --safety=none
check "ours are whole after it" sf "$R" verify
check "stock agrees" k default snapshot verify --verify-files-percent=100
check "and we go on" sf "$R" backup "$WORK/image2" --as snapferry@n:/v --quiet
check "stock reads on" k default snapshot verify --verify-files-percent=100
if [ -e /dev/fuse ] && mkdir "$WORK/mnt" && id=$(sf "$R" snapshot list --json | result 'snapshots[-1].id'); then
    "$KOPIA" --config-file "$WORK/k-default.config" --password "$PW" --log-dir "$WORK/log" mount "$id" \
        "$WORK/mnt" >"$WORK/mount.log" 2>&1 &
    mounter=$!
    at_exit "kill $mounter; umount -l $WORK/mnt"
    for _ in $(seq 50); do [ -e "$WORK/mnt/volume.img" ] && break; sleep 0.2; done
    if [ -e "$WORK/mnt/volume.img" ]; then check "mount" cmp "$WORK/mnt/volume.img" "$WORK/image2"
    else skip "mount" "stock could not mount here: $(tail -n1 "$WORK/mount.log")"; fi
    kill $mounter; wait $mounter 2>/dev/null
else
    skip "mount" "no /dev/fuse"
fi

# Repositories that stock makes, in each variation, read and extended by us.
kvariant() { # NAME CREATE-OPTIONS...
    local name=$1 repo=$WORK/kr-$1
    shift
    check "stock $name: create" k "k$name" repository create filesystem --path "$repo" --cache-directory \
        "$WORK/kc-k$name" "$@"
    check "stock $name: snapshot" k "k$name" snapshot create "$WORK/src"
    id=$(sf "$repo" snapshot list --json | result 'snapshots[0].id')
    check "stock $name: we read it" \
        sh -c "'$SNAPFERRY' -r '$repo' --password-file '$WORK/password' cat '$id/disk.img' | cmp - '$WORK/image'"
    check "stock $name: we extend it" sf "$repo" backup "$WORK/image2" --as snapferry@n:/v --quiet
    check "stock $name: stock verifies" k "k$name" snapshot verify --verify-files-percent=100
    check "stock $name: content verify" k "k$name" content verify --full
    check "stock $name: we verify" sf "$repo" verify
}
kvariant default
kvariant v1 --format-version=1
kvariant v2 --format-version=2
kvariant ecc --ecc=REED-SOLOMON-CRC32 --ecc-overhead-percent=10
kvariant chacha --encryption=CHACHA20-POLY1305-HMAC-SHA256 --block-hash=BLAKE3-256
kvariant rabin --object-splitter=DYNAMIC-2M-RABINKARP --block-hash=HMAC-SHA256
kvariant fixed --object-splitter=FIXED-1M --block-hash=BLAKE2S-128

# Writers of both kinds at the same time.
R=$WORK/repo-v2
jobs_=()
for i in 1 2 3; do
    random_file "$WORK/w$i" 30000000 $((50 + i))
    sf "$R" backup "$WORK/w$i" --as "snapferry@n:/w$i" --quiet & jobs_+=($!)
done
mkdir "$WORK/ksrc"; random_file "$WORK/ksrc/x" 40000000 60
k v2 snapshot create "$WORK/ksrc" & jobs_+=($!)
bad=0; for j in "${jobs_[@]}"; do wait "$j" || bad=1; done
same "four writers at once" $bad 0
check "everything of all of them is there" sf "$R" verify
check "stock agrees about it" k v2 snapshot verify --verify-files-percent=100
finish
