#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The repository is asked before a native snapshot is pruned. What it finds damaged is a problem that status, its exit
# code, the list of backups and a metric show, until the repository is whole again, and no longer. (CF-15, RS-18)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a file system with native snapshots"
fs_make xfs xfs 500 || exit 1
SOCK=$WORK/metrics.sock
V=$WORK/xfs/a.img
daemon_setup
config_class images "$WORK/xfs" 'snapshots-to-retain = 1'
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
config_add 80-job "[job \"nightly\"]
volumes = class:images"
starts "the daemon starts" || { explain_failure; finish; }
metric() {
    curl -s --unix-socket "$SOCK" http://x/metrics | awk -v n="snapferry_$1" '$1 == n { print $2 }'
}
shown() { [ "$(metric 'damaged_snapshots{repository="main"}')" = "$1" ]; }
problems() { askj status | jq "[.problems[] | select(.text | test(\"$1\"))] | length"; }
packs() { find "$REPO/p" -name '*.f' -size +1000k 2>/dev/null | sort; }
backup() { # SEED [SIZE]: of other data, and of holes behind it. Its packs are in the file "new".
    random_file "$V" $((3 * MIB)) "$1"
    [ -z "${2:-}" ] || truncate -s "$2" "$V"
    sync "$V"
    packs >"$WORK/before"
    askj backup --job nightly --wait | jq -r .id
    packs | comm -13 "$WORK/before" - >"$WORK/new"
}
A=$(backup 1)
check "a backup, nothing to complain about" ask status --check --quiet
same "none is damaged" "$(metric 'damaged_snapshots{repository="main"}')" 0

damage() { # what the last backup has stored
    local f
    mkdir -p "$WORK/kept"
    cp "$WORK/new" "$WORK/packs"
    while read -r f; do
        cp -p "$f" "$WORK/kept/"
        printf damage | dd of="$f" bs=1 seek=500000 conv=notrunc status=none
    done <"$WORK/packs"
}
mend() {
    local f
    while read -r f; do cp -p "$WORK/kept/${f##*/}" "$f"; done <"$WORK/packs"
}
gone="not whole in the repository since 20[0-9-]* [0-9:]*"
listed() { # BACKUP: what stands below its line
    ask backups --all | tr -s ' \n' '  ' | grep -o "$1 .*"
}
told() { # WHAT BACKUP
    same "$1: a problem" "$(problems 'repository \"main\": 1 snapshot of a backup is damaged: '"$2")" 1
    expect "$1: status --check fails" 3 'damaged: '"$2" -- ask status --check
    expect "$1: backups has it" 0 "$gone.*damaged" -- listed "$2"
    check "$1: the metric counts it" until_true 10 shown 1
    same "$1: the state of what has ended stays" "$(state "$2")" Completed
    check "$1: its native snapshot stays" eval 'natives_of "$V" | grep -qxF "$NATIVE"'
}
healed() { # WHAT BACKUP
    same "$1: no problem is left" "$(problems 'damaged')" 0
    check "$1: status --check is content" ask status --check --quiet
    expect "$1: backups has nothing of it" 1 -- eval "ask backups --all | grep -q 'not whole'"
    check "$1: the metric says so" until_true 10 shown 0
}

# ---- found by the check before pruning; mended; verify finds it whole ----
NATIVE=$(natives_of "$V")
damage
B=$(backup 2)
same "the next backup completes" "$(state "$B")" Completed
told "damage" "$A"
stops "a restart"
starts "changes nothing" || { explain_failure; finish; }
told "after a restart" "$A"
mend
check "verify reads all" ask verify --wait --quiet
healed "verified" "$A"

# ---- mended: the next backup asks again, and the native snapshot goes ----
C=$(backup 3)
same "another one completes" "$(state "$C")" Completed
only() { [ "$(natives_of "$V")" = "$(sql "SELECT id FROM natives WHERE parent = '$C'")" ]; }
check "native snapshots whose data is whole go" until_true 20 only

# ---- the data comes again: it is stored again by the next backup ----
NATIVE=$(natives_of "$V")
damage
D=$(backup 4)
told "damage again" "$C"
E=$(backup 3)
same "the same data is backed up" "$(state "$E")" Completed
healed "stored again" "$C"
check "which is true" sf "$REPO" verify --quiet

# ---- the backup is deleted: nothing is left of it ----
F=$(backup 6)
damage
backup 5 >/dev/null
same "damage of another one" "$(problems 'is damaged')" 1
check "it is deleted" ask delete "$F" --wait --force --even-kept --quiet
same "and no problem any more" "$(problems 'is damaged')" 0

# ---- hardly any data: the share of its size that is read has none of it, and some is read all the same ----
F=$(backup 7 1T)
NATIVE=$(natives_of "$V")
damage
check "a volume of holes" test "$(state "$(backup 8 1T)")" = Completed
told "damage of the data between holes" "$F"

explain_failure
finish
