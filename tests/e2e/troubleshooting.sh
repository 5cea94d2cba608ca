#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# docs/troubleshooting.md: each situation is made, the command of the page is run, and what it says is what the page
# shows (ids, numbers, units and the width of columns aside). ACCEPT=1 writes what was said into the page.
ON_DISK=1 # not on a mount of its own, of which errors would speak
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../docs-lib.sh"
need_root "troubleshooting as the page tells"
PAGE=docs/troubleshooting.md
fs_make vm xfs 400 || { skip "troubleshooting as the page tells" "no loop mounts here"; finish; }
mkdir -p "$WORK/bin"
cat >"$WORK/bin/snapferry" <<END
#!/bin/bash
case " \$* " in
*" -r "*) set -- "\$@" --config "$CONF/snapferry.ini" --cache-dir "$WORK/own-cache" ;;
*" check-config "*) set -- "\$@" --config-dir "$CONF" ;;
*) set -- "\$@" --runtime-dir "$RUN" --state-dir "$STATE" --config-dir "$CONF" ;;
esac
export COLUMNS=120
exec "$(realpath "$SNAPFERRY")" "\$@"
END
chmod 755 "$WORK/bin/snapferry"
seen=
# The words of it, without what differs from run to run.
normal() {
    sed -E -e 's/[a-z]+-[0-9]{8}T[0-9]{6}-[0-9a-f]{4}/ID/g' -e 's/[a-z]+(-[a-z]+)?-[0-9T]*…[0-9A-Za-z.-]*/ID/g' \
        -e 's/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+/UUID/g' -e 's/UUID\.[0-9]+\.[0-9a-f]+/UUID.N.HEX/g' \
        -e 's/\b[0-9a-f]{32}\b/HEX/g' -e 's/\b[pq][0-9a-f]{32}-s[0-9a-f]+/PACK/g' \
        -e 's/\b[0-9a-f]{8,16}\b/HEX/g' -e 's/[0-9]+(\.[0-9]+)?/N/g' -e 's/N (B|KiB|MiB|GiB)(\/s)?/N/g' \
        -e 's/N (ms|s|min|h|d)\b( N (s|min|h)\b)?/N/g' \
        -e 's/(bottleneck:?) +[a-z]+/\1 STAGE/' -e 's/^( +time) .*/\1 STAGES/' -e 's/ \(waited N\)//g' |
        tr -s ' \n' '\n' |
        sort # what goes to standard error may come before or after the rest
}
block() { awk -v n="$1" '/^```/ { if (on) exit; on = $0 == "```text " n; next } on' "$PAGE"; }
# show NAME CODE [SED...]: runs the command of the block and compares.
show() {
    local name=$1 code=$2 x rc
    shift 2
    seen="$seen $name"
    x=$(block "$name" | sed -n 's/^\$ //p')
    [ -n "$x" ] || { fail "$name is on the page"; return; }
    x=$(sed -e "s,/srv/vm,$WORK/vm,g" "$@" <<<"$x")
    env PATH="$WORK/bin:$PATH" bash -o pipefail -c "$x" >"$WORK/$name.out" 2>&1 </dev/null
    rc=$?
    same "$name: exit code" $rc "$code"
    sed -e "s,$WORK/vm,/srv/vm,g" -e "s,$REPO,/srv/backup,g" -e "s,$CONF,/etc/snapferry,g" \
        -e "s,$STATE,/var/lib/snapferry,g" \
        -e "s,$RUN,/run/snapferry,g" -e "s,$WORK/password,/etc/snapferry/main.password,g" -e "s,$WORK,/srv,g" \
        "$WORK/$name.out" |
        sed -E -e "s/VOLUME {$((${#WORK} - 4))}/VOLUME/" -e '/^[a-z]+(-[a-z]+)?-[0-9]{8}T[0-9a-f-]+: /d' \
            -e '/^  \/srv.*: /d' >"$WORK/$name.txt" # not what moves on
    if [ -n "${ACCEPT:-}" ]; then
        awk -v n="$name" -v f="$WORK/$name.txt" '
            /^```/ { if (on) on = 0; else if ($0 == "```text " n) { on = 1; print; next } }
            on && /^\$ / { print; while ((getline line <f) > 0) print line; next }
            !on' "$PAGE" >"$WORK/page" && cat "$WORK/page" >"$PAGE"
    fi
    check "$name: what it says" diff <(block "$name" | grep -v '^\$ ' | normal) <(normal <"$WORK/$name.txt")
}
job() { askj backups --all | jq -r '.backups[0].id'; }

