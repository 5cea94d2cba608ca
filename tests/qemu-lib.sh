# SPDX-License-Identifier: GPL-2.0-or-later
# Virtual machines for tests, after lib.sh: real ones of QEMU, without anything to boot; the test writes to their
# drives in place of a guest.
for program in qemu-system-x86_64 qemu-img /usr/bin/python3; do
    command -v $program >/dev/null || { echo "Bail out! there is no $program: run make deps" >&2; exit 1; }
done
: "${PATIENCE:=1}"
declare -A vm_pid=()
# vm_start NAME IMAGE... [-- OPTIONS]: a machine with drives vda, vdb, ...; $WORK/vm/NAME.qmp is for snapferry,
# $WORK/NAME.test for the test.
vm_start() {
    local name=$1 letter=a options=() n
    shift
    mkdir -p "$WORK/vm"
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=(-blockdev "driver=file,node-name=file$letter,filename=$1,cache.no-flush=on"
            -blockdev "driver=${1##*.},node-name=vd$letter,file=file$letter,cache.no-flush=on"
            -device "virtio-blk-pci,id=dev$letter,drive=vd$letter")
        letter=$(tr a-y b-z <<<"$letter")
        shift
    done
    [ $# -eq 0 ] || shift
    rm -f "$WORK/vm/$name.qmp" "$WORK/$name.test"
    qemu-system-x86_64 -display none -nodefaults -machine q35 -accel tcg -m 32 "${options[@]}" "$@" \
        -qmp "unix:$WORK/vm/$name.qmp,server=on,wait=off" -qmp "unix:$WORK/$name.test,server=on,wait=off" \
        >"$WORK/$name.log" 2>&1 &
    vm_pid[$name]=$!
    at_exit "kill -KILL ${vm_pid[$name]}"
    for ((n = 0; n < 300 * PATIENCE; n++)); do
        [ ! -S "$WORK/$name.test" ] || ! qmp "$name" query-status >/dev/null 2>&1 || return 0
        kill -0 "${vm_pid[$name]}" 2>/dev/null || break
        sleep 0.1
    done
    echo "QEMU does not start: $(cat "$WORK/$name.log")" >&2
    return 1
}
# vm_end NAME: as a power failure of the machine.
vm_end() {
    kill -KILL "${vm_pid[$1]}"
    wait "${vm_pid[$1]}" 2>/dev/null
    return 0
}
# qmp NAME COMMAND [JSON]...
qmp() {
    local name=$1
    shift
    timeout 100 /usr/bin/python3 tests/tools/qmp.py "$WORK/$name.test" "$@"
}
# vm_io NAME DRIVE COMMAND...: commands of qemu-io, as the guest's device does them. Fails if one does; QEMU answers
# nothing, and has their output in its own.
vm_io() {
    local name=$1 device=/machine/peripheral/dev${2#vd}/virtio-backend words=() c from
    from=$(stat -c %s "$WORK/$name.log")
    shift 2
    for c in "$@"; do
        words+=(human-monitor-command "$(jq -cn --arg c "qemu-io -d $device \"$c\"" '{"command-line": $c}')")
    done
    qmp "$name" "${words[@]}" >"$WORK/io.out" 2>&1 || return
    tail -c +$((from + 1)) "$WORK/$name.log" >"$WORK/io.out"
    ! grep -q 'failed\|not found\|rror' "$WORK/io.out"
}
# vm_ours NAME: everything in the machine that has a name of ours, one in a line.
vm_ours() {
    qmp "$1" query-named-block-nodes '{"flat": true}' query-block-exports query-fdsets query-jobs |
        jq -r '.[] | ."node-name", ."dirty-bitmaps"[]?.name, .id, .fds[]?.opaque | select(. != null)' |
        grep '^snapferry' | sort
}
