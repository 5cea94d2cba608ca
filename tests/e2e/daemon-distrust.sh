#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A list of changes that is wrong: found by verify-sample, all is read at once, and in each later backup until one with
# --full was asked for. So is one of what is allocated; one that is right is used. (CF-08, CF-12)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "native snapshots of a plugin that runs as root"
fs_make xfs xfs 400 || exit 1
daemon_setup 'sweep = 30s' # each look at its storage runs the plugin
backup() { askj backup "$1" --wait "${@:2}" | jq -r .id; }
# op BACKUP FILTER: of its operation
op() { doc "$1" | jq -rc ".operations[0] | $2"; }

# A plugin that works, but for its list of changes, which is what a file says, empty at first.
example_plugin driver-dir "$WORK/driver-dir"
cat >"$WORK/liar" <<LIAR
#!/bin/bash
set -o pipefail
case \$1 in
changed) cat >/dev/null; cat "$WORK/changed" ;;
describe)
    [ -s "$WORK/described" ] || {
        "$WORK/driver-dir" "\$@" | jq -c '.abilities += ["changed"]' >"$WORK/described.\$\$"
        mv "$WORK/described.\$\$" "$WORK/described"
    }
    cat "$WORK/described"
    ;;
*) "$WORK/driver-dir" "\$@" | jq -c '(.. | objects | select(has("crash-consistent") and has("tag"))) |=
    (. + {"change-id": .tag.alias})' ;;
esac
LIAR
chmod 755 "$WORK/liar"
# One that lists what is allocated: what the file beside it says.
cat >"$WORK/mapper" <<MAPPER
#!/bin/bash
set -o pipefail
case \$1 in
allocated) cat >/dev/null; cat "$WORK/allocated" ;;
describe)
    [ -s "$WORK/described2" ] || {
        "$WORK/driver-dir" "\$@" | jq -c '.abilities += ["allocated"]' >"$WORK/described2.\$\$"
        mv "$WORK/described2.\$\$" "$WORK/described2"
    }
    cat "$WORK/described2"
    ;;
*) "$WORK/driver-dir" "\$@" | jq -c '(.. | objects | select(has("crash-consistent") and has("tag"))) |=
    (. + {"change-id": .tag.alias})' ;;
esac
MAPPER
chmod 755 "$WORK/mapper"
mkdir "$WORK/xfs/lies" "$WORK/xfs/maps"
random_file "$WORK/xfs/lies/b.img" $((4 * MIB)) 5
config_add lies "[plugin \"liar\"]
kind = driver
program = $WORK/liar
privileged = yes
[storage-class \"lies\"]
driver = plugin:liar
match = $WORK/xfs/lies/*.img
target = $WORK/xfs/lies/.snap
changed-blocks = auto
verify-sample = 100"
config_add maps "[plugin \"mapper\"]
kind = driver
program = $WORK/mapper
privileged = yes
[storage-class \"maps\"]
driver = plugin:mapper
match = $WORK/xfs/maps/*.img
target = $WORK/xfs/maps/.snap
changed-blocks = auto
verify-sample = 100"
# 1 MiB, zeros that are written as such, 1 MiB
img=$WORK/xfs/maps/a.img
random_file "$img" $((MIB)) 7; dd if=/dev/zero bs=1M count=6 status=none >>"$img"
random_file "$WORK/page" $((MIB)) 8; cat "$WORK/page" >>"$img"
# lists FILE START+LENGTH[z] ...: z: said to be zeros
lists() {
    local x to=$1; shift
    for x; do
        [[ $x != *z ]] || echo "{\"start\":${x%+*},\"length\":$(tr -d z <<<"${x#*+}"),\"zeros\":true}"
        [[ $x == *z ]] || echo "{\"start\":${x%+*},\"length\":${x#*+}}"
    done >"$to"
    echo "{\"protocol\":1,\"count\":$#}" >>"$to"
}
listed() { lists "$WORK/allocated" "$@"; }
lists "$WORK/changed"
SOCK=$WORK/metrics.sock
config_add 90-metrics "[metrics]
listen = unix:$SOCK"
starts "the daemon starts"
restored() {
    sf "$REPO" restore "$(op "$1" .result.snapshotID)" "$WORK/restored" --force --quiet
    cmp "$WORK/restored" "$img"
}
listed 0+$MIB $((7 * MIB))+$MIB
right=$(backup "$img")
same "allocated: the reason for reading all else is the same" "$(op "$right" .fullReason)" no-parent
same "only what is allocated is read" "$(op "$right" .result.readBytes)" $((2 * MIB))
check "bit for bit" restored "$right"
same "on request everything is" "$(op "$(backup "$img" --full)" .result.readBytes)" $((8 * MIB))
listed 0+$MIB
wrong=$(backup "$img")
same "a block that is not listed, but has data: all is read" "$(op "$wrong" .fullReason)" mismatch
check "and the backup is right" restored "$wrong"
same "the next one does not ask, and reads all" "$(op "$(backup "$img")" '[.fullReason, .result.readBytes]')" \
    "[\"distrusted\",$((8 * MIB))]"
expect "status names it, too" 0 "list of changes of .*a.img was wrong" -- ask status
same "--full was asked for" "$(op "$(backup "$img" --full)" .fullReason)" forced
img=$WORK/xfs/lies/b.img
backup "$img" >/dev/null
random_file "$WORK/page" $((2 * MIB)) 6
dd if="$WORK/page" of="$img" bs=1M seek=1 conv=notrunc status=none
lie=$(backup "$img")
same "verify-sample: found: all is read" "$(op "$lie" .fullReason)" mismatch
sf "$REPO" restore "$(op "$lie" .result.snapshotID)" "$WORK/restored" --force --quiet
check "and the backup is right" cmp "$WORK/restored" "$img"
same "the next one does not ask the tracker" "$(op "$(backup "$img")" .fullReason)" distrusted
expect "status names it" 0 "list of changes of .*b.img was wrong" -- ask status
same "--full: as asked for" "$(op "$(backup "$img" --full)" .fullReason)" forced
same "from then on it is used again" "$(op "$(backup "$img")" .fullReason)" null
# Zeros that the list of changes tells are not read, but for a random share of them.
dd if=/dev/zero of="$img" bs=1M count=1 seek=2 conv=notrunc status=none
dd if="$WORK/page" of="$img" bs=1M count=1 conv=notrunc status=none
lists "$WORK/changed" 0+$MIB $((2 * MIB))+${MIB}z
freed=$(backup "$img")
same "zeros among what has changed are not read" \
    "$(op "$freed" '[.fullReason, .listedBytes, .listedRanges, .result.readBytes]')" "[null,$MIB,1,$((3 * MIB))]"
check "bit for bit, too" restored "$freed"
lists "$WORK/changed" $MIB+${MIB}z
freed=$(backup "$img")
same "what is no zeros, but is said to be: all is read" "$(op "$freed" '[.fullReason, .result.readBytes]')" \
    "[\"mismatch\",$((4 * MIB))]"
expect "the log says which" 0 'of .*b.img are not zeros, as they should be by what the storage lists' -- cat "$LOG"
check "and this backup is right" restored "$freed"
same "on request everything is read" "$(op "$(backup "$img" --full)" .fullReason)" forced
check "nothing is left to complain about" eval '! ask status | grep -q "list of changes of"'
check "the metric counts it" grep -qx 'snapferry_cbt_verify_mismatch_total 3' \
    <(curl -s --unix-socket "$SOCK" http://x/metrics)
finish
