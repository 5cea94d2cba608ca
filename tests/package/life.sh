#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The life of the package in a booted container, a copy-on-write view of this machine: inside/life.sh tells.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/common.bash"
if ! can_boot; then
    skip "the life of the package" "needs root, loop devices and the packages systemd, dbus and systemd-container"
    finish
fi
out=$(packages) || { fail "the packages are built" "$out"; finish; }
boot life.sh / --private-network
