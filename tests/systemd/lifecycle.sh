#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What start, reload, restart, stop, a kill, a hang and a crash of the installed service mean for running movers, and
# what a person is told of them (snapferryd(8)). (MS-50, MS-53, CF-45)
. "$(dirname "$0")/../service-lib.sh"
need_container "start, reload, stop and death of the service"
service_install || { fail "make install" "$(cat "$WORK/install.log")"; finish; }
fs_make xfs xfs 320 || exit 1
repository_make || { fail "a repository"; finish; }
image "$WORK/xfs/a.img" 32 1; cp "$WORK/xfs/a.img" "$WORK/a.orig"
V=$WORK/xfs/a.img
# Short times for the tests.
same "wait before a restart" "$(show RestartUSec)" 15s
dropin 60-short '[Service]' 'WatchdogSec=4' 'RestartSec=1' '[Unit]' 'StartLimitBurst=50'
config_service
config_class img "$WORK/xfs" 'snapshots-to-retain = 1'

# ---- a bad configuration at the start ----
echo 'nonsense = 1' >>"$CONF/snapferry.ini"
systemctl start snapferryd.socket
systemctl start $UNIT 2>/dev/null
same "a bad configuration: the start fails" "$(show ActiveState)" failed
same "with the documented exit code" "$(show ExecMainStatus)" 2
check "systemctl status says what is wrong, and where" grep -q 'snapferry.ini:[0-9]*.*nonsense' \
    <<<"$(systemctl status --no-pager -l $UNIT)"
check "so does the status line" grep -q nonsense <<<"$(show StatusText)"
same "a person has to act: it is not started again" "$(show NRestarts)" 0
same "a command is told why, at once" "$(ask operations 2>&1 | grep -c 'the daemon cannot start: .*nonsense')" 1
same "the socket goes on listening" "$(show ActiveState snapferryd.socket)" active
other() { setpriv --reuid=65534 --regid="$1" --clear-groups "$SNAPFERRY" operations 2>&1; }
check "and a member of the group only that it is so" eval \
    'out=$(other snapferry); grep -q "cannot start" <<<"$out" && ! grep -q nonsense <<<"$out"'
starts=$(journalctl -u $UNIT --no-pager -o cat | grep -c '^Starting')
check "who is not in it is told which group it is" eval \
    'out=$(other 65534); grep -q "Permission denied" <<<"$out" && grep -q "member of group snapferry" <<<"$out"'
same "and does not start it" "$(journalctl -u $UNIT --no-pager -o cat | grep -c '^Starting')" "$starts"
sed -i '$d' "$CONF/snapferry.ini"
check "mended, a command starts it (socket activation)" ask operations
same "active" "$(show ActiveState)" active
config_add group '[daemon]
socket-group = games'
systemctl restart $UNIT
same "the socket of systemd is given to the group that is configured" "$(stat -c '%G %a' /run/snapferry/control.sock)" \
    "games 660"
check "whose members are answered" other games
rm "$CONF/conf.d/group.ini"; systemctl restart $UNIT
same "and back" "$(stat -c '%G %a' /run/snapferry/control.sock)" "snapferry 660"

# ---- reload ----
check "systemctl reload" systemctl reload $UNIT
echo 'nonsense = 1' >>"$CONF/snapferry.ini"
expect "systemctl reload of a bad file fails" 1 -- systemctl reload $UNIT
same "the daemon goes on with what it had" "$(show ActiveState)/$(show SubState)" active/running
check "its status line says so" until_true 10 eval 'grep -q "the last reload was refused" <<<"$(show StatusText)"'
sed -i '$d' "$CONF/snapferry.ini"
check "mended: reload" systemctl reload $UNIT
check "forgotten" until_true 10 eval '! grep -q refused <<<"$(show StatusText)"'
systemctl kill -s HUP --kill-who=main $UNIT
check "SIGHUP is a reload, too" until_true 10 eval \
    '[ "$(journalctl -u $UNIT --no-pager -o cat | grep -c "was read again")" -ge 3 ]'
same "and ends" "$(until_true 5 eval '[ "$(show SubState)" = running ]'; show SubState)" running

