# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of snapferryd share, on top of tests/lib.sh: scratch file systems, a daemon of one's own without
# systemd, questions to it, and the check that nothing is left behind. Needs root and loop devices.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
: "${BUILD:=build}" "${MOVER_USER:=root}" # e2e/own-users.sh runs tests with movers of another user
# The daemon starts the mover beside it: this one that which derives each key once (tests/snapferry/keys.c), unless
# DERIVE_KEYS is set.
if [ -z "${SNAPFERRYD:-}" ]; then
    SNAPFERRYD=$(realpath "$BUILD")/tests/snapferry/snapferryd
    [ -z "${DERIVE_KEYS:-}" ] && [ -x "$SNAPFERRYD" ] || SNAPFERRYD=$(realpath "$BUILD")/snapferryd
fi
[ -x "$SNAPFERRYD" ] || { echo "Bail out! there is no $SNAPFERRYD: run make first" >&2; exit 1; }
export SNAPFERRY_NO_SYSTEMD=1
CONF=$WORK/conf STATE=$WORK/state RUN=$WORK/run REPO=$WORK/repo LOG=$WORK/daemon.log
DPID=
MIB=1048576

need_root() {
    if is_root && [ -e /dev/loop-control ]; then return; fi
    skip "$1" "needs root and loop devices"
    finish
}

# fs_make NAME xfs|btrfs [MIB]: a file system of its own at $WORK/NAME.
fs_make() {
    local name=$1 type=$2 size=${3:-600} dev
    truncate -s "${size}M" "$WORK/$name.fs"
    case $type in
    xfs) mkfs.xfs -q -m reflink=1 "$WORK/$name.fs" ;;
    btrfs) mkfs.btrfs -q "$WORK/$name.fs" ;;
    *) mkfs."$type" -q "$WORK/$name.fs" ;;
    esac >/dev/null || return
    mkdir -p "$WORK/$name"
    dev=$(loop_device "$WORK/$name.fs") || return
    at_exit "losetup -d $dev"
    blockdev --setrw "$dev" # the flag outlives whoever set it
    mount "$dev" "$WORK/$name" || return
    at_exit "umount '$WORK/$name' || umount -l '$WORK/$name'"
    chmod 755 "$WORK/$name"
}

# ---- configuration ----

# config_main [LINE...]: the main file; the lines go into [daemon], in place of the defaults for tests.
config_main() {
    local d line
    mkdir -p "$CONF/conf.d" "$STATE" "$RUN" "$CACHE"
    {
        printf '[daemon]\n'
        for d in 'node-name = testnode' 'sweep = 1s' 'orphan-grace = 2s' 'log-level = debug' 'retry-first = 1s' \
            'retry-max = 2s' \
            'cancel-grace = 3s' 'slots = 2' 'changed-blocks = no'; do
            for line; do [ "${line%% =*}" = "${d%% =*}" ] && continue 2; done
            printf '%s\n' "$d"
        done
        printf '%s\n' "$@"
        printf '[metrics]\nlisten =\n' # tests run side by side; those of metrics say where in a file of conf.d
        printf '[mover]\nuser = %s\nmemory = 96MiB\nworkers = 1\n' "$MOVER_USER"
        # By the minute of the hour in which a test runs there would be an operation more.
        printf '[repository "main"]\ntype = filesystem\npath = %s\npassword-file = %s\nmaintenance = no\n' "$REPO" \
            "$WORK/password"
    } >"$CONF/snapferry.ini"
}
# config_class NAME DIR [LINE...]: a reflink class of the images in DIR, in a file of its own; a second call replaces
# it.
config_class() {
    local name=$1 dir=$2
    shift 2
    { printf '[storage-class "%s"]\ndriver = reflink\nmatch = %s/*.img\n' "$name" "$dir"; printf '%s\n' \
        "$@"; } >"$CONF/conf.d/50-$name.ini"
}
# A time of day for schedules that must not come while the test runs, at whatever time of day that is.
later() { date -d '+5 hours' +%H:%M; }
# config_add NAME TEXT: another file.
config_add() { printf '%s\n' "$2" >"$CONF/conf.d/$1.ini"; }

# ---- the daemon ----

