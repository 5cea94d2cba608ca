# SPDX-License-Identifier: GPL-2.0-or-later
# What is done with a repository in any S3 service, after tests/lib.sh: S3_ENDPOINT, S3_BUCKET, and the file of
# credentials S3_KEYS; S3_CA: of its certificate. What it puts has a prefix of its own, and stays.
secret "$WORK/keys" <"$S3_KEYS"
mkdir -p "$WORK/conf"
printf '[daemon]\nnode-name = n1\n[repository "far"]\ntype = s3\nendpoint = %s\nbucket = %s\nprefix = test-%s-%s/\n' \
    "$S3_ENDPOINT" "$S3_BUCKET" "$(date +%s)" $$ >"$WORK/conf/snapferry.ini"
printf 'credentials = %s\npassword-file = %s\n' "$WORK/keys" "$WORK/password" >>"$WORK/conf/snapferry.ini"
[ -z "${S3_CA:-}" ] || printf 'ca-file = %s\n' "$S3_CA" >>"$WORK/conf/snapferry.ini"
far() { "$SF" --config-dir "$WORK/conf" -r far "$@"; }
bytes() { far repo status --json | result packBytes; }
for v in a b c; do random_file "$WORK/$v" 9000000 $((RANDOM + 1)); done
check "a repository" far repo create --quiet --splitter FIXED-128K --pack-size 10MiB
for v in a b; do check "a backup of $v" far backup "$WORK/$v" --as "$v@h:/v" --quiet; done
full=$(bytes)
check "one is deleted" far snapshot delete latest --as b@h:/v --force --quiet
expect "what maintenance would do" 0 'younger than 24 hours' -- far maintenance --full --dry-run --explain
expect "it does nothing yet" 0 'Freed 0 B of' -- far maintenance --full
check "nor does a quick one" far maintenance --quiet
same "no byte has come back" "$(( $(bytes) >= full ))" 1
for at in maintenance-begun maintenance-marked maintenance-dropped maintenance-pack-deleted; do
    far backup "$WORK/c" --as c@h:/v --quiet
    far snapshot delete latest --as c@h:/v --force --quiet
    expect "killed at $at" 137 -- env SNAPFERRY_CRASH_AT=$at "$SF" --config-dir "$WORK/conf" -r far \
        maintenance --full --safety=none
    check "whole after that" far verify --quiet
done
sleep 2.1 # entries tell seconds: what a run marked in this one is not dropped in it
check "run again, without delays" far maintenance --full --safety=none --quiet
same "the space is back" "$(( $(bytes) < full - 8500000 ))" 1
check "all else is whole" far verify --quiet
check "and restored" far restore latest --as a@h:/v "$WORK/out.img" --quiet
check "as it was" cmp "$WORK/a" "$WORK/out.img"
check "a copy in a directory" far repo sync-to "$WORK/copy" --verify --quiet
check "is whole" sf "$WORK/copy" verify --quiet
