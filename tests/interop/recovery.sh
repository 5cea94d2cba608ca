#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# snapferry-recovery(7) with stock Kopia: every command of the page that needs no snapferry, as it stands there, on a
# repository that snapferry made. KOPIA=/path/to/kopia; without it everything is skipped, and says so.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../docs-lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "recovery with stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
PAGE=docs/man/snapferry-recovery.7.pod
R=$WORK/backup
export KOPIA_PASSWORD="test password" KOPIA_CHECK_FOR_UPDATES=false KOPIA_CONFIG_PATH=$WORK/k.config \
    KOPIA_LOG_DIR=$WORK/klog
unset KOPIA_DANGEROUS_COMMANDS
mkdir -p "$WORK/bin" "$WORK/root/safe" "$WORK/root/aside" "$WORK/mnt/space" "$WORK/mnt/backup"
cp "$WORK/password" "$WORK/root/backup.password"
# Found by their names in PATH, as the page calls them.
printf '#!/bin/sh\nexec "%s" --no-progress "$@"\n' "$(realpath "$KOPIA")" >"$WORK/bin/kopia"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$(realpath "$SNAPFERRY")" >"$WORK/bin/snapferry"
chmod 755 "$WORK/bin/"*

random_file "$WORK/db1.img" 22000000 1; truncate -s 48M "$WORK/db1.img"
check "repository" sf "$R" repo create --quiet
check "first backup" sf "$R" backup "$WORK/db1.img" --as snapferry@nas1:/db1 --quiet
printf 'changed' | dd of="$WORK/db1.img" bs=1 seek=21000000 conv=notrunc status=none
check "second backup" sf "$R" backup "$WORK/db1.img" --as snapferry@nas1:/db1 --quiet
truncate -s 48M "$WORK/dev.img"
DEVICE=$WORK/dev.img # dd takes a file as well
if is_root && d=$(loop_device "$WORK/dev.img"); then
    at_exit "losetup -d $d"; blockdev --setrw "$d"
    DEVICE=$d
fi
sub() { sed -e "s,/srv/backup,$R,g" -e "s,/root/,$WORK/root/,g" -e "s,/dev/vg0/db1,$DEVICE,g" \
    -e "s,/mnt/space,$WORK/mnt/space,g" \
    -e "s,/mnt/backup,$WORK/mnt/backup,g" -e "s,snapferry@nas1:/VOLUME-ID,snapferry@nas1:/db1,g" \
    -e "s,SNAPSHOT_ID,${SID:-},g" \
    -e "s,ROOT_ID,${RID:-},g" "$@"; }
run() { # NAME CODE [PATTERN] [SED...]
    local name=$1 code=$2 pattern=${3:-} x
    shift 3 2>/dev/null || shift 2
    x=$(pod_block "$PAGE" "$name" | sub "$@")
    [ -n "$x" ] || { fail "$name is in the page"; return; }
    printf 'set -e\nshopt -s expand_aliases\nalias sf="snapferry -r %s --password-file %s/password"\n%s\n' "$R" \
        "$WORK" "$x" >"$WORK/$name.sh"
    expect "$name" "$code" "$pattern" -- env PATH="$WORK/bin:$PATH" bash "$WORK/$name.sh"
}
kopia() { PATH="$WORK/bin:$PATH" command kopia "$@"; }
wipe() { dd if=/dev/urandom of="$DEVICE" bs=1M count=48 conv=notrunc status=none; }

run connect 0
run kopia-list 0 'manifest:'
SID=$(kopia snapshot list --all --json 2>/dev/null | jq -r '.[-1].id')
RID=$(kopia snapshot list --all --json 2>/dev/null | jq -r '.[-1].rootEntry.obj')
check "ids" test -n "$SID" -a "${RID:0:1}" = k
same "without --all there is none" "$(kopia snapshot list 2>/dev/null | grep -c nas1)" 0
run kopia-ls 0 '"size":50331648'
wipe
run kopia-restore 0
check "the device holds the image" cmp "$DEVICE" "$WORK/db1.img"
check "and the file was sparse" test "$(stat -c '%b' "$WORK/mnt/space/volume.img")" -lt $((24000000 / 512))
rm -f "$WORK/mnt/space/volume.img"
wipe
run kopia-show 0
check "the device holds the image again" cmp "$DEVICE" "$WORK/db1.img"
check "nothing was written into the repository" test -z "$(find "$R" -newer "$WORK/kopia-list.sh" -type f)"

mounted() { [ -e "$WORK/mnt/backup/volume.img" ]; }
unmount() { umount "$WORK/mnt/backup" 2>/dev/null || umount -l "$WORK/mnt/backup"; }
mount_it() { # the two lines of the page, the second in the background
    pod_block "$PAGE" kopia-mount | sub | sed -n '/^mkdir/p;/^kopia mount/p' >"$WORK/mount.sh"
    PATH="$WORK/bin:$PATH" bash "$WORK/mount.sh" >"$WORK/mount.log" 2>&1
    for _ in $(seq 50); do mounted && return; sleep 0.2; done
    return 1
}
if [ -e /dev/fuse ] && is_root && mount_it; then
    at_exit unmount
    check "mount: the same bytes" cmp "$WORK/mnt/backup/volume.img" "$WORK/db1.img"
    if l=$(losetup --find --show --read-only "$WORK/mnt/backup/volume.img" 2>/dev/null); then
        check "mount: as a block device" cmp "$l" "$WORK/db1.img"
        losetup -d "$l"
    else
        skip "mount: as a block device" "no loop device on FUSE here"
    fi
    unmount
    can_mount=yes
