#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The command line as a contract: every documented exit code is reached, every message says what, where and what to do.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo

expect "help of the command" 0 'usage: snapferry -r REPO' -- "$SNAPFERRY" --help
same "it fits 80 columns" "$("$SNAPFERRY" --help | awk 'length > 80')" ""
same "it has only options that mean the same for all verbs" \
    "$("$SNAPFERRY" --help | grep -E -- 'depends on the verb|--differential')" ""
check "what a verb has for itself stands before what all have" bash -c '"$0" restore --help |
    sed "/^general options:/q" | grep -q -- "--differential"' "$SNAPFERRY"
# twice: options of the help on standard input that stand twice in one part of it; words that are two verbs have two.
twice() { awk '/^usage: / { delete n } match($0, /^  (-[a-zA-Z], )?--[a-z-]+/) { o = substr($0, RSTART, RLENGTH);
    gsub(/ /, "", o); if (n[o]++) print o }'; }
same "an option stands in the help once" "$("$SNAPFERRY" --help | twice)" ""
for verb in delete "native list" "native prune" "backup" restore verify status "snapshot expire" operations backups \
    cancel maintenance copy retry forget "repo create" "repo change-password" check-config; do
    # shellcheck disable=SC2086
    same "and in that of $verb" "$("$SNAPFERRY" $verb --help | twice)" ""
done
expect "help of a verb" 0 'Restore the volume' -- "$SNAPFERRY" restore --help
same "help VERB is VERB --help" "$("$SNAPFERRY" help restore)" "$("$SNAPFERRY" restore --help)"
same "of two words, too" "$("$SNAPFERRY" help native list)" "$("$SNAPFERRY" native list --help)"
same "help alone is --help" "$("$SNAPFERRY" help)" "$("$SNAPFERRY" --help)"
expect "help of help" 0 'usage: snapferry help' -- "$SNAPFERRY" help help
expect "help of the first word of several verbs" 0 'native list .*list native' -- "$SNAPFERRY" help native
same "in either way" "$("$SNAPFERRY" snapshot --help)" "$("$SNAPFERRY" help snapshot)"
expect "help of an unknown verb" 2 'did you mean restore' -- "$SNAPFERRY" help restor
expect "--help of an unknown verb" 2 'did you mean restore' -- "$SNAPFERRY" restor --help
expect "of an unknown second word" 2 'did you mean native list' -- "$SNAPFERRY" help native lst
expect "version" 0 '^snapferry [0-9]' -- "$SNAPFERRY" --version

expect "no verb" 2 'no verb is given' -- "$SNAPFERRY"
expect "unknown verb" 2 'unknown verb "fetch"' -- "$SNAPFERRY" -r x fetch
expect "of a verb with two words, too" 2 'did you mean native list' -- "$SNAPFERRY" native lst
expect "and its first word" 2 'did you mean native list' -- "$SNAPFERRY" nativ list
expect "nothing near: what may follow" 2 'native requires a second word: list, prune, release' -- \
    "$SNAPFERRY" native xyzzy
expect "what restic calls it" 2 'did you mean snapshot list' -- "$SNAPFERRY" -r x snapshots --json
expect "and of the daemon" 2 'did you mean backups' -- "$SNAPFERRY" list
expect "with what is behind it" 2 'did you mean maintenance' -- "$SNAPFERRY" -r x prune now
expect "what stock Kopia calls it, and not what is spelled like it" 2 'did you mean backup\?' -- \
    "$SNAPFERRY" -r x snapshot create /dev/x
expect "of the repository" 2 'did you mean repo create' -- "$SNAPFERRY" -r x repository create
expect "who mounts" 2 'stock Kopia mounts' -- "$SNAPFERRY" -r x mount
expect "what the daemon alone does is not offered with -r" 2 '^snapferry: snapferry --help lists' -- \
    "$SNAPFERRY" -r x tasks
expect "but without" 2 'did you mean operations' -- "$SNAPFERRY" tasks
words=daemon/cli/other-words.c
offered=$(sed -n 's/^ *{"[^"]*", "\([^"]*\)", .*/\1/p' $words | sort -u)
check "verbs are offered with -r" test "$(wc -l <<<"$offered")" -gt 5
same "each of them exists and takes it" "$(while read -r verb; do
    "$SNAPFERRY" -r x help $verb 2>&1 | grep -q '^usage: snapferry -r ' || echo "$verb"
