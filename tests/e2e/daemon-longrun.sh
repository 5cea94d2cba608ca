#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Many operations in a row with random faults: no growth in memory, descriptors, records or files (E-01, E-03, E-04).
# OPS=1000 SEED=n FAULTS=yes: `make soak`. By default a short run.
. "$(dirname "$0")/../daemon-lib.sh"
: "${OPERATIONS:=${OPS:-24}}" "${SEED:=$((RANDOM * 32768 + RANDOM))}" "${FAULTS:=yes}"
need_root "a long run"
RANDOM=$((SEED % 32768))
echo "# OPERATIONS=$OPERATIONS SEED=$SEED FAULTS=$FAULTS"
fs_make xfs xfs && fs_make far btrfs 300 || exit 1
mkdir "$WORK/far/scratch"
for v in 1 2 3; do image "$WORK/xfs/$v.img" 2 "$v"; done
printf '#!/bin/sh\n[ ! -e %s/fail-hook ]\n' "$WORK" >"$WORK/hook"; chmod 755 "$WORK/hook"
daemon_setup 'keep-records = 60s'
config_add far "[storage-class \"far\"]
driver = reflink
match =
target = $WORK/far/scratch"
config_class xfs "$WORK/xfs" 'snapshots-to-retain = 2' 'retries = 1' 'stall-timeout = 5s' \
    "hook-pre-snapshot = $WORK/hook"
config_add vol "[volume \"$WORK/xfs/2.img\"]
backup-storage-class = far
[volume \"$WORK/xfs/3.img\"]
backup-read-only = no"
starts "the daemon starts"
rss() { awk '/^Rss/ {r = $2} /^Private_Dirty/ {p += $2} END {print p}' "/proc/$DPID/smaps_rollup"; }
fds() { ls "/proc/$DPID/fd" | wc -l; }
restarts=0 faults=0 ended=0
fault() {
    faults=$((faults + 1))
    case $((RANDOM % 7)) in
    0) daemon_kill; daemon_start || return 1; restarts=$((restarts + 1)) ;;
    1) daemon_stop; daemon_start || return 1; restarts=$((restarts + 1)) ;;
    2) pkill -KILL -o -f "snapferry-mover.*$WORK/" || true ;;
    3) touch "$WORK/fail-hook"; sleep 0.3; rm -f "$WORK/fail-hook" ;;
    4) ask cancel "$1" --quiet >/dev/null 2>&1 || true ;;
    5) mv "$REPO" "$REPO.away"; sleep 0.3; mv "$REPO.away" "$REPO" ;;
    6) kill -HUP "$DPID" ;;
    esac
}
one() {
    local v=$WORK/xfs/$((RANDOM % 3 + 1)).img b
    printf '%s' "$RANDOM$RANDOM" | dd of="$v" bs=1 seek=$((RANDOM * 32)) conv=notrunc status=none
    b=$(submit "$v")
    [ -n "$b" ] || return 0
    if [ "$FAULTS" = yes ] && [ $((RANDOM % 4)) -eq 0 ]; then sleep 0.$((RANDOM % 5)); fault "$b" || return 1; fi
    wait_state "$b" none 60 >/dev/null
    terminal "$(state "$b")" || { echo "# $b is $(state "$b")"; return 1; }
    ended=$((ended + 1))
    if [ $((RANDOM % 5)) -eq 0 ]; then
        ask restore "$b/$v" "$WORK/xfs/out.img" --wait --quiet >/dev/null 2>&1
        rm -f "$WORK/xfs/out.img"
    fi
    if [ $((RANDOM % 6)) -eq 0 ]; then ask delete "$b" --quiet >/dev/null 2>&1; fi
    return 0
}
fine=yes
quarter=$((OPERATIONS / 4))
for i in $(seq "$OPERATIONS"); do
    one || { fine="operation $i"; break; }
    if [ "$i" -eq "$quarter" ]; then
        # From here on it may not grow: the same process until the end, as far as faults allow.
        until_true 30 settled; base_rss=$(rss) base_fds=$(fds) base_restarts=$restarts
    fi
done
same "each of $OPERATIONS operations came to an end ($faults faults, $restarts restarts)" "$fine" yes
until_true 60 settled
check "descriptors: $base_fds, then $(fds)" test "$(fds)" -le $((base_fds + 3))
check "memory: $base_rss KiB, then $(rss)" test "$(rss)" -le $((base_rss + base_rss / 2 + 2048))
clean "nothing is left behind" 30 "$WORK/xfs" "$WORK/far"
rows=$(sql 'SELECT (SELECT count(*) FROM intents) + (SELECT count(*) FROM natives)')
check "records of natives and intents: $rows" test "$rows" -le $((OPERATIONS / 2 + 20))
check "result files: $(find "$STATE/results" -type f 2>/dev/null | wc -l)" \
    test "$(find "$STATE/results" -type f 2>/dev/null | wc -l)" -le 3
check "runtime directory: $(find "$RUN" | wc -l)" test "$(find "$RUN" | wc -l)" -le 12
check "no zombies" test -z "$(ps --ppid "$DPID" -o stat= | grep Z)"
check "the repository is whole" sf "$REPO" verify --quiet
explain_failure
finish
