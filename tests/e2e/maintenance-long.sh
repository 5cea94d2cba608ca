#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Rounds of a mixed life of a repository (CF-40, CF-42): backups, incremental ones, deletions, writers that are late,
# killed or stopped for a while, maintenance that is quick, full, killed, run twice at once; with KOPIA=/path/to/kopia
# also stock Kopia's snapshots, deletions and maintenance, the ownership handed over each time. Hours or days pass
# between two rounds. After each of them every snapshot is whole and restored as it was, no deleted one is back, no
# content was dropped and no pack deleted earlier than the rules allow; at last all that is unneeded is gone.
#   ROUNDS=n SEED=s, NOTES=1 shows all that was done, KEEP=DIR keeps a repository of a failure (make maintenance-long)
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../s3-lib.sh"
[ -z "${THROUGH_S3:-}" ] || through_s3
export KOPIA_CHECK_FOR_UPDATES=false
: "${ROUNDS:=2}" "${SEED:=1}" "${KOPIA:=}"
[ -z "$KOPIA" ] || [ -x "$KOPIA" ] || { echo "Bail out! there is no $KOPIA"; exit 1; }
RANDOM=$SEED
R=$WORK/repo OURS=snapferry-maintenance@n1
volumes="a b c d"
declare -A state  # of a source: the sum of its content now
declare -A live   # of a snapshot: its source, and the sum it must have; "" for an incomplete one
declare -A gone   # snapshots that were deleted
declare -A was    # packs before maintenance: when they were written
notes=$WORK/notes
: >"$notes"
round=0 hour=0    # that has passed since the beginning
note() { echo "$SEED.$round @${hour}h $*" >>"$notes"; }
trouble() { # what the last steps were
    fail "seed $SEED round $round at hour $hour: $1" "${@:2}" "$(tail -n 25 "$notes")"
    [ -z "${KEEP:-}" ] || cp -a "$R" "$KEEP/repo-$SEED.$round"
}

sf() { local repo=$1; shift; opener; ${LIMIT:-} "$SF" -r "$repo" --password-file "$WORK/password" "$@"; }

# ---- stock Kopia ----

k_at() { # REPOSITORY ARGS...
    local at=$1 n
    shift
    n=$(basename "$at")
    # Its lists are never cached: a round would be within the validity of a list, although days pass.
    [ -e "$WORK/$n.config" ] ||
        "$KOPIA" --config-file "$WORK/$n.config" --password "test password" --log-level=error --log-dir "$WORK/log" \
            repository connect filesystem --path "$at" --cache-directory "$WORK/kc-$n" --no-check-for-updates \
            --max-list-cache-duration=0s --override-username stock --override-hostname here >/dev/null 2>&1
    ${LIMIT:-} "$KOPIA" --config-file "$WORK/$n.config" --password "test password" --no-progress --log-level=error \
        --log-dir "$WORK/log" "$@" 2>&1
}
k() { k_at "$R" "$@"; }

# ---- what there is ----

packs() { find "$R/p" "$R/q" -type f -name '*.f' -printf '%P %T@ %s %H\n' 2>/dev/null |
    awk '{ sub(/\.f$/, "", $1); gsub("/", "", $1); n = split($4, d, "/"); print d[n] $1, int($2), $3 }'; }
