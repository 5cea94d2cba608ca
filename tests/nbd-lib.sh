# SPDX-License-Identifier: GPL-2.0-or-later
# NBD servers for tests, after lib.sh: the real ones, qemu-nbd and nbdkit.
for program in qemu-nbd nbdkit qemu-img; do
    command -v $program >/dev/null || { echo "Bail out! there is no $program: run make deps" >&2; exit 1; }
done
: "${PATIENCE:=1}"
declare -A nbd_pid=()
# nbd_started SOCKET PID: waits for the socket; remembers the server.
nbd_started() {
    local n
    nbd_pid[$1]=$2
    at_exit "kill -CONT $2; kill $2"
    for ((n = 0; n < 300 * PATIENCE; n++)); do
        [ -S "$1" ] && return
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
# nbd_qemu SOCKET EXPORT IMAGE [OPTIONS]: qemu-nbd for many clients.
nbd_qemu() {
    local socket=$1 export=$2 image=$3
    shift 3
    rm -f "$socket"
    qemu-nbd -k "$socket" -x "$export" --persistent --shared=8 "$@" "$image" >"$socket.log" 2>&1 &
    nbd_started "$socket" $!
}
# nbd_kit SOCKET ARGUMENTS: nbdkit in the foreground.
nbd_kit() {
    local socket=$1
    shift
    rm -f "$socket"
    nbdkit -f -U "$socket" "$@" >"$socket.log" 2>&1 &
    nbd_started "$socket" $!
}
# nbd_stop SOCKET: ends its server and waits for it.
nbd_stop() {
    local pid=${nbd_pid[$1]-}
    [ -n "$pid" ] || return 0
    kill -CONT "$pid" 2>/dev/null
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    unset "nbd_pid[$1]"
}
# uri SOCKET [EXPORT]
uri() { echo "nbd+unix:///${2-}?socket=$1"; }
