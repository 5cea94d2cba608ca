#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A service whose lists lag: what a command of this node has put and deleted the next one knows, from the cache
# directory, and nothing that is not so.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
random_file "$WORK/a" 6000000 1
random_file "$WORK/b" 3000000 2
through_s3
R=$WORK/repo
elsewhere() { XDG_CACHE_HOME=$WORK/elsewhere "$@"; }
count() { sf "$R" snapshot list --json | tail -n 1 | jq '.snapshots | length'; }
journals() { find "$XDG_CACHE_HOME" -name 'recent-*'; }
check "a repository" sf "$R" repo create --quiet
check "another one" sf "$WORK/other" repo create --quiet

fault _set/lag/1 >/dev/null
check "a backup, and lists do not show what it has put" sf "$R" backup "$WORK/a" --as a@h:/v --quiet
elsewhere sf "$R" snapshot list --json >"$WORK/out1"
same "another node does not see it" "$(tail -n 1 "$WORK/out1" | jq '.snapshots | length')" 0
same "the next command does" "$(count)" 1
check "it verifies" sf "$R" verify --quiet
check "another backup" sf "$R" backup "$WORK/b" --as b@h:/v --quiet
check "a restore" sf "$R" restore latest --as b@h:/v "$WORK/out2" --quiet
check "is what was backed up" cmp "$WORK/out2" "$WORK/b"
fault _requests >/dev/null
check "the first one once more: nothing new" sf "$R" backup "$WORK/a" --as a@h:/v --quiet
rm -f "$WORK/out2"
check "its snapshot is restored" sf "$R" restore latest --as a@h:/v "$WORK/out2" --quiet
check "as it was" cmp "$WORK/out2" "$WORK/a"
same "three" "$(count)" 3
check "one is deleted" sf "$R" snapshot delete latest --as b@h:/v --force --quiet
same "two" "$(count)" 2
check "verified" sf "$R" verify --quiet

# What somebody else has deleted since is not listed.
cp -a "$R" "$WORK/kept"
find "$R/x" -type f -delete
check "somebody else deletes all index blobs: it opens" sf "$R" snapshot list --quiet
same "and has no snapshots" "$(count)" 0
rm -rf "$R" && mv "$WORK/kept" "$R"
same "they are there again" "$(count)" 2

# The file is not believed, and not needed.
readarray -t files < <(journals)
same "a file for each place" "${#files[@]}" 2
for damage in 'printf x >' 'truncate -s -3' 'truncate -s 4M' 'rm -f'; do
    for f in "${files[@]}"; do eval "$damage" '"$f"'; done
    check "$damage: a command has no error" sf "$R" snapshot list --quiet
done
same "it knows nothing, then" "$(count)" 0
mkdir "${files[@]}"
check "where there can be no file a backup is made" sf "$R" backup "$WORK/b" --as d@h:/v --quiet
same "which is not known" "$(count)" 0
rmdir "${files[@]}"

fault _set/lag/0 >/dev/null
same "lists that do not lag" "$(count)" 3
check "a backup" sf "$R" backup "$WORK/a" --as c@h:/v --quiet
fault _log >/dev/null
same "which is listed" "$(count)" 4
same "and nothing is asked about" "$(fault _log | grep -c 'HEAD')" 0
finish
