#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The man page against the code: each verb, option and exit code is documented, and none that does not exist.
. "$(dirname "$0")/../lib.sh"
POD=docs/man/snapferry.8.pod
"$SNAPFERRY" --help >"$WORK/help"
verbs=$(sed -n '/^verbs/,/^general options/p' "$WORK/help" | grep -oE '^  ((repo|snapshot|native) [a-z-]+|[a-z-]+)' |
    sed 's/^ *//' | sort -u)
while read -r v; do "$SNAPFERRY" $v --help; done <<<"$verbs" >"$WORK/help.verbs"
cat "$WORK/help" "$WORK/help.verbs" | grep -oE '^ +(-., )?--[a-z0-9-]+' |
    grep -oE -- '--[a-z0-9-]+' | sort -u >"$WORK/options"
check "help lists options" test "$(wc -l <"$WORK/options")" -gt 30
missing=$(while read -r o; do grep -qE -- "B<$o>" "$POD" || echo "$o"; done <"$WORK/options")
same "every option is in the man page" "$missing" ""
extra=$(grep -oE '^=item .*' "$POD" | grep -oE -- 'B<--[a-z0-9-]+>' | tr -d 'B<>' | sort -u | while read -r o; do
    grep -qx -- "$o" "$WORK/options" || echo "$o"; done)
same "the man page has no option that does not exist" "$extra" ""
check "help lists verbs" test "$(wc -l <<<"$verbs")" -gt 30
missing=$(while read -r v; do [ -z "$v" ] || grep -qE "^=item B<$v>" "$POD" || echo "$v"; done <<<"$verbs")
same "every verb is in the man page" "$missing" ""
codes=$(grep -oE 'ERR_[A-Z_]+ = [0-9]+' base/err.h | grep -oE '[0-9]+' | sort -n)
documented=$(sed -n '/^=head1 EXIT STATUS/,/^=head1 JSON/p' "$POD" | grep -oE '^=item Z<>[0-9]+' |
    grep -oE '[0-9]+$' | sort -n)
same "the exit codes are the documented ones" "$documented" "$codes"
while read -r v; do
    [ -n "$v" ] && expect "help of $v" 0 "usage: snapferry (.* )?$v" -- "$SNAPFERRY" $v --help
done <<<"$verbs"
extra=$(sed -n '/^=head1 VERBS/,/^=head1 OPTIONS/p' "$POD" | grep -oE '^=item B<[a-z -]+>' |
    sed 's/=item B<\(.*\)>/\1/' | sort -u | grep -vxFf <(cat <<<"$verbs"))
same "the man page has no verb that does not exist" "$extra" ""
check "the completion for bash is the table's" diff <("$SNAPFERRY" --bash-completion) docs/snapferry.bash-completion
check "and bash can read it" bash -n docs/snapferry.bash-completion
overdue=$(sed -n '/alert: SnapferryBackupOverdue/,/expr:/s/^ *expr: //p' monitoring/snapferry.rules.yml)
check "there is a rule for what is overdue" test -n "$overdue"
for f in docs/man/snapferry-metrics.7.pod docs/monitoring.md; do
    check "$f has it as it is" grep -qF -- "$overdue" "$f"
done
check "each option stands under its verb" \
    bash -c '! sed -n "/^=head2 repo change-password/,/^=head/p" "$1" | grep "make-password"' - "$POD"
if [ -x "$(dirname "$SNAPFERRY")/snapferryd" ]; then
    "$(dirname "$SNAPFERRY")/snapferryd" --help | grep -oE -- '--[a-z-]+' | sort -u >"$WORK/doptions"
    grep -oE '^=item .*' docs/man/snapferryd.8.pod | grep -oE -- 'B<--[a-z-]+>' | tr -d 'B<>' |
        sort -u >"$WORK/ddocumented"
    check "the daemon's options are those of its man page" diff "$WORK/doptions" "$WORK/ddocumented"
else
    skip "the daemon's options are those of its man page" "there is no snapferryd"
fi
check "man pages are well-formed" podchecker docs/man/*.pod
finish
