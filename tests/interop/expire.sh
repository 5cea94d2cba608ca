#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stock Kopia as the judge of policies and expiry (CF-43, E-11): the same repository, expired once by stock and once by
# us, keeps the same snapshots; policies and pins of one are those of the other. KOPIA=/path/to/kopia.
. "$(dirname "$0")/../lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "expiry beside stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
export KOPIA_CHECK_FOR_UPDATES=false KOPIA_DANGEROUS_COMMANDS=enabled
k() { # REPO ARGS...: stock on a repository, each with a configuration of its own
    local repo=$1 n
    n=$(basename "$repo")
    shift
    [ -e "$WORK/$n.config" ] || "$KOPIA" --config-file "$WORK/$n.config" --password "test password" --log-level=error \
        --log-dir "$WORK/log" repository connect filesystem --path "$repo" --cache-directory "$WORK/kc-$n" \
        --no-check-for-updates --override-username snapferry --override-hostname node >/dev/null 2>&1
    "$KOPIA" --config-file "$WORK/$n.config" --password "test password" --no-progress --log-level=error \
        --log-dir "$WORK/log" "$@" --no-auto-maintenance 2>&1
}
left() {
    k "$1" snapshot list --all --incomplete --show-identical --max-results=10000 --json |
        jq -c '[.[] | .source.path + " " + .startTime] | sort'
}
ours_left() {
    sf "$1" snapshot list --all --json | tail -n 1 | jq -c '[.snapshots[] | .source.path + " " + .startTime] | sort'
}

# One repository with histories of three volumes; stock takes the snapshots, at times long gone.
R=$WORK/master
sf "$R" repo create --quiet
mkdir "$WORK/src"
random_file "$WORK/src/volume.img" 20000 1
k "$R" policy set --global --keep-latest 10000 --keep-annual 100 >/dev/null
take() {
    k "$R" snapshot create "$WORK/src" --override-source "snapferry@node:$1" --start-time "$2" \
        --end-time "$2" >/dev/null
}
failed=0
for d in 2024-02-29 2025-01-03 2025-12-31 2026-01-01 2026-02-01 2026-02-02 2026-03-08 2026-03-09; do
    for h in 00:30 06:59 07:00 23:59; do take /vol-1 "$d $h:00 UTC" || failed=1; done
done
for i in $(seq 1 12); do take /vol-2 "2026-03-$(printf %02d $i) 12:00:00 UTC" || failed=1; done
for i in 1 2 3; do take /deep/er/vol-3 "2026-03-0$i 12:00:00 UTC" || failed=1; done
same "stock takes the snapshots" $failed 0
same "47 of them" "$(left "$R" | jq length)" 47
pinned=$(sf "$R" snapshot list --json | tail -n 1 |
    jq -r '.snapshots[] | select(.startTime == "2024-02-29T00:30:00Z") | .id')
check "we pin one" sf "$R" snapshot pin "$pinned" audit
same "stock sees the pin" "$(k "$R" snapshot list --all --json |
    jq -c '[.[] | select(.pins != null) | [.startTime, .pins]]')" \
    '[["2024-02-29T00:30:00Z",["audit"]]]'
same "and nothing twice" "$(left "$R" | jq length)" 47

compare() { # NAME TZ POLICY-COMMANDS: both expire a copy of the master
    local name=$1 tz=$2 a=$WORK/a-$1 b=$WORK/b-$1
    cp -a "$R" "$a"
    eval "$3" >/dev/null
    cp -a "$a" "$b"
    k "$a" policy show snapferry@node:/vol-1 --json >"$WORK/policy.json"
    TZ=$tz k "$a" snapshot expire --all --delete >/dev/null
    local before want
    before=$(ours_left "$b")
    want=$(left "$a")
    same "$name: a dry run changes nothing" "$(TZ=$tz sf "$b" snapshot expire --all --dry-run --json |
        result expired; ours_left "$b")" \
        "$(($(jq length <<<"$before") - $(jq length <<<"$want")))
