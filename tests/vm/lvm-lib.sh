# SPDX-License-Identifier: GPL-2.0-or-later
# What the tests of the LVM drivers share. Source it after lib.sh.
TOOLS=/vm/stage/tools
uuid() { cat /proc/sys/kernel/random/uuid; }
# The tools of the tests run lvm(8) as their child: a unit runs a program again that is installed.
call() { SNAPFERRY_NO_SYSTEMD=1 "$TOOLS/driver_call" --driver "$DRIVER" --name gold "$@"; }
# suite NAME ARGS...: the TAP of driver_suite becomes ours.
suite() {
    local what=$1 line rc
    shift
    SNAPFERRY_NO_SYSTEMD=1 "$TOOLS/driver_suite" --driver "$DRIVER" "$@" >"$WORK/tap" 2>"$WORK/tap.err"
    rc=$?
    while IFS= read -r line; do
        case $line in
        "ok "*) pass "$what: ${line#*- }" ;;
        "not ok "*) fail "$what: ${line#*- }" "$(grep -F -A3 -- "$line" "$WORK/tap")" ;;
        "# not of"*) echo "$line" ;;
        esac
    done <"$WORK/tap"
    check "$what: the suite ran to its end ($(grep -c '^ok' "$WORK/tap") passed)" grep -q '^1\.\.' "$WORK/tap"
    [ $rc -eq 0 ] || sed 's/^/# /' "$WORK/tap.err"
}
names() { lvs --noheadings -o lv_name "$@" | sed 's/ //g' | sort | tr '\n' ' '; }
ours() { lvs --noheadings -o lv_name,lv_active -S 'lv_name=~^snapferry-' | sed 's/^ *//;s/  */ /g'; }
tagged() { lvs --noheadings -o lv_tags | tr ', ' '\n\n' | grep '^snapferry' | sort; }
# What is of us or is active now is what the suite found in the beginning.
lvm_state() { lvs --noheadings -o lv_full_name,lv_tags,lv_active,lv_permissions | sort; dmsetup ls | sort; }
swept() { SNAPFERRY_NO_SYSTEMD=1 sweep_once; }
# What the engine does with what it finds: removes what no record names.
sweep_once() {
    local x
    call exposures | while read -r x; do call unexpose "$x" || return; done
    call list | while read -r x; do call remove "$x" || return; done
}