# ---- a restart ----
lives() { kill -0 "$PID" 2>/dev/null && [ "$(show MainPID "$(unit_of "$O")")" = "$PID" ]; }
completes() { # NAME
    kill -CONT "$PID"
    same "$1: the backup completes" "$(wait_state "$A" Completed 60)" Completed
    same "$1: with its first mover" "$(doc "$O" | jq -r '.attempt // 0')" 0
}
running "$V"
systemctl restart $UNIT
check "a restart: the mover has the same process" lives
check "it is the one that is watched" until_true 10 eval '[ "$(mover_pid "$O")" = "$PID" ]'
completes "a restart"

# ---- a stop ----
running "$V"
systemctl stop snapferryd.socket
same "stopping the socket stops the daemon, too" "$(show ActiveState)" inactive
same "in order" "$(show Result)" success
check "a stop: the mover goes on" lives
kill -CONT "$PID"
check "and ends by itself" until_true 60 eval '[ "$(show SubState "$(unit_of "$O")")" = exited ]'
# A restart, and a stop.
check "the journal says what a stop means" until_true 20 eval \
    '[ "$(journalctl -u $UNIT --no-pager -o cat | grep -cE "stopping; [0-9]+ running movers? continues?")" -ge 2 ]'
systemctl start $UNIT
same "its result is taken at the next start" "$(wait_state "$A" Completed 20)" Completed
check "the unit is gone then" until_true 5 eval '[ "$(show LoadState "$(unit_of "$O")")" = not-found ]'

# ---- who waits does not start it ----
running "$V"
ask wait "$A" >"$WORK/waits" 2>&1 & waiting=$!
ask logs "$O" --follow >/dev/null 2>&1 & following=$!
check "somebody waits" until_true 20 test -s "$WORK/waits"
systemctl stop $UNIT
check "who waited is told of the stop" until_true 20 grep -q 'lost the connection' "$WORK/waits"
sleep 3
same "nobody who waits starts it" "$(show ActiveState)/$(kill -0 $waiting && kill -0 $following && echo waiting)" \
    inactive/waiting
systemctl start $UNIT
kill -CONT "$PID"
wait $waiting
same "started again, the wait ends with the backup" $? 0
wait $following

# ---- a kill, and a hang ----
running "$V"
old=$(main_pid); kill -KILL "$old"
check "kill -9: it is back" until_true 30 back "$old"
check "kill -9: the mover has the same process" lives
completes "kill -9"
running "$V"
old=$(main_pid); kill -STOP "$old"
check "a hang: the watchdog ends it, and it is back" until_true 40 back "$old"
check "said so" grep -q 'Watchdog timeout' <<<"$(journalctl -u $UNIT --no-pager -o cat)"
check "a hang: the mover has the same process" lives
completes "a hang"

# ---- what a hook has stopped goes on when the daemon dies ----
cat >"$WORK/hook" <<HOOK
#!/bin/sh
echo "\$1" >>$WORK/ran
[ "\$1" != pre-snapshot ] || [ ! -e $WORK/slow ] || sleep 3
HOOK
chmod 755 "$WORK/hook"; touch "$WORK/slow"
config_class img "$WORK/xfs" 'snapshots-to-retain = 1' "hook-pre-snapshot = $WORK/hook" \
    "hook-post-snapshot = $WORK/hook" 'hook-timeout = 10s'
ask reload --wait --quiet
dropin 60-short '[Service]' 'WatchdogSec=4' 'RestartSec=20' '[Unit]' 'StartLimitBurst=50'
A=$(submit "$V")
until_true 10 grep -q pre-snapshot "$WORK/ran"
rm "$WORK/slow"
kill -KILL "$(main_pid)"
check "the daemon dies between the hooks: the second one runs without it" until_true 15 \
    grep -q post-snapshot "$WORK/ran"
same "before it is back" "$(main_pid)" 0
systemctl start $UNIT
wait_state "$A" 'Completed|Failed' 30 >/dev/null
check "its backup comes to an end: $(state "$A")" terminal "$(state "$A")"

