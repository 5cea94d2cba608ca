#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a person sees of a real daemon: status before and after, two volumes backed up on a terminal, a restore, the
# lists. The shapes are those that tests/cli/golden.sh compares byte by byte; here what is told must be what has
# happened.
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a real daemon on a terminal"
unset COLUMNS LINES NO_COLOR
export TERM=xterm LC_ALL=C.UTF-8
T=$TOOLS/terminal
on() {
    "$T" --size "$1" --every 0.1 "$SNAPFERRY" "${@:2}" --runtime-dir "$RUN" --state-dir "$STATE" \
        --config-dir "$CONF" >"$WORK/seen" 2>&1
}
last() { sed -n '/^== end$/,$p' "$WORK/seen" | sed 1d; }
# told NAME REGEX: in what was on the screen at the end.
told() { if last | grep -qE -- "$2"; then pass "$1"; else fail "$1" "no /$2/ in:" "$(last)"; fi; }
fits() { if last | grep -q '\\$'; then fail "$1: no line is folded" "$(last)"; else pass "$1: no line is folded"; fi; }

daemon_setup 'slots = 2' || { fail "a repository"; finish; }
mkdir "$WORK/vm"
fs_make vm xfs 400 || { fail "a file system"; finish; }
image "$WORK/vm/a.img" 40 1
image "$WORK/vm/b.img" 40 2
starts "the daemon starts"

on 80x24 status --wide
told "before: nothing is known of volumes" 'Volumes +\{/\}none found yet'
config_class gold "$WORK/vm" 'snapshots-to-retain = 1'
config_add 60-job "$(printf '[job "nightly"]\nvolumes = %s/vm/*.img\non-calendar = *-*-* %s:00\n' "$WORK" "$(later)")"
check "a class and a job are added" ask reload --wait
on 80x24 status --wide
told "the job's next run" 'nightly +in [0-9]+ (h|min|s)'
on 120x24 volumes
told "both are seen, and not protected" '2 volumes, \{red\}2 NOT PROTECTED'

on 100x24 backup "$WORK/vm/a.img" "$WORK/vm/b.img" --wait --verbose
same "backup --wait of two volumes: exit code" $? 0
told "its last word" '^manual-[0-9A-Za-z-]+ \{green\}Completed\{/\} in '
told "then what was done, of each volume" '^  .*/a\.img: 40\.0 MiB in [0-9.]+ s \('
told "--verbose: and the time of each stage" '^    time: read .*'
same "nothing is left of the lines that moved" "$(last | grep -cE 'Moving|Snapshotting| left$')" 0
check "there was a line for the whole" grep -qE '^manual-.*of 2 volumes' "$WORK/seen"
check "and never 100 %" sh -c "! grep -q '100%' '$WORK/seen'"
check "no line was folded" sh -c "! grep -qE '(moving|Moving|Snapshotting|Exposing|Starting).*\\\\\$' '$WORK/seen'"
B=$(askj backups | jq -r '.backups[0].id')

on 80x24 status
told "after: both are protected" 'Volumes +\{/\}2, \{green\}all protected'
told "and two native snapshots are there" 'Native +\{/\}2 snapshots'
fits "status"
check "one screen" test "$(last | wc -l)" -le 23
for v in operations backups volumes "native list" "describe $B" "explain $WORK/vm/a.img"; do
    on 80x24 $v
    same "$v: exit code" $? 0
    fits "$v"
done
check "status --check: all is well" ask status --check --quiet
on 60x24 restore "$B/$WORK/vm/a.img" "$WORK/vm/back.out" --from repository --wait
same "restore --wait: exit code" $? 0
told "its last word" 'Completed'
told "and what was done" '/back\.out: 40\.0 MiB in '
same "no more than that without --verbose" "$(last | grep -c 'time: ')" 0
check "and the data" cmp "$WORK/vm/a.img" "$WORK/vm/back.out"
rm -f "$WORK/vm/back.out"

stops "the daemon ends"
on 80x24 status
told "while it is down" '\{red\}NOT RUNNING\{/\}; the following is from its records'
expect "status --check while it is down" 23 -- ask status --check --quiet
explain_failure
finish
