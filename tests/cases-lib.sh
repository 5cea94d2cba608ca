# SPDX-License-Identifier: GPL-2.0-or-later
# Tables that name cases of tests (`file:case`), on top of tests/lib.sh: tests/run.sh leaves in REPORT what became of
# each case. Needs `root`, the top of the source, and REPORT.
declare -A content # of the files that are named, read once
# No process is started for a case: there are a thousand of them, looked at several times.
load() { # FILE
    [ -n "${content[$1]+x}" ] || IFS= read -rd '' content["$1"] <"$1" || [ -e "$1" ]
}
has_text() { # FILE TEXT
    load "$1"
    [[ ${content[$1]} == *"$2"* ]]
}

# The reports that have the cases of a file, in `where`: what is sourced or booted by another program is in that
# program's.
reports() { # PATH
    local at=$REPORT/${1%.c}
    case $1 in
    tests/unit/test_*_unit.c) where=("$at" "$REPORT/tests/e2e/systemd.sh") ;;
    tests/systemd/boot/*) where=("$REPORT/tests/e2e/shutdown.sh") ;;
    tests/systemd/*) where=("$REPORT/tests/e2e/systemd.sh") ;;
    tests/package/inside/*) where=("$REPORT/tests/package/life.sh") ;;
    *) where=("$at") ;;
    esac
}
reported() { # PATH
    reports "$1"
    [ -e "${where[0]}" ]
}
# What became of the cases whose name has the text, in `how`.
outcome() { # PATH TEXT
    local at line
    local -a lines
    how="was not run"
    reports "$1"
    for at in "${where[@]}"; do
        [ -e "$at" ] || continue
        mapfile -t lines <"$at"
        for line in "${lines[@]}"; do
            [[ $line == *"$2"* ]] || continue
            case $line in
                failed*) how=failed; return ;;
                passed*) how=passed ;;
                *) [ "$how" = passed ] || how="was skipped" ;;
            esac
        done
    done
}
