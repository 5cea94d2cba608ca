#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The reflink driver killed at each of its durable steps, and the power cut there: what is left on the storage is seen
# by list and exposures, the same call again completes it, removing leaves nothing. (RS-20, RS-21, PVC-21, CF-27)
# Its mounts are its own: a copy of one in another test's namespace would keep the file system in use after the unmount,
# and the disk that is mounted instead has the same UUID.
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../lib.sh"
is_root || { skip "crashes of drivers" "needs root for mounts"; finish; }
uuid() { cat /proc/sys/kernel/random/uuid; }
truncate -s 100M "$WORK/far.disk"; mkdir "$WORK/far"
mkfs.ext4 -q "$WORK/far.disk" && mount -o loop "$WORK/far.disk" "$WORK/far" || { fail "an ext4 file system"; finish; }
at_exit "umount -l $WORK/far"

# call ARGS...: one call of the driver. die POINT ARGS...: the same, killed there.
call() { "$TOOLS/driver_call" --match "$M/vm/*.img" "$@" 2>"$WORK/err"; }
far() { call --into-name far --into-target "$WORK/far" "$@"; }
die() { local at=$1; shift; { SNAPFERRY_CRASH_AT=$at "$@"; } >"$WORK/out" 2>/dev/null; [ $? -eq 137 ]; }
# Every file that is there but the volumes, and every file that list and exposures tell of.
files() { find "$M" "$WORK/far" -type f ! -path '*/lost+found*' ! -name disk.img ! -name final.img | sort; }
told() { { call list; call exposures; far exposures; } | jq -r .handle | sort -u; }
# swept NAME: nothing that the sweep does not see.
swept() { same "$1: the sweep sees all that is there" "$(files)" "$(told)"; }
empty() { same "$1: nothing is left" "$(files)" ""; }

