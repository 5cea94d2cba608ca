#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make demo-s3 with small volumes and the S3 service of the project's own, whose requests cost little (CF-53): it ends
# with its verdict and leaves nothing behind, also where it fails or is ended in the middle.
. "$(dirname "$0")/../own-mounts.sh"
. "$(dirname "$0")/../daemon-lib.sh"
need_root "the demo of object storage"
if ! ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1; then
    skip "the demo of object storage" "libfaketime is not installed"
    finish
fi
mkdir "$WORK/tmp"
demo() { env -u SNAPFERRY_NO_SYSTEMD TMPDIR="$WORK/tmp" SIZE=4 SERVER=own SNAPFERRY="${1:-$SF}" \
    tests/demo-s3.sh; }
left() { pgrep -f -- "$WORK/tmp/" | grep -vx $$; losetup -l | grep -F "$WORK/tmp/"; ls -A "$WORK/tmp"; }

demo >"$WORK/out" 2>&1
same "the demo succeeds" "$?" 0
check "its last line is the verdict" eval 'tail -n 1 "$WORK/out" | grep -q "Done: two nodes, one bucket"'
same "each step is shown" "$(grep -cE '^.{0,4}[1-8]\. ' "$WORK/out")" 8
same "nothing is left" "$(left)" ""
[ $failures -eq 0 ] || tail -n 40 "$WORK/out" | sed 's/^/# /'

# Ended in the middle, when both daemons run.
: >"$WORK/out"
demo >"$WORK/out" 2>&1 &
pid=$!
both_run() { [ "$(grep -c 'snapferryd runs' "$WORK/out")" -ge 2 ] || ! kill -0 $pid; }
check "it runs again" until_true 60 both_run
pkill -TERM -P $pid -f tests/demo-s3.sh || kill -TERM $pid
wait $pid
same "a signal ends it" "$?" 130
same "and nothing is left" "$(left)" ""

# A step that fails: the daemon of the node ends at once.
mkdir "$WORK/bin"
ln -s "$SNAPFERRY" "$WORK/bin/snapferry"
printf '#!/bin/sh\nexit 3\n' >"$WORK/bin/snapferryd"
chmod 755 "$WORK/bin/snapferryd"
demo "$WORK/bin/snapferry" >"$WORK/out" 2>&1
same "a failure has an exit code" "$?" 1
check "it says where" grep -q '^FAILED: step 2' "$WORK/out"
same "nothing is left of it either" "$(left)" ""
finish
