#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-s3: to and from object storage, beside stock Kopia and rclone, into one server (s3_sink) in the same run.
#   SIZE=1024          MiB of random data
#   DELAYS="0 50"      ms by which each answer of the server is late
#   RUNS=3             of each, in turns; medians
#   PEERS="kopia rclone" KOPIA=/path/to/kopia
#   DIR=/dev/shm       where source, objects and restored files lie
#   JSON=FILE          each run as a JSON line
# rclone copies the packs of our repository, neither compared nor encrypted: what a plain copy of as many bytes takes.
# Who restores or verifies has no cache. What was restored is compared; a difference ends the run.
set -euo pipefail
SIZE=${SIZE:-1024} RUNS=${RUNS:-3} DELAYS=${DELAYS:-0 50}
. "$(dirname "$0")/lib.sh"
SINK=$BUILD/perf/s3_sink
[[ $SIZE$RUNS =~ ^[0-9]+$ && $SIZE -ge 8 && $RUNS -ge 1 ]] || die "SIZE is MiB, 8 or more; RUNS 1 or more"
[[ ${DELAYS// /} =~ ^[0-9]+$ ]] || die "DELAYS are milliseconds"
export HOME=$W XDG_CACHE_HOME=$W/cache KOPIA_CHECK_FOR_UPDATES=false
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY AWS_CA_BUNDLE
PEERS=${PEERS-kopia rclone}
HAVE="snapferry"
for p in $PEERS; do
    case $p in
    kopia) [ -n "${KOPIA:-}" ] || { note "without kopia: give KOPIA=/path/to/kopia"; continue; }
        KOPIA=$(realpath "$KOPIA") ;;
    rclone) command -v rclone >/dev/null || { note "without rclone: it is not installed"; continue; } ;;
    *) die "PEERS are kopia and rclone, not $p" ;;
    esac
    HAVE+=" $p"
done
room $((4 * SIZE))
SERVER=
trap 'kill $SERVER 2>/dev/null || true; rm -rf "$W"' EXIT

# ---- the server, and everyone's access to it ----

serve() { # DELAY-MS
    rm -rf "$W/s3" "$W/port"
    mkdir -p "$W/s3"
    "$SINK" "$W/s3" "$W/port" "$1" &
    SERVER=$!
    for _ in $(seq 200); do [ -s "$W/port" ] && break; sleep 0.05; done
    PORT=$(cat "$W/port") || die "the server does not start"
    mkdir -p "$W/conf/conf.d"
    (umask 077; printf 'access-key = a\nsecret-key = b\n' >"$W/keys")
    printf '[daemon]\nnode-name = bench\n' >"$W/conf/snapferry.ini"
    printf '[repository "s3"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = %s\n' "$PORT" bench-snapferry \
        >"$W/conf/conf.d/s3.ini"
    printf 'credentials = %s\npassword-file = %s\n' "$W/keys" "$W/pw" >>"$W/conf/conf.d/s3.ini"
    printf '[sink]\ntype = s3\nprovider = Other\naccess_key_id = a\nsecret_access_key = b\nendpoint = %s\n' \
        "http://127.0.0.1:$PORT" >"$W/rclone.conf"
}
counts() { curl -s --noproxy '*' "http://127.0.0.1:$PORT/-/$1"; }

sf() { "$SNAPFERRY" --config-dir "$W/conf" -r s3 --cache-dir "$W/cache/snapferry" --quiet "$@"; }
k() { "$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log" "$@"; }

