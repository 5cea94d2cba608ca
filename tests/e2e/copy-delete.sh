#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# delete-after of a copy: what the repository has not had for so long is deleted there, and nothing else; a repository
# that was emptied does not empty its copy.
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
C=$WORK/copy
keys() { config_add 70-copy "[copy \"offsite\"]
$(printf '%s\n' "path = $C" "$@")"; ask reload --wait --quiet; }
copies() { ask copy offsite --wait --json "$@" | tail -n 1; }
blobs() { find "$1" -name '*.f' ! -name '*_snapferry*' ! -path '*/_/*' ! -name '*.copy*' ! -name 'kopia*' | wc -l; }
record() { find "$C" -name '*copy-gone*.f'; }
# What the record has was missed DAYS earlier.
age() { awk -v s=$(($1 * 86400)) '{ print $1, $2 - s }' "$(record)" >"$WORK/aged" && cat "$WORK/aged" >"$(record)"; }
last() { sql "SELECT id FROM operations WHERE json_extract(doc, '\$.kind') = 'copy' ORDER BY seq DESC LIMIT 1"; }
of() { askj describe "$(last)" | jq ".operation.result.copy.$1"; } # others are made by the daemon itself
problems() { askj status | jq '[.problems[] | select(.text | test("more than half of it"))] | length'; }

sf "$REPO" repo create --quiet --node-name testnode --splitter FIXED-128K
random_file "$WORK/c" 100000 3
sf "$REPO" backup "$WORK/c" --as c@h:/v --quiet
cp -a "$REPO" "$WORK/small"
random_file "$WORK/a" 9000000 1
random_file "$WORK/b" 3000000 2
sf "$REPO" backup "$WORK/a" --as a@h:/v --quiet
cp -a "$REPO" "$WORK/before"
sf "$REPO" backup "$WORK/b" --as b@h:/v --quiet
config_main
mkdir -p "$C"
config_add 70-copy "[copy \"offsite\"]
path = $C"
starts "daemon" || { explain_failure; finish; }
check "a copy" ask copy offsite --wait --quiet
all=$(blobs "$C")
# The second backup goes from the repository, as after delete and maintenance.
rm -rf "$REPO"
cp -a "$WORK/before" "$REPO"
check "with less in the repository" ask copy offsite --wait --quiet
same "by default nothing is deleted" "$(blobs "$C") $(of deletedBlobs)" "$all 0"
same "nor recorded" "$(record)" ""
expect "less than a day is refused" 2 'at least a day' -- eval 'keys "delete-after = 3h"; ask reload --wait'
keys "delete-after = 30d"
check "with delete-after" ask copy offsite --wait --quiet
n=$(of surplusBlobs)
check "what is missed is recorded" [ "$(wc -l <"$(record)")" = "$n" ]
age 29
check "29 days later" ask copy offsite --wait --quiet
same "all is there" "$(blobs "$C") $(of deletedBlobs)" "$all 0"
age 2
mv "$WORK/before/p" "$WORK/p"
expect "31 days later" 0 'of that deleted' -- ask copy offsite --wait
same "what was missed is deleted" "$(of deletedBlobs) $(blobs "$C")" "$n $((all - n))"
mv "$WORK/p" "$WORK/before/p"
check "the copy is whole" sf "$C" verify --quiet
rm -f "$WORK/out"
sf "$C" restore latest "$WORK/out" --as a@h:/v --quiet
check "and has what the repository has" cmp "$WORK/a" "$WORK/out"
expect "and not what it has not" 16 . -- sf "$C" restore latest "$WORK/none" --as b@h:/v
check "status counts it no more" [ "$(askj status | jq '.copies[0].surplus')" = 0 ]

# One that is back was not missed all the time.
pack=$(cd "$REPO" && find q -name '*.f' | head -n 1)
mkdir -p "$WORK/aside"
mv "$REPO/$pack" "$WORK/aside/x"
check "a pack is missed" ask copy offsite --wait --quiet
age 40
mv "$WORK/aside/x" "$REPO/$pack"
check "and is back" ask copy offsite --wait --quiet
mv "$REPO/$pack" "$WORK/aside/x"
check "and is missed again" ask copy offsite --wait --quiet
same "it stays in the copy: its time begins anew" "$(of deletedBlobs) $(blobs "$C")" "0 $((all - n))"
mv "$WORK/aside/x" "$REPO/$pack"

# Lost: the index needs it. A mirror would delete it, too.
cp -a "$C" "$WORK/kept"
lost() { askj status | jq '[.problems[] | select(.text | test("has lost .* that its index needs"))] | length'; }
find "$REPO/p" -name '*.f' -size +2M | while read -r f; do mv "$f" "$WORK/aside/"; done
check "most of the packs are lost" ask copy offsite --wait --quiet
age 60
expect "for two months" 0 'LOST by the repository, and kept' -- ask copy offsite --wait
same "nothing is deleted" "$(of deletedBlobs) $(blobs "$C")" "0 $((all - n))"
same "it is a problem" "$(lost)" 1
expect "status --check fails" 3 . -- ask status --check
check "whatever is asked for" ask copy offsite --delete-most --wait --quiet
same "nothing is deleted then" "$(of deletedBlobs) $(blobs "$C")" "0 $((all - n))"
check "the copy is whole" sf "$C" verify --quiet
cp -an "$C/p" "$C/q" "$REPO/" && chmod -R u+rwX "$REPO"
check "it gives them back" sf "$REPO" verify --quiet
check "and then" ask copy offsite --wait --quiet
same "no problem is left" "$(lost)" 0

# Emptied, by an attacker or a mistake.
rm -rf "$REPO/p" "$REPO/q" "$REPO/x"
check "there are no packs, and no index" ask copy offsite --wait --quiet
age 60
check "for two months" ask copy offsite --delete-most --wait --quiet
same "nothing is deleted, whatever is asked for" "$(of deletedBlobs) $(blobs "$C")" "0 $((all - n))"
check "what was to be, is known" [ "$(of heldBytes)" -gt 5000000 ]
same "it is a problem" "$(problems)" 1
check "the copy is whole, still" sf "$C" verify --quiet
rm -rf "$REPO"
cp -a "$WORK/before" "$REPO"
check "the repository is back" ask copy offsite --wait --quiet
same "no problem is left" "$(problems)" 0

# More than half of it, for good.
rm -rf "$REPO"
cp -a "$WORK/small" "$REPO"
check "most of it is deleted" ask copy offsite --wait --quiet
age 60
check "for two months" ask copy offsite --wait --quiet
same "that is more than half" "$(of deletedBlobs) $(problems)" "0 1"
check "it is allowed" ask copy offsite --delete-most --wait --quiet
check "and done" [ "$(blobs "$C")" -lt $((all - n)) ]
same "no problem is left" "$(problems)" 0
check "the copy is what the repository is" sf "$C" verify --quiet
# The same in S3.
s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK"
printf 'access-key = a\nsecret-key = s\n' | secret "$WORK/cloud.keys"
rm -rf "$REPO" "$CONF/conf.d/70-copy.ini"
cp -a "$WORK/before" "$REPO"
C=$WORK/cloud
config_add 71-cloud "[copy \"offsite\"]
type = s3
endpoint = http://127.0.0.1:$port
bucket = bucket
prefix = cloud/
credentials = $WORK/cloud.keys
delete-after = 30d"
check "another place, in a bucket" ask reload --wait
check "is another copy" ask copy offsite --wait --quiet
all=$(blobs "$C")
rm -rf "$REPO"
cp -a "$WORK/small" "$REPO"
check "with less in the repository" ask copy offsite --wait --quiet
n=$(of surplusBlobs)
age 31
# A run that takes long is no difference of clocks: the time of the storage is that at which it deletes.
server() { curl -sS --noproxy '*' "http://127.0.0.1:$port/$1"; }
random_file "$WORK/d" 90000 4
sf "$REPO" backup "$WORK/d" --as d@h:/v --quiet
server "_hold/PUT%20/bucket/cloud/p" >"$WORK/answer"
ask copy offsite --delete-most --wait --quiet &
check "a month later, a run that takes long" until_true 60 eval '[ "$(server _held)" -gt 0 ]'
find "$C" -name '*.copy.f' -exec touch -d '-6 minutes' {} +
server _hold >"$WORK/answer"
wait $!
same "is complete" "$?" 0
same "what was missed is deleted" "$(of deletedBlobs) $(blobs "$C")" "$n $((all - n + $(of copiedBlobs)))"
check "the copy is whole" sf "$C" verify --quiet
same "no lock is left" "$(find "$C" -name '*copy-lock*')" ""
stops "end"
explain_failure
finish