image "$WORK/vm/db.img" 8 1
image "$WORK/vm/web.img" 6 2
daemon_setup 'node-name = nas1' 'retry-first = 3s' 'retry-max = 3s' 'cancel-grace = 30s'
config_class images "$WORK/vm" 'snapshots-to-retain = 2'
config_add 60-job $'[job "nightly"]\nvolumes = class:images\non-calendar = *-*-* '"$(later)"$'\nkeep-latest = 2'
starts "the daemon"

check "a first backup" ask backup --job nightly --wait --quiet
A=$(job)
show natives 0
show memory 0
show timeouts 0
stops "the daemon ends for a moment" # it looks at repositories that were there each half minute only
mv "$REPO" "$REPO.away"
starts "without its repository"
W=$(submit "$WORK/vm/web.img")
waits() {
    [ "$(askj operations --backup "$W" | jq -r '.operations[0].state + .operations[0].why' | cut -c1-16)" \
        = 'Queuedrepository' ]
}
check "a backup waits" until_true 30 waits
show stuck 0 -e "s,operations,& --backup $W,"
show stuck-status 0
mv "$REPO.away" "$REPO"
same "it goes on when the repository is back" "$(wait_state "$W" Completed 60)" Completed
show cancel 0 -e "s,BACKUP,$A,"
show reads 0 -e "s,OPERATION,$(op_id "$A" "$WORK/vm/db.img"),"
show stages 0 -e "s,OPERATION,$(op_id "$A" "$WORK/vm/db.img"),"
check "a restore" ask restore "$A/$WORK/vm/db.img" "$WORK/vm/db.out" --from repository --wait --quiet
D=$(askj backups --all | jq -r '[.backups[] | select(.kind == "restore")][0].id')
show restore 0 -e "s,OPERATION,$(op_id "$D"),"

# A hook that says no, in a file of its own.
printf '#!/bin/sh\necho "the database is being upgraded" >&2\nexit 1\n' >"$WORK/vm/no"; chmod 755 "$WORK/vm/no"
config_add 70-hook "[volume \"$WORK/vm/db.img\"]
hook-pre-snapshot = $WORK/vm/no
retries = 0"
check "reload" ask reload --wait
ask backup --job nightly --wait --quiet >/dev/null 2>&1
F=$(job)
show failed 0 -e "s,OPERATION,$(op_id "$F" "$WORK/vm/db.img"),"
rm "$CONF/conf.d/70-hook.ini"
image "$WORK/vm/new.img" 1 3
printf '[policy "scratch"]\nmatch = %s/tmp-*\naction = skip\n' "$WORK/vm" >"$CONF/conf.d/70-policy.ini"
image "$WORK/vm/tmp-1.img" 1 4
check "reload again" ask reload --wait
scanned() { [ "$(askj status | jq '[.repositories[] | select(.unscanned)] | length')" = 0 ]; }
check "the repository was scanned for what the records do not have" until_true 30 scanned
show unprotected 0
rm "$WORK/vm/new.img" "$WORK/vm/tmp-1.img" "$CONF/conf.d/70-policy.ini"

check "a second backup" ask backup "$WORK/vm/db.img" "$WORK/vm/web.img" --wait --quiet
check "a third one" ask backup --job nightly --wait --quiet
show prune 0
show expire 0

printf '[job "x"]\nvolumes = class:imagse\n' >"$CONF/conf.d/80-bad.ini"
show reload 2
rm "$CONF/conf.d/80-bad.ini"
check "and without it" ask reload --wait

cp "$WORK/password" "$WORK/password.good"; secret "$WORK/password" <<<wrong
show password 10
cp "$WORK/password.good" "$WORK/password"

pack=$(find "$REPO/p" -type f -printf '%s %p\n' | sort -rn | sed -n '1s/^[0-9]* //p') # that of db.img
cp "$pack" "$WORK/pack"
printf 'XXXXXXXX' | dd of="$pack" bs=1 seek=1500000 conv=notrunc status=none
show verify 15
V=$(askj operations --all | jq -r '[.operations[] | select(.kind == "verify")][0].id')
show verify-logs 0 -e "s,OPERATION,$V,"
cp "$WORK/pack" "$pack"

stops "the daemon ends"
show down 0

missing=$(grep -oE '^```text .*' $PAGE | sed 's/^```text //' | grep -vxF -f <(tr ' ' '\n' <<<"$seen"))
same "every block of the page was shown" "$missing" ""
explain_failure
finish