done <<<"$offered")" ""
offered=$(sed -n 's/^ *{"[^"]*", [^,]*, "\([^"]*\)"},$/\1/p' $words | sort -u)
check "and without" test "$(wc -l <<<"$offered")" -gt 5
same "each of these exists" "$(while read -r verb; do
    "$SNAPFERRY" help $verb >/dev/null 2>&1 || echo "$verb"
done <<<"$offered")" ""
check "nothing near: nothing is offered" sh -c "! '$SNAPFERRY' bogus 2>&1 | grep -q 'did you mean'"
expect "unknown option names the nearest" 2 'did you mean --compression' -- sf "$R" backup x --compresion zstd
expect "option without its argument" 2 'requires an argument' -- "$SNAPFERRY" -r
expect "too few arguments" 2 'takes SNAPSHOT' -- sf "$R" restore latest
expect "a state where there are none" 2 'native list does not take --state' -- "$SNAPFERRY" native list --state x
expect "a state of backups" 2 'operations have no state "Moving"' -- "$SNAPFERRY" operations --state Moving
expect "which are listed" 2 'states of backups are Queued .* Expired$' -- "$SNAPFERRY" backups --state Running
expect "an option of another verb" 2 'ls does not take --memory' -- sf "$R" ls latest --memory 1G
expect "a number that is none" 2 'requires a number from 1 to 3' -- sf "$R" repo create --format-version 4
expect "a size that is none" 2 'requires a size' -- sf "$R" backup x --memory lots
expect "a budget that is too small" 2 'at least 96MiB' -- sf "$R" backup x --memory 64M
expect "no repository" 2 'no repository is given' -- "$SNAPFERRY" ls latest
expect "no password" 2 'no password is given' -- "$SNAPFERRY" -r "$R" snapshot list
expect "a URL of another kind" 2 'only directories have a URL' -- sf s3://bucket/x snapshot list
expect "an unknown kernel" 2 'SNAPFERRY_KERNEL_BLAKE2B' -- env SNAPFERRY_KERNEL_BLAKE2B=sse9 \
    "$SNAPFERRY" -r "$R" ls latest

secret "$WORK/empty" </dev/null
expect "an empty password" 2 'empty' -- "$SNAPFERRY" -r "$R" --password-file "$WORK/empty" repo create
printf '  \n\t ' | secret "$WORK/blank"
expect "a blank password" 2 'empty' -- "$SNAPFERRY" -r "$R" --password-file "$WORK/blank" repo create
expect "a password file that is not there" 2 "nowhere.*No such file" \
    -- "$SNAPFERRY" -r "$R" --password-file "$WORK/nowhere" repo create
expect "an unknown hash names the known" 2 'BLAKE2B-256-128' -- sf "$R" repo create --block-hash MD5
expect "an unknown splitter" 2 'DYNAMIC-4M-BUZHASH' -- sf "$R" repo create --splitter FIXED-3M
expect "error correction needs format 2" 2 -- sf "$R" repo create --format-version 1 --ecc-percent 5
check "refusals leave nothing behind" test ! -e "$R/kopia.repository.f"

expect "11: no repository there" 11 -- sf "$WORK/none" snapshot list
mkdir "$WORK/plain"
expect "11: a directory that is none" 11 "no repository at" -- sf "$WORK/plain" snapshot list
expect "create" 0 'Created a repository' -- sf "$R" repo create
expect "12: create over a repository" 12 -- sf "$R" repo create
mkdir -p "$WORK/full/lost+found" "$WORK/lf/lost+found"
touch "$WORK/full/file"
expect "12: create over other files" 12 'file' -- sf "$WORK/full" repo create
expect "lost+found does not count" 0 -- sf "$WORK/lf" repo create
secret "$WORK/other" <<<"other password"
expect "10: wrong password" 10 'wrong password' -- "$SNAPFERRY" -r "$R" --password-file "$WORK/other" snapshot list
printf ' \t test password \r\n\n' | secret "$WORK/padded"
expect "white space around the password is dropped" 0 -- "$SNAPFERRY" -r "$R" --password-file "$WORK/padded" snapshot \
    list
