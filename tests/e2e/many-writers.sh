#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Many writers (issue 15): the daemons of three nodes, each with records, cache and volumes of its own, back up into
# one repository in S3 at the same time, in rounds, while that of the owner runs quick and full maintenance without a
# pause; a day passes between two rounds. Epochs advance, what nodes have in common is stored once, each sees what the
# others have stored, and nothing is lost but what was deleted. The service is the project's own.
# KOPIA=/path/to/kopia: stock Kopia is a fourth writer (interop/many-writers.sh).
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
need_root "many writers"
: "${KOPIA:=}"
NODES="n1 n2 n3" ROUNDS=4
declare -A pid    # of each node's daemon
deleted=none
fs_make xfs xfs 900 || exit 1
through_s3 ${KOPIA:+tls}
r() { "$SF" --config-dir "$WORK/n1/conf" --cache-dir "$WORK/n1/cache" -r main "$@"; }
of() { # NODE: whose daemon is asked
    CONF=$WORK/$1/conf STATE=$WORK/$1/state RUN=$WORK/$1/run CACHE=$WORK/$1/cache LOG=$WORK/$1.log DPID=${pid[$1]:-}
}
configure() { # NODE SEED: its volumes, one of which all have, and its configuration
    of "$1"
    mkdir -p "$WORK/xfs/$1"
    random_file "$WORK/xfs/$1/own.img" 8M "$2"
    random_file "$WORK/xfs/$1/common.img" 12M 100
    config_main "node-name = $1"
    sed -i '/^\[repository "main"\]/,$d' "$CONF/snapferry.ini"
    {
        printf '[repository "main"]\ntype = s3\nendpoint = %s\nbucket = b\nprefix = repo/\nmaintenance = no\n' \
            "$S3_ENDPOINT"
        printf 'credentials = %s/keys\npassword-file = %s/password\n' "$S3_CONF" "$S3_CONF"
        printf 'other-nodes = %s\n' "$(tr ' ' '\n' <<<"$NODES" | grep -v "$1" | paste -sd' ')"
        [ -z "$KOPIA" ] || printf 'ca-file = %s\n' "$S3_CA"
    } >"$CONF/conf.d/10-main.ini"
    config_class gold "$WORK/xfs/$1" 'repository = main' 'snapshots-to-retain = 0' 'write-limit = 3MiB'
}
up() { askj status | jq -e '.repositories[0].up' >/dev/null; }
stored() { r repo status --json | result packBytes; }
age() { # HOURS: everybody's writing has ended
    "$TOOLS/age_repository" "$WORK/repo" "$WORK/password" "$1" || fail "the repository grows older"
    # What stock Kopia remembers of blobs is of the time before.
    rm -rf "$WORK"/kcache/*/blob-list "$WORK"/kcache/*/own-writes "$WORK"/kcache/*/indexes
}
change() { # NODE ROUND: half of its volume; in the second round all of that of n2
    local mib=4
    [ "$1$2" != n22 ] || mib=8
    random_file "$WORK/part" ${mib}M "$2$(tr -d n <<<"$1")"
    dd if="$WORK/part" of="$WORK/xfs/$1/own.img" bs=1M seek=$((mib == 8 ? 0 : $2 % 2 * 4)) conv=notrunc status=none
}
# Each line of $WORK/written: ROUND BACKUP NODE VOLUME SUM-OF-ITS-DATA STATE BYTES-STORED BEGIN END
write() { # NODE VOLUME...: backs up at once, and waits
    local v id ids=()
    of "$1"
    for v in "${@:2}"; do ids+=("$(submit "$WORK/xfs/$1/$v.img")"); done
    for v in "${@:2}"; do
        id=${ids[0]} ids=("${ids[@]:1}")
        echo "$round $id $1 $v $(sum_of "$WORK/xfs/$1/$v.img") $(wait_state "$id" Completed 60)" \
            "$(doc "$id" | jq '.new // 99999999') $(ops "$id" | jq -r '"\(.started_ns) \(.ended_ns)"')" \
            >>"$WORK/written"
    done
}
stock() { "$KOPIA" --no-progress --log-level=error "$@"; }
stock_writes() { # ROUND
    mkdir -p "$WORK/files"
    random_file "$WORK/files/part" 3M "9$1"
    cat "$WORK/files/part" "$WORK/xfs/n1/common.img" >"$WORK/files/one"
    stock snapshot create "$WORK/files" >"$WORK/stock.out" 2>&1 ||
        fail "stock Kopia backs up" "$(tail -n 5 "$WORK/stock.out")"
    cp -a "$WORK/files" "$WORK/files.$1"
}
maintain() { # until the round is over, each kind at least once; $WORK/maintained: RC KIND BEGIN END
    local n=0 kind=--quick began
    of n1
    until [ -e "$WORK/over" ] && [ $n -ge 2 ]; do
        began=$(date +%s%N)
        ask maintenance ${kind#--quick} --wait >"$WORK/maintain.out" 2>&1
        echo "$? $kind $began $(date +%s%N) $(tail -n 1 "$WORK/maintain.out")" >>"$WORK/maintained"
        [ $((n += 1)) -ne 0 ] && [ $kind = --quick ] && kind=--full || kind=--quick
    done
}
backups_of() { awk -v n="$1" '$3 == n { print $2 }' "$WORK/written" | grep -vxF "$deleted"; } # NODE
# Backups of all nodes in a round that were under way at the same time: those of the volumes of their own.
together() { # ROUND
    awk -v r="$1" '$1 == r && $4 == "own" { n++; if ($8 > b) b = $8; if (!e || $9 < e) e = $9 }
        END { exit !(n == 3 && b < e) }' "$WORK/written"
}
beside() { # how many full runs there were while a backup was under way
    awk 'NR == FNR { b[NR] = $8; e[NR] = $9; n = NR; next }
        $2 == "--full" { for (i = 1; i <= n; i++) if ($3 < e[i] && b[i] < $4) { k++; break } } END { print k + 0 }' \
        "$WORK/written" "$WORK/maintained"
}
snapshot_of() { # BACKUP: of its only volume
    jq -r --arg b "$1" '.snapshots[] | select((.incomplete // "") == "" and .tags["tag:backup"] == $b) | .id' \
        "$WORK/snapshots"
}

n=0
for node in $NODES; do configure "$node" $((n += 1)); done
check "the first node creates the repository" r repo create --quiet --splitter FIXED-1M --pack-size 10MiB
for node in $NODES; do
    of "$node"
    starts "$node starts"
    pid[$node]=$DPID
    daemon_alive || finish
    check "$node finds the repository" until_true 60 up
done
if [ "$KOPIA" ]; then
    export KOPIA_PASSWORD="test password" KOPIA_CHECK_FOR_UPDATES=false KOPIA_CONFIG_PATH=$WORK/k.config \
        KOPIA_LOG_DIR=$WORK/klog KOPIA_CACHE_DIRECTORY=$WORK/kcache AWS_EC2_METADATA_DISABLED=true
    check "stock Kopia connects to it" stock repository connect s3 --root-ca-pem-path="$S3_CA" \
        --endpoint="127.0.0.1:$port" --bucket=bucket --prefix=repo/ --region=us-east-1 --access-key=a \
        --secret-access-key=b --override-username=stock --override-hostname=n4
    check "and makes epochs short" stock repository set-parameters --epoch-min-duration=1h \
        --epoch-advance-on-count=10
fi
: >"$WORK/maintained"
round=0
write n1 common
for round in $(seq $ROUNDS); do
    rm -f "$WORK/over"
    [ "$round" = 1 ] || for node in $NODES; do change "$node" "$round"; done
    writers=()
    for node in $NODES; do write "$node" own common & writers+=($!); done
    maintain & maintainer=$!
    [ -z "$KOPIA" ] || { stock_writes "$round" & writers+=($!); }
    if [ "$round" = 2 ]; then
        of n2
        deleted=$(awk '$3 == "n2" && $4 == "own" { print $2; exit }' "$WORK/written")
        check "n2 deletes a backup meanwhile" ask delete "$deleted" --yes --even-kept --wait --quiet
    fi
    wait "${writers[@]}"
    touch "$WORK/over"
    wait $maintainer
    same "round $round: all backups are complete" \
        "$(awk -v r="$round" '$1 == r { print $6 }' "$WORK/written" | sort | uniq -c | tr -s ' ')" " 6 Completed"
    while read -r _ id node _ _ state _; do # why not, for who reads the output
        [ "$state" = Completed ] || { of "$node"; ask describe "$id" 2>&1 | sed 's/^/# /'; }
    done < <(awk -v r="$round" '$1 == r' "$WORK/written")
    check "round $round: of all nodes at the same time" together "$round"
    [ "$round" != 1 ] || first=$(stored)
    age 25
done
echo "# $(stored) bytes, $(awk '{ print $2 }' "$WORK/maintained" | sort | uniq -c | paste -sd' ' | tr -s ' ') runs," \
    "$(beside) full ones beside backups, write epoch $(r repo status --json | result writeEpoch)"
same "no run of maintenance failed" "$(grep -v ^0 "$WORK/maintained")" ""
check "full ones ran beside backups" [ "$(beside)" -ge $ROUNDS ]
check "the epoch has advanced" [ "$(r repo status --json | result writeEpoch)" -ge 1 ]

# Cut at whole MiB: 12 that all have, 8 of each node; of stock Kopia, whose file has the 12 in it, 3.
check "what all have in common was stored once" [ "$first" -lt $(((12 + 24 + 2 + ${KOPIA:+4}+0) * MIB)) ]
same "and never again" "$(awk '$1 > 0 && $4 == "common" { s += $7 } END { print s + 0 }' "$WORK/written")" 0
expect "all of it verifies" 0 'no damage found' -- r verify --read-percent 100

# Every backup is restored as its volume was, by the command with the repository of another node's configuration.
r snapshot list --all --json | tail -n 1 >"$WORK/snapshots"
whole=0 lost=
while read -r _ id node volume want _; do
    [ "$id" != "$deleted" ] || continue
    rm -f "$WORK/out"
    if r restore "$(snapshot_of "$id")" "$WORK/out" --quiet >"$WORK/restore.log" 2>&1 &&
        [ "$(sum_of "$WORK/out")" = "$want" ]; then
        whole=$((whole + 1))
    else
        lost+="$id of $node, $volume: $(tail -n 1 "$WORK/restore.log")"$'\n'
    fi
done <"$WORK/written"
same "all are restored bit for bit" "$whole $lost" "$((1 + 6 * ROUNDS - 1)) "
same "the deleted one is gone" "$(snapshot_of "$deleted")" ""

# Each node sees what the others stored, and restores it.
for node in $NODES; do
    of "$node"
    for other in $NODES; do
        [ "$node" != "$other" ] || continue
        ask scan main --node "$other" --wait --quiet >"$WORK/scan.out" 2>&1 ||
            fail "$node scans" "$(cat "$WORK/scan.out")"
        same "$node sees all backups of $other" "$(backups_of "$other" | grep -vxFf <(askj backups --all |
            jq -r --arg n "$other" '.backups[] | select(.node == $n) | .id'))" ""
    done
    id=$(awk -v n="$other" '$3 == n && $4 == "own" { id = $2 } END { print id }' "$WORK/written")
    [ "$node" = "$other" ] || restored_same "$node restores the last one of $other" "$id" "$WORK/xfs/$other/own.img" \
        "$WORK/xfs/$other/own.img" repository
done
if [ "$KOPIA" ]; then
    check "stock Kopia verifies all of it" stock snapshot verify --verify-files-percent=100
    same "and lists all snapshots" "$(stock snapshot list --all --json | jq length)" $((6 * ROUNDS + ROUNDS))
    for node in $NODES; do
        id=$(awk -v n="$node" '$3 == n && $4 == "own" { id = $2 } END { print id }' "$WORK/written")
        stock show "$(jq -r --arg b "$id" '.snapshots[] | select(.tags["tag:backup"] == $b) | .rootEntry.obj' \
            "$WORK/snapshots")/volume.img" >"$WORK/got"
        check "stock Kopia restores the last one of $node" cmp "$WORK/got" "$WORK/xfs/$node/own.img"
    done
    round=0
    for id in $(jq -r '[.snapshots[] | select(.source.userName == "stock")] | sort_by(.startTime)[].id' \
        "$WORK/snapshots"); do
        r restore "$id/one" "$WORK/one" --force --quiet
        check "the file of stock Kopia of round $((round += 1)) is restored as it was" cmp "$WORK/one" \
            "$WORK/files.$round/one"
    done
    same "of all rounds" $round $ROUNDS
fi
for node in $NODES; do
    of "$node"
    stops "$node stops"
done
explain_failure
finish
