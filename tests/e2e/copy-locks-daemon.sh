#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The locks of a copy, extended by the daemon: counted in its result and its metrics, and a failure is one of the run
# (issue 15, CF-53). When and which: copy-locks.sh.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
SOCK=$WORK/metrics.socket
metrics() { curl -s --unix-socket "$SOCK" http://x/metrics; }
last() { sql "SELECT id FROM operations WHERE json_extract(doc, '\$.kind') = 'copy' ORDER BY seq DESC LIMIT 1"; }
of() { doc "$(last)" | jq ".result.copy.$1"; }
days() { curl -sS --noproxy '*' "http://127.0.0.1:$port/_set/skew/$(($1 * 86400))" >"$WORK/answer"; }
server() { curl -sS --noproxy '*' "http://127.0.0.1:$port/$1"; }
counted() { metrics | awk '$1 == "snapferry_copy_extended_locks_total{copy=\"vault\"}" { print $2 }'; }

sf "$REPO" repo create --quiet --node-name testnode
random_file "$WORK/a" 3000000 1
check "locks of ten days are wanted" "$TOOLS/lock_repository" "$REPO" "$WORK/password" COMPLIANCE 240
sf "$REPO" backup "$WORK/a" --as a@h:/v --quiet
s3_service versions /usr/bin/python3 tests/tools/s3-faults.py "$WORK/versions.port"
server _versions/Enabled >"$WORK/answer"
config_main
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
config_add 70-vault "[copy \"vault\"]
type = s3
endpoint = http://127.0.0.1:$port
bucket = b
prefix = vault/
credentials = $WORK/s3-keys"
starts "daemon" || { explain_failure; finish; }
check "a copy" ask copy vault --wait --quiet
same "none is extended" "$(of extendedBlobs) $(counted)" "0 0"
days 6
expect "six days later they are" 0 'with object locks extended' -- ask copy vault --wait
n=$(server _extended)
check "as the storage has it" [ "$n" -ge 5 ]
same "the result has how many, and so have the metrics" "$(of extendedBlobs) $(counted)" "$n $n"
days 12
server _refuse/kopia.blobcfg >"$WORK/answer"
ask copy vault --wait >"$WORK/out" 2>&1
check "one that cannot be extended fails the run" [ $? -ne 0 ]
same "which is a problem of status" "$(askj status | jq '[.problems[] | select(.text |
    test("copy \"vault\".*failed: object locks of 1 blob could not"))] | length')" 1
server _refuse/ >"$WORK/answer"
check "the next run extends it" ask copy vault --wait --quiet
same "no problem is left" "$(askj status | jq '[.problems[] | select(.text | test("vault"))] | length')" 0
stops "end"
explain_failure
finish