begin() { # NAME: an empty repository
    rm -rf "$W/s3/bench-$1" "$W/cache" "$W/out" "$W"/kopia.config*
    mkdir "$W/s3/bench-$1"
    case $1 in
    snapferry) sf repo create >/dev/null ;;
    kopia)
        k repository create s3 --bucket bench-kopia --endpoint "127.0.0.1:$PORT" --disable-tls --access-key a \
            --secret-access-key b --cache-directory "$W/cache/kopia" >/dev/null 2>"$W/stderr" ;;
    esac
}
# CMD for a step of NAME; fails if it has none.
command_for() { # NAME STEP
    case $1-$2 in
    snapferry-backup) CMD=("$SNAPFERRY" backup "$W/v/volume.img") ;;
    snapferry-restore) CMD=("$SNAPFERRY" restore latest "$W/out") ;;
    snapferry-verify) CMD=("$SNAPFERRY" verify) ;;
    kopia-backup) CMD=(snapshot create "$W/v") ;;
    kopia-restore)
        CMD=(snapshot restore "$(k snapshot list --json 2>/dev/null | jq -r '.[0].rootEntry.obj')" "$W/out") ;;
    kopia-verify) CMD=(snapshot verify --verify-files-percent=100) ;;
    rclone-backup) CMD=(copy "$W/packs" sink:bench-rclone) ;;
    rclone-restore) CMD=(copy sink:bench-rclone "$W/out") ;;
    *) return 1 ;;
    esac
    case $1 in
    snapferry)
        CMD=("${CMD[0]}" --config-dir "$W/conf" -r s3 --cache-dir "$W/cache/snapferry" --quiet "${CMD[@]:1}") ;;
    kopia) CMD=("$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log"
                "${CMD[@]}") ;;
    rclone) CMD=(rclone --config "$W/rclone.conf" --transfers 8 --ignore-checksum --s3-no-check-bucket
                 "${CMD[@]}") ;;
    esac
}
same_data() { # NAME
    case $1 in
    snapferry) cmp -s "$W/out" "$W/v/volume.img" ;;
    kopia) cmp -s "$W/out/volume.img" "$W/v/volume.img" ;;
    rclone) diff -rq "$W/out" "$W/packs" >/dev/null ;;
    esac
}
step() { # NAME STEP DELAY
    command_for "$1" "$2" || return 0
    rm -rf "$W/cache/snapferry" "$W/out"
    [ "$1" != kopia ] || [ "$2" = backup ] || k cache clear >/dev/null 2>&1
    counts reset >/dev/null
    timed "{\"who\": \"$1\", \"step\": \"$2\", \"delay\": $3, \"MiB\": $SIZE}" "$SIZE" "${CMD[@]}" ||
        die "$1 failed at $2: $(tail -n 3 "$W/stderr")"
    record "$(jq -c --argjson s3 "$(counts reset)" '. + {s3: $s3}' <<<"$LAST")"
    [ "$2" != restore ] || same_data "$1" || die "what $1 restored is not what was backed up"
}

# ---- the run ----

openssl enc -aes-128-ctr -nosalt -K 1 -iv 0 </dev/zero 2>/dev/null | head -c "${SIZE}M" >"$W/v/volume.img" || true
for delay in $DELAYS; do
    serve "$delay"
    for _ in $(seq "$RUNS"); do
        for who in $HAVE; do
            begin "$who"
            for s in backup restore verify; do step "$who" "$s" "$delay"; done
            rm -rf "$W/out"
            if [ "$who" = snapferry ] && [[ $HAVE == *rclone* ]]; then
                rm -rf "$W/packs"
                mv "$W/s3/bench-snapferry" "$W/packs"
            fi
        done
    done
    kill "$SERVER"
    wait "$SERVER" 2>/dev/null || true
done
[ -z "${JSON:-}" ] || cp "$RECORDS" "$JSON"
{
    printf '%s\n' 'delay ms|step|who|MiB/s|core-s/GiB|RSS MiB|requests/GiB|of snapferry'
    jq -rs '
        def median: sort | .[(length - 1) / 2 | floor];
        def requests: .s3 | .put + .get + .head + .list + .delete + .other;
        group_by([.delay, .step]) | .[] | (map(select(.who == "snapferry").wall) | median) as $ours | group_by(.who)
        | sort_by(.[0].who != "snapferry", .[0].who)[] | .[0].MiB as $mib | (map(.wall) | median) as $wall
        | [.[0].delay, .[0].step, .[0].who, ($mib / $wall | round),
           ((map(.user + .sys) | median) / $mib * 1024 * 100 | round / 100), ((map(.rssKiB) | median) / 1024 | round),
           ((map(requests) | median) / $mib * 1024 | round), ($wall / $ours * 100 | round / 100)]
        | map(tostring) | join("|")' "$RECORDS"
} | column -t -s '|'
