#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the packages twice, from the beginning, with everything different that must not matter: directory and its
# length, time zone, locale, umask, user's name and home, number of jobs, the clock. The bytes are the same.
# usage: tests/package/long/reproducible.sh DIR
set -eu
root=$(realpath "$(dirname "$0")/../../..")
rm -rf "$1"
mkdir -p "$1"
dir=$(realpath "$1")
cd "$root"
export DEB_BUILD_OPTIONS
(
    umask 022
    DEB_BUILD_OPTIONS="nocheck parallel=2" TZ=UTC LC_ALL=C.UTF-8 debian/build.sh "$dir/a"
)
(
    umask 077
    later=(faketime -f +400d)
    command -v faketime >/dev/null || later=()
    DEB_BUILD_OPTIONS="nocheck parallel=1" TZ=Pacific/Kiritimati LC_ALL=C LANGUAGE=de USER=somebody LOGNAME=somebody \
    HOME=/nonexistent \
        "${later[@]}" debian/build.sh "$dir/another/and/a/longer/directory"
)
bad=0
for deb in "$dir"/a/*.deb; do
    other=$dir/another/and/a/longer/directory/${deb##*/}
    if cmp "$deb" "$other"; then
        echo "ok - $(sha256sum <"$deb" | cut -d' ' -f1) ${deb##*/}"
    else
        bad=1
        echo "not ok - ${deb##*/}"
        for d in "$deb" "$other"; do rm -rf "$d.x" && dpkg-deb -R "$d" "$d.x"; done
        diff -rq "$deb.x" "$other.x" || true
    fi
done
[ "$(ls "$dir"/a/*.deb | wc -l)" -ge 3 ] ||
    { echo "not ok - there are packages for programs, documentation and debug symbols"; bad=1; }
exit $bad
