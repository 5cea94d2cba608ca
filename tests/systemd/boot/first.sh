#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The first boot of tests/e2e/shutdown.sh: ends while a mover is in the middle.
. "$(dirname "$0")/common"
truncate -s 320M /persist/vol.fs; mkfs.xfs -q -m reflink=1 /persist/vol.fs
truncate -s 200M /persist/repo.fs; mkfs.ext4 -q /persist/repo.fs
mounts || { fail "mounts"; finish; }
chmod 755 /srv/vol /srv/backup
image "$V" 48 7; cp "$V" /persist/orig; cp "$WORK/password" /persist/password
repository_make || { fail "a repository"; finish; }
dropin 50-credentials '[Service]' 'LoadCredential=main:/persist/password'
config_service 'retries = 0'
config_class vol /srv/vol 'snapshots-to-retain = 1'
check "the service starts" systemctl start snapferryd.socket $UNIT
running "$V"
cp -r "$CONF" /persist/etc
printf 'A=%s O=%s NATIVE=%s MACHINE=%s\n' "$A" "$O" "$(doc "$O" | jq -r .details.native)" \
    "$(cat /etc/machine-id)" >/persist/facts
journalctl --flush
pass "the machine goes down while the mover runs"
cleanup_commands=()
finish
