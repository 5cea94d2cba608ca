#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Damaged repositories: whatever bit is flipped or blob lost, nothing crashes, nothing wrong comes out in silence.
. "$(dirname "$0")/../lib.sh"
random_file "$WORK/image" 9000000 13
R=$WORK/repo
sf "$R" repo create --quiet --splitter DYNAMIC-1M-BUZHASH
sf "$R" backup "$WORK/image" --as t@h:/v --quiet
sf "$R" backup "$WORK/image" --as t@h:/w --quiet

# Each blob truncated, flipped at several places, missing.
bad=0 n=0
while read -r blob; do
    size=$(stat -c %s "$R/$blob")
    for how in missing empty half flip-0 flip-mid flip-end; do
        rm -rf "$WORK/d"; cp -a "$R" "$WORK/d"
        case $how in
        missing) rm "$WORK/d/$blob" ;;
        empty) : >"$WORK/d/$blob" ;;
        half) truncate -s $((size / 2)) "$WORK/d/$blob" ;;
        flip-*)
            case $how in flip-0) at=0 ;; flip-mid) at=$((size / 2)) ;; *) at=$((size - 1)) ;; esac
            byte=$(od -An -tu1 -j$at -N1 "$WORK/d/$blob")
            printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$WORK/d/$blob" bs=1 seek=$at conv=notrunc status=none ;;
        esac
        n=$((n + 1))
        rm -f "$WORK/out"; rm -rf "$CACHE"
        sf "$WORK/d" restore latest "$WORK/out" --as t@h:/v --quiet >"$WORK/log" 2>&1
        rc=$?
        if [ $rc -eq 0 ]; then
            cmp -s "$WORK/image" "$WORK/out" || { bad=$((bad + 1)); echo "# $blob $how: wrong bytes came out"; }
        elif [ $rc -gt 100 ] || ! grep -q '^snapferry: .' "$WORK/log"; then
            bad=$((bad + 1)); echo "# $blob $how: exit $rc, $(tail -n1 "$WORK/log")"
        fi
    done
done < <(cd "$R" && find . -name '*.f' -printf '%P\n' | sort)
if [ $bad -eq 0 ]; then pass "$n damages: right bytes or a clear error"; else fail "$bad of $n damages"; fi

# verify names what a lost pack hits, and a new backup heals it.
pack=$(find "$R/p" -name '*.f' -size +100k | head -n 1)
mv "$pack" "$WORK/lost"; rm -rf "$CACHE"
out=$(sf "$R" verify --json 2>/dev/null); rc=$?
same "verify: exit code" $rc 15
same "verify names both volumes" "$(grep '"damage"' <<<"$out" | jq -r 'select(.snapshot != "") | .source' | sort -u |
    tr '\n' ' ')" "t@h:/v t@h:/w "
check "verify names byte ranges" sh -c "[ \$(printf '%s\n' '$(grep '"damage"' <<<"$out" |
    jq -c 'select(.path == "volume.img") | .length' | tr '\n' ' ')' | wc -w) -ge 1 ]"
finish
