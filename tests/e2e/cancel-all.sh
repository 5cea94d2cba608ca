#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# cancel --all: everything that runs or waits ends, and the command says so only then. repo create --make-password.
. "$(dirname "$0")/../daemon-lib.sh"
expect "neither ids nor --all" 2 'requires ids or --all' -- "$SNAPFERRY" cancel --runtime-dir "$WORK/none"
expect "both" 2 'not both' -- "$SNAPFERRY" cancel x --all --runtime-dir "$WORK/none"
expect "without a daemon" 23 'not running' -- "$SNAPFERRY" cancel --all --runtime-dir "$WORK/none"

# A password of its own.
expect "no password file" 2 'no password is given' -- "$SNAPFERRY" -r "$WORK/r" repo create --make-password
expect "one that cannot be made" 1 'cannot create the password file' -- \
    "$SNAPFERRY" -r "$WORK/r" --password-file "$WORK/none/p" repo create --make-password
expect "a credential is systemd's" 2 'is a systemd credential' -- \
    "$SNAPFERRY" -r "$WORK/r" --password-file cred:x repo create --make-password
expect "made" 0 'Created a password in' -- \
    "$SNAPFERRY" -r "$WORK/r" --password-file "$WORK/p" repo create --make-password
same "for its owner only" "$(stat -c %a "$WORK/p")" 600
same "of 24 bytes" "$(base64 -d <"$WORK/p" | wc -c)" 24
check "which opens the repository" "$SNAPFERRY" -r "$WORK/r" --password-file "$WORK/p" snapshot list
before=$(sum_of "$WORK/p")
expect "one that is there is used" 0 '' -- "$SNAPFERRY" -r "$WORK/r2" --password-file "$WORK/p" repo \
    create --make-password
same "and left as it is" "$(sum_of "$WORK/p")" "$before"

need_root "backups of the daemon"
# Who writes there: the movers' user, where a section says what the repository is for.
mkdir -p "$WORK/etc" && chmod 755 "$WORK"
printf '[mover]\nuser = nobody\n[repository "s"]\npath = %s/deep/down/s\npassword-file = %s/p\n' "$WORK" \
    "$WORK" >"$WORK/etc/snapferry.ini"
section() { "$SNAPFERRY" --config "$WORK/etc/snapferry.ini" -r s repo create --quiet; }
check "a section's repository" section
same "belongs to the movers" "$(stat -c '%U %a' "$WORK/deep/down/s")" "nobody 700"
same "all of it" "$(find "$WORK/deep/down/s" ! -user nobody)" ""
same "they get there" "$(stat -c '%U %a' "$WORK/deep/down")" "root 755"
rm -rf "$WORK/deep/down/s" && mkdir -m 755 "$WORK/deep/down/s" && touch "$WORK/deep/down/s/mine"
expect "a directory with files is refused" 12 '' -- section
same "and not given away" "$(stat -c %U "$WORK/deep/down/s")" root

fs_make xfs xfs || exit 1
for v in a b c; do image "$WORK/xfs/$v.img" 16 "$RANDOM"; done
daemon_setup 'slots = 1' 'restore-reserved = 0' 'concurrent-backups = 1'
config_class xfs "$WORK/xfs"
starts "the daemon starts"
# At its first start it looks into the repository for backups that it does not know.
scanned() { [ -n "$(askj operations --all | jq -r '.operations[] | select(.kind == "admin") | .id')" ] && settled; }
check "its first scan has ended" until_true 30 scanned
expect "nothing runs" 0 'No running or waiting operations' -- ask cancel --all
running "$WORK/xfs/a.img"
RUNNING=$A
WAITING=$(submit "$WORK/xfs/b.img" "$WORK/xfs/c.img")
if ask cancel --all --wait --json >"$WORK/out" 2>"$WORK/err"; then
    pass "all are cancelled"
else
    fail "all are cancelled" "$(cat "$WORK/err")"
fi
same "one result at the end, of both" \
    "$(tail -n 1 "$WORK/out" | jq -r '[.type, .verb, (.canceled | length)] | join(" ")')" "result cancel 2"
same "and nothing else" "$(wc -l <"$WORK/out")" 1
left() { unfinished | grep -v '^record-'; }
same "nothing is unfinished when it returns, but for records of outcomes" "$(left)" ""
same "the one that ran" "$(state "$RUNNING")" Canceled
same "the one that waited" "$(state "$WAITING")" Canceled
check "the mover is gone" test ! -d "/proc/$PID"
# What became of a backup is owed to the repository: it is not canceled with all others, while the repository is away.
check "outcomes are recorded meanwhile" until_true 30 settled
running "$WORK/xfs/b.img"
mv "$WORK/repo" "$WORK/away"
ask cancel "$A" >/dev/null
same "a backup is canceled, whose mover does not respond" "$(wait_state "$A" Canceled 60)" Canceled
# It may be that of the backup before, which then records this one, too.
owed() { record=$(unfinished | awk '/^record-/ {print $1; exit}'); [ -n "$record" ]; }
check "its outcome waits for the repository" until_true 30 owed
owed
timeout 120 "$SNAPFERRY" cancel --all --wait --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF" >"$WORK/out"
same "cancel --all --wait ends" $? 0
check "and says what it has left to run" grep -q "^$record is left to run: it records" "$WORK/out"
same "so does --json" "$(askj cancel --all | jq -r '.left | join(" ")')" "$record"
check "which has not ended" owed
mv "$WORK/away" "$WORK/repo"
same "when the repository is back it is recorded" "$(wait_state "$record" Completed 120)" Completed

# A deletion that has begun cannot be canceled: who names it is told, who means all is not held up by it.
D=$(result id <<<"$(ask backup "$WORK/xfs/c.img" --wait --json)")
E=$(result id <<<"$(ask backup "$WORK/xfs/c.img" --wait --json)")
check "nothing else runs" until_true 30 settled
mv "$WORK/repo" "$WORK/away"
G=$(askj delete "$D" --yes | jq -r .operation)
check "a deletion has begun, and its repository is away" until_true 30 eval '[ "$(state "$G")" = Running ]'
expect "it cannot be canceled" 14 "has begun to delete backup $D and cannot be canceled" -- ask cancel "$G"
expect "with what can be done" 14 'wait delete-.*delete --force' -- ask cancel "$G"
F=$(submit "$WORK/xfs/b.img")
expect "another one that is named beside it is canceled" 14 "^$F is being canceled" -- ask cancel "$G" "$F"
timeout 60 "$SNAPFERRY" cancel --all --wait --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF" >"$WORK/out"
same "cancel --all --wait ends all the same" $? 0
check "and names it" grep -q "^$G is left to run: a deletion that has begun cannot be canceled" "$WORK/out"
same "its request to the repository goes on" "$(grep -c '^admin-delete-' "$WORK/out")" 0
same "that backup has not 'already ended'" "$(grep -c "^$D" "$WORK/out")" 0
same "--json as well" "$(askj cancel --all | jq --arg g "$G" '.left | index($g) != null')" true
mv "$WORK/away" "$WORK/repo"
check "when the repository is back --force does not wait for the next attempt" \
    ask delete "$D" --yes --force --wait --quiet
same "it is done" "$(wait_state "$G" Completed 60)" Completed
clean "nothing is left" 30 "$WORK/xfs"
stops "the daemon stops"
explain_failure
finish
