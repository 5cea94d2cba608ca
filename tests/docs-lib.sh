# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of the documentation share: commands and samples are taken out of the pages themselves, so that what is
# tested is what is read.

# pod_block FILE NAME: the indented lines behind "=for test NAME" in a man page, without their indentation.
pod_block() {
    awk -v name="$2" '
        /^=for test / { on = $3 == name; next }
        on && /^[^ ]/ { exit }
        on { sub(/^    /, ""); print }' "$1" | sed -e '/./,$!d'
}
# pod_blocks FILE: the names of all of them.
pod_blocks() { sed -n 's/^=for test //p' "$1"; }

# md_blocks FILE LANGUAGE: how many fenced blocks of that language there are; md_block FILE LANGUAGE N: the Nth, from 1.
md_blocks() { grep -cE "^\`\`\`$2( |\$)" "$1"; }
md_block() {
    awk -v lang="$2" -v want="$3" '
        /^```/ { if (open) { open = 0; next } open = 1; mine = 0
                 if ($0 == "```" lang || index($0, "```" lang " ") == 1) { n++; mine = 1 } next }
        open && mine && n == want' "$1"
}

# In $WORK/bin, the first in the PATH of what pages show, jq is that of readers and not that of the tests.
mkdir -p "$WORK/bin"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$JQ" >"$WORK/bin/jq"
chmod 755 "$WORK/bin/jq"
