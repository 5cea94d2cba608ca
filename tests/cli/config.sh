#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# check-config and import-velero: effective values with origins, memory (MS-43), every complaint, exit codes (PVC-08,
# CF-20..24, CF-46); and -r NAME, which lives with mistakes that do not concern it.
. "$(dirname "$0")/../lib.sh"
C=$WORK/etc
mkdir -p "$C/conf.d"
conf() { "$SNAPFERRY" check-config --config-dir "$C" "$@"; }

cp examples/snapferry.ini "$C/" && cp examples/conf.d/*.ini "$C/conf.d/"
expect "the packaged example has no errors" 0 'no errors, [0-9]+ warnings' -- conf
expect "values come with their origin" 0 'match +/srv/vm/\*\.img +conf\.d/50-images\.ini:[0-9]+' -- conf
expect "defaults are shown as such" 0 'prepare-ahead +3 +default' -- conf
expect "the need of memory is added up (MS-43)" 0 '\[mover\] +256\.0 MiB +64\.0 MiB +64\.0 MiB +384\.0 MiB' -- conf
expect "a repository that is not there is told" 0 'is its file system mounted' -- conf
# The driver looks for LVM's tools; without them that is all there is to complain about.
mkdir -p "$WORK/lvm/conf.d"
cp examples/snapferry.ini "$WORK/lvm/" && cp examples/lvm.ini "$WORK/lvm/conf.d/"
"$SNAPFERRY" check-config --config-dir "$WORK/lvm" >"$WORK/out" 2>&1
same "the example of LVM has no errors" "$(grep ' error: ' "$WORK/out" | grep -v 'install LVM')" ""
check "and was read" eval 'grep -qE "lvm\.ini:[0-9]+: error: |cow-size +25 " "$WORK/out"'
mkdir -p "$WORK/s3/conf.d"
cp examples/snapferry.ini "$WORK/s3/" && cp examples/s3.ini "$WORK/s3/conf.d/"
"$SNAPFERRY" check-config --config-dir "$WORK/s3" >"$WORK/out" 2>&1
mkdir "$WORK/plain"
printf '[daemon]\nnode-name = n\n' >"$WORK/plain/snapferry.ini"
expect "check-config prints the policy" 0 'node-name' -- "$SNAPFERRY" check-config --config-dir "$WORK/plain"
same "with --quiet nothing, where all is well" \
    "$("$SNAPFERRY" check-config --config-dir "$WORK/plain" --quiet 2>&1 | grep -v 'unknown user snapferry-mover')" ""
same "the example of S3 has no errors" "$(grep ' error: ' "$WORK/out")" ""
check "but its file of keys is missed" grep -q 's3.ini:[0-9]*: warning: .*s3-keys' "$WORK/out"
mkdir -p "$WORK/zfs/conf.d"
cp examples/snapferry.ini "$WORK/zfs/" && cp examples/zfs.ini "$WORK/zfs/conf.d/"
"$SNAPFERRY" check-config --config-dir "$WORK/zfs" >"$WORK/out" 2>&1
same "the example of ZFS has no errors" "$(grep ' error: ' "$WORK/out" | grep -v 'install OpenZFS')" ""
if [ -x /usr/sbin/zfs ]; then
    check "and was read" grep -qE 'match +/dev/zvol/tank/vm' "$WORK/out"
else
    check "without zfs it is refused, with file and line" \
        grep -qE 'zfs\.ini:[0-9]+: error: storage class "zvols": cannot run /usr/sbin/zfs.*' "$WORK/out"
fi
mkdir -p "$WORK/nbd/conf.d"
cp examples/snapferry.ini "$WORK/nbd/" && cp examples/nbd.ini "$WORK/nbd/conf.d/"
"$SNAPFERRY" check-config --config-dir "$WORK/nbd" >"$WORK/out" 2>&1
same "the example of NBD has no errors" "$(grep ' error: ' "$WORK/out")" ""
check "and has its key" grep -q "point-in-time  *yes" "$WORK/out"
mkdir -p "$WORK/qemu/conf.d" "$WORK/fleecing"
cp examples/snapferry.ini "$WORK/qemu/" &&
    sed "s#/var/lib/fleecing#$WORK/fleecing#" examples/qemu.ini >"$WORK/qemu/conf.d/qemu.ini"
"$SNAPFERRY" check-config --config-dir "$WORK/qemu" >"$WORK/out" 2>&1
same "the example of QEMU has no errors" "$(grep ' error: ' "$WORK/out")" ""
check "and was read" grep -qE 'match +qemu:///run/vm' "$WORK/out"
mkdir -p "$WORK/rbd/conf.d"
cp examples/snapferry.ini "$WORK/rbd/" && cp examples/rbd.ini "$WORK/rbd/conf.d/"
"$SNAPFERRY" check-config --config-dir "$WORK/rbd" >"$WORK/out" 2>&1
same "the example of Ceph has no errors" "$(grep ' error: ' "$WORK/out")" ""
check "and was read" grep -qE 'match +vms/\*' "$WORK/out"
mkdir -p "$WORK/device/conf.d"
cp examples/snapferry.ini "$WORK/device/" && cp examples/device.ini "$WORK/device/conf.d/"
"$SNAPFERRY" check-config --config-dir "$WORK/device" >"$WORK/out" 2>&1
same "the example of raw devices has no errors" "$(grep ' error: ' "$WORK/out")" ""
check "and was read" grep -qE 'match +/dev/disk/by-id' "$WORK/out"
COLUMNS=80 conf >"$WORK/out" 2>&1
check "no escape sequences but on a terminal" sh -c "! grep -q \$'\033' $WORK/out"
same "80 columns are enough" "$(awk 'length > 80 && !/\// { n++ } END { print n + 0 }' "$WORK/out")" 0
if script -qec true /dev/null >/dev/null 2>&1; then
    TERM=xterm script -qec "$SNAPFERRY check-config --config-dir $C" /dev/null >"$WORK/tty" </dev/null
    check "colour on a terminal" grep -q $'\033\\[33mwarning' "$WORK/tty"
else
    skip "colour on a terminal" "there is no script(1)"
fi

conf --json >"$WORK/json"
same "--json: no errors" "$(jq -r .errors "$WORK/json")" 0
same "--json: files" "$(jq -r '.files | length' "$WORK/json")" 3
same "--json: a value" \
    "$(jq -r '.sections[] | select(.kind == "storage-class" and .name == "images") | .keys.driver.value' \
    "$WORK/json")" reflink
same "--json: memory" "$(jq -r '.memory.largest' "$WORK/json")" $((384 << 20))
same "--json: the kind of answer" "$(jq -r '.type + " " + .verb' "$WORK/json")" "result check-config"
hash=$(jq -r .hash "$WORK/json")
echo "; more" >>"$C/snapferry.ini"
check "the hash tells that a file changed" test "$(conf --json | jq -r .hash)" != "$hash"

# All mistakes of all files at once, by class of exit code.
printf '[storage-class "images"]\nsnapshots-to-retain = -1\nmtach = x\nsplitter = FIXED-3M\n[jbo "x"]\n' \
    >"$C/conf.d/60-bad.ini"
expect "errors: exit code 2" 2 '' -- conf
expect "errors: the line and the value (RS-06)" 2 'conf\.d/60-bad\.ini:2' -- conf
expect "errors: the nearest key" 2 'unknown key mtach.*' -- conf
expect "errors: a splitter that is none" 2 'unknown splitter FIXED-3M' -- conf
expect "errors: the nearest section" 2 'nearest known is \[job\]' -- conf
expect "errors: all are counted" 2 '4 errors in the configuration' -- conf
conf --json >"$WORK/json" 2>/dev/null
same "errors: --json" "$(jq -r 'select(.type == "result") | .errors' "$WORK/json")" 4
same "errors: nothing behind the result" "$(wc -l <"$WORK/json")" 1
rm "$C/conf.d/60-bad.ini"
expect "a directory that is not there" 2 'cannot read configuration' \
    -- "$SNAPFERRY" check-config --config-dir "$WORK/none"

# What another file broke does not stand between a repository and its restore.
printf '[daemon]\nnode-name = n\n[repository "here"]\npath = %s/repo\npassword-file = %s/password\n%s\n' \
    "$WORK" "$WORK" "$(printf '[volume "x"]\nnonsense = 1\n[job "y"]')" >"$C/conf.d/70.ini"
expect "-r NAME works beside mistakes of other sections" 0 '' -- \
    "$SNAPFERRY" --config "$C/snapferry.ini" -r here repo create
expect "which check-config tells" 2 'unknown key nonsense' -- conf
rm "$C/conf.d/70.ini"

# The directory of the configuration with -r, as with requests to the daemon.
printf '[repository "there"]\npath = %s/repo2\npassword-file = %s/password\n' "$WORK" "$WORK" >"$C/conf.d/70.ini"
there() { "$SNAPFERRY" --config-dir "$C" -r there "$@"; }
expect "--config-dir DIR -r NAME creates a configured repository" 0 '' -- there repo create
expect "and reads it" 0 '"snapshots": *\[\]' -- there snapshot list --json
expect "a name that the directory does not have" 11 "sections are read from the configuration in $C" -- \
    "$SNAPFERRY" --config-dir "$C" -r theer snapshot list
expect "not together with --config" 2 '\-\-config and --config-dir are mutually exclusive' -- \
    there --config "$C/snapferry.ini" snapshot list
expect "a configuration directory that is not there" 2 "$WORK/none/snapferry.ini" -- \
    "$SNAPFERRY" --config-dir "$WORK/none" -r there snapshot list
mkdir "$WORK/alone" "$WORK/alone/conf.d" && cp "$C/conf.d/70.ini" "$WORK/alone/conf.d/"
expect "conf.d alone is a configuration" 0 '' -- "$SNAPFERRY" --config-dir "$WORK/alone" -r there snapshot list
rm "$C/conf.d/70.ini"

# A repository in S3: keys that are missing or malformed, and its file of access keys.
s3_section() {
    printf '[repository "far"]\ntype = s3\nendpoint = %s\nbucket = b\nprefix = %s\ncredentials = %s\n' "$@" \
        >"$C/conf.d/70.ini"
    printf '[daemon]\nrepository = main\n' >>"$C/conf.d/70.ini"
}
s3_section https://s3.example.org x/ cred:s3
expect "type s3: the daemon uses it" 0 '' -- conf
same "without a warning" "$(conf 2>&1 | grep -c '70.ini:.*warning')" 0
s3_section https://s3.example.org x/ "$WORK/s3-keys"
expect "a file of keys that is missing: a warning" 0 '70.ini:6: warning: .*s3-keys' -- conf
printf 'access-key = a\n' | secret "$WORK/s3-keys"
expect "one without a secret: an error" 2 '70.ini:6: error: .*have no secret-key' -- conf
printf 'access-key = a\nsecret-key = b\n' | secret "$WORK/s3-keys"
expect "a complete one" 0 '' -- conf
s3_section https://s3.example.org x/ cred:s3
expect "type s3: its credentials are needed" 2 'cred:s3|credential s3' -- \
    "$SNAPFERRY" --config "$C/snapferry.ini" -r far --password-file "$WORK/password" snapshot list
s3_section ftp://s3.example.org x/ cred:s3
expect "an endpoint of another kind" 2 'endpoint: neither https nor http' -- conf
s3_section http://s3.example.org x/ cred:s3
expect "one without encryption: a warning" 0 'endpoint: the connection is not encrypted' -- conf
s3_section https://s3.example.org /x cred:s3
expect "a prefix that is a path" 2 'a key does not begin with a slash' -- conf
rm "$C/conf.d/70.ini"

# A class whose driver is in a package that is not installed. (The program lies beside the command in a build.)
mkdir -p "$WORK/alone" && cp "$SNAPFERRY" "$WORK/alone/"
printf '[storage-class "gold"]\ndriver = rbd\nmatch = tank/*\n' >"$C/conf.d/70.ini"
expect "a driver whose package is not there: a warning" 0 'warning: .*cannot run .*/snapferry-rbd' -- \
    "$WORK/alone/snapferry" check-config --config-dir "$C"
