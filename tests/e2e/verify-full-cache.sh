#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The file system of the cache directory becomes full while a verification runs: it goes on without notes, finds what it
# would have found, and says so; one that is interrupted then is resumed from what was noted before, and from no more.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a full cache directory"
R=$REPO T=$WORK/tiny SIZE=$((80 << 20))
mkdir "$T"
mount -t tmpfs -o size=32m tmpfs "$T"; at_exit "umount -l $T"
# By 8 bytes for each 128 KiB, notes of all of it are longer than a page.
sf "$R" repo create --quiet --splitter FIXED-128K
random_file "$WORK/a" $SIZE 1
sf "$R" backup "$WORK/a" --as a@h:/v --quiet || { fail "a backup"; finish; }
notes() { find "$T" -name 'verify-*' -size "$1"; }
# begin: a verification of all, at 8 MiB a second; sets PID.
begin() {
    env --default-signal=INT "$SF" -r "$R" --password-file "$WORK/password" --cache-dir "$T" verify \
        --read-limit 8MiB --workers 1 --json >"$WORK/out" 2>"$WORK/err" &
    PID=$!
}
# full NAME: once something is noted, there is room for no more.
full() {
    check "$1: something is noted" until_true 10 eval '[ -n "$(notes +0c)" ]'
    head -c 64M /dev/zero >"$T/fill" 2>/dev/null
    same "$1: the file system is full" "$(df --output=avail "$T" | tail -n 1 | tr -d ' ')" 0
}
warned() { grep -q 'cannot note in .*: No space left on device; if this run is interrupted' "$WORK/err"; }
flip() { # the byte at 1 MB before the end of the last pack: FIXED, it is read last
    local file byte
    file=$(find "$R/p" -name '*.f' -size +1M | sort | tail -n 1)
    byte=$(od -An -tu1 -j$(($(stat -c %s "$file") - 1000000)) -N1 "$file")
    printf "\\x$(printf %02x $((byte ^ 1)))" |
        dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 1000000)) conv=notrunc status=none
}

begin; full "all is whole"; wait $PID
same "it comes to its end, and all is well" "$?" 0
last() { jq -s -c "last | [$1]"; }
same "all was read, by this run" "$(last ".ok, .damages, .bytesRead >= $SIZE, .resumedBytes" <"$WORK/out")" \
    '[true,0,true,0]'
check "it has said that it notes no more" warned
same "and has removed what there was" "$(notes +0c)" ""

rm "$T/fill"; flip
begin; full "damage"; wait $PID
same "15: damage behind that is found" "$?" 15
same "one, and all was read" "$(last '.ok, .damages, .resumedBytes' <"$WORK/out")" '[false,1,0]'

rm "$T/fill"; flip
begin; full "interrupted"
check "it cannot note any more" until_true 15 warned
kill -INT $PID; wait $PID
same "130: interrupted" "$?" 130
noted=$(find "$T" -name 'verify-*' -printf '%s\n')
check "of its notes whole blocks are left ($noted bytes)" [ "${noted:-0}" -gt 500 -a "${noted:-0}" -le 4096 ]
rm "$T/fill"; flip
out=$(sf "$R" --cache-dir "$T" verify --json 2>"$WORK/err")
same "15: with room the next one finds damage behind it" "$?" 15
most=$((noted / 8 * 131072)) least=$((SIZE - 262144))
same "it goes on where notes end, and all counts" \
    "$(last ".damages, .bytesRead >= $least, .resumedBytes > 0, .resumedBytes <= $most" <<<"$out")" \
    '[1,true,true,true]'
finish
