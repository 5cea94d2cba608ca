#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A vault: a copy in a bucket with object lock. The locks of what the repository still has are extended before half of
# their period is over, those of what it has no more are not (issue 15, CF-53).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
R=$WORK/repo
C=$WORK/conf
DAY=86400
mkdir -p "$C/conf.d"
printf '[daemon]\nnode-name = n1\n' >"$C/snapferry.ini"
printf 'access-key = a\nsecret-key = b\n' | secret "$C/keys"
s3_service versions /usr/bin/python3 tests/tools/s3-faults.py "$WORK/versions.port"
curl() { command curl -sS --noproxy '*' "$@"; }
server() { curl "http://127.0.0.1:$port/$1"; }
place() { # NAME: a [copy]
    printf '[copy "%s"]\nrepository = main\ntype = s3\nendpoint = http://127.0.0.1:%s\n' "$1" "$port"
    printf 'bucket = b\nprefix = %s/\ncredentials = %s\n' "$1" "$C/keys"
}
printf '[repository "main"]\npath = %s\npassword-file = %s\n' "$R" "$WORK/password" >"$C/conf.d/10-main.ini"
place vault >"$C/conf.d/20-vault.ini"
place plain >"$C/conf.d/30-plain.ini"
r() { "$SF" --config-dir "$C" -r "$@"; }
sync() { r main repo sync-to "$@" --json | tail -n 1; }
extended() { sync vault "$@" | jq .extendedLocks.count; }
# What the server has heard of, since this was asked before; with what the run says.
both() { echo "$(extended "$@") $(server _extended)"; }
skew=0
days() { skew=$(($1 * DAY / 10)) && server "_set/skew/$skew" >"$WORK/answer"; } # TENTHS: it is so much later
date_now() { date -u -d "@$(($(date +%s) + skew))" +%Y%m%dT%H%M%SZ; }
versions() { # PREFIX: key and version of each
    curl -H "x-amz-date: $(date_now)" "http://127.0.0.1:$port/b?versions&prefix=$1" | grep -o '<Version>.*' |
        sed 's/<Version>/\n/g' | sed -n 's,^<Key>\([^<]*\)</Key><VersionId>\([^<]*\)<.*,\1 \2,p'
}
removal() { # PREFIX PATTERN: how the attempt to remove versions of such keys is answered
    local key id
    versions "$1" | grep -E "^$1$2" | while read -r key id; do
        curl -o "$WORK/answer" -w '%{http_code}\n' -X DELETE -H "x-amz-date: $(date_now)" \
            "http://127.0.0.1:$port/b/$key?versionId=$id"
    done | sort -u | xargs
}
LOCKED='([npqx]|kopia\.(repository|blobcfg))'
locked() { versions vault/ | grep -cE "^vault/$LOCKED"; }
packs() { find "$R/p" -name '*.f' -size +1M; }

sf "$R" repo create --quiet --node-name n1
random_file "$WORK/a" 3000000 1
random_file "$WORK/b" 2500000 2
check "locks of ten days are wanted" "$TOOLS/lock_repository" "$R" "$WORK/password" COMPLIANCE 240
sf "$R" backup "$WORK/a" --as n@h:/a --quiet
sf "$R" backup "$WORK/b" --as n@h:/b --quiet

# A bucket without locks: nothing is asked of it.
expect "without object lock a copy has none" 0 'not locked: its bucket has no object lock' -- r main repo sync-to plain
server _versions/Enabled >"$WORK/answer"
same "none of its locks was extended" "$(server _extended)" 0

# ---- when ----
same "what is put is locked, and nothing is extended" "$(both)" "0 0"
all=$(locked)
check "there is something to protect" [ "$all" -ge 6 ]
same "nor by the next run" "$(both)" "0 0"
days 49
same "nor while more than half of the period is left" "$(both)" "0 0"
gone=$(packs | head -n 1)
# Whoever can write to the copy says that they were extended just now: that must not keep the run from doing it.
mark() { curl "http://127.0.0.1:$port/b/vault/_snapferry.copy" -H "x-amz-date: $(date_now)"; }
forge() { mark >"$WORK/mark" && sed "$1" "$WORK/mark" >"$WORK/forged" &&
    curl -f -T "$WORK/forged" "http://127.0.0.1:$port/_put/vault/_snapferry.copy"; }
