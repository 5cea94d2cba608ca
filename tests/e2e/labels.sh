#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Volumes that are selected by what their storage says of them: one that gets the label is protected unasked, one that
# loses it is no longer, and is not taken for gone. With a plugin, since any driver gives labels in the same way; those
# of LVM are in tests/vm/11-lvm-thin.sh.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots of a plugin that runs as root"
fs_make xfs xfs 400 || exit 1
# Each look at its storage runs the plugin. What is submitted tells enough: no mover is started.
daemon_setup 'sweep = 30s' 'slots = 0' 'concurrent-backups = 1'
DIR=$WORK/xfs/v
mkdir "$DIR"

# A plugin whose volumes have the labels that a file beside them has.
example_plugin driver-dir "$WORK/driver-dir"
cat >"$WORK/labelled" <<PLUGIN
#!/bin/bash
set -o pipefail
add() {
    local line name
    while IFS= read -r line; do
        name=\$(jq -r '.name // .volume.name // ""' <<<"\$line")
        if [ -n "\$name" ] && [ -s "\$name.labels" ]; then
            jq -c --arg l "\$(cat "\$name.labels")" \
                'if .volume then .volume.labels = \$l else .labels = \$l end' <<<"\$line"
        else
            printf '%s\n' "\$line"
        fi
    done
}
case \$1 in
describe)
    [ -s "$WORK/described" ] || {
        "$WORK/driver-dir" "\$@" >"$WORK/described.\$\$"
        mv "$WORK/described.\$\$" "$WORK/described"
    }
    cat "$WORK/described"
    ;;
*) jq -c '.class.match = ["$DIR/*.img"]' | "$WORK/driver-dir" "\$@" | add ;;
esac
PLUGIN
chmod 755 "$WORK/labelled"
config_add labels "[plugin \"labelled\"]
kind = driver
program = $WORK/labelled
privileged = yes
[storage-class \"tagged\"]
driver = plugin:labelled
match = tag:db* tag:only
target = $DIR/.snap
[policy \"not-these\"]
match = tag:scratch
action = skip
[job \"nightly\"]
volumes = class:tagged
[job \"named\"]
volumes = $DIR/a.img $DIR/none.img
[job \"by-tag\"]
volumes = tag:only"
label() { printf '%s' "$2" >"$DIR/$1.img.labels"; } # NAME LABELS
image() { random_file "$DIR/$1.img" 65536 "$2"; }
image a 1
image b 2
label a "pool:p1 tag:db1"
listed() { askj volumes | jq -r '.volumes[] | "\(.name | sub(".*/"; "")) \(.state)"' | sort; }
# in_run BACKUP: its volumes
in_run() { doc "$1" | jq -r '.operations[].volume' | sed 's,.*/,,' | sort | paste -sd' '; }
run() { submit "$@"; }

starts "the daemon starts"
same "only what has the label is a volume" "$(listed)" "a.img unprotected"
same "and in the job's run" "$(in_run "$(run --job nightly)")" "a.img"
expect "explain tells the label" 0 'Labels +pool:p1 tag:db1' -- ask explain "$DIR/a.img"
expect "and what was compared with one that is in no class" 0 'matches tag:db\*' -- ask explain "$DIR/b.img"
expect "one without it is refused by name" 2 "no storage class matches .*/b.img" -- ask backup "$DIR/b.img"

label b "tag:db2"
same "with the label it is in the next run, unasked" "$(in_run "$(run --job nightly)")" "a.img b.img"
expect "the log has it as new" 0 "volume .*/b.img is new" -- cat "$LOG"
image c 3
label c "tag:only"
same "one that was never seen is found by name" "$(in_run "$(run "$DIR/c.img")")" "c.img"
same "by label on request" "$(in_run "$(run 'tag:db?')")" "a.img b.img"
same "by label in a job" "$(in_run "$(run --job by-tag)")" "c.img"
same "a job that names a volume finds it by its label" "$(in_run "$(run --job named)")" "a.img"
expect "and says that another one has no class" 0 \
    "\"named\" has left out 1 of what.*no storage class matches it" -- ask status
image d 4
label d "tag:db4 tag:scratch"
same "a policy skips by label" "$(in_run "$(run --job nightly)")" "a.img b.img c.img"

daemon_stop
same "the labels are recorded: its class is known without its storage" "$(askj volumes |
    jq -r '.volumes[] | select(.name | endswith("a.img")) | "\(.state) \(.labels)"')" "unprotected pool:p1 tag:db1"
starts "the daemon starts again"

label a "tag:other"
of() { askj volumes | jq -r --arg n "$1.img" '.volumes[] | select(.name | endswith($n)) | "\(.state): \(.why)"'; }
of a >/dev/null
until_true 10 grep -q "has lost the label" "$LOG"
same "one that has lost its label is not backed up, and not gone" "$(of a)" \
    "excluded: no storage class matches it any more"
same "it is said once" "$(grep -c 'a.img has lost the label by which storage class "tagged" selected it' "$LOG")" 1
same "the next run is without it" "$(in_run "$(run --job nightly)")" "b.img c.img"
label a "tag:db9"
same "it comes back with its label" "$(in_run "$(run --job nightly)")" "a.img b.img c.img"
rm "$DIR/b.img" "$DIR/b.img.labels"
of b >/dev/null
until_true 10 grep -q "b.img is no longer there" "$LOG"
same "one that is removed is not listed" "$(of b)" ""
check_config() { ask check-config 2>&1; }
expect "check-config lists no shadowed volume" 0 "" -- eval '! check_config | grep -q "comes first"'
stops "the daemon stops"
finish
