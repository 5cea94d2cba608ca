#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The numbers of docs/sizing.md: what a repository, its index and the daemon's records grow by. As root, for the
# daemon's part (an XFS on a loop device); about ten minutes and 3 GiB in $TMPDIR. Prints tables in Markdown.
# usage: BUILD=build perf/sizing.sh [splitters] [amplification] [runs] [daemon]
set -eu
B=$(realpath "${BUILD:-build}")
W=$(mktemp -d "${TMPDIR:-/tmp}/snapferry-sizing.XXXXXX")
daemon=
end() {
    [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null || true
    if mountpoint -q "$W/vm"; then umount "$W/vm"; fi
    rm -rf "$W"
}
trap end EXIT
export XDG_CACHE_HOME=$W/cache SNAPFERRY_NO_SYSTEMD=1
(umask 077; echo "sizing" >"$W/password")
sf() { "$B/snapferry" -r "$W/repo" --password-file "$W/password" "$@"; }
bytes() { find "$@" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0, NR }'; }
random() { openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "$2")" -iv 0 </dev/zero 2>/dev/null | head -c "$1"; }
MIB=256 # of the image
want=" ${*:-splitters amplification runs daemon} "

if [[ $want == *" splitters "* ]]; then
    printf '| Splitter | contents of %s MiB | mean KiB | index, bytes per content ' $MIB
    printf '| 16 writes of 4 KiB: stored MiB | 256 writes | 4096 writes |\n|---|---|---|---|---|---|---|\n'
    for s in DYNAMIC-128K-BUZHASH DYNAMIC-512K-BUZHASH DYNAMIC-1M-BUZHASH DYNAMIC-4M-BUZHASH FIXED-128K FIXED-1M; do
        rm -rf "$W/repo" "$W/cache"
        random $((MIB << 20)) 1 >"$W/image"
        sf repo create --quiet --splitter $s
        chunks=$(sf backup "$W/image" --as a@b:/c --json --progress=no | tail -n 1 | jq .newChunks)
        index=$(bytes "$W/repo/x" | cut -d' ' -f1)
        printf '| %s | %s | %s | %s |' $s "$chunks" $((MIB * 1024 / chunks)) $((index / chunks))
        for k in 16 256 4096; do
            random $((MIB << 20)) 1 >"$W/image"
            perl -e 'open F, "+<", $ARGV[0] or die; srand 7;
                for (1 .. $ARGV[1]) { seek F, 4096 * int rand $ARGV[2] / 4096, 0;
                    print F pack "N*", map { rand 4294967296 } 1 .. 1024 }' \
                "$W/image" $k $((MIB << 20))
            printf ' %s |' "$(sf backup "$W/image" --as a@b:/c$k --json --progress=no | tail -n 1 |
                jq '.newBytes / 1048576 | floor')"
        done
        echo
    done
fi

# Incremental backups, which read only what is listed as changed: 2 MiB are overwritten at random places (0.4 %), in
# pieces of 4, 8, 16 and 64 KiB; and 1 % of the pages of 8 KiB of a database.
if [[ $want == *" amplification "* ]]; then
    MIB=512
    printf '\n| Splitter | CPU seconds per GiB | contents of %s MiB | index KiB | 2 MiB by 4 KiB | by 8 KiB ' $MIB
    printf '| by 16 KiB | by 64 KiB | 1 %% by 8 KiB |\n|---|---|---|---|---|---|---|---|---|\n'
    random $((MIB << 20)) 1 >"$W/base"
    for s in FIXED-128K FIXED-256K FIXED-512K FIXED-1M FIXED-2M FIXED-4M FIXED-8M DYNAMIC-128K-BUZHASH \
        DYNAMIC-512K-BUZHASH DYNAMIC-1M-BUZHASH DYNAMIC-4M-BUZHASH DYNAMIC-8M-BUZHASH; do
        rm -rf "$W/repo" "$W/cache"
        sf repo create --quiet --splitter $s
        TIMEFORMAT='%U %S'
        { time sf backup "$W/base" --as a@b:/c --json --progress=no >"$W/out"; } 2>"$W/time"
        first=$(tail -n 1 "$W/out")
        index=$(bytes "$W/repo/x" | cut -d' ' -f1)
        printf '| %s | %s | %s | %s |' $s "$(awk -v m=$MIB 'END { printf "%.1f", ($1 + $2) * 1024 / m }' "$W/time")" \
            "$(jq .newChunks <<<"$first")" $((index / 1024))
        for how in 4096:2097152 8192:2097152 16384:2097152 65536:2097152 8192:$(((MIB << 20) / 100)); do
            cp "$W/base" "$W/image"
            perl -e 'open F, "+<", $ARGV[0] or die; open L, ">", $ARGV[3] or die; srand 7; my ($l, $n) = @ARGV[1, 2];
                my (%at, $k); while ($k < int $n / $l) { my $p = $l * int rand((-s F) / $l); next if $at{$p}++; $k++;
                seek F, $p, 0; print F pack "N*", map { rand 4294967296 } 1 .. $l / 4; print L "$p $l\n" }' \
                "$W/image" "${how%:*}" "${how#*:}" "$W/list"
            printf ' %s |' "$(sf backup "$W/image" --as a@b:/c --changed-ranges "$W/list" --verify-sample 0 \
                --parent "$(jq -r .snapshot <<<"$first")" --json --progress=no 2>/dev/null | tail -n 1 |
                jq '(.newBytes / .changedBytes) | if . < 10 then . * 10 | round / 10 else round end')"
        done
        echo
    done
    MIB=256
