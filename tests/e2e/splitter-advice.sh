#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What incremental backups store for each byte that changed is counted by class, and `explain` names the splitter that
# would store less, by the class's own history: with it less is stored, about as much as was said (CF-07, E-07).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "incremental backups of images on a real file system"
fs_make xfs xfs 400 || exit 1
IMG=$WORK/xfs/a.img
random_file "$IMG" $((64 * MIB)) 1
daemon_setup 'changed-blocks = auto' 'verify-sample = 0'
config_class db "$WORK/xfs"
config_add 70-metrics "$(printf '[metrics]\ntextfile = %s/metrics.prom\ntextfile-period = 1s\n' "$WORK")"
sed -i '/^\[metrics\]$/,/^listen/d' "$CONF/snapferry.ini"
starts "the daemon starts"

backup() { askj backup "$IMG" --wait "$@" | jq -r .id; }
op() { doc "$1" | jq -rc ".operations[0] | $2"; }
# writes SEED: 24 pages of 4 KiB, all over the image.
writes() {
    local i
    random_file "$WORK/page" 4096 "$1"
    for i in $(seq 24); do
        dd if="$WORK/page" of="$IMG" bs=4096 seek=$(((i * 6271 + $1 * 977) % 16384)) conv=notrunc status=none
    done
}
advice() { askj explain "$IMG" | jq -c '.splitter // empty'; }
metric() { awk -v m="snapferry_$1{class=\"db\"}" '$1 == m { print $2 }' "$WORK/metrics.prom"; }
runs() { # FROM TO
    local i
    for i in $(seq "$1" "$2"); do writes "$i"; last=$(backup); done
}

backup >/dev/null
runs 1 2
same "two incremental backups: nothing is said" "$(advice)" ""
runs 3 4
A=$(advice)
same "four: all are counted" "$(jq -r .runs <<<"$A")" 4
same "the ranges that changed" "$(jq -r .changed_ranges <<<"$A")" 96
same "and their bytes" "$(jq -r .changed_bytes <<<"$A")" $((96 * 4096))
before=$(jq -r .amplification <<<"$A")
check "with chunks of a MiB much is stored ($before times)" test "${before%.*}" -gt 100
same "small chunks are recommended" "$(jq -r .recommended <<<"$A")" FIXED-128K
check "in words" eval 'askj explain "$IMG" | jq -r ".text[]" |
    grep -q "With splitter = FIXED-128K it would be about"'
until_true 20 eval '[ "$(metric incremental_runs_total)" = 4 ]'
same "the metrics have it" "$(metric incremental_runs_total) $(metric incremental_changed_ranges_total) $(
    metric incremental_changed_bytes_total) $(metric incremental_new_bytes_total)" \
    "4 96 $((96 * 4096)) $(jq -r .new_bytes <<<"$A")"

config_class db "$WORK/xfs" 'splitter = FIXED-128K'
check "reload" ask reload --wait
same "with it the next one reads all" "$(op "$(backup)" .fullReason)" parent-unfit
runs 5 5
same "and the one after it what changed" "$(op "$last" .fullReason)" null
now=$(advice | jq --argjson a "$A" '(.new_bytes - $a.new_bytes) / (.changed_bytes - $a.changed_bytes)')
estimate=$(jq -r .estimate <<<"$A")
check "that stores less than half ($now times)" awk -v a="$now" -v b="$before" 'BEGIN { exit !(a * 2 < b) }'
check "about as much as was said ($estimate)" awk -v a="$now" -v b="$estimate" \
    'BEGIN { exit !(a < 1.5 * b && b < 1.5 * a) }'
same "nothing else is recommended" "$(advice | jq -r .recommended)" null
check "restored bit for bit" eval 'sf "$REPO" restore "$(op "$last" .result.snapshotID)" "$WORK/out" --quiet &&
    cmp "$WORK/out" "$IMG"'
stops "the daemon stops"
finish
