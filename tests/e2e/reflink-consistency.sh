#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Native snapshots of an image that is written to all the time, on XFS and btrfs: each is one point in time, with every
# write that had returned before it and none that began after it. (RS-20, PVC-24; decisions 7: a frozen file system)
. "$(dirname "$0")/../lib.sh"
is_root || { skip "snapshots under load" "needs root for mounts"; finish; }
ROUNDS=${ROUNDS:-6}
uuid() { cat /proc/sys/kernel/random/uuid; }

for fs in xfs btrfs; do
    if ! command -v mkfs.$fs >/dev/null; then skip "$fs" "mkfs.$fs is not installed"; continue; fi
    truncate -s 600M "$WORK/$fs.disk"; mkdir "$WORK/$fs"
    mkfs.$fs -q "$WORK/$fs.disk" >/dev/null 2>&1 && mount -o loop "$WORK/$fs.disk" "$WORK/$fs" ||
        { fail "$fs: make and mount"; continue; }
    at_exit "umount -l $WORK/$fs"
    for mode in buffered direct mmap; do
        image=$WORK/$fs/$mode.img status=$WORK/$fs-$mode.status
        "$TOOLS/driver_writer" write "$image" "$status" $mode 3000 2>"$WORK/writer.err" &
        writer=$!
        at_exit "kill -9 $writer"
        for _ in $(seq 200); do
            [ "$("$TOOLS/driver_writer" status "$status" 2>/dev/null || echo 0)" -gt 300 ] && break
            sleep 0.02
        done
        bad= natives=() bounds=()
        for i in $(seq "$ROUNDS"); do
            low=$("$TOOLS/driver_writer" status "$status")
            n=$("$TOOLS/driver_call" --match "$WORK/$fs/*.img" snapshot "$image" "$(uuid)" 2>"$WORK/err") ||
                bad="$bad $i: $(cat "$WORK/err")"
            natives+=("$n") bounds+=("$low $("$TOOLS/driver_writer" status "$status")")
            sleep 0.1
        done
        same "$fs $mode: $ROUNDS snapshots while it is written to" "$bad" ""
        # A copy by reading is what a snapshot must not be like: the check has to see it.
        if [ $mode = buffered ]; then
            torn=
            for _ in 1 2 3 4 5; do
                low=$("$TOOLS/driver_writer" status "$status")
                cp --reflink=never "$image" "$WORK/copy"
                "$TOOLS/driver_writer" check "$WORK/copy" "$low" "$("$TOOLS/driver_writer" status "$status")" \
                    >/dev/null || torn=yes
            done
            same "$fs: a copy by reading mixes moments, and the check sees it" "$torn" yes
        fi
        check "$fs $mode: the writer wrote on ($("$TOOLS/driver_writer" status "$status") writes)" kill -0 $writer
        kill -9 $writer; wait $writer 2>/dev/null
        bad= seen=
        for i in "${!natives[@]}"; do
            read -r low high <<<"${bounds[$i]}"
            x=$("$TOOLS/driver_call" --match "$WORK/$fs/*.img" expose "${natives[$i]}" native ro "" 2>&1)
            "$TOOLS/driver_call" --match "$WORK/$fs/*.img" cat "$x" >"$WORK/copy" 2>"$WORK/err"
            out=$("$TOOLS/driver_writer" check "$WORK/copy" "$low" "$high" 2>&1) || bad="$bad $i: $out"
            seen="$seen ${out##* }"
        done
        same "$fs $mode: each is one point in time" "$bad" ""
        check "$fs $mode: and they are different ones:$seen" test "$(wc -w <<<"$seen")" \
            -eq "$(tr ' ' '\n' <<<"$seen" | grep . | sort -u | wc -l)"
    done

    # Frozen: a snapshot waits, for as long as it takes; the daemon gives it a process of its own and a deadline.
    if command -v fsfreeze >/dev/null; then
        image=$WORK/$fs/buffered.img alias=$(uuid)
        fsfreeze -f "$WORK/$fs"; at_exit "fsfreeze -u $WORK/$fs"
        "$TOOLS/driver_call" --match "$WORK/$fs/*.img" snapshot "$image" "$alias" >"$WORK/out" 2>&1 &
        pid=$!
        sleep 0.5
        check "$fs: on a frozen file system it waits" kill -0 $pid
        fsfreeze -u "$WORK/$fs"
        wait $pid; same "$fs: and goes on when that is thawed" $? 0
        fsfreeze -f "$WORK/$fs"
        timeout -s KILL 1 "$TOOLS/driver_call" --match "$WORK/$fs/*.img" snapshot "$image" "$(uuid)" >"$WORK/out" 2>&1
        same "$fs: killed at its deadline it ends at once or with the thaw" $? 137
        fsfreeze -u "$WORK/$fs"
        same "$fs: the one that was waited for is there, the killed one is not" \
            "$("$TOOLS/driver_call" --match "$WORK/$fs/*.img" list |
                grep -c "$alias"),$("$TOOLS/driver_call" --match "$WORK/$fs/*.img" list | wc -l)" \
            "1,$((3 * ROUNDS + 1))"
    else
        skip "$fs: frozen" "fsfreeze is not installed"
    fi
done
finish
