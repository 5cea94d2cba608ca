#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the Debian packages from a copy of the source tree, so that the tree remains clean and builds may run in
# parallel. usage: debian/build.sh DIR [DPKG-BUILDPACKAGE-OPTION...]   packages, .changes and .buildinfo go to DIR
# SNAPFERRY_OBJECTS=DIR: see debian/rules
set -eu
root=$(realpath "$(dirname "$0")/..")
mkdir -p "$1"
out=$(realpath "$1")
shift
version=$(dpkg-parsechangelog -l "$root/debian/changelog" -S Version)
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
src=$work/snapferry-$version
mkdir "$src"
cd "$root"
# Exclude build output, in the tree and under debian/.
tar -c --exclude=./.git --exclude='./build*' --exclude=./debian/build --exclude=./debian/tmp \
    --exclude=./debian/.debhelper \
    --exclude=./debian/snapferry --exclude=./debian/snapferry-doc --exclude=./debian/snapferry-rbd \
    --exclude=./perf/results . | tar -x -C "$src"
cd "$src"
# -d: tests/deps.sh has installed the dependencies; without it, build-essential with a C++ compiler would be required.
if ! dpkg-buildpackage -b -d -us -uc "$@" >"$work/log" 2>&1; then
    tail -n 25 "$work/log" >&2
    echo "the packages could not be built" >&2
    exit 1
fi
cp "$work/log" "$out/build.log"
rm -f "$out"/snapferry*_*.{deb,changes,buildinfo}
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out"/
ls "$out"/*.deb
if [ -z "${SNAPFERRY_OBJECTS:-}" ] && command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning --info --pedantic "$out"/*.changes
fi
