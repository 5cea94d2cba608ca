#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# snapferry-recovery(7): every command of it that needs this binary only, as it stands there, with the paths of the page
# mapped into a scratch directory; and a new node with the daemon. Those with stock Kopia: tests/interop/recovery.sh.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../docs-lib.sh"
need_root "recovery as the manual tells"
PAGE=docs/man/snapferry-recovery.7.pod
mkdir -p "$WORK/root/safe" "$WORK/bin" "$WORK/dev"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$(realpath "$SNAPFERRY")" >"$WORK/bin/snapferry"
chmod 755 "$WORK/bin/snapferry"
device() { # NAME MIB: a loop device
    truncate -s "$2M" "$WORK/$1.dev"
    local d
    d=$(loop_device "$WORK/$1.dev") || return
    at_exit "losetup -d $d"
    blockdev --setrw "$d"
    ln -s "$d" "$WORK/dev/$1"
}
# run NAME CODE [PATTERN] [SED...]: the block of the page.
run() {
    local name=$1 code=$2 pattern=${3:-} x
    shift 3 2>/dev/null || shift 2
    x=$(pod_block "$PAGE" "$name" |
        sed -e "s,/srv/backup,$R,g" -e "s,/root/,$WORK/root/,g" -e "s,/dev/vg0/db1,$TARGET,g" \
        -e "s,/dev/vg0/small,$SMALL,g" -e "s,snapferry@nas1:/VOLUME-ID,snapferry@nas1:/db1,g" "$@")
    [ -n "$x" ] || { fail "$name is in the page"; return; }
    printf 'set -e\nshopt -s expand_aliases\nalias sf="snapferry -r %s --password-file %s/root/backup.password"\n%s\n' \
        "$R" "$WORK" "$x" >"$WORK/$name.sh"
    expect "$name" "$code" "$pattern" -- env PATH="$WORK/bin:$PATH" bash "$WORK/$name.sh"
}
same_as() { cmp "$1" -n "$(stat -c %s "$WORK/db1.img")" "$WORK/db1.img"; }

R=$WORK/backup
secret "$WORK/root/backup.password" <<<"a good password"
cp "$WORK/root/backup.password" "$WORK/password"
# A volume with a small ext4 file system, twice in the repository, beside another one.
truncate -s 64M "$WORK/db1.img"
mkdir "$WORK/tree"; random_file "$WORK/tree/data" 9000000 1; random_file "$WORK/tree/more" 3000000 2
mkfs.ext4 -q -b 4096 -O ^has_journal -d "$WORK/tree" "$WORK/db1.img"
check "repository" sf "$R" repo create --quiet
check "first backup" sf "$R" backup "$WORK/db1.img" --as snapferry@nas1:/db1 --quiet
random_file "$WORK/other" 3000000 3
check "of another volume" sf "$R" backup "$WORK/other" --as snapferry@nas1:/other --quiet
debugfs -w -R "rm /more" "$WORK/db1.img" >/dev/null 2>&1
check "second backup" sf "$R" backup "$WORK/db1.img" --as snapferry@nas1:/db1 --quiet
device new 80; TARGET=$WORK/dev/new
device small 24; SMALL=$WORK/dev/small

run safe 0
run look 0 '"size":67108864'
run restore 0 '64\.0 MiB verified'
check "the device holds the image" same_as "$TARGET"
dd if=/dev/zero of="$TARGET" bs=1M seek=10 count=2 status=none
run differential 0
check "and again after it was mended" same_as "$TARGET"
run range 0
check "the beginning" cmp -n $((16 * MIB)) "$WORK/root/head.img" "$WORK/db1.img"
run stream 0 "$(sum_of "$WORK/db1.img")"
run smaller 0 '' -e 's,^resize2fs,resize2fs -f,'
check "a smaller device holds the files" \
    sh -c "e2fsck -fn '$SMALL' && debugfs -R 'dump /data $WORK/data.out' '$SMALL' &&
        cmp '$WORK/data.out' '$WORK/tree/data'"
rm -f "$WORK/root/db1.img"

# What the page quotes is what is said.
quoted() { sed -n "s/^    snapferry: //p" "$PAGE" | grep -F "$1" | sed "s,/srv/backup,$2,"; }
secret "$WORK/wrong" <<<"wrong"
expect "a wrong password, in those words" 10 "$(quoted 'wrong password' "$R" | sed 's/[().]/\\&/g')" \
    -- "$SNAPFERRY" -r "$R" --password-file "$WORK/wrong" snapshot list
rm "$R/kopia.repository.f"
expect "no kopia.repository, in those words" 11 "$(quoted 'holds packs' "$R" | sed 's/[().]/\\&/g')" \
    -- sf "$R" snapshot list
run put-back 0
check "the copy from the safe opens it" sf "$R" snapshot list
# Both belong together, and old ones open with the old password.
secret "$WORK/new" <<<"another password"
cp -a "$R" "$WORK/changed"
check "change the password" "$SNAPFERRY" -r "$WORK/changed" --password-file "$WORK/password" repo change-password \
    --new-password-file "$WORK/new" --quiet
expect "the old one is refused then" 10 -- "$SNAPFERRY" -r "$WORK/changed" --password-file "$WORK/password" snapshot \
    list
cp "$WORK/root/safe/"* "$WORK/changed/"
check "old copies open with the old one" "$SNAPFERRY" -r "$WORK/changed" --password-file "$WORK/password" snapshot list
rm -rf "$WORK/changed"

