#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Texts agree with their numbers: no "1 snapshots". Where a number stands before a plural it is never one, and the place
# is listed in tests/law/plurals; any other uses plural() of base/units.h. The list has nothing that does not occur.
. "$(dirname "$0")/../lib.sh"
cd "$(dirname "$0")/../.." || exit 1
found() { find "$@" -name '*.[ch]' -exec perl tests/law/plurals.pl {} + | sort -u; }
same "numbers before plurals, and what is listed of them" \
    "$(diff <(grep -v '^#' tests/law/plurals) <(found base cfg daemon io proc repo))" ""
mkdir "$WORK/product"
cat >"$WORK/product/a.c" <<'EOF'
printf("%u snapshots were"
       " found, in %" PRIu64 " short packs\n", a, b);
printf("%zu volume%s, %d ms, %u of them in use", a, plural(a), b, c);
EOF
same "it can fail" "$(found "$WORK/product")" "$WORK/product/a.c: %d snapshots
$WORK/product/a.c: found, in %d short packs"
finish
