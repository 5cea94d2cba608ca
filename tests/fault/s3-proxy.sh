#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Object storage over a bad network (CF-53, issue 15): what lies between is a proxy of the tests (tools/tcp-proxy.py)
# that passes bytes on late, in odd pieces and slowly, resets connections in the middle and lets them hang. Backups,
# restores, verifications and maintenance succeed, or end with an error that names the cause and are run again; nothing
# is lost. The bucket is that of tools/s3-faults.py, which is a directory for what looks into it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
. tests/s3-lib.sh
n=0
for v in a b c d e; do random_file "$WORK/$v" 6000000 $((n += 1)); done
R=$WORK/repo
s3_service tree /usr/bin/python3 tests/tools/s3-faults.py "$WORK/tree.port" "$WORK"
behind=127.0.0.1:$port
mkdir -p "$WORK/conf/conf.d"
printf '[daemon]\nnode-name = n1\n' >"$WORK/conf/snapferry.ini"
declare -A control
bad_network() { # NAME: a proxy, and the repository through it
    s3_service "$1" /usr/bin/python3 tests/tools/tcp-proxy.py "$WORK/$1.port" "$behind"
    { read -r port && read -r "control[$1]"; } <"$WORK/$1.port"
    printf '[repository "%s"]\ntype = s3\nendpoint = http://127.0.0.1:%s\nbucket = b\nprefix = repo/\n' "$1" "$port" \
        >"$WORK/conf/conf.d/$1.ini"
    printf 'credentials = %s/s3-keys\npassword-file = %s/password\n' "$WORK" "$WORK" >>"$WORK/conf/conf.d/$1.ini"
}
proxy() { curl -s --noproxy '*' "http://127.0.0.1:${control[$1]}/$2"; }
network() { # NAME SETTING=VALUE...: what is not named is as in a network without faults
    local all=(delay=0 rate=0 pieces=0 resets=0 freezes=0 frozen=0 most=1000000 refuse=0) w path=set
    declare -A to
    for w in "${all[@]}" "${@:2}"; do to[${w%=*}]=${w#*=}; done
    for w in "${!to[@]}"; do path+=/$w/${to[$w]}; done
    [ "$(proxy "$1" $path)" = ok ] || fail "the proxy is set: $path"
}
seen() { proxy "$1" seen | jq ".$2"; }
over() { "$SF" --config-dir "$WORK/conf" --cache-dir "$WORK/cache-$1" -r "$@"; } # NAME VERB...
backup() { over "$1" backup "$WORK/$2" --as "$2@h:/v" --quiet; }                 # NAME VOLUME
restore() { over "$1" restore latest --as "$2@h:/v" "$WORK/out.$1.$2" --quiet; }
maintain() { over "$1" maintenance --full --quiet; }
until_true() { # SECONDS COMMAND...
    local end=$((SECONDS + $1 * ${PATIENCE:-4}))
    until "${@:2}" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}
restored() { # TEXT NAME VOLUME
    check "$1" restore "$2" "$3"
    check "... as it was" cmp "$WORK/$3" "$WORK/out.$2.$3"
    rm -f "$WORK/out.$2.$3"
}
whole() { expect "$1" 0 'no damage found' -- sf "$R" verify; } # without the network
age() { "$TOOLS/age_repository" "$R" "$WORK/password" "$1"; }
bytes() { find "$R/p" -type f -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }'; }
bad_network bad
bad_network dying
BAD="delay=10 pieces=4000 resets=35 freezes=20 frozen=700 most=2000000"

network bad $BAD
check "a repository" over bad repo create --quiet --splitter FIXED-128K --pack-size 10MiB
check "a backup" backup bad a

# Over the other proxy each begins while the network is slow, and then nothing gets through any more.
network dying delay=10 rate=60000
declare -A pid
began=$SECONDS
backup dying b >"$WORK/log.backup" 2>&1 & pid[backup]=$!
restore dying a >"$WORK/log.restore" 2>&1 & pid[restore]=$!
over dying verify --quiet >"$WORK/log.verify" 2>&1 & pid[verify]=$!
under_way() { proxy dying seen | jq -e '.up > 60000 and .down > 100000'; }
until_true 20 under_way || fail "they are under way" "$(proxy dying seen)"
network dying resets=100 most=300
same "three connections and more break" "$(($(proxy dying reset) >= 3))" 1
maintain dying >"$WORK/log.maintenance" 2>&1 & pid[maintenance]=$!

# Meanwhile: a network that is slow and breaks now and then.
check "another backup" backup bad c
restored "a restore" bad a
expect "a verification" 0 'no damage found' -- over bad verify
check "maintenance" maintain bad
check "connections were reset meanwhile" [ "$(seen bad resets)" -gt 0 ]
check "and others hung" [ "$(seen bad freezes)" -gt 0 ]

# All connections there are break or hang, in mid-backup.
network bad delay=10 rate=2000000 frozen=700
backup bad d >"$WORK/log.d" 2>&1 &
d=$!
did() { # reset|freeze: at least one connection, while the backup runs
    local i
    for i in $(seq 200); do
        [ "$(proxy bad "$1")" = 0 ] || return 0
        kill -0 $d 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}
for what in reset freeze reset; do
    sleep 1
    check "in mid-backup: $what" did $what
done
wait $d
same "the backup ends right" "$? $(cat "$WORK/log.d")" "0 "
restored "it is restored" bad d

# A restore whose connections hang for good is canceled.
network bad delay=10 rate=1000000
restore bad c >"$WORK/log.c" 2>&1 &
d=$!
sleep 1
check "a restore hangs" did freeze
sleep 1
kill -INT "$(pgrep -P $d -x snapferry || echo $d)"
before=$SECONDS
wait $d
same "it is canceled" $? 130
check "at once" [ $((SECONDS - before)) -lt 20 ] # it would hang for 60 s
proxy bad reset >/dev/null

# What had no network any more: an error that says so, within the time of its attempts.
for what in backup restore verify maintenance; do
    wait "${pid[$what]}"
    rc=$?
    same "without a network: $what fails" "$rc" 1
    check "... and says why" grep -qE "^snapferry: .*the connection to 127.0.0.1:[0-9]+ failed: " "$WORK/log.$what"
done
check "in bounded time" [ $((SECONDS - began)) -lt $((60 * ${PATIENCE:-4})) ]
whole "nothing is damaged"
network dying
check "the network is back: the backup is run again" backup dying b
check "the restore is continued" over dying restore latest --as a@h:/v "$WORK/out.dying.a" --resume --quiet
check "... as it was" cmp "$WORK/a" "$WORK/out.dying.a"
expect "and the verification" 0 'no damage found' -- over dying verify
check "and maintenance" maintain dying

# The space of a deleted snapshot comes back, by maintenance over the bad network.
network bad $BAD
check "a snapshot is deleted" over bad snapshot delete latest --as c@h:/v --force --quiet
full=$(bytes)
for run in first second third; do
    age 25
    check "the $run full maintenance over the bad network" maintain bad
done
check "its space is back" [ "$(bytes)" -lt $((full - 5500000)) ]
whole "all else is whole"
for v in a b d; do restored "volume $v over the bad network" bad "$v"; done
echo "# $(proxy bad seen)"
finish
