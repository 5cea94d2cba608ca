/* SPDX-License-Identifier: GPL-2.0-or-later */
/* options-table.c - all verbs and options, for parsing, help and completion */
#include "daemon/cli/daemon.h"
#include "daemon/cli/options-table.h"

#include "daemon/cli/examples.h"

#include <ctype.h>
#include <string.h>

const struct verb_info verb_table[] = {
    {VERB_STATUS,
     FORM_DAEMON,
     {"status", NULL},
     "",
     0,
     0,
     "show the state of everything on one screen, with problems and remedies"},
    {VERB_ASK_BACKUP, FORM_DAEMON, {"backup", NULL}, "VOLUME...|--job JOB", 0, 10000, "back up volumes as configured"},
    {VERB_ASK_RESTORE,
     FORM_DAEMON,
     {"restore", NULL},
     "BACKUP[/VOLUME] TARGET|--class-map OLD=NEW",
     1,
     2,
     "restore a volume of a backup from its native snapshot or the repository"},
    {VERB_RETRY,
     FORM_DAEMON,
     {"retry", NULL},
     "BACKUP[/VOLUME]",
     1,
     1,
     "back up failed volumes again, from the native snapshots taken then"},
    {VERB_CANCEL, FORM_DAEMON, {"cancel", NULL}, "ID...|--all", 0, 1000, "cancel backups, restores or operations"},
    {VERB_WAIT,
     FORM_DAEMON,
     {"wait", NULL},
     "ID",
     1,
     1,
     "show progress until it ends; the exit code is that of its outcome"},
    {VERB_OPERATIONS, FORM_DAEMON, {"operations", NULL}, "", 0, 0, "list operations: running, waiting and ended ones"},
    {VERB_BACKUPS, FORM_DAEMON, {"backups", NULL}, "", 0, 0, "list backups and restores"},
    {VERB_VOLUMES, FORM_DAEMON, {"volumes", NULL}, "", 0, 0, "list volumes and whether each is protected"},
    {VERB_JOBS, FORM_DAEMON, {"jobs", NULL}, "", 0, 0, "list jobs with their last and next runs"},
    {VERB_DESCRIBE, FORM_DAEMON, {"describe", NULL}, "ID", 1, 1, "show a backup, operation, native snapshot or volume"},
    {VERB_LOGS, FORM_DAEMON, {"logs", NULL}, "OPERATION|BACKUP", 1, 1, "show the log of an operation or backup"},
    {VERB_EXPLAIN,
     FORM_DAEMON,
     {"explain", NULL},
     "VOLUME",
     1,
     1,
     "show the settings of a volume and where they are set"},
    {VERB_DELETE, FORM_DAEMON, {"delete", NULL}, "BACKUP", 1, 1, "delete a backup with its snapshots and records"},
    {VERB_NATIVE_LIST, FORM_DAEMON, {"native", "list"}, "", 0, 0, "list native snapshots, and why each is kept"},
    {VERB_NATIVE_PRUNE, FORM_DAEMON, {"native", "prune"}, "", 0, 0, "remove native snapshots that are not needed"},
    {VERB_NATIVE_RELEASE,
     FORM_DAEMON,
     {"native", "release"},
     "[ALIAS]",
     0,
     1,
     "remove orphaned native snapshots and intermediates"},
    {VERB_HOLD, FORM_DAEMON, {"hold", NULL}, "NATIVE|BACKUP", 1, 1, "keep native snapshots until unhold"},
    {VERB_UNHOLD,
     FORM_DAEMON,
     {"unhold", NULL},
     "NATIVE|BACKUP",
     1,
     1,
     "release a hold, or what is kept for inspection"},
    {VERB_ASK_EXPIRE, FORM_DAEMON, {"snapshot", "expire"}, "", 0, 0, "delete expired snapshots in the repository"},
    {VERB_ASK_VERIFY,
     FORM_DAEMON,
     {"verify", NULL},
     "[REPOSITORY]",
     0,
     1,
     "check a repository, or plugin:NAME, for damage"},
    {VERB_ASK_MAINTENANCE,
     FORM_DAEMON,
     {"maintenance", NULL},
     "[REPOSITORY]",
     0,
     1,
     "maintain a repository now: free space, compact the index"},
    {VERB_ASK_COPY, FORM_DAEMON, {"copy", NULL}, "[COPY]", 0, 1, "copy a repository now, as its [copy] section says"},
    {VERB_SCAN, FORM_DAEMON, {"scan", NULL}, "[REPOSITORY]", 0, 1, "rebuild records from repository and storage"},
    {VERB_REPO_DETACH,
     FORM_DAEMON,
     {"repo", "detach"},
     "REPOSITORY",
     1,
     1,
     "remove the records of backups in a repository; its data are kept"},
    {VERB_FORGET, FORM_DAEMON, {"forget", NULL}, "VOLUME", 1, 1, "remove a missing volume from the records"},
    {VERB_RELOAD, FORM_DAEMON, {"reload", NULL}, "", 0, 0, "reload the configuration"},
    {VERB_DEBUG_BUNDLE,
     FORM_DAEMON,
     {"debug-bundle", NULL},
     "[FILE]",
     0,
     1,
     "collect information for a bug report in a tar file, without secrets"},
    {VERB_CHECK_CONFIG,
     FORM_LOCAL,
     {"check-config", NULL},
     "",
     0,
     0,
     "check the configuration and show the effective values"},
    {VERB_IMPORT_VELERO, FORM_LOCAL, {"import-velero", NULL}, "FILE", 1, 1, "convert a node-agent ConfigMap to INI"},
    {VERB_PLUGIN_CHECK,
     FORM_LOCAL,
     {"plugin-check", NULL},
     "PROGRAM [KEY=VALUE...]",
     1,
     64,
     "test a plugin for conformance to the protocol"},
    {VERB_BENCH,
     FORM_LOCAL,
     {"bench", NULL},
     "[WHAT...]",
     0,
     16,
     "measure the performance of this machine and suggest settings"},
    {VERB_HELP, FORM_LOCAL, {"help", NULL}, "[VERB]", 0, 2, "show the help of a verb"},
    {VERB_REPO_CREATE, FORM_REPO, {"repo", "create"}, "", 0, 0, "create a repository in a new or empty directory"},
    {VERB_REPO_STATUS,
     FORM_REPO,
     {"repo", "status"},
     "",
     0,
     0,
     "show format, algorithms, sizes and state of a repository"},
    {VERB_REPO_USAGE, FORM_REPO, {"repo", "usage"}, "", 0, 0, "show used and reclaimable space, and when it is freed"},
    {VERB_REPO_SYNC,
     FORM_REPO,
     {"repo", "sync-to"},
     "COPY",
     1,
     1,
     "copy the repository to another place, or bring the copy there up to date"},
    {VERB_REPO_REPAIR,
     FORM_REPO,
     {"repo", "repair"},
     "",
     0,
     0,
     "rebuild damaged or missing index entries from the packs"},
    {VERB_REPO_CHANGE_PASSWORD,
     FORM_REPO,
     {"repo", "change-password"},
     "",
     0,
     0,
     "change the password of the repository"},
    {VERB_REPO_EXPORT_KEY,
     FORM_REPO,
     {"repo", "export-key"},
     "FILE",
     1,
     1,
     "write a recovery kit to be printed: what opens the repository again, also without its format blob"},
    {VERB_REPO_OPEN_KEY,
     FORM_REPO,
     {"repo", "open-key"},
     "FILE",
     1,
     1,
     "check a recovery kit, and that it opens the repository; restore the format blob from it"},
    {VERB_BACKUP, FORM_REPO, {"backup", NULL}, "SOURCE", 1, 1, "back up a block device or image file"},
    {VERB_SNAPSHOT_LIST, FORM_REPO, {"snapshot", "list"}, "", 0, 0, "list the snapshots"},
    {VERB_SNAPSHOT_SHOW, FORM_REPO, {"snapshot", "show"}, "SNAPSHOT", 1, 1, "show a snapshot in detail"},
    {VERB_SNAPSHOT_EXPIRE,
     FORM_REPO,
     {"snapshot", "expire"},
     "",
     0,
     0,
     "delete the snapshots that have expired by the policies in the repository"},
    {VERB_SNAPSHOT_PIN, FORM_REPO, {"snapshot", "pin"}, "SNAPSHOT PIN", 2, 2, "keep a snapshot until unpin"},
    {VERB_SNAPSHOT_UNPIN, FORM_REPO, {"snapshot", "unpin"}, "SNAPSHOT PIN", 2, 2, "remove a pin"},
    {VERB_SNAPSHOT_DELETE,
     FORM_REPO,
     {"snapshot", "delete"},
     "SNAPSHOT...|--node NAME",
     0,
     10000,
     "delete snapshots, or all of a node"},
    {VERB_LS, FORM_REPO, {"ls", NULL}, "SNAPSHOT[/PATH]", 1, 1, "list a directory of a snapshot"},
    {VERB_CAT, FORM_REPO, {"cat", NULL}, "SNAPSHOT/PATH", 1, 1, "write a file of a snapshot to standard output"},
    {VERB_RESTORE,
     FORM_REPO,
     {"restore", NULL},
     "SNAPSHOT[/PATH] TARGET",
     2,
     2,
     "restore the volume (or another file) to a block device, file or NBD export"},
    {VERB_VERIFY, FORM_REPO, {"verify", NULL}, "[SNAPSHOT...]", 0, 10000, "check index, packs and contents for damage"},
    {VERB_MAINTENANCE,
     FORM_REPO,
     {"maintenance", NULL},
     "",
     0,
     0,
     "free the space of deleted snapshots and compact the index"},
};
const size_t verb_table_len = sizeof verb_table / sizeof *verb_table;
_Static_assert(sizeof verb_table / sizeof *verb_table == VERB_COUNT - 1, "one row for each verb");
_Static_assert(VERB_COUNT <= 64, "a set of verbs is a 64-bit mask");

