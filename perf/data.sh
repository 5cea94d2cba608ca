# SPDX-License-Identifier: GPL-2.0-or-later
# Data sets, made on the spot in $W/data: from a seed, or from the files of this machine in a fixed order.
mkdir "$W/data"
SEED=${SEED:-1}
make_data() { "$BUILD/perf/make_data" "$@" >/dev/null || die "cannot make the data set $2"; }

# present NAME: from now on the volume has these bytes. A new file each time, as far as programs can see.
present() {
    ln -f "$W/data/$1" "$W/v/volume.img"
    touch "$W/v/volume.img"
}
drop_data() { (cd "$W/data" && rm -rf "$@"); rm -f "$W/v/volume.img"; }

# machine_files MIB: a copy in $W/data/tree of programs, libraries, headers and texts of this machine, this much of
# them.
machine_files() {
    rm -rf "$W/data/tree"
    mkdir "$W/data/tree"
    { # Programs and headers and texts in turn with libraries, which are the most by far.
        list_files /usr/bin $(($1 * 30 / 100))
        list_files /usr/include $(($1 * 10 / 100))
        list_files /usr/share $(($1 * 15 / 100))
        list_files /usr/lib $(($1 * 40 / 100))
    } >"$W/data/list"
    tar -C / -cf - --no-recursion -T "$W/data/list" 2>/dev/null | tar -C "$W/data/tree" -xf - ||
        die "cannot copy files of this machine"
    rm "$W/data/list"
}
# Each file counts 4 KiB more than it holds: empty ones and directories need room too.
list_files() { # DIRECTORY MIB
    find "$1" -xdev -type f -size -64M -readable -printf '%P\t%k\n' 2>/dev/null | LC_ALL=C sort |
        awk -F '\t' -v max=$(($2 * 1024)) -v dir="${1#/}" \
        '{ room = $2 + 4; if (sum + room > max) next; sum += room; print dir "/" $1 }'
}

# One tar of ELF and text.
make_text() { # MIB
    machine_files "$1"
    tar -C "$W/data/tree" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$W/data/text" .
    rm -rf "$W/data/tree"
}

# A real ext4 with those files, and the same after a working day: of each hundred files one is removed, one changed in
# a few places, and one comes to the new ones. Nothing else moves, as in a file system that is mounted.
make_image() { # MIB
    local percent
    export E2FSPROGS_FAKE_TIME=1700000000
    for percent in 80 65 50 35; do # directories and inodes need room too, in a small image much of it
        machine_files $(($1 * percent / 100))
        if mkfs.ext4 -q -F -b 4096 -m 0 -N $((($(find "$W/data/tree" | wc -l) + 100) * 5 / 4)) \
            -U 3fa2c2d0-5c0e-4c4f-9d3b-000000000001 \
            -E hash_seed=3fa2c2d0-5c0e-4c4f-9d3b-000000000002,lazy_itable_init=0,lazy_journal_init=0 \
            -d "$W/data/tree" "$W/data/image" "$1"M >/dev/null 2>"$W/stderr"; then
            return
        fi
        rm -f "$W/data/image"
    done
    die "mkfs.ext4 fails: $(tail -n 2 "$W/stderr")"
}
change_image() {
    local n=0 file
    cp --sparse=always "$W/data/image" "$W/data/image-after"
    mkdir "$W/data/new"
    {
        echo "mkdir /new"
        while IFS= read -r file; do
            n=$((n + 1))
            case $((n % 100)) in
            0) echo "rm \"$file\"" ;;
            1)
                { cat "$W/data/tree/$file"; echo "a line more"; } >"$W/data/new/$n"
                printf 'patched' | dd of="$W/data/new/$n" bs=1 seek=$(($(stat -c %s "$W/data/new/$n") / 2)) \
                    conv=notrunc status=none
                printf 'rm "%s"\nwrite "%s" "%s"\n' "$file" "$W/data/new/$n" "$file"
                ;;
            2)
                tr 'a-z' 'b-za' <"$W/data/tree/$file" >"$W/data/new/$n"
                echo "write \"$W/data/new/$n\" \"/new/$n\""
                ;;
            esac
        done < <(cd "$W/data/tree" && find . -type f ! -name '*["]*' | LC_ALL=C sort)
    } >"$W/data/changes"
    debugfs -w -f "$W/data/changes" "$W/data/image-after" >"$W/data/changed" 2>&1 ||
        die "debugfs fails: $(tail -n 3 "$W/data/changed")"
    grep -v '^debugfs: ' "$W/data/changed" | grep -E 'rror|not found|No such|No space' &&
        die "the image was not changed as meant"
    rm -rf "$W/data/tree" "$W/data/new" "$W/data/changes" "$W/data/changed"
}