# The write epoch, complete sets of epochs and of ranges, and blobs of flushes.
epochs() {
    find "$R" -type f -path "$R/x*" -printf '%P\n' | sed 's/\.f$//; s,/,,g' |
        awk '/^xe/ && substr($0, 3) + 0 > w { w = substr($0, 3) + 0 } { sub(/_[0-9a-f]{20,}.*/, "") }
            /^xs/ && !had[$0]++ { s++ } /^xr/ && !had[$0]++ { r++ } /^xn/ { n++ }
            END { print w + 0, s + 0, r + 0, n + 0 }'
}
pack_bytes() { packs | awk '{ s += $3 } END { print s + 0 }'; }
entries() { "$TOOLS/index_entries" "$R" "$WORK/password"; }
listed() { # ID SOURCE INCOMPLETE
    sf "$R" snapshot list --all --json | tail -n 1 |
        jq -r '.snapshots[] | [.id, .source.userName, if (.incomplete // "") == "" then "-" else "+" end] | @tsv'
}
# New snapshots are of what their source contains; those that were there are there.
account() { # WHEN
    local id source part seen=" "
    listed >"$WORK/listed" || { trouble "$1: snapshots cannot be listed"; return; }
    while read -r id source part; do
        seen+="$id "
        [ -z "${gone[$id]+x}" ] || trouble "$1: deleted snapshot $id of $source is back"
        [ -n "${live[$id]+x}" ] && continue
        live[$id]="$source $([ "$part" = + ] || echo "${state[$source]}")"
    done <"$WORK/listed"
    for id in "${!live[@]}"; do
        case $seen in *" $id "*) continue ;; esac
        # The checkpoint of a backup is removed by the snapshot that completes it.
        [ "${live[$id]#* }" ] && trouble "$1: snapshot $id (${live[$id]}) is missing"
        unset "live[$id]"
    done
}
complete() { for id in "${!live[@]}"; do [ -z "${live[$id]#* }" ] || echo "$id"; done | sort; }

# ---- what happens in a round ----

