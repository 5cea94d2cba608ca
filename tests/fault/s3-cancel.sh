#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A server that accepts connections and never answers: whatever waits for it, and for which of its requests, is canceled
# within seconds, by itself: cancel-grace is an hour, so that nothing is killed.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "the daemon and S3"
fs_make xfs xfs || exit 1
V=$WORK/xfs
s3_service faulty /usr/bin/python3 tests/tools/s3-faults.py "$WORK/faulty.port"
faulty() { curl -s --noproxy '*' "http://127.0.0.1:$port/$1" >/dev/null; }
config_main 'cancel-grace = 1h' 'slots = 9' 'restore-reserved = 0'
# Nothing is in a directory.
sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
{
    printf '[repository "far"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = x/\n' "$port"
    printf 'maintenance = no\ncredentials = %s\npassword-file = %s\n' "$WORK/keys" "$WORK/password"
} >"$CONF/conf.d/11-far.ini"
printf 'access-key = a\nsecret-key = a\n' | secret "$WORK/keys"
config_add 12-copy "[copy \"near\"]
repository = far
path = $WORK/near"
config_class far "$V" 'repository = far' 'retries = 3'
random_file "$V/a.img" 12M 1
check "a repository" "$SNAPFERRY" --config-dir "$CONF" -r far repo create --quiet --splitter DYNAMIC-1M-BUZHASH
starts "the daemon starts"
is_up() { askj status | jq -e '.repositories[0].up' >/dev/null; }
check "the repository is available" until_true 60 is_up
F=$(submit "$V/a.img")
same "a backup" "$(wait_state "$F" Completed 120)" Completed
check "and all that follows it" until_true 60 settled

is_running() { case $(state "$1") in Running | Moving) true ;; *) false ;; esac; }
canceled() { # NAME REQUESTS-BEFORE COMMAND...: canceled while its mover waits
    local id about="$1, after $2 requests"
    check "$about: the repository is available" until_true 120 is_up
    # The daemon looks into the repository, too: one for each of them.
    faulty "_fault/hang/2/$2"
    id=$("${@:3}" --json 2>>"$WORK/ask.err" | tail -n 1 | jq -r '.operation // .restore // .backup // empty')
    if until_true 60 is_running "$id"; then
        sleep 1
        ask cancel "$id" --quiet
        same "$about: canceled" "$(wait_state "$id" Canceled 20)" Canceled
    else
        fail "$about: it runs" "$(askj describe "$id")"
    fi
    faulty _fault/none/0
}
for n in 0 3; do
    canceled "a verification" "$n" ask verify
    canceled "a restore" "$n" ask restore "$F/$V/a.img" "$V/out$n" --from repository
    canceled "maintenance" "$n" ask maintenance --full far
    canceled "a copy" "$n" ask copy near
    random_file "$V/a.img" 12M "$((n + 2))"
    canceled "a backup" "$n" ask backup "$V/a.img"
done
check "all has ended" until_true 60 settled
# The daemon's own looks are movers, too: it does not wait for them when it ends.
faulty _fault/hang/100000/0
submit "$V/a.img" >/dev/null
sleep 2
stops "the daemon stops"
explain_failure
finish
