#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Restores to images of a Ceph cluster that is full: they fail soon, with the reason, nothing incomplete has the name
# that was asked for, an image that exists is as it was, a cancel ends, and with space again the same restore is
# completed.
# (CF-51, RS-20, E-06)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "restores to a full cluster of Ceph"
rbd_need vms
rbd_beside_daemon
rbd create -s 48M vms/web1
rbd_io vms/web1 w:1048576:25165824
rbd create -s 48M vms/web2
rbd_io vms/web2 w:0:4194304
# Ceph cannot make its trash in a full pool, by which it removes images: it exists after the first removal.
T=$(call target vms/first 8388608 "$(cat /proc/sys/kernel/random/uuid)" keep)
ceph_full yes || fail "the cluster is full"
expect "an image that Ceph does not remove" 18 'does not remove image vms/snapferry-.*is the cluster full' -- \
    call abort "$T"
ceph_full no || fail "the cluster has space"
check "is removed later" call abort "$T"
same "nothing is left" "$(rbd ls vms | xargs)" "web1 web2"
daemon_setup 'changed-blocks = auto' 'retries = 1' 'retry-first = 1s' || { fail "setup"; finish; }
rbd_class 'vms/*'
starts "the daemon starts"
A=$(submit vms/web1)
same "a backup" "$(wait_state "$A" Completed 90)" Completed
rbd export --no-progress vms/web1 - >"$WORK/orig"
rbd export --no-progress vms/web2 - >"$WORK/other"
images() { rbd ls --format json vms | jq -r '.[]' | sort | xargs; }
ours() { # IMAGE: what a restore has left in it
    rbd snap ls --all "$1" --format json | jq -r '.[].name' | grep before
    rbd image-meta ls "$1" --format json | jq -r 'keys[]' | grep 'snapferry\.restore\.'
}
begin() { # TARGET FROM OPTION...: sets R and O
    R=$(askj restore "$A/vms/web1" "$1" --from "$2" "${@:3}" 2>"$WORK/err" | jq -r '.restore // empty')
    [ -n "$R" ] && O=$(op_id "$R")
}
refused() { # NAME
    same "$1: it fails" "$(wait_state "$R" Failed 90)" Failed
    check "with the reason" eval 'doc "$O" | jq -r .error.message | grep -Eq "is full|[Nn]o space"'
}

# Ceph's own command waits for space, also to look at an image.
full() { ceph_full "$1" || fail "the cluster is full: $1"; }
unchanged() { # after NAME
    full no
    check "$1: the image is what it was before" cmp <(rbd export --no-progress vms/web2 -) "$WORK/other"
    same "$1: nothing of ours is left in it" "$(ours vms/web2)" ""
}
full yes
for from in repository native; do
    begin vms/new $from
    refused "a new image from $from"
    same "there is none" "$(images)" "web1 web2"
done

# It gets full while an image is restored.
filling() { # TARGET FROM OPTION...: its server is there, and is stopped
    full no
    begin "$@"
    for ((n = 0; n < 500 * PATIENCE; n++)); do
        pid=$(pgrep -f "snapferry-rbd .*$ceph_dir/ceph.conf.* fill") && break
        sleep 0.01
    done
    kill -STOP "$pid"
    full yes
}
for from in repository native; do
    filling vms/new $from
    kill -CONT "$pid"
    refused "full while a new image is filled from $from"
    same "nothing is left" "$(images)" "web1 web2"
    filling vms/web2 $from --overwrite
    kill -CONT "$pid"
    refused "full while one that exists is filled from $from"
    unchanged "full, from $from"
    filling vms/web2 $from --overwrite
    ask cancel "$R" >/dev/null
    kill -CONT "$pid"
    same "a cancel from $from ends" "$(wait_state "$R" Canceled 90)" Canceled
    unchanged "canceled, from $from"
done
begin vms/web2 native --overwrite
same "with space it is completed" "$(wait_state "$R" Completed 90)" Completed
check "bit for bit" cmp <(rbd export --no-progress vms/web2 -) "$WORK/orig"
stops "the daemon stops"
finish
