#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The second boot of tests/e2e/shutdown.sh: what was begun goes on.
. "$(dirname "$0")/common"
. /persist/facts
mounts || { fail "mounts"; finish; }
mkdir -p "$CONF"; cp -r /persist/etc/. "$CONF"
dropin 50-credentials '[Service]' 'LoadCredential=main:/persist/password'
log() { journalctl --no-pager -o cat -D "/persist/journal/$MACHINE"; }
at() { log | grep -nE -- "$1" | tail -n 1 | cut -d: -f1; } # the last line that says so
daemon=$(at 'stopping; [0-9]+ running movers? continues?') \
    mover=$(at '(Stopped|Deactivated).*snapferry-mover@|snapferry-mover@.*(Deactivated|Consumed)') \
    vol=$(at '^(Unmounted|Unmounting) /srv/vol|^Unmounted srv-vol') \
    repo=$(at '^(Unmounted|Unmounting) /srv/backup|^Unmounted srv-backup')
check "the daemon was stopped first ($daemon), then the mover ($mover)" test "$daemon" -lt "$mover"
check "then the mounts were unmounted ($vol, $repo)" test "$mover" -lt "$vol" -a "$mover" -lt "$repo"
check "no mount was busy" eval '! log | grep -qE "umount: /srv.*busy|Failed unmounting (/srv|srv-)"'
check "the service starts" systemctl start snapferryd.socket $UNIT
same "the backup completes" "$(wait_state "$A" Completed 60)" Completed
same "by the same operation, from the same native snapshot" "$(op_id "$A") $(doc "$O" | jq -r .details.native)" \
    "$O $NATIVE"
same "no attempt was counted" "$(doc "$O" | jq -r '.attempt // 0')" 0
# (In a container the sandboxed daemon sees the boot id of the machine below, which was not booted: "by somebody" then.)
check "said so" grep -qE "its mover was terminated (by a reboot|externally); resuming from the last checkpoint" \
    <<<"$(journalctl --no-pager -o cat "OPERATION=$O")"
expect "restored" 0 -- ask restore "$A/$V" /srv/vol/back.img --from repository --wait --quiet
check "the same bytes" cmp /persist/orig /srv/vol/back.img
[ $failures -eq 0 ] || { journalctl --no-pager -o cat -u $UNIT; journalctl --no-pager -o cat "OPERATION=$O"; } |
    sed "s,^,# ,"
explain_service 40
cleanup_commands=()
finish
