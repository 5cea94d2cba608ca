#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What bash offers for the last word: verbs and options of the form that is typed, values out of the tables, and names
# that the daemon, its files or a repository know; quickly, and nothing on the terminal, when there are none.
. "$(dirname "$0")/../lib.sh"
SCRIPT=$PWD/docs/snapferry.bash-completion
RUN=$WORK/run
mkdir -p "$RUN" "$WORK/etc/conf.d" "$WORK/cwd/sub"
: >"$WORK/cwd/file"
# offers WORD...: all that bash offers for the last word, sorted. Words as readline has them: apart at = and :. Whatever
# it prints beside that is offered too, and so is seen.
offers() {
    (cd "$WORK/cwd" && timeout 60 bash -c '
        . "$1" 2>&1; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _snapferry 2>&1
        printf "%s\n" "${COMPREPLY[@]}" | LC_ALL=C sort' - "$SCRIPT" "$SNAPFERRY" "$@") | paste -sd ' '
}
places=(--runtime-dir "$RUN" --state-dir "$RUN/state" --config-dir "$WORK/etc")
ask() { "$SNAPFERRY" "${places[@]}" "$@"; }
there() { offers "${places[@]}" "$@"; }

# ---- verbs and options of the form that is typed ----

same "verbs" "$(offers debug-)" debug-bundle
same "those with -r alone behind it" "$(offers -r main "")" "backup cat ls maintenance repo restore snapshot verify"
same "-rNAME and --repo=NAME are the same" "$(offers -rmain s) $(offers --repo = main s)" "snapshot snapshot"
same "and those of the daemon alone without" "$(offers l) $(offers ca)" "logs cancel"
same "second words" "$(offers native "") $(offers snapshot "")" "list prune release expire"
same "with -r" "$(offers -r main snapshot p)" pin
same "options of the verb" "$(offers native list --vo)" --volume
same "not of its neighbour" "$(offers native list --dry)" ""
same "of the form that is typed" "$(offers backup --c) $(offers -r main backup --co)" \
    "--config-dir --compression --config --config-dir"
same "nothing behind all arguments" "$(offers wait x "")" ""
same "files where files are wanted" "$(offers import-velero "") $(offers -r main backup f)" "file sub file"

# ---- values ----

same "words of an option" "$(offers restore x --from "")" "auto native repository"
same "in one word with it" "$(offers restore x --from = na)" native
same "as yet empty" "$(offers restore x --from =)" "auto native repository"
same "where readline leaves = alone" "$(offers restore x --from=na)" --from=native
same "of an option that can do without" "$(offers wait x --progress = n)" no
same "files" "$(offers --password-file "") $(offers --password-file = f)" "file sub file"
same "directories alone" "$(offers --cache-dir "")" sub
same "algorithms" "$(offers -r main backup --compression zstd-f) $(offers -r main repo create --key-derivation s)" \
    "zstd-fastest scrypt-65536-8-1"
same "states" "$(offers operations --state F)" "Failed Finalizing"
same "what bench measures" "$(offers bench sp) $(offers bench splitters ha)" "splitters hashes"
same "nothing where any text will do" "$(offers hold x --note "")" ""
# Each option with a value has words, or is one of those that cannot have any.
free="--as --at --cache-size --checkpoint-interval --class-map --description --ecc-percent --index-memory --length
    --limit --lines --memory --node --node-name --note --offset --owner --pack-size --queue-depth --read-limit
    --read-percent --seconds --size --tag --verify-sample --workers --write-limit"
verbs=$("$SNAPFERRY" --help | sed -n '/^verbs/,/^general options/p' |
    grep -oE '^  ((repo|snapshot|native) [a-z-]+|[a-z-]+)' | sort -u)
without=$(while read -r v; do "$SNAPFERRY" $v --help; done <<<"$verbs" |
    grep -oE -- '^ +(-., )?--[a-z-]+ [A-Z]\S*' | grep -oE -- '--[a-z-]+' | sort -u |
    while read -r o; do grep -qE -- "^ +(-r \| )?$o\) want=" "$SCRIPT" || echo "$o"; done | paste -sd ' ')
same "each option has words, or cannot have any" "$without" "$(echo $free)"
same "no option is offered that is not in the help" "$(offers --comp)" --compression

# ---- what a name may look like ----

# A command that knows such names.
printf '#!/bin/sh\nprintf "%%s\\n" "two words" "vm:colon=x" "vm:cold" "it'"'"'s" "t\303\244st"\n' >"$WORK/stub"
chmod +x "$WORK/stub"
of_stub() { SNAPFERRY=$WORK/stub offers explain "$@"; }
same "what the shell takes apart is quoted" "$(of_stub tw) $(of_stub i)" "two\\ words it\\'s"
same "and understood when it is" "$(of_stub 'two\ w')" "two\\ words"
same "in quotes it is left alone" "$(of_stub '"two w') $(of_stub "'two w")" "two words two words"
same "other letters are not quoted" "$(of_stub t | LC_ALL=C grep -oP 't\xc3\xa4st')" $'t\xc3\xa4st'
same "behind a colon, only what follows it is replaced" "$(of_stub vm : col) $(of_stub vm :)" \
    "cold colon=x cold colon=x"
same "and behind an equals sign" "$(of_stub vm : colon = "x")" x

# ---- names: of the daemon ----

cat >"$WORK/etc/snapferry.ini" <<'X'
[repository "main"]
path = /srv/backup
[repository "second"]
path = /srv/second
[storage-class "gold"]
driver = reflink
match = /srv/vm/*.img
[job "nightly"]
volumes = class:gold
[job "weekly"]
volumes = class:gold
X
same "jobs, from the configuration" "$(there backup --job "")" "nightly weekly"
same "in quotes that are open" "$(there backup --job '"we')" weekly
same "classes" "$(there volumes --class "")" gold
same "repositories" "$(there scan s)" second
same "and of another file" "$(offers --config "$WORK/etc/snapferry.ini" -r m)" main

mkdir -m 700 "$RUN/state"
"$TOOLS/records" "$RUN/state" write 1 1 >/dev/null # the operation op-1 with a native snapshot
"$TOOLS/control_server" "$RUN" 3 >"$RUN/log" 2>&1 &
server=$!; at_exit "kill -CONT $server; kill $server"
for _ in $(seq 400); do grep -q ready "$RUN/log" && break; sleep 0.05; done
done_id=$(ask backup vg0/db1 --json | result backup)
ask wait "$done_id" --quiet
runs=$(ask backup hang-1 --json | result backup)
operation=$(ask operations --json | result 'operations[] | select(.backup == "'"$runs"'") | .id')
native=$(ask native list --json | result 'natives[0].alias')
check "there is something to offer" test -n "$done_id" -a -n "$runs" -a -n "$operation" -a -n "$native"
same "backups" "$(there delete "${done_id:0:-2}")" "$done_id"
same "only what runs can be cancelled" "$(there cancel "")" "$(printf '%s\n' "$runs" "$operation" op-1 |
    LC_ALL=C sort | paste -sd ' ')"
same "or waited for" "$(there wait "")" "$(there cancel "")"
same "one after the other" "$(there cancel "$operation" "$runs")" "$(printf '%s\n' "$runs" "$operation" |
    grep "^$runs" | LC_ALL=C sort | paste -sd ' ')"
same "operations have logs" "$(there logs "$operation")" "$operation"
same "native snapshots can be held" "$(there hold "$native")" "$native"
same "describe takes all of them" "$(there describe "$native" | tr ' ' '\n' |
    sort -u) $(there describe "$done_id") $(there describe "$operation")" "$native $done_id $operation"
volumes=$(ask status --json | jq -r '.volumes[].name' | LC_ALL=C sort | paste -sd ' ')
same "volumes" "$(there explain "")" "$volumes"
same "several of them" "$(there backup x "")" "$volumes"
same "of a list" "$(there operations --volume "")" "$volumes"
same "a backup of which to list operations" "$(there operations --backup "$runs")" "$runs"
same "a target is a file" "$(there restore "$done_id" f)" file

# It must not wait for a daemon that hangs, and not tell of it.
kill -STOP "$server"
same "a daemon that hangs offers nothing" "$(there cancel "")" ""
kill -CONT "$server"
kill "$server"; wait "$server" 2>/dev/null

# ---- names: of its files, and none ----

same "down: from the records" "$(there delete "${done_id:0:-2}")" "$done_id"
volumes=$(ask status --json 2>/dev/null | jq -r '.volumes[].name' | LC_ALL=C sort | paste -sd ' ')
same "down: volumes" "$(there explain "")" "$volumes"
nowhere=(--runtime-dir "$WORK/none" --state-dir "$WORK/none" --config-dir "$WORK/none")
for words in "cancel" "backup --job" "describe" "explain" "scan" "volumes --class"; do
    same "nothing there: $words" "$(offers "${nowhere[@]}" $words "")" ""
done
same "nothing to ask" \
    "$(cd "$WORK/cwd" && bash \
        -c '. "$1"; COMP_WORDS=(/nonexistent/snapferry cancel ""); COMP_CWORD=2; _snapferry 2>&1
        echo "${#COMPREPLY[@]}"' - "$SCRIPT")" 0
mkdir "$WORK/broken"; echo 'nonsense' >"$WORK/broken/snapferry.ini"
same "a configuration with errors says none of them" "$(offers --config-dir "$WORK/broken" backup --job "")" ""

# ---- names: of a repository ----

sf "$WORK/repo" repo create --quiet
random_file "$WORK/image" 100001 7
sf "$WORK/repo" backup "$WORK/image" --as t@h:/v --quiet
id=$(sf "$WORK/repo" snapshot list --json | result 'snapshots[0].id')
same "snapshots" "$(offers -r "$WORK/repo" --password-file "$WORK/password" snapshot show "")" \
    "$(printf '%s\n' "$id" latest | LC_ALL=C sort | paste -sd ' ')"
same "with the password's file in one word" "$(offers -r "$WORK/repo" --password-file = "$WORK/password" ls la)" latest
same "none without the password" "$(offers -r "$WORK/repo" ls "")" ""
finish
