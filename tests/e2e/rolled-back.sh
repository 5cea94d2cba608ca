#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An older copy of the repository is put back, or somebody deletes snapshots: what is there is whole, so a verification
# has nothing to complain about, but backups are gone. That is noticed after each verification, and each day without
# one, by scans that add nothing to the records (docs/security.md).
. "$(dirname "$0")/../daemon-lib.sh"
need_root "a daemon with volumes"
fs_make xfs xfs || exit 1
V=$WORK/xfs
image "$V/a.img" 2 1
daemon_setup
config_class gold "$V" 'snapshots-to-retain = 1'
config_add job '[job "nightly"]
volumes = class:gold
on-calendar = Mon *-02-29 02:00'
starts "the daemon starts"
good() { ask backup --job nightly --wait --json | result id; }
of() { askj volumes | jq -r --arg n "$V/$1.img" '.volumes[] | select(.name == $n) | "\(.state) \(.why // "-")"'; }
unprotected() { # VOLUME [BACKUP]
    [[ $(of "$1") == "unprotected no backups are left: the last one, ${2:-nightly-}"*", is no longer in repository"* ]]
}
old() { rm -rf "$REPO.new" && mv "$REPO" "$REPO.new" && cp -a "$REPO.old" "$REPO"; }
scans() { askj operations --all | jq '[.operations[] | select(.id | startswith("admin-scan"))] | length'; }

A=$(good)
cp -a "$REPO" "$REPO.old"
image "$V/b.img" 2 2
B=$(good)
check "all is well" ask status --check --quiet
check "the first scan has ended" until_true 30 eval '[ "$(scans)" -gt 0 ] && settled'
FIRST=$(scans)

# ---- found after a verification ----
old
check "what is there is whole" ask verify main --wait --quiet
check "a volume whose only backup is gone is not protected" until_true 30 unprotected b "$B"
same "one that has an older one is" "$(of a)" "protected -"
expect "status --check fails" 3 "job \"nightly\": of its last backup, $B, 2 volumes are not whole" -- ask status --check
expect "the list of backups says so" 0 'of 2 volumes no longer in the|2 volumes not whole in the' -- ask backups
same "the native snapshots are still there" "$(natives_of "$V/b.img" | wc -l)" 1
C=$(good)
check "after the next backup all is well" ask status --check --quiet
restored_same "what was lost is stored again" "$C" "$V/b.img" "$V/b.img" repository
check "the end of all" until_true 30 settled
same "such a scan leaves no operation behind" "$(scans)" "$FIRST"

# ---- it adds nothing ----
stops "the daemon ends"
sqlite3 "$STATE/records.db" "DELETE FROM operations WHERE parent = '$A'; DELETE FROM backups WHERE id = '$A'"
starts "it starts without the record of an old backup, as after keep-records"
old
check "a verification" ask verify main --wait --quiet
check "and the scan after it" until_true 30 unprotected b "$C"
listed() { askj backups --all | jq --arg a "$A" '[.backups[] | select(.id == $a)] | length'; }
same "what was removed is not recorded again" "$(listed)" 0
check "a scan by hand" ask scan main --quiet
same "records it" "$(listed)" 1
D=$(good)

# ---- each day ----
good >/dev/null
stops "the daemon ends"
FAKE=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1)
if [ -z "$FAKE" ]; then
    skip "each day" "libfaketime is not installed"
else
    rm -r "$STATE"
    starts "two days ago, without records" LD_PRELOAD="$FAKE" FAKETIME=-2d FAKETIME_DONT_FAKE_MONOTONIC=1
    check "they are rebuilt" until_true 30 eval '[ "$(of b)" = "protected -" ] && settled'
    old
    sleep 3
    same "without a verification it is not known at once" "$(of b)" "protected -"
    stops "it ends"
    starts "today"
    check "today it is" until_true 30 unprotected b
    stops "it ends"
fi

# ---- the node gets another name: what it had before is not missed ----
rm -r "$STATE"
starts "again without records"
check "its backup is found" until_true 30 eval '[ "$(of a)" = "protected -" ] && settled'
N=$(scans)
stops "it ends"
sed -i 's/^node-name = .*/node-name = renamed/' "$CONF/snapferry.ini"
starts "under another name"
check "it looks for what the repository has of that" until_true 30 eval '[ "$(scans)" -gt "$N" ] && settled'
same "what it had before is not missed" "$(of a)" "protected -"
stops "the daemon ends"
explain_failure
finish
