# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests in virtual machines share. A test sets VM_DISKS, VM_MEMORY, VM_TIMEOUT (run.sh) if it wants others and
# sources this: on the host that boots a machine which runs the same script again; there snapferry gets installed, and
# what follows runs as root beside a real systemd. After reboot_by the script runs from its beginning with VM_BOOT one
# higher.
if [ -z "${SNAPFERRY_IN_VM:-}" ]; then
    for v in ${!VM_*}; do export "${v?}"; done
    exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "$0"
fi
export TMPDIR=/srv SNAPFERRY=/usr/bin/snapferry SNAPFERRYD=/usr/sbin/snapferryd BUILD=/vm/none TOOLS=/vm/none

# As an administrator does: packages if there are any, else what `make install` has made.
install_snapferry() {
    if ls /vm/stage/*.deb >/dev/null 2>&1; then
        DEBIAN_FRONTEND=noninteractive dpkg -i /vm/stage/snapferry_*.deb &&
            { [ "${VM_VARIANT:-}" != ceph ] || DEBIAN_FRONTEND=noninteractive dpkg -i /vm/stage/snapferry-rbd_*.deb; }
    else
        tar -C /vm/stage/root -c . | tar -C / -x --keep-directory-symlink --no-overwrite-dir && systemd-sysusers &&
            systemd-tmpfiles --create /usr/lib/tmpfiles.d/snapferry.conf &&
            systemctl daemon-reload && systemctl -q enable snapferryd.socket snapferryd.service
    fi
}
[ "$VM_BOOT" -gt 1 ] || install_snapferry >/srv/install.log 2>&1 ||
    { echo "Bail out! snapferry cannot be installed"; cat /srv/install.log; exit 1; }
. tests/daemon-lib.sh
trap - EXIT # this machine is thrown away
unset SNAPFERRY_NO_SYSTEMD XDG_CACHE_HOME
export HOME=/root
CONF=/etc/snapferry STATE=/var/lib/snapferry RUN=/run/snapferry CACHE=/var/cache/snapferry REPO=/srv/repo
PASSWORD=/etc/snapferry/password
ask() { "$SNAPFERRY" "$@"; }
sf() { local repo=$1; shift; "$SNAPFERRY" -r "$repo" --password-file $PASSWORD "$@"; }
dev() { echo "/dev/disk/by-id/virtio-$1"; }

# ---- the machine ----

# reboot_by reset|systemctl [VARIABLE...]: counts and these variables are known to the next boot. "reset" is the power
# switch: nothing is synced, nobody is asked.
reboot_by() {
    local how=$1
    shift
    declare -p tests failures "$@" >/vm/control/kept
    if [ "$how" = reset ]; then echo b >/proc/sysrq-trigger; else systemctl reboot; fi
    sleep infinity
}
[ "$VM_BOOT" -eq 1 ] || . /vm/control/kept

# disk_fs NAME TYPE DIR: a file system on a disk of the machine, also after reboots.
disk_fs() {
    local d
    d=$(realpath "$(dev "$1")")
    mkfs."$2" -q "$d" && mkdir -p "$3" &&
        echo "UUID=$(blkid -p -s UUID -o value "$d") $3 $2 defaults,nofail 0 0" >>/etc/fstab &&
        systemctl daemon-reload && mount "$3"
}

# ---- the daemon ----

config_main() {
    local d line
    mkdir -p $CONF/conf.d
    {
        printf '[daemon]\n'
        for d in 'node-name = testnode' 'sweep = 2s' 'orphan-grace = 3s' 'retry-first = 2s' 'retry-max = 4s' \
            'cancel-grace = 20s' 'changed-blocks = no'; do
            for line; do [ "${line%% =*}" = "${d%% =*}" ] && continue 2; done
            printf '%s\n' "$d"
        done
        printf '%s\n' "$@"
        printf '[mover]\nmemory = 96MiB\nworkers = 1\n'
        printf '[repository "main"]\npath = %s\npassword-file = %s\n' "$REPO" "$PASSWORD"
    } >$CONF/snapferry.ini
}
answers() { ask status --json 2>/dev/null | tail -n 1 | jq -e '.offline != true and .daemon.pid > 0' >/dev/null; }
# The repository belongs to the movers' user, as in the field.
daemon_setup() {
    (umask 077; echo "test password" >$PASSWORD)
    install -d -o snapferry-mover -g snapferry-mover -m 700 "$REPO"
    sf "$REPO" repo create --quiet --splitter DYNAMIC-1M-BUZHASH || return
    config_main "$@"
}
daemon_start() { systemctl start snapferryd.service && until_true 60 answers; }
daemon_stop() { systemctl stop snapferryd.service; }
daemon_pid() { systemctl show -P MainPID snapferryd.service; }
# setup [LINE...]: repository, configuration, running daemon; or the test ends.
setup() {
    systemctl stop snapferryd.socket snapferryd.service 2>/dev/null
    daemon_setup "$@" || { fail "set up"; finish; }
    starts "the installed daemon starts with a configuration of ours"
}
log() { journalctl -q --no-pager -o cat -u snapferryd.service "$@"; }
starts() { if daemon_start; then pass "$1"; else fail "$1" "$(log -n 15)"; fi; }

mover_units() { systemctl list-units --plain --no-legend --all 'snapferry-mover@*' | awk '{print $1}'; }
unit_value() { systemctl show -P "$2" "$1"; }

# A mover reads at its read-limit, and an emulated machine is slow at everything else: SLOWLY leaves the time to disturb
# it.
SLOWLY='read-limit = 1MiB'
# moving VOLUME...: a backup of which the first volume's mover is at work. Sets A (backup), O (operation), PID, UNIT.
moving() {
    A=$(submit "$@"); O=$(op_id "$A" "$1")
    wait_state "$O" Running 120 >/dev/null
    PID=$(mover_pid "$O")
    UNIT=$(mover_units | head -n 1)
    if [ -n "$PID" ] && kill -0 "$PID"; then return 0; fi
    fail "a mover is at work" "$(doc "$O")"
    finish
}
wait_state() {
    local s= end=$((SECONDS + $3))
    while [ $SECONDS -le $end ]; do
        s=$(state "$1")
        [[ $s =~ ^($2)$ ]] && { echo "$s"; return 0; }
        terminal "$s" && break
        sleep 0.5
    done
    echo "$s"
    return 1
}

attempts() { doc "$1" | jq -r '.attempt // 1'; }
error_of() { doc "$1" | jq -r '.error.message // empty'; }
# became NAME ID STATE SECONDS: a test of its own.
became() { same "$1" "$(wait_state "$2" "$3" "$4")" "$3"; }
# What monitoring sees: a path of the daemon's port; the sum of a family's samples that have this label.
page() { curl -s -m 10 "http://127.0.0.1:9747$1"; }
http_code() { curl -s -m 10 -o /dev/null -w '%{http_code}' "http://127.0.0.1:9747$1"; }
metric() {
    page /metrics | awk -v n="snapferry_$1" -v l="${2:-}" \
        '$1 ~ ("^" n "([{]|$)") && index($0, l) {sum += $NF; seen = 1} END {if (seen) print sum}'
}
metric_is() { [ "$(metric "$1" "${3:-}")" = "$2" ]; }

# clean_state DIR...: nothing is unfinished; no intents, movers, units, loop devices or foreign mounts; native snapshots
# are those of the records.
clean_state() {
    local bad=0 left known found
    left=$(unfinished); [ -z "$left" ] || { echo "unfinished: $left"; bad=1; }
    left=$(sql "SELECT owner || ' ' || kind || ' ' || name FROM intents"); [ -z "$left" ] ||
        { echo "open intents: $left"; bad=1; }
    left=$(pgrep -x snapferry-mover); [ -z "$left" ] || { echo "movers: $left"; bad=1; }
    left=$(mover_units); [ -z "$left" ] || { echo "units: $left"; bad=1; }
    left=$(losetup -n -l); [ -z "$left" ] || { echo "loop devices: $left"; bad=1; }
    left=$(findmnt -rno TARGET | grep -i 'snapferry' | grep -vxE '/var/lib/snapferry|/run/credentials/.*'); [ -z \
        "$left" ] || { echo "mounts: $left"; bad=1; }
    left=$(find $STATE/results -type f 2>/dev/null); [ -z "$left" ] || { echo "results: $left"; bad=1; }
    if [ $# -gt 0 ]; then
        left=$(stored_others "$@"); [ -z "$left" ] || { echo "left on storage: $left"; bad=1; }
        known=$(sql "SELECT id FROM natives WHERE state = 'present'" | sort)
        found=$(stored_natives "$@" | sed 's/.*\///; s/\.native$//' | sort)
        [ "$known" = "$found" ] || { echo "native snapshots on storage: $found"; echo "recorded:"; sql \
            "SELECT id, state FROM natives"; bad=1; }
    fi
    return $bad
}

finish() {
    if [ $failures -gt 0 ]; then
        echo "# --- what commands complained about:"
        tail -n 20 "$WORK/ask.err" 2>/dev/null | sed 's/^/# /'
        echo "# --- the daemon's last lines:"
        log -n 150 | sed 's/^/# /'
    fi
    echo "1..$tests"
    [ $failures -eq 0 ]
    exit $?
}
