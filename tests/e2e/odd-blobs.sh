#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A FIFO, a directory, a socket or a link where a blob should lie: nothing waits for it, and nothing goes on as if there
# were no such blob, with -r and by the daemon. (Issue 13, 13)
. "$(dirname "$0")/../daemon-lib.sh"
R=$WORK/repo
sf "$R" repo create --quiet --node-name testnode
random_file "$WORK/image" 3000000 71
sf "$R" backup "$WORK/image" --as t@h:/v --quiet
cp -a "$R" "$WORK/base"
echo elsewhere >"$WORK/elsewhere"
anew() { rm -rf "$R" "$CACHE" "$WORK/out"; cp -a "$WORK/base" "$R"; }
bind='import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])'
# odd WHAT FILE: puts it there.
odd() {
    rm -rf "$2"
    case $1 in
    fifo) mkfifo "$2" ;;
    directory) mkdir "$2" ;;
    link) ln -s "$WORK/elsewhere" "$2" ;;
    socket) (cd "${2%/*}" && /usr/bin/python3 -c "$bind" "${2##*/}") ;;
    esac
}
bounded() { opener; timeout 60 "$SF" -r "$R" --password-file "$WORK/password" "$@"; }
# Ends, and does not find all well.
ends() { # NAME COMMAND...
    local name=$1 rc out
    shift
    out=$(bounded "$@" 2>&1)
    rc=$?
    if [ $rc -eq 15 ] && grep -qE "not a regular file|missing|symbolic link|no directory" <<<"$out"; then
        pass "$name"
    else
        fail "$name" "exit code $rc" "$(tail -n 5 <<<"$out")"
    fi
}
KINDS='fifo directory socket link'
# Index blobs: one that is there, and one beside it.
index=$(cd "$R" && find x n -name '*.f' 2>/dev/null | head -n 1)
for what in $KINDS; do
    anew
    odd $what "$R/$index"
    ends "index, $what: a list" snapshot list
    ends "index, $what: verify" verify
    ends "index, $what: a backup" backup "$WORK/image" --as t@h:/w
    ends "index, $what: a restore" restore latest "$WORK/out" --as t@h:/v
    anew
    sf "$R" snapshot list >/dev/null
    odd $what "$R/${index%/*}/zz${index##*/}"
    ends "beside an index, $what: verify, with a warm cache" verify
done

# Packs: of data, and of snapshots.
for kind in p q; do
    pack=$(cd "$R" && find $kind -name '*.f' -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
    for what in $KINDS; do
        anew
        odd $what "$R/$pack"
        ends "pack $kind, $what: verify" verify
        ends "pack $kind, $what: a restore" restore latest "$WORK/out" --as t@h:/v
    done
done
anew
odd fifo "$R/$pack"
expect "a list names it" 15 '1 pack of repository .* counts as missing: not a regular file: q' -- bounded verify

# A level of directories.
for what in fifo socket link; do
    anew
    odd $what "$R/${index%%/*}"
    ends "in place of a directory, $what" snapshot list
done
anew
odd fifo "$R/kopia.repository.f"
expect "the format is a FIFO" 15 'not a regular file' -- bounded snapshot list
for what in $KINDS; do
    anew
    odd $what "$R/s/zzz/something-s1.f" 2>/dev/null || { mkdir -p "$R/s/zzz"; odd $what "$R/s/zzz/something-s1.f"; }
    bounded verify --quiet >/dev/null 2>&1
    check "a session, $what: nothing waits" test $? -ne 124
done

# By the daemon.
anew
config_main
starts "the daemon starts" || { explain_failure; finish; }
odd fifo "$R/$index"
expect "verification by the daemon finds it" 15 'not a regular file' -- timeout 100 "$SNAPFERRY" verify --wait \
    --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
expect "which is a problem" 3 'damaged or missing' -- ask status --check
expect "a scan ends, too" 15 'not a regular file' -- timeout 100 "$SNAPFERRY" scan main --runtime-dir "$RUN" \
    --state-dir "$STATE" --config-dir "$CONF"
explain_failure
finish