#define V(v) (UINT64_C(1) << VERB_##v)
#define ALL_VERBS (~UINT64_C(0))
#define NO_VERB UINT64_C(0)
#define MOVES (V(BACKUP) | V(RESTORE) | V(VERIFY))
#define FINDS                                                                                                          \
    (V(SNAPSHOT_LIST) | V(SNAPSHOT_SHOW) | V(LS) | V(CAT) | V(RESTORE) | V(VERIFY) | V(SNAPSHOT_EXPIRE) |              \
     V(SNAPSHOT_PIN) | V(SNAPSHOT_UNPIN) | V(SNAPSHOT_DELETE))
#define OPENS (FINDS | V(BACKUP) | V(REPO_STATUS) | V(REPO_USAGE) | V(REPO_SYNC) | V(REPO_REPAIR) | V(MAINTENANCE))
/* They only read. */
#define PAST                                                                                                           \
    (V(SNAPSHOT_LIST) | V(SNAPSHOT_SHOW) | V(LS) | V(CAT) | V(RESTORE) | V(VERIFY) | V(REPO_STATUS) | V(REPO_USAGE) |  \
     V(REPO_SYNC))
#define KITS (V(REPO_EXPORT_KEY) | V(REPO_OPEN_KEY))
#define WITH_REPO (OPENS | KITS | V(REPO_CREATE) | V(REPO_CHANGE_PASSWORD))
#define ALONE (V(CHECK_CONFIG) | V(IMPORT_VELERO) | V(PLUGIN_CHECK) | V(BENCH) | V(HELP))
#define ASKS (ALL_VERBS & ~(WITH_REPO | ALONE))
/* They start an operation that can be waited for. */
#define STARTS                                                                                                         \
    (V(ASK_BACKUP) | V(RETRY) | V(ASK_RESTORE) | V(ASK_VERIFY) | V(ASK_EXPIRE) | V(ASK_MAINTENANCE) | V(ASK_COPY) |    \
     V(SCAN))
