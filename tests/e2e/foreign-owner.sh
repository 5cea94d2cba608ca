#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Root works with -r on a repository that belongs to another user, who has put links and other things in the way:
# nothing outside is read, written or changes its owner.
. "$(dirname "$0")/../lib.sh"
if ! is_root; then skip "repositories of other users" "needs root"; finish; fi
random_file "$WORK/image" 3000000 71
random_file "$WORK/other" 3000000 72
chmod 755 "$WORK"
OWNER=65534
sf "$WORK/repo" repo create --quiet
sf "$WORK/repo" backup "$WORK/image" --as t@h:/v --quiet
chown -R $OWNER:$OWNER "$WORK/repo"
cp -a "$WORK/repo" "$WORK/base"
expect "an ordinary backup" 0 -- sf "$WORK/repo" backup "$WORK/other" --as t@h:/w --quiet
same "all that it wrote belongs to the owner" "$(find "$WORK/repo" ! -uid $OWNER)" ""

anew() {
    rm -rf "$WORK/repo" "$WORK/outside" "$CACHE" "$WORK/out"
    cp -a "$WORK/base" "$WORK/repo"
    mkdir -m 700 "$WORK/outside"
    echo secret >"$WORK/outside/secret"; chmod 600 "$WORK/outside/secret"
    marks=$(outside)
}
outside() { find "$WORK/outside" -printf '%P %u %g %m %s %T@\n' | sort; }
untouched() { same "$1: nothing outside was touched" "$(outside)" "$marks"; }
# fails NAME PATTERN COMMAND...
fails() {
    local name=$1 pattern=$2 out rc
    shift 2
    out=$("$@" 2>&1)
    rc=$?
    if [ $rc -eq 0 ] || ! grep -qE "$pattern" <<<"$out"; then fail "$name" "exit code $rc" "$out"; else pass "$name"; fi
}
# What the owner's shell does, as the owner.
own() { setpriv --reuid=$OWNER --regid=$OWNER --clear-groups "$@"; }

for d in p q x; do
    anew
    own rm -rf "$WORK/repo/$d"; own ln -s "$WORK/outside" "$WORK/repo/$d"
    fails "directory $d is a link: a backup fails" 'symbolic link|not followed|levels of symbolic' \
        sf "$WORK/repo" backup "$WORK/other" --as t@h:/w --quiet
    untouched "directory $d is a link, backup"
    sf "$WORK/repo" snapshot delete latest --quiet --yes --force >/dev/null 2>&1
    untouched "directory $d is a link, delete"
done

# A level deeper, and a blob.
anew
pack=$(cd "$WORK/repo" && find p -name '*.f' | head -n 1)
own mv "$WORK/repo/$pack" "$WORK/repo/moved"; own ln -s ../../moved "$WORK/repo/$pack"
expect "a pack that is a link is not followed" 15 'symbolic link|missing|levels of' -- \
    sf "$WORK/repo" restore latest "$WORK/out" --as t@h:/v --quiet
anew
own mv "$WORK/repo/kopia.repository.f" "$WORK/repo/kept"; cp "$WORK/repo/kept" "$WORK/outside/format"
marks=$(outside)
own ln -s "$WORK/outside/format" "$WORK/repo/kopia.repository.f"
fails "nor is the format blob" 'symbolic link|links in a repository' sf "$WORK/repo" snapshot list
untouched "the format blob is a link"
anew
own rm "$WORK/repo/.shards"; own ln -s "$WORK/outside/secret" "$WORK/repo/.shards"
fails "nor .shards" 'shards' sf "$WORK/repo" backup "$WORK/other" --as t@h:/w --quiet
untouched ".shards is a link"

# Another .shards: new names lie in other directories, which are links.
anew
printf '{"default":[2,2],"maxNonShardedLength":20,"overrides":[{"prefix":"x","shards":[1,3]}]}\n' |
    own tee "$WORK/repo/.shards" >/dev/null
for a in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
    for k in p q; do own ln -s "$WORK/outside" "$WORK/repo/$k$a"; done
done
sf "$WORK/repo" backup "$WORK/other" --as t@h:/w --quiet >/dev/null 2>&1
untouched "directories of another .shards are links"
anew
printf '{"default":[1,1,1,1],"maxNonShardedLength":0}\n' | own tee "$WORK/repo/.shards" >/dev/null
own ln -s "$WORK/outside" "$WORK/repo/k"; own ln -s "$WORK/outside" "$WORK/repo/s"
sf "$WORK/repo" backup "$WORK/other" --as t@h:/w --quiet >/dev/null 2>&1
untouched "even that of the format blob"

# FIFOs and devices are refused at once.
index=$(cd "$WORK/base" && find x -name '*.f' | head -n 1)
for blob in kopia.repository.f kopia.blobcfg.f .shards "$index" "$pack"; do
    anew
    own rm "$WORK/repo/$blob"; own mkfifo "$WORK/repo/$blob"
    timeout 20 "$SNAPFERRY" -r "$WORK/repo" --password-file "$WORK/password" restore latest "$WORK/out" --as t@h:/v \
        --quiet >"$WORK/log" 2>&1
    rc=$?
    # An index blob that is none does not count as one: what others have is restored.
    case $blob in
    x/*) check "a FIFO as an index blob is not waited for ($rc)" test $rc -ne 124 ;;
    *) check "a FIFO as ${blob%%/*} is refused at once ($rc)" test $rc -ne 0 -a $rc -ne 124 -a -s "$WORK/log" ;;
    esac
done
mkfifo -m 600 "$WORK/fifo"
timeout 20 "$SNAPFERRY" -r "$WORK/base" --password-file "$WORK/fifo" snapshot list >"$WORK/log" 2>&1
same "a FIFO as password file is refused at once" $? 2
check "it says so" grep -q 'not a regular file' "$WORK/log"
finish
