#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Maintenance of a repository in S3 (CF-40, CF-42, E-05): in OpenStack Swift's s3api, whose clock and ours move a day
# between two runs (libfaketime), space comes back in the third one. fault/s3-maintenance.sh has what goes wrong.
# THROUGH_S3=1 runs maintenance*.sh likewise, with all places at which a run is killed (make test-s3-maintenance).
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
. tests/s3-lib.sh
random_file "$WORK/a" 6000000 1
random_file "$WORK/b" 9000000 2

# ---- a real server ----

swift() {
    local at packs
    export FAKETIME_TIMESTAMP_FILE=$WORK/clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
    export LD_PRELOAD=$FAKE
    now() { echo "+$1h" >"$WORK/clock"; }
    now 0
    swift_service swift
    mkdir -p "$WORK/conf"
    printf '[daemon]\nnode-name = n1\n[repository "far"]\ntype = s3\nendpoint = %s\nbucket = bucket\nprefix = nas/\n' \
        "$endpoint" >"$WORK/conf/snapferry.ini"
    printf 'credentials = %s\npassword-file = %s\n' "$WORK/s3-keys" "$WORK/password" >>"$WORK/conf/snapferry.ini"
    far() { "$SF" --config-dir "$WORK/conf" -r far "$@"; }
    bytes() { far repo status --json | result packBytes; }
    check "a repository in Swift" far repo create --quiet
    for v in a b; do far backup "$WORK/$v" --as "$v@h:/v" --quiet; done
    full=$(bytes)
    far snapshot delete latest --as b@h:/v --force --quiet
    now 25
    expect "what would be done" 0 'marked deleted by the next run' -- far maintenance --full --dry-run --explain
    expect "another node does not do it" 20 'belongs to snapferry-maintenance@n1' -- \
        far maintenance --full --node-name n2
    expect "the first run marks" 0 'Marked deleted +[0-9]+ contents, 8\.6 MiB' -- far maintenance --full
    expect "usage" 0 'Unneeded +8\.6 MiB  freed by' -- far repo usage
    now 50
    check "the second waits" far maintenance --full --quiet
    check "no byte has come back" [ "$(bytes)" -ge "$full" ]
    now 75
    for at in maintenance-begun maintenance-recorded:2 maintenance-dropped maintenance-pack-deleted; do
        expect "the third, killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SNAPFERRY" --config-dir "$WORK/conf" \
            -r far maintenance --full
        check "whole after that" far verify --quiet
    done
    check "the next one completes it" far maintenance --full --quiet
    check "the space is back" [ "$(bytes)" -lt $((full - 8900000)) ]
    expect "whole" 0 'no damage found' -- far verify
    check "restored" far restore latest --as a@h:/v "$WORK/out" --quiet
    check "as it was" cmp "$WORK/a" "$WORK/out"
    packs=$(s3_names nas/p | wc -l)
    far backup "$WORK/b" --as b@h:/v --quiet
    far snapshot delete latest --as b@h:/v --force --quiet
    check "without delays, as nobody else uses it" far maintenance --full --safety=none --quiet
    same "in one run" "$(s3_names nas/p | wc -l)" "$packs"
    check "what is left is whole" far verify --quiet
    unset LD_PRELOAD FAKETIME_TIMESTAMP_FILE
}
FAKE=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1)
if ! /usr/bin/python3 -c 'import swift, eventlet' 2>/dev/null || [ -z "$FAKE" ]; then
    skip "maintenance in Swift" "python3-swift or libfaketime is not installed"
else
    swift
fi
finish
