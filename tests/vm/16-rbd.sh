#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Images of Ceph that the kernel has mapped: the file systems on them are frozen while a snapshot is taken, by the
# driver and by the installed service, and thaw after a kill; a group of them at one instant; an incremental backup,
# restores to and beside what is mapped. The image of the machine is a variant with Ceph. (CF-08, CF-47, CF-48, E-18,
# RS-12, RS-20)
VM_VARIANT=ceph
VM_MEMORY=2048
: "${VM_TIMEOUT:=2400}"
. "$(dirname "$0")/lib.sh"
CEPH_ROOT='' RBD_PROGRAM=/usr/libexec/snapferry/snapferry-rbd TOOLS=/vm/stage/tools RBD_WATCH_S=30
. tests/ceph-lib.sh
DRIVER=rbd
mkdir -p "$WORK"
modprobe rbd && rbd_cluster vms || { echo "Bail out! no Ceph"; exit 1; }
uuid() { cat /proc/sys/kernel/random/uuid; }
call() { SNAPFERRY_NO_SYSTEMD=1 rbd_call --option ceph-user=snapferry --match 'vms/*' "$@"; }
# mapped IMAGE OPTION...: prints its device. The cluster speaks only the second version of the protocol.
mapped() { rbd device map "$1" -o "$(IFS=,; echo "ms_mode=crc${2:+,${*:2}}")"; }
write_new() { random_file "$1/file" $((2 * MIB)) "$2"; }
# Its journal has something that is to be replayed.
dirty() { dumpe2fs -h "$1" 2>/dev/null | grep -q needs_recovery; }
can_write() { timeout 5 touch "$1/again"; }
snap_of() { jq -r .handle <<<"$1"; }
exported() { rm -f "$2"; rbd export --no-progress "$1" "$2"; }

for i in a b; do
    rbd create -s 64M vms/$i
    declare "D$i=$(mapped vms/$i)"
done
check "two images are mapped: $Da $Db" test -b "$Da" -a -b "$Db"
mkfs.ext4 -q "$Da" && mkdir -p /mnt/a /mnt/b && mount "$Da" /mnt/a || { echo "Bail out! no file system"; exit 1; }

# ---- the driver ----
write_new /mnt/a 1; sync -f /mnt/a; echo x >/mnt/a/late
rbd snap create --no-progress vms/a@plain && exported vms/a@plain "$WORK/plain"
check "a snapshot by Ceph has a journal to be replayed, and this test sees it" dirty "$WORK/plain"
rbd snap rm --no-progress vms/a@plain
write_new /mnt/a 2; md5sum </mnt/a/file >"$WORK/sum"
n=$(call snapshot vms/a "$(uuid)")
exported "$(snap_of "$n")" "$WORK/now"
check "a snapshot by the driver" test -s "$WORK/now"
check "what was frozen is clean" eval '! dirty "$WORK/now"'
mkdir -p /mnt/x && mount -o loop,ro "$WORK/now" /mnt/x
check "and has all that was written, also what had not been synced" cmp <(md5sum </mnt/x/file) "$WORK/sum"
umount /mnt/x
check "it is written to again" can_write /mnt/a
call remove "$n" >/dev/null

# A snapshot of an image is mapped, another image, nothing is mounted: nothing to freeze.
rbd snap create --no-progress vms/b@others
Ds=$(rbd device map --read-only vms/b@others -o ms_mode=crc)
n=$(call snapshot vms/b "$(uuid)" 2>"$WORK/err")
check "an image that is mapped, with nothing on it" test -n "$(snap_of "$n")"
call remove "$n" >/dev/null
rbd device unmap "$Ds"; rbd snap rm --no-progress vms/b@others

# Why we do not read by the kernel.
write_new /mnt/a 3; sync -f /mnt/a
rbd snap create --no-progress vms/a@removed && exported vms/a@removed "$WORK/was"
Ds=$(rbd device map --read-only vms/a@removed -o ms_mode=crc)
check "a snapshot that is mapped" cmp "$Ds" "$WORK/was"
rbd snap rm --no-progress vms/a@removed
write_new /mnt/a 4; sync -f /mnt/a
check "is read by the kernel without an error when it is no longer there" \
    dd if="$Ds" of="$WORK/is" bs=1M iflag=direct status=none
