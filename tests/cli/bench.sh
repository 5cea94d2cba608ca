#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# snapferry bench: every row is there, the kernels named are those in use, JSON parses, nothing is left behind.
. "$(dirname "$0")/../lib.sh"
bench() { "$SNAPFERRY" bench --quick --seconds 0.01 "$@"; }

bench --json >"$WORK/all.json" 2>"$WORK/all.err"
same "a run of everything succeeds" "$?" 0
same "and says nothing on standard error" "$(cat "$WORK/all.err")" ""
check "its result is one line of JSON" jq -es 'length == 1 and .[0].type == "result" and .[0].verb == "bench"' \
    "$WORK/all.json"
names() { jq -r --arg g "$1" '[.rows[] | select(.group == $g) | .name] | unique | .[]' "$WORK/all.json"; }
same "all 21 splitters" "$(names splitters | wc -l)" 21
same "all 11 hashes" "$(names hashes | wc -l)" 11
same "both ciphers" "$(names ciphers | tr '\n' ' ')" "AES256-GCM-HMAC-SHA256 CHACHA20-POLY1305-HMAC-SHA256 "
"$SNAPFERRY" -r "$WORK/none" --password-file "$WORK/password" backup /dev/null --compression nonsense 2>&1 |
    grep -oE 'use one of .*' | sed 's/use one of none, //; s/, /\n/g' | sort >"$WORK/writable"
check "every compressor that can be written" diff "$WORK/writable" <(names compressors | sort)
check "there are many" test "$(wc -l <"$WORK/writable")" -ge 10
same "each on both kinds of data, and expanded" \
    "$(jq -r '[.rows[] | select(.group == "compressors") | .variant] | group_by(.) | map("\(.[0]) \(length)") |
        join(", ")' "$WORK/all.json")" \
    "expand $(wc -l <"$WORK/writable"), mixed $(wc -l <"$WORK/writable"), random $(wc -l <"$WORK/writable")"
check "error correction both ways" \
    jq -e '[.rows[] | select(.group == "ecc") | .variant] | (index("encode") != null and index("decode") != null)' \
    "$WORK/all.json"
check "memory and zeros" jq -e '[.rows[].group] | (index("memory") != null and index("zeros") != null)' "$WORK/all.json"
check "each row has figures" \
    jq -e 'all(.rows[]; .coreGBPerSecond > 0 and .coreBestGBPerSecond >= .coreGBPerSecond and .allGBPerSecond > 0 and
        .threads >= 1 and .runs >= 1 and .kernel != "")' "$WORK/all.json"
check "random data are stored as they are, the mixed sample is not" jq -e \
    'all(.rows[] | select(.variant == "random"); .storedRatio == 1) and all(.rows[] | select(.variant == "mixed");
        .storedRatio < 0.9)' "$WORK/all.json"
same "advice on every choice" "$(jq -r '[.advice[].topic] | join(" ")' "$WORK/all.json")" \
    "hash splitter encryption compression limit"
read -r -a command <<<"$(jq -r '.command' "$WORK/all.json" |
    sed "s,REPO,$WORK/advised,; s,FILE,$WORK/password,; s,^snapferry ,,")"
check "the command that it suggests works" "$SNAPFERRY" "${command[@]}"
same "the sample is the same every time" \
    "$(jq -r '[.rows[] | select(.variant == "mixed") | .storedRatio] | @json' "$WORK/all.json")" \
    "$(bench --json compressors | jq -r '[.rows[] | select(.variant == "mixed") | .storedRatio] | @json')"

# The kernel of a row is the one that is in use.
kernel_of() { jq -r --arg n "$1" '[.rows[] | select(.name == $n) | .kernel] | unique | join(" ")'; }
level=$(jq -r '.machine.level' "$WORK/all.json")
for pair in BUZHASH:DYNAMIC-4M-BUZHASH:splitters BLAKE2B:BLAKE2B-256-128:hashes BLAKE3:BLAKE3-256:hashes \
    RABINKARP:DYNAMIC-4M-RABINKARP:splitters; do
    IFS=: read -r kernel name group <<<"$pair"
    same "SNAPFERRY_KERNEL_$kernel=scalar shows" \
        "$(env "SNAPFERRY_KERNEL_$kernel=scalar" "$SNAPFERRY" bench --quick --seconds 0.01 --json $group |
            kernel_of "$name")" scalar
done
same "SNAPFERRY_KERNEL_AESGCM=scalar shows as the library" \
    "$(env SNAPFERRY_KERNEL_AESGCM=scalar "$SNAPFERRY" bench --quick --seconds 0.01 --json ciphers |
        kernel_of AES256-GCM-HMAC-SHA256)" openssl
same "SNAPFERRY_KERNEL_SHA256=scalar too" \
    "$(env SNAPFERRY_KERNEL_SHA256=scalar "$SNAPFERRY" bench --quick --seconds 0.01 --json hashes |
        kernel_of HMAC-SHA256-128)" openssl
if [ -n "${SNAPFERRY_KERNEL_BLAKE2B:-}" ]; then
    same "the kernel that was asked for is named" "$(kernel_of BLAKE2B-256-128 <"$WORK/all.json")" \
        "$SNAPFERRY_KERNEL_BLAKE2B"
elif [ "$level" != scalar ]; then
    same "without it the best kernel is named" "$(kernel_of BLAKE2B-256-128 <"$WORK/all.json")" "$level"
else
    skip "without it the best kernel is named" "this CPU has none but scalar"