change() { # SOURCE: new content
    local f=$WORK/$1 i
    if [ ! -e "$f" ]; then
        [ "$1" = tree ] && mkdir "$f" && f=$f/f
        random_file "$f" 4000000 $((SEED * 1000 + RANDOM))
    else
        [ "$1" = tree ] && f=$f/f
        case $((RANDOM % 6)) in
            0) random_file "$f" $((3000000 + RANDOM * 40)) $RANDOM ;;
            1) cp "$(ls -d "$WORK"/[abcd] | shuf -n 1 --random-source=<(yes $RANDOM))" "$WORK/copied" &&
                cat "$WORK/copied" >"$f" ;;
            *) for i in 1 2 3; do
                   openssl rand 90000 | dd of="$f" bs=4096 seek=$((RANDOM % 900)) conv=notrunc status=none
               done ;;
        esac
    fi
    state[$1]=$(sha256sum <"$f")
    state[$1]=${state[$1]%% *}
}
crash_at() { # one of the steps of a backup
    local at=(marker-put chunk-stored:4 pack-renamed pack-renamed:2 pack-written index-written marker-deleted
        before-final-flush after-final-flush)
    echo "${at[RANDOM % ${#at[@]}]}"
}
backup() { # REPOSITORY SOURCE [CRASH-AT]
    if [ "$2" = tree ]; then
        k_at "$1" snapshot create "$WORK/tree" --override-source "tree@here:/tree" --no-auto-maintenance
    else
        SNAPFERRY_CRASH_AT=${3:-} sf "$1" backup "$WORK/$2" --as "$2@h:/v" --quiet
    fi
}
is_child() { [ "$(awk '{ print $4 }' "/proc/$2/stat" 2>/dev/null)" = "$1" ]; } # PARENT PID
slow() { # PID of the shell that runs it: stopped for a while, at any time
    local n p=
    for n in 1 2 3 4 5 6 7 8 9 10; do
        p=$(pgrep -P "$1") && break
        sleep 0.01
    done
    sleep "0.$((RANDOM % 9))"
    # One that has ended may be somebody else's by now; one that is stopped does not end.
    is_child "$1" "${p:-none}" && kill -STOP "$p" && sleep "$((RANDOM % 2)).$((RANDOM % 9))" && kill -CONT "$p"
}
killed() { # COMMAND...: killed after up to two seconds, unless it has ended
    LIMIT="timeout -s KILL $((RANDOM % 2)).$((1 + RANDOM % 9))" "$@"
}
# A writer whose view is from before the maintenance, and whose index comes after it.
late_begin() { # SOURCE [CRASH-AT]
    rm -rf "$WORK/other" "$WORK/stamp"
    touch "$WORK/stamp"
    cp -a "$R" "$WORK/other"
    change "$1"
    backup "$WORK/other" "$@" >"$WORK/out" 2>&1 || [ "${2:-}" ] ||
        trouble "late backup of $1" "$(tail -n 5 "$WORK/out")"
}
late_end() {
    (cd "$WORK/other" && find . -type f -newer "$WORK/stamp" ! -name 'kopia.*' ! -name '*.tmp.*') |
        while read -r f; do mkdir -p "$R/${f%/*}" && cp -an "$WORK/other/$f" "$R/$f"; done
}
handed() { # OWNER: to stock or back
    k maintenance set --owner="$1" >/dev/null || trouble "ownership cannot be handed to $1"
}
maintain_args() { [ $((RANDOM % 4)) = 0 ] || echo --full; }
# At what a run of ours may be killed.
maintenance_crash() {
    local at
    at=($(grep -rhoE 'crash_point\("maintenance-[a-z-]+"\)' repo daemon --include=*.c | grep -oE 'maintenance-[a-z-]+' |
        sort -u))
    echo "${at[RANDOM % ${#at[@]}]}:$((1 + RANDOM % 3))"
}
before_maintenance() {
    was=()
    while read -r name time _; do was[$name]=$time; done < <(packs)
    entries >"$WORK/entries"
    begun=$(date +%s)
}
# By the rules: a content is dropped 5 hours after it was marked at the earliest, a pack deleted with 24 hours.
after_maintenance() { # WHO
    local name early
    entries | sort >"$WORK/now" # before the packs, which come first
    packs | cut -d' ' -f1,3 | sort >"$WORK/packs"
    early=$(awk '$6 == "live" || $6 == "deleted" { print $2, $3, $1 }' "$WORK/now" | sort |
        join -a 1 -e MISSING -o 0,1.2,1.3,2.2 - "$WORK/packs" | awk '$4 == "MISSING" || $4 < $2' | head -n 3)
    [ -z "$early" ] || trouble "$1: contents without their pack" "$early"
    early=$(awk '{ print $1, $5, $6 }' "$WORK/now" | sort | join - <(awk '{ print $1, $6 }' "$WORK/entries" | sort) |
        awk -v now="$begun" '$3 == "dropped" && ($4 == "live" || $4 == "deleted" && now - $2 < 5 * 3600)' | head -n 3)
    [ -z "$early" ] || trouble "$1: dropped too early" "$early"
    for name in "${!was[@]}"; do
        [ $((begun - was[$name])) -lt 86400 ] || continue
        grep -q "^$name " "$WORK/packs" || trouble "$1: pack $name was deleted too early"
    done
}
ours() { # [CRASH-AT]
    local args
    args=$(maintain_args)
    note "our maintenance $args ${1:-}"
    SNAPFERRY_CRASH_AT=${1:-} sf "$R" maintenance $args --node-name n1 --explain >"$WORK/out" 2>&1
    case $? in
        0) note "$(tail -n 1 "$WORK/out")" ;;
        137) [ "${1:-}" ] || trouble "our maintenance was killed" ;;
        *) trouble "our maintenance" "$(tail -n 15 "$WORK/out")" ;;
    esac
}
maintenance() {
    local pid pid2 out how=$((RANDOM % 12))
    before_maintenance
    if [ $how -lt 4 ] && [ "$KOPIA" ]; then
        note "stock maintenance $how"
        handed me
        if [ $how = 0 ]; then
            killed k maintenance run --full >"$WORK/out"
        fi
        out=$(k maintenance run $([ $how = 3 ] || echo --full)) || trouble "stock maintenance" "$out"
        handed $OURS
    elif [ $how = 4 ] || [ $how = 5 ]; then
        ours "$(maintenance_crash)"
        [ $how = 4 ] || ours
    elif [ $how = 6 ]; then
        note "two at once"
        sf "$R" maintenance --full --node-name n1 >"$WORK/m1" 2>&1 & pid=$!
        XDG_CACHE_HOME=$WORK/cache2 sf "$R" maintenance --full --node-name n1 >"$WORK/m2" 2>&1 & pid2=$!
        wait $pid || grep -qE 'another client began|is already running' "$WORK/m1" ||
            trouble "one of two" "$(cat "$WORK/m1")"
        wait $pid2 || grep -qE 'another client began|is already running' "$WORK/m2" ||
            trouble "two of two" "$(cat "$WORK/m2")"
    else
        ours
    fi
    after_maintenance "maintenance $how"
}
delete_some() {
    local n id all
    n=$((RANDOM % 3))
    [ "$(complete | wc -l)" -lt 14 ] || n=6
    for _ in $(seq $n); do
        all=($(complete))
        [ ${#all[@]} -gt 2 ] || return
        id=${all[RANDOM % ${#all[@]}]}
        note "delete $id ${live[$id]}"
        if [ "$KOPIA" ] && [ $((RANDOM % 2)) = 0 ]; then
            k snapshot delete "$id" --delete >"$WORK/out" || trouble "stock deletes $id" "$(cat "$WORK/out")"
        else
            sf "$R" snapshot delete "$id" --force --quiet >"$WORK/out" 2>&1 || trouble "delete $id" "$(cat "$WORK/out")"
        fi
        gone[$id]=1
        unset "live[$id]"
    done
}
source_any() { local all=($volumes); echo "${all[RANDOM % ${#all[@]}]}"; }
step() {
    local s at pid pid2 how=$((RANDOM % 10))
    s=$(source_any)
    case $how in
        0 | 1 | 2)
            change "$s"
            note "backup $s"
            backup "$R" "$s" >"$WORK/out" 2>&1 || trouble "backup of $s" "$(tail -n 5 "$WORK/out")" ;;
        3)
            change "$s"
            at=$(crash_at)
            [ "$s" = tree ] && at=
            note "backup $s killed at $at"
            backup "$R" "$s" "$at" >"$WORK/out" 2>&1 ;;
        4)
            change "$s"
            note "backup $s killed"
            killed backup "$R" "$s" >"$WORK/out" 2>&1 ;;
        5 | 6)
            note "late $s"
            late_begin "$s"
            maintenance
            late_end ;;
        7)
            at=$(crash_at)
            note "late $s killed at $at"
            late_begin "$s" "$at"
            maintenance
            late_end ;;
        8)
            change "$s"
            note "backup $s while maintenance runs"
            backup "$R" "$s" >"$WORK/out-b" 2>&1 & pid=$!
            slow $pid & pid2=$!
            maintenance
            wait $pid || trouble "backup of $s beside maintenance" "$(tail -n 5 "$WORK/out-b")"
            wait $pid2 ;;
        *) delete_some ;;
    esac
    account "step $how $s"
}
restored() { # ID
    local want=${live[$1]#* } source=${live[$1]%% *} sum
    rm -rf "$WORK/back"
    if [ "$source" != tree ]; then
        sf "$R" restore "$1" "$WORK/back" --quiet >"$WORK/out" 2>&1 || trouble "restore $1" "$(tail -n 5 "$WORK/out")"
        sum=$(sha256sum <"$WORK/back")
        [ "${sum%% *}" = "$want" ] || trouble "$1 of $source is restored with other content"
    fi
    [ "$KOPIA" ] && { [ "$source" = tree ] || [ $((round % 2)) = 0 ]; } || return 0
    rm -rf "$WORK/back"
    k snapshot restore "$1" "$WORK/back" >"$WORK/out" || trouble "stock restores $1" "$(tail -n 5 "$WORK/out")"
    sum=$(cat "$WORK/back/volume.img" "$WORK/back/f" 2>/dev/null | sha256sum)
    [ "${sum%% *}" = "$want" ] || trouble "$1 of $source is restored by stock with other content"
    chmod -R u+w "$WORK/back"
}
whole() { # all of them are restored with "all"
    local out id all
    out=$(sf "$R" verify --quiet 2>&1) || trouble "verify" "$out"
    if [ "$KOPIA" ] && { [ "${1:-}" = all ] || [ $((round % 2)) = 0 ]; }; then
        out=$(k snapshot verify --verify-files-percent=100 --no-auto-maintenance) || trouble "stock verifies" "$out"
        id=$(k manifest list --json --filter type:snapshot | jq -r '.[].id' | sort)
        [ "$id" = "$(printf '%s\n' "${!live[@]}" | sort)" ] ||
            trouble "stock lists other snapshots" "$(diff <(echo "$id") <(printf '%s\n' "${!live[@]}" | sort))"
        if [ "${1:-}" = all ]; then
            out=$(k content verify --full --no-auto-maintenance) || trouble "stock verifies contents" "$out"
        fi
    fi
    all=($(complete))
    [ "${1:-}" = all ] || all=("${all[RANDOM % ${#all[@]}]}")
    for id in "${all[@]}"; do restored "$id"; done
}
passes() { # HOURS
    "$TOOLS/age_repository" "$R" "$WORK/password" "$1" || trouble "aging"
    # What stock remembers of blobs is of the time before.
    rm -rf "$WORK"/kc-*/blob-list "$WORK"/kc-*/own-writes "$WORK"/kc-*/indexes "$WORK"/other.config "$WORK"/kc-other
    hour=$((hour + $1))
}

sf "$R" repo create --quiet --node-name n1 --splitter FIXED-128K --pack-size 10MiB
if [ "$KOPIA" ]; then
    volumes+=" tree"
    # With its default, 10, a snapshot of stock's deletes the eleventh of its source.
    k policy set --global --keep-latest=10000 >"$WORK/out" || trouble "retention of stock" "$(cat "$WORK/out")"
fi
# Epochs as short as stock Kopia accepts, but for each fourth seed: else 100 rounds are few for their compaction.
if [ "$KOPIA" ] && [ $((SEED % 4)) != 0 ]; then
    out=$(k repository set-parameters --epoch-min-duration=2h --epoch-advance-on-count=10 \
        --epoch-cleanup-safety-margin=1h --epoch-checkpoint-frequency=2) || trouble "epochs cannot be made short" "$out"
fi
for s in $volumes; do change "$s" && backup "$R" "$s" >/dev/null || trouble "first backup of $s"; done
account "the first backups"
hours=(1 3 5 13 25 25 25 25 49 100)
for round in $(seq "$ROUNDS"); do
    before=$failures
    for _ in $(seq $((2 + RANDOM % 3))); do step; done
    [ $((RANDOM % 3)) = 0 ] || maintenance
    account "the round"
    whole $([ $((round % 10)) = 0 ] && echo all)
    passes "${hours[RANDOM % ${#hours[@]}]}"
    [ $failures -gt 4 ] && break
    [ $failures -gt $before ] || [ $((round % 10)) != 0 ] ||
        echo "# seed $SEED: round $round at hour $hour, ${#live[@]} snapshots, $(pack_bytes) bytes; epoch, sets," \
            "ranges, flushes: $(epochs)"
done
same "seed $SEED: $round rounds, $hour hours" $failures 0

# Nothing is written any more: what is unneeded goes.
quiet_day() {
    passes 25
    before_maintenance
    sf "$R" maintenance --full --node-name n1 >"$WORK/out" 2>&1 ||
        trouble "maintenance at the end" "$(tail -n 15 "$WORK/out")"
    after_maintenance "at the end"
}
round=0 # the end
for _ in 1 2 3 4; do quiet_day; done
passes 360 # packs that no session accounts for
for _ in 1 2 3 4; do quiet_day; done
account "the end"
whole all
needed=$(entries | awk '$6 == "live" { s += $4 } END { print s + 0 }')
check "seed $SEED: $(pack_bytes) bytes for $needed that are needed" \
    [ "$(pack_bytes)" -lt $((needed * 10 / 6 + 2000000)) ]
check "seed $SEED: all contents that are live are needed" \
    [ "$(sf "$R" repo usage --json | result kept.young.count)" = 0 ]
for id in $(complete); do sf "$R" snapshot delete "$id" --force --quiet || trouble "delete $id"; done
for _ in 1 2 3 4 5; do quiet_day; done
check "seed $SEED: $(pack_bytes) bytes without snapshots" [ "$(pack_bytes)" -lt 1000000 ]
[ -z "${NOTES:-}" ] || cat "$notes"
finish
