#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# verify stays within --memory whatever somebody has written into the repository: contents as long as the format allows,
# directories of one such content, directories in each other. What does not fit is refused, naming the memory that is
# needed, and with that it is verified.
TMPDIR=${MEMORY_TEST_DIR:-/var/tmp} SCRATCH=
DERIVE_KEYS=1 # what is measured is the command as users have it
. "$(dirname "$0")/../lib.sh"
unset DERIVE_KEYS
if [ -n "${SNAPFERRY_SANITIZED:-}" ]; then skip "memory" "a sanitizer's own memory would be measured"; finish; fi
MIB=1048576
R=$WORK/repo

# verify NAME BUDGET-MIB CODE: exit code and the most memory of its own; the hint's number is left in $needed.
verify() {
    local own rc
    "$TOOLS/rss_peak" "$WORK/peak" "$SNAPFERRY" -r "$R" --password-file "$WORK/password" verify --memory "$2M" --quiet \
        >"$WORK/out" 2>"$WORK/err"
    rc=$?
    own=$(($(jq .own "$WORK/peak") / MIB))
    needed=$(sed -n 's/.*use --memory \([0-9]*\)MiB.*/\1/p' "$WORK/err")
    if [ $rc -ne "$3" ]; then
        fail "$1" "exited with $rc, not $3: $(tail -n 3 "$WORK/err")"
    elif [ $own -gt "$2" ]; then
        fail "$1" "$own of $2 MiB"
    else
        pass "$1"
    fi
}
# large KIND MIB: a repository with it.
large() {
    rm -rf "$R" "$CACHE"
    sf "$R" repo create --quiet
    "$TOOLS/make_large" "$R" "$WORK/password" "$1" "$2" || fail "$1: made"
}

for kind in random zeros directory; do
    large $kind 200
    verify "$kind, a content of 200 MiB, 96 MiB: refused within it" 96 22
    check "$kind: the message names the content" grep -qE '^snapferry: (content|directory) k?[0-9a-f]{32}: 20[01] MiB' \
        "$WORK/err"
    check "$kind: and the memory needed" test "${needed:-0}" -gt 200
    verify "$kind, with the memory named: verified within it" "${needed:-0}" 0
done
large random 255
verify "the longest content there may be, 96 MiB: refused within it" 96 22
large nested 8
verify "directories in each other, 96 MiB: refused within it" 96 22
verify "directories in each other, 512 MiB: verified within it" 512 0
finish
