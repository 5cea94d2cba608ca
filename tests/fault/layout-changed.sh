#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# .shards says in which directories blobs lie. Changed, damaged or removed under a backup, a verification or a copy it
# is an error of these: what they have stored or read is found by nobody else. With it as it was, all is there.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo C=$WORK/copy S=$R # S: whose .shards is changed
sf "$R" repo create --quiet --node-name n1
cp "$R/.shards" "$WORK/shards"
random_file "$WORK/a" 16000000 1
sf "$R" backup "$WORK/a" --as t@h:/a --quiet
# moved PID rchar|wchar: how much it has read or written.
moved() { awk -v k="$2:" '$1 == k { print $2 }' "/proc/$1/io" 2>/dev/null; }
spoil() {
    rm -f "$S/.shards"
    case $1 in
    changed) sed 's/"default": *\[[^]]*\]/"default":[2,2]/' "$WORK/shards" >"$S/.shards" ;;
    malformed) echo '{' >"$S/.shards" ;;
    removed) ;;
    a-link) ln -s "$WORK/shards" "$S/.shards" ;;
    a-fifo) mkfifo "$S/.shards" ;;
    esac
}
run() { # HOW COUNTER COMMAND...: its message goes to $WORK/out, its exit code to $rc
    local how=$1 counter=$2 n pid
    shift 2
    "$SF" -r "$R" --password-file "$WORK/password" "$@" --quiet >"$WORK/out" 2>&1 &
    pid=$!
    for n in $(seq 600); do
        [ "$(moved $pid "$counter")" -lt 2000000 ] 2>/dev/null || break
        sleep 0.05
    done
    [ "$how" = unchanged ] || spoil "$how"
    wait $pid
    rc=$?
    rm -f "$S/.shards" && cp "$WORK/shards" "$S/.shards"
}
# ends NAME CODE: as it should, 0 or not.
ends() {
    [ "$((rc != 0))" = "$2" ] || { fail "$1" "exited with $rc" "$(cat "$WORK/out")"; return; }
    pass "$1: exit code $rc"
}
i=1
for how in changed malformed removed a-link a-fifo unchanged; do
    wrong=1
    [ $how != unchanged ] || wrong=0
    run $how rchar verify --read-limit 12MiB
    ends "verify, $how" $wrong
    random_file "$WORK/a" 16000000 $((i += 1))
    run $how wchar backup "$WORK/a" --as t@h:/a --write-limit 12MiB
    ends "backup, $how" $wrong
    [ $how = unchanged ] || check "$how: the message names it" grep -q '^snapferry: .*\.shards' "$WORK/out"
    check "$how: with it as it was all is whole" sf "$R" verify --quiet
done
S=$C
for how in changed removed; do
    rm -rf "$C"
    run $how wchar repo sync-to "$C" --write-limit 12MiB
    ends "copy, $how" 1
    check "copy, $how: with it as it was it is whole" sf "$C" verify --quiet
done
finish
