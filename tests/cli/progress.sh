#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What is shown while something runs: on terminals of several widths that change their size, with several volumes at
# once, with a retry, in a pipe, as JSON; events as the daemon sends them, and the real thing with -r.
. "$(dirname "$0")/../lib.sh"
RUN=$WORK/run
mkdir "$RUN"
unset COLUMNS LINES NO_COLOR
export LC_ALL=C.UTF-8 TERM=xterm
T=$TOOLS/terminal
ID=nightly-20261121T020000-3f9a

# event STATE DONE1 DONE2 [JQ]: both volumes' amounts in MiB of 1024; JQ changes the backup.
event() {
    jq -n -c --arg state "$1" --argjson a "$2" --argjson b "$3" --arg id "$ID" '
        def op($n; $name; $done): {id: "up-\($id).\($n)", kind: "backup", volume: $name, created_ns: 1, started_ns: 1,
            state: "Running", attempt: 1, progress: {phase: "moving", total: 1073741824,
            done: ($done * 1048576), zero: 104857600,
            skipped: 209715200, duplicate: 0, rate: 104857600, eta_s: 12.3}};
        {id: $id, kind: "backup", state: $state, created_ns: 1, total: 2, completed: 0, failed: 0,
         progress: {phase: "moving", total: 2147483648, done: (($a + $b) * 1048576), rate: 209715200, eta_s: 21.5},
         operations: [op(1; "vg0/db1"; $a), op(2; "vg0/a-volume-with-a-name-that-is-long"; $b)]} | '"${4:-.}"
}
# script PAUSE EVENT...: events PAUSE seconds apart; the last is the answer.
script() {
    local pause=$1
    shift
    printf '%s\n' "$@" | jq -s -c --argjson p "$pause" '{wait: {events: [.[:-1][] | [$p, .]], answer: .[-1]}}' \
        >"$RUN/script.new"
    mv "$RUN/script.new" "$RUN/script.json"
}
script 0 "$(event Moving 1 1)"
"$TOOLS/script_server" "$RUN" "$RUN/script.json" >"$RUN/log" 2>&1 &
SERVER=$!
at_exit 'kill $(pgrep -P $SERVER) $SERVER'
for _ in $(seq 100); do grep -q ready "$RUN/log" && break; sleep 0.05; done
await() { "$SNAPFERRY" wait $ID --runtime-dir "$RUN" "$@"; }
has() { check "$1" grep -qE -- "$2" "$3"; }
hasnt() { check "$1" sh -c '! grep -qE -- "$1" "$2"' - "$2" "$3"; }
# The screens that were seen, one after the other, and the last one alone.
last_screen() { sed -n '/^== end$/,$p' "$1" | sed 1d; }

done_='.state = "Completed" | .completed = 2 | .started_ns = 1000000000 | .ended_ns = 71000000000 |
    .operations[].state = "Completed" | del(.progress, .operations[].progress)'
END=$(event Completed 1024 1024 "$done_")

# ---- two volumes on a terminal ----

cleaning='.operations[0].state = "CleaningUp"'
script 0.4 "$(event Moving 100 200)" "$(event Moving 300 400)" "$(event Moving 512 1024)" \
    "$(event Moving 1024 1024 "$cleaning")" "$(event Moving 1024 1024 "$cleaning")" "$END"
"$T" --size 130x24 --every 0.1 "$SNAPFERRY" wait $ID --runtime-dir "$RUN" >"$WORK/two" 2>&1
has "the whole" \
    "^$ID: Moving 34% \[={6} {14}\], 700.0 MiB of 2.0 GiB, 200.0 MiB/s, 22 s left, 0 of 2 volumes" "$WORK/two"
has "a line for each volume" \
    '^  vg0/db1: moving 29% \[={5} {15}\], 300.0 MiB of 1.0 GiB, 100.0 MiB/s, 13 s left, 100.0 MiB zero' "$WORK/two"
