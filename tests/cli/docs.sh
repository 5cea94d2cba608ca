#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# All documentation against the code: links, files, units, verbs and options of commands that are shown, verbs of the
# control socket, environment variables, metrics, exit codes, samples of configuration and JSON, the import from Velero.
# (Options, verbs and exit codes of snapferry(8): man.sh. Keys of snapferry.ini(5): test_cfg_man.c. What commands print:
# golden files.)
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../docs-lib.sh"
root=$(realpath "$(dirname "$0")/../..")
cd "$root" || exit 1
PODS=(docs/man/*.pod)
PAGES=(README.md docs/*.md)
empty() { if [ -z "$2" ]; then pass "$1"; else fail "$1" "$2"; fi; }
# Each of these checks says what is wrong, one thing a line.

# ---- links and files ----

links() { # FILE...
    local f target path
    for f; do
        while read -r target; do
            path=${target%%#*}
            [ -z "$path" ] || [ -e "$(dirname "$f")/$path" ] || echo "$f: $target"
            if [ -n "$path" ] && [ "$path" != "$target" ] && ! grep -qiE "^#+ .*" "$(dirname "$f")/$path"; then
                echo "$f: $target"
            fi
        done < <(grep -oE '\]\([^)]+\)' "$f" | sed 's/^](//; s/)$//' | grep -vE '^(https?|mailto):')
    done
}
empty "links between pages lead somewhere" "$(links "${PAGES[@]}" tests/README.md perf/README.md CHANGELOG.md)"
printf 'see [x](nothing.md)\n' >"$WORK/bad.md"
same "a dead link is noticed" "$(links "$WORK/bad.md")" "$WORK/bad.md: nothing.md"

man_links() { # FILE...
    local f page section name
    for f; do
        while read -r page; do
            case $page in
            http*) ;;
            /*) section=${page#/}; grep -qE "^=(head[1-4]|item) ${section//[()]/.}" "$f" || echo "$f: L<$page>" ;;
            snapferry*)
                name=${page%%/*} section=
                [[ $page == */* ]] && section=${page#*/}
                name=docs/man/${name%(*}.${name##*(}
                name=${name%)}.pod
                [ -f "$name" ] || echo "$f: L<$page>"
                [ -z "$section" ] || grep -qE "^=head[1-4] $section" "$name" 2>/dev/null || echo "$f: L<$page>"
                ;;
            esac
        done < <(tr '\n' ' ' <"$f" | grep -oE 'L<[^>]+>' | sed 's/^L<//; s/>$//; s/^[^|]*|//')
    done
}
empty "links between manual pages lead somewhere" "$(man_links "${PODS[@]}")"
# Pages that are named without a link, in manual pages, texts, units and help.
named=$(grep -rhoE '\bsnapferry(d|-[a-z]+|\.ini)?\([1-9]\)' README.md docs examples systemd daemon/cli \
    debian 2>/dev/null | sort -u |
    while read -r p; do n=${p%(*} s=${p##*(}; [ -f "docs/man/$n.${s%)}.pod" ] || echo "$p"; done)
empty "every manual page that is named exists" "$named"
# Paths of the tree in the text. What is built, or has a variable in it, is not there.
dirs='docs|tests|examples|perf|systemd|monitoring|debian|cfg|repo|io|daemon|chunker|base'
paths=$(grep -noE "(^|[ (\`<\"])($dirs)/[A-Za-z0-9_./-]+\.(md|sh|c|h|ini|pod|service|socket|txt|json|yml|yaml)\b" \
    "${PAGES[@]}" tests/README.md "${PODS[@]}" | while IFS=: read -r f l p; do
    p=${p#[ (\`<\"]}
    [ -e "$p" ] || echo "$f:$l: $p"; done)
empty "files of the tree that are named exist" "$paths"
# In the directory of the documentation, too: "control.md".
bare=$(grep -noE 'F<[a-z-]+\.md>' "${PODS[@]}" | while IFS=: read -r f l p; do p=${p#F<}; [ -e "docs/${p%>}" ] ||
    echo "$f:$l: $p"; done)
empty "pages that manual pages name exist" "$bare"

units=$(grep -rhoE '\bsnapferryd?(-[a-z]+)?@?\.(service|socket|slice|timer|target)\b' README.md docs examples \
    debian 2>/dev/null | sort -u | while read -r u; do
    case $u in
    snapferry-mover@.service | snapferry-backup-*.timer) ;; # made at run time, see below
    snapferryd-metrics.socket) ;; # of versions before 0.2: the package stops it
    *) [ -e "systemd/$u" ] || echo "$u" ;;
    esac
done)
empty "units that are named exist" "$units"
check "the movers' units are named as documented" grep -q '"snapferry-mover@' daemon/movers/builtin-impl.h

# ---- commands that are shown ----

# commands FILE...: FILE:LINE<tab>words of each call of snapferry in code.
commands() {
    perl -ne '
        my @code;
        if ($ARGV =~ /\.pod$/) {
            push @code, $_ if /^\s+\S/;
            push @code, $1 while /C<((?:[^<>]|E<[a-z]+>)*)>/g;
        } elsif ($ARGV =~ /\.md$/) {
            if (/^```/) { $in = !$in; $in = 0 if eof; }
            push @code, $_ if $in || /^    \S/;
            push @code, $1 while !$in && /`([^`]+)`/g;
        } else { push @code, $_ }
        for my $c (@code) {
            $c =~ s/E<gt>/>/g; $c =~ s/E<lt>/</g;
            $c =~ s/\s+#\s.*//;
            for (split /\s*(?:&&|\|\||[|;])\s*/, $c) {
                s/^[\s(]*(?:\$ |# )?(?:ExecReload=|sudo )?//;
                s/^\@bindir\@\///;
                s/\s+\(.*|\)$//;
                print "$ARGV:$.\t$1\n" if /^(?:snapferry|sf) +(-?[a-z].*?)\s*$/ && !/^snapferry for /;
            }
        }
        close ARGV if eof' "$@"
}
"$SNAPFERRY" --help >"$WORK/help"
sed -n '/^verbs/,/^general options/p' "$WORK/help" |
    grep -oE '^  ((repo|snapshot|native) [a-z-]+|[a-z-]+)' | sed 's/^ *//' | sort -u >"$WORK/verbs"
while read -r v; do "$SNAPFERRY" $v --help >"$WORK/help.${v// /_}"; done <"$WORK/verbs"
judge() { # lines of commands() on standard input
    local where words verb w
    while IFS=$'\t' read -r where words; do
        words=$(sed -E 's/(^| )-r +[^ ]+/\1/g; s/--(password-file|config|cache-dir) +[^ ]+//g; s/[]["'"'"']//g' \
            <<<"$words")
        read -ra w <<<"$words"
        [ ${#w[@]} -gt 0 ] || continue
        case ${w[0]} in -*) verb= ;; *) verb=${w[0]} ;; esac
        if [ -n "$verb" ] && ! grep -qx -- "$verb" "$WORK/verbs"; then verb="${w[0]} ${w[1]:-}"; fi
        if [ -n "$verb" ] && ! grep -qx -- "$verb" "$WORK/verbs"; then
            grep -qE "^${w[0]}( |$)" "$WORK/verbs" && [ -z "${w[1]:-}" ] && continue
            echo "$where: there is no verb \"$verb\""
            continue
        fi
        for o in $(grep -oE -- '(^| )--[a-z][a-z-]+' <<<"$words"); do
            grep -qE -- "(^| )$o([ =[]|$)" "$WORK/help${verb:+.${verb// /_}}" || echo "$where: $verb has no option $o"
        done
    done
}
commands "${PAGES[@]}" "${PODS[@]}" examples/*.ini examples/conf.d/*.ini examples/hooks/* systemd/* \
    debian/snapferry.README.Debian debian/snapferry.ini >"$WORK/commands" 2>/dev/null
check "commands are found in the pages" test "$(wc -l <"$WORK/commands")" -gt 80
empty "every command that is shown exists, with its options" "$(judge <"$WORK/commands")"
printf 'here\tnative purge\nhere\tstatus --loud\nhere\t-r /x --password-file y restore latest /z --verify\n' \
    >"$WORK/bad"
same "one that does not is noticed" "$(judge <"$WORK/bad")" \
    $'here: there is no verb "native purge"\nhere: status has no option --loud'

# ---- every verb's help ----

thin=$(while read -r v; do
    f=$WORK/help.${v// /_}
    grep -q '^usage: ' "$f" && grep -qE '^(general )?options:' "$f" && grep -q '^examples:' "$f" || echo "$v"
done <"$WORK/verbs")
empty "the help of each verb has usage, options and an example" "$thin"
sed -n '/^examples:/,/^$/p' "$WORK"/help.* | sed -n 's/^  snapferry /example\t/p' >"$WORK/examples"
check "examples are found" test "$(wc -l <"$WORK/examples")" -gt 35
empty "the examples of the help exist, with their options" "$(judge <"$WORK/examples")"

# ---- control socket ----

sed -n '/^    {"ping"/,/^};/p' daemon/control/verbs.c | grep -oE '^    \{"[a-z-]+"' | tr -d ' {"' |
    sort >"$WORK/control.code"
sed -n '/^## Verbs/,/^## The command/p' docs/control.md | grep '^| `' | cut -d'|' -f2 | grep -oE '`[a-z-]+`' |
    tr -d '`' | sort >"$WORK/control.docs"
check "verbs of the socket are found" test "$(wc -l <"$WORK/control.code")" -gt 15
check "verbs of the control socket are those of docs/control.md" diff "$WORK/control.code" "$WORK/control.docs"
args=$(sed -n '/^    {"ping"/,/^};/p' daemon/control/verbs.c | tr -d '\n' |
    grep -oE '\{"[a-z-]+", [a-z_]+, (true|false), *("[^"]*" *)+' | while read -r line; do
    v=$(cut -d'"' -f2 <<<"$line")
    row=$(sed -n '/^## Verbs/,/^## The command/p' docs/control.md | grep -E "^\| [^|]*\`$v\`" | head -n 1)
    for a in $(cut -d'"' -f4- <<<"$line" | tr -d '"' | grep -oE '[a-z_-]+:' | tr -d :); do
        grep -qF "\`$a\`" <<<"$row" || echo "$v: $a"
    done
done)
empty "and so are their arguments" "$args"

# ---- environment ----

# For tests alone: told in tests/README.md or snapferry-mover(8).
grep -rhoE '(getenv|env_get)\("[A-Z_]+"' --include=*.c base proc cfg chunker io repo daemon | grep -oE '[A-Z_]{3,}' |
    sort -u >"$WORK/env.code"
grep -rhoE '"SNAPFERRY_[A-Z_]+' --include=*.c --include=*.h base proc cfg chunker io repo daemon | tr -d '"' |
    sed 's/_KERNEL_NAME$/_KERNEL_/' | sort -u >>"$WORK/env.code"
undocumented=$(sort -u "$WORK/env.code" |
    while read -r v; do grep -qE "\b$v" "${PODS[@]}" docs/hooks.md tests/README.md || echo "$v"; done)
empty "every environment variable that is read or set is documented" "$undocumented"
unknown=$(grep -ohE '\bSNAPFERRY_[A-Z0-9_]+' "${PODS[@]}" docs/*.md README.md examples/hooks/* examples/plugins/* |
    sort -u | while read -r v; do
    case $v in
    SNAPFERRY_KERNEL_*) grep -rqi "${v#SNAPFERRY_KERNEL_}" --include='kernel*.c' --include='*select*.c' \
        --include='*.c' chunker || [ "$v" = SNAPFERRY_KERNEL_ ] || echo "$v" ;;
    SNAPFERRY_OBJECTS) grep -q "$v" debian/rules || echo "$v" ;; # of the package's build
    *) grep -rqE "\b$v\b" --include=*.c --include=*.h base proc cfg chunker io repo daemon || echo "$v" ;;
    esac
done)
empty "none is documented that does not exist" "$unknown"

# ---- exit codes ----

grep -oE 'ERR_[A-Z_]+ = [0-9]+' base/err.h | grep -oE '[0-9]+$' | sort -n >"$WORK/codes"
for page in snapferryd.8 snapferry-recovery.7; do
    wrong=$(sed -n '/^=head1 EXIT STATUS/,/^=head1 [^E]/p' "docs/man/$page.pod" | sed 's/(\([0-9]\))//g' |
        grep -oE '\b[0-9]{1,3}\b' | sort -un | grep -vxFf "$WORK/codes" | grep -vx 0)
    empty "exit codes of $page exist" "$wrong"
done
# 65 is a plugin's (snapferry-plugin(7)).
wrong=$(grep -rhoiE '\b(exit codes?|ends with|ended with) [0-9]+' "${PAGES[@]}" "${PODS[@]}" | grep -oE '[0-9]+$' |
    sort -un | grep -vxFf "$WORK/codes" | grep -vx -e 0 -e 65)
empty "exit codes in the text exist" "$wrong"

# ---- metrics ----

if [ -f daemon/metrics/families.c ]; then
    # Two layouts: {"name", ... and macros that begin with the name.
    grep -oE '"[a-z][a-z0-9_]+"' daemon/metrics/families.c | tr -d '"' | sort -u >"$WORK/families"
    bad=$(grep -rohE '\bsnapferry_[a-z][a-z0-9_]+' README.md docs monitoring 2>/dev/null | sort -u | while read -r m; do
        n=${m#snapferry_} b=$m
        for suffix in _bucket _sum _count; do [[ $n == *$suffix ]] && b=${n%$suffix}; done
        case $m in snapferry_*_) continue ;; esac # "snapferry_pool_*"
        grep -qx -- "$n" "$WORK/families" || grep -qx -- "$b" "$WORK/families" || echo "$m"
    done)
    empty "metrics that are named exist" "$bad"
else
    skip "metrics that are named exist" "there is no table of families"
fi

# ---- configuration ----

# A sample may name what only its reader has: those complaints are no mistakes of the sample.
sample() { # NAME FILE
    local d=$WORK/sample
    rm -rf "$d"; mkdir -p "$d"
    cp "$2" "$d/snapferry.ini"
    if grep -q '^\[' "$2"; then
        if ! "$SNAPFERRY" check-config --config-dir "$d" --json >"$WORK/sample.json" 2>/dev/null; then
            jq -r 'select(.type == "result") | .complaints[] | select(.severity == "error") | .text' \
                "$WORK/sample.json" |
                grep -vE "no \[(repository|storage-class|plugin|job)|No such file|of kind driver, not mover" \
                | sed "s|^|$1: |"
        fi
    fi
}
bad=$(for f in "${PAGES[@]}"; do
    for ((i = 1; i <= $(md_blocks "$f" ini); i++)); do
        [ "$f $i" = "docs/migration-velero.md 1" ] && continue # is not whole by itself, see below
        md_block "$f" ini $i >"$WORK/block.ini"
        sample "$f, block $i" "$WORK/block.ini"
    done
done)
empty "blocks of configuration in the pages have no mistakes" "$bad"
bad=$(for f in "${PODS[@]}"; do # each run of indented lines from a section on
    rm -f "$WORK"/pod.*.ini
    awk -v to="$WORK/pod." '/^    \[[a-z-]+( "[^"]*")?\]$/ && !on { on = 1; n++ } on && /^[^ ]/ { on = 0 }
        on { sub(/^    /, ""); print >(to n ".ini") }' "$f"
    for x in "$WORK"/pod.*.ini; do [ -s "$x" ] && sample "$f" "$x"; done
done)
empty "so have those in manual pages" "$bad"
bad=$(for f in examples/*.ini examples/conf.d/*.ini debian/snapferry.ini; do [ -f "$f" ] && sample "$f" "$f"; done)
empty "and the examples" "$bad"
# With what is commented out, as well.
bad=$(for f in examples/*.ini examples/conf.d/*.ini debian/snapferry.ini; do
    [ -f "$f" ] || continue
    # A group that every system has.
    sed -E -e 's/^;([a-z\[])/\1/' -e 's/^(unix-group = ).*/\1root/' "$f" >"$WORK/block.ini"
    sample "$f without its semicolons" "$WORK/block.ini" | grep -v 'is set twice' # one or the other
done)
empty "also when what is commented out is not" "$bad"
printf '[job "x"]\nvolumes = *\nsnapshot-to-retain = 3\n' >"$WORK/block.ini"
check "a mistake would be noticed" sh -c "[ -n '$(sample bad "$WORK/block.ini" | tr -d "'")' ]"
# Keys that the text names: `key = value` in the pages.
grep -oE '^=item B<[a-z-]+(\.\*)?>' docs/man/snapferry.ini.5.pod | sed 's/=item B<//; s/>//; s/\.\*//' |
    sort -u >"$WORK/keys"
bad=$(grep -noE '[`<][a-z-]+ = [^`>]*[`>]' "${PAGES[@]}" "${PODS[@]}" | while IFS=: read -r f l k; do
    k=${k#[\`<]} k=${k%% =*}
    grep -qx -- "$k" "$WORK/keys" || [[ $k == backup-option* ]] || echo "$f:$l: $k"; done | grep -vE ': key$')
empty "keys that the text sets exist" "$bad"

# ---- JSON ----

bad=$(for f in "${PAGES[@]}" "${PODS[@]}"; do
    grep -nE '^ {4,}[{[].*[]}]$' "$f" | grep -vE '\.\.\.|…|: (string|integer|any|N\b)|^[0-9]+: +\[[a-z]|fds' |
    while IFS=: read -r l x; do
        jq empty <<<"$x" >/dev/null 2>&1 || echo "$f:$l: $x"
    done
    for ((i = 1; i <= $(md_blocks "$f" json); i++)); do
        md_block "$f" json $i | jq empty >/dev/null 2>&1 || echo "$f: JSON block $i"
    done
done)
empty "JSON in the pages is JSON" "$bad"

# ---- the need of memory that docs/sizing.md shows ----

mkdir -p "$WORK/sizing"
md_block docs/sizing.md ini 1 >"$WORK/sizing/snapferry.ini"
check "the configuration of docs/sizing.md needs the memory that it shows" diff <(md_block docs/sizing.md text 1 |
    grep -v '^\$') \
    <("$SNAPFERRY" check-config --config-dir "$WORK/sizing" | grep -A3 '^Memory')

# ---- the import from Velero: the page's document gives the page's output ----

V=docs/migration-velero.md
md_block $V json 1 >"$WORK/configmap.json"
md_block $V ini 1 >"$WORK/imported.page"
"$SNAPFERRY" import-velero "$WORK/configmap.json" >"$WORK/imported" 2>"$WORK/imported.err"
same "the sample ConfigMap is imported" $? 0
check "its INI is the one on the page" diff "$WORK/imported.page" "$WORK/imported"
I=$WORK/velero; mkdir -p "$I/conf.d"
cp "$WORK/imported" "$I/conf.d/40-velero.ini"; : >"$I/snapferry.ini"
md_block $V ini 2 | sed "s,/srv/vm,$WORK/vm," >"$I/conf.d/50-local.ini"
mkdir -p "$WORK/vm/intermediate"
expect "with the file that the page adds it is in force" 0 'no errors' -- "$SNAPFERRY" check-config --config-dir "$I"
"$SNAPFERRY" check-config --config-dir "$I" --json >"$WORK/velero.json" 2>/dev/null
value() { jq -r ".sections[] | select(.kind == \"$1\" and .name == \"$2\") | .keys[\"$3\"].value" "$WORK/velero.json"; }
while read -r kind name key want; do
    same "it means the same: $name $key" "$(value "$kind" "${name#-}" "$key")" "$want"
done <<'END'
daemon - slots 2
daemon - prepare-ahead 10
storage-class storage-class-1 backup-storage-class backupPVC-storage-class
storage-class storage-class-1 backup-read-only yes
storage-class storage-class-2 backup-storage-class backupPVC-storage-class
storage-class storage-class-2 backup-read-only no
storage-class storage-class-3 backup-read-only no
END
md_block $V json 2 >"$WORK/refused.json"
expect "what cannot be said here is refused as the page shows" 2 '' -- "$SNAPFERRY" import-velero "$WORK/refused.json"
"$SNAPFERRY" import-velero "$WORK/refused.json" 2>&1 | sed "s,$WORK/refused.json,other.json," >"$WORK/refused.out"
md_block $V text 1 | grep -v '^\$' >"$WORK/refused.page"
check "in those words" diff "$WORK/refused.page" "$WORK/refused.out"
finish