/* They print tables. */
#define TABLES                                                                                                         \
    (V(STATUS) | V(OPERATIONS) | V(BACKUPS) | V(VOLUMES) | V(JOBS) | V(NATIVE_LIST) | V(NATIVE_PRUNE) | V(DESCRIBE) |  \
     V(EXPLAIN) | V(SNAPSHOT_LIST) | V(REPO_USAGE) | V(ASK_EXPIRE) | V(CHECK_CONFIG))
/* They remove or overwrite data. */
#define DESTROYS                                                                                                       \
    (V(DELETE) | V(NATIVE_PRUNE) | V(NATIVE_RELEASE) | V(ASK_EXPIRE) | V(REPO_DETACH) | V(FORGET) | V(ASK_RESTORE) |   \
     V(SNAPSHOT_EXPIRE) | V(SNAPSHOT_DELETE) | V(RESTORE) | V(MAINTENANCE) | V(ASK_MAINTENANCE) | V(ASK_COPY))
#define PLANS (V(NATIVE_PRUNE) | V(ASK_EXPIRE) | V(SNAPSHOT_EXPIRE))

const struct option_info option_table[] = {
    {OPT_REPO, "repo", "REPO", WITH_REPO, "work on this repository: a directory, file:// URL or [repository] section"},
    {OPT_PASSWORD_FILE, "password-file", "FILE", WITH_REPO, "file with the password (cred:NAME: a systemd credential)"},
    {OPT_INSECURE, "insecure", NULL, WITH_REPO, "use a password file that others can read (with a warning)"},
    {OPT_AT, "at", "TIME", PAST, "the repository as it was at that time: S3, of a bucket with versions; read only"},
    {OPT_CONFIG, "config", "FILE", WITH_REPO, "configuration file, instead of --config-dir"},
    {OPT_CACHE_DIR, "cache-dir", "DIR", WITH_REPO, "where decrypted indexes are cached"},
    {OPT_CACHE_SIZE, "cache-size", "SIZE", OPENS, "limit of the index cache on disk (default 5GiB)"},
    {OPT_INDEX_MEMORY, "index-memory", "SIZE", OPENS,
     "limit of mapped index pages in memory (default 64MiB, maintenance 96MiB)"},
    {OPT_JSON, "json", NULL, ALL_VERBS, "print JSON objects, the result last on a line of its own"},
    {OPT_PROGRESS, "progress", "[=WHEN]",
     MOVES | V(REPO_SYNC) | V(REPO_REPAIR) | V(REPO_USAGE) | STARTS | V(WAIT) | V(BENCH),
     "auto (default: live on a terminal, else lines), yes or no"},
    {OPT_QUIET, "quiet", NULL, ALL_VERBS, "print only results and errors"},
    {OPT_VERBOSE, "verbose", NULL, MOVES | V(ASK_BACKUP) | V(ASK_RESTORE) | V(ASK_VERIFY) | V(WAIT) | V(DESCRIBE),
     "show more: counts and the time of each stage; describe: all that is recorded"},
    {OPT_DEBUG, "debug", NULL, ALL_VERBS, "print debug messages to standard error"},
    {OPT_FORMAT_VERSION, "format-version", "N", V(REPO_CREATE), "1, 2 or 3 (default 3)"},
    {OPT_BLOCK_HASH, "block-hash", "NAME", V(REPO_CREATE) | V(BENCH), "content hash (default BLAKE2B-256-128)"},
    {OPT_ENCRYPTION, "encryption", "NAME", V(REPO_CREATE) | V(BENCH), "cipher (default AES256-GCM-HMAC-SHA256)"},
    {OPT_SPLITTER, "splitter", "NAME", V(REPO_CREATE) | V(BACKUP) | V(BENCH),
     "splitter (default DYNAMIC-4M-BUZHASH; backup: the repository's)"},
    {OPT_ECC_PERCENT, "ecc-percent", "N", V(REPO_CREATE) | V(BENCH),
     "error correction overhead, 1 to 100 (default none)"},
    {OPT_PACK_SIZE, "pack-size", "SIZE", V(REPO_CREATE), "pack size, 10MiB to 120MiB (default 20MiB)"},
    {OPT_KEY_DERIVATION, "key-derivation", "NAME", V(REPO_CREATE),
     "scrypt-65536-8-1 (default) or pbkdf2-sha256-600000"},
    {OPT_OWNER, "owner", "USER@HOST", V(REPO_CREATE), "maintenance owner (default snapferry-maintenance@NODE)"},
    {OPT_MAKE_PASSWORD, "make-password", NULL, V(REPO_CREATE),
     "create the password file with a random password if it does not exist"},
    {OPT_NEW_PASSWORD_FILE, "new-password-file", "FILE", V(REPO_CHANGE_PASSWORD), "file with the new password"},
    {OPT_AS, "as", "USER@HOST:/PATH", V(BACKUP) | FINDS, "name of the source in the repository"},
    {OPT_COMPRESSION, "compression", "NAME", V(BACKUP), "compressor, for example zstd-fastest (default none)"},
    {OPT_COMPRESSION, "compression", "NAME", V(BENCH),
     "compressor of the pipeline's mixed data (default zstd-fastest)"},
    {OPT_DESCRIPTION, "description", "TEXT", V(BACKUP) | V(ASK_BACKUP), "description of the snapshot"},
    {OPT_TAG, "tag", "KEY:VALUE", V(BACKUP), "tag of the snapshot; may be repeated"},
    {OPT_MEMORY, "memory", "SIZE", MOVES | V(BENCH), "memory budget (default 256MiB, at least 96MiB)"},
    {OPT_WORKERS, "workers", "N", MOVES | V(BENCH), "worker threads (default: one per CPU)"},
    {OPT_READ_LIMIT, "read-limit", "SIZE", MOVES | V(REPO_SYNC) | V(MAINTENANCE),
     "maximum bytes read per second (default: no limit)"},
    {OPT_WRITE_LIMIT, "write-limit", "SIZE", V(BACKUP) | V(RESTORE) | V(REPO_SYNC) | V(MAINTENANCE),
     "maximum bytes written per second (default: no limit)"},
    {OPT_QUEUE_DEPTH, "queue-depth", "N", V(BACKUP) | V(BENCH), "reads in flight (default: by kind of device)"},
    {OPT_CHECKPOINT_INTERVAL, "checkpoint-interval", "SECONDS", V(BACKUP),
     "seconds between checkpoints (default 1800, at most 2700)"},
    {OPT_BAD_READS, "bad-reads", "POLICY", V(BACKUP), "fail (default), or map: zeros, recorded, exit code 3"},
    {OPT_NO_IO_URING, "no-io-uring", NULL, V(BACKUP) | V(RESTORE) | V(BENCH), "use preadv and pwritev"},
    {OPT_NO_DIRECT, "no-direct", NULL, V(BACKUP) | V(BENCH), "read through the page cache"},
    {OPT_NO_PARENT, "no-parent", NULL, V(BACKUP), "do not use the chunk boundaries of an earlier snapshot"},
    {OPT_CHANGED_RANGES, "changed-ranges", "FILE", V(BACKUP),
     "read only these ranges, lines of \"START LENGTH\" in bytes; the rest is that of --parent"},
    {OPT_PARENT, "parent", "SNAPSHOT", V(BACKUP), "the snapshot since which the ranges of --changed-ranges changed"},
    {OPT_VERIFY_SAMPLE, "verify-sample", "PERCENT", V(BACKUP),
     "share of the unchanged data to read and compare, for up to a minute (default 0.1)"},
    {OPT_NODE_NAME, "node-name", "NAME", V(BACKUP) | V(SNAPSHOT_EXPIRE) | V(REPO_CREATE) | V(MAINTENANCE),
     "name of this node (default: node-name of the configuration, or the host's name)"},
    {OPT_FULL_SCAN, "full-scan", NULL, V(BACKUP), "find all chunk boundaries by scanning"},
    {OPT_ALL, "all", NULL, V(SNAPSHOT_LIST), "also incomplete snapshots (checkpoints)"},
    {OPT_ALL, "all", NULL, V(SNAPSHOT_EXPIRE),
     "also snapshots of other nodes and clients (default: volumes of this node)"},
    {OPT_ALL, "all", NULL, V(OPERATIONS) | V(BACKUPS), "also those that ended more than a week ago"},
    {OPT_ALL, "all", NULL, V(EXPLAIN), "also settings that have their default values"},
    {OPT_ALL, "all", NULL, V(CANCEL), "all running and waiting ones"},
    {OPT_ALL, "all", NULL, V(NATIVE_RELEASE), "all that is in no record"},
    {OPT_DIFFERENTIAL, "differential", NULL, V(RESTORE) | V(ASK_RESTORE),
     "write only blocks that differ from the target"},
    {OPT_VERIFY, "verify", NULL, V(RESTORE) | V(ASK_RESTORE), "read the target back and compare"},
    {OPT_VERIFY, "verify", NULL, V(REPO_SYNC), "read back and compare what was copied"},
    {OPT_OFFSET, "offset", "N", V(RESTORE) | V(ASK_RESTORE), "first byte to restore (same place in the target)"},
    {OPT_LENGTH, "length", "N", V(RESTORE) | V(ASK_RESTORE), "number of bytes to restore"},
    {OPT_FORCE, "force", NULL, V(RESTORE), "allow a target that is in use or not empty"},
    {OPT_FORCE, "force", NULL, V(DELETE), "cancel it first if it is running; abandon data in unreachable repositories"},
    {OPT_EVEN_KEPT, "even-kept", NULL, V(DELETE), "also if held, pinned, or the last good copy of a volume"},
    {OPT_FORCE, "force", NULL, V(SNAPSHOT_DELETE),
     "also if pinned, or the last good copy of its source; with --node: also if it is this node"},
    {OPT_RESUME, "resume", NULL, V(RESTORE), "treat a non-empty file as an interrupted restore"},
    {OPT_READ_PERCENT, "read-percent", "N", V(VERIFY) | V(ASK_VERIFY),
     "percentage of contents to read and verify (default 100)"},
    {OPT_ANEW, "anew", NULL, V(VERIFY) | V(ASK_VERIFY), "read again what an interrupted verification has read"},
    {OPT_RUNTIME_DIR, "runtime-dir", "DIR", ASKS, "directory of the daemon's socket (default /run/snapferry)"},
    {OPT_STATE_DIR, "state-dir", "DIR", ASKS, "the daemon's records, read if it is down (default /var/lib/snapferry)"},
    {OPT_CONFIG_DIR, "config-dir", "DIR", ASKS | V(CHECK_CONFIG) | WITH_REPO,
     "directory of the configuration (default /etc/snapferry)"},
    {OPT_JOB, "job", "JOB", V(ASK_BACKUP), "run this [job]"},
    {OPT_WAIT, "wait", NULL, STARTS | V(CANCEL) | V(DELETE),
     "wait until it has ended; the exit code is that of the operation"},
    {OPT_WAIT, "wait", NULL, V(RELOAD), "accepted: a reload is always waited for"},
    {OPT_FULL, "full", NULL, V(ASK_BACKUP), "read all data, including unchanged data"},
    {OPT_FULL, "full", NULL, V(MAINTENANCE) | V(ASK_MAINTENANCE), "also free the space of what no snapshot needs"},
    {OPT_SAFETY, "safety", "LEVEL", V(MAINTENANCE) | V(ASK_MAINTENANCE),
     "full (default), or none: no delays, while nobody else writes"},
    {OPT_PACKS, "packs", "WHICH", V(REPO_REPAIR),
     "all (default), or missing: only packs of which no index has anything"},
    {OPT_VOLUMES, "volumes", NULL, V(REPO_USAGE),
     "for each volume: what it takes for itself, and what it shares with others"},
    {OPT_TAKE_OWNERSHIP, "take-ownership", NULL, V(MAINTENANCE), "only make this node the owner of maintenance"},
    {OPT_OWNER, "owner", "USER@HOST", V(MAINTENANCE), "identity of this node (default snapferry-maintenance@NODE)"},
    {OPT_MOVE_DATA, "move-data", "YES|NO", V(ASK_BACKUP), "no: take native snapshots only (default: as configured)"},
    {OPT_FROM_TIMER, "from-timer", NULL, V(ASK_BACKUP), "accepted from timers of an earlier version: nothing is done"},
    {OPT_NODE, "node", "NAME", V(SCAN), "backups of another node: they can be listed and restored here"},
    {OPT_NODE, "node", "NAME", V(SNAPSHOT_DELETE), "all that this node has stored, also its last good copies"},
    {OPT_REMOVE_PROVISIONAL, "remove-provisional", NULL, V(SCAN),
     "remove old records of other nodes' unfinished backups"},
    {OPT_REPLACED, "replaced", NULL, V(SCAN), "another repository at its path is the right one from now on"},
    {OPT_FROM, "from", "WHERE", V(ASK_RESTORE), "auto (default), native or repository"},
    {OPT_OVERWRITE, "overwrite", NULL, V(ASK_RESTORE), "overwrite an existing target"},
    {OPT_NEW, "new", NULL, V(ASK_RESTORE), "create a new volume; fail if it exists"},
    {OPT_DELETE_MOST, "delete-most", NULL, V(ASK_COPY), "let delete-after delete more than half of the copy"},
    {OPT_NEW, "new", NULL, V(ASK_COPY), "make another copy if the one that was made is not there any more"},
    {OPT_ALLOW_INCOMPLETE, "allow-incomplete", NULL, V(ASK_RESTORE), "a completed volume of a running backup"},
    {OPT_CLASS_MAP, "class-map", "OLD=NEW", V(ASK_RESTORE), "restore into another storage class; may be repeated"},
    {OPT_VOLUME, "volume", "VOLUME", V(OPERATIONS) | V(NATIVE_LIST) | V(NATIVE_PRUNE) | V(ASK_EXPIRE),
     "only of this volume"},
    {OPT_GONE, "gone", NULL, V(NATIVE_PRUNE),
     "those of volumes that are gone or no longer backed up, also within the limits"},
    {OPT_BACKUP, "backup", "BACKUP", V(OPERATIONS), "only of this backup or restore"},
    {OPT_STATE, "state", "STATE", V(OPERATIONS) | V(BACKUPS), "only in this state, for example Failed"},
    {OPT_CLASS, "class", "NAME", V(VOLUMES), "only of this storage class"},
    {OPT_LIMIT, "limit", "N", V(OPERATIONS) | V(BACKUPS), "at most this many (default 50)"},
    {OPT_FOLLOW, "follow", NULL, V(LOGS), "continue until the operation ends"},
    {OPT_LINES, "lines", "N", V(LOGS), "only the last N lines"},
    {OPT_NOTE, "note", "TEXT", V(HOLD), "reason of the hold"},
    {OPT_WIDE, "wide", NULL, TABLES, "do not shorten values to the width of the terminal"},
    {OPT_CHECK, "check", NULL, V(STATUS), "exit with 3 if there is a problem or an unprotected volume"},
    {OPT_EXPLAIN, "explain", NULL, PLANS, "print the reason for each snapshot that is kept or deleted"},
    {OPT_EXPLAIN, "explain", NULL, V(MAINTENANCE) | V(ASK_MAINTENANCE),
     "print what is kept for now, why and until when"},
    {OPT_DRY_RUN, "dry-run", NULL,
     PLANS | V(NATIVE_RELEASE) | V(SNAPSHOT_DELETE) | V(MAINTENANCE) | V(ASK_MAINTENANCE) | V(REPO_SYNC) |
         V(REPO_REPAIR),
     "change nothing"},
    {OPT_YES, "yes", NULL, DESTROYS, "do not ask for confirmation"},
    {OPT_YES, "yes", NULL, V(REPO_EXPORT_KEY), "also print the kit, with the password, on a terminal"},
    {OPT_WITHOUT_PASSWORD, "without-password", NULL, V(REPO_EXPORT_KEY),
     "leave the password out: it has to be kept elsewhere"},
    {OPT_RESTORE_FORMAT, "restore", NULL, V(REPO_OPEN_KEY), "write the format blob that the repository has lost"},
    {OPT_YES, "yes", NULL, V(REPO_CHANGE_PASSWORD), "also replace the file that has the old password"},
    {OPT_KIND, "kind", "KIND", V(PLUGIN_CHECK), "driver or mover (default: as described by the plugin)"},
    {OPT_DEVICE, "device", "PATH", V(BENCH), "also measure reads of this device or file; it is not written"},
    {OPT_PIPELINE, "pipeline", NULL, V(BENCH), "also measure backups, verification and restore of generated data"},
    {OPT_DIR, "dir", "DIR", V(BENCH), "directory for the temporary repository of the pipeline"},
    {OPT_QUICK, "quick", NULL, V(BENCH), "short runs on a smaller sample: rough figures within seconds"},
    {OPT_SECONDS, "seconds", "N", V(BENCH), "seconds per figure, 0.01 to 60 (default 0.25)"},
    {OPT_SIZE, "size", "SIZE", V(BENCH), "sample in memory (default 32MiB); the pipeline uses 16 times as much"},
    {OPT_HELP, "help", NULL, ALL_VERBS, "show this help; after a verb, the help of the verb"},
    {OPT_VERSION, "version", NULL, ALL_VERBS, "print the version"},
    {OPT_COMPLETION, "bash-completion", NULL, ALL_VERBS, "print a completion script for bash"},
    {OPT_COMPLETE, "complete", "KIND", NO_VERB, "names for the completion script; not listed by help"},
};
const size_t option_table_len = sizeof option_table / sizeof *option_table;
_Static_assert(sizeof option_table / sizeof *option_table < OPTIONS_MAX, "OPTIONS_MAX is large enough");

