#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The packages in a minimal Debian 12 that mmdebstrap makes: apt installs them with what they need and nothing else,
# then the same life as in ../life.sh. Wants a Debian mirror (MIRROR=URL) and root; ROOT=FILE.tar keeps and takes the
# system.
BUILD=$(realpath "${BUILD:-build}")
export SNAPFERRY=${SNAPFERRY:-$BUILD/snapferry} INSTALL=apt
cd "$(dirname "$0")/../../.." || exit 1
. tests/lib.sh
. tests/package/common.bash
if ! can_boot || ! command -v mmdebstrap >/dev/null; then
    echo "needs root, loop devices, mmdebstrap, systemd-container" >&2
    exit 1
fi
# The package as it is given to people, and the next version of it.
mkdir -p "$DEBS"
deb=$(ls "$BUILD"/deb/snapferry_*.deb) || { echo "make deb first" >&2; exit 1; }
DEBS=$BUILD/deb-fresh
rm -rf "$DEBS"
mkdir -p "$DEBS/1"
cp "$deb" "$DEBS/1/"
next_version || exit 1
ROOT=${ROOT:-$BUILD/debian-12.tar}
if [ ! -s "$ROOT" ]; then
    # Beyond a minimal system only what the test itself calls.
    mmdebstrap --variant=minbase \
        --include=systemd,systemd-sysv,jq,openssl,sqlite3,procps,diffutils,ca-certificates,mount,xfsprogs \
        bookworm "$WORK/root.tar" ${MIRROR:+"$MIRROR"} 2>"$WORK/mmdebstrap" ||
        { tail -n 20 "$WORK/mmdebstrap"; exit 1; }
    mv "$WORK/root.tar" "$ROOT"
fi
mkdir "$WORK/fresh" && tar -xf "$ROOT" -C "$WORK/fresh" --exclude='./dev/*' || exit 1
cp /etc/resolv.conf "$WORK/fresh/etc/resolv.conf"
cp /etc/apt/apt.conf.d/*proxy* "$WORK/fresh/etc/apt/apt.conf.d/" 2>/dev/null
BOOT_TIMEOUT=900 boot life.sh "$WORK/fresh" --resolv-conf=off
