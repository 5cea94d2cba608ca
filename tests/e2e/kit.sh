#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The recovery kit: a page from which a repository is opened again whose format blob is lost; by stock Kopia, too, where
# KOPIA names one (interop/kit.sh).
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo K=$WORK/kit
sf "$R" repo create --node-name n1 --quiet
random_file "$WORK/a" 3000000 1
sf "$R" backup "$WORK/a" --as t@h:/a --quiet
without() { "$SNAPFERRY" -r "$R" "$@"; } # the password
expect "a kit" 0 'Print it, check the print' -- sf "$R" repo export-key "$K"
same "nobody else can read it" "$(stat -c %a "$K")" 600
check "it names place, id and password" eval 'grep -qF "$R" "$K" && grep -qE "^Unique id +[0-9a-f]{64}$" "$K" &&
    grep -qxF "Password    $(cat "$WORK/password")" "$K"'
kept() { find /tmp "$WORK" -maxdepth 1 -newer "$K" \( -name 'snapferry-kit*' -o -name killed \) 2>/dev/null; }
for verb in export-key open-key; do
    file=$K
    [ $verb = open-key ] || file=$WORK/killed
    expect "$verb is killed while it has the format open" 137 -- env SNAPFERRY_CRASH_AT=kit-opened "$SNAPFERRY" \
        -r "$R" --password-file "$WORK/password" repo $verb "$file"
    same "of it nothing is left: $verb writes no other file" "$(kept)" ""
done
at_exit 'rm -rf "$SHM"'
SHM=$(mktemp -d -p /dev/shm)
expect "export-key is killed when the kit is written" 137 -- env SNAPFERRY_CRASH_AT=kit-written "$SNAPFERRY" \
    -r "$R" --password-file "$WORK/password" repo export-key "$SHM/kit"
same "there is no part of a kit, under no name" "$(find "$SHM" -mindepth 1)" ""
check "then it is there" sf "$R" repo export-key "$SHM/kit" --quiet
same "readable by its owner alone" "$(stat -c %a "$SHM/kit")" 600
expect "a link is not followed" 12 'cannot create' -- eval 'ln -s nowhere "$SHM/link" &&
    sf "$R" repo export-key "$SHM/link"'
expect "a file is not replaced" 12 'cannot create' -- sf "$R" repo export-key "$K"
expect "a wrong password makes none" 10 password -- "$SNAPFERRY" -r "$R" --password-file <(echo wrong) --insecure \
    repo export-key "$WORK/none"
check "and no file" test ! -e "$WORK/none"
wrong() { "$SNAPFERRY" -r "$R" --password-file <(echo wrong) --insecure "$@" 2>&1; }
expect "it names the repository, not a place of its own" 0 "^snapferry: wrong password.*$R" -- \
    eval 'wrong repo export-key "$WORK/none" | grep -v "snapferry-kit"'
check "to a printer" eval 'sf "$R" repo export-key - | grep -q "RECOVERY KIT"'
if [ -x build/tests/tools/terminal ]; then
    expect "not on a terminal" 2 'may be logged' -- build/tests/tools/terminal "$SNAPFERRY" -r "$R" --password-file \
        "$WORK/password" repo export-key -
fi
expect "it opens the repository, with its own password" 0 'opens repository [0-9a-f]+: 1 snapshot' -- \
    without repo open-key "$K"
same "for programs" "$(without repo open-key "$K" --json | jq -c '[.restored, .snapshots]')" '[false,1]'

# Typed wrong.
line=$(grep -nE '^005 ' "$K" | cut -d: -f1)
sed "${line}s/ / X/" "$K" >"$WORK/wrong"
expect "a wrong line is named" 15 '^line 005' -- without repo open-key "$WORK/wrong"
sed "${line}d" "$K" >"$WORK/wrong"
expect "a missing one" 15 '^line 005: it is missing' -- without repo open-key "$WORK/wrong"
tr 'A-Z0' 'a-zO' <"$K" | shuf --random-source="$K" >"$WORK/typed"
check "small letters, O for 0, in any order" without repo open-key "$WORK/typed" --quiet
expect "no kit" 2 'no lines of a recovery kit' -- without repo open-key "$WORK/password"

