# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of the package share, behind tests/lib.sh: the packages, and a booted container for them.
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
BUILD=$(realpath "${BUILD:-build}")
DEBS=$BUILD/deb-test

# packages: builds this tree's packages from the objects of the tests, and the same once more as the next version, into
# $DEBS/1 and $DEBS/2, unless they are newer than everything in them. One at a time.
packages() {
    local why
    mkdir -p "$DEBS"
    exec 9>"$DEBS/lock"
    flock 9
    if ! why=$(fresh_packages); then
        rm -rf "$DEBS/1" "$DEBS/2"
        SNAPFERRY_OBJECTS=$BUILD DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=2" DPKG_DEB_COMPRESSOR_TYPE=none \
            "$root/debian/build.sh" "$DEBS/1" >"$DEBS/log" 2>&1 &&
            next_version >>"$DEBS/log" 2>&1 ||
            { echo "built because $why:"; tail -n 30 "$DEBS/log"; exec 9>&-; return 1; }
    fi
    exec 9>&-
}
fresh_packages() {
    local deb
    deb=$(ls "$DEBS"/2/snapferry_*.deb 2>/dev/null) || { echo "there is none"; return 1; }
    local newer
    newer=$(find "$root/debian" "$root/systemd" "$root/docs" "$root/examples" "$root/Makefile" "$BUILD/snapferry" \
        "$BUILD/snapferryd" \
        "$BUILD/snapferry-mover" -newer "$deb" ! -type d -print -quit)
    [ -z "$newer" ] || { echo "$newer is newer"; return 1; }
}
# What a release without a change would be: its version, and a daemon that is another file.
next_version() {
    local deb=$(echo "$DEBS"/1/snapferry_*.deb) x=$DEBS/x version
    version=$(dpkg-deb -f "$deb" Version)+1
    rm -rf "$x"
    mkdir -p "$DEBS/2"
    dpkg-deb -R "$deb" "$x"
    sed -i "s/^Version: .*/Version: $version/" "$x/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone -b "$x" "$DEBS/2/snapferry_${version}_amd64.deb"
    rm -rf "$x"
}

can_boot() { is_root && command -v systemd-nspawn >/dev/null && [ -e /dev/loop-control ]; }

# boot SCRIPT ROOT [NSPAWN-OPTION...]: runs tests/package/inside/SCRIPT where systemd is PID 1, in a copy-on-write view
# of ROOT, which stays as it is. /srv/vm is a file system with reflinks, /srv/backup an ordinary one. Prints what it
# says.
boot() {
    local script=$1 from=$2 dev
    shift 2
    mkdir -p "$WORK/vm" "$WORK/backup" "$WORK/shared" "$WORK/over" "$WORK/root"
    mount -t tmpfs -o mode=755 tmpfs "$WORK/over" || return 1
    at_exit "umount '$WORK/over' || umount -l '$WORK/over'"
    mkdir "$WORK/over/upper" "$WORK/over/work"
    mount -t overlay -o "lowerdir=$from,upperdir=$WORK/over/upper,workdir=$WORK/over/work" overlay "$WORK/root" ||
        return 1
    at_exit "umount '$WORK/root' || umount -l '$WORK/root'"
    truncate -s 400M "$WORK/vm.fs"
    mkfs.xfs -q -m reflink=1 "$WORK/vm.fs" && dev=$(loop_device "$WORK/vm.fs") || return 1
    at_exit "losetup -d $dev"
    blockdev --setrw "$dev"
    mount "$dev" "$WORK/vm" || return 1
    at_exit "umount '$WORK/vm' || umount -l '$WORK/vm'"
    chmod 755 "$WORK" "$WORK/vm" "$WORK/backup"
    cat >"$WORK/shared/start" <<START
#!/bin/bash
exec >/test/log 2>&1 </dev/null
systemctl start sysinit.target dbus.socket
for i in \$(seq 200); do [ -S /run/dbus/system_bus_socket ] && break; sleep 0.05; done
cd $root
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
export DEBIAN_FRONTEND=noninteractive SNAPFERRY=$BUILD/snapferry DEBS=$DEBS INSTALL="${INSTALL:-dpkg}"
tests/package/inside/$script
echo \$? >/test/rc
START
    chmod 755 "$WORK/shared/start"
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout -k 10 "${BOOT_TIMEOUT:-600}" systemd-nspawn \
        --quiet --directory="$WORK/root" --boot \
        --register=no --keep-unit --console=pipe --machine="snapferry-package-$$" --bind-ro="$root" --bind-ro="$BUILD" \
        --bind="$WORK/shared:/test" --bind="$WORK/vm:/srv/vm" --bind="$WORK/backup:/srv/backups" "$@" \
        systemd.run=/test/start systemd.run_success_action=exit systemd.run_failure_action=exit </dev/null \
        >"$WORK/console" 2>&1
    cat "$WORK/shared/log" 2>/dev/null
    if [ ! -s "$WORK/shared/rc" ]; then
        echo "not ok 999 - the container runs $script to its end"
        tail -n 20 "$WORK/console" | sed 's/^/# /'
        return 1
    fi
    return "$(cat "$WORK/shared/rc")"
}
