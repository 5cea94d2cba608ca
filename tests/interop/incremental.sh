#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stock Kopia as the judge of incremental snapshots that the daemon makes: whole, with the bytes of the image, and after
# maintenance of stock's. KOPIA=/path/to/kopia; without it everything is skipped, and says so.
. "$(dirname "$0")/../daemon-lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "interop with stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
need_root "incremental backups of images on a real file system"
export KOPIA_CHECK_FOR_UPDATES=false KOPIA_DANGEROUS_COMMANDS=enabled
k() { "$KOPIA" --config-file "$WORK/k.config" --password "$(cat "$WORK/password")" --no-progress --log-level=error \
    --log-dir "$WORK/log" "$@" --no-auto-maintenance 2>&1; }
fs_make xfs xfs 600 || exit 1
V=$WORK/xfs/db.img
{ random_file "$WORK/r" $((30 * MIB)) 5; tar -cf - -C /usr/include . 2>/dev/null | head -c $((20 * MIB))
    cat "$WORK/r"; } >"$V"
truncate -s $((70 * MIB)) "$V"
daemon_setup 'changed-blocks = auto'
config_class xfs "$WORK/xfs"
starts "the daemon starts"
check "connect" k repository connect filesystem --path "$REPO" --cache-directory "$WORK/kc" --no-check-for-updates \
    --override-username snapferry --override-hostname testnode
for i in 1 2 3 4; do
    case $i in
    2) for at in 7 900 5000 9001 12000; do
            random_file "$WORK/page" 4096 $at
            dd if="$WORK/page" of="$V" bs=4096 seek=$at conv=notrunc status=none
        done ;;
    3) truncate -s $((72 * MIB + 700)) "$V" ;;
    esac # the fourth: nothing has changed
    B=$(askj backup "$V" --wait | jq -r .id)
    cp "$V" "$WORK/expected.$i"
    R=$(doc "$B" | jq -c '.operations[0].result')
    [ $i = 1 ] || same "$i: incremental" "$(jq -r .cbtSource <<<"$R")" reflink
    S[i]=$(jq -r .snapshotID <<<"$R")
done
judge() { # NAME
    local i
    check "$1: snapshot verify" k snapshot verify --verify-files-percent=100
    check "$1: content verify" k content verify --full
    for i in 1 2 3 4; do
        check "$1: restore of $i" k snapshot restore "${S[i]}" "$WORK/out"
        check "$1: the bytes of $i" cmp "$WORK/out/volume.img" "$WORK/expected.$i"
        rm -rf "$WORK/out"
    done
}
judge "as made"
check "the first one is deleted" k snapshot delete "${S[1]}" --delete
S[1]=${S[2]} && cp "$WORK/expected.2" "$WORK/expected.1"
k maintenance set --owner me >/dev/null
check "maintenance" k maintenance run --full --safety=none
judge "after maintenance"
check "the next one" ask backup "$V" --wait --quiet
check "all of it verifies" sf "$REPO" verify --quiet
check "to stock, too" k snapshot verify --verify-files-percent=100
stops "stop"
finish
