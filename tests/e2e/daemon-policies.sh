#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What backup-storage-class and backup-read-only do (PVC-01..09, PVC-21, decisions: exposing): for every cell where the
# intermediate really lies while the mover reads it, which mechanism was used, whether it can be written, that it is
# gone afterwards; and what is impossible is refused with its place in the configuration (PVC-10).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "intermediates on real file systems"
fs_make xfs xfs && fs_make far btrfs || exit 1
mkdir "$WORK/xfs/scratch" "$WORK/far/scratch"
image "$WORK/xfs/v.img" 16 7
cp "$WORK/xfs/v.img" "$WORK/v.orig"
daemon_setup
config_add classes "[storage-class \"near\"]
driver = reflink
match =
target = $WORK/xfs/scratch
[storage-class \"far\"]
driver = reflink
match =
target = $WORK/far/scratch"
config_class own "$WORK/xfs"
starts "the daemon starts"

intermediates() { find "$WORK/xfs" "$WORK/far" -name '*.intermediate'; }
# What the mover has open of ours, and how ("0" read-only).
source_of() {
    local fd
    for fd in /proc/"$1"/fd/*; do
        case $(readlink "$fd") in
        */.snapferry/*) echo "$(readlink "$fd") $(($(sed -n 's/^flags:[[:space:]]*\([0-9]*\)/0\1/p' \
            "/proc/$1/fdinfo/${fd##*/}") & 3))"; return ;;
        esac
    done
}

# cell NAME CLASS READ-ONLY MECHANISM WHERE
cell() {
    local name=$1 class=$2 ro=$3 mechanism=$4 where=$5 src found x
    config_class own "$WORK/xfs" "backup-storage-class = $class" "backup-read-only = $ro"
    ask reload --wait --quiet || { fail "$name: reload"; return; }
    running "$WORK/xfs/v.img"
    src=$(source_of "$PID")
    found=$(intermediates)
    x=$(doc "$O" | jq -c '.details.exposure')
    kill -CONT "$PID"
    same "$name: $mechanism" "$(jq -r .mechanism <<<"$x")" "$mechanism"
    if [ "$mechanism" = native ]; then
        same "$name: no intermediate" "$found" ""
        check "$name: the mover reads the native snapshot ($src)" \
            grep -q "^$WORK/xfs/.snapferry/.*\.native 0$" <<<"$src"
    else
        check "$name: one intermediate, where it belongs ($found)" \
            grep -qx "$where/.snapferry/[0-9a-f-]*\.intermediate" <<<"$found"
        # What is writable for a hook may be so for the mover, what is read-only must not.
        check "$name: the mover reads that ($src)" grep -qxE "$found $([ "$ro" = yes ] && echo 0 ||
            echo '[02]')" <<<"$src"
    fi
    same "$name: read_only in the record" "$(jq -r .read_only <<<"$x")" "$([ "$ro" = yes ] && echo true || echo false)"
    check "$name: place and time are recorded" jq -e '.where != "" and .seconds >= 0 and .size == 16777216' <<<"$x"
    same "$name: Completed" "$(wait_state "$A" 'Completed' 30)" Completed
    same "$name: gone afterwards" "$(intermediates)" ""
}
cell "own class, read-only" "" yes native ""
cell "own class, writable" "" no clone "$WORK/xfs"
cell "own class by name, writable" own no clone "$WORK/xfs"
cell "other class on the same file system, read-only" near yes clone "$WORK/xfs/scratch"
cell "other class on the same file system, writable" near no clone "$WORK/xfs/scratch"
cell "class elsewhere, read-only" far yes copy "$WORK/far/scratch"
cell "class elsewhere, writable" far no copy "$WORK/far/scratch"

# A writable intermediate is there so that a hook can repair it (PVC-25): the backup has what the hook made, the volume
# and its native snapshot do not.
cat >"$WORK/fix" <<'HOOK'
#!/bin/sh
printf 'fixed' | dd of="$SNAPFERRY_DEVICE" bs=1 seek=4096 conv=notrunc status=none
HOOK
chmod 755 "$WORK/fix"
config_class own "$WORK/xfs" 'backup-read-only = no' "hook-prepare = $WORK/fix" 'snapshots-to-retain = 1'
ask reload --wait --quiet
B=$(submit "$WORK/xfs/v.img")
same "prepare hook: Completed" "$(wait_state "$B" Completed 30)" Completed
cp "$WORK/v.orig" "$WORK/v.fixed"; printf 'fixed' | dd of="$WORK/v.fixed" bs=1 seek=4096 conv=notrunc status=none
restored_same "the repository has what the hook made" "$B" "$WORK/xfs/v.img" "$WORK/v.fixed" repository
restored_same "the native snapshot is as taken" "$B" "$WORK/xfs/v.img" "$WORK/v.orig" native
check "so is the volume" cmp "$WORK/v.orig" "$WORK/xfs/v.img"