const struct verb_info *verb_info(enum verb v)
{
    for (size_t i = 0; i < verb_table_len; i++)
        if (verb_table[i].verb == v)
            return &verb_table[i];
    return NULL;
}

bool option_for(enum option_id id, enum verb v)
{
    for (size_t i = 0; i < option_table_len; i++)
        if (option_table[i].id == id && option_table[i].verbs & UINT64_C(1) << v)
            return true;
    return false;
}

static void verb_text(const struct verb_info *i, char *out, size_t cap)
{
    snprintf(out, cap, "%s%s%s", i->words[0], i->words[1] ? " " : "", i->words[1] ? i->words[1] : "");
}

const char *verb_name(enum verb v)
{
    static char buf[64];
    const struct verb_info *i = verb_info(v);
    if (!i)
        return "";
    verb_text(i, buf, sizeof buf);
    return buf;
}

/* Columns for help: 80 in a file or pipe, at most 100 on a terminal. */
static unsigned help_width(void)
{
    unsigned width = screen_width();
    return width > 100 ? (width == SCREEN_ENDLESS ? 80 : 100) : width;
}

/* Two columns: what is typed, and its description. */
static void help_line(FILE *f, const char *left, unsigned at, const char *text)
{
    unsigned width = help_width(), have = (unsigned)fprintf(f, "  %s", left);
    if (width < at + 20) { /* too narrow for two columns */
        at = 6;
        have = at + 1;
    }
    fprintf(f, have >= at ? "\n%*s" : "%*s", (int)(have >= at ? at : at - have), "");
    print_within(f, text, at, at, width);
}

