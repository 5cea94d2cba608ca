#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The repository's password as a systemd credential of the real unit: nobody but the daemon reads it, movers get it
# without seeing a file (MS-58).
VM_DISKS="data:400M"
. "$(dirname "$0")/lib.sh"
disk_fs data xfs /data || exit 1
image /data/v.img 16 1
cp /data/v.img /srv/v.orig
setup
config_class images /data 'snapshots-to-retain = 1' "$SLOWLY"
mkdir -p /etc/snapferry/credentials /etc/systemd/system/snapferryd.service.d
mv $PASSWORD /etc/snapferry/credentials/main
chmod 700 /etc/snapferry/credentials
sed -i 's/^password-file = .*/password-file = cred:main-password/' $CONF/snapferry.ini
PASSWORD=/etc/snapferry/credentials/main

systemctl restart snapferryd
A=$(submit /data/v.img)
if [ -n "$A" ]; then wait_state "$A" Failed 120 >/dev/null; fi
check "without the credential a backup does not work, and says which is missing" \
    eval '{ ask backup /data/v.img --wait --quiet || ask describe "$(op_id "$A")"; } 2>&1 | grep -q "main-password"'
printf '[Service]\nLoadCredential=main-password:/etc/snapferry/credentials/main\n' \
    >/etc/systemd/system/snapferryd.service.d/credentials.conf
systemctl daemon-reload
check "restart with LoadCredential" systemctl restart snapferryd
until_true 60 answers
check "check-config is content" snapferry check-config
moving /data/v.img
check "the password is in no argument and no environment" \
    eval '! tr "\0" "\n" <"/proc/$PID/cmdline" | grep -q "test password" && ! tr "\0" "\n" <"/proc/$PID/environ" |
        grep -qE "password|CREDENTIALS"'
check "its user can reach no credential's file" \
    eval '! nsenter -t "$PID" -m setpriv --reuid=snapferry-mover --clear-groups \
        find /run/credentials -type f 2>/dev/null | grep -q .'
became "Completed" "$A" Completed 200
restored_same "the repository has the volume" "$A" /data/v.img /srv/v.orig repository
check "the password is in no log" eval '! journalctl -q --no-pager | grep -q "test password"'
check "nor in the records" eval '! grep -rqa "test password" /var/lib/snapferry'
clean "nothing is left behind" 60 /data
finish