# Impossible or wrong: at once, with file and line; the old configuration stays.
config_class own "$WORK/xfs" 'backup-storage-class = no-such-class'
expect "an unknown class is refused with file:line" 2 '50-own.ini:4' -- "$SNAPFERRY" check-config --config-dir "$CONF"
expect "reload refuses it too" 2 'no-such-class' -- ask reload --wait
same "status says so" "$(askj status | jq -r .config.ok)" false
config_add elsewhere "[storage-class \"pool\"]
driver = rbd
match ="
config_class own "$WORK/xfs" 'backup-storage-class = pool'
check "a class whose driver is not built in: a warning" ask reload --wait --quiet
B=$(submit "$WORK/xfs/v.img")
same "and an error when used" "$(wait_state "$B" Failed 10)" Failed
rm -f "$CONF/conf.d/elsewhere.ini"

# While an intermediate is made nothing else works on it or on its volume (PVC-23): a second backup of the volume, a
# reload, sweeps and a daemon that begins again find it being made.
config_class own "$WORK/xfs" 'backup-storage-class = far' 'copy-limit = 1MiB'
check "reload" ask reload --wait --quiet
random_file "$WORK/xfs/long.img" $((60 * MIB)) 23 # a minute of copying
# How many processes have a file open where it is made (it has no name until it is complete), again and again.
makers() {
    # shellcheck disable=SC2012
    ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v d="$WORK/far/scratch/.snapferry/" '/^\/proc/ { p = $1 }
        index($0, d) && !seen[p]++ { n++ } END { print n + 0 }'
}
watch_makers() { while [ ! -e "$WORK/watched" ]; do makers; sleep 0.05; done >"$WORK/makers"; }
rm -f "$WORK/watched"
watch_makers &
WATCH=$!
A=$(submit "$WORK/xfs/long.img"); O=$(op_id "$A")
made() { [ "$(makers)" -gt 0 ]; }
same "it exposes" "$(wait_state "$O" Exposing 10)" Exposing
check "an intermediate is being made" until_true 10 made
B=$(submit "$WORK/xfs/long.img")
check "a second backup of the volume waits for it" jq -e --arg a "$A" '.state == "Queued" and .blocked_by == $a' \
    <<<"$(doc "$B")"
ask reload --wait --quiet; ask scan --wait --quiet; ask native prune --quiet
same "it still exposes, in its first attempt" "$(doc "$O" | jq -c '[.state, .attempt]')" '["Exposing",null]'
daemon_kill
starts "the daemon is killed and begins again"
same "it exposes" "$(wait_state "$O" Exposing 10)" Exposing
check "the intermediate is made anew" until_true 10 made
same "the second one still waits" "$(state "$B")" Queued
ask cancel "$B" "$A" --wait --quiet
touch "$WORK/watched"
wait $WATCH
rm -f "$WORK/xfs/long.img"
check "somebody made it ($(sort "$WORK/makers" | uniq -c | tr '\n' ';'))" grep -qx 1 "$WORK/makers"
check "never two at once" eval '! grep -qvx "[01]" "$WORK/makers"'

# The prepare timeout: diagnosed, and what was made is gone.
config_class own "$WORK/xfs" 'backup-storage-class = far' 'copy-limit = 1MiB' 'snapshot-timeout = 1s' \
    'prepare-timeout = 2s' 'retries = 0'
check "reload" ask reload --wait --quiet
B=$(submit "$WORK/xfs/v.img")
same "prepare timeout: Failed" "$(wait_state "$B" Failed 20)" Failed
check "the record names stage and time" \
    jq -e '.error.stage == "expose" and (.error.message | test("timed out after 2 s|prepare"))' \
    <<<"$(doc "$(op_id "$B")")"
expect "the command tells it" 0 'expose' -- ask describe "$B"

# No space for a copy: seen before it begins.
dd if=/dev/zero of="$WORK/far/filler" bs=1M status=none 2>/dev/null; sync -f "$WORK/far"
config_class own "$WORK/xfs" 'backup-storage-class = far' 'retries = 0'
check "reload" ask reload --wait --quiet
B=$(submit "$WORK/xfs/v.img")
same "no space for the copy: Failed" "$(wait_state "$B" Failed 20)" Failed
check "in words" jq -e '.error.class == "no-space"' <<<"$(doc "$(op_id "$B")")"
rm -f "$WORK/far/filler"
clean "nothing is left behind" 8 "$WORK/xfs" "$WORK/far"
explain_failure
finish
