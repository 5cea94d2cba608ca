# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of the installed service share, on top of tests/daemon-lib.sh: `make install` into /opt/snapferry with
# units in
# /etc, which only a container of our own may have done to it (tests/nspawn.sh). The daemon is systemd's, no child of
# the script.
mkdir -p /srv
export TMPDIR=${SNAPFERRY_SERVICE_DIR:-/srv} SCRATCH=
. "$(dirname "${BASH_SOURCE[0]}")/daemon-lib.sh"
unset SNAPFERRY_NO_SYSTEMD
OPT=/opt/snapferry CONF=/etc/snapferry STATE=/var/lib/snapferry RUN=/run/snapferry
UNIT=snapferryd.service
explain_failure() { explain_service; }

need_container() {
    [ -n "${SNAPFERRY_IN_CONTAINER:-}" ] && [ -d /run/systemd/system ] && return
    skip "$1" "needs a systemd of its own: run by tests/e2e/systemd.sh in a container"
    finish
}

# One at a time: they share the service.
service_install() {
    exec 9>/run/snapferry-tests.lock
    flock 9
    chmod 755 "$WORK"
    make -s -o all install BUILD="$BUILD" PREFIX=$OPT UNITDIR=/etc/systemd/system \
        SYSCONFDIR=/etc >"$WORK/install.log" 2>&1 || return
    systemd-sysusers $OPT/lib/sysusers.d/snapferry.conf &&
        systemd-tmpfiles --create $OPT/lib/tmpfiles.d/snapferry.conf || return
    SNAPFERRY=$OPT/bin/snapferry
    systemctl daemon-reload
    at_exit service_remove
}
service_remove() {
    systemctl stop snapferryd.socket snapferryd.service 'snapferry-*.service'
    systemctl reset-failed
    rm -rf "$CONF" "$STATE" /var/cache/snapferry /etc/systemd/system/snapferry* $OPT
    systemctl daemon-reload
}
# A drop-in of the service: dropin NAME LINE...
dropin() {
    mkdir -p /etc/systemd/system/$UNIT.d
    printf '%s\n' "${@:2}" >"/etc/systemd/system/$UNIT.d/$1.conf"
    systemctl daemon-reload
}

# config_service [LINE...]: as in daemon-lib.sh; movers run as their own user, the repository is theirs, the password is
# a credential of the service.
config_service() {
    mkdir -p "$CONF/conf.d"
    CACHE=$WORK/cache config_main "$@"
    sed -i -e 's/^user = root$//' -e 's/^password-file = .*/password-file = cred:main/' "$CONF/snapferry.ini"
}
# The mover that is installed is from here on the one that derives each key once (tests/snapferry/keys.c), unless
# DERIVE_KEYS is set: it may write no file of them, but read this one.
repository_make() {
    local keyed=$BUILD/tests/snapferry
    if [ -z "${DERIVE_KEYS:-}" ] && [ -x "$keyed/snapferry-mover" ]; then
        opener() { SF=$BUILD/tests/snapferry/snapferry; }
    fi
    sf "$REPO" repo create --quiet --splitter DYNAMIC-1M-BUZHASH || return
    if [ "$SF" = "$keyed/snapferry" ]; then
        install -m 755 "$keyed/snapferry-mover" $OPT/libexec/snapferry/snapferry-mover &&
            install -m 644 "$keyed/keys" $OPT/libexec/snapferry/keys || return
    fi
    chown -R snapferry-mover: "$REPO"
    dropin 50-credentials '[Service]' "LoadCredential=main:$WORK/password"
}

show() { systemctl show -P "$1" "${2:-$UNIT}"; }
main_pid() { show MainPID; }
unit_of() { systemd-escape --template=snapferry-mover@.service "$1"; }
# Whether it answers as this process.
answers() { [ "$(askj status | jq -r '.offline // false, .daemon.pid' | tr '\n' ' ')" = "false $(main_pid) " ]; }
back() { [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ] && answers; } # back OLD-PID
explain_service() {
    [ $failures -eq 0 ] && return
    journalctl --no-pager -o short-precise -n "${1:-60}" | sed 's/^/# /'
}
