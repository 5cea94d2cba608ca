#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# e2e/many-writers.sh with stock Kopia as a fourth writer: the daemons of three nodes and it back up into one bucket in
# rounds while the owner's daemon runs maintenance.
# KOPIA=/path/to/kopia; without it everything is skipped, and says so.
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    . "$(dirname "$0")/../lib.sh"
    skip "many writers beside stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
exec "$(dirname "$0")/../e2e/many-writers.sh"
