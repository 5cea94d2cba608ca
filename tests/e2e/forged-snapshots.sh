#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Another client of the repository puts manifests of its own in place of those that a backup wrote, under their ids.
# What is asked before a native snapshot is pruned (RS-18, issue 13) compares source, tag of the operation, time and
# size with the record, and reads data: the native snapshot stays, and status says why, until the repository is right
# again.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a file system with native snapshots"
fs_make xfs xfs 500 || exit 1
forged="source operation time end size image malformed"
kinds="$forged none"
for k in $kinds; do random_file "$WORK/xfs/$k.img" 3000000 ${#k}; done
random_file "$WORK/xfs/size.img" 2000000 9
daemon_setup
config_class images "$WORK/xfs" 'snapshots-to-retain = 1'
config_add 80-job "[job \"nightly\"]
volumes = class:images"
starts "the daemon starts" || { explain_failure; finish; }
manifests() { CACHE=$WORK/cache.tool "$TOOLS/manifests" "$REPO" "$WORK/password" "$@"; }
backup() {
    local k
    for k in $kinds; do echo "$1 $k" | dd of="$WORK/xfs/$k.img" bs=1 conv=notrunc status=none; done
    askj backup --job nightly --wait | jq -r .id
}
of() { jq -c --arg p "$WORK/xfs/$1.img" 'select(.data.source.path == $p)' "$WORK/written"; }

A=$(backup 1)
same "a backup of all" "$(state "$A")" Completed
check "nothing to complain about" ask status --check --quiet
manifests list snapshot >"$WORK/written"
same "each has its manifest" "$(wc -l <"$WORK/written")" "$(wc -w <<<"$kinds")"
for k in $kinds; do natives_of "$WORK/xfs/$k.img" >"$WORK/native.$k"; done
root_of() { of "$1" | jq .data.rootEntry; }
none=$(root_of none)
missing=k$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
{
    of source | jq -c '.data.source.path = "/another" | .labels.path = "/another"'
    of operation | jq -c '.data.tags["tag:operation"] = "another" | .labels["tag:operation"] = "another"'
    of time | jq -c '.data.startTime = "2020-01-01T00:00:00Z" | .data.endTime = "2020-01-01T00:01:00Z"'
    of end | jq -c '.data.endTime = "2036-01-01T00:00:00Z"'
    of size | jq -c --argjson r "$none" '.data.rootEntry = $r'
    of image | jq -c --arg o "$missing" '.data.rootEntry.obj = $o'
    of malformed | jq -c 'del(.data.rootEntry)'
} | manifests put
same "they are in place of what was written" \
    "$(manifests list snapshot | jq -r .id | sort)" "$(jq -r .id "$WORK/written" | sort)"
check "and differ from it" eval '! diff -q <(manifests list snapshot | sort) <(sort "$WORK/written") >"$WORK/out"'

B=$(backup 2)
same "the next backup completes" "$(state "$B")" Completed
pruned() { ! natives_of "$WORK/xfs/$1.img" | grep -qxFf "$WORK/native.$1"; }
check "what is what was written: its native snapshot goes" until_true 20 pruned none
for k in $forged; do
    check "forged $k: the native snapshot stays" eval "! pruned $k"
done
expect "status --check fails" 3 'main": 6 snapshots of backups are damaged or not what was backed up' -- \
    ask status --check
expect "and tells of one what is wrong" 3 'it (is a snapshot of|was written by|was started at|ended at)|volume.img' -- \
    ask status --check
stops "a restart"
starts "changes nothing" || { explain_failure; finish; }
for k in $forged; do
    check "forged $k: it stays" eval "! pruned $k"
done

# What was written is put back.
manifests put <"$WORK/written"
C=$(backup 3)
same "another one completes" "$(state "$C")" Completed
for k in $kinds; do
    [ $k = malformed ] ||
        check "$k: the native snapshot goes when the repository is right again" until_true 20 pruned $k
done
reasons=$(askj native list |
    jq -r --arg a "$(<"$WORK/native.malformed")" '.natives[] | select(.alias == $a) | .reasons')
same "what was no snapshot at all is not asked about again: the native snapshot is the only copy" "$reasons" only-copy
check "and nothing is left to complain about" until_true 20 ask status --check --quiet
stops "it stops"
finish
