#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What verify calls good, a new node that has only the password can restore: each kind of blob is damaged in turn, with
# a warm and a cold cache, and the verdict is compared with a restore with an empty cache (and with stock Kopia's, if
# KOPIA=/path/to/kopia is given). The repositories are an own one and three that stock Kopia made: with a history of
# epochs (markers, compactions, ranges, watermark), with the marker of a session, and of format version 1.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
[ -z "${THROUGH_S3:-}" ] || through_s3
R=$WORK/repo
export KOPIA_CHECK_FOR_UPDATES=false
stock() { # COMMAND...: with an empty cache
    "$KOPIA" --config-file "$WORK/k.config" --password "$(cat "$WORK/password")" --no-progress --log-level=error \
        --log-dir "$WORK/klog" "$@"
}

kind_of() {
    case $1 in
    kopia.repository.f) echo format ;;
    kopia.blobcfg.f) echo blobcfg ;;
    kopia.maintenance.f) echo maintenance ;;
    .shards) echo shards ;;
    x/n* | xn*) echo index ;;
    x/s*) echo "compacted epoch" ;;
    x/r*) echo "range of epochs" ;;
    xe*) echo "epoch marker" ;;
    xw*) echo watermark ;;
    n*) echo "index of version 1" ;;
    m*) echo "compaction log" ;;
    l*) echo "clean-up record" ;;
    s*) echo session ;;
    p*) echo pack ;;
    q*) echo "metadata pack" ;;
    *) echo other ;;
    esac
}
damage() { # HOW FILE
    local size at byte
    size=$(stat -c %s "$2")
    case $1 in
    missing) rm "$2" ;;
    empty) : >"$2" ;;
    half) truncate -s $((size / 2)) "$2" ;;
    flip-*)
        case $1 in flip-0) at=0 ;; flip-mid) at=$((size / 2)) ;; *) at=$((size - 1)) ;; esac
        byte=$(od -An -tu1 -j$at -N1 "$2")
        printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$2" bs=1 seek=$at conv=notrunc status=none
        ;;
    esac
}
# What a new node that has nothing but the password finds: the list of snapshots, and the files that were chosen.
snapshots() { sf "$R" snapshot list --json 2>>"$WORK/restore.log" | result 'snapshots // [] | map(.id) | join(" ")'; }
new_node() {
    local file sum
    : >"$WORK/restore.log"
    rm -rf "$CACHE"
    [ "$(snapshots)" = "$listed" ] || { echo "another list of snapshots" >>"$WORK/restore.log"; return 1; }
    while read -r sum file; do
        rm -rf "$CACHE" "$WORK/out"
        sf "$R" restore "$file" "$WORK/out" --quiet 2>>"$WORK/restore.log" &&
            [ "$(sha256sum <"$WORK/out")" = "$sum  -" ] || return 1
    done <"$WORK/files"
}
stock_verdict() {
    rm -rf "$WORK/kcache" "$WORK/k.config"
    stock repository connect filesystem --path "$R" --cache-directory "$WORK/kcache" --no-check-for-updates \
        --readonly >"$WORK/stock.log" 2>&1 &&
        stock snapshot verify --verify-files-percent=100 >>"$WORK/stock.log" 2>&1 &&
        [ "$(stock snapshot list --all --json 2>/dev/null |
            jq '[.[] | select((.incomplete // "") == "")] | length')" -eq "$(wc -w <<<"$listed")" ]
}