else
    skip "mount" "stock could not mount here"
    can_mount=
fi

# Wrong password, no repository: what the page quotes.
KOPIA_PASSWORD=wrong expect "a wrong password" 1 "$(sed -n 's/.*(Kopia: C<\(invalid[^>]*\)>.*/\1/p' "$PAGE")" -- \
    kopia repository connect filesystem --path "$R" --config-file "$WORK/k2.config"
run safe 0
check "stock keeps a copy in its cache" \
    sh -c "cmp '$R/kopia.repository.f' \$(find '$CACHE/kopia' -name kopia.repository | head -n 1)"
rm "$R/kopia.repository.f"
expect "no kopia.repository" 1 "$(tr '\n' ' ' <"$PAGE" | sed -n 's/.*(Kopia: C<\(repository not init[^>]*\)>.*/\1/p')" \
    -- \
    kopia repository connect filesystem --path "$R" --config-file "$WORK/k2.config"
run put-back 0
run connect 0

# The index is lost.
cp -a "$R" "$WORK/sound"
rm -rf "$R/x"
expect "without the words the page says stock refuses to recover" 1 'dangerous' -- kopia index recover
run index-recover 0
check "the snapshots are there again" kopia snapshot verify --verify-files-percent=100
check "for us, too" sf "$R" verify
same "all of them" "$(sf "$R" snapshot list --json | result 'snapshots | length')" 2

# A damaged pack: stock stops there, a mount with small blocks does not.
pack=$(cd "$R" && find p -type f -size +10M | head -n 1)
printf 'XXXXXXXX' | dd of="$R/$pack" bs=1 seek=3000000 conv=notrunc status=none
range=$(sf "$R" verify --json 2>/dev/null |
    jq -r 'select(.type == "damage" and .path == "volume.img") | "\(.offset) \(.length)"' | tail -n 1)
read -r first length <<<"$range"
check "the damage is told" test "${length:-0}" -gt 0
run connect 0
rm -rf "$CACHE/kopia/"*/contents 2>/dev/null
expect "stock stops at the damage" 1 'invalid checksum' -- kopia snapshot restore "$SID" \
    "$WORK/k-out" --write-sparse-files
kopia snapshot restore "$SID" "$WORK/k-out2" --write-sparse-files --ignore-errors >/dev/null 2>&1
check "... also when it ignores errors: what lies behind is missing" \
    sh -c "! cmp -s '$WORK/k-out2/volume.img' '$WORK/db1.img' -i $((first + length))"
if [ -n "$can_mount" ] && mount_it; then
    run kopia-around 0 '' -e '/^dd/s/$/ || true/'
    check "around it: all before" cmp -n $((first / 4096 * 4096)) "$WORK/root/db1.img" "$WORK/db1.img"
    check "around it: all behind" cmp "$WORK/root/db1.img" "$WORK/db1.img" -i $(((first + length + 4095) / 4096 * 4096))
    unmount
else
    skip "around the damage" "stock could not mount here"
fi
check "a backup of a machine that knows nothing of it does not mend it" \
    env XDG_CACHE_HOME="$WORK/other-cache" "$SNAPFERRY" -r "$R" --password-file "$WORK/password" backup \
    "$WORK/db1.img" --as snapferry@nas1:/db1 --quiet
expect "... it is hit as well" 15 -- sf "$R" verify
run heal 0 ' 1 of 4 snapshots affected' -e "s,BAD_PACK,$pack," \
    -e "s,backup $DEVICE,backup $WORK/db1.img --as snapferry@nas1:/db1," -e 's,^sf verify,sf verify || true,'
# The first snapshot held data that the volume no longer has.
newest=$(sf "$R" snapshot list --json | result 'snapshots[-1].id')
hit=$(sf "$R" verify --json 2>/dev/null | jq -r 'select(.type == "damage") | .snapshot' | sort -u)
check "what is still damaged is deleted" sf "$R" snapshot delete $hit
expect "then nothing is" 0 'no damage found' -- sf "$R" verify
# docs/sizing.md: maintenance by stock Kopia, as the owner that the repository names.
md_block docs/sizing.md "sh kopia" 1 | sub -e "s,NODE,$(hostname -s | tr A-Z a-z)," >"$WORK/maintenance.sh"
expect "maintenance as docs/sizing.md tells" 0 -- env PATH="$WORK/bin:$PATH" bash -e "$WORK/maintenance.sh"
run connect 0
check "the newest snapshot is whole" sf "$R" verify "$newest"
rm -rf "$CACHE/kopia" # it believes its list of blobs for half a minute
run connect 0
check "stock agrees" kopia snapshot restore "$newest" "$WORK/healed"
check "... to the last byte" cmp "$WORK/healed/volume.img" "$WORK/db1.img"
finish