/* Of several verbs, with another meaning for each. */
static size_t option_entries(enum option_id id, uint64_t mask, size_t before)
{
    size_t n = 0;
    for (size_t i = 0; i < before; i++)
        n += option_table[i].id == id && option_table[i].verbs & mask;
    return n;
}

/* They mean the same for whatever verb has them: what a verb has for itself is read first. */
static bool is_general(enum option_id id)
{
    static const enum option_id general[] = {
        OPT_REPO,      OPT_PASSWORD_FILE, OPT_INSECURE,     OPT_CONFIG,  OPT_CONFIG_DIR, OPT_RUNTIME_DIR, OPT_STATE_DIR,
        OPT_CACHE_DIR, OPT_CACHE_SIZE,    OPT_INDEX_MEMORY, OPT_JSON,    OPT_PROGRESS,   OPT_QUIET,       OPT_WIDE,
        OPT_VERBOSE,   OPT_DEBUG,         OPT_HELP,         OPT_VERSION, OPT_COMPLETION};
    for (size_t i = 0; i < sizeof general / sizeof *general; i++)
        if (general[i] == id)
            return true;
    return false;
}

static void help_options(FILE *f, const char *head, uint64_t mask, bool general)
{
    bool any = false;
    for (size_t i = 0; i < option_table_len; i++) {
        const struct option_info *t = &option_table[i];
        if (!(t->verbs & mask) || is_general(t->id) != general || option_entries(t->id, mask, i))
            continue;
        const bool several = option_entries(t->id, mask, option_table_len) > 1;
        char left[64];
        if (!any)
            fprintf(f, "\n%s:\n", head);
        any = true;
        snprintf(left, sizeof left, "%s--%s%s%s",
                 t->id == OPT_REPO      ? "-r, "
                 : t->id == OPT_HELP    ? "-h, "
                 : t->id == OPT_VERBOSE ? "-v, "
                 : t->id == OPT_YES     ? "-y, "
                                        : "",
                 t->name, t->arg && t->arg[0] != '[' ? " " : "", t->arg ? t->arg : "");
        help_line(f, left, 33, several ? "depends on the verb: `snapferry VERB --help`" : t->help);
    }
}

