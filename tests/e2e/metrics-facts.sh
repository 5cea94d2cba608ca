#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What the metrics say: families and zeros from the start, then a backup that ends well, fails, is canceled, is retried;
# a restore and a verification; each counted once, over restarts and a daemon that is killed between a mover's result
# and its record; series of what is no longer there go away (requirements D.3, E-15).
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../prometheus-lib.sh"
need_root "metrics of a working daemon"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 24 1; image "$V/b.img" 8 2
SOCK=$WORK/m.sock
daemon_setup 'slots = 2' 'retry-first = 1s'
config_class gold "$V" 'snapshots-to-retain = 2' 'retries = 1'
config_add job "[job \"nightly\"]
volumes = class:gold
on-calendar = $(later)"
config_add 90-metrics "[metrics]
listen = unix:$SOCK
compat-metrics = yes"
starts "the daemon starts"

page() { fresh_page --unix-socket "$SOCK" http://x/metrics >"$WORK/page"; }
# value NAME{LABELS}: one sample of the last page; labels in the order of the page do not matter to us: they are sorted
# there.
value() {
    awk -v n="snapferry_$1" '{ i = length($0) - length($NF); if (substr($0, 1, i - 1) == n) print $NF }' "$WORK/page"
}
now_is() { page; [ "$(value "$1")" = "$2" ]; }
# is NAME SAMPLE VALUE: within some seconds.
is() { if until_true 15 now_is "$2" "$3"; then pass "$1"; else fail "$1" "$2 is '$(value "$2")', wanted $3"; fi; }
# sum REGEX: of all samples that match, without the prefix.
sum() { page; awk -v r="^snapferry_$1" '$0 ~ r {s += $NF} END {print s + 0}' "$WORK/page"; }
total() { printf 'operations_total{direction="%s",class="%s",result="%s",reason="%s"}' "$@"; }
moved() { printf 'mover_exits_total{direction="backup",cause="%s"}' "$1"; }

# ---- before anything has happened ----
page
same "every family has a type" "$(grep -c '^# TYPE' "$WORK/page")" "$(grep -c '^# HELP' "$WORK/page")"
check "promtool has nothing to say but for Velero's names" eval 'has_promtool || exit 0
    out=$(grep -v "velero_\|podVolume_" "$WORK/page" | promtool check metrics 2>&1)
    [ -z "$out" ] || { echo "$out"; false; }'
same "no sample was left out" "$(value metrics_dropped_samples)" 0
is "the class counts from 0" "$(total backup gold completed '')" 0
is "failures, too, whatever the reason" "$(total backup gold failed password)" 0
is "so do runs" 'backups_total{direction="backup",schedule="nightly",result="completed"}' 0
is "states" 'operations{direction="restore",state="Exposing"}' 0
is "distributions" 'operation_duration_seconds_bucket{direction="backup",stage="total",le="+Inf"}' 0
is "an interval of a day" 'schedule_expected_interval_seconds{schedule="nightly"}' 86400
is "the repository is up" 'repository_up{repository="main"}' 1
is "room of the state directory" 'steps_stuck' 0
check "it is known" until_true 10 eval 'page; [ "$(value state_dir_free_bytes)" != "" ]'
is "the configuration is in force" config_last_reload_successful 1

# ---- a good backup ----
ask backup --job nightly --wait --quiet >/dev/null
is "two volumes" "$(total backup gold completed '')" 2
is "one run" 'backups_total{direction="backup",schedule="nightly",result="completed"}' 1
is "by Velero's name" 'backup_successes_total{schedule="nightly"}' 1
same "in Velero's words" "$(awk '$1 == "velero_backup_success_total{schedule=\"nightly\"}" {print $2}' "$WORK/page")" 1
is "begun once" 'backup_attempts_total{schedule="nightly"}' 1
is "two movers" "$(moved ok)" 2
is "durations" 'operation_duration_seconds_count{direction="backup",stage="total"}' 2
is "waits" 'queue_wait_seconds_count{direction="backup"}' 2
is "snapshots" 'snapshot_create_seconds_count{class="gold"}' 2
is "retained" 'snapshots{class="gold",reason="retained"}' 2
is "their limit" 'snapshot_limit{class="gold"}' 2
check "bytes read" test "$(sum 'read_bytes_total\{class="gold"')" -gt $((8 * MIB))
check "bytes that lie in holes" test "$(sum 'skipped_bytes_total\{class="gold",why="unallocated"')" -gt $((8 * MIB))
same "they are those that were not read" \
    "$(($(sum 'read_bytes_total\{class="gold"') + $(sum 'skipped_bytes_total\{class="gold",why="unallocated"')))" \
    $((32 * MIB))
check "bytes into the repository" test "$(sum 'upload_bytes_total\{repository="main"\}')" -gt $((8 * MIB))
check "requests" test "$(sum 'repository_requests_total\{repository="main",op="put",code="ok"\}')" -gt 3
check "as many times" test "$(value 'repository_request_seconds_count{repository="main",op="put"}')" = \
    "$(value 'repository_requests_total{repository="main",op="put",code="ok"}')"
check "contents" test "$(value 'repository_contents{repository="main"}')" -gt 8
check "clock" test -n "$(value 'repository_clock_skew_seconds{repository="main"}')"
is "the volume is protected" "volume_protected{volume=\"$V/a.img\"}" 1
is "its size" "volume_size_bytes{volume=\"$V/a.img\"}" $((24 * MIB))
is "its interval" "volume_expected_interval_seconds{volume=\"$V/a.img\"}" 86400
S="volume_expected_since_timestamp_seconds{volume=\"$V/a.img\"}"
check "since when" until_true 20 eval 'page; [ "$(value "$S" | cut -d. -f1)" -gt 1000000 ]'
check "its age" test "$(value "volume_last_success_timestamp_seconds{volume=\"$V/a.img\"}" | cut -d. -f1)" -gt 1000000

# ---- one that is killed and tried again, one that is canceled ----
running "$V/a.img"
page; N=$(value "$(total backup gold completed '')")
is "it runs" 'operations{direction="backup",state="Running"}' 1
is "it has a slot" slots_used 1
check "its memory" test "$(sum 'mover_memory_bytes\{direction="backup"')" -gt 1000000
kill -KILL "$PID"
same "its mover was killed: it is tried again" "$(wait_state "$A" Completed 30)" Completed
# It may not have said yet that it begins.
same "one died" "$(sum 'mover_exits_total\{direction="backup",cause="(died|never-started)"')" 1
same "counted once" "$(sum 'operation_retries_total\{direction="backup"')" 1
is "one good one more" "$(total backup gold completed '')" $((N + 1))
running "$V/a.img"
ask cancel "$A" --quiet; wait_state "$A" Canceled 15 >/dev/null
is "canceled" "$(total backup gold canceled '')" 1
is "by Velero's name" "uploads_canceled_total{node=\"testnode\"}" 1
is "which is no failure of the volume's" "volume_last_status{volume=\"$V/a.img\"}" 1
check "what ran is gone from the page" until_true 10 eval \
    'page; ! grep -q "^snapferry_operation_done_bytes{" "$WORK/page"'

# ---- one that fails ----
mv "$WORK/password" "$WORK/password.right"; secret "$WORK/password" <<<wrong
B=$(submit "$V/b.img"); same "with a wrong password it fails" "$(wait_state "$B" Failed 30)" Failed
mv "$WORK/password.right" "$WORK/password"
is "with its reason" "$(total backup gold failed password)" 1
is "and so does its run, by hand" 'backups_total{direction="backup",schedule="",result="failed"}' 1
is "the volume's last status" "volume_last_status{volume=\"$V/b.img\"}" 0

# ---- restore, verify ----
G=$(askj backups | jq -r '[.backups[] | select(.state == "Completed")] | last | .id')
ask restore "$G/$V/a.img" "$V/out.raw" --from repository --wait --quiet >/dev/null
is "a restore" "downloads_completed_total{node=\"testnode\"}" 1
is "begun by the job's backup" "$(grep -o 'restore_attempts_total{schedule="[^"]*"} 1$' "$WORK/page" |
    sed 's/ 1$//;s/^snapferry_//' | head -n 1)" 1
check "bytes out of the repository" test "$(sum 'download_bytes_total')" -gt $((8 * MIB))
rm -f "$V/out.raw"
# No class matches its target: it counts for none.
is "outside of all classes" "$(total restore '' completed '')" 1
check "its bytes" test "$(value 'written_bytes_total{class=""}')" -gt $((8 * MIB))
is "failures of such have a sample" "$(total restore '' failed password)" 0
mv "$WORK/password" "$WORK/password.right"; secret "$WORK/password" <<<wrong
check "with a wrong password one fails" eval \
    '! ask restore "$G/$V/a.img" "$V/again.raw" --from repository --wait --quiet'
mv "$WORK/password.right" "$WORK/password"
is "which counts" "$(total restore '' failed password)" 1
ask verify --wait --quiet >/dev/null 2>&1 || askj verify --wait >/dev/null
is "a verification" "$(total verify '' completed '')" 1
check "when it was" until_true 5 eval '[ "$(sum "verify_last_success_timestamp_seconds")" != 0 ]'
check "the repository is available again" until_true 20 eval 'askj status | jq -e ".repositories[0].up"'
state=$(askj status | jq -c '.repositories[0]')
check "status: the last verification" \
    jq -e '.verified.damages == 0 and .verified.read_ratio == 1 and .verified.at_ns > 0' <<<"$state"
check "what is stored, of how much" \
    jq -e '.stored > 1000000 and .backed_up > .added and .added > 0 and .dedup > 1 and .free > 0' <<<"$state"
expect "for people" 0 'stored, dedup ratio [0-9.]+; verified [^,]* ago, no damage' -- ask status --wide
check "and what is stored" eval '[ "$(sum "repository_stored_bytes")" -gt 1000000 ]'

# ---- once, whatever dies ----
N=$(value "$(total backup gold completed '')")
R=$(value 'read_bytes_total{class="gold"}')
daemon_stop
# What a native holds alone grows with what is written to its volume.
head -c $((4 * MIB)) /dev/urandom | dd of="$V/b.img" bs=1M conv=notrunc,fsync 2>/dev/null
starts "after a restart"
check "what natives hold is known" until_true 30 eval \
    'page; [ "$(value "snapshot_used_bytes{class=\"gold\"}")" -ge $((4 * MIB)) ]'
is "counters are as they were" "$(total backup gold completed '')" "$N"
is "bytes as well" 'read_bytes_total{class="gold"}' "$R"
running "$V/a.img"
page # now: it may have taken more than one backup to find a mover at work
N=$(value "$(total backup gold completed '')") R=$(value 'read_bytes_total{class="gold"}') X=$(sum \
    'mover_exits_total\{direction="backup",cause="ok"')
daemon_kill
kill -CONT "$PID"; until_true 20 eval "! kill -0 $PID 2>/dev/null"
daemon_start SNAPFERRY_CRASH_AT=engine-outcome
if daemon_gone 20; then
    pass "the next daemon dies right behind the record"
else
    fail "the next daemon dies right behind the record"
fi
starts "a third one"
same "the backup is good" "$(wait_state "$A" Completed 20)" Completed
is "its mover counts once" "$(moved ok)" $((X + 1))
is "the operation once" "$(total backup gold completed '')" $((N + 1))
is "its bytes once" 'read_bytes_total{class="gold"}' "$((R + $(doc "$O" | jq '.result.readBytes')))"
for point in engine-running engine-result-recorded; do
    N=$(value "$(total backup gold completed '')") X=$(value "$(moved ok)")
    daemon_stop
    daemon_start SNAPFERRY_CRASH_AT=$point
    A=$(submit "$V/b.img")
    check "it dies at $point" daemon_gone 20
    daemon_alive || starts "after a death at $point"
    [ -n "$A" ] || A=$(submit "$V/b.img")
    S=$(wait_state "$A" Completed 30); same "the backup ends well" "$S" Completed
    is "counted once" "$(total backup gold completed '')" $((N + 1))
    is "its mover once" "$(moved ok)" $((X + 1))
done

# ---- what is no longer there ----
rm "$V/b.img"
ask volumes --json >/dev/null
check "a volume that was removed" until_true 10 eval 'page; ! grep -q "volume=\"$V/b.img\"" "$WORK/page"'
check "the other one stays" grep -q "volume=\"$V/a.img\"" "$WORK/page"
image "$V/b.img" 8 3; ask volumes --json >/dev/null
rm "$CONF/conf.d/job.ini"; ask reload --wait --quiet
check "a job that was removed" until_true 10 eval 'page; ! grep -q "schedule=\"nightly\"" "$WORK/page"'
printf 'nonsense' >"$CONF/conf.d/60-bad.ini"; ask reload --wait --quiet 2>/dev/null
is "a reload that was refused" config_last_reload_successful 0
rm "$CONF/conf.d/60-bad.ini"; ask reload --wait --quiet
is "and one that was not" config_last_reload_successful 1
page; same "no sample was left out" "$(value metrics_dropped_samples)" 0
# After all of that: what the man page calls without samples has none.
idle=$(sed -n '/^Some families are reserved and have no samples/,/^$/p' \
    "$(dirname "$0")/../../docs/man/snapferry-metrics.7.pod" | grep -o 'snapferry_[a-z_]*')
check "the man page knows families without samples" test "$(wc -l <<<"$idle")" -ge 3
same "they have none" "$(for n in $idle; do grep -oE "^${n}(_count)?[{ ]" "$WORK/page"; done)" ""
same "they are families" "$(for n in $idle; do grep -q "^# TYPE $n " "$WORK/page" || echo "$n"; done)" ""
stops "SIGTERM ends it in order"
finish
