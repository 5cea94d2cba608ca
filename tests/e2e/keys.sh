#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keys of the configuration by their effect, one daemon for many of them; tests/keys has the table of all. Cases begin
# with the name of their key.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots on a real file system"
fs_make xfs xfs || exit 1
X=$WORK/xfs
mkdir "$X/img" "$X/kept" "$X/far" "$X/in"
image "$X/img/big.img" 8 1
image "$X/img/small.img" 1 2
image "$X/img/named.img" 1 3
image "$X/img/tiny.img" 1 4
image "$X/kept/k.img" 1 5
image "$X/far/f.img" 1 6
truncate -s 20M "$WORK/disk"
mkfs.ext4 -q -F "$WORK/disk"
DEV=$(loop_device "$WORK/disk") || exit 1
at_exit "losetup -d $DEV"
GROUP=$(id -gn nobody)

# Directories by keys alone: the options of the command line take precedence over them.
cat >"$WORK/by-keys" <<DAEMON
#!/bin/sh
exec "$SNAPFERRYD" --foreground --config-dir "$CONF" --runtime-dir "$RUN"
DAEMON
chmod 755 "$WORK/by-keys"
SNAPFERRYD=$WORK/by-keys
STATE=$WORK/state-by-key
daemon_setup 'node-name = nas7' "state-dir = $STATE" "cache-dir = $WORK/cache-by-key" 'slots-on-node = nas*=3 zoo*=9' \
    "socket-group = $GROUP" 'memory-total = 1GiB' 'cache-max = 1MiB'
mkdir -p "$STATE" "$CONF/conf.d"
config_class img "$X/img" 'nice = 7' 'ioclass = idle' 'cpus = 0' 'memory = 100MiB' 'index-memory = 20MiB' \
    'read-limit = 256KiB'
config_class kept "$X/kept" 'move-data = no' 'snapshot-only-keep = 10'
config_class far "$X/far" 'only-on-node = zoo'
example_plugin mover-archive "$WORK/archive"
plugin() { # NAME LINE...
    local name=$1
    shift
    { printf '[plugin "%s"]\nkind = mover\nprogram = %s\nprivileged = yes\n' "$name" "$WORK/archive"
        printf '%s\n' "$@"; } >"$CONF/conf.d/60-$name.ini"
}
jobs_of() { # NAME [LINE]
    printf '[job "%s"]\nvolumes = %s/img/small.img\non-calendar = *-*-* %s\n%s\n' "$1" "$X" "$AT" "${2:-}"
}
AT=$(later)
config_add jobs "$(jobs_of plain; jobs_of spread 'jitter = 1h'; jobs_of there 'only-on-node = zoo'; jobs_of here \
    'only-on-node = !zoo nas*')"
starts "the daemon starts"
reload() { ask reload --wait --quiet; }

# ---- [daemon] ----
same "node-name: the daemon's" "$(askj status | jq -r .daemon.node)" nas7
check "state-dir: the records are there" test -s "$STATE/records.db"
same "slots-on-node: of the pattern that matches" "$(askj status | jq .slots.total)" 3
same "socket-group: owns the socket" "$(find "$RUN" -type s -name '*.sock*' -exec stat -c %G {} + | head -n 1)" "$GROUP"
B=$(submit "$X/img/small.img" "$X/img/big.img")
O=$(op_id "$B" "$X/img/big.img")
until_true 20 eval '[ -n "$(mover_pid "$O")" ]'
PID=$(mover_pid "$O")

