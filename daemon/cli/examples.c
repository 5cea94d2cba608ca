/* SPDX-License-Identifier: GPL-2.0-or-later */
/* examples.c - examples for the help of each verb */
#include "daemon/cli/examples.h"

#define R "  snapferry -r main "

static const char *const examples[VERB_COUNT] = {
    [VERB_NONE] = "",
    [VERB_STATUS] = "  snapferry status\n",
    [VERB_ASK_BACKUP] = "  snapferry backup --job nightly --wait\n"
                        "  snapferry backup /srv/vm/db1.img --description 'before the upgrade'\n",
    [VERB_ASK_RESTORE] = "  snapferry restore nightly-20261121T02/srv/vm/db1.img /srv/vm/new.img --wait\n"
                         "  snapferry restore nightly-20261121T02/vg0/db1 vg0/db1 --overwrite --wait\n",
    [VERB_CANCEL] = "  snapferry cancel nightly-20261121T020000-3f9a --wait\n"
                    "  snapferry cancel --all\n",
    [VERB_WAIT] = "  snapferry wait nightly-20261121T020000-3f9a\n",
    [VERB_OPERATIONS] = "  snapferry operations --state Failed --all\n"
                        "  snapferry operations --volume /srv/vm/db1.img --limit 5\n",
    [VERB_BACKUPS] = "  snapferry backups --state PartiallyFailed\n",
    [VERB_JOBS] = "  snapferry jobs\n",
    [VERB_VOLUMES] = "  snapferry volumes --class images\n",
    [VERB_DESCRIBE] = "  snapferry describe nightly-20261121T020000-3f9a\n"
                      "  snapferry describe /srv/vm/db1.img\n",
    [VERB_LOGS] = "  snapferry logs nightly-20261121T02/srv/vm/db1.img --follow\n",
    [VERB_EXPLAIN] = "  snapferry explain /srv/vm/db1.img\n",
    [VERB_DELETE] = "  snapferry delete nightly-20261121T020000-3f9a --wait\n",
    [VERB_NATIVE_LIST] = "  snapferry native list --volume /srv/vm/db1.img\n",
    [VERB_NATIVE_PRUNE] = "  snapferry native prune --explain --dry-run\n",
    [VERB_NATIVE_RELEASE] = "  snapferry native release --all --dry-run\n",
    [VERB_RETRY] = "  snapferry retry nightly-20261121T020000-3f9a --wait\n"
                   "  snapferry retry nightly-20261121T020000-3f9a/vg0/db1\n",
    [VERB_HOLD] = "  snapferry hold nightly-20261121T020000-3f9a --note 'until the audit is over'\n",
    [VERB_UNHOLD] = "  snapferry unhold nightly-20261121T020000-3f9a\n",
    [VERB_ASK_EXPIRE] = "  snapferry snapshot expire --dry-run --explain\n",
    [VERB_ASK_VERIFY] = "  snapferry verify main --read-percent 10 --wait\n",
    [VERB_ASK_MAINTENANCE] = "  snapferry maintenance --full --explain --wait\n"
                             "  snapferry maintenance main --full --dry-run --explain\n",
    [VERB_ASK_COPY] = "  snapferry copy offsite --wait\n",
    [VERB_SCAN] = "  snapferry scan main --wait\n",
    [VERB_REPO_DETACH] = "  snapferry repo detach old\n",
    [VERB_FORGET] = "  snapferry forget /srv/vm/old.img\n",
    [VERB_RELOAD] = "  snapferry reload --wait\n",
    [VERB_DEBUG_BUNDLE] = "  snapferry debug-bundle /root/snapferry.tar\n",
    [VERB_CHECK_CONFIG] = "  snapferry check-config\n"
                          "  snapferry check-config --config-dir ./etc --json\n",
    [VERB_IMPORT_VELERO] = "  snapferry import-velero configmap.json >/etc/snapferry/conf.d/40-velero.ini\n",
    [VERB_PLUGIN_CHECK] = "  snapferry plugin-check ./driver-dir volume=/srv/vm/test.img target=/srv/vm/.snap\n",
    [VERB_BENCH] = "  snapferry bench --quick\n"
                   "  snapferry bench hashes ciphers --seconds 1\n",
    [VERB_HELP] = "  snapferry help backup\n"
                  "  snapferry help native list\n",
    [VERB_REPO_CREATE] = R "repo create\n"
                           "  snapferry -r /srv/backup --password-file /root/pw repo create --ecc-percent 2\n",
    [VERB_REPO_STATUS] = R "repo status\n",
    [VERB_REPO_USAGE] = R "repo usage\n" R "repo usage --volumes\n",
    [VERB_REPO_SYNC] = R "repo sync-to /mnt/usb/backup\n" R "repo sync-to offsite --write-limit 20MiB --verify\n",
    [VERB_REPO_REPAIR] = R "repo repair --dry-run\n" R "repo repair\n",
    [VERB_REPO_CHANGE_PASSWORD] = R "repo change-password --new-password-file /root/new.password\n",
    [VERB_REPO_EXPORT_KEY] = R "repo export-key /root/kit.txt\n" R "repo export-key - | lpr\n",
    [VERB_REPO_OPEN_KEY] = R "repo open-key /root/kit.txt\n" R "repo open-key /root/typed.txt --restore\n",
    [VERB_BACKUP] = R "backup /dev/vg0/db1 --compression zstd-fastest\n"
                      "  snapferry -r /srv/backup --password-file /root/pw backup d.img --as me@here:/d\n",
    [VERB_SNAPSHOT_LIST] = R "snapshot list --as snapferry@nas1:/VOLUME-ID\n",
    [VERB_SNAPSHOT_SHOW] = R "snapshot show 4f3c\n",
    [VERB_SNAPSHOT_EXPIRE] = R "snapshot expire --dry-run --explain\n",
    [VERB_SNAPSHOT_PIN] = R "snapshot pin 4f3c audit\n",
    [VERB_SNAPSHOT_UNPIN] = R "snapshot unpin 4f3c audit\n",
    [VERB_SNAPSHOT_DELETE] = R "snapshot delete 4f3c 81d0 --dry-run\n" R "snapshot delete --node nas7 --dry-run\n",
    [VERB_LS] = R "ls 4f3c\n",
    [VERB_CAT] = R "cat 4f3c/volume.json\n",
    [VERB_RESTORE] = R "restore latest /dev/vg0/copy --as snapferry@nas1:/VOLUME-ID\n" R "restore 4f3c /root/db1.img\n",
    [VERB_VERIFY] = R "verify --read-percent 10\n",
    [VERB_MAINTENANCE] = R "maintenance --full --dry-run --explain\n" R "maintenance --full\n",
};

const char *verb_example(enum verb v)
{
    return v < VERB_COUNT && examples[v] ? examples[v] : "";
}
