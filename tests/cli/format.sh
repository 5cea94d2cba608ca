#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The form of the source: C as clang-format 14 leaves it (`make format`), no line of C, shell or the Makefile longer
# than 120 columns, no C file longer than 1,000 lines.
. "$(dirname "$0")/../lib.sh"
root=$(realpath "$(dirname "$0")/../..")

# sources DIR: C, shell and make, without what is built.
sources() {
    (cd "$1" && find . \( -path ./.git -o -path './build*' -o -path './debian/*/*' \) -prune -o -type f -print) | sort
}
c_files() { sources "$1" | grep '\.[ch]$'; }
shell_files() {
    sources "$1" | grep -E '\.(sh|bash)$'
    sources "$1" | grep -vE '\.(sh|bash|c|h|md|pod|txt|json|xz)$' | while read -r f; do
        case $(head -c 30 "$1/$f" | tr -d '\0' | head -n 1) in '#!'*sh) echo "$f" ;; esac
    done
}
# Which lines are too long, which files; characters count, not bytes.
too_long() {
    { c_files "$1"; shell_files "$1"; echo ./Makefile; } | (cd "$1" && xargs -d '\n' perl -CSD -ne '
        chomp;
        print "$ARGV:$.: ", length, " columns\n" if length > 120;
        print "$ARGV: more than 1000 lines\n" if $. == 1001 && $ARGV =~ /\.[ch]$/;
        close ARGV if eof' 2>&1)
}
unformatted() {
    c_files "$1" | (cd "$1" && xargs -d '\n' "$CLANG_FORMAT" --style=file --dry-run --ferror-limit=1 2>&1) | grep ': '
}

for CLANG_FORMAT in clang-format-14 clang-format none; do
    "$CLANG_FORMAT" --version 2>/dev/null | grep -q 'version 14\.' && break
done
same "no line is longer than 120 columns, no C file than 1,000 lines" "$(too_long "$root")" ""
if [ $CLANG_FORMAT = none ]; then
    skip "C is formatted" "there is no clang-format 14"
else
    same "C is formatted (make format)" "$(unformatted "$root" | head -n 20)" ""
fi

# It can fail.
mkdir -p "$WORK/tree/room" "$WORK/tree/build" && cp "$root/.clang-format" "$WORK/tree/"
x=$(printf 'x%.0s' $(seq 119))
printf 'int f(void)\n{\n    return 1;\n}\n' | tee "$WORK/tree/room/good.c" >"$WORK/tree/build/made.c"
printf '# %s\n' "$x" >"$WORK/tree/build/made.sh"
touch "$WORK/tree/Makefile"
same "a good file passes" "$(too_long "$WORK/tree")" ""
printf '# %s\n' "$x" | tee "$WORK/tree/long.sh" >"$WORK/tree/Makefile"
printf '#!/bin/sh\n# %s\n' "$x" >"$WORK/tree/hook"
printf '// %s\n' "$x" >"$WORK/tree/room/long.h"
same "long lines are noticed" "$(too_long "$WORK/tree" | sed 's/: .*//' | sort | paste -sd ' ')" \
    "./Makefile:1 ./hook:2 ./long.sh:1 ./room/long.h:1"
: >"$WORK/tree/Makefile"
rm "$WORK/tree"/{hook,long.sh,room/long.h}
printf '# %s\n' "ä${x#xx}" >"$WORK/tree/umlaut.sh"
same "120 characters that are more bytes are 120 columns" "$(too_long "$WORK/tree")" ""
seq -f '/* %.0f */' 1001 >"$WORK/tree/room/many.c"
same "so is a long file" "$(too_long "$WORK/tree")" "./room/many.c: more than 1000 lines"
rm "$WORK/tree/room/many.c"
if [ $CLANG_FORMAT = none ]; then
    skip "what is not formatted is noticed" "there is no clang-format 14"
else
    same "what is formatted passes" "$(unformatted "$WORK/tree")" ""
    printf 'int f(void)\n{\n   return 1;\n}\n' >"$WORK/tree/room/bad.c"
    same "what is not formatted is noticed" "$(unformatted "$WORK/tree" | grep -c '^./room/bad.c:2:.*clang-format')" 1
fi
finish