has "what is not moving says what it does" '^  vg0/db1: CleaningUp' "$WORK/two"
hasnt "never 100 % before the end" '100%' "$WORK/two"
hasnt "no line is folded" '\\$' "$WORK/two"
same "at the end nothing of it is left" "$(last_screen "$WORK/two")" "$ID {green}Completed{/} in 1 min 10 s"

for c in 24 40 60 200; do
    "$T" --size ${c}x24 --every 0.1 "$SNAPFERRY" wait $ID --runtime-dir "$RUN" >"$WORK/two" 2>&1
    sed '/^== end$/,$d' "$WORK/two" | grep -v Completed >"$WORK/live"
    hasnt "$c columns: no line is folded" '(oving|CleaningUp).*\\$' "$WORK/live"
    has "$c columns: phase and share stay" '^  .*: moving [0-9]+%' "$WORK/live"
    same "$c columns: nothing is left" "$(last_screen "$WORK/two" | tr -d '\\\n')" \
        "$ID {green}Completed{/} in 1 min 10 s"
done
for r in 2 3; do
    "$T" --size 80x$r --every 0.1 "$SNAPFERRY" wait $ID --runtime-dir "$RUN" >"$WORK/two" 2>&1
    same "$r lines are enough" "$(last_screen "$WORK/two")" "$ID {green}Completed{/} in 1 min 10 s"
done

# ---- the window changes ----

script 0.4 "$(event Moving 100 200)" "$(event Moving 150 250)" "$(event Moving 200 300)" "$(event Moving 250 350)" \
    "$(event Moving 300 400)" "$(event Moving 350 450)" "$END"
"$T" --size 120x24 --resize 50x24@0.6 --resize 30x24@1.0 --resize 100x24@1.4 "$SNAPFERRY" wait \
    $ID --runtime-dir "$RUN" >"$WORK/resized" 2>&1
same "narrower, narrower and wider: nothing is left" "$(cat "$WORK/resized")" "$ID {green}Completed{/} in 1 min 10 s"

# ---- a failure and a retry are lines that stay ----

retrying='.operations[0].state = "Retrying" |
    .operations[0].error = {class: "source", code: 19, message: "cannot read: Input/output \u001b[2Jerror"} |
    del(.operations[0].progress)'
again='.operations[0].attempt = 2'
failed='.operations[1].state = "Failed" | .failed = 1 | .degraded = true |
    .operations[1].error = {class: "no-space", code: 18, message: "No space left on device"}'
ended='.state = "PartiallyFailed" | .started_ns = 1000000000 | .ended_ns = 71000000000 | .completed = 1 |
    .operations[0].state = "Completed" | .operations[1].state = "Failed" |
    .operations[1].error = {class: "no-space", code: 18, message: "No space left on device"} | .failed = 1 |
    del(.progress, .operations[].progress)'
script 0.3 "$(event Moving 500 200)" "$(event Moving 510 300 "$retrying")" "$(event Moving 520 300)" \
    "$(event Moving 10 300 "$again")" "$(event Moving 10 300 "$again | $failed")" \
    "$(event PartiallyFailed 1 1 "$ended")"
"$T" --size 90x24 "$SNAPFERRY" wait $ID --runtime-dir "$RUN" >"$WORK/retry" 2>&1
same "partial: exit code" $? 3
cat >"$WORK/want" <<X
vg0/db1: retrying: cannot read: Input/output \\x1b[2Jerror
vg0/db1: restarted (new attempt); stored data are not stored again
vg0/a-volume-with-a-name-that-is-long failed: No space left on device
$ID {red}PartiallyFailed{/} in 1 min 10 s
  vg0/a-volume-with-a-name-that-is-long Failed: No space left on device
X
same "a retry, a setback and a failure are told" "$(cat "$WORK/retry")" "$(cat "$WORK/want")"

# ---- what was done ----

result='def result: {snapshotID: "0123456789abcdef0123456789abcdef", totalBytes: 1073741824, doneBytes: 1073741824,
    readBytes: 536870912, dedupedBytes: 1048576, incrementalBytes: 4194304, uploadedBytes: 2097152,
    seconds: 4, bottleneck: "hash", stages: [{name: "read", busySeconds: 1.5, stalledSeconds: 0.25},
        {name: "hash", busySeconds: 2, stalledSeconds: 0}]}; '
