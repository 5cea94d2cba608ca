#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every exit code of the man page is reached by a run whose outcome is asserted here, and its sentence says why.
. "$(dirname "$0")/../lib.sh"
R=$WORK/repo
asserted=
# code NAME CODE PATTERN -- COMMAND...: like expect, and the code counts as asserted; an error has one sentence.
code() {
    expect "$2: $1" "$2" "$3" "${@:4}"
    asserted="$asserted $2"
}
# within_json CODE CLASS COMMAND...: the last line of --json names the class and the code.
within_json() {
    local out
    out=$("${@:3}" --json 2>/dev/null)
    same "$1 in JSON" "$(result class <<<"$out") $(result exitCode <<<"$out")" "$2 $1"
}
command_on() { "$SNAPFERRY" -r "$R" --password-file "$WORK/password" "$@"; }

code "a repository is created" 0 'Created|created' -- sf "$R" repo create
random_file "$WORK/image" 3000001 61
sf "$R" backup "$WORK/image" --as t@h:/v --quiet
code "standard output is full" 18 'No space left' \
    -- sh -c "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' cat latest/volume.img >/dev/full"
code "standard output is closed" 1 'standard output|Bad file descriptor' \
    -- sh -c "'$SNAPFERRY' -r '$R' --password-file '$WORK/password' snapshot list >&-"
code "standard output is a pipe that nobody reads" 1 'Broken pipe' \
    -- bash -c "set -o pipefail; { '$SNAPFERRY' -r '$R' --password-file '$WORK/password' cat latest/volume.img;
        echo \$? >'$WORK/rc'; } | true; exit \$(cat '$WORK/rc')"
code "an option that does not exist" 2 'unknown option' -- sf "$R" snapshot list --nonsense
secret "$WORK/other" <<<"another password"
code "a wrong password" 10 'wrong password' -- "$SNAPFERRY" -r "$R" --password-file "$WORK/other" snapshot list
code "no repository there" 11 'no repository|No repository' -- sf "$WORK/nowhere" snapshot list
code "create where something is" 12 'repository|file' -- sf "$R" repo create
jq -j .password "$GOLDEN/format-version-99.expected.json" | secret "$WORK/pw"
code "a format of the future" 13 '99' -- "$SNAPFERRY" -r "$GOLDEN/format-version-99" --password-file \
    "$WORK/pw" snapshot list
jq -j .password "$GOLDEN/upgrade-lock.expected.json" | secret "$WORK/pw"
code "under an upgrade lock" 14 'upgrade' -- "$SNAPFERRY" -r "$GOLDEN/upgrade-lock" --password-file \
    "$WORK/pw" snapshot list
jq -j .password "$GOLDEN/missing-pack.expected.json" | secret "$WORK/pw"
code "a pack is missing" 15 'DAMAGE' -- "$SNAPFERRY" -r "$GOLDEN/missing-pack" --password-file "$WORK/pw" verify
code "no such snapshot" 16 'ffffffff' -- sf "$R" ls ffffffff
echo precious >"$WORK/target"
code "the target holds something" 17 'not empty|--force' -- sf "$R" restore latest "$WORK/target"
same "and still does" "$(cat "$WORK/target")" precious
code "what is no disk and no file" 19 '/dev/null' -- sf "$R" backup /dev/null
code "a budget too small for the repository" 22 'use --memory' -- sh -c "
    '$SNAPFERRY' -r '$WORK/big' --password-file '$WORK/password' repo create --splitter DYNAMIC-8M-BUZHASH --quiet &&
    '$SNAPFERRY' -r '$WORK/big' --password-file '$WORK/password' backup '$WORK/image' --memory 96M \
        --compression zstd-best-compression"
expect "it says how much is enough" 0 \
    -- sh -c "'$SNAPFERRY' -r '$WORK/big' --password-file '$WORK/password' backup '$WORK/image' --quiet \
    --compression zstd-best-compression --memory \
    \$('$SNAPFERRY' -r '$WORK/big' --password-file '$WORK/password' backup '$WORK/image' \
    --compression zstd-best-compression --memory 96M 2>&1 | grep -oE 'memory [0-9]+MiB' | cut -d' ' -f2)"

