#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A group of zvols of one pool, taken at one instant while a program writes to them in turn, by the driver and by the
# installed service; a kill at each step leaves nothing after a sweep; who cannot be among them is left out; volumes of
# two pools are taken one after the other; mounted file systems are frozen meanwhile. (CF-47, RS-12, RS-20, RS-21, E-04)
VM_VARIANT=zfs
VM_DISKS="pool:700M pond:200M"
: "${VM_TIMEOUT:=3500}"
. "$(dirname "$0")/lib.sh"
. tests/vm/lvm-lib.sh
DRIVER=zfs
modprobe zfs && zpool create -f tank "$(realpath "$(dev pool)")" && zpool create -f pond "$(realpath "$(dev pond)")" &&
    zfs create tank/vm && zfs create -s -V 8M tank/vm/a && zfs create -s -V 8M tank/vm/b &&
    zfs create -s -V 8M tank/vm/c && zfs create -s -V 8M pond/x || { echo "Bail out! no ZFS"; exit 1; }
A=/dev/zvol/tank/vm/a B=/dev/zvol/tank/vm/b C=/dev/zvol/tank/vm/c X=/dev/zvol/pond/x M='/dev/zvol/tank/vm/*'
for v in $A $B $C $X; do until_true 60 test -b $v; done
mkdir -p "$WORK"
ours() { zfs list -H -t volume,snapshot -o name | grep -E '[/@]snapferry-'; }
lines() { wc -l <<<"$1"; }
apart() { "$TOOLS/driver_writer" apart "$@"; }
status() { "$TOOLS/driver_writer" status "$WORK/status" 2>/dev/null || echo 0; }
writer() {
    "$TOOLS/driver_writer" pair $A $B $C "$WORK/status" direct 2>"$WORK/writer.err" &
    writer=$!
    until_true 60 eval '[ "$(status)" -gt 5 ]'
}
writer_ends() { kill $writer; wait $writer 2>/dev/null; }
writes() { local from; from=$(status); until_true 60 eval "[ \"\$(status)\" -gt $((from + 3)) ]"; }
one_instant() { case $1 in "0 0" | "0 1" | "1 0") true ;; *) false ;; esac; }
# read_apart SNAPSHOT...: how far they are apart, read from their devices.
read_apart() {
    local s x paths=() exposed=() rc
    for s; do
        x=$(call expose "$s" native ro "$(uuid)") || return
        exposed+=("$x") paths+=("$(jq -r .path <<<"$x")")
    done
    apart "${paths[@]}"
    rc=$?
    for x in "${exposed[@]}"; do call unexpose "$x"; done
    return $rc
}
remove_all() { local s; for s; do call remove "$s" >/dev/null; done; }

