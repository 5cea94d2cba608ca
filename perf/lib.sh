# SPDX-License-Identifier: GPL-2.0-or-later
# What the benchmarks share: a place for data, commands measured, one JSON line for each run.
# Set from outside: BUILD, DIR; MEASURED, the command, if it is not that of BUILD. Gives: W (scratch, removed at exit),
# SNAPFERRY, RECORDS (JSON lines), timed, note, die.

BUILD=$(realpath "${BUILD:-build}") DIR=${DIR:-/dev/shm}
SNAPFERRY=${MEASURED:-$BUILD/snapferry}
HERE=$(dirname "${BASH_SOURCE[0]}")
RESULTS=${RESULTS:-$HERE/results}

die() { echo "$(basename "$0"): $*" >&2; exit 1; }
note() { echo "$*" | tee -a "$W/notes" >&2; }

for tool in jq bc /usr/bin/time mkfs.ext4 debugfs tar column; do
    command -v "$tool" >/dev/null || [ -x "/sbin/$tool" ] ||
        die "$tool is missing: perf/deps.sh installs what is needed"
done
PATH=$PATH:/sbin:/usr/sbin
[ -x "$SNAPFERRY" ] || die "there is no $SNAPFERRY: run make first"
[ -d "$DIR" ] || die "DIR=$DIR is no directory"
W=$(mktemp -d "$DIR/snapferry-bench.XXXXXX") || die "cannot write to DIR=$DIR"
RECORDS=$W/records
trap 'rm -rf "$W"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$W/v" "$W/log"
: >"$RECORDS"
: >"$W/notes"
(umask 077; echo benchmark >"$W/pw")
on_tmpfs() { [ "$(stat -f -c %T "$W")" = tmpfs ]; }

# room MIB: refuses when DIR, or the memory that it consists of, is too small.
room() {
    local there memory
    there=$(df --output=avail -m "$W" | tail -n1 | tr -dc 0-9)
    [ "$there" -ge "$1" ] || die "$1 MiB are needed in DIR=$DIR, $there are free: give a smaller SIZE or another DIR"
    memory=$(($(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024))
    if on_tmpfs && [ "$memory" -lt $(($1 + 700)) ]; then
        die "DIR=$DIR is memory: $1 MiB and 700 for programs are needed, $memory are available:" \
            "give a smaller SIZE or another DIR"
    fi
}

# touch_memory MIB: memory that was free for long may first have to come back from the hypervisor, which costs several
# times what a page costs otherwise. Who writes first would pay for all: so nobody does (but in a quick run all may).
touch_memory() {
    local place=$W
    [ -z "${QUICK:-}" ] || return 0
    on_tmpfs || place=/dev/shm
    if [ "$1" -gt 0 ] && [ -w "$place" ]; then
        dd if=/dev/zero of="$place/.snapferry-touch.$$" bs=1M count="$1" status=none 2>/dev/null || true
        rm -f "$place/.snapferry-touch.$$"
    fi
}

# Nothing of the sources is cached: nothing to do where the source is memory itself.
drop_caches() {
    on_tmpfs && return
    sync -f "$W"
    if [ -w /proc/sys/vm/drop_caches ]; then echo 1 >/proc/sys/vm/drop_caches; fi
}

# timed JSON WRITES-MIB COMMAND...: runs and measures; the record is JSON plus wall, user, sys (seconds) and rssKiB.
# The record is left in LAST. Fails as the command does, with its last words in $W/stderr.
timed() {
    local about=$1 writes=$2 from to
    shift 2
    touch_memory "$writes"
    drop_caches
    from=$EPOCHREALTIME
    /usr/bin/time -q -f '%U %S %M' -o "$W/time" "$@" >/dev/null 2>"$W/stderr" || return
    to=$EPOCHREALTIME
    read -r user sys rss <"$W/time"
    LAST=$(jq -cn --argjson about "$about" --argjson wall "$(bc -l <<<"$to - $from" | sed 's/^\./0./')" \
        --argjson user "$user" --argjson sys "$sys" --argjson rss "$rss" \
        '$about + {wall: $wall, user: $user, sys: $sys, rssKiB: $rss}')
}
record() { echo "$1" >>"$RECORDS"; }

# stored: bytes in the repository that is being measured.
stored() { du -sb "$W/repo" 2>/dev/null | cut -f1; }
