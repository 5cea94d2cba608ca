#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# System calls that fail: the n-th call of each kind, for n = 1, 2, ... until a run no longer comes that far. Every run
# ends well or with one clear sentence and a documented code, leaves no temporary file, and the repository stays valid.
. "$(dirname "$0")/../lib.sh"
if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then skip "failing system calls" "sanitizers do not run under strace"; finish; fi
if ! strace -f -o /dev/null -e trace=none true 2>/dev/null; then
    skip "failing system calls" "strace is missing or may not trace here"
    finish
fi
RUNS=${INJECT_RUNS:-2} # of a kind, then the step is doubled: INJECT_RUNS=1000 takes each call there is
BPF=
strace -f --seccomp-bpf -o /dev/null -e trace=none true 2>/dev/null && BPF=--seccomp-bpf
random_file "$WORK/image" 6000000 31
R=$WORK/repo
sf "$R" repo create --quiet --splitter DYNAMIC-1M-BUZHASH
DOCUMENTED=" $(sed -n '/^=head1 EXIT STATUS/,/^=head1 JSON/p' docs/man/snapferry.8.pod | grep -oE '^=item Z<>[0-9]+' |
    grep -oE '[0-9]+$' | tr '\n' ' ')"

# judge RC: what is wrong with how the run ended, or nothing.
judge() {
    local said
    said=$(grep -c '^snapferry: ' "$WORK/err")
    if [ "$1" -ge 124 ]; then echo "ended with $1"
    elif [ "$1" -ne 0 ] && ! grep -q " $1 " <<<"$DOCUMENTED"; then echo "exit code $1 is not documented"
    elif [ "$1" -ne 0 ] && [ "$said" -eq 0 ]; then echo "exit $1 without a word"
    elif grep -qvE '^snapferry: |^$' "$WORK/err"; then echo "said $(grep -vE '^snapferry: ' "$WORK/err" | head -n 1)"
    fi
}

# injected CALLS ERROR N COMMAND...: runs it; exit code in $rc, whether the n-th call came in $fired.
injected() {
    local calls=$1 error=$2 n=$3
    shift 3
    timeout -k 5 60 strace -f $BPF -qq -o "$WORK/trace" -e "trace=$calls" -e "inject=$calls:error=$error:when=$n" \
        "$@" >"$WORK/said" 2>"$WORK/err"
    rc=$?
    fired=$(grep -c 'INJECTED' "$WORK/trace")
}

# each NAME CALLS ERROR FIRST COMMAND...: all n; PREPARE runs before each, LEFT afterwards tells what should not be.
each() {
    local name=$1 calls=$2 error=$3 n=$4 step=1 runs=0 bad=0 wrong
    failures_seen=0
    shift 4
    while :; do
        eval "${PREPARE:-:}"
        injected "$calls" "$error" "$n" "$@"
        [ "$fired" -eq 0 ] && break
        runs=$((runs + 1))
        [ $rc -ne 0 ] && failures_seen=$((failures_seen + 1))
        wrong=$(judge $rc)
        [ -z "$wrong" ] && wrong=$(eval "${LEFT:-:}")
        if [ -n "$wrong" ]; then
            bad=$((bad + 1))
            echo "# $name, call $n: $wrong; $(tail -n 1 "$WORK/err"); $(grep INJECTED "$WORK/trace" | head -n 1)"
        fi
        [ $((runs % RUNS)) -eq 0 ] && step=$((step * 2))
        n=$((n + step))
    done
    if [ $bad -gt 0 ]; then fail "$name: $bad of $runs runs ended badly"
    elif [ $runs -eq 0 ]; then fail "$name: no such call is made"
    else pass "$name: $runs runs, $failures_seen of them failed cleanly"; fi
}

serial=0
PREPARE='serial=$((serial + 1))
    printf "%016d" $serial | dd of="$WORK/image" bs=16 seek=$((serial * 9973 % 370000)) conv=notrunc status=none'
LEFT='find "$R" -name "*.tmp.*" | head -n 1 | sed "s/^/left behind /"'
# Some hundred runs, of which each would derive the key of the repository for longer than all else it does: only those
# whose memory fails do, since of the calls that fail here a derivation makes no other (tests/snapferry/keys.c).
BACKUP=("$SF" -r "$R" --password-file "$WORK/password" backup "$WORK/image" --as t@h:/v --quiet)
# Programs open their libraries first: counting begins behind these.
strace -f -qq -o "$WORK/trace" -e trace=openat,mmap,pread64,read,newfstatat "$SNAPFERRY" --version >/dev/null 2>&1
first() { echo $(($(grep -c "$1(" "$WORK/trace") + 1)); }
OPENS=$(first openat) MAPS=$(first mmap) PREADS=$(first pread64) READS=$(first read) STATS=$(first newfstatat)