one='del(.operations[1]) | .total = 1 | .started_ns = 1000000000 | .ended_ns = 5500000000'
script 0 "$(event Completed 1024 0 "$result $done_ | $one | .operations[0].result = result")"
cat >"$WORK/want" <<X
$ID Completed in 4.5 s
  vg0/db1: 1.0 GiB in 4.0 s (256.0 MiB/s), 4.0 MiB new, 2.0 MiB stored, snapshot 0123456789abcdef
X
same "a backup: amount, time, rate, new data and the snapshot" "$(await 2>/dev/null)" "$(cat "$WORK/want")"
cat >>"$WORK/want" <<X
    512.0 MiB read, 1.0 MiB duplicate
    time: read 1.50 s (waited 0.25 s), hash 2.00 s; bottleneck: hash
X
same "--verbose: counts, and the time of each stage" "$(await --verbose 2>/dev/null)" "$(cat "$WORK/want")"
same "--json has them" "$(await --json | result 'operations[0].result.bottleneck')" hash
error='{class: "target", code: 17, message: "there is no directory /nowhere"}'
script 0 "$(event Finalizing 1024 0 "$one | .kind = \"restore\"")" \
    "$(event Failed 0 0 "$one | .kind = \"restore\" | .operations[0] += {state: \"Failed\", error: $error} |
        del(.progress)")"
await >"$WORK/out" 2>&1
same "a failure: exit code" $? 17
same "the error of a restore is told once" "$(grep -c 'no directory /nowhere' "$WORK/out")" 1
both='.operations[].state = "Failed" | .operations[].error = '$error' | .failed = 2 | del(.progress)'
script 0 "$(event Moving 1 1)" "$(event Failed 0 0 "$both")"
await >"$WORK/out" 2>"$WORK/err"
has "volumes that failed: each tells why" 'vg0/db1 Failed: there is no directory /nowhere' "$WORK/out"
has "and the command that none was completed" "$ID failed: no volume completed" "$WORK/err"
has "--quiet: the reason of the first" "$ID failed: there is no directory /nowhere" <(await --quiet 2>&1)
expired='{id: "admin-expire-1", kind: "admin", does: "expire", state: "Completed", created_ns: 1,
    started_ns: 1000000000, ended_ns: 1500000000,
    result: {answers: [{verb: "expire", error: null, kept: 17, expired: 3, dryRun: false}]}}'
script 0 "$(jq -n -c "$expired")"
has "an expiry: what went" '^  3 of 20 snapshots deleted$' <(await)
verified='{id: "verify-1", kind: "verify", state: "Completed", created_ns: 1,
    result: {snapshots: 2, objects: 4, contents: 9, contentsRead: 9, bytesRead: 2097152, damages: 0,
    seconds: 2, bottleneck: "read", stages: [{name: "read", busySeconds: 1, stalledSeconds: 0}]}}'
