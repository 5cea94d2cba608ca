#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A group of images of one subvolume of btrfs: taken at one instant from a snapshot of the subvolume while a program
# writes to them in turn, by the driver and under the daemon; a kill at each step leaves nothing; images that have no
# subvolume in common are taken one after the other. (CF-47, RS-12, RS-21, E-04)
. "$(dirname "$0")/../daemon-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "snapshots of subvolumes"
TOOLS=${TOOLS:-$(realpath "${BUILD:-build}")/tests/tools}
fs_make bt btrfs 400 && fs_make xfs xfs 320 || { fail "file systems"; finish; }
btrfs subvolume create "$WORK/bt/vm" >/dev/null && mkdir "$WORK/bt/vm/log"
A=$WORK/bt/vm/data.img B=$WORK/bt/vm/log/log.img
truncate -s 8M "$A" "$B" "$WORK/bt/other.img" "$WORK/xfs/a.img" "$WORK/xfs/b.img"
call() { "$TOOLS/driver_call" --match "$WORK/bt/vm/*.img" --match "$WORK/bt/vm/log/*.img" "$@"; }
uuid() { cat /proc/sys/kernel/random/uuid; }
subvolumes() { btrfs subvolume list "$WORK/bt" | awk '{print $NF}' | xargs; }
ours() { find "$WORK/bt" -path '*/.snapferry/*'; }
apart() { "$TOOLS/driver_writer" apart "$(jq -r .handle <<<"$1")" "$(jq -r .handle <<<"$2")"; }
status() { "$TOOLS/driver_writer" status "$WORK/status" 2>/dev/null || echo 0; }
writer() { # MODE
    rm -f "$WORK/status"
    "$TOOLS/driver_writer" pair "$A" "$B" "$WORK/status" "$1" &
    writer=$!
    at_exit "kill $writer"
    until_true 30 eval '[ "$(status)" -gt 20 ]'
}
writer_ends() { kill "$writer"; wait "$writer" 2>/dev/null; }