RUNS=1000 each "backup, fsync: EIO" fsync,fdatasync EIO 1 "${BACKUP[@]}"
RUNS=1000 each "backup, rename: EIO" rename,renameat,renameat2 EIO 1 "${BACKUP[@]}"
RUNS=1000 each "backup, pwrite: ENOSPC" pwrite64,write,pwritev ENOSPC 1 "${BACKUP[@]}"
expect "the repository is valid" 0 -- sf "$R" verify --quiet
each "backup, open: EACCES" openat EACCES "$OPENS" "${BACKUP[@]}"
each "backup, open: EMFILE" openat EMFILE "$OPENS" "${BACKUP[@]}"
each "backup, mkdir: ENOSPC" mkdir,mkdirat ENOSPC 1 "${BACKUP[@]}"
RUNS=1000 each "backup, ftruncate, fallocate: ENOSPC" ftruncate,fallocate ENOSPC 1 "${BACKUP[@]}"
each "backup, unlink: EIO" unlink,unlinkat EIO 1 "${BACKUP[@]}"
expect "the repository is valid still" 0 -- sf "$R" verify --quiet
each "backup, mmap: ENOMEM" mmap ENOMEM "$MAPS" "$SNAPFERRY" "${BACKUP[@]:1}"
each "backup, pread: EIO" pread64 EIO "$PREADS" "${BACKUP[@]}" --no-io-uring
each "backup, read: EIO" read EIO "$READS" "${BACKUP[@]}"
each "backup, preadv: EIO" preadv,preadv2 EIO 1 "${BACKUP[@]}" --no-io-uring
each "backup, listing: EIO" getdents64 EIO 1 "${BACKUP[@]}"
each "backup, stat: EIO" newfstatat EIO "$STATS" "${BACKUP[@]}"
each "backup, io_uring_setup: EPERM" io_uring_setup EPERM 1 "${BACKUP[@]}"
each "backup, threads: EAGAIN" clone3 EAGAIN 1 "${BACKUP[@]}"
expect "a run without failures" 0 -- "${BACKUP[@]}"
expect "the repository is valid at last" 0 -- sf "$R" verify --quiet
expect "and restores" 0 -- sf "$R" restore latest "$WORK/out" --quiet
check "the right bytes" cmp "$WORK/image" "$WORK/out"

# Restore: whatever fails, success means the right bytes.
cat "$WORK/image" >"$WORK/holes"; truncate -s 60M "$WORK/holes"; cat "$WORK/image" >>"$WORK/holes"
sf "$R" backup "$WORK/holes" --as t@h:/holes --quiet
PREPARE='rm -f "$WORK/out"'
LEFT='[ $rc -ne 0 ] || cmp "$WORK/holes" "$WORK/out" 2>&1'
RESTORE=("$SF" -r "$R" --password-file "$WORK/password" restore latest "$WORK/out" --as t@h:/holes --quiet)
RUNS=1000 each "restore, pwrite: ENOSPC" pwrite64 ENOSPC 1 "${RESTORE[@]}" --no-io-uring
each "restore, fsync: EIO" fsync,fdatasync EIO 1 "${RESTORE[@]}"
tr '\0' 'x' </dev/zero | head -c "$(stat -c %s "$WORK/holes")" >"$WORK/filled"
PREPARE='cp "$WORK/filled" "$WORK/out"'
each "restore, fallocate: EOPNOTSUPP" fallocate EOPNOTSUPP 1 "${RESTORE[@]}" --differential
same "falls back to writing zeros" $failures_seen 0
PREPARE='rm -f "$WORK/out"'
each "restore, ftruncate: EFBIG" ftruncate EFBIG 1 "${RESTORE[@]}"
each "restore, open: EIO" openat EIO "$OPENS" "${RESTORE[@]}"
each "restore, mmap: ENOMEM" mmap ENOMEM "$MAPS" "$SNAPFERRY" "${RESTORE[@]:1}"
each "restore, pread: EIO" pread64 EIO "$PREADS" "${RESTORE[@]}"
# Devices are written by io_uring.
if is_root; then
    truncate -s "$(($(stat -c %s "$WORK/holes") / 4096 * 4096 + 4096))" "$WORK/disk"
    DEVICE=$(losetup -f --show "$WORK/disk") && at_exit "losetup -d $DEVICE"
    DOWN=("$SF" -r "$R" --password-file "$WORK/password" restore latest "$DEVICE"
        --as t@h:/holes --quiet --force)
    PREPARE='tr "\0" x </dev/zero | head -c "$(stat -c %s "$WORK/disk")" |
        dd of="$DEVICE" bs=1M status=none iflag=fullblock'
    LEFT='[ $rc -ne 0 ] || cmp -n "$(stat -c %s "$WORK/holes")" "$WORK/holes" "$DEVICE" 2>&1'
    each "restore, io_uring_setup: EPERM" io_uring_setup EPERM 1 "${DOWN[@]}"
    each "restore, io_uring_enter: EINVAL" io_uring_enter EINVAL 1 "${DOWN[@]}"
    PREPARE='rm -f "$WORK/out"'
    LEFT='[ $rc -ne 0 ] || cmp "$WORK/holes" "$WORK/out" 2>&1'
else
    skip "restore, io_uring" "needs root for a loop device"
fi
each "restore, threads: EAGAIN" clone3 EAGAIN 1 "${RESTORE[@]}"
VERIFY=("$SF" -r "$R" --password-file "$WORK/password" verify --quiet)
PREPARE=: LEFT=:
each "verify, open: EMFILE" openat EMFILE "$OPENS" "${VERIFY[@]}"
each "verify, mmap: ENOMEM" mmap ENOMEM "$MAPS" "$SNAPFERRY" "${VERIFY[@]:1}"
each "verify, pread: EIO" pread64 EIO "$PREADS" "${VERIFY[@]}"
expect "nothing was harmed by all that" 0 -- "${VERIFY[@]}"
finish