# The clock of the storage is the time of its files; a client's that is off must not write.
before=$(find "$R" -type f | sort | xargs sha256sum | sha256sum)
command -v faketime >/dev/null || fail "faketime is missing" "make deps installs it"
for shift in +3h -3h; do
    # A sanitizer wants to be loaded first.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 \
        code "a clock that is off by $shift" 21 'clock' -- faketime -f "$shift" "$SNAPFERRY" -r "$R" --password-file \
        "$WORK/password" backup "$WORK/image" --as t@h:/c
done
same "nothing was stored" "$(find "$R" -type f | sort | xargs sha256sum | sha256sum)" "$before"

# 130: a signal in mid-run.
truncate -s 300M "$WORK/many"
random_file "$WORK/part" 150000000 62; dd if="$WORK/part" of="$WORK/many" bs=1M conv=notrunc status=none
"$SNAPFERRY" -r "$R" --password-file "$WORK/password" backup "$WORK/many" --as t@h:/i --no-direct --workers 1 \
    --compression zstd-better-compression >"$WORK/log" 2>&1 &
pid=$!
before=$(find "$R/p" -name '*.f' | wc -l)
for _ in $(seq 1000); do [ "$(find "$R/p" -name '*.f' | wc -l)" -gt "$before" ] && break; sleep 0.01; done
kill -TERM $pid; wait $pid
same "130: interrupted" $? 130
asserted="$asserted 130"

if is_root; then
    # 20: who may not read. As nobody, in a place that nobody can reach.
    chmod 755 "$WORK"; mkdir -p "$WORK/nobody"; chown nobody "$WORK/nobody"; cp "$WORK/password" "$WORK/nobody/pw"
    chown nobody "$WORK/nobody/pw"
    chmod 700 "$R"
    code "a repository that may not be read" 20 'Permission denied' \
        -- setpriv --reuid nobody --clear-groups env HOME="$WORK/nobody" XDG_CACHE_HOME="$WORK/nobody" \
        "$SNAPFERRY" -r "$R" --password-file "$WORK/nobody/pw" snapshot list
    cp "$WORK/image" "$WORK/backing"; truncate -s 3000320 "$WORK/backing"
    dev=$(loop_device "$WORK/backing"); at_exit "losetup -d $dev"
    truncate -s 1000000 "$WORK/backing"
    code "a device that cannot be read whole" 3 'UNREADABLE' -- sf "$R" backup "$dev" --as t@h:/dev --bad-reads map
else
    chmod 0 "$R"
    code "a repository that may not be read" 20 'Permission denied' -- sf "$R" snapshot list
    chmod 700 "$R"
    skip "3: a device that cannot be read whole" "needs root"
    asserted="$asserted 3"
fi
within_json 16 not-found command_on ls ffffffff
within_json 2 usage command_on backup "$WORK/image" --compression brotli
within_json 2 usage "$SNAPFERRY" status --bogus
within_json 2 usage "$SNAPFERRY" operations --limit none
within_json 2 usage "$SNAPFERRY" statsu

# What the daemon says, over the real socket; a pretended engine decides how things end.
mkdir "$WORK/run"
ask() { "$SNAPFERRY" --runtime-dir "$WORK/run" --state-dir "$WORK/run/state" "$@"; }
code "no daemon" 23 'not running' -- ask cancel nothing
"$TOOLS/control_server" "$WORK/run" >"$WORK/server" 2>&1 &
server=$!; at_exit "kill $server"
for _ in $(seq 100); do grep -q ready "$WORK/server" && break; sleep 0.05; done
code "a volume failed, for a reason with a class" 19 'bad sector' -- ask backup fail-1 --wait
code "one failed, one did not" 3 'PartiallyFailed' -- ask backup fail-1 fine --wait
code "a volume failed for no known reason" 25 'it did not work' -- ask backup odd-1 --wait
id=$(ask backup hang-1 --json | result backup)
ask cancel "$id" --quiet
code "what is waited for is canceled" 24 'canceled' -- ask wait "$id"
same "24 in JSON: the result is what has ended" "$(ask wait "$id" --json 2>/dev/null | result state)" Canceled

documented=$(sed -n '/^=head1 EXIT STATUS/,/^=head1 JSON/p' docs/man/snapferry.8.pod | grep -oE '^=item Z<>[0-9]+' |
    grep -oE '[0-9]+$' | sort -n)
same "every documented code is asserted here" "$(tr ' ' '\n' <<<"$asserted" | grep . | sort -nu)" "$documented"
finish
