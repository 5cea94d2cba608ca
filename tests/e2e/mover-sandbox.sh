#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a locked-down mover cannot do, tried from inside (MS-04): the program's own self-test, and the real lock-down
# seen from outside is in test_movers.c (test_process).
. "$(dirname "$0")/../lib.sh"
MOVER=$(realpath "${BUILD:-build}/snapferry-mover")
check "there is a mover" test -x "$MOVER"
user=
if is_root; then
    install -d -m 0755 "$WORK/bin"
    chmod 755 "$WORK"
    install -m 0755 "$MOVER" "$WORK/bin/snapferry-mover"
    MOVER=$WORK/bin/snapferry-mover
    user=nobody
fi
attempts() { # OPTIONS...
    local out rc line
    out=$("$MOVER" --self-test-sandbox "$@" $user 2>&1)
    rc=$?
    while read -r line; do
        case $line in
        ok\ *"# SKIP"*) skip "$(sed 's/^ok [0-9]* - //; s/ # SKIP.*//' <<<"$line")" "there is none here" ;;
        ok\ *) pass "${line#* - }" ;;
        not\ ok\ *) fail "${line#* - }" ;;
        esac
    done <<<"$out"
    same "the self-test agrees" $rc 0
    out=$(grep -vE 'allowed: (a thread|read by io_uring|a pair of sockets|a name of)' <<<"$out") # what is tried besides
    same "it tried them all" "$(grep -cE '^(not )?ok [0-9]+ - (refused|allowed): ' <<<"$out")" \
        "$(grep -E '^    \{"' daemon/mover/agent/self-test.c | grep -cvE "$not_tried")"
    same "what is allowed, as it must be" "$(sed -n 's/^ok [0-9]* - allowed: //p' <<<"$out" | paste -sd ,)" "$allowed"
}
files="opening a file for writing,unlink,rename,listing a directory,reading a file that is not of the name service"
not_tried='^$' allowed="connect,socket(AF_UNIX),$files,io_uring_enter"
attempts
# As for a repository that is reached over the network: less is allowed, for its sockets are made by the dialer.
allowed="$files,io_uring_enter"
attempts --network
# That dialer: sockets, but no file that it could write, no directory, and none but those of the name service.
not_tried='DIALER\},$' allowed="socket(AF_INET),socket(AF_INET6),connect,sending to an address"
allowed+=",connecting by MSG_FASTOPEN,socket(AF_UNIX)"
attempts --dialer
expect "it is one or the other" 2 usage -- "$MOVER" --self-test-sandbox --network --dialer

expect "a mover without a daemon gives up and says why" 3 'cannot reach the daemon' \
    -- timeout 30 "$MOVER" --socket "$WORK/none.sock" --operation up-1
expect "options are checked" 2 usage -- "$MOVER" --socket "$WORK/none.sock"
expect "an unknown user is named" 1 'no user' -- "$MOVER" --self-test-sandbox no-such-user-here
finish