check "the mark has a time, and is signed" eval 'mark | grep -A 1 -E "^locked COMPLIANCE 864000 [0-9]+$" |
    grep -qE "^signed [0-9a-f]{64}$"'
name=vault/$(realpath --relative-to="$R" "$gone" | tr -d / | sed 's/\.f$//')
mv "$gone" "$WORK/gone"
days 52
n=$((all - 1))
same "a dry run says how many would be" "$(both --dry-run)" "$n 0"
mark >"$WORK/right"
later=$(($(date +%s) + skew))
for also in "" "; /^signed/d"; do
    forge "s/^\(locked COMPLIANCE 864000\) .*/\1 $later/$also" >"$WORK/answer"
    check "a forged mark is there" eval 'mark | grep -q "^locked COMPLIANCE 864000 $later$"'
    same "a forged time does not count" "$(both --dry-run)" "$n 0"
done
curl -f -T "$WORK/right" "http://127.0.0.1:$port/_put/vault/_snapferry.copy" >"$WORK/answer"
expect "after that they are extended, all but what the repository has no more" 0 \
    "^Extended the object locks of $n blobs, [0-9.]+ MiB" -- r main repo sync-to vault
same "with a request for each" "$(server _extended)" "$n"
until=$(server _until)
check "from now on, for the period" [ "$((${until% *} / DAY))" = 15 ]
same "in the mode of the repository" "${until#* }" COMPLIANCE
same "the next run leaves them" "$(both)" "0 0"
days 101
same "two runs later than the first locks: nothing is extended" "$(both)" "0 0"
same "what the repository has no more can be removed" "$(removal "$name" '')" 204
same "what it still has cannot, although it was put more than a period ago" "$(removal vault/ "$LOCKED")" 403
mv "$WORK/gone" "$gone"
same "it is copied again" "$(sync vault | jq .copied.count)" 1
days 103
same "and again before half of the period is over" "$(both)" "$all $all"

# ---- failures ----
days 155
random_file "$WORK/c" 2000000 3
sf "$R" backup "$WORK/c" --as n@h:/c --quiet
server _refuse/xn0_ >"$WORK/answer"
expect "locks that cannot be extended" 20 'object locks of [0-9]+ blobs could not be extended: .*xn0_' -- \
    r main repo sync-to vault
check "the others are all the same" [ "$(server _extended)" -ge 3 ]
check "all is copied before that" r vault restore latest "$WORK/out" --as n@h:/c --quiet
check "as it was" cmp "$WORK/c" "$WORK/out"
server _refuse/ >"$WORK/answer"
days 156 # what was put within the last minute is left alone
server _hold/retention >"$WORK/answer"
opener
"$SF" --config-dir "$C" -r main repo sync-to vault --quiet 2>"$WORK/err" &
pid=$!
for _ in $(seq 600); do
    [ "$(server _held)" = 0 ] || break
    sleep 0.1
done
check "it is extending" [ "$(server _held)" -gt 0 ]
kill -INT $pid
sleep 0.5
server _hold >"$WORK/answer"
wait $pid
same "a run that is interrupted" "$?" 130
server _extended >"$WORK/answer"
same "is done again by the next one" "$(both)" "$(locked) $(locked)"
same "which is the last one for now" "$(both)" "0 0"

# ---- what is known of them ----
r main repo sync-to plain --quiet 2>"$WORK/err"
check "a copy that was made without locks gets them when its bucket has some" [ "$(server _extended)" -gt 5 ]
server _refuse/object-lock >"$WORK/answer"
expect "who may not ask for them" 0 'not locked' -- r main repo sync-to vault
server _refuse/ >"$WORK/answer"
same "puts none: all are extended when he may" "$(both)" "$(locked) $(locked)"
check "a longer period" "$TOOLS/lock_repository" "$R" "$WORK/password" COMPLIANCE 480
r main repo sync-to vault --quiet
check "is that of all at once" [ "$(server _extended)" -ge "$all" ]
until=$(server _until)
check "for twenty days from then" [ "$((${until% *} / DAY))" = 35 ]
finish
