#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon and a bucket of a server that goes away, denies, hangs and revokes its keys, in mid-backup and before
# (tests/tools/s3-faults.py).
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "the daemon backs up to S3"
fs_make xfs xfs || exit 1
s3_service faulty /usr/bin/python3 tests/tools/s3-faults.py "$WORK/faulty.port"
faulty() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1" >/dev/null; }
config_main
# Nothing is in a directory.
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
FAR=$CONF/conf.d/11-far.ini
printf '[repository "far"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = x/\n' "$port" >"$FAR"
printf 'credentials = %s\npassword-file = %s\n' "$WORK/keys" "$WORK/password" >>"$FAR"
keys() { # ACCESS-KEY: replaced in one go, with a session token of its own
    printf 'access-key = %s\nsecret-key = a\nsession-token = of-%s\n' "$1" "$1" | secret "$WORK/keys"
}
takes() { # ACCESS-KEY: what the service takes from now on
    faulty "_set/token/of-$1"
    faulty "_set/key/$1"
}
place() { # KEY VALUE: another one in the section
    sed -i "s,^$1 = .*,$1 = $2," "$FAR"
    ask reload --wait >/dev/null 2>&1
}
down_because() { # TEXT
    [[ $(askj status | jq -r '.repositories[0] | select(.up == false) | .why') =~ $1 ]]
}
is_up() { askj status | jq -e '.repositories[0].up' >/dev/null; }
r() { "$SF" --config-dir "$CONF" -r "$@"; }
keys old
mkdir -p "$WORK/xfs/far"
config_class far "$WORK/xfs/far" 'repository = far' 'write-limit = 6MiB' 'retries = 3'
new_data() { random_file "$WORK/xfs/far/b.img" 36M "$1"; cp "$WORK/xfs/far/b.img" "$WORK/b.orig"; }
new_data 3
takes old
check "a repository" r far repo create --quiet --splitter DYNAMIC-1M-BUZHASH
starts "the daemon starts with a bucket as its only repository"
daemon_alive || finish
check "it is available" until_true 60 is_up
moving() { # starts a backup: F, O, PID; it is in the middle when this returns
    F=$(submit "$WORK/xfs/far/b.img")
    O=$(op_id "$F")
    until_true 60 moved "$O" 2000000 || fail "a backup is under way" "$(doc "$O")"
    PID=$(mover_pid "$O")
}
moved() { [ "$(doc "$1" | jq '.progress.done // .details.progress.done // 0')" -gt "$2" ]; }

moving
same "its mover is locked down" \
    "$(grep -E '^(Seccomp|NoNewPrivs):' "/proc/$PID/status" | grep -o '[0-9]*' | tr '\n' ' ')" "1 2 "
same "it has the network" "$(readlink "/proc/$PID/ns/net")" "$(readlink /proc/self/ns/net)"
same "the keys are not in its arguments and environment" "$(tr '\0' '\n' <"/proc/$PID/cmdline" | cat - <(tr '\0' '\n' \
    <"/proc/$PID/environ") | grep -cE 'secret|access|=old')" 0
faulty _fault/slowdown/5
same "a backup while the server is busy for some seconds" "$(wait_state "$F" Completed 90)" Completed
new_data 4
moving
faulty _fault/reset/4
same "a backup while connections break" "$(wait_state "$F" Completed 90)" Completed
restored_same "and what it stored is whole" "$F" "$WORK/xfs/far/b.img" "$WORK/b.orig" repository

# Rotation: the old keys are revoked while a mover uses them, and replaced afterwards.
new_data 5
moving
takes new
sleep 1
keys new
same "a backup survives the rotation of its keys" "$(wait_state "$F" Completed 120)" Completed
same "by the same mover" "$(doc "$(op_id "$F")" | jq '.attempt // .details.attempt // 0')" 0

