#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What an operation costs the daemon, against how many there are in one job: draws the curve of its own CPU time.
#   perf/scale.sh [N...]     volumes of the job, default 20 60 120; each N is a daemon and a repository of their own
#   BUILD=build              which build is measured: any that has snapferry, snapferryd and snapferry-mover
#   SIZE=64                  KiB of each image
#   SLOTS=2                  operations at once
#   COMMITS=yes              no: without the second run of each N under strace(1), which counts synced transactions
#   LIMIT=900                seconds after which a run is ended and counted as far as it came
#   DIR=$TMPDIR or /tmp      where everything lies; the images are on an XFS of their own there, behind a loop device
#   RESULTS=FILE             JSON lines of the same figures
# CPU is utime + stime of the daemon's process (all its threads), from the submission to the end of the job: neither
# movers nor other children. Commits are fsync and fdatasync of the daemon on the log of its records (records.db-wal);
# what folds the log into the database is a small part of them. Status is the time that `snapferry status --json` takes,
# asked each second while the job runs, and is what sees the end. Needs root, xfsprogs, jq, strace (or COMMITS=no).
set -euo pipefail
DIR=${DIR:-${TMPDIR:-/tmp}} SIZE=${SIZE:-64} SLOTS=${SLOTS:-2} COMMITS=${COMMITS:-yes} LIMIT=${LIMIT:-900}
here=$(realpath "$(dirname "$0")")
OUT=${RESULTS:-}
. "$here/lib.sh"
[ "$(id -u)" = 0 ] || die "root is needed for a file system on a loop device"
command -v mkfs.xfs >/dev/null || die "mkfs.xfs is missing"
[ "$COMMITS" = no ] || command -v strace >/dev/null || die "strace is missing: install it, or COMMITS=no"
[ -x "$BUILD/snapferryd" ] || die "there is no $BUILD/snapferryd: run make first"
[ $# -gt 0 ] || set -- 20 60 120
for n; do [[ $n =~ ^[0-9]+$ && $n -ge 1 ]] || die "\"$n\" is no number of volumes"; done
export SNAPFERRY_NO_SYSTEMD=1 XDG_CACHE_HOME=$W/cache HOME=$W
HZ=$(getconf CLK_TCK)
TRACER='' DAEMON='' LOOP=''
chmod 755 "$W"

leave() {
    local p
    [ -z "$TRACER" ] || kill "$TRACER" 2>/dev/null || true
    [ -z "$DAEMON" ] || kill -KILL "$DAEMON" 2>/dev/null || true
    for p in $(pgrep -f "snapferry-mover.*$W/" || true); do kill -KILL "$p" 2>/dev/null || true; done
    umount "$W/fs" 2>/dev/null || umount -l "$W/fs" 2>/dev/null || true
    [ -z "$LOOP" ] || losetup -d "$LOOP" 2>/dev/null || true
    LOOP=''
}
trap 'leave; rm -rf "$W"' EXIT

dirs=(--runtime-dir "$W/run" --state-dir "$W/state" --config-dir "$W/conf")
ask() { "$SNAPFERRY" "$@" "${dirs[@]}"; }

# images N: a file system with so many, and what the daemon needs, all new.
images() {
    local i
    rm -rf "$W"/{fs.img,fs,conf,state,run,cache,repo}
    mkdir -p "$W"/{fs,conf,state,run,cache}
    truncate -s $((400 + $1 * (SIZE + 64) / 1024))M "$W/fs.img"
    mkfs.xfs -q -m reflink=1 "$W/fs.img" >/dev/null
    LOOP=$(losetup --find --show "$W/fs.img")
    blockdev --setrw "$LOOP"
    mount "$LOOP" "$W/fs"
    for i in $(seq "$1"); do head -c $((SIZE * 1024)) /dev/urandom >"$W/fs/$i.img"; done
    sync -f "$W/fs"
    "$SNAPFERRY" -r "$W/repo" --password-file "$W/pw" repo create --quiet
    cat >"$W/conf/snapferry.ini" <<INI
[daemon]
node-name = scale
slots = $SLOTS
[metrics]
listen =
[mover]
user = root
memory = 96MiB
workers = 1
[repository "main"]
type = filesystem
path = $W/repo
password-file = $W/pw
[storage-class "images"]
driver = reflink
match = $W/fs/*.img
max-per-device = $SLOTS
[job "all"]
volumes = $W/fs/*.img
on-calendar = yearly
INI
}
start() {
    local i
    "$BUILD/snapferryd" --foreground --config-dir "$W/conf" --state-dir "$W/state" --runtime-dir "$W/run" \
        --cache-dir "$W/cache" >"$W/daemon.log" 2>&1 </dev/null &
    DAEMON=$!
    for i in $(seq 200); do
        if ask status --json 2>/dev/null | tail -n 1 | jq -e '.offline != true' >/dev/null 2>&1; then return; fi
        kill -0 $DAEMON 2>/dev/null || break
        sleep 0.1
    done
    die "the daemon does not start: $(tail -n 3 "$W/daemon.log")"
}
ticks() { sed 's/.*) //' "/proc/$DAEMON/stat" | awk '{print $12 + $13}'; }
ms_since() { echo $(((${EPOCHREALTIME/./} - ${1/./}) / 1000)); }
memory() { sed -n "s/^$1:[[:space:]]*\([0-9]*\).*/\1/p" "/proc/$DAEMON/status"; }

# run N: one job to its end. Sets TRACED (lines of the trace before it), SECONDS_TAKEN, CPU (ms), DONE, STATUS (times in
# ms, a file), RSS.
run() {
    local n=$1 from began left before
    : >"$W/status"
    sleep 2 # what a start looks at is not the job's
    TRACED=$(wc -l 2>/dev/null <"$W/trace" || true)
    before=$(ticks) began=$EPOCHREALTIME
    ask backup --job all --json >"$W/submitted" 2>&1 || die "the job is refused: $(tail -n 2 "$W/submitted")"
    DONE=
    while :; do
        from=$EPOCHREALTIME
        left=$(timeout 20 "$SNAPFERRY" status --json "${dirs[@]}" 2>/dev/null | tail -n 1 |
            jq '(.running | length) + (.queue | length)' 2>/dev/null) || left=
        ms_since "$from" >>"$W/status"
        if [ "$left" = 0 ]; then break; fi
        if [ "$(ms_since "$began")" -gt $((LIMIT * 1000)) ]; then DONE=unknown; break; fi
        sleep 1
    done
    SECONDS_TAKEN=$(bc -l <<<"scale=1; $(ms_since "$began") / 1000")
    CPU=$((($(ticks) - before) * 1000 / HZ)) RSS=$(memory VmHWM)
    [ -n "$DONE" ] || DONE=$n
}
# stop: ends the daemon; of a job that was not finished it says how far it came.
stop() {
    [ "$DONE" != unknown ] || kill -KILL $DAEMON
    kill -TERM $DAEMON 2>/dev/null || true
    wait $DAEMON 2>/dev/null || true
    DAEMON=
    DONE=$(ask operations --all --limit 100000 --json 2>/dev/null |
        jq -s '[.[].operations[]? | select(.kind == "backup" and .state == "Completed")] | length')
    leave
}
quantile() { sort -n "$W/status" | awk -v q="$1" '{v[NR] = $1} END {i = int(q * NR + 0.999); print v[i < 1 ? 1 : i]}'; }

table=$W/table
{
    printf '%s|' volumes completed seconds 'daemon CPU s' 'CPU ms/op' commits commits/op 'status median ms'
    echo 'status max ms|RSS MiB'
} >"$table"
for n; do
    images "$n"
    start
    run "$n"
    stop
    seconds=$SECONDS_TAKEN cpu=$CPU rss=$RSS done=$DONE median=$(quantile 0.5) most=$(quantile 1)
    asked=$(wc -l <"$W/status") commits=null
    [ "$done" -gt 0 ] || die "none of $n volumes was backed up: $(tail -n 5 "$W/daemon.log")"
    if [ "$COMMITS" != no ]; then
        images "$n"
        start
        # Children are followed as well, since a thread that comes later can be seen in no other way.
        strace -f -y -e trace=fsync,fdatasync -o "$W/trace" -p $DAEMON 2>/dev/null &
        TRACER=$!
        run "$n"
        kill -INT $TRACER 2>/dev/null || true
        wait $TRACER 2>/dev/null || true
        TRACER=''
        stop
        # Nobody but the daemon has the log of the records open for writing, in a thread for each commit.
        commits=$(tail -n +$((${TRACED:-0} + 1)) "$W/trace" | grep -cE 'sync\([0-9]+<.*records\.db-wal>' || true)
        [ "$DONE" = "$done" ] || note "$n volumes: $DONE, not $done, were completed under strace: commits are of these"
        commits=$(jq -n --argjson c "$commits" --argjson d "$DONE" '{n: $c, each: ($c / ([$d, 1] | max))}')
    fi
    line=$(jq -cn --argjson n "$n" --argjson done "$done" --argjson s "$seconds" --argjson cpu "$cpu" \
        --argjson c "$commits" --argjson m "$median" --argjson x "$most" --argjson a "$asked" --argjson r "$rss" \
        '{volumes: $n, completed: $done, seconds: $s, cpuSeconds: ($cpu / 1000), cpuMsPerOperation: ($cpu / $done),
            commits: $c.n, commitsPerOperation: $c.each, statusMedianMs: $m, statusMaxMs: $x, statusAsked: $a,
            rssKiB: $r}')
    [ -z "$OUT" ] || echo "$line" >>"$OUT"
    jq -r 'def r($d): if . == null then "-" else (. * $d | round) / $d end;
        [.volumes, .completed, .seconds, (.cpuSeconds | r(100)), (.cpuMsPerOperation | r(10)), (.commits // "-"),
            (.commitsPerOperation | r(10)), .statusMedianMs, .statusMaxMs, (.rssKiB / 1024 | r(10))] |
        map(tostring) | join("|")' <<<"$line" >>"$table"
    note "$n volumes: $(tail -n 1 "$table" | tr '|' ' ')"
done
echo
echo "$("$BUILD/snapferryd" --version | head -n 1), one job of N images of $SIZE KiB, $SLOTS slots, $(nproc) CPUs"
column -t -s '|' -o '  ' -R 1,2,3,4,5,6,7,8,9,10 "$table"