static void help_form(FILE *f, const struct verb_info *i)
{
    static const char *const ways[] = {
        [FORM_REPO] = "-r REPO --password-file FILE ", [FORM_DAEMON] = "", [FORM_LOCAL] = ""};
    char name[64];
    verb_text(i, name, sizeof name);
    char text[512];
    snprintf(text, sizeof text, "usage: snapferry %s%s%s%s [OPTION...]", ways[i->form], name, *i->args ? " " : "",
             i->args);
    print_within(f, text, 0, 7, help_width());
    snprintf(text, sizeof text, "%c%s.", toupper((unsigned char)i->summary[0]), i->summary + 1);
    fputc('\n', f);
    print_within(f, text, 0, 0, help_width());
    help_options(f, "options", UINT64_C(1) << i->verb, false);
    help_options(f, "general options", UINT64_C(1) << i->verb, true);
    fprintf(f, "\nexamples:\n%s", verb_example(i->verb));
}

/* Verbs of a form; with `group`, those with that first word. */
static void help_verbs(FILE *f, enum verb_form form, const char *group)
{
    for (size_t i = 0; i < verb_table_len; i++) {
        if (verb_table[i].form != form || (group && strcmp(group, verb_table[i].words[0]) != 0))
            continue;
        char name[64], left[128];
        verb_text(&verb_table[i], name, sizeof name);
        snprintf(left, sizeof left, "%s%s%s", name, *verb_table[i].args ? " " : "", verb_table[i].args);
        help_line(f, left, 35, verb_table[i].summary);
    }
}