fi
expect "the text says so too" 0 "SNAPFERRY_KERNEL_BLAKE3 selects scalar" -- env SNAPFERRY_KERNEL_BLAKE3=scalar \
    "$SNAPFERRY" bench hashes --quick --seconds 0.01
expect "an unknown kernel is refused" 2 "unknown level" -- env SNAPFERRY_KERNEL_BLAKE3=fast \
    "$SNAPFERRY" bench hashes --quick
check "only what is asked for" jq -e '[.rows[].group] | unique == ["ecc", "zeros"]' <(bench --json ecc zeros)
expect "a table of hashes" 0 "BLAKE3-256 +[a-z0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+" -- bench hashes

expect "an unknown word" 2 "unknown benchmark \"nonsense\"" -- bench nonsense
expect "with the known ones" 2 \
    "use one of memory, zeros, splitters, hashes, ciphers, compressors, ecc, device, pipeline" -- bench nonsense
expect "the device wants a path" 2 "requires --device PATH" -- bench device
expect "the pipeline wants a directory" 2 "requires --dir DIR" -- bench pipeline
expect "as an option too" 2 "requires --dir DIR" -- bench --pipeline
expect "a directory wants the pipeline" 2 "requires --pipeline" -- bench --dir "$WORK" hashes
expect "seconds have bounds" 2 "requires a number from 0.01 to 60" -- bench --seconds 0
expect "so has the size" 2 "requires 8MiB to 1GiB" -- bench --size 1MiB
expect "and memory" 2 "do not fit" -- bench --size 128MiB --memory 96MiB
expect "no repository" 2 "does not take -r" -- "$SNAPFERRY" bench -r "$WORK/none"
expect "nor others' options" 2 "does not take --resume" -- bench --resume
expect "a device that is not there" 16 "/nowhere" -- bench device --device /nowhere
expect "a directory that is not there" 16 "--dir" -- bench pipeline --dir "$WORK/nowhere"
truncate -s 1M "$WORK/hole"
expect "nothing but a hole" 19 "contains no data" -- bench device --device "$WORK/hole"

random_file "$WORK/source" $((64 << 20)) 7
before=$(sha256sum "$WORK/source")
bench --json device --device "$WORK/source" >"$WORK/device.json"
same "a file is read" "$?" 0
check "in several ways" \
    jq -e '(.device.reads | length) >= 5 and all(.device.reads[]; .gbPerSecond > 0 and .bytes > 0) and .rows == []' \
    "$WORK/device.json"
same "and not written" "$(sha256sum "$WORK/source")" "$before"
same "a depth is suggested" "$(jq -r '.advice[].topic' "$WORK/device.json")" depth

mkdir "$WORK/dir"
bench pipeline --dir "$WORK/dir" --json --block-hash BLAKE3-256 >"$WORK/pipeline.json"
same "the pipeline runs" "$?" 0
same "with the hash that was asked for" "$(jq -r '.pipeline.hash' "$WORK/pipeline.json")" BLAKE3-256
same "five moves" "$(jq -r '[.pipeline.moves[].name] | length' "$WORK/pipeline.json")" 5
check "each with its time and stages" jq -e 'all(.pipeline.moves[]; .bytesPerSecond > 0 and .coreSeconds > 0 and
    (.stages | length) >= 3 and .bottleneck != "")' "$WORK/pipeline.json"
check "unchanged data are not stored again, mixed data compressed" \
    jq -e '.pipeline | (.moves[1].storedBytes < .sizeBytes / 100) and (.moves[4].storedBytes < .sizeBytes * 0.9)' \
    "$WORK/pipeline.json"
same "nothing is left behind" "$(ls -A "$WORK/dir")" ""
expect "a hash that is unknown" 2 "NONSENSE" -- bench pipeline --dir "$WORK/dir" --block-hash NONSENSE
same "then neither" "$(ls -A "$WORK/dir")" ""

# Memory: threads that do not fit are not started.
"$SNAPFERRY" bench ecc ciphers --seconds 0.05 --size 16MiB --memory 96MiB --workers 16 --json >"$WORK/memory.json" &
pid=$! peak=0
while kill -0 $pid 2>/dev/null; do
    now=$(awk '/^RssAnon|^RssShmem/ {n += $2} END {print n + 0}' /proc/$pid/status 2>/dev/null)
    [ "${now:-0}" -le $peak ] || peak=$now
    sleep 0.02
done
wait $pid
same "within 96 MiB all rows can be measured" "$?" 0
if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then
    skip "its memory stays within" "a sanitizer's own memory would be measured"
else
    check "its memory stays within" test $peak -le $((96 << 10))
fi
check "and was seen" test $peak -ge $((32 << 10))
check "by fewer threads" jq -e '[.rows[] | select(.group == "ecc") | .threads] | max < 16 and min >= 1' \
    "$WORK/memory.json"

# Ctrl-C: what was measured is told.
"$SNAPFERRY" bench --json --seconds 5 memory zeros hashes >"$WORK/cut.json" 2>"$WORK/cut.err" &
pid=$!
sleep 1
kill -INT $pid
wait $pid
same "an interrupted run says so by its exit code" "$?" 130
check "and in its result" jq -e '.interrupted == true and (.rows | length) < 13' "$WORK/cut.json"
"$SNAPFERRY" bench pipeline --dir "$WORK/dir" --size 64MiB >"$WORK/cut.txt" 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && [ -z "$(ls -A "$WORK/dir")" ]; do sleep 0.05; done
kill -INT $pid
wait $pid
same "the pipeline too" "$?" 130
same "and cleans up" "$(ls -A "$WORK/dir")" ""
finish