crashes() {
    local point alias n x t
    local fs=$1
    n=
    for point in hidden-dir-made native-filled native-tagged native-linked native-durable; do
        rm -rf "$M/vm/.snapferry"; alias=$(uuid)
        die $point call snapshot "$M/vm/disk.img" "$alias" || { fail "$fs $point: the call dies there"; continue; }
        swept "$fs $point"
        n=$(call snapshot "$M/vm/disk.img" "$alias")
        check "$fs $point: the same call again makes it whole" cmp "$M/vm/disk.img" "$(jq -r .handle <<<"$n")"
        same "$fs $point: and one only" "$(call list | wc -l)" 1
        call remove "$n" >/dev/null; empty "$fs $point"
    done
    for point in native-unlinked native-removed; do
        n=$(call snapshot "$M/vm/disk.img" "$(uuid)")
        die $point call remove "$n" || { fail "$fs $point: the call dies there"; continue; }
        swept "$fs $point"
        expect "$fs $point: removing again is no error" 0 gone -- call remove "$n"
        empty "$fs $point"
    done
    n=$(call snapshot "$M/vm/disk.img" "$(uuid)")
    for point in intermediate-filled intermediate-tagged intermediate-linked intermediate-durable; do
        for how in "call clone" "far copy"; do
            alias=$(uuid)
            die $point ${how% *} expose "$n" ${how#* } rw "$alias" ||
                { fail "$fs $point: ${how#* } dies there"; continue; }
            swept "$fs $point, ${how#* }"
            x=$(${how% *} expose "$n" ${how#* } rw "$alias")
            check "$fs $point: the same call again makes the ${how#* } whole" cmp "$M/vm/disk.img" \
                "$(jq -r .path <<<"$x")"
            die intermediate-unlinked ${how% *} unexpose "$x"
            ${how% *} unexpose "$x"; same "$fs $point: removed in two goes" "$(files)" "$(jq -r .handle <<<"$n")"
        done
    done
    for point in staging-filled staging-tagged staging-linked staging-durable; do
        alias=$(uuid)
        die $point call target "$M/vm/final.img" 9000001 "$alias" keep ||
            { fail "$fs $point: the call dies there"; continue; }
        swept "$fs $point"
        t=$(call target "$M/vm/final.img" 9000001 "$alias" keep)
        check "$fs $point: the same call again" test -f "$(jq -r .handle <<<"$t")"
        die staging-unlinked call abort "$t"
        call abort "$t"; same "$fs $point: aborted in two goes" "$(files)" "$(jq -r .handle <<<"$n")"
    done
    t=$(call target "$M/vm/final.img" 9000001 "$(uuid)" keep)
    if die staging-removed call abort "$t"; then
        call abort "$t"
        same "$fs staging-removed: aborting again is no error" "$? $(files)" "0 $(jq -r .handle <<<"$n")"
    else
        fail "$fs staging-removed: the call dies there"
    fi
    for point in staging-synced staging-renamed staging-committed; do
        alias=$(uuid)
        t=$(call target "$M/vm/final.img" 9000001 "$alias" keep); call fill "$n" "$t"
        die $point call commit "$t" || { fail "$fs $point: the call dies there"; continue; }
        case $point in
        staging-renamed | staging-committed) same "$fs $point: it is a volume" "$(call volumes | wc -l)" 2; same \
            "$fs $point: not the sweep's" "$(call exposures)" "" ;;
        *) same "$fs $point: not yet a volume" "$(call volumes | wc -l)" 1; same "$fs $point: the sweep knows it" \
            "$(call exposures | jq -r .alias)" "$alias" ;;
        esac
        expect "$fs $point: committed in the second go" 0 -- call commit "$t"
        same "$fs $point: a volume" "$(call volumes | wc -l)" 2
        check "$fs $point: the right bytes" cmp "$M/vm/disk.img" "$M/vm/final.img"
        same "$fs $point: nothing but the snapshot is left" "$(files)" "$(jq -r .handle <<<"$n")"
        rm "$M/vm/final.img"
    done
    # A staging file whose restore nobody knows any more goes the way of all intermediates.
    t=$(call target "$M/vm/final.img" 9000001 "$(uuid)" keep)
    call unexpose "$(call exposures)"
    same "$fs: the sweep removes a forgotten staging file" "$(files)" "$(jq -r .handle <<<"$n")"
    call remove "$n" >/dev/null; empty "$fs"
}

# The disk as it was at the moment of the kill, mounted instead of the one that lived on.
power_cut() {
    cp --sparse=always "$WORK/$FS.disk" "$WORK/cut.disk"
    umount "$M"; [ $FS != btrfs ] || btrfs device scan --forget >/dev/null 2>&1
    mv "$WORK/cut.disk" "$WORK/$FS.disk"
    mount -o loop "$WORK/$FS.disk" "$M"
}
cuts() {
    local alias n t
    alias=$(uuid); die native-durable call snapshot "$M/vm/disk.img" "$alias"; power_cut
    n=$(call list)
    same "$FS power cut: a snapshot that was taken is there" "$(jq -r .alias <<<"$n")" "$alias"
    check "$FS power cut: with all its bytes" cmp "$M/vm/disk.img" "$(jq -r .handle <<<"$n")"
    for point in native-filled native-tagged native-linked; do
        die $point call snapshot "$M/vm/disk.img" "$(uuid)"; power_cut
        same "$FS power cut at $point: the sweep sees all that is there" "$(files)" "$(told)"
    done
    call list | while IFS= read -r x; do [ "$(jq -r .alias <<<"$x")" = "$alias" ] || call remove "$x" >/dev/null; done
    t=$(call target "$M/vm/final.img" 9000001 "$(uuid)" keep); call fill "$n" "$t"
    die staging-committed call commit "$t"; power_cut
    check "$FS power cut: a restore that was committed is there" cmp "$M/vm/disk.img" "$M/vm/final.img"
    die native-removed call remove "$n"; power_cut
    same "$FS power cut: a removed snapshot does not come back" "$(call list)" ""
    empty "$FS power cut"
}

for FS in xfs btrfs; do
    if ! command -v mkfs.$FS >/dev/null; then skip "$FS" "mkfs.$FS is not installed"; continue; fi
    M=$WORK/$FS
    truncate -s 350M "$WORK/$FS.disk"; mkdir "$M"
    mkfs.$FS -q "$WORK/$FS.disk" >/dev/null 2>&1 && mount -o loop "$WORK/$FS.disk" "$M" ||
        { fail "$FS: make and mount"; continue; }
    at_exit "umount -l $M"
    mkdir "$M/vm"; head -c 9000001 /dev/urandom >"$M/vm/disk.img"; sync -f "$M"
    crashes $FS
    cuts
done
finish
