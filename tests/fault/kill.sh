#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Killed at every durable step and at random moments: the repository stays valid, and the next run stores again at most
# the pack that was being written.
. "$(dirname "$0")/../lib.sh"
random_file "$WORK/image" 130000000 11
packs() { find "$1/p" -name '*.f' 2>/dev/null | wc -l; }

# Those that a backup passes. Deleting, expiring, pinning, restoring, maintenance, repairs, verification, the records of
# backups and the mover's process have tests of their own.
points=$(grep -rhoE 'crash_point\("[a-z-]+"\)' repo daemon/mover/*.c --include=*.c | grep -oE '"[a-z-]+"' | tr -d '"' |
    grep -vE '^(expire|pin|policy|delete|restore|maintenance|repair|verify|backup-records)-' | sort -u)
check "there are crash points" test "$(wc -w <<<"$points")" -ge 5
full=$WORK/full
sf "$full" repo create --quiet
sf "$full" backup "$WORK/image" --as t@h:/v --quiet
want=$(packs "$full")
for p in $points; do
    # Packs that are being synced at that moment are lost as well: on a disk that another test keeps busy there may be
    # one of them besides the open one, so a count that is too high is taken once more.
    for _ in 1 2; do
        R=$WORK/r; rm -rf "$R" "$CACHE"
        sf "$R" repo create --quiet
        SNAPFERRY_CRASH_AT=$p "$SF" -r "$R" --password-file "$WORK/password" backup "$WORK/image" --as t@h:/v \
            --quiet >"$WORK/log" 2>&1 &
        pid=$!
        # A checkpoint is made to come by a signal in mid-run.
        if [ "$p" = checkpoint-manifest-put ]; then
            for _ in $(seq 200); do [ "$(packs "$R")" -ge 1 ] && break; sleep 0.01; done
            kill -INT $pid
        fi
        wait $pid 2>/dev/null
        rc=$?
        if [ $rc -ne 137 ]; then fail "$p: the run dies there" "exit $rc: $(tail -n1 "$WORK/log")"; continue 2; fi
        expect "$p: valid after the kill" 0 -- sf "$R" verify --quiet
        expect "$p: the next run is complete" 0 -- sf "$R" backup "$WORK/image" --as t@h:/v --quiet
        extra=$(($(packs "$R") - want))
        [ $extra -le 1 ] && break
    done
    check "$p: at most one pack was stored again ($extra)" test $extra -le 1
    expect "$p: and right" 0 -- sf "$R" verify --quiet
    rm -f "$WORK/out"
    sf "$R" restore latest "$WORK/out" --quiet
    check "$p: restores" cmp "$WORK/image" "$WORK/out"
done

# At random moments, again and again, into one repository.
R=$WORK/random; rm -rf "$CACHE"
sf "$R" repo create --quiet
for i in $(seq 6); do
    sf "$R" backup "$WORK/image" --as t@h:/v --quiet >/dev/null 2>&1 &
    pid=$!
    sleep "0.$((RANDOM % 8 + 1))"
    pkill -KILL -P $pid 2>/dev/null; kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    sf "$R" verify --quiet || { fail "round $i: not valid after kill -9"; break; }
done
expect "after six kills the seventh run is complete" 0 -- sf "$R" backup "$WORK/image" --as t@h:/v --quiet
rm -f "$WORK/out"; sf "$R" restore latest "$WORK/out" --quiet
check "and restores" cmp "$WORK/image" "$WORK/out"
check "no pack was stored twice over: $(packs "$R") of $want" test "$(packs "$R")" -le $((want + 7))

# Interrupted with a signal: a checkpoint, code 130, and the rest in the next run.
truncate -s 3G "$WORK/big"; for i in 0 1 2 3 4 5; do dd if="$WORK/image" of="$WORK/big" bs=1M seek=$((i * 500)) \
    conv=notrunc status=none; done
for i in 0 1 2 3 4 5; do printf "%d" $i | dd of="$WORK/big" bs=1M seek=$((i * 500 + 1)) conv=notrunc status=none; done
for sig in INT TERM; do
    R=$WORK/sig-$sig
    sf "$R" repo create --quiet
    "$SNAPFERRY" -r "$R" --password-file "$WORK/password" backup "$WORK/big" --as "t@h:/$sig" \
        --json --no-direct >"$WORK/log" 2>"$WORK/err" &
    pid=$!
    for _ in $(seq 100); do [ "$(packs "$R")" -ge 1 ] && break; sleep 0.02; done
    kill -$sig $pid
    wait $pid; rc=$?
    if [ $rc -eq 0 ]; then skip "SIG$sig" "the backup ended before the signal came"; continue; fi
    same "SIG$sig: exit code" $rc 130
    check "SIG$sig: says that the next run continues" grep -q 'resumes there' "$WORK/err"
    check "SIG$sig: the checkpoint is listed" \
        sh -c "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' snapshot list --all | grep -q incomplete"
    out=$(sf "$R" backup "$WORK/big" --as "t@h:/$sig" --json)
    same "SIG$sig: the next run is complete" "$(result incomplete <<<"$out")" false
    check "SIG$sig: the checkpoint is gone" \
        sh -c "! '$SNAPFERRY' -r '$R' --password-file '$WORK/password' snapshot list --all | grep -q incomplete"
    expect "SIG$sig: all of it verifies" 0 -- sf "$R" verify --quiet
done
finish
