#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Restores by the daemon to images of Ceph, on a real cluster: new ones, ones that exist, differential, of a range. The
# mover gets a socket. What is in use is left alone; a mover, a server, the daemon that are killed: it goes on where it
# was; one that is canceled leaves an image as it was, and no new one. (CF-51, CF-33, E-02, E-06, E-07, RS-20, MS-09)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "restores to images of Ceph under the daemon"
rbd_need vms nix
rbd_beside_daemon
rbd create -s 48M vms/web1
rbd_io vms/web1 w:1048576:25165824 w:41943040:1048576
daemon_setup 'changed-blocks = auto' 'retries = 20' || { fail "setup"; finish; }
rbd_class 'vms/*' 'write-limit = 12MiB'
starts "the daemon starts"
A=$(submit vms/web1)
same "a backup" "$(wait_state "$A" Completed 90)" Completed
rbd export --no-progress vms/web1 - >"$WORK/orig"

# begin TARGET OPTIONS...: from the repository; sets R (the restore) and O (its operation). begin_from native|auto
# TARGET OPTIONS...: of the volume VOLUME.
VOLUME=vms/web1
begin_from() {
    R=$(askj restore "$A/$VOLUME" "${@:2}" --from "$1" 2>"$WORK/err" | jq -r '.restore // empty')
    [ -n "$R" ] && O=$(op_id "$R")
}
begin() { begin_from repository "$@"; }
# completed NAME IMAGE
completed() {
    local s
    s=$(wait_state "$R" Completed 120)
    if [ "$s" = Completed ] && cmp <(rbd export --no-progress "$2" -) "$WORK/orig" >/dev/null; then
        pass "$1: Completed, with equal bytes"
    else
        fail "$1: $s" "$(doc "$O" | jq -c '.error // .')" "$(tail -n 5 "$LOG")"
    fi
}
op() { doc "$O" | jq -r "$1"; }
images() { rbd ls --format json vms | jq -r '.[]' | sort | xargs; }
ours() { # IMAGE: what a restore has left in it
    rbd snap ls --all "$1" --format json | jq -r '.[].name' | grep before
    rbd image-meta ls "$1" --format json | jq -r 'keys[]' | grep 'snapferry\.restore\.'
}
noted() {
    local n
    for ((n = 0; n < 300 * PATIENCE; n++)); do
        grep -qsE ' [1-9][0-9]*$' $(find "$CACHE" -name 'restore-export-*' ! -name '*.*') && return
        sleep 0.1
    done
    return 1
}
pid_now() {
    sql "SELECT json_extract(doc, '$.identity.pid') FROM operations WHERE id = '$O' AND state = 'Running'" 2>/dev/null
}
server() { pgrep -f "snapferry-rbd .*$ceph_dir/ceph.conf.* fill"; }
# Its server waits meanwhile, so that it does not end before.
cancel() {
    local pid
    until_true 30 server
    pid=$(server)
    kill -STOP "$pid"
    ask cancel "$R" >/dev/null
    kill -CONT "$pid"
}
# IMAGE OPTION...: a restore over it that is canceled, or into a new one. On a busy machine it may end before that: then
# another one, twice at most.
canceled() {
    local n new=
    images | grep -qw "${1#*/}" || new=$1
    for n in 1 2 3; do
        begin "$@"
        noted
        cancel
        [ "$(wait_state "$R" Canceled 90)" = Completed ] || return
        if [ -n "$new" ]; then rbd rm --no-progress "$1"; else
            fill "$1"
            rbd export --no-progress "$1" - >"$WORK/other"
        fi
    done
}
resumed() { check "$1" test "$(op '.result.resumedFrom // 0')" -gt 0; }
fill() { rbd_io "$1" w:0:50331648; } # with something else