# ---- of a mover ----
same "nice: of the mover" "$(ps -o ni= -p "$PID" | tr -d ' ')" 7
same "ioclass: of the mover" "$(ionice -p "$PID")" idle
same "cpus: where the mover may run" "$(taskset -cp "$PID" | sed 's/.*: //')" 0
limit() { doc "$1" | jq ".mover.limits.$2 // .details.mover.limits.$2"; }
same "memory, index-memory: memory-max is computed of both" "$(limit "$O" memoryMax)" $((184 * MIB))
threads() { ls "/proc/$1/task" 2>/dev/null | wc -l; }
T1=0
PATIENCE=1 until_true 5 eval 'n=$(threads $PID); [ $n -gt $T1 ] && T1=$n; false'
ask cancel "$B" --wait --quiet
config_class img "$X/img" 'memory = 100MiB' 'memory-max = 200MiB' 'workers = 4' 'read-limit = 256KiB'
reload
B=$(submit "$X/img/big.img")
O=$(op_id "$B")
until_true 20 eval '[ -n "$(mover_pid "$O")" ]'
PID=$(mover_pid "$O")
same "memory-max: as it is set" "$(limit "$O" memoryMax)" $((200 * MIB))
check "workers: three threads more ($T1)" until_true 10 eval '[ "$(threads "$PID")" = $((T1 + 3)) ]'
ask cancel "$B" --wait --quiet
config_class img "$X/img"
reload
B=$(submit "$X/img/big.img")
same "without the limits: Completed" "$(wait_state "$B" Completed 60)" Completed
check "cache-dir: the index is cached there" eval '[ -n "$(find "$WORK/cache-by-key" -type f | head -n 1)" ]'
same "node-name: of the source" \
    "$(sf "$REPO" snapshot list --all --json | result 'snapshots[0].source.host')" nas7

parent() { doc "$(op_id "$1")" | jq -r '.result.parent // empty'; }
B=$(submit "$X/img/big.img")
wait_state "$B" Completed 60 >/dev/null
check "type = incremental: with a parent" test -n "$(parent "$B")"
config_class img "$X/img" 'type = full'
reload
B=$(submit "$X/img/big.img")
same "type = full: Completed" "$(wait_state "$B" Completed 60)" Completed
same "type = full: without a parent" "$(parent "$B")" ""
config_class img "$X/img"
reload

# ---- jobs ----
next() { askj jobs | jq --arg j "$1" '.jobs[] | select(.job == $j) | (.next // 0) / 1e9 | floor'; }
late=$(($(next spread) - $(next plain)))
check "jitter: the start is delayed, by at most an hour ($late s)" test $late -gt 0 -a $late -le 3600
elsewhere() { askj jobs | jq --arg j "$1" '.jobs[] | select(.job == $j) | .elsewhere // false'; }
same "only-on-node of a job" "$(elsewhere there) $(elsewhere here) $(next there)" "true false 0"
volume_state() { askj volumes | jq -r --arg v "$1" '.volumes[] | select(.name == $v) | "\(.state) \(.why // "")"'; }
until_true 10 eval '[[ "$(volume_state "$X/far/f.img")" == excluded* ]]'
same "only-on-node of a storage class" "$(volume_state "$X/far/f.img")" \
    "excluded its class is for other nodes (only-on-node)"

# ---- snapshots alone ----
for i in 1 2 3; do ask backup "$X/kept/k.img" --wait --quiet; done
same "snapshot-only-keep: three of at most ten" "$(natives_of "$X/kept/k.img" | wc -l)" 3
config_class kept "$X/kept" 'move-data = no' 'snapshot-only-keep = 10' 'snapshot-only-max-age = 1s'
reload
sleep 1
check "snapshot-only-max-age: those that are older are pruned, except the newest" until_true 20 eval \
    'ask native prune --yes --quiet; [ "$(natives_of "$X/kept/k.img" | wc -l)" = 1 ]'