# ---- one instant ----
writer
bad="" skewed="" rounds=4
for ((i = 0; i < rounds; i++)); do
    mapfile -t three < <(call group $A "$(uuid)" $B "$(uuid)" $C "$(uuid)" 2>"$WORK/err")
    [ ${#three[@]} -eq 3 ] && [[ ${three[*]} != *failed* ]] || { bad+="$i: ${three[*]} $(cat "$WORK/err") "; break; }
    n=$(read_apart "${three[@]}")
    one_instant "$n" || bad+="$i: $n "
    remove_all "${three[@]}"
    writes
done
same "$rounds groups under writes to three volumes: at one instant" "$bad" ""
one=$(call snapshot $A "$(uuid)"); writes
two=$(call snapshot $B "$(uuid)"); writes
three=$(call snapshot $C "$(uuid)")
n=$(read_apart "$one" "$two" "$three")
check "one after the other they are not, and this test sees it ($n)" eval '! one_instant "$n"'
check "the program wrote on all the time ($(status))" kill -0 $writer
call list | while read -r s; do call remove "$s" >/dev/null; done
same "nothing is left" "$(ours)" ""
a=$(uuid) b=$(uuid) c=$(uuid)
mapfile -t three < <(call group $A "$a" $B "$b" $C "$c")
same "each is as if it had been taken by itself: found under its alias" \
    "$(for x in "$A $a" "$B $b" "$C $c"; do call find "$(call resolve "${x% *}")" "${x#* }" | jq -r .handle; done |
        xargs)" "tank/vm/a@snapferry-$a tank/vm/b@snapferry-$b tank/vm/c@snapferry-$c"
same "with the tag of its own" "$(for x in "a@snapferry-$a" "b@snapferry-$b" "c@snapferry-$c"; do
    zfs get -H -o value snapferry:owner "tank/vm/$x" | jq -r '.[0] | .kind, .alias, .volume_name, .backup'
done | xargs)" "native $a $A manual-1 native $b $B manual-1 native $c $C manual-1"
same "taken in one transaction group" "$(zfs get -Hp -t snapshot -r -o value createtxg tank/vm | sort -u | wc -l)" 1
writer_ends
changed=$(call group $A "$(uuid)" $B "$(uuid)" $C "$(uuid)")
expect "what has changed is told between snapshots of groups" 0 '^listed$' -- \
    call changed "${three[1]}" "$(sed -n 2p <<<"$changed")"
call list | while read -r s; do call remove "$s" >/dev/null; done
same "and nothing is left of them" "$(ours)" ""

# ---- a kill at each step, again with the same names as after a restart of the daemon, or swept ----
left=""
put() { for v in $A $B $C; do printf %s "$1" | dd of=$v conv=notrunc,fsync status=none; done; }
for point in zfs-group-made zfs-group-tagged zfs-group-tagged:2 zfs-group-tagged:3; do
    for then in again sweep; do
        a=$(uuid) b=$(uuid) c=$(uuid)
        put 1
        SNAPFERRY_CRASH_AT=$point call group $A "$a" $B "$b" $C "$c" >/dev/null 2>&1 && left+="$point: not reached "
        found=$(call list)
        [ "$(lines "$found")" = 3 ] && grep -q "$a" <<<"$found" && grep -q "$c" <<<"$found" ||
            left+="$point: not found ($found) "
        if [ $then = again ]; then
            put 2
            found=$(call group $A "$a" $B "$b" $C "$c")
            [ "$(lines "$found")" = 3 ] && [[ $found != *failed* ]] || left+="$point: not again ($found) "
            zfs set snapdev=visible tank/vm
            for v in "a@snapferry-$a" "b@snapferry-$b" "c@snapferry-$c"; do
                until_true 60 test -b "/dev/zvol/tank/vm/$v"
                [ "$(head -c 1 "/dev/zvol/tank/vm/$v")" = 2 ] || left+="$point: $v is of another time "
            done
            zfs inherit snapdev tank/vm
        fi
        sweep_once >/dev/null
        left+=$(ours)
    done
done
same "after a kill at each step one sweep finds all that is left" "$left" ""
a=$(uuid) b=$(uuid)
SNAPFERRY_CRASH_AT=zfs-group-made call group $A "$a" $B "$b" >/dev/null 2>&1
expect "what a kill has left is no native snapshot" 16 'no longer on the storage' -- call find "$(call resolve $A)" "$a"
zfs rename "tank/vm/b@snapferry-$b" tank/vm/b@renamed
same "it is found under another name, too" "$(call list | jq -r '.alias + " " + .handle' | grep "$b")" \
    "$b tank/vm/b@renamed"
n=$(call snapshot $A "$a")
same "taken by itself under its alias, it has a tag of its own" "$(jq -r .backup <<<"$n")" manual-1
sweep_once >/dev/null
same "all of it is removed" "$(zfs list -H -t snapshot -o name)" ""

# ---- who cannot be among them, and who has no instant in common ----
a=$(uuid) b=$(uuid) c=$(uuid)
zfs snapshot "tank/vm/b@snapferry-$b"
mapfile -t three < <(call group $A "$a" $B "$b" $C "$c")
check "what has its name is not ours: it is left out (${three[1]})" grep -q '^failed: .*not ours' <<<"${three[1]}"
same "the others are taken" "$(jq -r .alias <<<"${three[0]} ${three[2]}" | xargs)" "$a $c"
remove_all "${three[0]}" "${three[2]}"
same "that of somebody else stays" "$(ours)" "tank/vm/b@snapferry-$b"
zfs destroy "tank/vm/b@snapferry-$b"
zfs create -o quota=300M tank/tight && zfs create -V 200M tank/tight/thick
T=/dev/zvol/tank/tight/thick
until_true 60 test -b $T
random_file /srv/noise $((8 * MIB)) 3
for i in $(seq 0 17); do dd if=/srv/noise of=$T bs=1M seek=$((i * 8)) oflag=direct status=none; done
zpool sync tank
mapfile -t three < <(call group $A "$(uuid)" $T "$(uuid)" $B "$(uuid)")
check "a thick volume without room for it is left out (${three[1]})" grep -q '^failed: .*out of space' <<<"${three[1]}"
check "the others are taken at one instant without it" test \
    "$(jq -r .volume_name <<<"${three[0]} ${three[2]}" | xargs)" = "$A $B"
same "and nothing of the attempt is left" "$(ours | wc -l)" 2
remove_all "${three[0]}" "${three[2]}"
zfs destroy -r tank/tight
expect "volumes of two pools have no instant in common" 0 '^apart: several domains' -- \
    call --match '/dev/zvol/*/x' group $A "$(uuid)" $X "$(uuid)"
same "nothing is left of this" "$(ours)" ""

# ---- mounted file systems are frozen meanwhile ----
zfs create tank/fs
for v in m n; do
    zfs create -s -V 64M tank/fs/$v
    until_true 60 test -b /dev/zvol/tank/fs/$v
    mkfs.ext4 -q /dev/zvol/tank/fs/$v && mkdir -p /mnt/$v && mount /dev/zvol/tank/fs/$v /mnt/$v
done
N=/dev/zvol/tank/fs/m O=/dev/zvol/tank/fs/n
busy() { for v in m n; do random_file /mnt/$v/file $((MIB)) 4; sync -f /mnt/$v; done; }
# dirty IMAGE...: those whose journal has something that is to be replayed.
dirty() { local i; for i; do dumpe2fs -h "$i" 2>/dev/null | grep -q needs_recovery && echo "$i"; done; }
wrote() { for v in m n; do timeout 5 touch /mnt/$v/again || return; done; }
busy
same "a mounted file system has a journal to be replayed, and this test sees it" "$(dirty $N $O | xargs)" "$N $O"
mapfile -t two < <(call group $N "$(uuid)" $O "$(uuid)")
paths=$(for s in "${two[@]}"; do call expose "$s" native ro "$(uuid)" | jq -r .path; done)
check "both are there" test "$(for i in $paths; do test -b "$i" && echo yes; done | xargs)" = "yes yes"
same "a group: what was frozen is clean" "$(dirty $paths)" ""
busy
n=$(call snapshot $N "$(uuid)")
x=$(call expose "$n" native ro "$(uuid)")
same "a snapshot of one volume, too" "$(dirty "$(jq -r .path <<<"$x")")" ""
call exposures | while read -r x; do call unexpose "$x"; done
sweep_once >/dev/null
for then in group snapshot; do
    case $then in group) more=("$O" "$(uuid)") ;; *) more=() ;; esac
    SNAPFERRY_CRASH_AT=frozen call $then $N "$(uuid)" "${more[@]}" >/dev/null 2>&1 && fail "frozen: not reached"
    check "killed while they are frozen ($then): they thaw" until_true 10 wrote
