#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Installs the Debian packages that building and testing need, those that are missing only. As root or through sudo.
set -eu
build=(gcc make pkg-config libc6-dev liburing-dev libisal-dev libzstd-dev libssl-dev libjansson-dev libinih-dev
       liblz4-dev zlib1g-dev libblkid-dev libsystemd-dev libsqlite3-dev libseccomp-dev libmicrohttpd-dev
       libcurl4-openssl-dev libexpat1-dev libnbd-dev perl)
test=(libcmocka-dev gojq jq xz-utils e2fsprogs xfsprogs btrfs-progs util-linux mount openssl strace faketime procps
    tzdata bc tar time sqlite3 curl python3 python3-swift qemu-utils nbdkit qemu-system-x86 seabios)
# Packages are built and installed in a booted container by the default tests. lintian and mmdebstrap are for `make deb`
# and `make test-package`: lintian alone brings a hundred packages of Perl.
test+=(systemd dbus systemd-container debhelper dpkg-dev fakeroot)
package=(debhelper dpkg-dev fakeroot lintian mmdebstrap systemd dbus systemd-container libcmocka-dev xz-utils
    jq openssl sqlite3 xfsprogs)
want=("${build[@]}")
case ${1:-all} in
build) ;;
package) want+=("${package[@]}") ;;
*) want+=("${test[@]}") ;;
esac
# The judges of metrics, rules and dashboards, and the reverse proxy of the manual: the programs alone, without the
# services that the packages would start. 20 MB; without them those tests are skipped and say so.
program_of() { # PACKAGE PROGRAM
    local dir=${BUILD:-build}/$1
    if command -v "$2" >/dev/null || [ -x "$dir/usr/bin/$2" ] || [ -x "$dir/usr/sbin/$2" ]; then return; fi
    mkdir -p "$dir"
    (cd "$dir" && apt-get download -qq "$1" >/dev/null 2>&1 && dpkg-deb -x "$1"_*.deb . && rm -f "$1"_*.deb) ||
        echo "$2 could not be fetched: what needs it is skipped" >&2
}
# Ceph's object store and block devices, without services on this machine: 66 MB, of which what tests/ceph-lib.sh starts
# is kept.
ceph() {
    local dir=${BUILD:-build}/ceph name
    [ ! -x "$dir/usr/bin/radosgw" ] || [ ! -x "$dir/usr/bin/rados" ] || return 0
    rm -rf "$dir" && mkdir -p "$dir/debs/partial"
    if apt-get install -qq -y --no-install-recommends --download-only -o Debug::NoLocking=1 \
        -o "Dir::Cache::archives=$(realpath "$dir/debs")" ceph-mon ceph-osd ceph-common radosgw >/dev/null 2>&1; then
        for name in "$dir"/debs/*.deb; do
            dpkg-deb --fsys-tarfile "$name" | tar -x -C "$dir" --wildcards --no-anchored '*.so*' 'ceph-mon' 'ceph-osd' \
                'radosgw' 'radosgw-admin' 'ceph-authtool' 'monmaptool' 'osdmaptool' 'usr/bin/rbd' 'usr/bin/rados' \
                2>/dev/null || true
        done
    fi
    rm -rf "$dir/debs"
    [ -x "$dir/usr/bin/radosgw" ] || echo "radosgw could not be fetched: what needs it is skipped" >&2
}
# The formatter: 33 MB, which only the check of the form needs.
formatter() {
    command -v clang-format-14 >/dev/null ||
        $sudo apt-get install -y -qq --no-install-recommends clang-format-14 >/dev/null 2>&1 ||
        echo "clang-format-14 could not be installed: what needs it is skipped" >&2
}
programs() {
    ceph
    program_of prometheus promtool
    program_of nginx nginx
    formatter
}
missing=()
for p in "${want[@]}"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
if [ ${#missing[@]} -eq 0 ]; then
    [ "${1:-all}" = build ] || programs
    exit 0
fi
[ -z "$sudo" ] || command -v sudo >/dev/null || { echo "installing ${missing[*]} needs root or sudo" >&2; exit 1; }
echo "installing: ${missing[*]}"
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
[ "${1:-all}" = build ] || programs
