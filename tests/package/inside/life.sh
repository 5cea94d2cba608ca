#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Installed, used after one edit, reloaded, upgraded and downgraded while a mover runs, removed while one runs, with and
# without a daemon, installed where no systemd runs, purged: what stays is compared with what was there before.
# Runs inside a container (../common.bash): INSTALL dpkg or apt, DEBS, /srv/vm (reflinks), /srv/backups.
. "$(dirname "$0")/../../lib.sh"
rm -f /usr/sbin/policy-rc.d # images of containers have one that starts nothing
rm -f /var/lib/man-db/auto-update # no index of this machine's manual pages is made each time a package comes or goes
V1=$(echo "$DEBS"/1/snapferry_*.deb) V2=$(echo "$DEBS"/2/snapferry_*.deb)
LIST=/var/backups/snapferry-native-snapshots.txt
MIB=1048576
mkdir -p /var/backups
# This view of a machine begins without traces of other tests.
rm -rf /etc/snapferry /var/lib/snapferry /var/cache/snapferry /run/snapferry

install_deb() {
    if [ "$INSTALL" = apt ]; then
        apt-get install -y -qq --allow-downgrades -o Dpkg::Use-Pty=0 "$@"
    else
        dpkg -i "$@"
    fi
}
# until_true SECONDS COMMAND...
until_true() {
    local end=$((SECONDS + $1))
    shift
    while ! "$@" >/dev/null 2>&1; do [ $SECONDS -ge $end ] && return 1; sleep 0.1; done
}
active() { systemctl is-active --quiet "$1"; }
daemon_pid() { systemctl show -P MainPID snapferryd.service; }
ask() { snapferry "$@" --json 2>/dev/null | tail -n 1; }
files() {
    find /etc /usr /var /srv -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt \
        -o -path /var/cache/man -o -path /var/cache/ldconfig \
        -o -path /var/log -o -path /var/lib/systemd -o -path '/etc/*-' -o -path /var/tmp -o -path '*/__pycache__' \) \
        -prune -o -print | sort
}
# hold: a backup whose mover stands still in the middle: sets B, O, PID. The volume's read-limit makes a mover take some
# seconds, on however slow a machine.
hold() {
    local try end now
    for try in 1 2 3; do
        random_file /srv/vm/big.img $((48 * MIB)) $RANDOM
        B=$(ask backup /srv/vm/big.img | jq -r '.backup // empty') O= PID=
        end=$((SECONDS + 60))
        while [ -z "$PID" ] && [ $SECONDS -lt $end ]; do
            read -r now PID < <(records "SELECT state, CASE state WHEN 'Running'
                THEN json_extract(doc, '$.identity.pid') END FROM operations WHERE parent = '$B'" | tr '|' ' ')
            [[ $now =~ ^(Completed|Failed|Canceled)$ ]] && break
            sleep 0.01
        done
        O=$(records "SELECT id FROM operations WHERE parent = '$B'")
        [ -n "$PID" ] && kill -STOP "$PID" 2>/dev/null && return 0
        snapferry wait "$B" --quiet
    done
    journalctl -u snapferryd --no-pager -o cat -n 30
    return 1
}
records() { sqlite3 -readonly /var/lib/snapferry/records.db "$1" 2>/dev/null; }
held() { # as a test of its own, not in a subshell: sets variables
    local out=$WORK/hold
    if hold >"$out" 2>&1; then
        pass "a backup is under way"
    else
        fail "a backup is under way" "$(tail -n 30 "$out")"
    fi
}
started() { stat -c %Y.%i "/proc/$PID" 2>/dev/null && cut -d' ' -f22 "/proc/$PID/stat"; }
state() { ask describe "$1" | jq -r '(.backup // .operation).state'; }
units() { systemctl list-units --all --no-legend --plain 'snapferry*' | awk '$2 != "not-found" { print }'; }
# The manager forgets a unit some time after it has ended.
units_left() { local i; for i in $(seq 200); do [ -n "$(units)" ] || return 0; sleep 0.1; done; units; }
offline_state() { # from the records alone, with the program of the tests
    "$SNAPFERRY" describe "$1" --json 2>/dev/null | tail -n 1 | jq -r '(.backup // .operation).state'
}

if [ "$INSTALL" = apt ]; then check "apt finds its mirror" apt-get update -qq; fi
files >"$WORK/before"

# ---- installed ----
if install_deb "$V1" >"$WORK/out" 2>&1; then
    pass "it installs"
else
    fail "it installs" "$(tail -n 20 "$WORK/out")"
    finish
fi
same "it says nothing but what dpkg says" "$(grep -iE 'snapferry: |warning|error' "$WORK/out")" ""
same "it is configured, its dependencies are there" "$(dpkg-query -W -f '${db:Status-Abbrev}' snapferry)" "ii "
check "the daemon runs at once" active snapferryd.service
check "so does its socket" active snapferryd.socket
check "both are enabled" systemctl is-enabled --quiet snapferryd.service snapferryd.socket
check "there is no socket for metrics" test ! -e /lib/systemd/system/snapferryd-metrics.socket
check "its users are there" getent passwd snapferry-mover snapferry-plugin
expect "status" 0 'snapferryd [0-9.]+ on' -- snapferry status
same "there are no problems" "$(ask status | jq -c .problems)" "[]"
metrics() { # without curl: a minimal system has none
    exec 3<>/dev/tcp/127.0.0.1/9747 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3
    exec 3>&-
}
expect "metrics" 0 '^snapferry_build_info' -- metrics
expect "the packaged configuration has no complaint" 0 '' -- snapferry check-config
check "without a warning" sh -c "snapferry check-config --json | tail -n 1 | jq -e '.errors == 0 and .warnings == 0'"
check "the man page is there" test -e /usr/share/man/man8/snapferryd.8.gz
same "the configuration is a conffile" "$(dpkg-query -W -f '${Conffiles}' snapferry | awk '{ print $1 }' | xargs)" \
    /etc/snapferry/snapferry.ini
same "what is private is" "$(stat -c '%a %U' /var/lib/snapferry)" "700 root"
same "the socket is for the group" "$(stat -c '%a %G' /run/snapferry/control.sock)" "660 snapferry"

# ---- one edit ----
# What the packaged file has behind semicolons is a configuration, too.
mkdir -p "$WORK/edited/conf.d"
sed 's/^;//' /etc/snapferry/snapferry.ini >"$WORK/edited/snapferry.ini"
check "its comments make a configuration" \
    sh -c "snapferry check-config --config-dir '$WORK/edited' --json | tail -n 1 | jq -e '.errors == 0'"
random_file /srv/vm/a.img $((8 * MIB)) 5
truncate -s 64M /srv/vm/a.img
cat >/etc/snapferry/conf.d/50-local.ini <<'EDIT'
[repository "main"]
path = /srv/backups/main
password-file = /etc/snapferry/main.password
compression = zstd-fastest
[storage-class "images"]
driver = reflink
match = /srv/vm/*.img
snapshots-to-retain = 2
cancel-grace = 5s
[volume "/srv/vm/big.img"]
read-limit = 16MiB
[job "nightly"]
volumes = class:images
on-calendar = *-*-* 02:00
EDIT
expect "the repository" 0 'Created a password in .*main.password' -- snapferry -r main repo create --make-password
same "its password is for root" "$(stat -c '%a %U' /etc/snapferry/main.password)" "600 root"
same "its directory for the movers" "$(stat -c '%a %U' /srv/backups/main)" "700 snapferry-mover"
check "reload" systemctl reload snapferryd
if snapferry backup --job nightly --wait >"$WORK/out" 2>&1; then pass "a backup"; else
    fail "a backup" "$(tail -n 20 "$WORK/out")" "$(journalctl -u 'snapferry*' --no-pager -o cat -n 40)"
fi
FIRST=$(ask backups | jq -r '.backups[0].id')
same "it is recorded" "$(state "$FIRST")" Completed
expect "volumes are protected" 0 '' \
    -- sh -c "snapferry volumes --json | tail -n 1 | jq -e '.volumes | length == 1 and .[0].protected'"
check "it comes back" snapferry restore "$FIRST" /srv/vm/back --from repository --wait --quiet
check "as it was" cmp /srv/vm/a.img /srv/vm/back
rm -f /srv/vm/back
expect "metrics know of it" 0 '^snapferry_operations_total\{.*completed.*\} [1-9]' -- metrics
expect "the job waits for its time" 0 'nightly .* in [0-9]+ (h|min)' -- snapferry jobs

# ---- reload ----
hash=$(ask status | jq -r .config.hash)
printf '[storage-class "images"]\nsnapshots-to-retain = -1\n' >/etc/snapferry/conf.d/60-bad.ini
expect "a bad file is refused" 1 '' -- systemctl reload snapferryd
same "the old configuration stays in force" "$(ask status | jq -r .config.hash)" "$hash"
check "the daemon runs" active snapferryd.service
rm /etc/snapferry/conf.d/60-bad.ini
check "a good one is taken" systemctl reload snapferryd

# ---- upgrade while a mover runs ----
chmod 750 /etc/snapferry
systemctl stop snapferryd.service
# As a version before 0.2 left it, also in dpkg's own records.
sed -i '/^Package: snapferry$/,/^$/s/^Version: .*/Version: 0.1.0/' /var/lib/dpkg/status
same "dpkg has it as 0.1" "$(dpkg-query -W -f '${Version}' snapferry)" 0.1.0
printf '%s\n' '[Socket]' ListenStream=127.0.0.1:9747 FileDescriptorName=metrics Service=snapferryd.service \
    '[Install]' WantedBy=sockets.target \
    >/lib/systemd/system/snapferryd-metrics.socket
systemctl daemon-reload
check "the old socket for metrics is enabled" systemctl enable --quiet --now snapferryd-metrics.socket
rm /lib/systemd/system/snapferryd-metrics.socket
systemd-run --quiet --unit=snapferry-job-nightly --description="Backups of snapferry's job nightly (0123456789abcdef)" \
    --on-calendar='*-*-* 02:00' snapferry backup --job nightly --from-timer
check "it and the daemon run" systemctl start snapferryd.service
expect "the port is a problem of status" 0 '127.0.0.1:9747' -- ask status
held
before=$(started) old=$(daemon_pid)
if install_deb "$V2" >"$WORK/out" 2>&1; then pass "upgrade"; else fail "upgrade" "$(tail -n 20 "$WORK/out")"; fi
same "quietly" "$(grep -iE 'snapferry: |warning|error' "$WORK/out")" ""
check "the daemon runs" active snapferryd.service
check "the old socket for metrics does not" sh -c '! systemctl is-active --quiet snapferryd-metrics.socket'
check "nor is it enabled" test ! -e /etc/systemd/system/sockets.target.wants/snapferryd-metrics.socket
same "an old timer is gone" "$(systemctl list-units --all --no-legend --plain 'snapferry-job-*')" ""
expect "the daemon serves the metrics" 0 '^snapferry_build_info' -- metrics
same "the mode that somebody gave to the configuration stays" "$(stat -c %a /etc/snapferry)" 750
check "it is another process" test "$(daemon_pid)" != "$old"
same "the mover is the same" "$(started)" "$before"
kill -CONT "$PID"
snapferry wait "$B" --quiet
same "its backup is Completed" "$(state "$B")" Completed
check "in its first attempt" test "$(ask describe "$O" | jq -r '.operation.attempt // 1')" -le 1

# ---- and back ----
held
before=$(started)
check "downgrade" install_deb "$V1"
same "the mover is the same" "$(started)" "$before"
kill -CONT "$PID"
snapferry wait "$B" --quiet
same "its backup is Completed" "$(state "$B")" Completed

# An upgrade over a configuration that has been broken since: told, and nothing else breaks.
printf 'nonsense\n' >/etc/snapferry/conf.d/60-bad.ini
install_deb "$V2" >"$WORK/out" 2>&1
same "upgrade over a bad configuration: dpkg is content" $? 0
check "what is wrong is told" grep -q '60-bad.ini:1' "$WORK/out"
check "and that the daemon does not start" grep -q 'does not start' "$WORK/out"
rm /etc/snapferry/conf.d/60-bad.ini
systemctl reset-failed snapferryd.service snapferryd.socket
check "mended, it starts" systemctl restart snapferryd.socket snapferryd.service

# ---- removed while a mover runs ----
held
(sleep 2; kill -CONT "$PID") &
start=$SECONDS
dpkg -r snapferry >"$WORK/out" 2>&1
same "remove" $? 0
wait
check "within its bound" test $((SECONDS - start)) -lt 60
check "the mover is gone" test ! -d "/proc/$PID"
same "its operation is Canceled" "$(offline_state "$O")" Canceled
same "no unit is left" "$(units_left)" ""
check "nothing listens" test ! -e /run/snapferry/control.sock
alias=$("$SNAPFERRY" native list --json 2>/dev/null | tail -n 1 | jq -r '.natives[0].alias')
check "a native snapshot is retained" test -n "$alias"
check "the terminal names it" grep -q "${alias:0:8}" "$WORK/out"
check "the list names it" grep -q "$alias" $LIST
check "and where it is" grep -q "/srv/vm/.snapferry" $LIST
sed 's/^/# /' "$WORK/out" $LIST
check "it is there" sh -c "find /srv/vm -name '$alias*' | grep -q ."
same "of what was cancelled nothing is" \
    "$(find /srv/vm -path '*snapferry*' -type f ! -name '*.native' ! -name '*.img')" ""
check "records and configuration stay" test -s /var/lib/snapferry/records.db -a -s /etc/snapferry/snapferry.ini
check "the repository is whole" "$SNAPFERRY" -r /srv/backups/main --password-file /etc/snapferry/main.password verify \
    --quiet

# ---- again, and removed without a daemon ----
check "installed again" install_deb "$V1"
same "it knows its backups" "$(state "$FIRST")" Completed
held
systemctl stop snapferryd.socket snapferryd.service
check "a stop leaves the mover" test -d "/proc/$PID"
(sleep 1; kill -CONT "$PID") &
dpkg -r snapferry >"$WORK/out" 2>&1
same "remove without a daemon" $? 0
wait
check "the mover is gone" test ! -d "/proc/$PID"
check "native snapshots are listed from the records" grep -q "$alias" $LIST
check "without codes of colours" eval '! grep -q "$(printf "\033")" "$LIST" "$WORK/out"'

# ---- damaged records ----
check "installed again" install_deb "$V1"
same "the unfinished backup is taken up or was done" "$(snapferry wait "$B" --quiet; state "$B")" Completed
systemctl stop snapferryd.socket snapferryd.service
cp -a /var/lib/snapferry "$WORK/kept"
head -c 20000 /dev/urandom | dd of=/var/lib/snapferry/records.db conv=notrunc status=none
rm -f /var/lib/snapferry/records.db-*
dpkg -r snapferry >"$WORK/out" 2>&1
same "remove with damaged records" $? 0
expect "it says that it cannot tell" 0 'some or all records cannot be read' -- cat "$WORK/out"
rm -rf /var/lib/snapferry && cp -a "$WORK/kept" /var/lib/snapferry

# ---- removed while the daemon hangs: the watchdog ends it, the next one cancels ----
check "installed again" install_deb "$V1"
mkdir -p /run/systemd/system/snapferryd.service.d
printf '[Service]\nWatchdogSec=4\nRestartSec=1\n' >/run/systemd/system/snapferryd.service.d/short.conf
systemctl daemon-reload
systemctl restart snapferryd.service
held
kill -STOP "$(daemon_pid)"
dpkg -r snapferry >"$WORK/out" 2>&1
same "remove while the daemon hangs" $? 0
check "the mover is gone" test ! -d "/proc/$PID"
same "its operation is Canceled" "$(offline_state "$O")" Canceled
rm -r /run/systemd/system/snapferryd.service.d
systemctl daemon-reload
same "no unit is left" "$(units_left)" ""
same "nor what systemd keeps of movers" "$(find /run/systemd/units -name '*snapferry-mover*')" ""

# ---- where no systemd runs ----
check "installed and removed where no systemd runs" unshare -m sh -ec "
    mount -t tmpfs tmpfs /run
    dpkg -i '$V1'
    test ! -e /run/snapferry/control.sock
    snapferry status
    dpkg -r snapferry"

# ---- purged ----
check "installed again" install_deb "$V1"
systemctl is-active --quiet snapferryd.service || systemctl start snapferryd.service
echo "mine" >/var/lib/snapferry/notes
dpkg -P snapferry >"$WORK/out" 2>&1
same "purge" $? 0
check "it names what stays" grep -q '/etc/snapferry/main.password' "$WORK/out"
check "and a file that somebody put into its directory" \
    grep -q 'kept /var/lib/snapferry, which contains: notes' "$WORK/out"
check "and the native snapshots" grep -q "$LIST" "$WORK/out"
rm -rf /var/lib/snapferry
files >"$WORK/after"
same "nothing that was there is gone" "$(comm -23 "$WORK/before" "$WORK/after")" ""
# What other packages own came with apt and stays as theirs.
others=$(awk 1 /var/lib/dpkg/info/*.list | sort -u)
same "what stays is what must" "$(comm -13 "$WORK/before" "$WORK/after" | grep -vE '^/srv/' |
    grep -vxFf <(grep -v '^/etc/snapferry' <<<"$others") | xargs)" \
    "/etc/snapferry /etc/snapferry/conf.d /etc/snapferry/conf.d/50-local.ini /etc/snapferry/main.password $LIST"
check "the repository" "$SNAPFERRY" -r /srv/backups/main --password-file /etc/snapferry/main.password verify --quiet
check "the users stay" getent passwd snapferry-mover
same "no unit is left" "$(units_left)" ""
same "nor is it enabled" "$(find /etc/systemd /var/lib/systemd -name '*snapferry*')" ""
finish
