# SPDX-License-Identifier: GPL-2.0-or-later
# Tables that name cases of tests (`file:case`), on top of tests/lib.sh: tests/run.sh leaves in REPORT what became of
# each case. Needs `root`, the top of the source, and REPORT.
declare -A content # of the files that are named, read once
has_text() { # FILE TEXT
    [ -n "${content[$1]+x}" ] || content[$1]=$(<"$1")
    [[ ${content[$1]} == *"$2"* ]]
}

# The reports that have the cases of a file: what is sourced or booted by another program is in that program's.
reports() { # PATH
    local at=$REPORT/${1%.c}
    case $1 in
    tests/unit/test_*_unit.c) echo "$at" "$REPORT/tests/e2e/systemd.sh" ;;
    tests/systemd/boot/*) echo "$REPORT/tests/e2e/shutdown.sh" ;;
    tests/systemd/*) echo "$REPORT/tests/e2e/systemd.sh" ;;
    tests/package/inside/*) echo "$REPORT/tests/package/life.sh" ;;
    *) echo "$at" ;;
    esac
}
# What became of the cases whose name has the text.
outcome() { # PATH TEXT
    local found
    found=$(grep -hsF -- "$2" $(reports "$1"))
    if [[ $found == failed* || $found == *$'\n'failed* ]]; then
        echo failed
    elif [[ $found == passed* || $found == *$'\n'passed* ]]; then
        echo passed
    elif [ -n "$found" ]; then
        echo "was skipped"
    else
        echo "was not run"
    fi
}