expect "empty list" 0 'No snapshots' -- sf "$R" snapshot list
cp "$WORK/password" "$WORK/open"; chmod 644 "$WORK/open"
expect "a password file that others can read" 2 "password file $WORK/open is readable by others .mode 0644." \
    -- "$SNAPFERRY" -r "$R" --password-file "$WORK/open" snapshot list
expect "with what to do" 2 "chmod 600 $WORK/open" -- "$SNAPFERRY" -r "$R" --password-file "$WORK/open" snapshot list
expect "--insecure allows it, with a warning" 0 'warning: .*is readable by others' \
    -- "$SNAPFERRY" -r "$R" --password-file "$WORK/open" --insecure snapshot list
expect "a new password file that others can read" 2 "$WORK/open is readable by others" \
    -- sf "$R" repo change-password --new-password-file "$WORK/open"
printf '[repository "r"]\npath = %s\npassword-file = %s\n' "$R" "$WORK/open" >"$WORK/open.ini"
expect "one of a section" 2 "$WORK/open is readable by others" \
    -- "$SNAPFERRY" -r r --config "$WORK/open.ini" snapshot list
echo "insecure-password-file = yes" >>"$WORK/open.ini"
expect "its key allows it" 0 'warning: .*is readable by others' \
    -- "$SNAPFERRY" -r r --config "$WORK/open.ini" snapshot list
expect "but not another file" 2 "$WORK/open is readable by others" \
    -- "$SNAPFERRY" -r r --config "$WORK/open.ini" --password-file "$WORK/open" snapshot list
expect "file URL" 0 -- "$SNAPFERRY" -r "file://$R" --password-file "$WORK/password" snapshot list

random_file "$WORK/image" 3000001 1
expect "16: a source that is not there" 16 'nothing-here' -- sf "$R" backup "$WORK/nothing-here"
expect "19: a source of another kind" 19 -- sf "$R" backup /dev/null
expect "2: an unknown compressor" 2 'zstd-fastest' -- sf "$R" backup "$WORK/image" --compression brotli
expect "2: a compressor that is only read" 2 -- sf "$R" backup "$WORK/image" --compression s2-default
expect "2: a bad source name" 2 'USER@HOST:/PATH' -- sf "$R" backup "$WORK/image" --as nonsense
expect "backup" 0 'Snapshot [0-9a-f]{32}' -- sf "$R" backup "$WORK/image" --tag a:b --description "words"
id=$(sf "$R" snapshot list --json | result 'snapshots[0].id')
expect "16: an unknown snapshot" 16 -- sf "$R" ls ffffffff
expect "16: an unknown path" 16 'nope' -- sf "$R" cat "$id/nope"
expect "2: cat of a directory" 2 'directory' -- sf "$R" cat "$id"
expect "a prefix is enough" 0 'volume.img' -- sf "$R" ls "${id:0:6}"
expect "--progress alone" 0 'Snapshot' -- sf "$R" backup "$WORK/image" --progress
expect "--progress with a word" 0 -- sf "$R" backup "$WORK/image" --progress=no --quiet
expect "--progress with a wrong word" 2 'auto, yes or no' -- sf "$R" backup "$WORK/image" --progress=maybe
expect "show tells tag and description" 0 'a = b' -- sf "$R" snapshot show "$id"
expect "ls of one file" 0 'volume.json' -- sf "$R" ls latest/volume.json
expect "status" 0 'BLAKE2B-256-128' -- sf "$R" repo status
same "cat gives the bytes" "$(sf "$R" cat "$id/volume.img" | sha256sum)" "$(sha256sum <"$WORK/image")"
same "volume.json tells the size" "$(sf "$R" cat latest/volume.json | jq .size)" 3000001

sf "$R" backup "$WORK/image" --as other@host:/x --quiet
expect "2: latest of several sources" 2 -- sf "$R" ls latest
expect "latest with --as" 0 'volume.img' -- sf "$R" ls latest --as other@host:/x

