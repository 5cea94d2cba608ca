#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What purging the package removes and keeps, by its script in a root of its own.
. "$(dirname "$0")/../lib.sh"
POSTRM=$(realpath "$(dirname "$0")/../../debian/snapferry.postrm")
R=$WORK/root
purge() { DPKG_ROOT=$R sh "$POSTRM" purge; }
there() { (cd "$R" && find . -type f | sort | tr '\n' ' '); }
put() { for f; do mkdir -p "$R/$(dirname "$f")" && echo x >"$R/$f"; done; }
state=var/lib/snapferry cache=var/cache/snapferry
put $state/records.db{,-wal,-shm,.v1,.corrupt-1} $state/records.lock $state/holds{,.new,.corrupt-1} \
    $state/results/a.json $state/logs/a.log $cache/main/index $cache/.hidden/index run/snapferry/daemon.lock
check "purge" purge
same "nothing is left" "$(there)" ""
check "no directory either" [ ! -e "$R/$state" -a ! -e "$R/$cache" -a ! -e "$R/run/snapferry" ]

put $state/mine $state/repo/kopia.repository.f $cache/main/index $cache/repo/kopia.repository.f $cache/repo/p/a \
    etc/snapferry/main.password etc/snapferry/conf.d/50.ini
expect "purge among what others have put there" 0 'kept these files; without its password' -- purge
same "that is kept" "$(there)" "./etc/snapferry/conf.d/50.ini ./etc/snapferry/main.password \
./$cache/repo/kopia.repository.f ./$cache/repo/p/a ./$state/mine ./$state/repo/kopia.repository.f "

# A repository in the place of the caches themselves: each of its blobs is kept, whatever it is called.
rm -rf "$R"
put $cache/_log/a $cache/kopia.blobcfg.f $cache/kopia.maintenance.f $cache/kopia.repository.f $cache/p/a $cache/x/n0_/b
before=$(there)
expect "purge of a repository among the caches" 0 'kept /var/cache/snapferry' -- purge
same "each blob is there" "$(there)" "$before"
finish
