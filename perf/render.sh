#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Tables from what was measured.
#   render.sh FILE.json                     Markdown tables of a run, as docs/performance.md keeps them
#   --machine M P | --records R GROUP | --part NAME FILE | --limits FILE.json     plain text, for run.sh
set -euo pipefail
here=$(realpath "$(dirname "$0")")
# Lines of cells parted by "|" become columns: the first two to the left, numbers to the right.
columns() { column -t -s '|' -o '  ' -R "${1:-0}"; }
j() { jq -r -L "$here" "$@"; }

case ${1:-} in
--machine)
    j -n --slurpfile m "$2" --slurpfile p "$3" 'include "text"; $m[0] | machine($p[0])'
    ;;
--records)
    echo
    j -s --arg group "$3" 'include "summary"; include "text";
        limits(null) as $l | [rows($l)[] | select(.group == $group)] | work_table' "$2" | columns 3,4,5,6,7,8
    ;;
--part)
    echo
    echo "== $2"
    j --arg part "$2" 'include "text"; part_table($part)' "$3" | columns 3,4,5,6,7,8,9
    ;;
--limits)
    echo
    j 'include "text"; limits_table' "$2" | columns 2,3
    echo
    j 'include "text"; to_limits_table' "$2" | columns 3,4,5,6,7
    ;;
"" | -*)
    echo "usage: render.sh RESULTS.json" >&2
    exit 2
    ;;
*)
    j 'include "markdown"; if .kind == "scaling" then scaling_markdown else bench_markdown end' "$1"
    ;;
esac
