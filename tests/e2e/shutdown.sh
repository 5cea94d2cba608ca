#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The machine is shut down in the middle of a backup, and booted again: order of the stop, checkpoint, the same native
# snapshot. In a container of its own, booted twice (tests/nspawn.sh). (MS-53)
. "$(dirname "$0")/../lib.sh"
BUILD=${BUILD:-build}
if ! is_root || ! command -v systemd-nspawn >/dev/null || [ ! -x /usr/lib/systemd/systemd ] ||
    [ ! -x /usr/bin/dbus-daemon ]; then
    skip "a shutdown in the middle of a backup" "needs root and the packages systemd, dbus and systemd-container"
    finish
fi
persist=$(mktemp -d /var/tmp/snapferry-persist.XXXXXX)
at_exit "rm -rf $persist"
for boot in first second; do
    out=$(BUILD=$BUILD VERBOSE=1 NSPAWN_PERSIST=$persist TEST_TIMEOUT=180 tests/nspawn.sh \
        tests/systemd/boot/$boot.sh 2>&1)
    while read -r line; do
        case $line in
        ok\ *) pass "${line#* - }" ;;
        not\ ok\ *) fail "${line#* - }" "$(tail -n 90 <<<"$out")" ;;
        esac
    done <<<"$out"
    check "$boot boot: the tests ran" grep -qE '^[1-9][0-9]* passed, 0 failed' <(tail -n 1 <<<"$out") || break
    [ -e "$persist/facts" ] || { fail "$boot boot" "$(tail -n 60 <<<"$out")"; break; }
done
finish