# From the native snapshot, which is kept for the next backup.
native() { rbd snap ls vms/web1 --format json | jq -r '.[].name | select(startswith("snapferry-"))'; }
kept=$(native)
begin_from native vms/back
completed "a new image from the native snapshot" vms/back
same "it was from that" "$(doc "$R" | jq -r .from)" native
same "nothing of ours is left in it" "$(ours vms/back)" ""
rbd_io vms/back w:0:50331648
begin_from auto vms/back --overwrite
completed "into an image that exists" vms/back
same "from the native snapshot unasked" "$(doc "$R" | jq -r .from)" native
same "nothing of ours is left in it" "$(ours vms/back)" ""
rbd_io vms/web1 w:4194304:65536 d:8388608:4194304
begin_from native vms/web1 --overwrite
completed "into the image itself" vms/web1
same "nothing of ours is left in it, but its native snapshot" "$(ours vms/web1) $(native)" " $kept"
rbd rm --no-progress vms/back
expect "to a file it is not possible" 16 'of another kind of storage' -- \
    ask restore "$A/vms/web1" "$WORK/file" --from native --wait

begin vms/web2
completed "a new image" vms/web2
same "nothing of ours is left in it" "$(ours vms/web2)" ""
same "and no other image" "$(images)" "web1 web2"
check "what is zero holds no space" test "$(ceph_tool rados -c "$ceph_dir/ceph.conf" -p vms ls |
    grep -c "rbd_data.$(rbd info vms/web2 --format json | jq -r .id)\\.")" -lt 12
begin nix/other
completed "in a pool of no class: the cluster is that of the volume" nix/other
begin vms/web2
same "one that exists is refused" "$(wait_state "$R" Failed 60)" Failed
check "with what to do" eval 'op .error.message | grep -q "vms/web2 exists"'
expect "no image" 2 'must be an absolute path' -- ask restore "$A/vms/web1" a/b/c/d
fill vms/web1
begin vms/web1 --overwrite --verify
completed "the image itself, and all is read back" vms/web1
same "it has been" "$(op .result.verifiedBytes)" $((48 << 20))
same "nothing of ours is left in it" "$(ours vms/web1)" ""
rbd_io vms/web1 w:4194304:4096
begin vms/web1 --differential
completed "differential" vms/web1
check "little is written" test "$(op '.result.writtenBytes + .result.punchedBytes')" -le $((4 << 20))
B=$(submit vms/web1)
same "the next backup reads what has changed" \
    "$(wait_state "$B" Completed 90) $(doc "$B" | jq -r '.operations[0].result.cbtSource')" "Completed rbd"
check "bit for bit" eval 'ask restore "$B/vms/web1" "$WORK/by-file" --wait && cmp "$WORK/by-file" "$WORK/orig"'
fill vms/web2
rbd export --no-progress vms/web2 - >"$WORK/other"
begin vms/web2 --offset 2097152 --length 3000001
same "a range" "$(wait_state "$R" Completed 90)" Completed
rbd export --no-progress vms/web2 - >"$WORK/now"
check "of the same bytes" cmp -i 2097152 -n 3000001 "$WORK/now" "$WORK/orig"
check "and nothing else" eval 'cmp -n 2097152 "$WORK/now" "$WORK/other" && cmp -i 5097153 "$WORK/now" "$WORK/other"'

rbd_hold vms/web2 "$WORK/stored"
begin vms/web2 --overwrite
same "an image that is in use is refused" "$(wait_state "$R" Failed 60)" Failed
check "with what to do" eval 'doc "$O" | grep -q "vms/web2 is in use by client"'
same "and nothing is left in it" "$(ours vms/web2)" ""
rbd_let_go vms/web2

begin vms/web3
noted
kill -KILL "$(pid_now)"
completed "mover killed" vms/web3
resumed "it went on where it was"
fill vms/web2
begin vms/web2 --overwrite
noted
kill -KILL "$(server)"
until_true 60 eval '[ "$(doc "$O" | jq -r ".attempt // 0")" -gt 0 ]'
check "a server that is killed: tried again" test "$(op '.attempt // 0')" -gt 0
check "with the reason" eval 'doc "$O" | grep -q "cannot be written any more"'
completed "by another one" vms/web2
resumed "it went on where it was, too"
same "nothing of ours is left in it" "$(ours vms/web2)" ""
fill vms/web2
rbd export --no-progress vms/web2 - >"$WORK/other"
begin vms/web2 --overwrite
noted
pid=$(pid_now)
daemon_kill
kill -KILL "$pid"
starts "daemon and mover are killed, the daemon starts again"
completed "as by a reset" vms/web2
begin vms/web4
noted
daemon_kill
starts "the daemon alone is killed, and starts again"
completed "the mover goes on, and its server" vms/web4
same "once" "$(op '.attempt // 0')" 0