# ---- movers that are stopped by somebody: checkpoint, another attempt ----
config_class img "$WORK/xfs" 'snapshots-to-retain = 1'; ask reload --wait --quiet
running "$V"
native=$(doc "$O" | jq -r .details.native)
kill -CONT "$PID"; systemctl stop "$(unit_of "$O")"
same "a mover's unit is stopped: the backup completes with another one" "$(wait_state "$A" Completed 60)" Completed
same "of the same native snapshot" "$(doc "$O" | jq -r .details.native)" "$native"

# ---- jobs, and what version 0.1 left ----
# Its timers called the command with --from-timer, every second here.
old_timer() { # NAME DESCRIPTION
    systemd-run --quiet --unit="$1" --description="$2" --on-calendar='*:*:*' --timer-property=AccuracySec=1s \
        $OPT/bin/snapferry backup --job "${1#snapferry-job-}" --from-timer
}
job_units() { systemctl list-units --plain --no-legend --all 'snapferry-job-*' | cut -d' ' -f1 | xargs; }
runs() { askj backups --all | jq '[.backups[] | select(.job == "nightly")] | length'; }
old_timer snapferry-job-nightly "Backups of snapferry's job nightly (0123456789abcdef)"
old_timer snapferry-job-other "somebody else's"
config_add job "[job \"nightly\"]
volumes = $V
on-calendar = *-*-* $(date -d '+5 hours' +%H:%M)"
ask reload --wait --quiet
check "an old timer fires" until_true 20 eval \
    'journalctl -u snapferry-job-nightly.service --no-pager -o cat | grep -q -e --from-timer'
same "it runs nothing" "$(runs)" 0
same "and has not failed" "$(show Result snapferry-job-nightly.service)" success
systemctl restart $UNIT
check "the daemon removes it when it starts" until_true 20 eval '! job_units | grep -q nightly'
check "and says so" until_true 10 eval \
    'journalctl -u $UNIT --no-pager -o cat | grep -q "removed 1 timer of an earlier version"'
check "another timer is left alone" eval 'job_units | grep -q snapferry-job-other.timer'
systemctl stop snapferry-job-other.timer
systemctl restart $UNIT
check "a restart finds nothing more" until_true 20 answers
expect "the daemon has the job" 0 'nightly +never' -- ask jobs
config_add job "[job \"nightly\"]
volumes = $V
on-calendar = *:*:0/10"
ask reload --wait --quiet
check "it runs the job itself" until_true 40 eval '[ "$(runs)" -ge 1 ]'
same "without a unit for it" "$(job_units)" ""
systemctl stop $UNIT
check "a stop says that no jobs run" until_true 10 eval \
    'journalctl -u $UNIT --no-pager -o cat | grep -qE "stopping.*; no jobs run until the daemon is started again"'
sleep 12
same "nor do they start it" "$(show ActiveState)" inactive
rm "$CONF/conf.d/job.ini"
systemctl start $UNIT

# ---- an encrypted credential ----
if systemd-creds setup >/dev/null 2>&1 &&
    systemd-creds encrypt --with-key=host --name=main "$WORK/password" "$WORK/main.cred" 2>/dev/null; then
    dropin 50-credentials '[Service]' "LoadCredentialEncrypted=main:$WORK/main.cred"
    systemctl restart $UNIT
    same "a credential encrypted for this machine: a backup completes" "$(askj backup "$V" --wait | jq -r .state)" \
        Completed
else
    skip "a credential encrypted for this machine" "systemd-creds cannot keep a key here"
fi

# ---- a crash loop ----
systemctl stop snapferryd.socket $UNIT
rm -f /etc/systemd/system/$UNIT.d/60-short.conf
dropin 70-broken '[Service]' 'ExecStart=' 'ExecStart=/bin/sh -c "kill -SEGV $$$$"'
systemctl start snapferryd.socket; systemctl start --no-block $UNIT
sleep 3
check "a crash loop: it waits between its starts" test "$(show SubState)/$(show NRestarts)" = auto-restart/0
check "also with a command at the socket" eval \
    'timeout 2 "$SNAPFERRY" operations >/dev/null 2>&1; [ "$(show NRestarts)" = 0 ]'
systemctl stop snapferryd.socket $UNIT

explain_service 150
finish