fi

if [[ $want == *" runs "* ]]; then
    rm -rf "$W/repo" "$W/cache"
    random $((64 << 20)) 2 >"$W/image"
    sf repo create --quiet
    sf backup "$W/image" --as a@b:/c --quiet
    read -r a files <<<"$(bytes "$W/repo")"
    for _ in 1 2 3 4 5 6 7 8 9 10; do sf backup "$W/image" --as a@b:/c --quiet; done
    read -r b more <<<"$(bytes "$W/repo")"
    printf '\nA backup in which nothing has changed adds %s bytes in %s files to the repository.\n' $(((b - a) / 10)) \
        $(((more - files) / 10))
fi

if [[ $want == *" daemon "* ]]; then
    n=40
    truncate -s 400M "$W/fs"
    mkfs.xfs -q "$W/fs"
    mkdir -p "$W/vm" "$W/etc" "$W/state" "$W/run"
    mount -o loop "$W/fs" "$W/vm"
    rm -rf "$W/repo"
    sf repo create --quiet
    for i in $(seq $n); do random 65536 "$i" >"$W/vm/volume-$i.img"; done
    printf '%s\n' '[mover]' 'user = root' 'memory = 96MiB' 'workers = 1' '[metrics]' 'listen =' \
        '[repository "main"]' "path = $W/repo" "password-file = $W/password" \
        '[storage-class "c"]' 'driver = reflink' "match = $W/vm/*.img" 'snapshots-to-retain = 1' >"$W/etc/snapferry.ini"
    "$B/snapferryd" --foreground --config-dir "$W/etc" --state-dir "$W/state" --runtime-dir "$W/run" \
        --cache-dir "$W/cache" 2>"$W/log" &
    daemon=$!
    for _ in $(seq 100); do [ -S "$W/run/control.sock" ] && break; sleep 0.1; done
    for _ in 1 2; do "$B/snapferry" backup "$W/vm/*.img" --wait --quiet --runtime-dir "$W/run"; done
    rss=$(awk '/^VmRSS/ { print $2 }' "/proc/$daemon/status")
    kill "$daemon"; wait "$daemon" || true
    daemon=
    size=$(stat -c %s "$W/state/records.db")
    printf '\nDaemon with %s volumes after two backups of all: %s KiB resident, records of %s KiB.\n\n' \
        $n "$rss" $((size / 1024))
    printf '| Rows | number | mean bytes |\n|---|---|---|\n'
    for t in operations backups natives volumes; do
        printf '| %s | %s |\n' $t \
            "$(sqlite3 -readonly -separator ' | ' "$W/state/records.db" \
                "SELECT count(*), cast(avg(length(doc)) AS integer) FROM $t")"
    done
    for i in $(seq 1000); do : >"$W/vm/more-$i.img"; truncate -s 1M "$W/vm/more-$i.img"; done
    "$B/snapferryd" --foreground --config-dir "$W/etc" --state-dir "$W/state" --runtime-dir "$W/run" \
        --cache-dir "$W/cache" 2>"$W/log" &
    daemon=$!
    for _ in $(seq 100); do [ -S "$W/run/control.sock" ] && break; sleep 0.1; done
    for _ in $(seq 60); do
        found=$("$B/snapferry" volumes --json --runtime-dir "$W/run" 2>/dev/null | tail -n 1 | jq '.volumes | length')
        [ "${found:-0}" -ge 1000 ] && break
        sleep 1
    done
    "$B/snapferry" status --quiet --runtime-dir "$W/run" >/dev/null
    printf '\nWith %s volumes: %s KiB resident.\n' "$found" "$(awk '/^VmHWM/ { print $2 }' "/proc/$daemon/status")"
fi
