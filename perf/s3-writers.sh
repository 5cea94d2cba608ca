#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-s3-writers: many nodes, one bucket. 1, 2, 4 and 8 writers back up into one repository at the same time,
# each a process with a cache and a node name of its own, into the server of perf/s3.sh (s3_sink).
#   SIZE=256           MiB of each writer's volume
#   SHARE=25           percent of it that all writers have in common
#   WRITERS="1 2 4 8"  how many at once; each number begins with an empty repository
#   DELAY=0            ms by which each answer of the server is late
#   RUNS=3             of each; the median by time
#   DIR=/dev/shm       where volumes, caches and objects lie
#   JSON=FILE          each run as a JSON line
# What is common is not in the repository when they begin, so writers that meet it at the same time all store it:
# "stored" is how many MiB are in packs afterwards, "distinct" how many would be if nothing was stored twice. A second
# round, in which SHARE percent of each volume have changed, is measured likewise ("again"): what the writers share is
# known then.
set -euo pipefail
SIZE=${SIZE:-256} SHARE=${SHARE:-25} WRITERS=${WRITERS:-1 2 4 8} DELAY=${DELAY:-0} RUNS=${RUNS:-3}
. "$(dirname "$0")/lib.sh"
SINK=$BUILD/perf/s3_sink
[[ $SIZE$RUNS$DELAY =~ ^[0-9]+$ && $SIZE -ge 8 && $RUNS -ge 1 ]] || die "SIZE is MiB, 8 or more; RUNS 1 or more"
[[ $SHARE =~ ^[0-9]+$ && $SHARE -le 100 ]] || die "SHARE is percent"
[[ ${WRITERS// /} =~ ^[0-9]+$ ]] || die "WRITERS are numbers"
export HOME=$W XDG_CACHE_HOME=$W/cache
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY AWS_CA_BUNDLE
MOST=$(tr ' ' '\n' <<<"$WRITERS" | sort -n | tail -n 1)
COMMON=$((SIZE * SHARE / 100))
[ "$COMMON" -gt 0 ] || [ "$SHARE" = 0 ] || COMMON=1
# Volumes, what both rounds store (all of it if nothing is found), and packs that wait in caches.
room $((MOST * (2 * SIZE + COMMON + 200) + COMMON))
SERVER=
trap 'kill $SERVER 2>/dev/null || true; rm -rf "$W"' EXIT

random() { # SEED MIB
    openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "$1")" -iv 0 </dev/zero 2>/dev/null | head -c "${2}M" || true
}
begin() { # an empty server and repository
    rm -rf "$W/s3" "$W/port" "$W/cache"
    mkdir -p "$W/s3/bench" "$W/conf/conf.d"
    "$SINK" "$W/s3" "$W/port" "$DELAY" &
    SERVER=$!
    for _ in $(seq 200); do [ -s "$W/port" ] && break; sleep 0.05; done
    PORT=$(cat "$W/port") || die "the server does not start"
    (umask 077; printf 'access-key = a\nsecret-key = b\n' >"$W/keys")
    printf '[daemon]\nnode-name = bench\n' >"$W/conf/snapferry.ini"
    printf '[repository "s3"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = bench\n' "$PORT" \
        >"$W/conf/conf.d/s3.ini"
    printf 'credentials = %s\npassword-file = %s\n' "$W/keys" "$W/pw" >>"$W/conf/conf.d/s3.ini"
    sf 0 repo create >/dev/null
}
end() { kill "$SERVER"; wait "$SERVER" 2>/dev/null || true; }
counts() { curl -s --noproxy '*' "http://127.0.0.1:$PORT/-/$1"; }
sf() { # WRITER VERB...
    "$SNAPFERRY" --config-dir "$W/conf" -r s3 --cache-dir "$W/cache/$1" --quiet "${@:2}"
}
round() { # NAME N: all back up at once
    local i from to pids=() failed=
    counts reset >/dev/null
    from=$EPOCHREALTIME
    for i in $(seq "$2"); do
        sf "$i" backup "$W/v/$i" --as "node$i@node$i:/v" >/dev/null 2>"$W/stderr.$i" &
        pids+=($!)
    done
    for i in $(seq "$2"); do wait "${pids[i - 1]}" || failed=$i; done
    to=$EPOCHREALTIME
    [ -z "$failed" ] || die "writer $failed failed: $(tail -n 3 "$W/stderr.$failed")"
    record "$(sf 0 repo status --json | tail -n 1 | jq -c --arg round "$1" --argjson n "$2" --argjson mib "$SIZE" \
        --argjson common "$COMMON" --argjson wall "$(bc -l <<<"$to - $from" | sed 's/^\./0./')" \
        --argjson s3 "$(counts reset)" '{round: $round, writers: $n, MiB: $mib, common: $common, wall: $wall,
            indexBlobs, indexBytes, indexEntries, packBytes, s3: $s3}')"
}

for n in $WRITERS; do
    for _ in $(seq "$RUNS"); do
        for i in $(seq "$n"); do
            { random 1 "$COMMON"; random $((100 + i)) $((SIZE - COMMON)); } >"$W/v/$i"
        done
        begin
        round first "$n"
        for i in $(seq "$n"); do
            random $((1000 + i)) "$COMMON" | dd of="$W/v/$i" bs=1M seek=$((SIZE - COMMON)) conv=notrunc status=none
        done
        round again "$n"
        # Nothing is lost among so many: each volume is there as it is.
        for i in $(seq "$n"); do
            sf "$i" restore latest --as "node$i@node$i:/v" "$W/out" >/dev/null
            cmp -s "$W/out" "$W/v/$i" || die "what writer $i stored is not what it backed up"
            rm -f "$W/out"
        done
        end
        rm -f "$W"/v/*
    done
done
[ -z "${JSON:-}" ] || cp "$RECORDS" "$JSON"
{
    printf '%s|' round writers seconds 'MiB/s in total' 'MiB/s of each' 'stored MiB' 'distinct MiB' 'index blobs' \
        'index bytes'
    echo requests
    jq -rs '
        group_by([.round == "again", .writers])[] | sort_by(.wall) | .[(length - 1) / 2 | floor]
        | (.MiB * .writers) as $all
        | (.common + (.MiB - .common) * .writers + if .round == "again" then .common * .writers else 0 end) as $distinct
        | [.round, .writers, (.wall * 100 | round / 100), ($all / .wall | round), (.MiB / .wall | round),
           (.packBytes / 1048576 | round), $distinct, .indexBlobs, .indexBytes,
           (.s3 | .put + .get + .head + .list + .delete + .other)]
        | map(tostring) | join("|")' "$RECORDS"
} | column -t -s '|'