fill vms/web2
rbd export --no-progress vms/web2 - >"$WORK/other"
canceled vms/web2 --overwrite
same "a cancel" "$(state "$R")" Canceled
check "the image is what it was before" cmp <(rbd export --no-progress vms/web2 -) "$WORK/other"
same "nothing of ours is left in it" "$(ours vms/web2)" ""
canceled vms/web5
same "a cancel of a new image" "$(state "$R")" Canceled
same "leaves none" "$(images)" "web1 web2 web3 web4"
until_true 30 eval '! server'
same "no server is left" "$(server)" ""
# A copy of a native snapshot that takes some time: it is canceled, its server is killed, the daemon is killed.
BIG=$((96 << 20))
rbd create -s 96M vms/big
rbd_io vms/big w:0:$BIG
A=$(submit vms/big)
same "a larger image" "$(wait_state "$A" Completed 120)" Completed
rbd export --no-progress vms/big - >"$WORK/orig"
VOLUME=vms/big
begin_from native vms/slow
moves() { P=$(doc "$O") && jq -e '.progress.rate > 0' <<<"$P"; }
until_true 60 moves
same "a copy shows how far it has got, as a mover does" "$(jq -r '.progress | "\(.phase) \(.total) " +
    "\(.done > 0 and .done < .total) \(.read >= .done)"' <<<"$P")" "moving $BIG true true"
same "for the whole restore, too" "$(doc "$R" | jq -r '.progress | "\(.total) \(.done > 0) \(.rate > 0)"')" \
    "$BIG true true"
completed "it ends" vms/slow
same "and says how much it was" "$(doc "$R" | jq -r .size)" $BIG
check "write-limit is obeyed: all but the first piece at the rate" \
    test "$(doc "$R" | jq '.ended_ns - .started_ns')" -ge $(((BIG - (4 << 20)) / 12582912 * 1000000000))
rbd rm --no-progress vms/slow
rbd_io vms/big w:0:$BIG
rbd export --no-progress vms/big - >"$WORK/other"
# copies TARGET OPTIONS...: begins one, and stops its server in the middle.
copies() {
    begin_from native "$@"
    for ((n = 0; n < 400 * PATIENCE; n++)); do
        pid=$(server) && break
        sleep 0.02
    done
    for ((n = 0; n < 400 * PATIENCE; n++)); do
        [ "$(rbd snap ls vms/big --format json | jq -r '.[].name' | grep -c before)" = 0 ] || break
        sleep 0.02
    done
    kill -STOP "$pid"
    same "$1: its server is stopped before the end" "$(state "$R")" Moving
}
copies vms/big --overwrite
ask cancel "$R" >/dev/null
kill -CONT "$pid"
same "a cancel" "$(wait_state "$R" Canceled 120)" Canceled
check "the image is what it was before" cmp <(rbd export --no-progress vms/big -) "$WORK/other"
same "nothing of ours is left in it" "$(ours vms/big)" ""
copies vms/big --overwrite
kill -KILL "$pid"
completed "a server that is killed: tried again" vms/big
check "with the reason" test "$(op '.attempt // 0')" -gt 0
rbd_io vms/big w:0:$BIG
copies vms/big --overwrite
daemon_kill
kill -CONT "$pid"
starts "the daemon is killed, and starts again"
completed "it is completed" vms/big
same "nothing of ours is left in it" "$(ours vms/big)" ""
until_true 30 eval '! server'

# The second class of the kind selects nothing: which cluster is meant?
config_add 51-more "[storage-class \"more\"]
driver = rbd
match = other/*"
rm "$CONF/conf.d/50-ceph.ini"
config_add 52-third "[storage-class \"third\"]
driver = rbd
match = third/*"
check "other classes" ask reload --wait --quiet
expect "an image of no class, of several: refused" 2 'neither an absolute path nor an image of a storage class' -- \
    ask restore "$A/$VOLUME" vms/web9
stops "the daemon stops"
finish