script 0 "$(jq -n -c "$verified")"
has "a verification: what was read" '^  2 snapshots: 2.0 MiB in 2.0 s \(1.0 MiB/s\), no damage found$' <(await)
has "--verbose: its counts" '^    9 of 9 contents read, 4 objects$' <(await -v)
has "and the time of each stage" '^    time: read 1.00 s; bottleneck: read$' <(await -v)
hasnt "not without it" 'time: ' <(await)
script 0 "$(jq -n -c "$verified" | jq -c '.result += {corrected: 3, correctedPacks: 2, correctedIndexBlobs: 1}')"
has "what error correction restored" 'MiB/s\), nothing is lost, 4 CORRECTED$' <(await)
has "--verbose: where" '9 contents read, 4 objects, 3 in 2 packs corrected, 1 index blob corrected$' <(await -v)
script 0.3 "$(event Moving 500 200)" "$(event Moving 510 300 "$retrying")" "$(event Moving 520 300)" \
    "$(event Moving 10 300 "$again")" "$(event Moving 10 300 "$again | $failed")" \
    "$(event PartiallyFailed 1 1 "$ended")"

# ---- elsewhere ----

await >"$WORK/out" 2>"$WORK/err"
has "a pipe: plain lines" "^$ID: Moving 34%, 700.0 MiB of 2.0 GiB, 200.0 MiB/s, 22 s left, 0 of 2 volumes$" "$WORK/err"
same "one for the whole and each volume, then what happens" "$(wc -l <"$WORK/err")" 6
check "without any control character" sh -c "! LC_ALL=C grep -q '[[:cntrl:]]' '$WORK/err'"
TERM=dumb "$T" "$SNAPFERRY" wait $ID --runtime-dir "$RUN" >"$WORK/dumb" 2>&1
has "a dumb terminal: plain lines" "^$ID: Moving 34%" "$WORK/dumb"
await --json >"$WORK/json" 2>"$WORK/err"
same "JSON: an object a line" "$(jq -r .type "$WORK/json" | uniq -c | tr -s ' \n' ' ')" " 5 progress 1 result "
same "and nothing else" "$(cat "$WORK/err")" ""
await --progress=no >"$WORK/out" 2>"$WORK/err"
same "--progress=no: nothing" "$(cat "$WORK/err")" ""

# ---- the real thing ----

R=$WORK/repo
# What compresses, and slowly: some seconds on one thread of any machine.
random_file "$WORK/part" $((144 << 20)) 7
base64 -w 0 "$WORK/part" >"$WORK/image"
truncate -s 256M "$WORK/image"
sf "$R" repo create --quiet
real() {
    "$T" --size "$1" --every 0.1 "$SNAPFERRY" -r "$R" --password-file "$WORK/password" "${@:2}" >"$WORK/real" 2>&1
}
real 80x24 backup "$WORK/image" --as t@h:/i --workers 1 --compression zstd-better-compression
same "backup -r on a terminal" $? 0
has "the line" '^backup: (opening|moving [0-9]+%|committing)' "$WORK/real"
hasnt "no line is folded" '^backup:.*\\$' "$WORK/real"
hasnt "never 100 %" '100%' "$WORK/real"
check "at the end the result and nothing else" \
    sh -c "sed -n '/^== end/,\$p' '$WORK/real' | sed -n 2p | grep -q '^Snapshot'"
check "and nothing of the line" sh -c "! sed -n '/^== end/,\$p' '$WORK/real' | grep -q '^backup:'"
real 30x10 restore latest "$WORK/back" --verify
same "restore -r on a small one" $? 0
check "nothing of the line is left" sh -c "! sed -n '/^== end/,\$p' '$WORK/real' | grep -q '^restore:'"
check "what it restored" cmp "$WORK/image" "$WORK/back"
rm "$WORK/back"

