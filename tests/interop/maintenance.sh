#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stock Kopia as the judge of maintenance (CF-42): after each run of ours all is whole for it, and both take turns on
# one repository, each continuing the other's history. KOPIA=/path/to/kopia. THROUGH_S3=1: both through S3.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "maintenance beside stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
export KOPIA_CHECK_FOR_UPDATES=false KOPIA_DANGEROUS_COMMANDS=enabled
R=$WORK/repo
k() {
    local n
    n=$(basename "$R")
    local place=(filesystem --path "$R")
    [ -z "${S3_CA:-}" ] || place=(s3 --root-ca-pem-path "$S3_CA" --endpoint "127.0.0.1:$port" --bucket bucket
        --prefix "$n/"
        --region us-east-1 --access-key a --secret-access-key b)
    # Its lists are not cached: the days that pass between two runs are not real.
    [ -e "$WORK/$n.config" ] || "$KOPIA" --config-file "$WORK/$n.config" --password "test password" --log-level=error \
        --log-dir "$WORK/log" repository connect "${place[@]}" --cache-directory "$WORK/kc-$n" \
        --no-check-for-updates --max-list-cache-duration=0s --override-username stock --override-hostname here \
        >"$WORK/connect.log" 2>&1 || fail "stock connects" "$(cat "$WORK/connect.log")"
    "$KOPIA" --config-file "$WORK/$n.config" --password "test password" --no-progress --log-level=error \
        --log-dir "$WORK/log" "$@" 2>&1
}
[ -z "${THROUGH_S3:-}" ] || through_s3 tls
age() { "$TOOLS/age_repository" "$R" "$WORK/password" 25; }
bytes() { find "$R/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
OURS=snapferry-maintenance@n1
ours() { sf "$R" maintenance --full --node-name n1 "$@"; }
stock() {
    k maintenance set --owner=me --no-auto-maintenance && k maintenance run --full &&
        k maintenance set --owner=$OURS --no-auto-maintenance
}
judge() { # WHEN
    check "$1: stock verifies all snapshots" k snapshot verify --verify-files-percent=100 --no-auto-maintenance
    check "$1: and all contents" k content verify --full --no-auto-maintenance
    check "$1: so do we" sf "$R" verify --quiet
}
mkdir "$WORK/tree"
random_file "$WORK/tree/f" 5000000 3
for i in 1 2 3; do random_file "$WORK/v$i" 15000000 $((20 + i)); done
for turns in "ours" "ours stock" "stock ours" "stock ours ours"; do
    R=$WORK/repo-${turns// /-}
    sf "$R" repo create --quiet --node-name n1
    for i in 1 2 3; do sf "$R" backup "$WORK/v$i" --as "v$i@h:/v" --quiet; done
    k snapshot create "$WORK/tree" --no-auto-maintenance >/dev/null
    full=$(bytes) n=0
    sf "$R" snapshot delete latest --as v2@h:/v --force --quiet
    # Stock may rewrite contents that are marked deleted, which renews their time: then it takes longer.
    for who in $turns $turns $turns $turns $turns $turns; do
        age
        n=$((n + 1))
        check "$turns: run $n by $who" $who
        judge "$turns $n"
        [ "$(bytes)" -ge $((full - 10000000)) ] || break
    done
    same "$turns: freed, in the third run at the earliest ($n)" $((n >= 3 && $(bytes) < full - 10000000)) 1
done
check "stock restores" k snapshot restore "$(k snapshot list --all --json --no-auto-maintenance |
    jq -r '[.[] | select(.source.userName == "v3")][-1].id')" "$WORK/out"
check "byte by byte" cmp "$WORK/out/volume.img" "$WORK/v3"

# Marked by another client although needed: stored again.
id=$(k content list --no-auto-maintenance | grep -v '^[a-z]' | awk 'length($1) == 32 { print $1 }' | head -n 1)
age
check "stock marks a needed content deleted" k content delete "$id" --no-auto-maintenance
same "we store it again" "$(ours --json | result restored.count)" 1
judge "stored again"
same "it is no longer deleted" "$(k content list --deleted-only --no-auto-maintenance | grep -c "$id")" 0
check "stock reads our history" jq -e \
    '.schedule.runs | has("snapshot-gc") and has("full-drop-deleted-content")' <(k maintenance info --json)
finish
