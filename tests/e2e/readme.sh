#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The README cannot rot: every command in its fenced blocks is run as it stands there, against a daemon of this build on
# an XFS of its own. Paths and the port are mapped into a scratch directory; `apt` starts the daemon, `systemctl`
# reloads it (the package is tested by tests/package). A block that this script does not know is a failure.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../docs-lib.sh"
PAGE=README.md
known="install configure backup restore alert alone bench kopia"
names=$(grep -oE '^```sh( .*)?$' $PAGE | sed 's/^```sh *//')
same "every block of commands is known here" "$(grep -vxF -f <(tr ' ' '\n' <<<"$known") <<<"$names")" ""
same "and each is there" "$(sort <<<"$names" | tr '\n' ' ')" "$(tr ' ' '\n' <<<"$known" | sort | tr '\n' ' ')"
# Other fences: the two make targets at the top and the configuration.
same "other blocks are known, too" "$(grep -E '^```.' $PAGE | grep -vE '^```sh ' | sort | tr '\n' ' ')" \
    '```ini conf.d/50-local.ini '
for t in demo demo-s3 test deb help deps; do
    check "make $t is a target" grep -qE "^(\.PHONY:.* )?$t( |:)" Makefile
done
need_root "the README's first hour"

mkdir -p "$WORK/bin" "$WORK/root" "$WORK/dev" "$WORK/mnt/space" "$CONF/conf.d" "$STATE" "$RUN" "$CACHE"
PORT=$((20000 + $$ % 20000))
fs_make vm xfs 400 || { skip "the README's first hour" "no loop mounts here"; finish; }
image "$WORK/vm/web.img" 12 1
image "$WORK/vm/db.img" 8 2
# What the package brings, and what a test must say: where things are, and no user of its own for movers.
printf '[daemon]\nnode-name = readme\n[mover]\nuser = root\n' >"$CONF/snapferry.ini"
printf '[metrics]\nlisten = 127.0.0.1:%s\n' "$PORT" >"$CONF/conf.d/99-test.ini"
cat >"$WORK/bin/snapferry" <<END
#!/bin/bash
args=" \$* "
case \$args in
*" -r "*) set -- "\$@" --config "$CONF/snapferry.ini" --cache-dir "$CACHE" ;;
*" check-config "*) set -- "\$@" --config-dir "$CONF" ;;
*" bench "*) set -- "\$@" --quick --seconds 0.01 ;;
*) set -- "\$@" --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF" ;;
esac
exec "$(realpath "$SNAPFERRY")" "\$@"
END
cat >"$WORK/bin/make" <<'END'
#!/bin/sh
exec /usr/bin/make -s -n "$@"
END
cat >"$WORK/bin/apt" <<'END'
#!/bin/bash
[ "$1" = install ] || exit 1
case "${*:2}" in
./build/deb/snapferry_*.deb) ;;
"curl prometheus") mkdir "$PROMETHEUS" ;;
*) exit 1 ;;
esac
END
cat >"$WORK/bin/systemctl" <<END
#!/bin/sh
[ "\$*" = "reload snapferryd" ] && exec "$WORK/bin/snapferry" reload --wait
echo "systemctl \$*: not known here" >&2
exit 1
END
chmod 755 "$WORK/bin/"*
mapped() { sed -e "s,/etc/snapferry,$CONF,g" -e "s,/srv/vm,$WORK/vm,g" -e "s,/srv/backup,$WORK/backup,g" \
    -e "s,/srv/alone,$WORK/alone,g" \
    -e "s,/root/,$WORK/root/,g" -e "s,/dev/vg0/db1_copy,$WORK/dev/copy,g" -e "s,/dev/vg0/db1,$WORK/dev/db1,g" \
    -e "s,127.0.0.1:9747,127.0.0.1:$PORT,g" \
    -e "s,/etc/prometheus,$PROMETHEUS,g" -e "s,/usr/share/snapferry/monitoring,$PWD/monitoring,g" "$@"; }
export PROMETHEUS=$WORK/prometheus # the directory of the package of that name
nth() { grep -oE '^```sh .*$' $PAGE | grep -nx "\`\`\`sh $1" | cut -d: -f1; }
# run NAME PATTERN [SED...]: the block, line by line of one shell; its output is kept in NAME.out.
run() {
    local name=$1 pattern=$2 n
    shift 2
    n=$(nth "$name")
    { printf 'set -e -o pipefail\nshopt -s expand_aliases\n'; md_block $PAGE sh "$n" | mapped "$@"; } >"$WORK/$name.sh"
    expect "$name: every command, in their order" 0 "$pattern" -- \
        sh -c "PATH='$WORK/bin:$PATH' bash '$WORK/$name.sh' >'$WORK/$name.out' 2>&1 </dev/null; rc=\$?;
            cat '$WORK/$name.out'; exit \$rc"
}

starts "the daemon with nothing to back up"
run install 'Volumes +none'
md_block $PAGE ini 1 | mapped >"$CONF/conf.d/50-local.ini"
run configure 'no errors'
check "the password file is made for root alone" test "$(stat -c %a "$CONF/main.password")" = 600
run backup 'Volumes +2, all protected'
B=$(askj backups | jq -r '.backups[0].id')
run restore "$B" -e "s,BACKUP,$B,"
check "what came back is what was there" cmp "$WORK/vm/web.restored" "$WORK/vm/web.img"
check "from either place" cmp "$WORK/vm/web.again" "$WORK/vm/web.img"
check "the second one from the repository" grep -q 'from the repository' "$WORK/restore.out"
if ! command -v promtool >/dev/null; then # of the package prometheus, which is not small
    skip "promtool check rules" "there is no promtool"
    printf '#!/bin/sh\ntest -s "$3"\n' >"$WORK/bin/promtool"; chmod 755 "$WORK/bin/promtool"
fi
run alert '^snapferry_volume_last_success_timestamp_seconds\{.*web\.img.*\} [0-9]'
stops "the daemon ends"

# Without the daemon, on block devices.
device() { # NAME MIB
    local d
    truncate -s "$2M" "$WORK/$1.dev"
    d=$(loop_device "$WORK/$1.dev") || return
    at_exit "losetup -d $d"
    blockdev --setrw "$d"
    ln -s "$d" "$WORK/dev/$1"
}
device db1 16; device copy 16
random_file "$WORK/data" 9000000 3
dd if="$WORK/data" of="$WORK/dev/db1" bs=1M conv=notrunc status=none
run alone '16\.0 MiB verified'
check "the copy is the same" cmp "$WORK/dev/db1" "$WORK/dev/copy"
run bench 'pipeline|Pipeline'

# The commands for stock Kopia are those of snapferry-recovery(7), which tests/interop/recovery.sh runs.
missing=$(md_block $PAGE sh "$(nth kopia)" |
    sed -e 's/ *#.*//' -e 's/NEW_DEVICE/vg0\/db1/' -e 's/percent=100/percent=10/' | while read -r line; do
    w=$(tr ' ' '\n' <<<"$line" | sort); found=
    while read -r l; do [ "$(tr ' ' '\n' <<<"$l" | sort)" = "$w" ] &&
    found=1; done < <(sed -n 's/^    //p' docs/man/snapferry-recovery.7.pod)
    [ "$found" ] || echo "$line"; done)
same "the commands for stock Kopia are those of the manual page" "$missing" ""
explain_failure
finish
