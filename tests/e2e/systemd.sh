#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What needs systemd as PID 1: units of hooks and plugins (AP-21), of movers (MS-01, MS-02), jobs (CF-45), and
# the installed service. Runs in a container made of this machine's own /usr (tests/nspawn.sh); where that is not
# possible but systemd is PID 1, here, without what installs the service.
. "$(dirname "$0")/../lib.sh"
BUILD=${BUILD:-build}
programs=$(ls "$BUILD"/tests/unit/test_*_unit tests/systemd/*.sh 2>/dev/null)
if is_root && command -v systemd-nspawn >/dev/null && [ -x /usr/lib/systemd/systemd ] &&
    [ -x /usr/bin/dbus-daemon ]; then
    runner=tests/nspawn.sh
elif [ -d /run/systemd/system ] && is_root; then
    runner=tests/run.sh
else
    skip "units and the service" "needs root, and systemd as PID 1 or the packages systemd, dbus and systemd-container"
    finish
fi
check "there are programs" test -n "$programs"
# One after the other: they share the manager, and the service's tests stop all of its units.
out=$(BUILD=$BUILD VERBOSE=1 JOBS=1 $runner $programs 2>&1)
while read -r line; do
    case $line in
    ok\ *"# SKIP"* | "not ok "*"# SKIP"*) skip "${line##*# SKIP }" "not possible in this container" ;;
    ok\ *) pass "${line#* - }" ;;
    not\ ok\ *) fail "${line#* - }" "$(tail -n 40 <<<"$out")" ;;
    esac
done <<<"$out"
check "they ran" grep -qE '^[1-9][0-9]* passed, 0 failed' <(tail -n 1 <<<"$out")
finish
