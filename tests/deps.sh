#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Installs the Debian packages that building and testing need, those that are missing only. As root or through sudo.
set -eu
build=(gcc make pkg-config libc6-dev liburing-dev libisal-dev libzstd-dev libssl-dev libjansson-dev libinih-dev
       liblz4-dev zlib1g-dev libblkid-dev libsystemd-dev libsqlite3-dev libseccomp-dev perl)
test=(libcmocka-dev jq xz-utils e2fsprogs xfsprogs btrfs-progs util-linux mount openssl strace faketime procps tzdata bc tar time sqlite3)
want=("${build[@]}")
[ "${1:-all}" = build ] || want+=("${test[@]}")
missing=()
for p in "${want[@]}"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "installing ${missing[*]} needs root or sudo" >&2; exit 1; }
    sudo=sudo
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
