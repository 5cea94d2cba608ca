#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# How a volume is compressed and cut is the repository's, unless its policy says something (CF-28); explain tells whose.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "compression by configuration"
fs_make vol xfs || exit 1
daemon_setup
# more TEXT: lines of [repository "main"], the last section of the file.
more() { config_main; printf '%s\n' "$@" >>"$CONF/snapferry.ini"; }
# text N: 8 MiB that compress well, others for each N.
text() { yes "line of text number $1, again and again" | head -c $((8 * MIB)) >"$WORK/vol/a.img"; }
# stored: of a new backup
stored() {
    local b
    text "$RANDOM$RANDOM"
    b=$(submit "$WORK/vol/a.img")
    wait_state "$b" Completed 60 >/dev/null
    O=$(op_id "$b")
    doc "$O" | jq -r '.details.result.uploadedBytes // .result.uploadedBytes // empty'
}
by() {
    ask explain "$WORK/vol/a.img" --json | tail -n 1 |
        jq -r ".. | objects | select(has(\"$1\")) | .[\"$1\"] | select(type == \"object\") | .value + \" \" + .origin" \
        | head -n 1
}
config_class vol "$WORK/vol"
text 0
starts "the daemon starts"
check "nobody says anything: as it is" test "$(stored)" -gt $((6 * MIB))
more 'compression = zstd-fastest' 'splitter = FIXED-2M'
check "reload" ask reload --wait --quiet
n=$(stored)
check "the repository's section says zstd-fastest: ${n:-nothing} bytes" test "${n:-9999999}" -lt $((1 * MIB))
check "explain names it ($(by compression))" grep -q "^zstd-fastest \[repository \"main\"\] .*snapferry.ini:[0-9]*$" \
    <<<"$(by compression)"
check "and the splitter's ($(by splitter))" grep -q "^FIXED-2M \[repository \"main\"\]" <<<"$(by splitter)"
same "the image was cut so" \
    "$(sf "$REPO" cat latest/volume.json --as "$(sf "$REPO" snapshot list --json | tail -n 1 |
        jq -r '[.. | objects | .source? // empty] | last |
            if type == "object" then .userName + "@" + .host + ":" + .path else . end')" 2>/dev/null |
        jq -r '.splitter // empty')" FIXED-2M
config_class vol "$WORK/vol" 'compression = none'
check "reload again" ask reload --wait --quiet
check "the class says none: it wins" test "$(stored)" -gt $((6 * MIB))
check "explain names it, and what it overrides ($(by compression))" grep -q '^none \[storage-class "vol"\]' \
    <<<"$(by compression)"
config_class vol "$WORK/vol" 'compression = zstd-fastets'
expect "a name that does not exist is refused" 2 \
    'unknown compression zstd-fastets; the nearest known is zstd-fastest' \
    -- "$SNAPFERRY" check-config --config-dir "$CONF"
expect "by reload, too" 2 'unknown compression zstd-fastets' -- ask reload --wait
stops "the daemon stops"
explain_failure
finish