# ---- one instant ----
for mode in sync direct; do
    writer $mode
    bad="" skewed="" rounds=5
    for ((i = 0; i < rounds; i++)); do
        from=$(status)
        mapfile -t two < <(call group "$A" "$(uuid)" "$B" "$(uuid)" 2>"$WORK/err")
        [ ${#two[@]} -eq 2 ] && [[ ${two[*]} != *failed* ]] || { bad+="$i: ${two[*]} $(cat "$WORK/err") "; break; }
        n=$(apart "${two[@]}")
        [ "$n" = 0 ] || [ "$n" = 1 ] || bad+="$i: $n "
        for s in "${two[@]}"; do call remove "$s" >/dev/null; done
        until_true 20 eval '[ "$(status)" -gt $((from + 3)) ]'
        # One after the other they are of two instants: the test would see it.
        [ -z "$skewed" ] || continue
        one=$(call snapshot "$A" "$(uuid)")
        from=$(status)
        until_true 20 eval '[ "$(status)" -gt $((from + 3)) ]'
        other=$(call snapshot "$B" "$(uuid)")
        n=$(apart "$one" "$other")
        [ "$n" = 0 ] || [ "$n" = 1 ] || skewed=yes
        for s in "$one" "$other"; do call remove "$s" >/dev/null; done
    done
    same "$mode: $rounds groups under writes to both images: at one instant" "$bad" ""
    same "$mode: one after the other they are not, and this test sees it" "$skewed" yes
    check "$mode: the program wrote on all the time ($(status))" kill -0 "$writer"
    writer_ends
done
same "nothing is left, no subvolume either" "$(ours) $(subvolumes)" " vm"

# ---- who has no instant in common ----
expect "images of several subvolumes" 0 '^apart: several domains' -- call group "$A" "$(uuid)" "$WORK/bt/other.img" \
    "$(uuid)"
expect "images on XFS" 0 '^apart: no domain' -- call group "$WORK/xfs/a.img" "$(uuid)" "$WORK/xfs/b.img" "$(uuid)"
mkdir "$WORK/part" && mount --bind "$WORK/bt/vm/log" "$WORK/part"
at_exit "umount $WORK/part"
expect "a part of a subvolume that is mounted alone" 0 '^apart: no domain' -- call group "$WORK/part/log.img" \
    "$(uuid)" "$WORK/part/log.img" "$(uuid)"
if command -v setpriv >/dev/null; then
    unable() { setpriv --bounding-set -sys_admin "$TOOLS/driver_call" --match "$WORK/bt/vm/*.img" "$@"; }
    expect "a process that may not remove subvolumes makes none" 0 '^apart: no domain' -- unable group "$A" \
        "$(uuid)" "$B" "$(uuid)"
fi

# ---- a kill at each step, again with the same names as after a restart of the daemon, or swept ----
left=""
for point in subvolume-made native-filled native-durable native-durable:2 subvolume-removed; do
    for then in again sweep; do
        one=$(uuid) two=$(uuid)
        printf 1 | dd of="$A" conv=notrunc status=none; printf 1 | dd of="$B" conv=notrunc status=none
        SNAPFERRY_CRASH_AT=$point call group "$A" "$one" "$B" "$two" >/dev/null 2>&1 && left+="$point: not reached "
        [ $point = subvolume-removed ] || [[ $(subvolumes) == *"$one.group"* ]] || left+="$point: no subvolume "
        if [ $then = again ]; then
            printf 2 | dd of="$A" conv=notrunc status=none; printf 2 | dd of="$B" conv=notrunc status=none
            found=$(call group "$A" "$one" "$B" "$two")
            [ "$(head -qc 1 $(jq -r .handle <<<"$found"))" = 22 ] || left+="$point: of another time ($found) "
        fi
        for x in "$one $A" "$two $B"; do
            call remove "$(jq -cn --arg a "${x% *}" --arg v "${x#* }" '{alias: $a, volume_name: $v, volume_id: "x",
                backup: "", operation: "", repository: "", created_ns: 0, seq: 0, handle: "", size: 0, used: null,
                crash_consistent: true}')" >/dev/null || left+="$point: not removed "
        done
        left+=$(ours)
        [ "$(subvolumes)" = vm ] || left+="$point: $(subvolumes) "
    done
done
same "after a kill at each step nothing is left" "$left" ""

# ---- under the daemon ----
daemon_setup 'changed-blocks = auto' 'retries = 0' || { fail "setup"; finish; }
{
    printf '[storage-class "vms"]\ndriver = reflink\nmatch = %s/bt/vm/*.img %s/bt/vm/log/*.img\n' "$WORK" "$WORK"
    for v in "$A" "$B"; do
        printf '[volume "%s"]\nname = %s\n' "$(basename "$v" .img)" "$v"
        printf '%s\n' 'group = db' 'group-consistency = strict' 'group-max-skew = 1ms'
    done
} >"$CONF/conf.d/50-vms.ini"
starts "the daemon starts"
daemon_alive || finish
writer sync
stored() { # BACKUP VOLUME FILE
    sf "$REPO" restore "$(ops "$1" | jq -r --arg v "$2" 'select(.volume == $v) | .result.snapshotID')" "$3" --force \
        --quiet
}
for i in 1 2; do
    id=$(submit "$A" "$B")
    same "backup $i of a strict group, no skew allowed" \
        "$(wait_state "$id" Completed 90) $(ops "$id" | jq -r .details.group_skew_ms | xargs)" "Completed 0 0"
    stored "$id" "$A" "$WORK/ra" && stored "$id" "$B" "$WORK/rb"
    n=$("$TOOLS/driver_writer" apart "$WORK/ra" "$WORK/rb")
    check "the stored images are of one instant ($n)" test "$n" = 0 -o "$n" = 1
done
check "the second one read what has changed" test "$(ops "$id" | jq -r .result.cbtSource | sort -u)" = reflink
writer_ends
daemon_kill
# The child that takes them dies in the middle: both fail, and the sweep finds the snapshot of the subvolume.
daemon_start SNAPFERRY_CRASH_AT=subvolume-made
id=$(submit "$A" "$B")
same "the step is killed: both fail" "$(wait_state "$id" 'Failed' 90)" Failed
until_true 30 eval '[ "$(subvolumes)" = vm ]'
same "nothing of it is left" "$(subvolumes) $(stored_natives "$WORK/bt" | wc -l)" "vm 2"
daemon_kill
# And so does the daemon with it.
daemon_start SNAPFERRY_CRASH_AT=engine-snapshot-recorded
submit "$A" "$B" >/dev/null
check "and the daemon dies" daemon_gone 30
starts "killed when the snapshots exist, the daemon starts again"
until_true 60 settled
until_true 30 eval '[ "$(subvolumes) $(stored_natives "$WORK/bt" | wc -l)" = "vm 2" ]'
same "nothing of it is left but the parents of the next backups" \
    "$(subvolumes) $(stored_natives "$WORK/bt" | wc -l)" "vm 2"
stops "the daemon stops"
explain_failure
finish
