#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Members of JSON documents are read at the borders: by the command, the control socket, the metrics, movers, and the
# files that make structs of documents. tests/law/json-reads has what else still reads them, and how often: no file may
# be added, no number may grow, and one that has shrunk must be lowered there.
. "$(dirname "$0")/../lib.sh"
cd "$(dirname "$0")/../.." || exit 1
records='results|step-answer|outcome-record|request-args|opaque|step-request'
borders="^(daemon/(cli|control|metrics|mover)/|daemon/records/($records)\\.c|base/json\\.h)"
# count DIR: "N FILE" of each file under DIR that reads any
count() {
    (cd "$1" && grep -roE --include='*.[ch]' '\bj(str|int|bool|obj|arr)\(' cfg daemon io proc base repo 2>/dev/null) |
        cut -d: -f1 | grep -vE "$borders" | sort | uniq -c | awk '{print $1, $2}' | sort -k2
}
grep -v '^#' tests/law/json-reads >"$WORK/allowed"
judge() { # COUNTED: what is not as allowed
    awk 'NR == FNR {most[$2] = $1; next}
         {seen[$2] = 1}
         !($2 in most) {print $2 " reads members of documents (" $1 " times): decode them at a border"; next}
         $1 > most[$2] {print $2 " reads " $1 " members of documents, it was " most[$2]}
         $1 < most[$2] {print $2 " reads only " $1 " now: lower its number in tests/law/json-reads"}
         END {for (f in most) if (!(f in seen)) print f " reads none any more: strike it off tests/law/json-reads"}' \
        "$WORK/allowed" "$1"
}
count . >"$WORK/now"
same "members of documents are read at the borders, and where they still were" "$(judge "$WORK/now")" ""
echo "# $(awk '{n += $1} END {print n}' "$WORK/now") reads in $(wc -l <"$WORK/now") files outside the borders"

# It can fail.
mkdir -p "$WORK/product/daemon/decide" "$WORK/product/daemon/cli" "$WORK/product/daemon/engine"
echo 'int x = jint(doc, "size") + jbool(doc, "b");' | tee "$WORK/product/daemon/decide/added.c" \
    >"$WORK/product/daemon/cli/added.c"
echo 'x' >"$WORK/product/daemon/engine/sweep.c"
count "$WORK/product" >"$WORK/added"
check "a file that is new is named, one of a border is not" grep -qx \
    'daemon/decide/added.c reads members of documents (2 times): decode them at a border' <(judge "$WORK/added")
check "one that reads none any more" grep -qx \
    'daemon/engine/sweep.c reads none any more: strike it off tests/law/json-reads' <(judge "$WORK/added")
same "nothing else of them" "$(judge "$WORK/added" | grep -c added)" 1
awk '$2 == "daemon/engine/sweep.c" {$1++} {print}' "$WORK/now" >"$WORK/more"
check "one more than before" grep -qE '^daemon/engine/sweep\.c reads [0-9]+ members of documents, it was' \
    <(judge "$WORK/more")
finish
