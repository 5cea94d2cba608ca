# SPDX-License-Identifier: GPL-2.0-or-later
# What every shell test uses: `. tests/lib.sh`, then check "name" command..., last `finish`. Output is TAP.
set -u
: "${SNAPFERRY:=build/snapferry}" "${GOLDEN:=build/golden}" "${TOOLS:=build/tests/tools}"
SNAPFERRY=$(realpath "$SNAPFERRY") TOOLS=$(realpath -m "$TOOLS")
[ -x "$SNAPFERRY" ] || { echo "Bail out! there is no $SNAPFERRY: run make first" >&2; exit 1; }
[ -z "${ON_DISK:-}" ] || TMPDIR=${DISK_TMPDIR:-${TMPDIR:-/tmp}} SCRATCH= # not in memory (tests/run.sh)
WORK=$(mktemp -d "${SCRATCH:-${TMPDIR:-/tmp}/snapferry-test.}XXXXXX")
export XDG_CACHE_HOME=$WORK/cache HOME=$WORK SNAPFERRY_TEST_SALTS=$WORK/.salts
: >"$SNAPFERRY_TEST_SALTS"
CACHE=$WORK/cache
# jq 1.6 parses its builtins at every start, for 30 ms of CPU, and the tests start it thousands of times: theirs is
# gojq, the same language written in Go (2 ms), where it is installed. It orders the members of objects by their name.
# Plugins and hooks of the daemon have a PATH of their own and so the jq of users; JQ is that one.
JQ=$(type -P jq)
if type -P gojq >/dev/null; then
    mkdir "$WORK/.jq"
    ln -s "$(type -P gojq)" "$WORK/.jq/jq"
    PATH=$WORK/.jq:$PATH
fi
tests=0 failures=0
cleanup_commands=()

# at_exit 'command': runs last in, first out.
at_exit() { cleanup_commands=("$1" "${cleanup_commands[@]}"); }
is_ours() { # PID: what this shell, or something of it, has started, or what names the working directory
    local p=$1
    ! grep -qaF "$WORK" "/proc/$p/cmdline" 2>/dev/null || return 0
    while [ "${p:-0}" -gt 1 ]; do
        [ "$p" != $$ ] || return 0
        p=$(awk '/^PPid:/ {print $2}' "/proc/$p/status" 2>/dev/null)
    done
    return 1
}
leave() {
    local c
    # At the end the number of a process that has long ended may be that of another test's.
    kill() {
        local a how=()
        for a; do
            if [[ $a == -* ]]; then how=("$a"); elif is_ours "$a"; then builtin kill "${how[@]}" "$a"; fi
        done
    }
    for c in "${cleanup_commands[@]}"; do eval "$c" >/dev/null 2>&1; done
    rm -rf "$WORK"
    # What was killed under libfaketime leaves these; a later process with its number would fail.
    for c in /dev/shm/faketime_shm_* /dev/shm/sem.faketime_sem_*; do
        [ -e "/proc/${c##*_}" ] || rm -f "$c"
    done
}
trap leave EXIT

pass() { tests=$((tests + 1)); echo "ok $tests - $1"; }
fail() {
    tests=$((tests + 1)) failures=$((failures + 1))
    echo "not ok $tests - $1"
    shift
    printf '# %s\n' "$@"
}
skip() { tests=$((tests + 1)); echo "ok $tests - $1 # SKIP $2"; }

# check NAME COMMAND...: passes if the command succeeds.
check() {
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then pass "$name"; else fail "$name" "$* failed ($?)" "$(tail -n 15 <<<"$out")"; fi
}
# expect NAME CODE [PATTERN] -- COMMAND...: exit code, and an extended regular expression in the output.
expect() {
    local name=$1 code=$2 pattern= out rc
    shift 2
    if [ "$1" != -- ]; then pattern=$1; shift; fi
    shift
    out=$("$@" 2>&1)
    rc=$?
    if [ $rc -ne "$code" ]; then
        fail "$name" "$* exited with $rc, not $code" "$(tail -n 15 <<<"$out")"
    elif [ -n "$pattern" ] && ! grep -qE -- "$pattern" <<<"$out"; then
        fail "$name" "$*: no /$pattern/ in:" "$(tail -n 15 <<<"$out")"
    else
        pass "$name"
    fi
}
# same NAME A B: two values are equal.
same() { if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "\"$2\" is not \"$3\""; fi; }

# pause SECONDS: sleep(1) without a process.
mkfifo "$WORK/.pause"
pause() { read -rt "$1" <>"$WORK/.pause" || return 0; }
# secret FILE: what comes on standard input, in a file that only its owner can read, as password files have to be.
secret() { (umask 077; cat >"$1.secret") && mv -f "$1.secret" "$1"; }
# opener: sets SF to the command that derives each key once (tests/snapferry/keys.c), which lies in the build's
# directory, or to the one that is tested if there is none or DERIVE_KEYS is set. What is called as $SNAPFERRY, because
# it is killed, traced or waited for, is the same one where work is done (not in tests/cli, nor where it is installed).
opener() {
    SF=${SNAPFERRY%/*}/tests/snapferry/snapferry
    [ -z "${DERIVE_KEYS:-}" ] && [ -x "$SF" ] || SF=$SNAPFERRY
}
opener
case $0 in */e2e/* | */fault/*) SNAPFERRY=$SF ;; esac
# sf REPO ARGS...: that command on a repository with the test's password file and cache.
secret "$WORK/password" <<<"test password"
sf() {
    local repo=$1
    shift
    opener
    "$SF" -r "$repo" --password-file "$WORK/password" "$@"
}
# result FIELD: a member of the last line of JSON on standard input.
result() { tail -n 1 | jq -r ".$1"; }
# example_plugin NAME FILE: a plugin of examples/plugins, made to start the tests' jq. Unchanged they are tested by
# systemd/work.sh.
example_plugin() {
    local path=
    [ ! -e "$WORK/.jq" ] || path="2i PATH=$WORK/.jq:\$PATH"
    sed "$path" "$(dirname "${BASH_SOURCE[0]}")/../examples/plugins/$1" >"$2" && chmod 755 "$2"
}
# random_file FILE BYTES SEED: reproducible incompressible bytes.
random_file() {
    openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "$3")" -iv 0 </dev/zero 2>/dev/null | head -c "$2" >"$1"
}
is_root() { [ "$(id -u)" -eq 0 ]; }
# A device that was detached may be another test's by now: only one over a file of this test is detached.
losetup() {
    local dev
    if [ "${1-}" != -d ]; then command losetup "$@"; return; fi
    shift
    for dev; do
        case $(cat "/sys/block/${dev##*/}/loop/backing_file" 2>/dev/null) in
            "$WORK"/* | /dev/*) command losetup -d "$dev" || return ;;
            *) return 1 ;;
        esac
    done
}
# loop_device FILE [LOSETUP-OPTIONS]: prints the device. The caller detaches it: at_exit "losetup -d DEVICE".
loop_device() {
    local file=$1 dev
    shift
    dev=$(losetup --find --show "$@" "$file") || return
    echo "$dev"
}

finish() {
    [ ! -s "$WORK/no-hint" ] || fail "each problem of status says what to do" "$(sort -u "$WORK/no-hint")"
    echo "1..$tests"
    [ $failures -eq 0 ]
    exit $?
}
