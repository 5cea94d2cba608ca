#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Both kinds of plugins under the daemon: the driver's snapshots go into the repository and come back; the mover takes
# whole operations in both styles, is cancelled, survives a restart, restores, deletes. (AP-01..25, AO-06..09,
# AO-24..28, AO-54, RS-27, MS-07)
. "$(dirname "$0")/../daemon-lib.sh"
need_root "plugins under the daemon"
fs_make xfs xfs || exit 1
mkdir "$WORK/xfs/vm" "$WORK/xfs/img" "$WORK/archive"
chmod 755 "$WORK"
image "$WORK/xfs/vm/a.img" 24 1
image "$WORK/xfs/img/b.img" 64 2
cp "$WORK/xfs/vm/a.img" "$WORK/a.orig"; cp "$WORK/xfs/img/b.img" "$WORK/b.orig"
for p in driver-dir mover-archive; do example_plugin $p "$WORK/$p"; done
# mover_conf LINE...: the mover plugin's own configuration.
mover_conf() { printf '%s\n' "store = $WORK/archive" "$@" >"$WORK/mover-archive.conf"; }
mover_conf 'style = run'
daemon_setup 'retries = 0'
config_add 10-plugins "[plugin \"dir\"]
kind = driver
program = $WORK/driver-dir
privileged = yes
[plugin \"archive\"]
kind = mover
program = $WORK/mover-archive
privileged = yes
poll = 1s
[storage-class \"vm\"]
driver = plugin:dir
match = $WORK/xfs/vm/*.img
target = $WORK/xfs/vm/.snap
backup-option.speed = fast
snapshots-to-retain = 1"
config_class img "$WORK/xfs/img" 'mover = plugin:archive' 'snapshots-to-retain = 0'
check "the configuration is accepted" "$SNAPFERRY" check-config --config-dir "$CONF"
starts "the daemon starts"
plugin_idle() { [ -z "$(find "$WORK/archive/operations" -mindepth 1 2>/dev/null)" ]; }
archives() { find "$WORK/archive/archives" -name '*.json' 2>/dev/null | wc -l; }

# ---- a driver plugin (AP-01, RS-27) ----
out=$(ask backup "$WORK/xfs/vm/a.img" --wait --json)
same "a volume of a driver plugin: Completed" "$(result state <<<"$out")" Completed
B=$(result id <<<"$out")
same "its native snapshot is where the plugin makes them" \
    "$(find "$WORK/xfs/vm/.snap/snapshots" -name '*.img' | wc -l)" 1
alias=$(natives_of)
check "and carries the record's alias" test -f "$WORK/xfs/vm/.snap/snapshots/$alias.img"
printf changed | dd of="$WORK/xfs/vm/a.img" bs=1 seek=4096 conv=notrunc status=none
check "restored from the native snapshot" ask restore "$B/$WORK/xfs/vm/a.img" "$WORK/xfs/vm/back.img" \
    --from native --wait --quiet
check "the same bytes" cmp "$WORK/a.orig" "$WORK/xfs/vm/back.img"
rm -f "$WORK/xfs/vm/back.img"
restored_same "restored from the repository" "$B" "$WORK/xfs/vm/a.img" "$WORK/a.orig" repository
B2=$(askj backup "$WORK/xfs/vm/a.img" --wait | jq -r .id)
same "a second backup" "$(state "$B2")" Completed
same "the limit holds for the plugin's snapshots too" "$(find "$WORK/xfs/vm/.snap/snapshots" -name '*.img' | wc -l)" 1
same "no intermediate is left" "$(find "$WORK/xfs/vm/.snap/exposed" -type f)" ""
# Storage that fails, or does not answer: its volumes are shown as the records have them, and that is said.
mv "$WORK/driver-dir" "$WORK/driver-real"
for how in 'exit 5' 'sleep 60'; do
    printf '#!/bin/bash\ncase $1 in volumes | resolve) %s ;; esac\nexec %s "$@"\n' "$how" \
        "$WORK/driver-real" >"$WORK/driver-dir"
    chmod 755 "$WORK/driver-dir"
    # Each of them waits for the storage, so they ask at once.
    ask volumes >"$WORK/shown" 2>&1 &
    people=$!
    ask explain "$WORK/xfs/vm/a.img" >"$WORK/explained" 2>&1 &
    explained=$!
    out=$(askj volumes 2>/dev/null)
    wait $people; same "a person is told" $? 0
    wait $explained; same "explain answers" $? 0
    same "volumes while the plugin does \"$how\": it is there and protected" \
        "$(jq -r --arg v "$WORK/xfs/vm/a.img" '.volumes[] | select(.name == $v) | .protected' <<<"$out")" true
    check "and why it may be otherwise" jq -e '.unsure | length == 1 and (.[0] | test("as the records have them"))' \
        <<<"$out"
    check "a person is told, too" grep -q "as the records have them" "$WORK/shown"
    [ "$how" = "exit 5" ] || check "explain answers as well" grep -q "storage does not answer" "$WORK/explained"
done
printf '#!/bin/bash\n[ $1 != volumes ] || { cat >%s; exec <%s; }\nexec %s "$@"\n' "$WORK/asked" "$WORK/asked" \
    "$WORK/driver-real" >"$WORK/driver-dir"
check "the volumes of a class are asked for" askj volumes
same "with the options of the class" "$(jq -c '.. | .options? // empty' "$WORK/asked")" '{"speed":"fast"}'
mv "$WORK/driver-real" "$WORK/driver-dir"
check "then it is asked again" jq -e '.unsure == null' <<<"$(askj volumes 2>/dev/null)"
check "both are deleted" ask delete "$B" --wait --quiet
check "also the last good copy, if told" ask delete "$B2" --even-kept --wait --quiet
same "with their native snapshots" "$(find "$WORK/xfs/vm/.snap" -type f)" ""

# ---- a mover plugin, both styles ----
for style in run start; do
    mover_conf "style = $style"
    before=$(archives)
    out=$(ask backup "$WORK/xfs/img/b.img" --wait --json)
    same "style $style: Completed" "$(result state <<<"$out")" Completed
    B=$(result id <<<"$out")
    same "style $style: one archive more" "$(archives)" $((before + 1))
    same "style $style: nothing of it in our repository" "$(sf "$REPO" snapshot list --all --json |
        result 'snapshots | length')" 0
    check "style $style: the record says who has it" grep -q archive <<<"$(ops "$B")"
    restored_same "style $style: restored (AP-13)" "$B" "$WORK/xfs/img/b.img" "$WORK/b.orig" repository
    check "style $style: deleted with its backup" ask delete "$B" --wait --quiet
    same "style $style: by the plugin's delete" "$(archives)" "$before"
    check "style $style: no operation is left in the plugin" until_true 10 plugin_idle
done

# ---- cancel, restart (AP-08, AP-20) ----
for style in run start; do
    mover_conf "style = $style" 'pause = 0.5'
    B=$(submit "$WORK/xfs/img/b.img"); O=$(op_id "$B")
    wait_state "$O" Running 10 >/dev/null
    same "style $style: it is in the list of operations while it runs (AP-19)" \
        "$(askj operations | jq -r --arg o "$O" '.operations[] | select(.id == $o) | .state')" Running
    check "style $style: cancel" ask cancel "$B"
    same "style $style: Canceled" "$(wait_state "$B" Canceled 15)" Canceled
    same "style $style: nothing stored" "$(find "$WORK/archive/archives" -type f)" ""
    B=$(submit "$WORK/xfs/img/b.img"); O=$(op_id "$B")
    wait_state "$O" Running 10 >/dev/null
    daemon_kill
    sleep 0.5
    starts "style $style: the daemon was killed and starts again"
    same "style $style: the operation goes on and completes" "$(wait_state "$B" Completed 30)" Completed
    same "style $style: it was not begun twice" "$(archives)" 1
    check "style $style: deleted" ask delete "$B" --wait --quiet
done

# ---- retention by its delete, verification by its verify, its logs ----
mover_conf 'style = run'
CLASS=$CONF/conf.d/50-img.ini
echo "keep-latest = 2" >>"$CLASS"
check "two are kept: the configuration is read again" ask reload --wait --quiet
kept=()
for i in 1 2 3; do
    B=$(askj backup "$WORK/xfs/img/b.img" --wait | jq -r .id)
    same "retention: backup $i completes" "$(state "$B")" Completed
    kept+=("$B")
done
same "retention calls the plugin's delete" "$(archives)" 2
same "the expired one has no data any more" "$(doc "$(op_id "${kept[0]}")" | jq -r .details.lost)" true
expect "verify calls its verify" 0 '2 backups intact, 0 damaged, 0 missing' -- ask verify plugin:archive --wait
expect "a sample has the newest one" 0 '1 backup intact' -- ask verify plugin:archive --read-percent 1 --wait
expect "a plugin that is not there" 2 'no mover plugin "none"' -- ask verify plugin:none
stored=$(doc "$(op_id "${kept[2]}")" | jq -r .result.stored.archive)
printf x | dd of="$WORK/archive/archives/$stored.data" bs=1 seek=100 conv=notrunc status=none
expect "damage is found: exit code 15, with the volume" 15 "$WORK/xfs/img/b.img of ${kept[2]}.*damaged" \
    -- ask verify plugin:archive --wait
stored=$(doc "$(op_id "${kept[1]}")" | jq -r .result.stored.archive)
rm "$WORK/archive/archives/$stored.json"
expect "what is missing is counted" 15 '' -- ask verify plugin:archive --wait
same "and known to be gone" "$(doc "$(op_id "${kept[1]}")" | jq -r .details.lost)" true
check "deleted where nothing is stored" ask delete "${kept[1]}" --wait --quiet
check "the log that it keeps is shown after the end" eval \
    'ask logs "${kept[2]}" | grep -q "backup of .* bytes" && ask logs "${kept[2]}" | grep -q " done$"'
mover_conf 'style = start' 'pause = 0.5'
B=$(submit "$WORK/xfs/img/b.img"); O=$(op_id "$B")
wait_state "$O" Running 10 >/dev/null
check "and while it runs" until_true 10 eval 'ask logs "$O" | grep -q "backup of .* bytes"'
ask cancel "$B" --quiet
wait_state "$B" Canceled 15 >/dev/null
for B in "$B" "${kept[@]}"; do ask delete "$B" --even-kept --wait --quiet; done
sed -i '/^keep-latest/d' "$CLASS"
check "without retention" ask reload --wait --quiet

# ---- what it says no to ----
printf 'style = run\n' >"$WORK/mover-archive.conf" # no store: applies says no
out=$(ask backup "$WORK/xfs/img/b.img" --wait --json)
same "a plugin that declines: Skipped (AP-04, AP-06)" "$(ops "$(result id <<<"$out")" | jq -r .state)" Skipped
mover_conf 'style = run'
mv "$WORK/mover-archive" "$WORK/gone"
out=$(ask backup "$WORK/xfs/img/b.img" --wait --json)
same "a plugin that is gone: Failed (AO-24)" "$(ops "$(result id <<<"$out")" | jq -r .state)" Failed
check "and the record says why" grep -q 'plugin archive not installed' <<<"$(ops "$(result id <<<"$out")")"
mv "$WORK/gone" "$WORK/mover-archive"
clean "nothing is left behind" 10 "$WORK/xfs/img"
stops "SIGTERM ends it in order"
explain_failure
finish
