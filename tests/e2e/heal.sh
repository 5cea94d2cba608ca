#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What verify or maintenance finds damaged is stored again by the next backup that meets it, and with it all snapshots
# that refer to it are whole again (CF-15): contents, packs that are missing or cut short, index documents. With
# KOPIA=/path/to/kopia stock Kopia verifies them, too.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo
entries() { "$TOOLS/index_entries" "$R" "$WORK/password"; }
take() { sf "$R" backup "$WORK/v" --as v@h:/v "$@"; }
file_of() { echo "$R/${1:0:1}/${1:1:3}/${1:4}.f"; }
data_pack() { entries | awk '$1 !~ /^[a-z]/ { print $2 }' | sort | uniq -c | sort -n | awk 'END { print $2 }'; }
sf "$R" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 10MiB
random_file "$WORK/v" 25000000 1
take --quiet
take --quiet
cp -a "$R" "$WORK/whole"
same "a backup stores nothing again" "$(take --json | result newBytes)" 0

again() { rm -rf "$R" "$CACHE" && cp -a "$WORK/whole" "$R"; }
healed() { # WHAT: verify found it, the next backup mends it
    expect "$1: verify finds it" 15 'the next backup stores again what it meets' -- sf "$R" verify
    check "$1: the next backup stores it again" [ "$(take --json | result newBytes)" -gt 0 ]
    check "$1: all snapshots are whole" sf "$R" verify --quiet
    if [ -x "${KOPIA:-/nonexistent}" ]; then
        "$KOPIA" --config-file "$WORK/k" --password "test password" repository connect filesystem --path "$R" \
            --cache-directory "$WORK/kc" --no-check-for-updates >/dev/null 2>&1
        check "$1: stock Kopia verifies them" "$KOPIA" --config-file "$WORK/k" --password "test password" \
            --log-dir "$WORK/log" snapshot verify --verify-files-percent=100 --no-auto-maintenance
        rm -rf "$WORK/k" "$WORK/kc"
    fi
    same "$1: which is done once" "$(take --json | result newBytes)" 0
}
f=$(file_of "$(data_pack)")
rm "$f"
healed "a pack is missing"

again
truncate -s 2000000 "$f"
healed "a pack was cut short"

again
printf damage | dd of="$f" bs=1 seek=1000000 conv=notrunc status=none
healed "a content is damaged"

# By an incremental backup, too: what it would take over without being read is read.
again
rm "$f"
sf "$R" verify --quiet >/dev/null 2>&1
check "all that the backup takes over is there" [ "$(take --json | result newBytes)" -gt 5000000 ]
check "whole again" sf "$R" verify --quiet

# A pack that is back was not lost: nothing is stored again.
again
mv "$f" "$WORK/pack"
sf "$R" verify --quiet >/dev/null 2>&1
mv "$WORK/pack" "$f"
same "a pack is back" "$(take --json | result newBytes)" 0

# What maintenance finds.
again
"$TOOLS/age_repository" "$R" "$WORK/password" 3
rm "$f"
sf "$R" maintenance --full --dry-run --node-name n1 >/dev/null 2>&1
check "maintenance finds that a pack is missing" [ "$(take --json | result newBytes)" -gt 5000000 ]
check "and the backup mends it" sf "$R" verify --quiet

# The file is of this repository only, and is not trusted when it was changed.
again
rm "$f"
sf "$R" verify --quiet >/dev/null 2>&1
known=$(find "$CACHE" -name damaged)
check "it is remembered" [ -s "$known" ]
printf x | dd of="$known" bs=1 seek=20 conv=notrunc status=none
same "a changed file counts for nothing" "$(take --json | result newBytes)" 0
expect "until it is found again" 15 'the next backup' -- sf "$R" verify
check "then it is stored again" [ "$(take --json | result newBytes)" -gt 0 ]
check "and whole" sf "$R" verify --quiet
finish