total=0 caught=0
declare -A seen=()
# damage_each NAME ALL FILE...: damages each blob of $R (ALL: none is left out; else two of a kind, all of the epochs').
# The FILEs are those that a new node must restore.
damage_each() {
    local name=$1 all=$2 blob kind hows how cache rc good broken file
    local -A here=()
    shift 2
    expect "$name, undamaged: good" 0 'no damage found' -- sf "$R" verify
    rm -rf "$WORK/warm"; cp -a "$CACHE" "$WORK/warm"
    listed=$(snapshots)
    for file; do
        rm -f "$WORK/out"
        sf "$R" restore "$file" "$WORK/out" --quiet >/dev/null && echo "$(sha256sum <"$WORK/out" | cut -c1-64) $file"
    done >"$WORK/files"
    same "$name, undamaged: a new node restores" "$(wc -l <"$WORK/files")" $#
    while read -r blob; do
        kind=$(kind_of "$blob") broken=
        here[$kind]=$((${here[$kind]-0} + 1))
        case $all,$kind in
        all,* | *,epoch* | *,range*) ;;
        *) [ ${here[$kind]} -le 2 ] || continue ;;
        esac
        cp -p "$R/$blob" "$WORK/original"
        hows='missing empty half flip-mid'
        [ $all != all ] || hows="$hows flip-0 flip-end"
        for how in $hows; do
            damage $how "$R/$blob"
            good=
            for cache in warm cold; do
                rm -rf "$CACHE"
                [ $cache = cold ] || cp -a "$WORK/warm" "$CACHE"
                sf "$R" verify --quiet >"$WORK/log" 2>&1
                rc=$?
                total=$((total + 1))
                [ $rc -eq 0 ] || caught=$((caught + 1))
                [ $rc -le 100 ] || broken="$broken [$how, $cache: verify exited with $rc]"
                [ $rc -ne 0 ] || good="$good $cache"
                grep -qE ' 0 of [0-9]+ snapshots? affected$' "$WORK/log" && ! new_node &&
                    broken="$broken [$how, $cache: no snapshot is affected, but a new node fails]"
            done
            if [ -n "$good" ]; then
                new_node ||
                    broken="$broken [$how, good$good: but a new node fails: $(tail -n 1 "$WORK/restore.log")]"
                if [ -x "${KOPIA:-/nonexistent}" ] && ! stock_verdict; then
                    broken="$broken [$how, good$good: but stock fails: $(tail -n 1 "$WORK/stock.log")]"
                fi
            fi
            cp -p "$WORK/original" "$R/$blob"
        done
        seen[$kind]=$((${seen[$kind]-0} + 1))
        same "$name, $kind ${here[$kind]}: verify calls nothing good that a new node cannot restore" "$broken" ""
    done < <(cd "$R" && find . -type f -printf '%P\n' | sort)
}
fixture() { # NAME
    rm -rf "$R" "$CACHE"
    cp -a "$GOLDEN/$1" "$R"
    jq -r .password "$GOLDEN/$1.expected.json" >"$WORK/password"
}

random_file "$WORK/v" 3000000 61
random_file "$WORK/w" 2000000 62
sf "$R" repo create --quiet --splitter DYNAMIC-1M-BUZHASH
sf "$R" backup "$WORK/v" --as t@h:/v --quiet
sf "$R" backup "$WORK/w" --as t@h:/w --quiet
read -r v w <<<"$(snapshots)"
damage_each own all "$v" "$w"
[ -z "${THROUGH_S3:-}" ] || finish # the others are directories
# The newest and the oldest snapshot.
fixture epochs-history
damage_each epochs some 3e3e79ae0c25c613/log.txt 1ac6a8a3eeb66a5e/base.bin
fixture incomplete-checkpoint
damage_each "open session" some 527571f9a5f2b25f22019767905fe8c1/docs/readme.txt
fixture v1-compacted
damage_each "version 1" some 276ef2f0681a6ce191efdc2a8f07b040/a
for kind in format blobcfg maintenance index pack "metadata pack" session "epoch marker" "compacted epoch" \
    "range of epochs" watermark "index of version 1" "compaction log" "clean-up record"; do
    check "a $kind was damaged" test -n "${seen[$kind]-}"
done
check "verify saw $caught of $total damages" test $((caught * 3)) -gt "$total"
finish