$before"
    check "$name: we expire" env TZ="$tz" "$SNAPFERRY" -r "$b" --password-file "$WORK/password" snapshot \
        expire --all --quiet
    same "$name: the same are left" "$(ours_left "$b")" "$want"
    [ "$name" = none ] || check "$name: and that is not all of them" test "$(jq length <<<"$want")" -lt 40
    same "$name: stock sees so" "$(left "$b")" "$want"
    same "$name: and has nothing more to do" "$(TZ=$tz k "$b" snapshot expire --all --delete >/dev/null; left "$b")" \
        "$want"
    rm -rf "$a" "$b"
}
# LATEST HOURLY DAILY WEEKLY MONTHLY ANNUAL, and of what.
keeps() {
    k "$a" policy set --keep-latest "$1" --keep-hourly "$2" --keep-daily "$3" --keep-weekly "$4" --keep-monthly "$5" \
        --keep-annual "$6" "$7"
}
small='keeps 2 3 3 2 2 2 --global'
compare utc UTC "$small"
compare new-york America/New_York "$small"
compare kiritimati Pacific/Kiritimati "$small"
compare inherited UTC \
    "$small; k \"\$a\" policy set snapferry@node --keep-latest 0 --keep-daily 1
        keeps 1 0 0 0 0 0 snapferry@node:/deep; k \"\$a\" policy set @node --keep-weekly 5"
compare months UTC 'keeps 0 0 0 12 12 0 --global'
compare none UTC 'keeps 0 0 0 0 0 0 --global'

# Policies that we write are Kopia's own.
P=$WORK/policies
cp -a "$R" "$P"
keep() { "$TOOLS/policy_keep" "$P" "$WORK/password" "$@"; }
shown() {
    k "$P" policy show "$1" --json |
        jq -c '[.retention.keepLatest, .retention.keepHourly, .retention.keepDaily, .retention.keepWeekly,
            .retention.keepMonthly, .retention.keepAnnual, .scheduling.manual, .compression.compressorName]'
}
same "a policy is written" "$(keep snapferry@node:/vol-1 -1 -1 14 8 -1 -1)" "written
10000 48 14 8 24 100"
same "stock reads it" "$(shown snapferry@node:/vol-1)" '[10000,48,14,8,24,100,true,"none"]'
same "the second time nothing is written" "$(keep snapferry@node:/vol-1 -1 -1 14 8 -1 -1 | head -n 1)" unchanged
check "stock changes it" k "$P" policy set snapferry@node:/vol-1 --compression=zstd --keep-daily 3 --keep-annual 1
same "ours takes the retention back and keeps the rest" "$(keep snapferry@node:/vol-1 -1 -1 14 8 -1 -1)" "written
10000 48 14 8 24 100"
same "and stock agrees" "$(shown snapferry@node:/vol-1)" '[10000,48,14,8,24,100,true,"zstd"]'
same "there is one policy of it" \
    "$(k "$P" policy list --json | jq '[.[] | select(.target.path == "/vol-1")] | length')" 1
before=$(left "$P" | jq length)
check "expire by it" sf "$P" snapshot expire --as snapferry@node:/vol-2 --quiet
same "other sources are left alone" "$(left "$P" | jq length)" "$before"
check "stock takes our pin away" k "$P" snapshot pin "$(k "$P" snapshot list --all --json |
    jq -r '.[] | select(.pins != null) | .id')" --remove=audit
same "we see that" "$(sf "$P" snapshot list --json | tail -n 1 | jq '[.snapshots[] | select(.pins)] | length')" 0
id=$(sf "$P" snapshot list --json | tail -n 1 | jq -r '.snapshots[] | select(.source.path == "/vol-2") | .id' |
    head -n 1)
check "we delete one" sf "$P" snapshot delete "$id" --quiet
same "stock misses it" "$(k "$P" snapshot list --all --json |
    jq --arg id "$id" '[.[] | select(.id == $id)] | length')" 0
check "maintenance of stock's after all that" k "$P" maintenance set --owner=me
check "it runs" k "$P" maintenance run --full --safety=none
check "what is left is whole" sf "$P" verify
check "stock says so too" k "$P" snapshot verify --verify-files-percent=100
finish