check "but as something else" eval '! cmp -s "$WORK/is" "$WORK/was"'
rbd device unmap "$Ds"

# ---- kills ----
# One that is killed with the lock of the image holds up its writers until Ceph has dropped it.
for point in frozen rbd-tagged rbd-snapped; do
    write_new /mnt/a 3
    SNAPFERRY_CRASH_AT=$point call snapshot vms/a "$(uuid)" >/dev/null 2>&1 && fail "$point: it was not reached"
    check "killed at $point: it thaws" until_true 90 can_write /mnt/a
done
call list | while read -r n; do call remove "$n" >/dev/null; done
same "nothing is left" "$(rbd snap ls vms/a | grep -c snapferry)" 0

# ---- several at one instant: a program writes to both file systems in turn ----
mkfs.ext4 -q "$Db" && mount "$Db" /mnt/b || { echo "Bail out! no second file system"; exit 1; }
for m in a b; do head -c 8M /dev/zero >/mnt/$m/data; sync -f /mnt/$m; done
ours() { for i in a b d; do rbd snap ls vms/$i 2>/dev/null | grep -o 'snapferry-[0-9a-f-]*' | sed "s/^/$i@/"; done; }
status() { "$TOOLS/driver_writer" status "$WORK/status" 2>/dev/null || echo 0; }
writer() {
    rm -f "$WORK/status"
    "$TOOLS/driver_writer" pair /mnt/a/data /mnt/b/data "$WORK/status" direct 2>"$WORK/writer.err" &
    writer=$!
    until_true 60 eval '[ "$(status)" -gt 5 ]'
}
writer_ends() { kill $writer; wait $writer 2>/dev/null; }
writes() { local from; from=$(status); until_true 60 eval "[ \"\$(status)\" -gt $((from + 3)) ]"; }
one_instant() { case $1 in 0 | 1) true ;; *) false ;; esac; }
# files_apart IMAGE...: how many writes what is in these images is apart.
files_apart() {
    local i files=()
    for i; do
        mkdir -p "$i.mnt" && mount -o loop,ro "$i" "$i.mnt" || return
        files+=("$i.mnt/data")
    done
    "$TOOLS/driver_writer" apart "${files[@]}"
    for i; do umount "$i.mnt"; done
}
read_apart() {
    local n files=() k=0
    for n; do
        exported "$(snap_of "$n")" "$WORK/apart$k"
        files+=("$WORK/apart$((k++))")
    done
    files_apart "${files[@]}"
}
sweep_once() { call list | while read -r n; do call remove "$n" >/dev/null; done; }
writer
bad=""
for ((i = 0; i < 4; i++)); do
    mapfile -t two < <(call group vms/a "$(uuid)" vms/b "$(uuid)" 2>"$WORK/err")
    [ ${#two[@]} -eq 2 ] && [[ ${two[*]} != *failed* ]] || { bad+="$i: ${two[*]} $(cat "$WORK/err") "; break; }
    n=$(read_apart "${two[@]}")
    one_instant "$n" || bad+="$i: $n "
    sweep_once
    writes
done
same "4 groups under writes to the file systems of two images: at one instant" "$bad" ""
one=$(call snapshot vms/a "$(uuid)"); writes
two=$(call snapshot vms/b "$(uuid)")
n=$(read_apart "$one" "$two")
check "one after the other they are not, and this test sees it ($n)" eval '! one_instant "$n"'
check "the program wrote on all the time ($(status))" kill -0 $writer
writer_ends
sweep_once
left=""
for point in frozen rbd-group-made rbd-group-made:2 rbd-group-thawed; do
    for then in again sweep; do
        a=$(uuid) b=$(uuid)
        SNAPFERRY_CRASH_AT=$point call group vms/a "$a" vms/b "$b" >/dev/null 2>&1 && left+="$point: not reached "
        can_write /mnt/a && can_write /mnt/b || left+="$point: it does not thaw "
        if [ $then = again ]; then
            mapfile -t two < <(call group vms/a "$a" vms/b "$b")
            [ "$(jq -r .alias <<<"${two[*]}" | xargs)" = "$a $b" ] || left+="$point: not again (${two[*]}) "
        fi
        sweep_once
        left+=$(ours)
    done
done
same "after a kill at each step of a group it thaws, and one sweep finds all that is left" "$left" ""
a=$(uuid)
rbd snap create --no-progress "vms/b@snapferry-$a"
mapfile -t two < <(call group vms/a "$(uuid)" vms/b "$a")
check "what has its name is not ours: it is left out (${two[1]})" grep -q '^failed: .*not ours' <<<"${two[1]}"
check "the other one is taken" grep -q '"vms/a@snapferry-' <<<"${two[0]}"
rbd snap rm --no-progress "vms/b@snapferry-$a"
sweep_once
rbd create -s 32M vms/d
Dd=$(mapped vms/d)
# A table of two partitions of 14 MiB.
entry() { printf '\0\0\0\0\x83\0\0\0\0'"\\x$1"'\0\0\0\x70\0\0'; }
{ head -c 446 /dev/zero; entry 08; entry 78; head -c 32 /dev/zero; printf '\x55\xaa'; } >"$WORK/table"
dd if="$WORK/table" of="$Dd" conv=fsync status=none
rbd device unmap "$Dd"
Dd=$(mapped vms/d)
until_true 30 test -b "${Dd}p2"
mkfs.ext4 -q "${Dd}p1" && mkdir -p /mnt/d
check "one of two partitions is mounted" mount "${Dd}p1" /mnt/d
expect "an image with a partition that anybody may write to has no instant" 0 '^apart: several domains' -- \
    call group vms/a "$(uuid)" vms/d "$(uuid)"
umount /mnt/d
expect "nor one that nothing is mounted from" 0 '^apart: several domains' -- \
    call group vms/a "$(uuid)" vms/d "$(uuid)"
rbd device unmap "$Dd"
same "nothing is left of all this" "$(ours)" ""
umount /mnt/b

# ---- Ceph does not answer while a file system freezes ----
# The second report of the image, with which a snapshot begins, is the last that the store answers: the freeze waits for
# it, and for what a program writes.
osd() { pgrep -x ceph-osd; }
cat >"$WORK/stops" <<END
#!/bin/sh
$SNAPFERRY_RBD "\$@"
rc=\$?
case "\$*" in
*' report '*) [ ! -e $WORK/looked-up ] || kill -STOP $(osd); touch $WORK/looked-up ;;
esac
exit \$rc
END
chmod 755 "$WORK/stops"
head -c 4096 /dev/zero >/mnt/a/direct; sync -f /mnt/a
writer() {
    while [ ! -e "$WORK/enough" ]; do
        dd if=/dev/zero of=/mnt/a/direct bs=4k count=1 oflag=direct conv=notrunc status=none
    done
}
SNAPFERRY_RBD=$WORK/stops call --freeze-limit 2 snapshot vms/a "$(uuid)" >/dev/null 2>&1 &
caller=$!
until_true 60 grep -q '^State:.T' "/proc/$(osd)/status"
writer &
hung=$!
sleep 6 # longer than it may be frozen
check "Ceph does not answer: it freezes, and waits" grep -q '^State:.D' "/proc/$(pgrep -ox driver_call)/status"
pkill -KILL -x driver_call
kill -CONT "$(osd)"
wait $caller
check "the call was killed, and Ceph answers: it is written to again" \
    until_true 60 can_write /mnt/a
touch "$WORK/enough"; wait $hung
call list | while read -r n; do call remove "$n" >/dev/null; done
same "nothing is left of what was killed" "$(rbd snap ls vms/a | grep -c snapferry)" 0

# ---- a client that gives its lock to nobody ----
rbd device unmap "$Db"
Db=$(mapped vms/b exclusive)
mkfs.ext4 -q "$Db" && mount "$Db" /mnt/b && write_new /mnt/b 4
check "of an image that is mapped so Ceph itself can take no snapshot" \
    eval '! rbd snap create --no-progress vms/b@others'
expect "nor can we, and say why" 19 'a client has its lock and gives it to nobody' -- call snapshot vms/b "$(uuid)"
check "it is written to again" can_write /mnt/b
umount /mnt/b; rbd device unmap "$Db"

# ---- the installed service ----
setup 'changed-blocks = auto'
rbd_class 'vms/*'
check "a class of images" systemctl reload snapferryd
# backed_up: sets A. stored FILE: what the repository has of it then.
backed_up() {
    A=$(submit vms/a)
    same "$1: Completed" "$(wait_state "$A" Completed 300)" Completed
    stored() { sf "$REPO" restore "$(doc "$A" | jq -r '.operations[0].result.snapshotID')" "$1" --force --quiet; }
    stored "$WORK/restored"
    check "$1: what was frozen is clean" eval '! dirty "$WORK/restored"'
    mount -o loop,ro "$WORK/restored" /mnt/x
    check "$1: and has all that was written" cmp <(md5sum </mnt/x/file) <(md5sum </mnt/a/file)
    umount /mnt/x
    check "$1: it is written to again" can_write /mnt/a
}
write_new /mnt/a 5
backed_up "a mounted image"
write_new /mnt/a 6
backed_up "again"
same "again: what has changed was listed" "$(doc "$A" | jq -r '.operations[0].result.cbtSource')" rbd
sum=$(md5sum </mnt/a/file)
R=$(askj restore "$A/vms/a" vms/a --overwrite 2>/dev/null | jq -r .restore)
wait_state "$R" Failed 120 >/dev/null
check "what is mapped is not overwritten: $(error_of "$(op_id "$R")")" \
    grep -q 'client' <<<"$(error_of "$(op_id "$R")")"
same "and is as it was" "$(md5sum </mnt/a/file)" "$sum"
rbd create -s 64M vms/c
Dc=$(mapped vms/c)
check "a restore to the device of another image" ask restore "$A/vms/a" "$Dc" --from repository --overwrite --wait
mkdir -p /mnt/c && mount "$Dc" /mnt/c
check "is mounted, with all that was written" cmp /mnt/c/file /mnt/a/file
umount /mnt/c
# A group of both; then the step is killed in the middle of it, by a variable of the service.
Db=$(mapped vms/b)
mount "$Db" /mnt/b && head -c 8M /dev/zero >/mnt/b/data && sync -f /mnt/b # it was made anew above
for v in a b; do
    volumes+=$(printf '\n[volume "%s"]\nname = vms/%s\n' $v $v)$'\n'
    volumes+=$(printf '%s\n' 'group = db' 'group-consistency = strict' 'group-max-skew = 1ms' 'retries = 0')$'\n'
done
config_add group "$volumes"
check "a strict group of two images" systemctl reload snapferryd
for i in 1 2; do
    writer
    A=$(submit vms/a vms/b)
    until_true 300 eval '[ "$(ops "$A" | jq "select(.details.group_skew_ms >= 0) | 1" | wc -l)" -eq 2 ]'
    writer_ends
    same "backup $i of a strict group, no skew allowed" \
        "$(wait_state "$A" Completed 300) $(ops "$A" | jq -r .details.group_skew_ms | xargs)" "Completed 0 0"
    for v in a b; do
        sf "$REPO" restore "$(ops "$A" | jq -r --arg v vms/$v 'select(.volume == $v) | .result.snapshotID')" \
            "$WORK/r$v" --force --quiet
    done
    n=$(files_apart "$WORK/ra" "$WORK/rb")
    check "the file systems that were restored are of one instant ($n)" one_instant "$n"
done
kept=$(ours)
drop=/run/systemd/system/snapferryd.service.d
mkdir -p $drop
daemon_stop
printf '[Service]\nEnvironment=SNAPFERRY_CRASH_AT=rbd-group-made\n' >$drop/crash.conf
systemctl daemon-reload
daemon_start
A=$(submit vms/a vms/b)
same "the step is killed behind the first of both: Failed" "$(wait_state "$A" Failed 300)" Failed
check "both are written to again" eval 'can_write /mnt/a && can_write /mnt/b'
until_true 120 eval '[ "$(ours)" = "$kept" ]'
same "and nothing of it is left" "$(ours)" "$kept"
rm -r $drop
daemon_stop
finish
