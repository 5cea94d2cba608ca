#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# make bench-maintenance: quick and full maintenance of ours beside stock Kopia's, each of a copy of one repository.
#   CONTENTS="100000 1000000"   contents of the repositories, of BYTES=896 each (make_contents)
#   RUNS=1                      of each, in turns; medians
#   KOPIA=/path/to/kopia        without: ours alone
#   DIR=/var/tmp                a disk: index pages that are mapped from a tmpfs count as own memory
#   JSON=FILE                   each run as a JSON line
# A fifth of the contents is needed by no snapshot; all are 25 hours old. Nobody has a cache before "quick", which is
# the first; "full" finds the fifth and marks it deleted; "full again" is a day later. With BYTES below 800 packs are so
# short that all contents are stored again by "full". Kopia's verdict over what ours has left is part of the run.
set -euo pipefail
CONTENTS=${CONTENTS:-100000 1000000} BYTES=${BYTES:-896} RUNS=${RUNS:-1} DIR=${DIR:-/var/tmp} QUICK=1
. "$(dirname "$0")/lib.sh"
[[ ${CONTENTS// /}$RUNS$BYTES =~ ^[0-9]+$ && $RUNS -ge 1 ]] || die "CONTENTS, BYTES and RUNS are numbers"
for t in perf/make_contents tests/tools/age_repository; do
    [ -x "$BUILD/$t" ] || die "there is no $BUILD/$t: make bench-maintenance builds it"
done
export HOME=$W XDG_CACHE_HOME=$W/cache KOPIA_CHECK_FOR_UPDATES=false
WHO=snapferry
if [ -n "${KOPIA:-}" ]; then
    KOPIA=$(realpath "$KOPIA") WHO="snapferry kopia"
else
    note "without kopia: give KOPIA=/path/to/kopia"
fi
k() { "$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log" "$@"; }
connect() {
    rm -rf "$W"/kopia.config* "$W/cache/kopia"
    k repository connect filesystem --path "$1" --cache-directory "$W/cache/kopia" --override-username b \
        --override-hostname b >/dev/null 2>&1
}
age() { "$BUILD/tests/tools/age_repository" "$1" "$W/pw" 25; }
step() { # WHO STEP CONTENTS
    local args=()
    [[ $2 != full* ]] || args=(--full)
    case $1 in
    snapferry) args=("$SNAPFERRY" -r "$W/snapferry" --password-file "$W/pw" --quiet maintenance --node-name b
        "${args[@]}") ;;
    kopia) args=("$KOPIA" --config-file "$W/kopia.config" --password benchmark --no-progress --log-dir "$W/log"
        maintenance run "${args[@]}") ;;
    esac
    timed "{\"who\": \"$1\", \"step\": \"$2\", \"contents\": $3}" 0 "${args[@]}" ||
        die "$1 failed at $2 of $3 contents: $(tail -n 3 "$W/stderr")"
    record "$LAST"
}
for n in $CONTENTS; do
    room $((n * (BYTES + 150) * 4 / 1048576 + 500))
    "$SNAPFERRY" -r "$W/made" --password-file "$W/pw" --quiet repo create --node-name b
    "$BUILD/perf/make_contents" "$W/made" "$W/pw" "$n" "$BYTES" 200 20 || die "no repository of $n contents"
    age "$W/made"
    for _ in $(seq "$RUNS"); do
        for who in $WHO; do
            cp -a "$W/made" "$W/$who"
            rm -rf "$W/cache"
            [ "$who" = snapferry ] || { connect "$W/kopia" && k maintenance set --owner=me >/dev/null 2>&1; }
            step "$who" quick "$n"
            step "$who" full "$n"
            age "$W/$who"
            rm -rf "$W/cache/snapferry"
            [ "$who" = snapferry ] || connect "$W/kopia"
            step "$who" "full again" "$n"
            if [ "$who" = snapferry ] && [ -n "${KOPIA:-}" ]; then
                connect "$W/snapferry"
                k snapshot verify --no-auto-maintenance >/dev/null 2>"$W/stderr" ||
                    die "for kopia what is left is not whole: $(tail -n 3 "$W/stderr")"
            fi
            rm -rf "${W:?}/$who"
        done
    done
    rm -rf "$W/made"
done
[ -z "${JSON:-}" ] || cp "$RECORDS" "$JSON"
{
    printf '%s\n' 'contents|step|who|seconds|core-s|RSS MiB|CPU of snapferry'
    jq -rs '
        def median: sort | .[(length - 1) / 2 | floor];
        def cpu: map(.user + .sys) | median;
        group_by([.contents, .step]) | .[] | (map(select(.who == "snapferry")) | cpu) as $ours | group_by(.who)
        | sort_by(.[0].who != "snapferry")[]
        | [.[0].contents, .[0].step, .[0].who, (map(.wall) | median * 10 | round / 10), (cpu * 100 | round / 100),
           ((map(.rssKiB) | median) / 1024 | round), (cpu / ([$ours, 0.01] | max) * 10 | round / 10)]
        | map(tostring) | join("|")' "$RECORDS"
} | column -t -s '|'
