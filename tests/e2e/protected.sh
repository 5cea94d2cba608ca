#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Protected is what has a backup that still exists: status, volumes, explain and metrics say the same when volumes come
# and go, when backups are deleted, detached, expired or taken away by somebody else. New volumes count without being
# asked for.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../prometheus-lib.sh"
need_root "a daemon that looks for volumes"
: "${TOOLS:=$BUILD/tests/tools}"
fs_make xfs xfs || exit 1
V=$WORK/xfs
mkdir "$V/only"
image "$V/a.img" 2 1
image "$V/b.img" 2 2
image "$V/tmp.img" 2 3
SOCK=$WORK/m.sock
daemon_setup 'sweep = 1s'
config_class gold "$V" 'snapshots-to-retain = 1'
config_add only "[storage-class \"only\"]
driver = reflink
match = $V/only/*.img
move-data = no
snapshot-only-keep = 2"
config_add tmp "[volume \"$V/tmp.img\"]
exclude = yes"
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
starts "the daemon starts"

metric() {
    fresh_page --unix-socket "$SOCK" http://x/metrics |
        awk -v n="snapferry_$1" '{ i = length($0) - length($NF); if (substr($0, 1, i - 1) == n) print $NF }'
}
states='[.volumes[].state] as $s | ["protected", "unprotected", "gone", "excluded"] |
    map(. as $w | [$s[] | select(. == $w)] | length | tostring) | join(" ")'
counts() {
    askj status | jq -r "$states"
}
listed() {
    askj volumes | jq -r "$states"
}
metrics() {
    fresh_page --unix-socket "$SOCK" http://x/metrics | awk '
        match($1, /^snapferry_volumes\{state="[a-z]+/) { n[substr($1, 26, RLENGTH - 25)] = $2 }
        END { print n["protected"], n["unprotected"], n["gone"], n["excluded"] }'
}
are() { [ "$(counts)" = "$1" ]; }
shown() { [ "$(metrics)" = "$1" ]; }
# all NAME "PROTECTED UNPROTECTED GONE EXCLUDED": status without being asked to look, metrics, volumes.
all() {
    if until_true 60 are "$2"; then pass "$1: status"; else fail "$1: status" "it has $(counts), wanted $2"; fi
    if until_true 30 shown "$2"; then pass "$1: metrics"; else fail "$1: metrics" "they have $(metrics), wanted $2"; fi
    same "$1: volumes" "$(listed)" "$2"
}
of() { askj volumes | jq -r --arg n "$1" '.volumes[] | select(.name == $n) | '"$2"; }
# bare NAME VOLUME REASON: everybody says that it is not protected.
bare() {
    same "$1: volumes" "$(of "$2" .state)" unprotected
    expect "$1: the reason" 0 "$3" -- ask volumes --wide
    expect "$1: explain" 0 'Protected +NO: ' -- ask explain "$2"
    same "$1: the metric" "$(metric "volume_protected{volume=\"$2\"}")" 0
    same "$1: no last success" "$(metric "volume_last_success_timestamp_seconds{volume=\"$2\"}")" 0
    expect "$1: status --check" 3 -- ask status --check --quiet
}
good() { ask backup "$1" --wait --json | result id; }

# ---- new volumes count before anybody asks for them ----
all "what is there is found" "0 2 0 1"
expect "they count in status --check" 3 -- ask status --check --quiet
image "$V/c.img" 2 4
all "a new one" "0 3 0 1"
expect "it says so" 0 '3, 3 NOT PROTECTED; 1 excluded' -- ask status
rm "$V/c.img"
all "one that goes before it was backed up leaves nothing behind" "0 2 0 1"

# ---- the only backup is deleted ----
A=$(good "$V/a.img") B1=$(good "$V/b.img") B2=$(good "$V/b.img")
all "after backups" "2 0 0 1"
proven() { sql "SELECT doc ->> '$.verified_ns' > 0 FROM operations WHERE parent = '$1'"; }
same "the first was looked for by the mover that recorded its outcome" \
    "$(of "$V/a.img" '.why // "nothing"') $(proven "$A")" "nothing 1"
same "the second when the first made room" "$(of "$V/b.img" '.why // "nothing"') $(proven "$B2")" "nothing 1"
expect "explain has no reservation" 0 'Protected +yes, last success [^;]*$' -- ask explain "$V/a.img"
same "no mover was started only for that: one check made room" \
    "$(sql "SELECT count(*) FROM operations WHERE id LIKE 'admin-check%'")" 1
check "status --check: all is well" ask status --check --quiet
ends() { askj describe "$1" | jq -r '.backup.operations[0].ended_ns'; }
first=$(ends "$B1")
check "the only backup of one is deleted" ask delete "$A" --wait --even-kept --quiet
all "it is protected no more" "1 1 0 1"
bare "deleted" "$V/a.img" "no backups are left: the last one, $A, was deleted"
check "the newer backup of the other is deleted" ask delete "$B2" --wait --even-kept --quiet
same "the older one protects it" "$(of "$V/b.img" .state)" protected
same "since then" "$(of "$V/b.img" .last_success_ns)" "$first"
near() {
    local t
    t=$(metric "volume_last_success_timestamp_seconds{volume=\"$V/b.img\"}")
    awk -v a="$t" -v b="$first" 'BEGIN {d = a - b / 1e9; exit d < -1 || d > 1}'
}
check "the metric has its time" near
stops "a restart"
starts "changes nothing"
same "of that" "$(of "$V/b.img" .last_success_ns) $(of "$V/a.img" .state)" "$first unprotected"

# ---- it was there for the check before pruning, and is gone when its outcome is recorded ----
take_away() { # VOLUME: with the hook after its backup
    cat >"$WORK/take-away" <<EOF
#!/bin/sh
run() { $SNAPFERRY -r "$REPO" --password-file "$WORK/password" --cache-dir "$WORK/cache.take" "\$@"; }
run snapshot delete --force --quiet \
    "\$(run snapshot list --json | tail -n 1 |
        jq -r '.snapshots | map(select(.tags["tag:volume"] == "$1"))[-1].id')"
EOF
    chmod 755 "$WORK/take-away"
}
image "$V/y.img" 2 7
Y1=$(good "$V/y.img")
take_away "$V/y.img"
config_add y "[volume \"$V/y.img\"]
hook-post-backup = $WORK/take-away"
ask reload --wait --quiet
Y2=$(submit "$V/y.img")
same "gone since the check: the backup is no success" "$(wait_state "$Y2" PartiallyFailed 60)" PartiallyFailed
same "gone since the check: it had been seen there" "$(proven "$Y2")" 1
expect "gone since the check: with the reason" 0 'does not have what was backed up: .*there is no such snapshot' -- \
    ask describe "$Y2"
same "gone since the check: the one before protects it" "$(of "$V/y.img" '"\(.state) \(.last_success_ns)"')" \
    "protected $(ends "$Y1")"
check "it is deleted" ask delete "$Y2" --wait --even-kept --quiet
check "and the one before" ask delete "$Y1" --wait --even-kept --quiet
rm "$V/y.img" "$CONF/conf.d/y.ini"
ask reload --wait --quiet
check "and the volume is forgotten" until_true 30 ask forget "$V/y.img" --quiet

# ---- what the mover has reported is not there when its outcome is recorded ----
take_away "$V/x.img"
image "$V/x.img" 2 6
config_add x "[volume \"$V/x.img\"]
hook-post-backup = $WORK/take-away"
ask reload --wait --quiet
X=$(submit "$V/x.img")
same "the backup is no success" "$(wait_state "$X" PartiallyFailed 60)" PartiallyFailed
bare "not there" "$V/x.img" "no backups are left: the last one, $X, is not in the repository as it was backed up"
expect "describe has what was found" 0 'does not have what was backed up: .*there is no such snapshot' \
    -- ask describe "$X"
recorded() {
    CACHE=$WORK/cache.tool "$TOOLS/manifests" "$REPO" "$WORK/password" list snapferry-backup |
        jq -r --arg b "$1" 'select(.labels.backup == $b).data | . as $d | .volumes[0] |
            "\($d.phase) \(.result) \(.snapshotDataMoved)"'
}
same "the repository has that outcome" "$(recorded "$X")" "PartiallyFailed Failed false"
rm "$V/x.img"
check "it is deleted" ask delete "$X" --wait --force --even-kept --quiet
ask reload --wait --quiet
# A search has to find that it is gone.
check "and forgotten" until_true 30 ask forget "$V/x.img" --quiet

# ---- retention never takes the newest ----
B3=$(good "$V/b.img")
check "expire" ask snapshot expire --wait --quiet
last=$(of "$V/b.img" .last_success_ns)
same "what is left is the newest, and protects" "$(of "$V/b.img" .state) $last" "protected $(ends "$B3")"

# ---- somebody else deletes it in the repository ----
A=$(good "$V/a.img")
same "backed up again" "$(of "$V/a.img" .state)" protected
S=$(askj describe "$A" | jq -r '.backup.operations[0].result.snapshotID')
check "without the daemon's knowledge" sf "$REPO" snapshot delete "$S" --force --quiet
check "a scan" ask scan main --quiet
bare "taken away" "$V/a.img" 'is no longer in repository "main"'
A=$(good "$V/a.img")
same "a new backup protects again" "$(of "$V/a.img" .state)" protected
expect "and nothing of that is left" 1 \
    -- sh -c "$(declare -f \
        ask opener); SNAPFERRY=$SNAPFERRY RUN=$RUN STATE=$STATE CONF=$CONF; ask volumes | grep 'none of its'"

# ---- a snapshot alone ----
image "$V/only/s.img" 2 5
good "$V/only/s.img" >/dev/null
same "a snapshot-only volume" "$(of "$V/only/s.img" .state)" protected
same "which is said" "$(of "$V/only/s.img" .why)" "by a native snapshot only; the repository has no copy"
find "$V/only" -path '*/.snapferry/*' -name '*.native' -delete
ask scan main --quiet
unsafe() { [ "$(of "$V/only/s.img" .state)" = unprotected ]; }
check "whose only snapshot is gone from the storage" until_true 60 unsafe
bare "no snapshot" "$V/only/s.img" 'no longer on the storage'
rm "$V/only/s.img"

# ---- gone, excluded, passed over ----
ask reload --wait --quiet # looks for volumes at once
all "gone" "2 0 1 1"
rm "$V/b.img"
ask reload --wait --quiet # looks at once, as does a request; the daemon's own looks are half a minute apart
all "one more" "1 0 2 1"
expect "status tells" 0 '1, all protected; 2 gone, 1 excluded' -- ask status
expect "a class without any of its volumes is a problem" 0 'none of its 1 volume is there any more' -- ask status
expect "one that is there is not forgotten" 14 'is there' -- ask forget "$V/a.img"
expect "nor one that is not known" 16 'no volume' -- ask forget "$V/x.img"
check "forget" ask forget "$V/only/s.img" --quiet
all "then it does not count" "1 0 1 1"
check "status --check: one that is gone alone is no problem" ask status --check --quiet
check "and its backups are there" sh -c "[ $(askj backups --all |
    jq --arg b "$B3" '[.backups[] | select(.id == $b)] | length') = 1 ]"
printf 'x' >"$V/$(printf 'bad\377.img')"
odd() { ask status | grep -q 'not valid UTF-8'; }
check "a name that cannot be recorded is a problem" until_true 60 odd
same "told once in the log" "$(grep -c 'ignored.*not valid UTF-8' "$LOG")" 1
expect "volumes tells as well" 0 'not valid UTF-8' \
    -- sh -c "$SNAPFERRY volumes --runtime-dir $RUN --state-dir $STATE --config-dir $CONF 2>&1"
rm -f "$V"/bad*

# ---- the repository is given up ----
check "detach" ask repo detach main
same "nothing is protected" "$(counts)" "0 1 1 1"
bare "detached" "$V/a.img" 'which was detached'
explain_failure
finish
