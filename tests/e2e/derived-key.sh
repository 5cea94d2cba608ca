#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The key that a mover derives from the password is handed on to the next ones in memory: it is derived once, it is in
# no file and in nothing that a core dump of the daemon has, and a reload or another password begins anew (MS-58).
DERIVE_KEYS=1 # programs as users have them
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
fs_make xfs xfs 320 || exit 1
V=$WORK/xfs
for i in 1 2 3 4 5 6; do random_file "$V/$i.img" $MIB "$i"; done
random_file "$V/slow.img" $((64 * MIB)) 9
daemon_setup 'slots = 1'
config_class gold "$V"
starts "the daemon starts"
find_key() { "$BUILD/tests/tools/find_key" "$REPO" "$(cat "$WORK/password")" "$@"; }
found() { find_key "$@" | cut -d' ' -f1 | sort | uniq -c | xargs; }
# How many movers have derived it so far, of backups and of questions to the repository; how many of a backup have not.
derived() {
    askj operations --all | jq -r '.operations[].id' | while read -r o; do doc "$o" | jq .result.keyDerived; done |
        grep -c true
}
given() { ops "$1" | jq -r .id | while read -r o; do doc "$o" | jq .result.keyDerived; done | grep -c false; }
completed() { # NAME VOLUME...: one after the other in one slot
    local name=$1
    shift
    A=$(submit "$@")
    same "$name" "$(wait_state "$A" Completed 120)" Completed
}

# The look at the repository when the daemon starts, the first backup, and the question to the repository that may be
# asked beside it, each derive the key, unless they get it.
completed "a first backup" "$V/1.img"
check "all is done" until_true 20 settled
first=$(derived)
check "operations derive the key twice at most" test "$first" -le 2
completed "three volumes" "$V/2.img" "$V/3.img" "$V/4.img"
same "their movers get it" "$(given "$A")" 3
same "and no other one has derived it" "$(derived)" "$first"

# ---- where it is ----
running "$V/slow.img" # its mover is stopped
check "the mover that uses it has it in its memory" grep -q '^core' <(find_key "$PID")
same "the daemon keeps it in one place, of which no core dump has anything" "$(found "$DPID")" "1 kept"
same "it is in no file: records, results, logs, sockets, caches, repository" \
    "$(found "$DPID" "$STATE" "$RUN" "$CONF" "$CACHE" "$REPO" "$WORK/cache" "$LOG")" "1 kept"
check "nor in what systemd keeps of units" test -z "$(found "$DPID" /run/systemd 2>/dev/null | grep file)"
mkdir "$WORK/control"
find_key -w "$WORK/control/file"
check "it would be found in a file" grep -qxF "file $WORK/control/file" <(find_key "$DPID" "$WORK/control")
rm -r "$WORK/control"
kill -CONT "$PID"
same "the backup ends" "$(wait_state "$A" Completed 120)" Completed
same "in the daemon it is still in one place" "$(found "$DPID")" "1 kept"

# ---- forgotten ----
# The look at the repository after a reload brings another one.
kept() { for f in /proc/"$DPID"/fd/*; do case $(readlink "$f") in *memfd:*key*) stat -L -c %i "$f" ;; esac; done; }
another() { [ -n "$(kept)" ] && [ "$(kept)" != "$before" ]; }
before=$(kept)
check "it has a descriptor" test -n "$before"
check "a reload" ask reload --wait
check "forgets it, and it is derived again" until_true 20 another
same "and again in one place" "$(found "$DPID")" "1 kept"
completed "the next backup" "$V/5.img"
same "its mover gets it" "$(given "$A")" 1
check "all is done again" until_true 20 settled
cp "$WORK/password" "$WORK/old-password"
printf 'another password' | secret "$WORK/new-password"
check "the password is changed" "$SNAPFERRY" -r "$REPO" repo change-password --password-file "$WORK/old-password" \
    --new-password-file "$WORK/new-password"
chown --reference="$REPO" "$REPO"/kopia.*
cp "$WORK/new-password" "$WORK/password"
completed "a backup with the new password" "$V/6.img"
same "the key of the new password is kept" "$(found "$DPID")" "1 kept"
cp "$WORK/old-password" "$WORK/password"
A=$(submit "$V/1.img")
same "with the old password the next one fails" "$(wait_state "$A" Failed 60)" Failed
same "and nothing is kept for another one" "$(found "$DPID")" ""
cp "$WORK/new-password" "$WORK/password"
stops "SIGTERM ends the daemon in order"
explain_failure
finish
