#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What verify calls good, a new node that has only the password can restore: each kind of blob is damaged in turn, with
# a warm and a cold cache, and the verdict is compared with a restore with an empty cache (and with stock Kopia's, if
# KOPIA=/path/to/kopia is given).
. "$(dirname "$0")/../lib.sh"
random_file "$WORK/v" 3000000 61
random_file "$WORK/w" 2000000 62
R=$WORK/repo
sf "$R" repo create --quiet --splitter DYNAMIC-1M-BUZHASH
sf "$R" backup "$WORK/v" --as t@h:/v --quiet
sf "$R" backup "$WORK/w" --as t@h:/w --quiet
cp -a "$R" "$WORK/base"
expect "undamaged: good" 0 'no damage found' -- sf "$R" verify
rm -rf "$WORK/warm"; cp -a "$CACHE" "$WORK/warm"
export KOPIA_CHECK_FOR_UPDATES=false
stock() { # COMMAND...: with an empty cache
    "$KOPIA" --config-file "$WORK/k.config" --password "test password" --no-progress --log-level=error \
        --log-dir "$WORK/klog" "$@"
}

kind_of() {
    case $1 in
    kopia.repository.f) echo format ;;
    kopia.blobcfg.f) echo blobcfg ;;
    .shards) echo shards ;;
    x/n*) echo index ;;
    p/*) echo pack ;;
    q/*) echo "metadata pack" ;;
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
# Both volumes, with nothing but the password.
new_node() {
    local v rc
    for v in v w; do
        rm -rf "$CACHE" "$WORK/out"
        sf "$R" restore latest "$WORK/out" --as "t@h:/$v" --quiet >"$WORK/restore.log" 2>&1 &&
            cmp -s "$WORK/$v" "$WORK/out"
        rc=$?
        [ $rc -eq 0 ] || return 1
    done
}
stock_verdict() {
    rm -rf "$WORK/kcache" "$WORK/k.config"
    stock repository connect filesystem --path "$R" --cache-directory "$WORK/kcache" --no-check-for-updates \
        >"$WORK/stock.log" 2>&1 &&
        stock snapshot verify --verify-files-percent=100 >>"$WORK/stock.log" 2>&1 &&
        [ "$(stock snapshot list --all --json 2>/dev/null | jq length)" -eq 2 ]
}

total=0 caught=0
declare -A seen=()
while read -r blob; do
    kind=$(kind_of "$blob") broken=
    for how in missing empty half flip-0 flip-mid flip-end; do
        rm -rf "$R"; cp -a "$WORK/base" "$R"
        damage $how "$R/$blob"
        new_node; node=$?
        judge=0
        if [ -x "${KOPIA:-/nonexistent}" ]; then stock_verdict; judge=$?; fi
        for cache in warm cold; do
            rm -rf "$CACHE"
            [ $cache = cold ] || cp -a "$WORK/warm" "$CACHE"
            sf "$R" verify --quiet >"$WORK/log" 2>&1
            rc=$?
            total=$((total + 1))
            [ $rc -eq 0 ] || caught=$((caught + 1))
            [ $rc -gt 100 ] && broken="$broken [$how, $cache: verify exited with $rc]"
            [ $rc -eq 0 ] && [ $node -ne 0 ] &&
                broken="$broken [$how, $cache: good, but a new node fails: $(tail -n 1 "$WORK/restore.log")]"
            [ $rc -eq 0 ] && [ $judge -ne 0 ] &&
                broken="$broken [$how, $cache: good, but stock fails: $(tail -n 1 "$WORK/stock.log")]"
        done
    done
    seen[$kind]=$((${seen[$kind]-0} + 1))
    same "$kind ${seen[$kind]}: verify calls nothing good that a new node cannot restore" "$broken" ""
done < <(cd "$WORK/base" && find . -type f -printf '%P\n' | sort)
for kind in format index pack "metadata pack"; do
    check "a $kind was damaged" test -n "${seen[$kind]-}"
done
check "verify saw $caught of $total damages" test $((caught * 2)) -gt "$total"
finish
