#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The installed service with LVM thin: its step is killed at each point that leaves something, the machine is reset
# while it holds the metadata snapshot of the pool, a native snapshot is removed by another tool; restores over a volume
# and the backups after them, groups, volumes that are selected by tag and pool, a pool over its high-water mark.
# (CF-08, CF-09, CF-10, CF-16, CF-47, RS-20, RS-21, RS-30, E-04)
VM_DISKS="pv:900M"
: "${VM_TIMEOUT:=3000}"
. "$(dirname "$0")/lib.sh"
. tests/vm/lvm-lib.sh
V=/dev/vg-0/vol K=65536 POOL=vg--0-tp-tpool
DROP=snapferryd.service.d/17.conf
mkdir -p "$WORK"
held() { dmsetup status --noflush $POOL | awk '{print $7}'; }
# put BLOCK COUNT [VOLUME]: random data into blocks of 64 KiB
put() { dd if=/dev/urandom of="${3:-$V}" bs=$K seek="$1" count="$2" oflag=direct status=none; }
mapped() { lvs --noheadings -o data_percent "vg-0/${1:-vol}" | awk '{printf "%d", $1 * 100}'; }
# Each question is a program or two, which an emulated machine is slow to start.
# run [ARGS...]: a backup that has ended. Sets B, and OPS (documents of its operations).
run() {
    B=$(askj backup "${@:-$V}" --wait | jq -r .id)
    OPS=$(ops "$B")
}
op() { jq -rc "$1" <<<"$OPS"; }
image_is() { # [VOLUME]: the snapshot of it in the repository is the volume as it is
    sf "$REPO" restore "$(op "select(.volume == \"${1:-$V}\") | .result.snapshotID")" /srv/restored --force --quiet &&
        cmp /srv/restored "${1:-$V}"
}
# What there is of ours is what the records have: no other volume, no device, no tag of what has ended, no held root.
at_rest() {
    local left bad=0
    left=$(sql "SELECT id || ' ' || state FROM operations WHERE state NOT IN ('Completed', 'Failed', 'Skipped')
        UNION ALL SELECT owner || ' ' || kind || ' ' || name FROM intents"); [ -z "$left" ] ||
        { echo "not ended: $left"; bad=1; }
    left=$(tagged | grep -E '^snapferry-(exposed|metadata)'); [ -z "$left" ] || { echo "tags: $left"; bad=1; }
    left=$(ours)
    ! grep -w active <<<"$left" || bad=1
    left=$(sed 's/^snapferry-//; s/ .*//' <<<"$left" | sort)
    [ "$left" = "$(sql "SELECT id FROM natives WHERE state = 'present' ORDER BY id")" ] ||
        { echo "volumes: $left"; echo "records:"; sql "SELECT id, state FROM natives"; bad=1; }
    left=$(held); [ "$left" = - ] || { echo "held root: $left"; bad=1; }
    return $bad
}
restart() {
    systemctl daemon-reload
    systemctl restart snapferryd.service
}
# Bounded: a restart sweeps what is older than the grace.
rests() { # NAME
    local began=$SECONDS
    until_true 15 at_rest
    check "$1" at_rest
    echo "# after $((SECONDS - began)) s"
}
step() { echo "# $SECONDS s: $1"; }

if [ "$VM_BOOT" -eq 1 ]; then
    pv=$(realpath "$(dev pv)")
    pvcreate -q "$pv" >/dev/null && vgcreate -q vg-0 "$pv" >/dev/null &&
        lvcreate -q -y -L 300M --thinpool tp vg-0 >/dev/null 2>&1 &&
        lvcreate -q -y -L 32M --thinpool fast vg-0 >/dev/null 2>&1 &&
        lvcreate -q -y -L 40M --thinpool marked vg-0 >/dev/null 2>&1 &&
        lvcreate -q -y -V 32M -T vg-0/tp -n vol >/dev/null 2>&1 &&
        lvcreate -q -y -V 16M -T vg-0/tp -n one >/dev/null 2>&1 &&
        lvcreate -q -y -V 16M -T vg-0/tp -n two >/dev/null 2>&1 &&
        lvcreate -q -y -V 8M -T vg-0/tp -n t1 --addtag nightly >/dev/null 2>&1 &&
        lvcreate -q -y -V 8M -T vg-0/marked -n hw >/dev/null 2>&1 || { echo "Bail out! no LVM"; exit 1; }
    put 0 64; put 0 8 /dev/vg-0/one; put 0 8 /dev/vg-0/two; put 0 4 /dev/vg-0/t1
    setup 'changed-blocks = auto' 'verify-sample = 0' 'retries = 0' 'orphan-grace = 1s' 'slots = 2'
    config_add thin '[storage-class "thin"]
driver = lvm-thin
match = /dev/vg-0/vol /dev/vg-0/one /dev/vg-0/two
target = vg-0/tp
[storage-class "selected"]
driver = lvm-thin
match = tag:nightly pool:vg-0/fast
changed-blocks = no
[storage-class "marked"]
driver = lvm-thin
match = /dev/vg-0/hw
[job "selected"]
volumes = class:selected
[job "keep"]
volumes = class:marked
snapshots-to-retain = 2'
    expect "the configuration is accepted" 0 -- snapferry check-config
    check "reload" systemctl reload snapferryd

    # ---- a kill of the service's step ----
    run
    same "the first backup" "$(op '[.state, .fullReason]')" '["Completed","no-parent"]'
    mkdir -p /run/systemd/system/${DROP%/*}
    n=0
    for point in lvm-native-made lvm-exposed lvm-metadata-reserved lvm-metadata-read lvm-metadata-released; do
        step "$point"
        put $((n += 7)) 2
        printf '[Service]\nEnvironment=SNAPFERRY_CRASH_AT=%s\n' $point >/run/systemd/system/$DROP
        restart
        pid=$(daemon_pid)
        run
        case $point in
        lvm-metadata-*)
            same "$point: the step is killed: all is read" "$(op '[.state, .fullReason]')" '["Completed","failed"]'
            echo "# held: $(held), tags: $(tagged | grep -c '^snapferry-metadata'), $(op .fullWhy)" ;;
        *) same "$point: the step is killed" "$(op .state)" Failed ;;
        esac
        same "$point: and nothing but the step" "$(daemon_pid)" "$pid"
        rm /run/systemd/system/$DROP
        restart
        rests "$point: after a restart nothing of the killed step is left"
        put $((n + 2)) 1
        run
        same "$point: the next backup is incremental" "$(op '[.state, .fullReason, .result.cbtSource]')" \
            '["Completed",null,"lvm-thin"]'
    done
    # Each of them has taken over what those before it have said.
    check "after all kills: bit for bit" image_is

    # ---- another tool removes a retained native snapshot ----
    step "lvremove"
    gone=$(sql "SELECT id FROM natives WHERE state = 'present'")
    lvremove -q -y "vg-0/snapferry-$gone" >/dev/null
    check "lvremove of ours by another tool: the storage is looked at" ask scan --wait --quiet
    until_true 20 eval '[ "$(sql "SELECT state FROM natives WHERE id = '"'$gone'"'")" = missing ]'
    same "lvremove of ours by another tool: its record says missing" \
        "$(sql "SELECT state FROM natives WHERE id = '$gone'")" missing
    put 3 1
    run
    # The record of what is missing is removed before a new one is made: the reason is no longer parent-lost.
    same "lvremove of ours by another tool: the next backup reads all" "$(op '[.state, .fullReason]')" \
        '["Completed","no-parent"]'
    check "lvremove of ours by another tool: and is right" image_is
    rests "lvremove of ours by another tool: nothing is left"

    # ---- restores over the volume, and the backup after each ----
    # Zeros within a chunk of the repository, as at the end of the data, are not written either, but for those of a
    # chunk of the pool (64 KiB of 32 MiB) that lies across the border of two chunks of the repository.
    data=$(mapped)
    most=$((data + 20))
    for how in overwrite differential native; do
        step "restore: $how"
        dd if=$V of=/srv/orig bs=1M iflag=direct status=none
        put 300 100 # where the image has a hole
        put 10 4
        filled=$(mapped)
        check "$how: more is mapped before it ($filled, with the data alone $data)" test "$filled" -gt \
            "$((most + 1000))"
        case $how in
        overwrite) args=(--from repository --overwrite) ;;
        differential) args=(--from repository --differential) ;;
        native) args=(--overwrite) ;;
        esac
        out=$(ask restore "$B/$V" $V "${args[@]}" --wait --json 2>"$WORK/err")
        same "$how: restored over the volume" "$(result state <<<"$out")" Completed
        check "$how: the same bytes" cmp /srv/orig $V
        left=$(mapped)
        check "$how: no more is mapped than the data ($left of $most)" test "$left" -le "$most"
        put 20 1
        run
        same "$how: the backup after it is Completed" "$(op .state)" Completed
        check "$how: and bit for bit ($(op '[.fullReason, .listedBytes]'))" image_is
    done
    rests "after the restores nothing is left"

    # ---- volumes by tag and by pool; meanwhile a group ----
    step "selected, group"
    selected() { askj volumes | jq -r '.volumes[] | select(.class == "selected") | .name' | sort | xargs; }
    same "by tag: one volume has it" "$(selected)" /dev/vg-0/t1
    lvcreate -q -y -V 8M -T vg-0/tp -n t2 --addtag nightly >/dev/null 2>&1
    lvcreate -q -y -V 8M -T vg-0/fast -n f1 >/dev/null 2>&1
    put 0 4 /dev/vg-0/t2; put 0 4 /dev/vg-0/f1
    until_true 20 eval '[ "$(selected)" = "/dev/vg-0/f1 /dev/vg-0/t1 /dev/vg-0/t2" ]'
    run --job selected
    same "made while the service runs: by tag and by pool they are in the next run of the job" \
        "$(op '.volume + " " + .state' | sort | xargs)" \
        "/dev/vg-0/f1 Completed /dev/vg-0/t1 Completed /dev/vg-0/t2 Completed"
    check "bit for bit" image_is /dev/vg-0/t2
    group() { # CONSISTENCY
        config_add group "$(printf '[volume "%s"]\nname = /dev/vg-0/%s\ngroup = db\n%s\ngroup-max-skew = 1ms\n' \
            one one "group-consistency = $1" two two "group-consistency = $1")"
        systemctl reload snapferryd
    }
    check "a group of two volumes, best-effort" group best-effort
    run /dev/vg-0/one /dev/vg-0/two
    same "best-effort: Completed" "$(op .state | xargs)" "Completed Completed"
    skew=$(op .details.group_skew_ms | sort -n | head -n 1)
    check "best-effort: the skew is measured: $skew ms" test "$skew" -gt 1
    until_true 15 at_rest
    before=$(ours)
    check "the same group, strict" group strict
    run /dev/vg-0/one /dev/vg-0/two
    same "strict: refused with more than 1 ms" "$(op .state | xargs)" "Failed Failed"
    check "strict: in words: $(op .error.message | head -n 1)" eval 'op .error.message | grep -q "more than 1 ms"'
    until_true 15 eval '[ "$(ours)" = "$before" ]'
    same "strict: its native snapshots are removed" "$(ours)" "$before"

    # ---- a pool over its mark ----
    step "pool-high-water"
    H=/dev/vg-0/hw
    native() { sql "SELECT id FROM natives WHERE parent = '$B'"; }
    uuid_of() { lvs --noheadings -o lv_uuid "vg-0/snapferry-$1" | tr -d ' '; }
    put 0 64 $H; run --job keep; a1=$(native)
    put 0 64 $H; run --job keep; a2=$(native)
    put 0 64 $H; run $H; b=$(native)
    put 0 64 $H
    same "two are retained, one is kept for changed blocks alone" "$(askj native list | jq -r --arg v $H \
        '.natives[] | select(.volume == $v) | .alias + " " + .reasons' | sort)" \
        "$(printf '%s\n' "$a1 retained" "$a2 retained" "$b cbt-parent" | sort)"
    full=$(mapped marked)
    wanted="$(uuid_of "$b") $(uuid_of "$a1")"
    told() { # what LVM was told to do, the oldest first; one command may be there for each of its steps
        grep -h '^description = "Created \*before' /etc/lvm/archive/vg-0_*.vg | grep -oE 'lv(remove|create) .*'
    }
    n=$(told | wc -l)
    # Four times 4 MiB are 40 percent of it; each native snapshot that goes frees ten.
    sed -i 's|^match = /dev/vg-0/hw|&\npool-high-water = 25|' $CONF/conf.d/thin.ini
    check "pool-high-water below that ($full)" systemctl reload snapferryd
    run $H
    same "over the mark: Completed, all is read" "$(op '[.state, .fullReason]')" '["Completed","no-parent"]'
    same "the one for changed blocks goes first, then the oldest, and then the next is made" \
        "$(told | tail -n +$((n + 1)) | sed -E -n 's/lvremove .*lv_uuid=([A-Za-z0-9-]+).*/\1/p
            s/lvcreate .*snapferry-([0-9a-f-]{36}).*/\1/p' | uniq | xargs)" "$wanted $(native)"
    same "no more than have to: the newer one stays" "$(natives_of $H | sort | xargs)" \
        "$(printf '%s\n' "$a2" "$(native)" | sort | xargs)"
    check "the pool is under its mark ($(mapped marked))" test "$(mapped marked)" -lt 2500

    # ---- the tools run in units of their own ----
    started() { journalctl -q --no-pager -o cat -t systemd | grep -c "Started snapferry-run-.*: $1"; }
    for tool in lvs lvcreate lvchange lvremove lvrename 'dmsetup status' thin_delta thin_dump; do
        check "$tool runs in units of its own ($(started "$tool"))" test "$(started "$tool")" -gt 0
    done
    same "none of them is left" "$(systemctl list-units --plain --no-legend --all 'snapferry-run-*')" ""

    # ---- a reset while the metadata snapshot is reserved ----
    # thin_delta tells where it runs, and does not end as long as there is a file that the reset removes.
    step "reset"
    rm /usr/sbin/thin_delta # a link to pdata_tools
    printf '#!/bin/sh\ncat /proc/self/cgroup >/srv/cgroup\n[ ! -e /run/hang ] || sleep 1000\n%s\n' \
        'exec pdata_tools thin_delta "$@"' >/usr/sbin/thin_delta
    chmod 755 /usr/sbin/thin_delta
    # The pool is looked at before the service starts after it.
    systemctl disable -q snapferryd.service snapferryd.socket
    put 40 2
    sync
    touch /run/hang
    A=$(submit $V)
    O=$(op_id "$A")
    until_true 60 test -s /srv/cgroup
    check "thin_delta, too: $(cat /srv/cgroup)" grep -q '/snapferry-run-[0-9-]*\.service$' /srv/cgroup
    root=$(held)
    check "the metadata snapshot is reserved by us: $root" eval 'tagged | grep "^snapferry-metadata.*+$root\$"'
    reboot_by reset A O root
fi

# ---- after the reset ----
check "after the reset the machine came up in order" test "$(cat /run/vm-state)" = running
check "after the reset the pool is active" until_true 60 test -b $V
# Which is what makes it ours to release: nobody else would.
same "after the reset it is still held" "$(held)" "$root"
systemctl enable -q --now snapferryd.socket snapferryd.service
until_true 60 answers
became "after the reset the backup goes on by itself" "$A" Completed 300
OPS=$(ops "$A")
same "after the reset it is the same operation, and incremental" "$(op '[.id, .fullReason]')" "[\"$O\",null]"
rests "after the reset what was reserved is released"
put 50 3
run
same "after the reset the next backup lists what was written" \
    "$(op '[.state, .fullReason, .result.cbtSource, .listedBytes / 65536]')" '["Completed",null,"lvm-thin",3]'
check "after the reset the next backup is bit for bit" image_is
finish
