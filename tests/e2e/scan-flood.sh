#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Whoever can write a repository can fill it with manifests. A scan of them takes its time, but the daemon answers
# meanwhile, in bounded memory, and a cancel is obeyed at once (issue 13, 15 and 19).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
: "${TOOLS:=$BUILD/tests/tools}"
N=20000
fs_make xfs xfs 320 || exit 1
random_file "$WORK/xfs/v.img" $((2 * MIB)) 91
daemon_setup
config_class xfs "$WORK/xfs"
starts "the daemon starts"
A=$(submit "$WORK/xfs/v.img")
same "a backup" "$(wait_state "$A" Completed 60)" Completed
manifests() { CACHE=$WORK/cache.tool "$TOOLS/manifests" "$REPO" "$WORK/password" "$@"; }
manifests list snapshot | jq -c --argjson n $N 'del(.id) | range($n) as $i |
    .data.startTime = "2026-01-01T00:00:00.\(100000 + $i)Z" |
    .data.endTime = .data.startTime | .data.tags["tag:backup"] = "many\($i)" |
    .data.tags["tag:operation"] = "up-many\($i)" | .labels["tag:backup"] = "many\($i)"' >"$WORK/forged"
check "$N more manifests" eval 'manifests add <"$WORK/forged"'

slowest=0 answers=0 memory=0
ask scan main >"$WORK/scan" 2>&1 &
scan=$!
while kill -0 $scan 2>/dev/null; do
    began=$(date +%s%N)
    ask status --quiet >/dev/null 2>&1 || { [ $? = 3 ] || fail "status while it scans"; }
    took=$((($(date +%s%N) - began) / 1000000))
    [ $took -le $slowest ] || slowest=$took
    answers=$((answers + 1))
    now=$(awk '/^VmRSS/ { print $2 }' "/proc/$DPID/status")
    [ "$now" -le $memory ] || memory=$now
    sleep 0.1
done
wait $scan
same "the scan ends" $? 0
check "and has found them" grep -qE "^$((N + 1)) snapshots .*: 1 recorded before, $N recorded now" "$WORK/scan"
check "it tells of no bytes" eval '! grep -q " of 1 B" "$WORK/scan"'
check "status has answered meanwhile, $answers times" test $answers -ge 5
check "within two seconds: $slowest ms at most" test $slowest -lt 2000
check "in bounded memory: $memory KiB at most" test "$memory" -lt 131072

# Each in the middle of its loops.
for what in "scan main" "verify main --wait --read-percent 1" "maintenance main --full --wait"; do
    # shellcheck disable=SC2086
    ask $what >"$WORK/out" 2>&1 &
    job=$!
    O=
    runs() { O=$(askj operations --state Running | jq -r '.operations[0].id // empty'); [ "$O" ]; }
    until_true 20 runs
    sleep 0.3
    began=$(date +%s%N)
    ask cancel "$O" --quiet
    wait $job
    rc=$?
    took=$((($(date +%s%N) - began) / 1000000))
    check "${what%% *}: a cancel is obeyed (or it had ended): $rc" test $rc = 24 -o $rc = 0 # 0: a fast machine
    check "at once: $took ms" test $took -lt 3000
done
stops "the daemon stops"
explain_failure
finish
