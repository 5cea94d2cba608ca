#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keys of a bucket as a credential of the service (credentials = cred:NAME), as systemd passes it: by -r, by the daemon
# and its movers, replaced at a restart while a mover runs, and for a copy.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "the daemon backs up to S3"
fs_make xfs xfs || exit 1
s3_service bucket /usr/bin/python3 tests/tools/s3-faults.py "$WORK/bucket.port"
takes() { curl -s --noproxy '*' "http://127.0.0.1:$port/_set/key/$1" >/dev/null; }
config_main
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
section() { # KIND NAME PREFIX CREDENTIAL
    printf '[%s "%s"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = %s/\n' "$1" "$2" "$port" "$3"
    printf 'credentials = cred:%s\n' "$4"
}
{
    section repository far x s3-keys
    printf 'password-file = cred:far-password\nmaintenance = no\n'
} >"$CONF/conf.d/11-far.ini"
CRED=$WORK/credentials
mkdir -m 700 "$CRED"
credential() { # NAME: as systemd makes it, which its service's user alone may read by a list of access
    cat >"$CRED/.new" && chmod 440 "$CRED/.new" && mv "$CRED/.new" "$CRED/$1"
}
keys() { printf 'access-key = %s\nsecret-key = secret-of-%s\n' "$1" "$1"; } # ACCESS-KEY
r() { env "$1" "$SNAPFERRY" --config-dir "$CONF" -r "${@:2}"; }
problems() { askj status | jq -r '.problems[] | .text + " / " + .hint'; }
is_up() { askj status | jq -e '.repositories[0].up' >/dev/null; }
mkdir "$WORK/xfs/far"
random_file "$WORK/xfs/far/a.img" 36M 1
cp "$WORK/xfs/far/a.img" "$WORK/a.orig"
config_class far "$WORK/xfs/far" 'repository = far' 'write-limit = 6MiB' 'retries = 3'
credential far-password <"$WORK/password"

# ---- with -r ----
takes old
keys old | credential s3-keys
expect "no credentials were passed: which one is missing" 2 \
    'cannot read the credential (far-password|s3-keys): no credentials were passed' -- \
    env -u CREDENTIALS_DIRECTORY "$SNAPFERRY" --config-dir "$CONF" -r far repo create --quiet
mv "$CRED/s3-keys" "$WORK/aside"
expect "the keys are not among them" 2 'cannot read the credential s3-keys: it was not passed to this process' -- \
    r CREDENTIALS_DIRECTORY="$CRED" far repo create --quiet
printf 'access-key = old\nsecret-key old\n' | credential s3-keys
expect "a line that is none: where, and nothing of it" 2 'cred:s3-keys:2 is no valid line of S3 credentials$' -- \
    r CREDENTIALS_DIRECTORY="$CRED" far repo create --quiet
rm "$CRED/s3-keys"
mv "$WORK/aside" "$CRED/s3-keys"
check "a repository is created" r CREDENTIALS_DIRECTORY="$CRED" far repo create --quiet --splitter DYNAMIC-1M-BUZHASH
check "and used" r CREDENTIALS_DIRECTORY="$CRED" far snapshot list




# ---- by the daemon ----
mv "$CRED/s3-keys" "$WORK/aside"
starts "the daemon starts without the credential" CREDENTIALS_DIRECTORY="$CRED"
check "status says so, and what to do" until_true 40 eval 'problems |
    grep -q "cannot read the credential s3-keys: it was not passed to this process / .*LoadCredential=s3-keys:FILE"'
expect "so does a reload" 0 'far.*: cannot read the credential s3-keys: it was not passed' -- ask reload --wait
B=$(submit "$WORK/xfs/far/a.img")
check "a backup waits, and says for what" until_true 40 eval \
    'ask operations | tr -s " \n" "  " | grep -q "cannot read the credential s3-keys"'
mv "$WORK/aside" "$CRED/s3-keys" # as after a restart
same "with it: the backup completes" "$(wait_state "$B" Completed 120)" Completed
check "the repository is available" until_true 60 is_up
check "no problem any more" until_true 40 eval '[ -z "$(problems)" ]'
check "the reload has nothing to say" eval '! ask reload --wait | grep -q credential'
restored_same "it is restored" "$B" "$WORK/xfs/far/a.img" "$WORK/a.orig" repository

moved() { [ "$(doc "$1" | jq '.progress.done // .details.progress.done // 0')" -gt "$2" ]; }
moving() { # F, O, PID: a backup that is in the middle when this returns
    random_file "$WORK/xfs/far/a.img" 36M "$1"
    F=$(submit "$WORK/xfs/far/a.img")
    O=$(op_id "$F")
    until_true 60 moved "$O" 2000000 || fail "a backup is under way" "$(doc "$O")"
    PID=$(mover_pid "$O")
}
moving 2
same "its mover has no credentials directory, and the keys are in no argument or environment" \
    "$(tr '\0' '\n' <"/proc/$PID/cmdline" | cat - <(tr '\0' '\n' <"/proc/$PID/environ") |
        grep -cE 'CREDENTIALS_DIRECTORY|secret-of|access-key')" 0
same "nor in the log and the records" "$(cat "$LOG" <(find "$STATE" -type f -exec cat {} +) | grep -ac secret-of)" 0
# Rotation: systemd passes new ones at a restart, which the mover survives. The old ones are revoked meanwhile.
daemon_kill
takes new
keys new | credential s3-keys
starts "the daemon starts again in mid-backup, with new keys" CREDENTIALS_DIRECTORY="$CRED"
same "the backup goes on with them" "$(wait_state "$F" Completed 120)" Completed
same "its mover was adopted" "$(grep -c "process $PID) is still running and was adopted" "$LOG")" 1
same "in its first attempt" "$(doc "$O" | jq '.attempt // .details.attempt // 0')" 0

# What a service manager has replaced in place is read at the next need.
moving 3
takes newer
keys newer | credential s3-keys
same "keys that are replaced in place while a mover runs: it goes on" "$(wait_state "$F" Completed 120)" Completed
same "in its first attempt as well" "$(doc "$(op_id "$F")" | jq '.attempt // .details.attempt // 0')" 0
check "and the repository stays available" until_true 60 is_up

# ---- of a copy ----
{ section copy away y copy-keys; printf 'repository = far\n'; } >"$CONF/conf.d/12-away.ini"
expect "a reload: the copy's credential is missing" 0 \
    '\[copy "away"\]: cannot read the credential copy-keys: it was not passed' -- ask reload --wait
keys newer | credential copy-keys
check "with it nothing is said" eval '! ask reload --wait | grep -q credential'
expect "the copy is made with its own keys" 0 -- ask copy away --wait --quiet
stops "the end"
explain_failure
finish