static void help_group(FILE *f, const char *group)
{
    static const char *const heads[] = {[FORM_DAEMON] = "verbs", [FORM_LOCAL] = "verbs", [FORM_REPO] = "verbs with -r"};
    static const enum verb_form order[] = {FORM_DAEMON, FORM_LOCAL, FORM_REPO};
    fprintf(f, "usage: snapferry %s VERB [ARGUMENT...] [OPTION...]\n", group);
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        bool any = false;
        for (size_t i = 0; i < verb_table_len; i++)
            any |= verb_table[i].form == order[k] && !strcmp(verb_table[i].words[0], group);
        if (!any)
            continue;
        fprintf(f, "\n%s:\n", heads[order[k]]);
        help_verbs(f, order[k], group);
    }
    fprintf(f, "\n`snapferry help %s VERB` shows the options of each.\n", group);
}

void options_help(FILE *f, const struct options *o)
{
    const struct verb_info *vi = verb_info(o->verb);
    if (o->group) {
        help_group(f, o->group);
        return;
    }
    if (vi) {
        help_form(f, vi);
        for (size_t i = 0; i < verb_table_len; i++) {
            const struct verb_info *other = &verb_table[i];
            if (other == vi || strcmp(other->words[0], vi->words[0]) != 0 || !other->words[1] != !vi->words[1] ||
                (vi->words[1] && strcmp(other->words[1], vi->words[1]) != 0))
                continue;
            fputs(other->form == FORM_REPO ? "\nWith -r, on a repository and without the daemon:\n"
                                           : "\nWithout -r, by the daemon:\n",
                  f);
            help_form(f, other);
        }
        return;
    }
    fputs("usage: snapferry -r REPO --password-file FILE VERB [ARGUMENT...] [OPTION...]\n"
          "       snapferry VERB [ARGUMENT...] [OPTION...]\n\n",
          f);
    print_within(f,
                 "Backs up block volumes to a Kopia repository and restores them. With -r the command works on that "
                 "repository itself, without -r it sends requests to the daemon.",
                 0, 0, help_width());
    fputs("\nverbs:\n", f);
    help_verbs(f, FORM_DAEMON, NULL);
    fputs("\nverbs without a daemon:\n", f);
    help_verbs(f, FORM_LOCAL, NULL);
    fputs("\nverbs with -r:\n", f);
    help_verbs(f, FORM_REPO, NULL);
    help_options(f, "general options", ALL_VERBS, true);
    fputs("\n`snapferry help VERB` lists the options of a verb, with examples.\nSee snapferry(8).\n", f);
}