# The daemon is killed and started again; the mover goes on, and gets other keys from the new one.
new_data 6
moving
daemon_kill
keys newer
takes newer
starts "the daemon starts again in mid-backup"
same "the backup goes on, with keys that the daemon read after its start" "$(wait_state "$F" Completed 120)" Completed
same "its mover was adopted" "$(grep -c "process $PID) is still running and was adopted" "$LOG")" 1

# Lists lag: what a mover has put the next one knows.
faulty _set/lag/1
new_data 9
F=$(submit "$WORK/xfs/far/b.img")
same "a backup while lists lag" "$(wait_state "$F" Completed 120)" Completed
restored_same "and the mover of a restore knows it" "$F" "$WORK/xfs/far/b.img" "$WORK/b.orig" repository
faulty _set/lag/0

# Wrong keys: the repository is not available, backups wait, and go on when the keys are right.
keys nobody
check "wrong keys show in status" until_true 60 down_because 'refuses the credentials'
check "with what to do" \
    eval '[[ $(askj status | jq -r ".problems[].hint") =~ "does not know the access-key in the cred" ]]'
expect "and status --check fails" 3 -- ask status --check --quiet
new_data 7
F=$(submit "$WORK/xfs/far/b.img")
sleep 2
same "a backup waits" "$(state "$(op_id "$F")")" Queued
keys newer
same "and is made when they are right" "$(wait_state "$F" Completed 120)" Completed

# The bucket is gone, as far as the server says.
faulty _fault/bucket/100000
touch "$WORK/keys"
check "a bucket that is gone shows in status" until_true 60 down_because 'no bucket of that name'
faulty _fault/none/0
check "it is back" until_true 90 is_up

# Nobody listens any more.
place endpoint http://127.0.0.1:1
check "an endpoint that does not answer shows in status" until_true 90 down_because 'no connection to 127.0.0.1:1'
place endpoint "http://127.0.0.1:$port"
check "and is available with the right one" until_true 90 is_up

# A key that may only read: what cannot be deleted is a problem, for as long as that is so.
D=$(askj backups | jq -r '[.backups[] | select(.kind == "backup" and .state == "Completed")][-1].id')
faulty _set/readonly/1
G=$(askj delete "$D" --yes | jq -r .operation)
undeleted() {
    [[ $(askj status | jq -r '.problems[] | .text + .hint') =~ "backup $D cannot be deleted: cannot write blob ".*"key \
needs the rights".*"tried again" ]]
}
check "a deletion that is denied is a problem of status" until_true 60 undeleted
same "and not given up" "$(state "$G")" Running
faulty _set/readonly/0
check "it is tried again" ask delete "$D" --yes --force --wait --quiet
same "and done" "$(state "$G")" Completed
same "without an error" "$(doc "$G" | jq -r '.error.message // ""')" ""
check "the problem is none any more" until_true 20 eval '! undeleted'

# The server hangs: a cancel ends the wait.
new_data 8
moving
faulty _fault/stall/100000
sleep 2
check "a cancel while the server does not answer" ask cancel "$F" --quiet
same "is obeyed" "$(wait_state "$O" Canceled 30)" Canceled
faulty _fault/none/0

# Another repository in the same place.
sed -i 's,^prefix = .*,prefix = y/,' "$FAR"
check "another repository is created" r far repo create --quiet
place prefix y/
check "it is refused" until_true 60 down_because 'another repository is at http://127.0.0.1:[0-9]*/b/y/'
place prefix x/
check "and the right one is used again" until_true 60 is_up

# check-config looks into the file of the keys.
chmod 644 "$WORK/keys"
configured() { "$SNAPFERRY" check-config --config-dir "$CONF"; }
expect "keys that others can read" 2 'credentials file .* is readable by others' -- configured
chmod 600 "$WORK/keys"
echo 'secret-key only' >"$WORK/keys"
expect "keys that are malformed" 2 'keys:1 is no valid line of S3 credentials' -- configured
clean "nothing is left behind" 30 "$WORK/xfs"
explain_failure
finish
