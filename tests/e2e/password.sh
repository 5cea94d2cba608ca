#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A password that cannot be read is told before the night: at the start, at a reload and while it lasts; what needs it
# waits and says for what, and goes on when it is back. Nothing is tried in a hurry.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
fs_make xfs xfs 320 || exit 1
random_file "$WORK/xfs/a.img" $((2 * MIB)) 1
daemon_setup
config_class img "$WORK/xfs" 'snapshots-to-retain = 1'
mkdir "$WORK/credentials"
cp "$WORK/password" "$WORK/kept"
problems() { askj status | jq -r '.problems[].text'; }
hints() { askj status | jq -r '.problems[].hint'; }

rm "$WORK/password"
starts "the daemon starts" CREDENTIALS_DIRECTORY="$WORK/credentials"
check "a password file that is not there: a problem of status" until_true 40 eval \
    'problems | grep -q "^repository \"main\": cannot read the password file $WORK/password: No such file"'
B=$(submit "$WORK/xfs/a.img")
check "a backup waits" until_true 40 eval '[ "$(ops "$B" | jq -r .state)" = Queued ]'
O=$(op_id "$B")
check "and says for what" until_true 20 eval 'ask operations | grep -q "cannot read the password file"'
cp "$WORK/kept" "$WORK/password"
same "it is there again: the backup completes" "$(wait_state "$B" Completed 90)" Completed
same "in its first attempt" "$(doc "$O" | jq -r '.attempt // 0')" 0
check "no problem any more" until_true 20 eval '[ -z "$(problems)" ]'

# ---- readable by others ----
chmod 644 "$WORK/password"
line="$CONF/snapferry.ini:$(grep -n '^password-file' "$CONF/snapferry.ini" | cut -d: -f1)"
expect "a password file that others can read is refused: with file and line" 2 \
    "$line: error: password-file $WORK/password is readable by others .mode 0644." -- \
    "$SNAPFERRY" check-config --config-dir "$CONF"
expect "with what to do" 2 "chmod 600 $WORK/password, or set insecure-password-file" -- \
    "$SNAPFERRY" check-config --config-dir "$CONF"
B=$(submit "$WORK/xfs/a.img")
check "a problem of status" until_true 40 eval \
    'problems | grep -q "^repository \"main\": password file $WORK/password is readable by others"'
check "its hint" eval 'hints | grep -q "^chmod 600 $WORK/password"'
# One that has come further than its queue waits before its mover.
check "a backup waits" until_true 40 eval '[[ $(ops "$B" | jq -r .state) =~ ^(Queued|Exposing|Retrying)$ ]]'
chmod 600 "$WORK/password"
same "after chmod it goes on" "$(wait_state "$B" Completed 90)" Completed
chmod 644 "$WORK/password"
sed -i '/^password-file/a insecure-password-file = yes' "$CONF/snapferry.ini"
expect "the key allows it: a warning with file and line" 0 "$line: warning: password-file .* is readable by others" -- \
    ask reload --wait
B=$(submit "$WORK/xfs/a.img")
same "a backup completes" "$(wait_state "$B" Completed 90)" Completed
check "and a problem of status" until_true 40 eval \
    'askj status | jq -r ".problems[] | .severity + \" \" + .text" | grep -q "^warning repository .*readable by others"'
expect "which fails status --check" 3 -- ask status --check --quiet
sed -i '/^insecure/d' "$CONF/snapferry.ini"; chmod 600 "$WORK/password"
check "without both" ask reload --wait --quiet
check "all is well" until_true 40 eval '[ -z "$(problems)" ]'

# ---- credentials ----
sed -i 's/^password-file = .*/password-file = cred:main/' "$CONF/snapferry.ini"
expect "a credential that the daemon has not got: a reload says so" 0 \
    'cannot read the credential main: it was not passed' -- ask reload --wait
expect "and what to do" 0 'systemctl restart snapferryd' -- ask reload --wait
check "so does status" until_true 40 eval 'problems | grep -q "^repository \"main\": cannot read the credential main"'
check "with a hint" grep -q 'LoadCredential=main:FILE' <<<"$(hints)"
# A second native snapshot may only go when the repository was asked about the first: not again and again.
before=$(askj operations --all | jq '[.operations[] | select(.kind == "admin")] | length')
B=$(submit "$WORK/xfs/a.img")
check "it says what it waits for, and why that waits" until_true 40 eval \
    'ask operations | tr -s " \n" "  " |
        grep -qE "(waiting for admin-check-[^ ]+: )?repository \"main\": cannot read the credential main"'
sleep 3
check "the repository is asked once at most" test "$(askj operations --all |
    jq '[.operations[] | select(.kind == "admin")] | length')" -le $((before + 1))
cp "$WORK/kept" "$WORK/credentials/main" # as after a restart
same "with it: the backup completes" "$(wait_state "$B" Completed 90)" Completed
check "the reload has nothing to say" eval '! ask reload --wait | grep -q credential'
stops "the end"
explain_failure
finish