# The command of `sf` (lib.sh): it starts in half the time.
ask() {
    opener
    "$SF" "$@" --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF"
}
# askj ARGS...: the result object alone. A problem of status that does not say what to do fails the test (finish).
askj() {
    local out
    out=$(ask "$@" --json 2>>"$WORK/ask.err")
    case $out in *$'\n'*) out=$(tail -n 1 <<<"$out") ;; esac
    [ "$1" != status ] || jq -r '.problems[]? | select((.hint // "") == "") | .text' <<<"$out" \
        >>"$WORK/no-hint" 2>/dev/null
    printf '%s\n' "$out"
}

# daemon_start [VAR=VALUE...]: starts it and waits until it answers. Fails if it ends instead.
daemon_start() {
    env "$@" "$SNAPFERRYD" --foreground --config-dir "$CONF" --state-dir "$STATE" --runtime-dir "$RUN" \
        --cache-dir "$CACHE" \
        >>"$LOG" 2>&1 </dev/null &
    DPID=$!
    local i
    for i in $(seq $((200 * PATIENCE))); do
        if [ -S "$RUN/control.sock" ] && ask status --json 2>/dev/null |
            jq -e '.offline != true and .daemon.pid > 0' >/dev/null 2>&1; then
            return 0
        fi
        kill -0 $DPID 2>/dev/null || { wait $DPID; return 1; }
        pause 0.05
    done
    return 1
}
# As tests of their own. (check would run them in a subshell, whose children are not ours.)
starts() {
    local name=$1
    shift
    if daemon_start "$@"; then pass "$name"; else fail "$name" "$(tail -n 15 "$LOG")"; fi
}
stops() { if daemon_stop; then pass "$1"; else fail "$1" "$(tail -n 15 "$LOG")"; fi; }
daemon_alive() { [ -n "$DPID" ] && kill -0 "$DPID" 2>/dev/null; }
daemon_stop() {
    [ -n "$DPID" ] && kill -TERM "$DPID" 2>/dev/null && wait "$DPID" 2>/dev/null
    local rc=$?
    DPID=
    return $rc
}
daemon_kill() { [ -n "$DPID" ] && kill -KILL "$DPID" 2>/dev/null && wait "$DPID" 2>/dev/null; DPID=; }
# daemon_gone SECONDS: waits until it has ended by itself.
daemon_gone() {
    local i
    for i in $(seq $(($1 * 20 * PATIENCE))); do
        daemon_alive || { wait "$DPID" 2>/dev/null; DPID=; return 0; }
        pause 0.05
    done
    return 1
}
ours() { pgrep -f -- "$WORK/" 2>/dev/null; }
end_all() {
    local p
    daemon_kill
    for p in $(ours); do [ "$p" = $$ ] || kill -KILL "$p"; done
}
at_exit end_all

# What movers of another user work with belongs to it, as the package sets it up.
own_user() {
    chmod 755 "$WORK"
    chown -R "$MOVER_USER" "$REPO" "$CACHE"
}
# daemon_setup: repository and main configuration, not started.
daemon_setup() {
    sf "$REPO" repo create --quiet --splitter DYNAMIC-1M-BUZHASH || return
    config_main "$@"
    [ "$MOVER_USER" = root ] || own_user
}

# ---- states ----

