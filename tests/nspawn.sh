#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs tests where systemd is PID 1: this machine's own /usr, booted as a container with an empty /etc and /var. What
# units and the bus do is tested there; limits of memory and CPU are not enforced in a container everywhere.
# usage: tests/nspawn.sh PROGRAM...      (as root, with the packages systemd, dbus and systemd-container)
# NSPAWN_PERSIST=DIR: is /persist in the container, its lib and journal are those of the service and of the journal.
set -u
root=$(realpath "$(dirname "$0")/..")
if [ "$(id -u)" -ne 0 ] || ! command -v systemd-nspawn >/dev/null || [ ! -x /usr/lib/systemd/systemd ] ||
    [ ! -x /usr/bin/dbus-daemon ]; then
    echo "needs root and the packages systemd, dbus and systemd-container" >&2
    exit 1
fi
: "${BUILD:=build}"
BUILD=$(realpath "$BUILD")
work=$(mktemp -d /var/tmp/snapferry-nspawn.XXXXXX)
trap 'rm -rf "$work"' EXIT
cat >"$work/inside" <<INSIDE
#!/bin/bash
exec >$work/log 2>&1 </dev/null
systemctl start sysinit.target dbus.socket
for i in \$(seq 200); do [ -S /run/dbus/system_bus_socket ] && [ -d /var/tmp ] && break; sleep 0.05; done
mkdir -p /var/tmp /var/lib /var/cache; chmod 1777 /var/tmp
cd $root
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
export BUILD=$BUILD SNAPFERRY=$BUILD/snapferry TOOLS=$BUILD/tests/tools
export VERBOSE=${VERBOSE:-} SNAPFERRY_IN_CONTAINER=1 JOBS=${JOBS:-} AGAIN=0
tests/run.sh $*
echo \$? >$work/rc
INSIDE
chmod 755 "$work" "$work/inside"
loops=()
# Nodes also for loop devices that the kernel has yet to make: inside, none can be made.
for i in $(seq 0 63); do mknod "$work/loop$i" b 7 $i && loops+=(--bind="$work/loop$i:/dev/loop$i"); done
[ -c /dev/loop-control ] && loops+=(--bind=/dev/loop-control)
if [ -n "${NSPAWN_PERSIST:-}" ]; then
    mkdir -p "$NSPAWN_PERSIST/lib" "$NSPAWN_PERSIST/journal"
    loops+=(--bind="$NSPAWN_PERSIST:/persist" --bind="$NSPAWN_PERSIST/lib:/var/lib/snapferry"
        --bind="$NSPAWN_PERSIST/journal:/var/log/journal")
fi
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout -k 10 "${TEST_TIMEOUT:-600}" systemd-nspawn --quiet --directory=/ \
    --volatile=yes --boot \
    --system-call-filter=@memlock `# as a service has it: the daemon locks keys in memory` \
    --register=no --keep-unit --console=pipe --machine=snapferry-test-$$ --bind="$root" --bind="$BUILD" \
    --bind="$work" "${loops[@]}" \
    systemd.run="$work/inside" systemd.run_success_action=exit systemd.run_failure_action=exit </dev/null \
    >"$work/console" 2>&1
if [ ! -s "$work/rc" ]; then
    echo "the container did not run the tests:"
    tail -n 20 "$work/console" "$work/log" 2>/dev/null
    exit 1
fi
cat "$work/log"
exit "$(cat "$work/rc")"