# The format blob is lost, and the other one with it.
blob() { find "$R" -maxdepth 1 -name 'kopia.repository*'; }
cp "$(blob)" "$WORK/blob"
mkdir "$WORK/lost"
mv "$R"/kopia.* "$WORK/lost/"
expect "without it nothing opens" 11 . -- sf "$R" snapshot list
expect "the kit is right, and says what is missing" 11 'no blob kopia.repository' -- without repo open-key "$K"
check "nothing was written" test -z "$(blob)"
expect "it is written again" 0 "Wrote the blob kopia.repository again.*1 snapshot" -- without repo open-key \
    "$WORK/typed" --restore
check "as it was" cmp "$(blob)" "$WORK/blob"
check "the repository is whole" sf "$R" verify --quiet
rm -f "$WORK/out"
sf "$R" restore latest "$WORK/out" --as t@h:/a --quiet
check "and restores" cmp "$WORK/a" "$WORK/out"
check "a backup" sf "$R" backup "$WORK/a" --as t@h:/b --quiet
if [ -x "${KOPIA:-/nonexistent}" ]; then
    export KOPIA_PASSWORD="test password" KOPIA_CHECK_FOR_UPDATES=false KOPIA_CONFIG_PATH=$WORK/k.config \
        KOPIA_LOG_DIR=$WORK/klog
    check "stock Kopia opens it" "$KOPIA" repository connect filesystem --path "$R" --readonly
    same "and lists what is there" "$("$KOPIA" snapshot list --all --json | jq length)" 2
    check "and verifies it" "$KOPIA" snapshot verify --verify-files-percent=100
fi

# Without the password; of another repository; of an older password.
check "without the password" sf "$R" repo export-key "$WORK/k2" --without-password --quiet
check "it is not on the page" eval '! grep -q "^Password" "$WORK/k2"'
expect "nor opens anything" 2 'no password' -- without repo open-key "$WORK/k2"
expect "nor does a wrong one, which names the kit" 0 "^snapferry: wrong password.*$WORK/k2" -- \
    eval 'wrong repo open-key "$WORK/k2" | grep -v "snapferry-kit"'
mkfifo "$WORK/fifo"
expect "a FIFO is refused at once" 2 'not a regular file' -- timeout 20 "$SNAPFERRY" -r "$R" repo open-key "$WORK/fifo"
expect "so is a directory" 2 'not a regular file' -- timeout 20 "$SNAPFERRY" -r "$R" repo open-key "$WORK"
check "what a command writes is none" eval 'without repo open-key <(cat "$K") --quiet'
check "nor is a pipe" eval 'cat "$K" | without repo open-key - --quiet'
check "together with it it does" sf "$R" repo open-key "$WORK/k2" --quiet
sf "$WORK/r2" repo create --quiet
expect "another repository" 12 'of another repository' -- "$SNAPFERRY" -r "$WORK/r2" repo open-key "$K"
expect "which --restore does not change" 12 'of another repository' -- "$SNAPFERRY" -r "$WORK/r2" repo open-key "$K" \
    --restore
printf 'new password' >"$WORK/new"
chmod 600 "$WORK/new"
check "the password is changed" sf "$R" repo change-password --new-password-file "$WORK/new" --quiet
expect "the kit has the old one" 10 'was changed after the kit was made' -- without repo open-key "$K"
rm "$R"/kopia.*
check "if that is all there is, it opens the data with the old one" without repo open-key "$K" --restore --quiet
check "which is whole" sf "$R" verify --quiet

# In a bucket.
. "$(dirname "$0")/../s3-lib.sh"
through_s3
R=$WORK/far
check "a repository in a bucket" sf "$R" repo create --quiet
sf "$R" backup "$WORK/a" --as t@h:/a --quiet
check "has a kit" sf "$R" repo export-key "$WORK/k3" --quiet
check "which names the bucket" grep -qE '^Repository +https?://.*far' "$WORK/k3"
rm "$R"/kopia.*
expect "its format blob is lost" 11 . -- sf "$R" snapshot list
check "and comes back" sf "$R" repo open-key "$WORK/k3" --restore --quiet
check "whole" sf "$R" verify --quiet
finish
