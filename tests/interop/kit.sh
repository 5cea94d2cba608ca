#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tests/e2e/kit.sh with stock Kopia as a second judge: a repository whose format blob was restored from the printed kit
# opens, lists and verifies.
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    echo "ok 1 - the recovery kit beside stock Kopia # SKIP no KOPIA=/path/to/kopia was given"
    echo "1..1"
    exit 0
fi
export KOPIA
exec "$(dirname "$0")/../e2e/kit.sh"
