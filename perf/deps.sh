#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Installs the Debian packages that the benchmarks use, those that are missing only: tools first, then peers to compare
# with. What cannot be installed is named and done without. INSTALL=no leaves the machine as it is.
set -u
[ "${INSTALL:-yes}" = yes ] || exit 0
missing=()
for p in fio jq bc time e2fsprogs zstd restic borgbackup casync rclone curl; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "not installed, and not root: ${missing[*]}" >&2; exit 0; }
    sudo=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
for p in "${missing[@]}"; do
    "${sudo[@]}" apt-get install -y -qq --no-install-recommends "$p" >/dev/null || echo "could not be installed: $p" >&2
done
exit 0
