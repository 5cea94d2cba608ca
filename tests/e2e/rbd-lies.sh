#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Driver rbd where Ceph omits a range of what has changed: found by verify-sample, all is read at once, and in each
# later backup until one with --full was asked for. (CF-08, CF-12)
. "$(dirname "$0")/../daemon-lib.sh"
. "$(dirname "$0")/../ceph-lib.sh"
. "$(dirname "$0")/../lies-lib.sh"
cd "$(dirname "$0")/../.." || exit 1
need_root "driver rbd under the daemon"
rbd_need vms
rbd_beside_daemon
# Of what snapferry-rbd lists as changed, the range that begins where the file omit says is left out.
mv "$WORK/bin/snapferry-rbd" "$WORK/bin/truthful-rbd"
cat >"$WORK/bin/snapferry-rbd" <<END
#!/bin/bash
set -o pipefail
[[ " \$* " == *" changed "* ]] || exec "$WORK/bin/truthful-rbd" "\$@"
"$WORK/bin/truthful-rbd" "\$@" | awk -v from="\$(cat "$WORK/omit" 2>/dev/null)" -v told="$WORK/told" '
    \$1 == from { n++; print "omitted " \$2 >>told; next }
    \$1 == "end" { \$2 -= n; print "listed " \$2 >>told }
    { print }'
END
chmod 755 "$WORK/bin/snapferry-rbd"
told() { xargs <"$WORK/told"; rm "$WORK/told"; }
rbd create -s 64M vms/web1
rbd_io vms/web1 w:0:67108864
daemon_setup 'changed-blocks = auto' 'verify-sample = 100' || { fail "setup"; finish; }
lies_metrics
# Many chunks, so that a sixteenth of them is not overlooked.
rbd_class vms/web1 'splitter = DYNAMIC-128K-BUZHASH'
starts "the daemon starts"
# changed: a page, and all of an object, of which the list may say nothing.
changed() {
    rbd_io vms/web1 w:0:4096 w:$((8 * MIB)):$((4 * MIB))
    rbd export --no-progress vms/web1 - >"$WORK/now"
}

backup vms/web1 >/dev/null
changed
right=$(backup vms/web1)
same "nothing is omitted: both ranges are listed" "$(told)" "listed 2"
same "and used" "$(op "$right" '[.fullReason, .result.cbtSource]')" '[null,"rbd"]'
check "bit for bit" restored "$right" "$WORK/now"

changed
before=$(mismatches)
echo $((8 * MIB)) >"$WORK/omit"
lied=$(backup vms/web1)
rm "$WORK/omit"
same "one of two ranges was omitted" "$(told)" "omitted $((4 * MIB)) listed 1"
same "it is found: all is read" "$(op "$lied" '[.state, .fullReason]')" '["Completed","mismatch"]'
check "really" test "$(op "$lied" .result.readBytes)" -gt $((64 * MIB))
check "and the backup is right" restored "$lied" "$WORK/now"
same "the metric counts it" "$before $(mismatches)" "0 1"
alert "which is an alert" "$before" "$(mismatches)"
check "the log has the place" found_within 8 4
expect "status has it as a problem" 3 "list of changes of vms/web1 was wrong" -- ask status --check
changed
next=$(backup vms/web1)
same "the next one relies on no list" "$(op "$next" '[.fullReason, .listedBytes]')" '["distrusted",null]'
check "nor asks for it" test ! -e "$WORK/told"
check "and is right" restored "$next" "$WORK/now"
same "--full: as asked for" "$(op "$(backup vms/web1 --full)" .fullReason)" forced
changed
again=$(backup vms/web1)
same "from then on it is used again" "$(op "$again" '[.fullReason, .result.cbtSource]')" '[null,"rbd"]'
check "and this backup is right" restored "$again" "$WORK/now"
check "nothing is left to complain about" eval '! ask status | grep -q "list of changes of"'
stops "the daemon stops"
finish
