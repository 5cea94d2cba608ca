#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# How many packs are uploaded at a time, to a service that answers late: parallel-puts, with -r, by the daemon and into
# a copy. Pieces of a pack's file that another had before would be found by the comparison.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "the daemon and S3"
fs_make xfs xfs || exit 1
V=$WORK/xfs
s3_service faulty /usr/bin/python3 tests/tools/s3-faults.py "$WORK/faulty.port"
ask_service() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1"; }
printf 'access-key = a\nsecret-key = a\n' | secret "$WORK/keys"
config_main 'slots = 9'
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
section() { # NAME PREFIX LINE...
    printf '[repository "%s"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = %s\n' "$1" "$port" "$2"
    printf 'maintenance = no\ncredentials = %s\npassword-file = %s\n' "$WORK/keys" "$WORK/password"
    [ $# -lt 3 ] || printf '%s\n' "${@:3}"
}
section far x/ >"$CONF/conf.d/11-far.ini"
section two y/ 'parallel-puts = 2' >"$CONF/conf.d/12-two.ini"
s3() { "$SF" --config-dir "$CONF" -r "$@"; }
random_file "$V/a.img" 160M 1
random_file "$V/b.img" 100M 2
for r in far two; do check "$r: a repository" s3 $r repo create --quiet; done
ask_service _set/slow/1500 >/dev/null

ask_service _puts >/dev/null
check "a backup" s3 far backup "$V/a.img" --quiet
same "five packs at a time" "$(ask_service _puts)" 5
check "to the other repository" s3 two backup "$V/a.img" --quiet
same "parallel-puts = 2: two at a time" "$(ask_service _puts)" 2
for r in far two; do
    check "$r: a restore" s3 $r restore latest "$WORK/$r" --quiet
    check "$r: has what was backed up" cmp "$WORK/$r" "$V/a.img"
done

section far x/ 'parallel-puts = 3' >"$CONF/conf.d/11-far.ini"
config_class far "$V" 'repository = far'
starts "the daemon starts"
is_up() { askj status | jq -e '.repositories[0].up' >/dev/null; }
check "the repository is available" until_true 60 is_up
ask_service _puts >/dev/null
same "a backup by the daemon" "$(wait_state "$(submit "$V/b.img")" Completed 240)" Completed
same "the daemon: three at a time" "$(ask_service _puts)" 3
stops "it ends"
check "a restore of it" s3 far restore latest "$WORK/b" --as "snapferry@testnode:$V/b.img" --quiet
check "is what was backed up" cmp "$WORK/b" "$V/b.img"
printf '[repository "dir"]\npath = %s\nparallel-puts = 4\n' "$WORK/dir" >"$CONF/conf.d/13-dir.ini"
expect "of no use for a directory" 0 'parallel-puts is not used with type = filesystem' -- \
    "$SNAPFERRY" check-config --config-dir "$CONF"
finish