# doc ID: the backup's or operation's document.
doc() { askj describe "$1" | jq -c '.backup // .operation // .native // .volume // empty'; }
# AWAIT: the tool that asks for a state, and waits for one, without a process for each question.
AWAIT=$TOOLS/await_state
[ -x "$AWAIT" ] || AWAIT=false
state() {
    local s rc
    s=$("$AWAIT" "$RUN/control.sock" "$1" 2>/dev/null)
    rc=$?
    if [ $AWAIT != false ] && [ $rc -ne 3 ]; then
        [ -z "$s" ] || echo "$s"
        return 0
    fi
    state_asked "$1"
}
# By the command, which also looks into the records of a daemon that does not run.
state_asked() {
    ask describe "$1" --json 2>>"$WORK/ask.err" | jq -r '(.backup // .operation // .native // .volume // empty).state'
}
final() { [[ $1 =~ ^(Completed|PartiallyFailed|Failed|Canceled|Skipped|Unknown|none|\|)*$ ]]; } # only such states
terminal() { case $1 in Completed | PartiallyFailed | Failed | Canceled | Skipped | Unknown) true ;; *) false ;; esac; }
# The seconds of a limit are those of an idle machine; on a busy one what is waited for may take several times as long.
: "${PATIENCE:=4}"
# wait_state ID REGEX SECONDS: until the state matches; prints the last one.
wait_state() {
    local s= end=$((SECONDS + $3 * PATIENCE)) pause=0.1 n=0 rc
    while [ $SECONDS -le $end ]; do
        s=$("$AWAIT" "$RUN/control.sock" "$1" "$2" $((end - SECONDS)) 2>/dev/null)
        rc=$?
        [ $AWAIT = false ] || [ $rc -eq 3 ] || { echo "$s"; return $rc; }
        s=$(state_asked "$1")
        [[ $s =~ ^($2)$ ]] && { echo "$s"; return 0; }
        terminal "$s" && break
        # A final state is not missed by looking less often.
        [ $((n += 1)) -ne 5 ] || ! final "$2" || pause=0.3
        pause $pause
    done
    echo "$s"
    return 1
}
# until_true SECONDS COMMAND...: polls; what takes long itself is asked less often, so that at most a third of the time
# goes into the questions. Where it is expected not to come true: PATIENCE=1 until_true ...
until_true() {
    # What is called may name variables of its caller: these are called as none of them is.
    local until_end=$((SECONDS + $1 * PATIENCE)) until_pause=100 until_asked=0 until_from until_took
    shift
    while until_from=${EPOCHREALTIME/[.,]/}; ! "$@" >/dev/null 2>&1; do
        [ $SECONDS -ge $until_end ] && return 1
        until_took=$(((${EPOCHREALTIME/[.,]/} - until_from) / 500)) # twice, in milliseconds
        [ $((until_asked += 1)) -ne 20 ] || until_pause=200
        [ $until_took -gt $until_pause ] || until_took=$until_pause
        [ $until_took -lt 999 ] || until_took=999
        printf -v until_took '0.%03d' $until_took
        pause $until_took
    done
}
# submit ARGS...: a backup; prints its id.
submit() { askj backup "$@" | jq -r '.backup // empty'; }
# ops BACKUP: its operations' documents, one per line.
ops() { askj describe "$1" | jq -c '.backup.operations[]?'; }
op_id() { ops "$1" | jq -r --arg v "${2:-}" 'select($v == "" or .volume == $v) | .id' | head -n 1; }
mover_pid() { doc "$1" | jq -r '.mover.pid // .details.mover.pid // empty'; }
# The file in which an operation's mover leaves its result (daemon/protocol/mover-files.c).
result_of() { echo "$STATE/results/$(printf %s "$1" | sha256sum | head -c 32).json"; }
# hold_mover OPERATION SECONDS: waits until it is recorded as Running and stops its process at once (SIGSTOP). Prints
# the PID. Fails also if it has ended before that was seen.
hold_mover() {
    local end=$((SECONDS + $2)) now state pid
    while [ $SECONDS -le $end ]; do
        now=$(sql "SELECT state, json_extract(doc, '$.identity.pid') FROM operations WHERE id = '$1'" 2>/dev/null)
        state=${now%%|*} pid=${now#*|}
        if [ "$state" = Running ] && [ -n "$pid" ]; then
            kill -STOP "$pid" 2>/dev/null || return
            for _ in $(seq 100); do
                grep -q '^State:.[TZ]' "/proc/$pid/status" 2>/dev/null && break
                sleep 0.02
            done
            # What has left its result has done its work, although the record knows nothing of it yet.
            grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null && [ ! -s "$(result_of "$1")" ] && echo "$pid" && return
            kill -CONT "$pid" 2>/dev/null
            return 1
        fi
        terminal "$state" && return 1
        sleep 0.01
    done
    return 1
}
# running VOLUME [OTHER...]: a backup in which the mover of VOLUME stands still in the middle: sets A (backup), O
# (operation), PID, and BEFORE (native snapshots of VOLUME before it). Movers of small volumes are quick: one that has
# ended before it could be stopped is followed by another try.
running() {
    local try
    for try in $(seq 30); do
        BEFORE=$(natives_of "$1" | sort)
        A=$(submit "$@"); O=$(op_id "$A" "$1")
        if PID=$(hold_mover "$O" 20); then
            sleep 0.1
            [ "$(sql "SELECT state FROM operations WHERE id = '$O'")" = Running ] && return 0
            kill -CONT "$PID" 2>/dev/null
        fi
        wait_state "$A" none 20 >/dev/null
    done
    fail "a mover can be stopped in the middle" "$(doc "$O")"
    explain_failure
    finish
}
# Operations and backups that have not ended; by the records first, which is quicker than to ask the daemon for all.
unfinished() {
    local rows
    rows=$(sql "SELECT id || ' ' || state FROM
        (SELECT id, state FROM operations UNION ALL SELECT id, state FROM backups) WHERE state NOT IN
        ('Completed', 'PartiallyFailed', 'Failed', 'Canceled', 'Skipped', 'Unknown')" 2>/dev/null)
    [ -z "$rows" ] || { echo "$rows"; return; }
    { askj operations --all | jq -r '.operations[] | .id + " " + .state'; askj backups --all |
        jq -r '.backups[] | .id + " " + .state'; } |
        while read -r id s; do terminal "$s" || echo "$id $s"; done
}
settled() { [ -z "$(unfinished)" ]; }

# ---- records and storage from the outside ----

sql() { sqlite3 -readonly "$STATE/records.db" "$1"; }
natives_of() {
    askj native list | jq -r --arg v "${1:-}" \
        '.natives[] | select($v == "" or .volume == $v) | select(.state == "present") | .alias'
}
stored_natives() { find "$@" -path '*/.snapferry/*' -name '*.native' 2>/dev/null; }
stored_others() {
    find "$@" \( -path '*/.snapferry/*' -o -name '*.snapferry-*' -o -name '.snapferry-*' \) -type f \
        ! -name '*.native' 2>/dev/null
}

# clean_state DIR...: nothing is unfinished, no intent is open, no intermediate or staging file lies around, and the
# native snapshots on storage are those of the records, one for one. Says what is wrong.
clean_state() {
    local open left known found bad=0
    open=$(unfinished); [ -z "$open" ] || { echo "unfinished: $open"; return 1; }
    open=$(sql "SELECT owner || ' ' || kind || ' ' || name FROM intents"); [ -z "$open" ] ||
        { echo "open intents: $open"; bad=1; }
    left=$(stored_others "$@"); [ -z "$left" ] || { echo "left on storage: $left"; bad=1; }
    known=$(sql "SELECT id FROM natives WHERE state = 'present'" | sort)
    found=$(stored_natives "$@" | sed 's/.*\///; s/\.native$//' | sort)
    [ "$known" = "$found" ] || { echo "recorded native snapshots: $known"; echo "on storage: $found"; bad=1; }
    left=$(pgrep -f "snapferry-mover.*$WORK/" | tr '\n' ' '); [ -z "$left" ] || { echo "movers: $left"; bad=1; }
    return $bad
}
# clean NAME SECONDS DIR...: becomes clean within so many seconds.
clean() {
    local name=$1 seconds=$2
    shift 2
    # Not asked twice: the daemon may begin to look at a repository in between.
    if until_true "$seconds" clean_state "$@"; then pass "$name"; else check "$name" clean_state "$@"; fi
}

# ---- data ----

# image FILE MIB SEED: half random, a hole, some text.
image() {
    random_file "$1" $(($2 * MIB / 2)) "$3"
    truncate -s "$2M" "$1"
    printf 'end of %s' "$3" | dd of="$1" bs=1 seek=$(($2 * MIB - 512)) conv=notrunc status=none
    sync "$1"
}
sum_of() { sha256sum <"$1" | cut -d' ' -f1; }
# restored_same NAME BACKUP VOLUME ORIGINAL FROM: restores into a new file and compares.
restored_same() {
    local out
    out=$(dirname "$3")/restored.$RANDOM.out
    if ask restore "$2/$3" "$out" --from "$5" --wait --quiet >"$WORK/restore.log" 2>&1 && cmp -s "$4" "$out"; then
        pass "$1"
    else
        fail "$1" "$(tail -n 5 "$WORK/restore.log")" "$(cmp "$4" "$out" 2>&1)"
    fi
    rm -f "$out"
}
# When a test fails, what the daemon said helps.
explain_failure() {
    [ $failures -eq 0 ] || { echo "# --- last lines of the daemon:"; tail -n "${1:-40}" "$LOG" | sed 's/^/# /'; }
}