# ---- repositories, failures ----
sf "$WORK/second" repo create --quiet
config_add 60-second "[daemon]
repository = main
[repository \"second\"]
type = filesystem
path = $WORK/second
password-file = $WORK/password"
config_class kept "$X/kept" 'repository = second'
reload
check "repository: a backup into another one" ask backup "$X/kept/k.img" --wait --quiet
same "repository: it has the snapshot" "$(sf "$WORK/second" snapshot list --json | result 'snapshots | length')" 1
mv "$WORK/second" "$WORK/second.away"
config_class kept "$X/kept" 'repository = second' 'repo-outage-max = 2s' 'retries = 0'
reload
B=$(submit "$X/kept/k.img")
same "repo-outage-max: not longer than that" "$(wait_state "$B" Failed 40)" Failed
check "repo-outage-max: and it says so" grep -q 'for longer than repo-outage-max' \
    <<<"$(doc "$B" | jq -r .error.message)"
config_class kept "$X/kept"
rm "$CONF/conf.d/60-second.ini"
reload
failed() { # KEEP: native snapshots that a failed backup of a volume without others leaves
    config_class img "$X/img" 'retries = 0' 'snapshots-to-retain = 0' "keep-on-failure = $1"
    reload
    running "$X/img/tiny.img"
    kill -KILL "$PID"
    wait_state "$A" Failed 30 >/dev/null
}
failed no
same "keep-on-failure = no: nothing is left" "$(natives_of "$X/img/tiny.img" | wc -l)" 0
failed yes
same "keep-on-failure = yes: its native snapshot" "$(natives_of "$X/img/tiny.img" | wc -l)" 1
config_class img "$X/img" 'snapshots-to-retain = 3' 'retain-max-age = 1h'
reload
for i in 1 2; do ask backup "$X/img/tiny.img" --wait --quiet; done
same "retain-max-age: younger ones stay" "$(natives_of "$X/img/tiny.img" | wc -l)" 2
config_class img "$X/img" 'snapshots-to-retain = 3' 'retain-max-age = 1s'
reload
sleep 1
check "retain-max-age: those that are older are pruned" until_true 20 eval \
    'ask native prune --yes --quiet; [ "$(natives_of "$X/img/tiny.img" | wc -l)" -le 1 ]'
config_class img "$X/img"
reload

# ---- which plugin moves a volume ----
value() { askj explain "$1" | jq -r --arg k "$2" '.policy[$k].value // empty'; }
mover() { value "$X/img/$1.img" mover; }
try() { # NAME WANTED LINE...: of big, small, named
    local name=$1 wanted=$2
    shift 2
    plugin arch "$@"
    if ! reload 2>"$WORK/err"; then fail "$name" "$(cat "$WORK/err")"; return; fi
    same "$name" "$(mover big) $(mover small) $(mover named)" "$wanted"
}
try "match-class of a plugin: all of the class" "plugin:arch plugin:arch plugin:arch" 'match-class = img'
try "match-class of a plugin: of another class none" "builtin builtin builtin" 'match-class = else'
try "match-path of a plugin" "builtin builtin plugin:arch" "match-path = $X/*/named.img"
try "min-size of a plugin" "plugin:arch builtin builtin" 'match-class = img' 'min-size = 4MiB'
try "max-size of a plugin" "builtin plugin:arch plugin:arch" 'match-class = img' 'max-size = 4MiB'
plugin first 'match-class = img' 'priority = 60'
try "priority of a plugin: the higher one" "plugin:first plugin:first plugin:first" 'match-class = img'
plugin first 'match-class = img'
expect "priority of a plugin: equal ones are refused" 2 "arch" -- ask reload --wait
rm "$CONF/conf.d/60-first.ini" "$CONF/conf.d/60-arch.ini"

# ---- [policy] ----
rule() { # NAME VOLUMES LINE...: which of the images are excluded
    local name=$1 wanted=$2
    shift 2
    { printf '[policy "p"]\n'; printf '%s\n' "$@"; } >"$CONF/conf.d/70-policy.ini"
    reload || { fail "$name" "refused"; return; }
    excluded() {
        askj volumes |
            jq -r '[.volumes[] | select(.state == "excluded") | .name | split("/") | .[-1]] | sort | join(" ")'
    }
    until_true 10 eval '[ "$(excluded)" = "$wanted" ]'
    same "$name" "$(excluded)" "$wanted"
}
rule "match and action of a policy" "f.img named.img" "match = $X/*/named.img" 'action = skip'
rule "class of a policy" "big.img f.img named.img small.img tiny.img" 'class = img' 'action = skip'
rule "min-size of a policy" "big.img f.img" 'min-size = 4MiB' 'action = skip'
rule "max-size of a policy" "f.img named.img small.img tiny.img" 'class = img' 'max-size = 4MiB' 'action = skip'
rule "driver of a policy: none has it" "f.img" 'driver = device' 'action = skip'
rule "driver of a policy: all have it" "big.img f.img k.img named.img small.img tiny.img" 'driver = reflink' \
    'action = skip'
rm "$CONF/conf.d/70-policy.ini"

# ---- raw devices ----
device() { { printf '[storage-class "raw"]\ndriver = device\nmatch = %s\n' "$DEV"; printf '%s\n' "$@"; } \
    >"$CONF/conf.d/80-raw.ini"; reload; }
mount "$DEV" "$X/in"
at_exit "umount $X/in"
device 'retries = 0'
B=$(submit "$DEV")
same "accept-inconsistent = no: a mounted device is refused" "$(wait_state "$B" Failed 30)" Failed
device 'retries = 0' 'accept-inconsistent = yes'
B=$(submit "$DEV")
same "accept-inconsistent = yes: it is backed up" "$(wait_state "$B" 'Completed|PartiallyFailed' 60)" Completed
umount "$X/in"
printf '#!/bin/sh\nexit 1\n' >"$WORK/overlay"
chmod 755 "$WORK/overlay"
mechanism() { askj explain "$DEV" | jq -r '.mechanism // "none"'; }
device 'backup-read-only = yes'
same "hook-overlay: not needed read-only" "$(mechanism)" native
device 'backup-read-only = no' "hook-overlay = $WORK/overlay"
same "hook-overlay: a writable intermediate is its overlay" "$(mechanism)" overlay
sed '/^hook-overlay/d' -i "$CONF/conf.d/80-raw.ini"
expect "hook-overlay: without it a writable intermediate is refused" 2 '80-raw.ini:[0-9]*: ' -- ask reload --wait
rm "$CONF/conf.d/80-raw.ini"

# ---- the whole node ----
sed -i 's/^node-name = .*/&\nonly-on-node = zoo/' "$CONF/snapferry.ini"
check "reload" reload
same "only-on-node of the daemon: no job runs" "$(elsewhere plain) $(next plain)" "true 0"
stops "stop"

# A native snapshot of these records that they do not have, nor its backup.
sed -i '/^only-on-node/d' "$CONF/snapferry.ini"
config_class img "$X/img" 'snapshots-to-retain = 1'
starts "the daemon makes a native snapshot"
check "backup" ask backup "$X/img/tiny.img" --wait --quiet
stops "stop"
sqlite3 "$STATE/records.db" "DELETE FROM natives WHERE seq = (SELECT max(seq) FROM natives);
    DELETE FROM backups WHERE seq = (SELECT max(seq) FROM backups)"
natives() { stored_natives "$X/img" | wc -l; }
sed -i 's/^orphan-grace = .*/orphan-grace = 1h/' "$CONF/snapferry.ini"
starts "the daemon without the record of it"
check "orphan-grace: a younger one is reported" until_true 20 eval 'askj status | grep -q "that no record knows"'
same "orphan-grace: and left alone" "$(natives)" 1
stops "stop"
sed -i 's/^orphan-grace = .*/orphan-grace = 1s/' "$CONF/snapferry.ini"
sleep 1.1 # it is looked at when the daemon starts
starts "the daemon with a short grace"
check "orphan-grace: older than that it is removed" until_true 20 eval '[ "$(natives)" = 0 ]'
stops "stop"
clean_up=$(stored_others "$X")
same "nothing is left behind" "$clean_up" ""
explain_failure
finish
