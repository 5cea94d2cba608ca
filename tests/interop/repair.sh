#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `repo repair` as stock Kopia sees it: what stock cannot open, or finds damaged, it reads again, writes to, and
# maintains. (e2e/repair.sh with KOPIA= has stock judge each case there.) KOPIA=/path/to/kopia; without it everything is
# skipped.
. "$(dirname "$0")/../lib.sh"
if [ -z "${KOPIA:-}" ] || [ ! -x "${KOPIA:-/nonexistent}" ]; then
    skip "a repaired index and stock Kopia" "no KOPIA=/path/to/kopia was given"
    finish
fi
R=$WORK/repo
export KOPIA_PASSWORD="test password" KOPIA_CHECK_FOR_UPDATES=false KOPIA_CONFIG_PATH=$WORK/k.config \
    KOPIA_LOG_DIR=$WORK/klog
kopia() { "$KOPIA" --no-progress "$@"; }
# What it has in its cache says nothing of the repository.
connect() {
    kopia repository disconnect >/dev/null 2>&1
    rm -rf "$CACHE/kopia"
    kopia repository connect filesystem --path "$R" --override-username u --override-hostname h >/dev/null
}
tree() { # VERSION: directories and files that change
    mkdir -p "$WORK/tree/sub/deeper"
    random_file "$WORK/tree/big" 3000000 1
    printf 'version %s' "$1" | dd of="$WORK/tree/big" bs=1 seek=1000000 conv=notrunc status=none
    for i in 1 2 3 4 5; do echo "$1 $i" >"$WORK/tree/sub/$i"; done
    echo same >"$WORK/tree/sub/deeper/same"
    rm -rf "$WORK/tree.$1" && cp -a "$WORK/tree" "$WORK/tree.$1"
}
restored() { # VERSION...
    local v
    for v; do
        rm -rf "$WORK/out"
        kopia snapshot restore "${SNAPSHOT[v]}" "$WORK/out" >/dev/null 2>&1 && diff -r "$WORK/out" "$WORK/tree.$v" ||
            return
    done
}
kopia repository create filesystem --path "$R" --override-username u --override-hostname h >/dev/null 2>&1
for v in 1 2 3 4; do
    tree $v
    SNAPSHOT[v]=$(kopia snapshot create "$WORK/tree" --json 2>/dev/null | jq -r .id)
done
random_file "$WORK/v" 5000000 3
check "a backup of ours" sf "$R" backup "$WORK/v" --as v@h:/v --quiet
check "stock restores all of its own" restored 1 2 3 4
cp -a "$R" "$WORK/sound"

find "$R/x" -name '*.f' | sort | head -n 3 | while read -r f; do
    printf XXXX | dd of="$f" bs=1 seek=90 conv=notrunc status=none
done
expect "stock cannot open a damaged index" 1 -- connect
check "repaired" sf "$R" repo repair --quiet
check "then it can" connect
check "and verifies all" kopia snapshot verify --verify-files-percent=100
check "and restores all" restored 1 2 3 4
rm -rf "$R" && cp -a "$WORK/sound" "$R"
rm -rf "$R"/x*
check "all of the index is lost, and repaired" sf "$R" repo repair --quiet
connect
check "stock verifies all" kopia snapshot verify --verify-files-percent=100
check "stock restores all" restored 1 2 3 4
# It goes on with it.
tree 5
SNAPSHOT[5]=$(kopia snapshot create "$WORK/tree" --json 2>/dev/null | jq -r .id)
check "stock backs up into it" restored 5
check "and maintains it" kopia maintenance run --full --safety=full
check "and deletes" kopia snapshot delete "${SNAPSHOT[1]}" --delete
check "and frees" kopia maintenance run --full --safety=none
check "what is left is whole" kopia snapshot verify --verify-files-percent=100
check "for us, too" sf "$R" verify --quiet
check "restored" restored 2 3 4 5
# Manifests that stock has merged, and snapshots that were deleted before, do not come back with the index.
kopia snapshot list --all --json 2>/dev/null | jq -r '.[].id' | sort >"$WORK/before"
rm -rf "$R"/x*
check "the index of what was maintained is lost, and repaired" sf "$R" repo repair --quiet
connect
check "all is whole" kopia snapshot verify --verify-files-percent=100
kopia snapshot list --all --json 2>/dev/null | jq -r '.[].id' | sort >"$WORK/after"
same "no snapshot is missing" "$(comm -23 "$WORK/before" "$WORK/after")" ''
check "restored" restored 2 3 4 5
finish
