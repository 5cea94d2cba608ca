#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keys that are times and limits of native snapshots, by what a daemon does with them. Cases begin with the name of
# their key; tests/keys.md has all keys.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
X=$WORK/xfs
mkdir "$X/img" "$X/vm"
chmod 755 "$WORK"
image "$X/img/a.img" 2 1
image "$X/vm/1.img" 1 2
image "$X/vm/2.img" 1 3
example_plugin driver-dir "$WORK/driver-real"
# wrap [SCRIPT]: the plugin runs SCRIPT first.
wrap() {
    printf '#!/bin/bash\n%s\nexec %s "$@"\n' "${1:-}" "$WORK/driver-real" >"$WORK/driver.new"
    chmod 755 "$WORK/driver.new"
    mv "$WORK/driver.new" "$WORK/driver"
}
wrap
daemon_setup 'retries = 0'
plugin() { # LINE of its class
    config_add 60-vm "[plugin \"dir\"]
kind = driver
program = $WORK/driver
privileged = yes
[storage-class \"vm\"]
driver = plugin:dir
match = $X/vm/*.img
target = $X/vm/.snap
$1
[volume \"$X/vm/1.img\"]
group = g
[volume \"$X/vm/2.img\"]
group = g"
    ask reload --wait --quiet 2>/dev/null
}
plugin ''
config_class img "$X/img"
starts "the daemon starts"
message() { doc "$1" | jq -r '.error.message // .operations[0].error.message'; }

# ---- native snapshots ----
wrap '[ "$1" != snapshot ] || sleep 0.4' # two of a group are this far apart
plugin 'group-consistency = strict
snapshot-timeout = 10min
group-max-skew = 100ms'
B=$(submit "$X/vm/1.img" "$X/vm/2.img")
same "group-consistency = strict: a group whose snapshots are too far apart fails" "$(wait_state "$B" Failed 60)" Failed
check "group-max-skew: the message has it" eval 'message "$B" | grep -q "100 ms"'
plugin 'group-consistency = strict
snapshot-timeout = 10min
group-max-skew = 10min'
B=$(submit "$X/vm/1.img" "$X/vm/2.img")
same "group-max-skew: within it they are backed up" "$(wait_state "$B" Completed 60)" Completed
plugin 'group-consistency = best-effort
snapshot-timeout = 10min
group-max-skew = 100ms'
B=$(submit "$X/vm/1.img" "$X/vm/2.img")
same "group-consistency = best-effort: so are those that are further apart" "$(wait_state "$B" Completed 60)" Completed
wrap '[ "$1" != snapshot ] || sleep 20'
plugin 'snapshot-timeout = 2s'
B=$(submit "$X/vm/1.img" "$X/vm/2.img")
same "snapshot-timeout: a snapshot that takes longer fails" "$(wait_state "$B" Failed 15)" Failed
check "snapshot-timeout: for that reason" eval 'message "$B" | grep -q "timed out\|within 2 s\|2 s"'
wrap

# ---- how many native snapshots ----
limits() { config_class img "$X/img" "$@"; ask reload --wait --quiet; }
backups() { for _ in $(seq "$1"); do ask backup "$X/img/a.img" --wait --quiet; done; }
at_most() { [ "$(natives_of "$X/img/a.img" | wc -l)" -le "$1" ]; }
limits 'snapshots-to-retain = 1' 'max-snapshots-per-volume = 2'
for _ in 1 2; do
    backups 1
    ask hold "$(natives_of "$X/img/a.img" | tail -n 1)" --quiet
done
for n in $(natives_of "$X/img/a.img"); do ask hold "$n" --quiet; done
same "max-snapshots-per-volume: two are held" "$(natives_of "$X/img/a.img" | wc -l)" 2
expect "max-snapshots-per-volume: then there is no third one" 18 'max-snapshots-per-volume' -- \
    ask backup "$X/img/a.img" --wait
limits 'snapshots-to-retain = 1' 'max-snapshots-per-volume = 3'
check "max-snapshots-per-volume: with a higher one there is" ask backup "$X/img/a.img" --wait --quiet
for n in $(natives_of "$X/img/a.img"); do ask unhold "$n" --quiet; done
limits 'snapshots-to-retain = 0'
backups 1
until_true 20 at_most 0
limits 'snapshots-to-retain = 9'
backups 3
same "pool-high-water: below it they stay" "$(natives_of "$X/img/a.img" | wc -l)" 3
limits 'snapshots-to-retain = 9' 'pool-high-water = 1'
backups 1
check "pool-high-water: above it retained ones are pruned" until_true 20 at_most 2
limits 'snapshots-to-retain = 9' 'pool-high-water = 60'
backups 1
kept=$(natives_of "$X/img/a.img" | head -n 1)
ask hold "$kept" --quiet
overfull() { ask status | grep -q 'over its high-water mark of 60 %'; }
fallocate -l "$(($(stat -f -c '%S * %b' "$X") * 7 / 10))" "$X/filler"
check "pool-high-water: a full pool is looked at" ask native prune --yes --quiet
check "pool-high-water: it is a problem" overfull
ask unhold "$kept" --quiet
check "pool-high-water: what is retained is due" eval 'ask native list | grep -E "due for pruning"'
ask hold "$kept" --quiet
rm "$X/filler"
sleep 1
check "pool-high-water: and none when it has room again, when somebody asks" eval '! overfull'
ask unhold "$kept" --quiet
limits 'move-data = no' 'pool-high-water = 1' 'snapshots-to-retain = 9'
expect "pool-high-water: no other only copy above it" 18 'pool-high-water is 1 %' -- ask backup "$X/img/a.img" --wait
clean "nothing is left behind" 20 "$X/img"
explain_failure
finish
