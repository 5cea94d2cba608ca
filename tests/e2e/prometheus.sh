#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The monitoring that is shipped, against the real thing: Debian's Prometheus scrapes a live daemon through backups, a
# restore, a verification, a failure and a cancel; then every query of the dashboard returns data, and the alerts that
# should fire do.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../prometheus-lib.sh"
M=$(realpath "$(dirname "$0")/../../monitoring")

# ---- what needs no daemon ----
check "the dashboard is JSON" jq -e '.panels | length > 10' "$M/snapferry-dashboard.json"
same "the documentation lists the alerts" \
    "$(sed -n 's/^| \(Snapferry[A-Za-z]*\) | \([a-z]*\) |.*/\1 \2/p' "$M/../docs/monitoring.md")" \
    "$(sed -n 's/^ *- alert: //p; s/^ *labels: {severity: \(.*\)}/\1/p' "$M/snapferry.rules.yml" | paste -d ' ' - -)"
if ! has_promtool; then skip "rules, scrape configuration and dashboard" "there is no promtool"; finish; fi
check "the rules are good" promtool check rules "$M/snapferry.rules.yml"
# Each test of the fixtures in a file of its own, with the rules that it names and no other: to evaluate all of them in
# each minute of each test takes ten times as long.
mkdir "$WORK/rules"
awk -v dir="$WORK/rules" '
    FNR == 1 { tests = FILENAME ~ /rules-test/; head = ""; body = 0 }
    tests && /^tests:/ { head = head $0; body = 1; next }
    tests && !body { sub(/\.\..*/, "FILE"); head = head $0 "\n"; next }
    tests {
        if (/^  - interval:/) { n++; heads[n] = head }
        text[n] = text[n] "\n" $0
        if (match($0, /alertname(="|: )[A-Za-z]+/)) {
            name = substr($0, RSTART, RLENGTH)
            sub(/.*[" ]/, "", name)
            names[n] = names[n] " " name
        }
        next
    }
    /^      - alert: / { alert = $3 }
    /^  - name: / { alert = "" }
    alert != "" { rule[alert] = rule[alert] $0 "\n" }
    END {
        for (i = 1; i <= n; i++) {
            rules = dir "/" i ".rules"
            print "groups:\n  - name: some\n    rules:" >rules
            split("", done)
            count = split(names[i], want, " ")
            for (k = 1; k <= count; k++)
                if (!(want[k] in done)) {
                    done[want[k]]
                    printf "%s", rule[want[k]] >rules
                }
            close(rules)
            sub(/FILE/, i ".rules", heads[i])
            print heads[i] text[i] >(dir "/" i ".yml")
        }
    }' "$M/snapferry.rules.yml" "$M"/../tests/fixtures/snapferry.rules-test*.yml
same "all tests of alerts are taken" "$(ls "$WORK"/rules/*.yml | wc -l)" \
    "$(cat "$M"/../tests/fixtures/snapferry.rules-test*.yml | grep -c '^  - interval:')"
check "each alert fires when it should, and not else" env GOGC=400 promtool test rules "$WORK"/rules/*.yml
# Each alert has a test in which it fires.
for a in $(sed -n 's/^ *- alert: //p' "$M/snapferry.rules.yml"); do
    grep -q "ALERTS{alertname=\"$a\", alertstate=\"firing\"" "$M"/../tests/fixtures/snapferry.rules-test*.yml ||
        missing+=" $a"
done
same "there is a test in which each fires" "${missing:-}" ""
need_root "Prometheus and a live daemon"
command -v prometheus >/dev/null || { skip "Prometheus and a live daemon" "there is no prometheus"; finish; }

# ---- a live daemon ----
fs_make vol xfs || { fail "a scratch file system"; finish; }
PORT=$(free_port) PROM=$(free_port)
daemon_setup
config_add 90-metrics "$(printf '[metrics]\nlisten = 127.0.0.1:%s\n' "$PORT")"
config_class images "$WORK/vol" "snapshots-to-retain = 2"
config_add 60-job "[job \"nightly\"]
volumes = $WORK/vol/a.img $WORK/vol/b.img
  $WORK/vol/bad.img
on-calendar = *-*-* $(later)
[volume \"bad\"]
name = $WORK/vol/bad.img
hook-pre-snapshot = /bin/false"
image "$WORK/vol/a.img" 8 1; image "$WORK/vol/b.img" 8 2; cp "$WORK/vol/b.img" "$WORK/vol/bad.img"
random_file "$WORK/vol/large.img" $((128 * MIB)) 3
# The example, on ports of our own and in a hurry.
sed -e "s/127\.0\.0\.1:9747/127.0.0.1:$PORT/; s/scrape_interval: .*/scrape_interval: 1s/
    s/scrape_timeout: .*/scrape_timeout: 1s/; s/evaluation_interval: .*/evaluation_interval: 1s/" \
    -e "s,snapferry\.rules\.yml,$WORK/rules.yml," "$M/prometheus-example.yml" >"$WORK/prometheus.yml"
sed 's/for: .*/for: 1s/' "$M/snapferry.rules.yml" >"$WORK/rules.yml"
check "the example of a scrape configuration is good" promtool check config "$WORK/prometheus.yml"
starts "the daemon starts"
prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/tsdb" \
    --web.listen-address="127.0.0.1:$PROM" >"$WORK/prometheus.log" 2>&1 &
prom=$!
at_exit "kill $prom; wait $prom"
query() { curl -s --max-time 10 -G "http://127.0.0.1:$PROM/api/v1/query" --data-urlencode "query=$1"; }
value() { query "$1" | jq -r '.data.result[0].value[1] // empty'; }
above() { jq -ne --arg v "$(value "$1")" --argjson t "$2" '($v | tonumber? // -1) > $t'; } # QUERY NUMBER
check "Prometheus scrapes it" until_true 20 above 'up{job="snapferry"}' 0

B=$(submit --job nightly); wait_state "$B" none 60 >/dev/null
same "a run with one failure" "$(state "$B")" PartiallyFailed
ask restore "$B/$WORK/vol/a.img" "$WORK/vol/restored.out" --from repository --wait --quiet >/dev/null 2>&1
rm -f "$WORK/vol/restored.out"
ask verify --wait --quiet >/dev/null 2>&1
running "$WORK/vol/large.img"
# A little at a time, until it has told of its progress.
progresses() {
    kill -CONT "$PID"
    sleep 0.05
    kill -STOP "$PID"
    sleep 1.2
    above "snapferry_operation_done_bytes{volume=\"$WORK/vol/large.img\"}" 0
}
check "the running operation is seen" until_true 30 progresses
# What is there only while something runs is looked at now.
jq -r '.. | objects | select(has("expr")) | .expr' "$M/snapferry-dashboard.json" | sort -u >"$WORK/exprs"
# As Grafana would fill them in, over the few seconds of this test.
fill() { sed -e 's/\$__rate_interval/2m/g; s/\$__range/5m/g; s/"\$[a-z]*"/".*"/g' <<<"$1"; }
ask_all() {
    local e
    touch "$WORK/answered"
    while IFS= read -r e; do
        # What shows only what there was shows nothing where there was none.
        query "$(fill "${e% > 0}")" | grep -q '"value":' && echo "$e" >>"$WORK/answered"
    done < <(grep -vxFf "$WORK/answered" "$WORK/exprs")
}
ask_all
ask cancel "$A" >/dev/null 2>&1; kill -CONT "$PID"; wait_state "$A" none 30 >/dev/null
same "a cancel" "$(state "$A")" Canceled
daemon_stop; starts "the daemon is started again"
B=$(submit "$WORK/vol/b.img"); wait_state "$B" Completed 60 >/dev/null
check "the end of it is scraped" until_true 15 above \
    'sum(snapferry_operations_total{direction="backup", result="canceled"})' 0
sleep 2
ask_all
while IFS= read -r e; do
    if grep -qxF -- "$e" "$WORK/answered"; then
        pass "dashboard: $e"
    else
        fail "dashboard: $e" "no data: $(query "$(fill "$e")" | head -c 400)"
    fi
done <"$WORK/exprs"
check "there are many of them" test "$(wc -l <"$WORK/exprs")" -ge 30

# ---- variables and names ----
vars=$(jq -r '.templating.list[] | select(.type == "query") | .query | if type == "object" then .query else . end' \
    "$M/snapferry-dashboard.json")
while IFS= read -r v; do
    s=$(sed -n 's/^label_values(\(.*\), *[a-z_]*)$/\1/p' <<<"$v") \
        l=$(sed -n 's/^label_values(.*, *\([a-z_]*\))$/\1/p' <<<"$v")
    n=$(query "count by ($l) ($(fill "$s"))" |
        jq '[.data.result[] | select(.metric[$l] // "" != "")] | length' --arg l "$l")
    check "variable $v" test "${n:-0}" -gt 0
done <<<"$vars"
# Each metric that rules and dashboard name exists: a family of the daemon.
curl -s "http://127.0.0.1:$PORT/metrics" | sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' | sort >"$WORK/families"
unknown=$(cat "$M"/snapferry.rules.yml "$M"/snapferry-dashboard.json | grep -oE 'snapferry_[a-z_]+' |
    grep -vE '^snapferry_(dashboard|rules)' |
    sort -u | while read -r n; do grep -qxF -e "$n" -e "${n%_bucket}" -e "${n%_sum}" -e "${n%_count}" \
    "$WORK/families" || echo "$n"; done)
same "no metric is named that does not exist" "$unknown" ""

# ---- alerts ----
firing() {
    curl -s "http://127.0.0.1:$PROM/api/v1/alerts" |
        jq -r '.data.alerts[] | select(.state == "firing") | .labels.alertname + " " + (.labels.volume // "")'
}
check "the failure is an alert" until_true 15 eval 'firing | grep -qx "SnapferryLastBackupFailed $WORK/vol/bad.img"'
firing >"$WORK/firing"
check "the good volumes are none" eval '! grep -q "SnapferryLastBackupFailed $WORK/vol/b.img" "$WORK/firing"'
check "no rule is broken" eval \
    'curl -s "http://127.0.0.1:$PROM/api/v1/rules" | jq -e "[.data.groups[].rules[] | select(.health != \"ok\")] == []"'
check "alerts are told with texts that are filled in" eval \
    'curl -s "http://127.0.0.1:$PROM/api/v1/alerts" |
        jq -e "[.data.alerts[].annotations[] | select(test(\"<no value>|<error\"))] == []"'
daemon_stop
check "a daemon that is gone is an alert" until_true 15 eval 'firing | grep -q "^SnapferryDown"'
explain_failure
finish
