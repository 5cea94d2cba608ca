#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Members of JSON documents are read at the borders: by the command, the control socket, the metrics, movers, and the
# files that make structs of documents or read what other programs print. tests/law/json-reads has what else still reads
# them, and how often: no file may
# be added, no number may grow, and one that has shrunk must be lowered there.
. "$(dirname "$0")/../lib.sh"
cd "$(dirname "$0")/../.." || exit 1
records='results|scanned|step-answer|outcome-record|request-args|opaque|step-request'
records+='|fields|fields-text'
# Of other programs and servers: what they print, and documents of the repository's format.
others='cfg/json\.c|base/json\.h|repo/|daemon/(import|movers|check)/|io/rbd/'
others+='|io/native/(driver-json|json-fields|lvm-report|plugin-shapes|plugin|qemu-agent|qemu-state|qmp|rbd-tool)\.c'
others+='|io/native/zfs-tag\.c'
borders="^(daemon/(cli|control|metrics|mover)/|daemon/records/($records)\\.c|$others)"
reads='\b(j(str|int|bool|obj|arr)|json_object_get|json_unpack)\('
# count DIR: "N FILE" of each file under DIR that reads any
count() {
    (cd "$1" && grep -roE --include='*.[ch]' "$reads" cfg daemon io proc base repo 2>/dev/null) |
        cut -d: -f1 | grep -vE "$borders" | sort | uniq -c | awk '{print $1, $2}' | sort -k2
}
grep -v '^#' tests/law/json-reads >"$WORK/allowed" || true
judge() { # ALLOWED COUNTED: what is not as allowed
    awk -v allowed="$1" 'BEGIN {while ((getline line < allowed) > 0) {split(line, w, " "); most[w[2]] = w[1]}}
         {seen[$2] = 1}
         !($2 in most) {print $2 " reads members of documents (" $1 " times): decode them at a border"; next}
         $1 > most[$2] {print $2 " reads " $1 " members of documents, it was " most[$2]}
         $1 < most[$2] {print $2 " reads only " $1 " now: lower its number in tests/law/json-reads"}
         END {for (f in most) if (!(f in seen)) print f " reads none any more: strike it off tests/law/json-reads"}' \
        "$2"
}
count . >"$WORK/now"
same "members of documents are read at the borders, and where they still were" "$(judge "$WORK/allowed" "$WORK/now")" ""
echo "# $(awk '{n += $1} END {print n}' "$WORK/now") reads in $(wc -l <"$WORK/now") files outside the borders"

# It can fail.
mkdir -p "$WORK/product/daemon/decide" "$WORK/product/daemon/cli" "$WORK/product/daemon/engine"
echo 'int x = jint(doc, "size") + !!json_object_get(doc, "b");' | tee "$WORK/product/daemon/decide/added.c" \
    "$WORK/product/daemon/engine/more.c" >"$WORK/product/daemon/cli/added.c"
printf '%s\n' '1 daemon/engine/more.c' '3 daemon/engine/none.c' >"$WORK/some"
count "$WORK/product" >"$WORK/added"
judge "$WORK/some" "$WORK/added" | sort >"$WORK/judged"
same "a file that is new is named, one that reads more, one that reads none any more, and nothing of a border" \
    "$(cat "$WORK/judged")" "daemon/decide/added.c reads members of documents (2 times): decode them at a border
daemon/engine/more.c reads 2 members of documents, it was 1
daemon/engine/none.c reads none any more: strike it off tests/law/json-reads"
finish
