#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stock Kopia reads what maintenance has stored together of manifests, goes on with it, and compacts by itself (CF-40,
# CF-42): the same manifests for both, after each run of either. KOPIA=/path/to/kopia.
. "$(dirname "$0")/../lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "manifests stored together, beside stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
export KOPIA_CHECK_FOR_UPDATES=false KOPIA_DANGEROUS_COMMANDS=enabled
R=$WORK/repo
k() {
    "$KOPIA" --config-file "$WORK/config" --password "test password" --no-progress --log-level=error \
        --log-dir "$WORK/log" "$@" 2>&1
}
age() { "$TOOLS/age_repository" "$R" "$WORK/password" 25; }
OURS=snapferry-maintenance@n1
ours() { sf "$R" maintenance --node-name n1 "$@"; }
stock() {
    k maintenance set --owner=me --no-auto-maintenance && k maintenance run --full --safety="${1:-full}" &&
        k maintenance set --owner=$OURS --no-auto-maintenance
}
# Read-only, so that stock does not compact while it lists. Without the owner, which changes hands.
manifests() {
    k manifest list --json |
        jq -c 'sort_by(.id) | .[] | select(.labels.type != "maintenance") | [.id, .labels, .modified]'
}
stock_contents() { k content list --prefix m | wc -l; }
snapshots() { k snapshot list --all --manifest-id | grep -oE 'manifest:[0-9a-f]+' | sort; }
contents() { ours --dry-run --json | result manifests.contents; }
take() { sf "$R" backup "$WORK/v" --as "v$1@h:/v" --quiet; }
reconnect() { # yes: read-only
    rm -rf "$WORK/kc" "$WORK/config"
    k repository connect filesystem --path "$R" --cache-directory "$WORK/kc" --no-check-for-updates \
        --max-list-cache-duration=0s --override-username stock --override-hostname here ${1:+--readonly} >/dev/null
}
sf "$R" repo create --quiet --node-name n1
random_file "$WORK/v" 300000 1
mkdir "$WORK/tree" && random_file "$WORK/tree/f" 100000 2
for i in $(seq 20); do take "$i"; done
sf "$R" snapshot delete latest --as v3@h:/v --force --quiet
reconnect yes
before=$(manifests) list=$(snapshots) n=$(stock_contents)
check "stock finds many contents ($n)" [ "$n" -ge 22 ]
same "and 19 snapshots" "$(wc -l <<<"$list")" 19
same "as many as we do" "$(contents)" "$n"
check "ours stores them together" ours --quiet
reconnect yes
same "stock finds one content" "$(stock_contents)" 1
same "with the same manifests" "$(manifests)" "$before"
same "and the same snapshots" "$(snapshots)" "$list"
check "and verifies them" k snapshot verify --verify-files-percent=100 --no-auto-maintenance
check "and all contents" k content verify --full --no-auto-maintenance
check "one is shown" k manifest show "$(k manifest list --json | jq -r '.[0].id')"

# Both go on: stock deletes and adds, and compacts when it has seen 16.
reconnect
k snapshot create "$WORK/tree" --no-auto-maintenance >/dev/null
gone=$(k snapshot list --all --manifest-id --json | jq -r '[.[] | select(.source.userName == "v5")][0].id')
check "stock deletes one of ours" k snapshot delete "$gone" --delete
for i in $(seq 30 50); do take "$i"; done
list=$(snapshots) # it compacts here
same "what stock has compacted we find" "$(sf "$R" snapshot list --all --json | tail -n 1 | jq '.snapshots | length')" \
    "$(wc -l <<<"$list")"
check "stock has left few contents" [ "$(contents)" -lt 16 ]
lacks() { ! grep -q "manifest:$1" <<<"$list"; }
check "what was deleted does not come back" lacks "$gone"
for i in $(seq 60 80); do take "$i"; done
check "ours once more" ours --full --quiet
list=$(sf "$R" snapshot list --all --json | tail -n 1 | jq -r '.snapshots[].id' | sort)
same "stock lists the same" "$(snapshots | cut -d: -f2)" "$list"

# Maintenance by turns, days apart: the packs go, the list stays, our record in the history disturbs nobody.
for who in ours stock ours stock ours; do
    age
    take "turn-$who"
    list=$(sf "$R" snapshot list --all --json | tail -n 1 | jq -r '.snapshots[].id' | sort)
    case $who in ours) check "a turn of ours" ours --full --quiet ;; *) check "a turn of stock" stock ;; esac
    same "the list after it, by stock" "$(snapshots | cut -d: -f2)" "$list"
    same "and by us" "$(sf "$R" snapshot list --all --json | tail -n 1 | jq -r '.snapshots[].id' | sort)" "$list"
    check "stock verifies" k snapshot verify --verify-files-percent=100 --no-auto-maintenance
    check "so do we" sf "$R" verify --quiet
done
check "our record is in the history of stock" grep -q compact-manifests <<<"$(k maintenance info --json)$(
    "$TOOLS/manifests" "$R" "$WORK/password" history)"
same "and there after its runs" "$("$TOOLS/manifests" "$R" "$WORK/password" history |
    jq '.runs["compact-manifests"] | length > 0')" true
finish
