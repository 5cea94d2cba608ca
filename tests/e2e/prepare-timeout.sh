#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# prepare-timeout is one limit from the native snapshot to the first byte (PVC-11, PVC-12, PVC-20): neither a new daemon
# nor a new mover gives an operation more time, after a boot it has all of it again, and the record has what the time
# was lost for before anything is removed.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "intermediates on real file systems"
fs_make xfs xfs && fs_make far btrfs || exit 1
mkdir "$WORK/far/scratch"
image "$WORK/xfs/v.img" 64 7
daemon_setup
config_add classes "[storage-class \"far\"]
driver = reflink
match =
target = $WORK/far/scratch"
slow() { config_class own "$WORK/xfs" 'backup-storage-class = far' 'copy-limit = 1MiB' 'snapshot-timeout = 1s' "$@"; }
slow 'prepare-timeout = 10s'
starts "the daemon starts"
error() { doc "$1" | jq -c '.error'; }

# A copy that takes a minute; the daemon is killed in the middle of its 10 s.
A=$(submit "$WORK/xfs/v.img"); O=$(op_id "$A")
same "it exposes" "$(wait_state "$O" Exposing 10)" Exposing
deadline=$(sql "SELECT json_extract(doc, '$.prepare_deadline_ns') FROM operations WHERE id = '$O'")
taken=$(sql "SELECT json_extract(doc, '$.snapshot_ns') FROM operations WHERE id = '$O'")
# (A wait in between does not count, and rounds to milliseconds.)
check "the deadline is stored: 10 s after the snapshot" eval \
    '[ $(((deadline - taken) / 100000000)) -ge 99 ] && [ $(((deadline - taken) / 1000000000)) -le 14 ]'
sleep 2 # in the middle of the copy
daemon_kill
starts "the daemon was killed, and another one begins"
same "the deadline is the same" "$(sql "SELECT json_extract(doc, '$.prepare_deadline_ns') FROM operations
    WHERE id = '$O'")" "$deadline"
same "Failed" "$(wait_state "$A" Failed 30)" Failed
ended=$(sql "SELECT json_extract(doc, '$.ended_ns') FROM operations WHERE id = '$O'")
check "by that time, not 10 s after the restart ($(((ended - deadline) / 1000000)) ms late)" \
    test $((ended - deadline)) -lt 3500000000
check "the reason is a member" jq -e '.details.reason == "prepare-timeout"' <<<"$(doc "$O")"
check "the message has the limit, what it waited for and the last error" jq -e '.stage == "expose" and (.message |
    test("prepare-timeout \\(10 s\\): the intermediate in class \"far\" was not ready; last error: .*timed out"))' \
    <<<"$(error "$O")"
check "and the time of the end" test "$(doc "$O" | jq -r .ended_ns)" -gt 0
clean "what was made is gone" 10 "$WORK/xfs" "$WORK/far"

# After a boot it has all of the time again.
A=$(submit "$WORK/xfs/v.img"); O=$(op_id "$A")
same "it exposes" "$(wait_state "$O" Exposing 10)" Exposing
deadline=$(sql "SELECT json_extract(doc, '$.prepare_deadline_ns') FROM operations WHERE id = '$O'")
daemon_kill
sqlite3 "$STATE/records.db" "UPDATE operations SET doc = json_set(doc, '$.prepare_boot',
    '0123456789abcdef0123456789abcdef', '$.prepare_deadline_ns', $((deadline - 5000000000))) WHERE id = '$O'"
starts "the machine was started anew"
later_than() { [ "$(sql "SELECT json_extract(doc, '$.prepare_deadline_ns') FROM operations
    WHERE id = '$O'")" -gt "$deadline" ]; }
check "a later deadline is stored" until_true 5 later_than
same "and holds" "$(wait_state "$A" Failed 30)" Failed

# A mover that reads nothing.
config_class own "$WORK/xfs" 'prepare-timeout = 3s' 'snapshot-timeout = 1s' 'cancel-grace = 2s'
check "reload" ask reload --wait --quiet
first_byte_missing() {
    A=$(submit "$WORK/xfs/v.img"); O=$(op_id "$A")
    PID=$(hold_mover "$O" 20) || return 1
    [ "$(sql "SELECT state FROM operations WHERE id = '$O'")" = Running ] &&
        [ "$(doc "$O" | jq -r '.progress.read // 0')" -eq 0 ] && return 0
    kill -CONT "$PID"
    wait_state "$A" none 20 >/dev/null
    return 1
}
for _ in 1 2 3 4 5 6 7 8; do first_byte_missing && break; done
same "a mover that reads nothing is ended: Failed" "$(wait_state "$A" Failed 20)" Failed
check "it is gone" test ! -d "/proc/$PID"
check "the record tells" jq -e '.stage == "move" and
    (.message | test("prepare-timeout \\(3 s\\): its mover had read nothing"))' \
    <<<"$(error "$O")"
same "one attempt, no retry" "$(doc "$O" | jq -r '.attempt // 1')" 1
clean "nothing is left behind" 10 "$WORK/xfs" "$WORK/far"

# One that has read may take its time.
config_class own "$WORK/xfs" 'prepare-timeout = 3s' 'snapshot-timeout = 1s' 'read-limit = 8MiB'
check "reload" ask reload --wait --quiet
random_file "$WORK/xfs/v.img" $((64 * MIB)) 9
A=$(submit "$WORK/xfs/v.img")
same "one that reads for longer than that is Completed" "$(wait_state "$A" Completed 60)" Completed
clean "nothing is left behind" 10 "$WORK/xfs" "$WORK/far"
explain_failure
finish
