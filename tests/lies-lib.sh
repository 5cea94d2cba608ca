# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of change trackers that lie share, after tests/daemon-lib.sh.
. "$(dirname "${BASH_SOURCE[0]}")/prometheus-lib.sh"
LIES_SOCK=$WORK/metrics.sock
RULES=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../monitoring/snapferry.rules.yml")

lies_metrics() {
    config_add 90-metrics "[metrics]
listen = unix:$LIES_SOCK"
}
# mismatches: how often verify-sample has found a lie.
mismatches() {
    fresh_page --unix-socket "$LIES_SOCK" http://x/metrics | sed -n 's/^snapferry_cbt_verify_mismatch_total //p'
}
backup() { askj backup "$1" --wait "${@:2}" | jq -r .id; }
# op BACKUP FILTER: of its operation
op() { doc "$1" | jq -rc ".operations[0] | $2"; }
# restored BACKUP FILE: what it restores is equal to the file.
restored() {
    sf "$REPO" restore "$(op "$1" .result.snapshotID)" "$WORK/restored" --force --quiet && cmp "$WORK/restored" "$2"
}
# found_within START LENGTH: MiB of which the log has a chunk that was not as its parent's.
found_within() {
    sed -nE 's/.*all data was read \(mismatch\): ([0-9]+) bytes at ([0-9]+) of .*/\2 \1/p' "$LOG" |
        awk -v from=$(($1 * MIB)) -v to=$((($1 + $2) * MIB)) '$1 < to && $1 + $2 > from { n++ } END { exit !n }'
}
# alert NAME BEFORE AFTER: a test, whether the alert fires where the metric goes from one value to the other.
alert() {
    if ! has_promtool; then skip "$1" "there is no promtool"; return; fi
    {
        printf 'groups:\n  - name: one\n    rules:\n'
        awk '/^      - alert: /{mine = $3 == "SnapferryChangedBlocksWrong"} mine' "$RULES"
    } >"$WORK/one.rules"
    cat >"$WORK/one.yml" <<END
rule_files: [one.rules]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'snapferry_cbt_verify_mismatch_total{instance="n", job="snapferry"}', values: '$2x10 $3x90'}
    promql_expr_test:
      - expr: 'ALERTS{alertname="SnapferryChangedBlocksWrong", alertstate="firing"}'
        eval_time: 20m
        exp_samples:
          - labels: 'ALERTS{alertname="SnapferryChangedBlocksWrong", alertstate="firing",
              instance="n", job="snapferry", severity="critical"}'
            value: 1
END
    check "$1" promtool test rules "$WORK/one.yml"
}