# A limit makes a run steady. From a tenth on the time left is within a fifth of what is left (and a report or two),
# also where a chunk takes a second, and the packs that are fetched at a time are all there are.
wrongly_foretold() { # FILE [true: until all is committed, and from a third on: the first seconds are not steady]
    jq -s -r --argjson all "${2:-false}" '[.[] | select(.type == "progress" and .totalBytes > 0)] as $r |
        [$r[] | select(.phase == "moving")] as $p | (if $all then $r[-1].seconds else
            ([$p[] | select(.doneBytes == .totalBytes) | .seconds] | min // ($p[-1].seconds + 1)) end) as $end |
        [$p[] | select(.doneBytes * (if $all then 3 else 10 end) >= .totalBytes and $end - .seconds > 3)] |
        if length < 4 then "only \(length) reports" else
            [.[] | ($end - .seconds) as $left | select(.etaSeconds == null or
                ((.etaSeconds - $left) | fabs) > 0.2 * $left + (if $all then 4 else 1.5 end)) |
                "at \(.doneBytes) bytes: \(.etaSeconds) s, left were \($left)"] | join("; ") end' "$1"
}
foretold() { # NAME FILE [as above]
    local bad
    bad=$(wrongly_foretold "${@:2}")
    # A sanitizer makes processors the limit, which others use as well.
    if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then
        skip "$1: the time left is right from a tenth on" "no run is steady under a sanitizer"
    else
        same "$1: the time left is right from a tenth on" "$bad" ""
    fi
}
random_file "$WORK/steady" $((42 << 20)) 11
E=$WORK/eta
sf "$E" repo create --quiet
sf "$E" backup "$WORK/steady" --as t@h:/s --quiet
# Half of it may wait for the server, in packs on the disk: that does not count.
. "$(dirname "$0")/../s3-lib.sh"
s3_service faulty /usr/bin/python3 tests/tools/s3-faults.py "$WORK/faulty.port"
printf 'access-key = a\nsecret-key = a\n' | secret "$WORK/keys"
mkdir -p "$WORK/conf"
printf '[repository "far"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\ncredentials = %s\n' "$port" \
    "$WORK/keys" >"$WORK/conf/snapferry.ini"
printf 'password-file = %s\n' "$WORK/password" >>"$WORK/conf/snapferry.ini"
far() { "$SNAPFERRY" --config-dir "$WORK/conf" -r far "$@"; }
far repo create --quiet
random_file "$WORK/steady3" $((240 << 20)) 13
far backup "$WORK/steady3" --as t@h:/t --write-limit 20MiB --json >"$WORK/eta.far" 2>/dev/null &
sf "$E" verify --read-limit 3MiB --json >"$WORK/eta.verify" 2>/dev/null &
sf "$E" restore latest "$WORK/eta.back" --read-limit 3MiB --json >"$WORK/eta.restore" 2>/dev/null &
random_file "$WORK/steady2" $((42 << 20)) 12
sf "$E" backup "$WORK/steady2" --as t@h:/t --read-limit 3MiB --json >"$WORK/eta.backup" 2>/dev/null
wait %?verify %?restore %?far
# Beside others it may be them that made its first seconds slow, or its last ones fast: that says nothing.
for _ in 1 2; do
    [ -z "${SNAPFERRY_SANITIZED:-}" ] && [ -n "$(wrongly_foretold "$WORK/eta.far" true)" ] || break
    random_file "$WORK/steady3" $((240 << 20)) "$RANDOM"
    far backup "$WORK/steady3" --as t@h:/t --write-limit 20MiB --full-scan --json >"$WORK/eta.far" 2>/dev/null
done
foretold "backup to a slow server" "$WORK/eta.far" true
same "what was done never decreases" "$(jq -s '[.[] | select(.type == "progress") | .doneBytes] | . == sort' \
    "$WORK/eta.far")" true
foretold backup "$WORK/eta.backup"
foretold restore "$WORK/eta.restore"
foretold verify "$WORK/eta.verify"
same "verify counts the bytes that it reads" \
    "$(jq -s '[.[] | select(.type == "progress" and .phase == "moving") | .totalBytes] | max >= 44040192' \
        "$WORK/eta.verify")" true
out=$(sf "$R" backup "$WORK/image" --as t@h:/i --full-scan --json 2>/dev/null)
same "JSON: done never exceeds the total" \
    "$(jq -s '[.[] | select(.type == "progress" and .doneBytes > .totalBytes and .totalBytes > 0)] | length' \
        <<<"$out")" 0
finish