rm "$C/conf.d/70.ini"

# What lies in conf.d and is not read.
L=$WORK/left
mkdir -p "$L/conf.d"
printf '[daemon]\nslots = 3\n' | tee "$L/snapferry.ini" >"$L/conf.d/50-local.conf"
ln -s /nowhere/70.ini "$L/conf.d/70.ini"
expect "a file that is not read" 0 \
    'conf.d/50-local.conf: warning: the file is ignored: its name does not end in .ini; rename' \
    -- "$SNAPFERRY" check-config --config-dir "$L"
expect "a link that leads nowhere" 0 'conf.d/70.ini: warning: file skipped: dangling link to /nowhere/70.ini' \
    -- "$SNAPFERRY" check-config --config-dir "$L"

# Import.
cat >"$WORK/velero.json" <<'JSON'
{"loadConcurrency": {"globalConfig": 3},
 "loadAffinity": [{"nodeSelector": {"matchExpressions": [
    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["nas1", "nas2"]}]}}],
 "backupPVC": {"fast": {"storageClass": "scratch", "readOnly": true}, "slow": {}}}
JSON
I=$WORK/imported
mkdir -p "$I/conf.d"
"$SNAPFERRY" import-velero "$WORK/velero.json" >"$I/snapferry.ini"
printf '[repository "m"]\npath = %s/repo\npassword-file = %s/password\n' "$WORK" "$WORK" >"$I/conf.d/90.ini"
for k in fast slow; do printf '[storage-class "%s"]\ndriver = reflink\nmatch = /%s/*\n' $k $k; done >>"$I/conf.d/90.ini"
printf '[storage-class "scratch"]\ndriver = reflink\ntarget = /scratch\n' >>"$I/conf.d/90.ini"
"$SNAPFERRY" check-config --config-dir "$I" --json >"$WORK/json" 2>"$WORK/err"
value() { jq -r ".sections[] | select(.kind == \"$1\" and .name == \"$2\") | .keys[\"$3\"].value" "$WORK/json"; }
same "import: slots" "$(value daemon '' slots)" 3
same "import: nodes" "$(value daemon '' only-on-node)" "nas1 nas2"
same "import: the intermediate's class" "$(value storage-class fast backup-storage-class)" scratch
same "import: read-only" "$(value storage-class fast backup-read-only)" yes
same "import: an empty entry is writable, as there" "$(value storage-class slow backup-read-only)" no
same "import: what it gives is understood" \
    "$(jq -r '[.complaints[] | select(.text | test("unknown (key|section)|expected"))] | length' "$WORK/json")" 0
expect "import: from standard input" 0 'slots = 3' -- sh -c "'$SNAPFERRY' import-velero - <'$WORK/velero.json'"
same "import: --json" "$("$SNAPFERRY" import-velero --json "$WORK/velero.json" | jq -r .type)" result
echo '{"loadAffinity": [{"nodeSelector": {"matchLabels": {"disk": "ssd"}}}]}' >"$WORK/velero.json"
expect "import: a label is refused by name" 2 'loadAffinity\[0\]\.nodeSelector\.matchLabels\."disk"' -- \
    "$SNAPFERRY" import-velero "$WORK/velero.json"
same "import: and nothing is printed" "$("$SNAPFERRY" import-velero "$WORK/velero.json" 2>/dev/null | wc -c)" 0
expect "import: no JSON" 2 'is no JSON' -- "$SNAPFERRY" import-velero examples/snapferry.ini
expect "import: no file" 16 '' -- "$SNAPFERRY" import-velero "$WORK/none.json"
finish