done
same "and nothing was taken" "$(ours)" ""

# ---- the service ----
setup 'slots = 2' 'changed-blocks = auto' 'retries = 0' 'snapshot-timeout = 15min'
group_of() { # CONSISTENCY VOLUME...
    local v consistency=$1
    shift
    printf '%s\n' '[storage-class "zvols"]' 'driver = zfs' 'target = tank' 'repository = main' \
        'match = dataset:tank/vm/* dataset:tank/fs/* dataset:pond/*'
    for v; do
        printf '[volume "%s"]\nname = %s\n' "$(basename "$v")" "$v"
        printf '%s\n' 'group = db' "group-consistency = $consistency" 'group-max-skew = 1ms'
    done
}
stored() { # BACKUP VOLUME FILE
    sf "$REPO" restore "$(ops "$1" | jq -r --arg v "$2" 'select(.volume == $v) | .result.snapshotID')" "$3" --force \
        --quiet
}
config_add zvols "$(group_of strict $A $B $C)"
expect "the configuration is accepted" 0 -- snapferry check-config
check "reload" systemctl reload snapferryd
taken() { [ "$(ops "$id" | jq 'select(.details.group_skew_ms >= 0) | 1' | wc -l)" -eq 3 ]; }
for i in 1 2; do
    writer
    id=$(submit $A $B $C)
    until_true 600 taken
    writer_ends # an emulated machine is slow enough without it
    same "backup $i of a strict group, no skew allowed" \
        "$(wait_state "$id" Completed 900) $(ops "$id" | jq -r .details.group_skew_ms | xargs)" "Completed 0 0 0"
    for v in a b c; do
        stored "$id" /dev/zvol/tank/vm/$v "$WORK/r$v"
    done
    n=$(apart "$WORK/ra" "$WORK/rb" "$WORK/rc")
    check "the restored images are of one instant ($n)" one_instant "$n"
