#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The worked examples keep the protocol, and plugin-check tells who does not. (AP-23, AP-07, AO-35, AO-54, MS-07)
. "$(dirname "$0")/../lib.sh"
chmod 755 "$WORK"
check_plugin() { "$SNAPFERRY" plugin-check "$@"; }

mkdir "$WORK/vm" "$WORK/store"
random_file "$WORK/vm/disk.img" 3000001 1
cp "$WORK/vm/disk.img" "$WORK/disk.before"
for p in driver-dir mover-archive; do example_plugin $p "$WORK/$p"; done

# ---- the driver ----
expect "driver: a volume has to be named" 2 'volume=NAME' -- check_plugin "$WORK/driver-dir"
out=$(check_plugin "$WORK/driver-dir" --json --kind driver volume="$WORK/vm/disk.img" match="$WORK/vm/*.img" \
    target="$WORK/vm/.snapshots")
same "driver-dir passes: exit code" $? 0
same "driver-dir passes: failed rules" "$(jq -r '.failed' <<<"$out")" 0
check "driver-dir: rules that it can be asked" test "$(jq -r '.passed' <<<"$out")" -ge 30
same "driver-dir: the rest are abilities that it lacks" \
    "$(jq -r '[.rules[] | select(.verdict == "not-asked") | .rule] | join(" ")' <<<"$out")" \
    "driver.allocated driver.changed"
same "nothing is left behind" "$(find "$WORK/vm" -type f)" "$WORK/vm/disk.img"
check "the volume was not touched" cmp "$WORK/vm/disk.img" "$WORK/disk.before"

# ---- the mover, in both styles ----
for style in run start; do
    printf 'store = %s\nstyle = %s\n' "$WORK/store" "$style" >"$WORK/mover-archive.conf"
    out=$(check_plugin "$WORK/mover-archive" --json)
    same "mover-archive, style $style, passes: exit code" $? 0
    same "mover-archive, style $style: failed rules" "$(jq -r '.failed' <<<"$out")" 0
    same "mover-archive, style $style: restore was tried" \
        "$(jq -r '.rules[] | select(.rule == "mover.restore") | .verdict' <<<"$out")" pass
    same "mover-archive, style $style: nothing is left behind" "$(find "$WORK/store" -type f)" ""
done
same "style start: every rule is asked" "$(jq -r .not_asked <<<"$out")" 0

# ---- who does not keep it ----
cat >"$WORK/liar" <<END
#!/bin/bash
# Half a plugin: forgets tags, does not remove, calls everything fine.
case \$1 in
list) echo '{"handle":"x","size":1}'; echo '{"protocol":1,"count":1}' ;;
remove) echo '{"protocol":1}' ;;
no-such-verb) echo '{"protocol":1}' ;;
*) exec "$WORK/driver-dir" "\$@" ;;
esac
END
chmod 755 "$WORK/liar"
out=$(check_plugin "$WORK/liar" volume="$WORK/vm/disk.img" match="$WORK/vm/*.img" target="$WORK/vm/.snapshots2")
same "a liar fails: exit code" $? 1
for rule in protocol.unknown-verb driver.list-tags driver.remove; do
    check "a liar fails $rule" grep -q "^FAIL  $rule " <<<"$out"
done
check "and is told what was expected" grep -q 'still finds it' <<<"$out"
printf '#!/bin/sh\nexec sleep 100\n' >"$WORK/mute"
chmod 775 "$WORK/mute"
expect "a program that others may change is not even run" 1 'FAIL  program.safe' -- check_plugin "$WORK/mute"
expect "no such program" 16 '' -- check_plugin "$WORK/nothing"
expect "an argument that is no KEY=VALUE" 2 'KEY=VALUE' -- check_plugin "$WORK/driver-dir" volume
expect "the kind is compared" 1 'FAIL  describe.kind' -- check_plugin "$WORK/driver-dir" --kind mover
finish
