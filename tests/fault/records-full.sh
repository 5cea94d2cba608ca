#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon's records on a disk that is full (MS-21): the class, nothing half-written, and work goes on with room.
. "$(dirname "$0")/../lib.sh"
if ! is_root; then skip "records on a full disk" "needs root to mount"; finish; fi
R=$TOOLS/records
kinds=(tmpfs)
mkdir "$WORK/tmpfs" "$WORK/xfs"
mount -t tmpfs -o size=6m tmpfs "$WORK/tmpfs"; at_exit "umount -l $WORK/tmpfs"
truncate -s 300M "$WORK/image"
if command -v mkfs.xfs >/dev/null && mkfs.xfs -q "$WORK/image" && dev=$(loop_device "$WORK/image"); then
    at_exit "losetup -d $dev"
    if mount "$dev" "$WORK/xfs"; then
        at_exit "umount -l $WORK/xfs"
        kinds+=(xfs)
    fi
fi
for fs in "${kinds[@]}"; do
    M=$WORK/$fs S=$WORK/$fs/state
    check "$fs: some rows fit" "$R" "$S" write 0 20
    # Leave a little: the log needs room, the rest of the disk is somebody else's.
    head -c 1G /dev/zero >"$M/ballast" 2>/dev/null
    # A new log file and its index are needed at opening: with no byte left there is no opening.
    out=$("$R" "$S" check 2>&1); rc=$?
    if [ $rc -eq 0 ]; then
        pass "$fs: opening needed no new room"
    else
        same "$fs: 18: no room to open" $rc 18
        check "$fs: and it says so" grep -q 'No space left' <<<"$out"
    fi
    truncate -s -1M "$M/ballast"; sync
    done_rows=0
    for how in write beside; do
        in=; from=100; [ $how = beside ] && { in=" in a thread"; from=400; }
        out=$("$R" "$S" $how $from 150 2>"$WORK/err"); rc=$?
        same "$fs: 18: full while writing$in" $rc 18
        check "$fs: the class, and degraded$in" grep -qE '^[0-9]+ no-space degraded$' <<<"$out"
        check "$fs: what to do is said in one sentence$in" \
            grep -qE '^cannot .*records.db.*No space left on device' "$WORK/err"
        done_rows=$((done_rows + $(grep -cE '^[0-9]+$' <<<"$out")))
    done
    rm "$M/ballast"; sync
    out=$("$R" "$S" check 2>&1); rc=$?
    same "$fs: nothing is half-written" "$rc $out" "0 $((20 + done_rows)) rows"

    # The same process: full, then room again.
    mkfifo "$WORK/$fs.go"
    (
        exec 3<"$WORK/$fs.go"
        head -c 1G /dev/zero >"$M/ballast" 2>/dev/null
        read -r -u 3; rm "$M/ballast"
    ) &
    helper=$!
    { sleep 1; echo >"$WORK/$fs.go"; } &
    out=$("$R" "$S" write 1000 15 2>/dev/null; "$R" "$S" write 2000 1 2>&1)
    wait $helper
    same "$fs: works again with room" "$(tail -n 1 <<<"$out")" 2000
    ok=$(grep -cE '^[0-9]+$' <<<"$out")
    out=$("$R" "$S" check 2>&1)
    same "$fs: and all that was promised is there" "$out" "$((20 + done_rows + ok)) rows"
    check "$fs: no file is left over" \
        sh -c "! ls '$S' | grep -vE '^(holds|records\.(db|db-wal|db-shm|lock))\$' | grep -q ."
done

# A read-only file system.
mount -o remount,ro "$WORK/tmpfs"
expect "20: a read-only state directory" 20 -- "$R" "$WORK/tmpfs/state" check
expect "but it can be looked at" 0 ' rows' -- "$R" "$WORK/tmpfs/state" peek
finish