done
check "the second one read what has changed" test "$(ops "$id" | jq -r .result.cbtSource | sort -u)" = zfs
same "one native snapshot of each is kept" "$(ours | wc -l)" 3
same "each with its bookmark" "$(zfs list -H -t bookmark -o name | sed 's/:.*//; s/#/@/' | sort)" "$(ours | sort)"
kept=$(ours)
# The step is killed in the middle of the group, by a variable of the service.
drop=/run/systemd/system/snapferryd.service.d
mkdir -p $drop
for point in zfs-group-made zfs-group-tagged:2; do
    daemon_stop
    printf '[Service]\nEnvironment=SNAPFERRY_CRASH_AT=%s\n' $point >$drop/crash.conf
    systemctl daemon-reload
    daemon_start
    id=$(submit $A $B $C)
    same "$point: the step is killed: Failed" "$(wait_state "$id" Failed 900)" Failed
    until_true 60 eval '[ "$(ours)" = "$kept" ]'
    same "$point: nothing of it is left" "$(ours)" "$kept"
done
rm -r $drop
daemon_stop; systemctl daemon-reload; daemon_start
config_add zvols "$(group_of strict $N $O)"
check "a group of mounted volumes" systemctl reload snapferryd
busy
id=$(submit $N $O)
same "Completed" "$(wait_state "$id" Completed 900)" Completed
for v in m n; do
    stored "$id" /dev/zvol/tank/fs/$v "$WORK/r$v"
done
check "both are restored" test "$(stat -c %s "$WORK/rm" "$WORK/rn" | xargs)" = "$((64 * MIB)) $((64 * MIB))"
same "and clean: the service may freeze" "$(dirty "$WORK/rm" "$WORK/rn")" ""
expect "with their files" 0 -- eval 'e2fsck -fn "$WORK/rm" && e2fsck -fn "$WORK/rn"'
config_add other "$(printf '[repository "other"]\npath = /mnt/n/repo\npassword-file = %s' "$PASSWORD")"
check "a repository on one of them" systemctl reload snapferryd
busy
id=$(submit $N $O)
same "Completed too" "$(wait_state "$id" Completed 900)" Completed
for v in m n; do stored "$id" /dev/zvol/tank/fs/$v "$WORK/r$v"; done
same "where a repository is nothing is frozen" "$(dirty "$WORK/rm" "$WORK/rn")" "$WORK/rn"
check "which the log has" eval 'log | grep -q "/mnt/n is not frozen.*the system or snapferryd needs it"'
rm $CONF/conf.d/other.ini
config_add zvols "$(group_of best-effort $A $X)"
check "a group of two pools" systemctl reload snapferryd
id=$(submit $A $X)
same "Completed, one after the other" "$(wait_state "$id" Completed 900)" Completed
check "the skew is measured: $(ops "$id" | jq -r .details.group_skew_ms | xargs) ms" test \
    "$(ops "$id" | jq -r .details.group_skew_ms | sort -un | head -n 1)" -gt 0
config_add zvols "$(group_of strict $A $X)"
check "strict" systemctl reload snapferryd
id=$(submit $A $X)
same "and refused where that is more than is allowed" "$(wait_state "$id" Failed 900)" Failed
expect "verify" 0 -- ask verify main --read-percent 100 --wait --quiet

# ---- a pool disappears that no pattern names ----
rm $CONF/conf.d/zvols.ini
config_add pools "$(printf '%s\n' '[storage-class "pools"]' 'driver = zfs' 'match = /dev/zvol/*/* /dev/zvol/*/*/*')"
check "a class of all pools" systemctl reload snapferryd
away() { ask status | grep -A1 'class "pools": the pool pond of 1 volume is no longer there: /dev/zvol/pond/x'; }
in_pools() { askj volumes | jq -e '.volumes[] | select(.name == "/dev/zvol/pond/x" and .class == "pools")'; }
check "the volume of the second one" until_true 120 in_pools
same "its pool is no problem" "$(away)" ""
zpool export pond
ask reload --wait --quiet # looks for volumes at once: here a look takes seconds, and is made each ten minutes
check "not imported: a problem" until_true 120 away
check "with what to do" eval 'away | grep "import it.*snapferry forget /dev/zvol/pond/x"'
expect "status --check" 3 -- ask status --check
zpool import pond
ask reload --wait --quiet
check "imported again: none" until_true 120 eval '! away'
finish