# A copy on a disk that is mounted read-only.
mkdir "$WORK/copy"
if mount --bind "$R" "$WORK/copy" && at_exit "umount '$WORK/copy'" && mount -o remount,ro,bind "$WORK/copy"; then
    check "read-only: list" sf "$WORK/copy" snapshot list
    check "read-only: verify" sf "$WORK/copy" verify --read-percent 10
    check "read-only: restore" sf "$WORK/copy" restore latest "$WORK/copied.img" --as snapferry@nas1:/db1
    check "the same bytes" cmp "$WORK/copied.img" "$WORK/db1.img"
else
    skip "a copy that is mounted read-only" "no bind mounts here"
fi

# The index is lost: verify says so, and it is rebuilt from the packs.
cp -a "$R" "$WORK/noindex" && rm -rf "$WORK/noindex/x"
same "without index there are no snapshots" "$(sf "$WORK/noindex" snapshot list --json | result 'snapshots | length')" 0
expect "... and verify says why" 15 'there are packs, but no index' -- sf "$WORK/noindex" verify
mv "$R" "$WORK/sound" && cp -a "$WORK/noindex" "$R"
run repair 0 'no damage found'
same "all snapshots are back" "$(sf "$R" snapshot list --json | result 'snapshots | length')" \
    "$(sf "$WORK/sound" snapshot list --json | result 'snapshots | length')"
rm -rf "$WORK/noindex" "$R" && mv "$WORK/sound" "$R"

# Damage in the middle: told by byte, restored around, and a new whole snapshot with another splitter.
cp -a "$R" "$WORK/sound"
# Where a content of zeros lies nobody would notice: a restore does not read it. It has 2 MiB at most. The first one of
# the image is another one in each snapshot, and has nothing before it; the order of packs is another one in each run.
damaged_range() {
    sf "$R" verify --json 2>/dev/null |
        jq -r 'select(.type == "damage" and .source == "snapferry@nas1:/db1") | "\(.offset) \(.length)"' | tail -n 1
}
for at in $(seq 500000 2500000 18000000); do
    pack=$(find "$R/p" -type f -size +$((at + 8))c | sort | head -n 1)
    [ -n "$pack" ] || break
    cp "$pack" "$WORK/undamaged"
    printf 'XXXXXXXX' | dd of="$pack" bs=1 seek=$at conv=notrunc status=none
    read -r first length <<<"$(damaged_range)"
    if [ "${first:-0}" -gt 0 ] &&
        ! sf "$R" restore latest "$WORK/stopped.img" --as snapferry@nas1:/db1 >/dev/null 2>&1; then
        break
    fi
    cp "$WORK/undamaged" "$pack"
    rm -f "$WORK/stopped.img"
done
run verify 15 'DAMAGE .* affects volume.img of snapshot'
check "the range is told" test "${length:-0}" -gt 0
expect "the restore stops at it" 15 "bytes $first to" -- sf "$R" restore latest "$WORK/stopped.img" \
    --as snapferry@nas1:/db1
run around 0 '' -e "s,FIRST_BAD,$first," -e "s,AFTER_BAD,$((first + length)),"
check "all before it is there" cmp -n "$first" "$WORK/root/db1.img" "$WORK/db1.img"
check "and all behind it" cmp "$WORK/root/db1.img" "$WORK/db1.img" -i $((first + length))
check "a backup of a machine that knows nothing of it does not mend it" env XDG_CACHE_HOME="$WORK/other-cache" \
    "$SNAPFERRY" -r "$R" --password-file "$WORK/password" backup "$WORK/db1.img" --as snapferry@nas1:/db1 --quiet
expect "... the new one is hit, too" 15 '3 of 4 snapshots affected' -- sf "$R" verify
run resplit 0 '' -e "s,backup $TARGET,backup $WORK/db1.img --as snapferry@nas1:/db1,"
check "with another splitter the new one is whole" sf "$R" restore latest "$WORK/whole.img" --as snapferry@nas1:/db1
check "... to the last byte" cmp "$WORK/whole.img" "$WORK/db1.img"
expect "... and is not named" 15 '3 of 5 snapshots affected' -- sf "$R" verify
run mend 0 '3 of 5 snapshots affected' -e "s,backup $TARGET,backup $WORK/db1.img --as snapferry@nas1:/db1,"
expect "what the volume still contains is mended" 0 'no damage found' -- sf "$R" verify
rm -rf "$R"; mv "$WORK/sound" "$R"

# A new node: the daemon finds its backups in the repository, with the same name only.
if ! fs_make data xfs 400; then
    skip "a new node with the daemon" "no loop mounts here"
    finish
fi
image "$WORK/data/web.img" 16 5
cp "$WORK/data/web.img" "$WORK/web.before"
daemon_setup 'node-name = nas1'
config_class images "$WORK/data"
starts "the node"
check "a backup" ask backup "$WORK/data/web.img" --wait --quiet
stops "the node is gone"
rm -rf "$STATE" "$RUN" "$WORK/data"/* "$WORK/data"/.snapferry* "$CACHE"
mkdir -p "$STATE" "$RUN" "$CACHE"
starts "the new one"
until_true 20 sh -c "'$SNAPFERRY' backups --all --json --runtime-dir '$RUN' | jq -e '.backups | length > 0'" || true
B=$(askj backups --all | jq -r '.backups[0].id')
printf '#!/bin/sh\nexec "%s" "$@" --runtime-dir "%s" --state-dir "%s" --config-dir "%s"\n' "$(realpath "$SNAPFERRY")" \
    "$RUN" "$STATE" "$CONF" >"$WORK/bin/snapferry"
run scan 0 "Completed" -e "s,BACKUP/VOLUME TARGET,$B/$WORK/data/web.img $WORK/data/web.img,"
check "the volume is back" cmp "$WORK/data/web.img" "$WORK/web.before"
stops "and down"
explain_failure
finish