touch "$WORK/t0"; echo x >"$WORK/t1"
expect "an empty target file is taken" 0 -- sf "$R" restore "$id" "$WORK/t0"
expect "17: a target that holds something" 17 -- sf "$R" restore "$id" "$WORK/t1"
same "it is unharmed" "$(cat "$WORK/t1")" x
expect "--force takes it" 0 -- sf "$R" restore "$id" "$WORK/t1" --force
check "restored whole" cmp "$WORK/image" "$WORK/t1"
truncate -s 9000000 "$WORK/sized"
expect "a file that was only given a size is taken" 0 -- sf "$R" restore "$id" "$WORK/sized"
check "at the exact size" cmp "$WORK/image" "$WORK/sized"
expect "17: a directory as target" 17 -- sf "$R" restore "$id" "$WORK"
expect "16: a target in no directory" 16 -- sf "$R" restore "$id" "$WORK/no/dir/file"
expect "2: an offset beyond the end" 2 'beyond the end' -- sf "$R" restore "$id" "$WORK/t2" --offset 1T
expect "restore of another file" 0 -- sf "$R" restore "$id/volume.json" "$WORK/vj"

out=$(sf "$WORK/none" snapshot list --json 2>/dev/null)
same "an error in JSON" "$(result class <<<"$out") $(result exitCode <<<"$out")" "no-repository 11"
out=$(sf "$R" verify --json)
same "verify in JSON" "$(result ok <<<"$out") $(result damages <<<"$out")" "true 0"

secret "$WORK/new" <<<"new password"
expect "change-password wants the new one" 2 'new-password-file' -- sf "$R" repo change-password
expect "change-password says what to do with the old file" 0 "install -m 600 $WORK/new $WORK/password" \
    -- sf "$R" repo change-password --new-password-file "$WORK/new"
expect "the old password is refused" 10 -- sf "$R" snapshot list
expect "the new one opens" 0 -- "$SNAPFERRY" -r "$R" --password-file "$WORK/new" snapshot list
expect "contents are still readable" 0 -- "$SNAPFERRY" -r "$R" --password-file "$WORK/new" verify

for g in format-version-99 required-feature-unknown; do
    jq -j .password "$GOLDEN/$g.expected.json" | secret "$WORK/pw"
    expect "13: $g" 13 -- "$SNAPFERRY" -r "$GOLDEN/$g" --password-file "$WORK/pw" snapshot list
done
jq -j .password "$GOLDEN/upgrade-lock.expected.json" | secret "$WORK/pw"
expect "14: upgrade lock" 14 'upgrade' -- "$SNAPFERRY" -r "$GOLDEN/upgrade-lock" --password-file \
    "$WORK/pw" snapshot list
for g in missing-pack truncated-pack flipped-data-byte flipped-directory-byte missing-index-blob-first; do
    jq -j .password "$GOLDEN/$g.expected.json" | secret "$WORK/pw"
    expect "15: verify finds $g" 15 'DAMAGE' -- "$SNAPFERRY" -r "$GOLDEN/$g" --password-file "$WORK/pw" verify
done
jq -j .password "$GOLDEN/flipped-manifest-byte.expected.json" | secret "$WORK/pw"
expect "15: flipped-manifest-byte" 15 -- "$SNAPFERRY" -r "$GOLDEN/flipped-manifest-byte" --password-file \
    "$WORK/pw" snapshot list

cat >"$WORK/x.ini" <<INI
[repository "main"]
path = $R
password-file = $WORK/new
INI
expect "a section of the configuration" 0 -- "$SNAPFERRY" --config "$WORK/x.ini" -r main snapshot list
sed -i 's/^path/compression = zstd-fastest\nsplitter = FIXED-1M\npath/' "$WORK/x.ini"
head -c 4000000 /dev/zero | tr '\0' 'a' >"$WORK/aaa"
out=$("$SNAPFERRY" --config "$WORK/x.ini" -r main backup "$WORK/aaa" --as t@h:/cfg --json)
check "the section's compression and splitter are used" test "$(result chunks <<<"$out")" -eq 4 \
    -a "$(result storedBytes <<<"$out")" -lt 100000
expect "a name that is no section" 11 -- "$SNAPFERRY" --config "$WORK/x.ini" -r nain snapshot list
echo "nonsense = 1" >>"$WORK/x.ini"
expect "2: a bad configuration has file and line" 2 'x.ini:6' -- "$SNAPFERRY" --config "$WORK/x.ini" \
    -r main snapshot list
finish
