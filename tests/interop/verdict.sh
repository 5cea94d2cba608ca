#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tests/fault/verify-verdict.sh with stock Kopia as a second judge: what verify calls good, it can
# connect to and verify.
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    echo "ok 1 - verdicts beside those of stock Kopia # SKIP no KOPIA=/path/to/kopia was given"
    echo "1..1"
    exit 0
fi
export KOPIA
exec "$(dirname "$0")/../fault/verify-verdict.sh"
