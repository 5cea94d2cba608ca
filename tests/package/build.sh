#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What is in the packages, without installing them: versions, files, dependencies, hardening, what lintian says.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/common.bash"
if ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
    skip "the packages" "needs the packages debhelper and dpkg-dev"
    finish
fi
version=$(sed -n 's/^VERSION := //p' "$root/Makefile")
same "the changelog has the version of the Makefile" "$(dpkg-parsechangelog -l "$root/debian/changelog" -S Version)" \
    "$version"
# The packages below are built of what is built already, without tests: that make knows those is asked apart.
asked=$(make -n --no-print-directory -C "$root" -f debian/rules override_dh_auto_test | grep -m 1 '^make ')
check "the tests of a build of the package are known" sh -c "cd '$root' && $asked -n"
out=$(packages) || { fail "the packages are built" "$out"; finish; }
pass "the packages are built"
deb=$DEBS/1/snapferry_${version}_amd64.deb doc=$DEBS/1/snapferry-doc_${version}_all.deb
rbd=$DEBS/1/snapferry-rbd_${version}_amd64.deb
check "there are three" test -s "$deb" -a -s "$doc" -a -s "$rbd"
dpkg-deb -x "$deb" "$WORK/x" && dpkg-deb -e "$deb" "$WORK/control" && dpkg-deb -x "$doc" "$WORK/doc"
same "what uses Ceph is in one, and nothing else" "$(dpkg-deb -c "$rbd" | awk '$1 ~ /^-/ {print $NF}' |
    grep -v /usr/share/doc/ | xargs)$(find "$WORK/x" -name '*rbd*')" \
    "./usr/libexec/snapferry/snapferry-rbd ./usr/share/man/man8/snapferry-rbd.8.gz"
check "which needs librbd1" grep -q librbd1 <<<"$(dpkg-deb -f "$rbd" Depends)"
check "and libnbd0, by which movers read from it" grep -q libnbd0 <<<"$(dpkg-deb -f "$rbd" Depends)"
dpkg-deb -x "$rbd" "$WORK/x"
for f in usr/bin/snapferry usr/sbin/snapferryd usr/libexec/snapferry/snapferry-{mover,rbd}; do
    same "$f tells its version" "$("$WORK/x/$f" --version | grep -o '[0-9.]*$')" "$version"
    check "$f: relro, bindnow, PIE, no executable stack" sh -c "
        readelf -lW '$WORK/x/$f' | grep -q GNU_RELRO && readelf -dW '$WORK/x/$f' | grep -qE 'BIND_NOW|NOW' &&
        readelf -hW '$WORK/x/$f' | grep -q DYN && readelf -lW '$WORK/x/$f' | grep GNU_STACK | grep -qv RWE"
    check "$f is stripped" sh -c "! readelf -SW '$WORK/x/$f' | grep -q '\.debug_info'"
done
# Every page, unit, plugin, guide and example of the tree, and no other.
same "man pages" "$(find "$WORK/x/usr/share/man" -type f -printf '%f\n' | sed 's/\.gz$//' | sort)" \
    "$(ls "$root/docs/man" | sed 's/\.pod$//' | sort)"
same "units" "$(ls "$WORK/x/lib/systemd/system")" \
    "$(cd "$root/systemd" && ls -- *.service *.socket *.slice *.timer *.target 2>/dev/null)"
same "guides" "$(cd "$WORK/doc/usr/share/doc/snapferry" && ls -- *.md)" "$(cd "$root/docs" && ls -- *.md)"
check "examples" diff -r "$root/examples" "$WORK/doc/usr/share/doc/snapferry/examples"
same "no unit names a file that the package does not have" \
    "$(grep -rhoE '(/usr|/lib)/[a-z/.-]*snapferry[a-z.-]*' "$WORK/x/lib" | sort -u |
    while read -r f; do [ -e "$WORK/x$f" ] || echo "$f"; done)" ""
check "no placeholder is left in them" sh -c "! grep -rE '@[a-z]+@' '$WORK/x/lib' '$WORK/x/usr/lib'"
same "the configuration is a conffile, and it alone" "$(cat "$WORK/control/conffiles")" /etc/snapferry/snapferry.ini
"$WORK/x/usr/bin/snapferry" check-config --config-dir "$WORK/x/etc/snapferry" --json >"$WORK/json"
same "it has no mistakes" "$(jq -c .errors "$WORK/json")" 0
sed 's/^;//' "$WORK/x/etc/snapferry/snapferry.ini" >"$WORK/snapferry.ini"
mkdir -p "$WORK/edited/conf.d" && mv "$WORK/snapferry.ini" "$WORK/edited/"
"$WORK/x/usr/bin/snapferry" check-config --config-dir "$WORK/edited" --json >"$WORK/json" 2>/dev/null
same "nor has what it keeps behind semicolons" "$(jq -c .errors "$WORK/json")" 0
check "a job, a class and a repository are in it" \
    jq -e '[.sections[].kind] | contains(["job", "repository", "storage-class"])' "$WORK/json"
# What README.Debian shows is a configuration as well.
zcat "$WORK/x/usr/share/doc/snapferry/README.Debian.gz" |
    sed -n '/^        \[repository/,/^        keep-daily/s/^ *//p' >"$WORK/edited/conf.d/50.ini"
check "README.Debian has an example" test -s "$WORK/edited/conf.d/50.ini"
: >"$WORK/edited/snapferry.ini"
expect "which is right" 0 'no errors' -- "$WORK/x/usr/bin/snapferry" check-config --config-dir "$WORK/edited"
for s in preinst postinst prerm postrm; do
    [ ! -e "$WORK/control/$s" ] || check "$s is a program for sh" sh -n "$WORK/control/$s"
done
check "each is safe to be called for nothing" \
    sh -c "DPKG_ROOT='$WORK/none' sh '$WORK/control/postrm' upgrade 1 &&
        DPKG_ROOT='$WORK/none' sh '$WORK/control/prerm' upgrade 1"
same "every file is root's" "$(dpkg-deb -c "$deb" "$doc" 2>/dev/null | awk '$2 != "root/root"')" ""
same "nothing is writable by others" "$(find "$WORK/x" "$WORK/doc" -mindepth 1 ! -type l -perm /022)" ""
depends=$(dpkg-deb -f "$deb" Depends)
for lib in libmicrohttpd12 libsystemd0 libsqlite3-0 liburing2 libisal2 libzstd1 libssl3 libcurl4 libexpat1; do
    check "it depends on $lib" grep -q "$lib" <<<"$depends"
done
if command -v lintian >/dev/null; then
    # Of a build that strips and compresses as the real one does; what only the debug symbols could have is not looked
    # at.
    lintian --allow-root --fail-on error,warning --info --pedantic "$DEBS"/1/*.changes >"$WORK/lintian" 2>&1
    rc=$?
    grep -E '^[EWIP]:' "$WORK/lintian" | sed 's/^/# /'
    same "lintian finds neither errors nor warnings" "$rc" 0
else
    skip "lintian finds neither errors nor warnings" "lintian is not installed (make deb runs it)"
fi
finish
