/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keys.c - the table of all keys: sections, type, default, storage
 *
 * Used by parsing, the effective policy, explain, help and the test of the man page. A default in parentheses is
 * computed elsewhere and only shown here.
 */
#include "cfg/internal.h"

#include <string.h>

const char *const kind_names[KIND_COUNT] = {"daemon", "mover", "metrics", "driver", "repository", "storage-class",
                                            "volume", "job",   "plugin",  "policy", "copy"};

#define POLICY "daemon driver storage-class job volume"
#define LIMITS "mover driver storage-class job volume"

#define AT(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)
#define DAEMON(field) IN_DAEMON, AT(struct cfg_daemon, field)
#define METRICS(field) IN_METRICS, AT(struct cfg_metrics, field)
#define REPOSITORY(field) IN_REPOSITORY, AT(struct cfg_repository, field)
#define CLASS(field) IN_CLASS, AT(struct cfg_class, field)
#define VOLUME(field) IN_VOLUME, AT(struct cfg_volume, field)
#define JOB(field) IN_JOB, AT(struct cfg_job, field)
#define PLUGIN(field) IN_PLUGIN, AT(struct cfg_plugin, field)
#define RULE(field) IN_RULE, AT(struct cfg_rule, field)
#define COPY(field) IN_COPY, AT(struct cfg_copy, field)
#define P(field) IN_POLICY, AT(struct cfg_policy, field)

#define MIB (INT64_C(1) << 20)
#define TIB (INT64_C(1) << 40)
#define DAY INT64_C(86400)

#define ANY 0, 0
/* Compressors of repo/ and splitters of chunker/ (compared by test_cfg_names): the control plane uses neither room. */
#define COMPRESSORS                                                                                                    \
    "none zstd zstd-fastest zstd-better-compression zstd-best-compression gzip gzip-best-speed "                       \
    "gzip-best-compression pgzip pgzip-best-speed pgzip-best-compression deflate-default deflate-best-speed "          \
    "deflate-best-compression"
#define SPLITTERS                                                                                                      \
    "DYNAMIC-128K-BUZHASH DYNAMIC-256K-BUZHASH DYNAMIC-512K-BUZHASH DYNAMIC-1M-BUZHASH DYNAMIC-2M-BUZHASH "            \
    "DYNAMIC-4M-BUZHASH DYNAMIC-8M-BUZHASH DYNAMIC-128K-RABINKARP DYNAMIC-256K-RABINKARP DYNAMIC-512K-RABINKARP "      \
    "DYNAMIC-1M-RABINKARP DYNAMIC-2M-RABINKARP DYNAMIC-4M-RABINKARP DYNAMIC-8M-RABINKARP FIXED-128K FIXED-256K "       \
    "FIXED-512K FIXED-1M FIXED-2M FIXED-4M FIXED-8M FIXED DYNAMIC"
#define RATE_MIN (256 << 10) /* slower rates look like a stall: writing buffered data takes minutes */
/* clang-format off */
const struct key key_table[] = {
    {{"node-name", "daemon", "text", "(the host's name)",
      "Name of this node in snapshot sources (snapferry@NODE) and owner tags; do not change it while native "
      "snapshots exist."},
     DAEMON(node_name), V_NAME, ANY, NULL},
    {{"only-on-node", "daemon", "list", "",
      "Patterns of the names of nodes on which backups are run; on other nodes the daemon only answers requests; "
      "!PATTERN excludes."},
     DAEMON(only_on_node), V_PATTERNS, ANY, NULL},
    {{"memory-total", "daemon", "bytes", "2GiB",
      "Limit for the memory of all movers together; movers that would exceed it wait."},
     DAEMON(memory_total), V_BYTES, 96 * MIB, 1024 * TIB, NULL},
    {{"slots", "daemon", "count", "2",
      "Maximum number of operations that move data at the same time; 0: maintenance mode, no new operations start."},
     DAEMON(slots), V_COUNT, 0, 1024, NULL},
    {{"slots-on-node", "daemon", "list", "",
      "PATTERN=NUMBER for nodes with another number of slots; of several matching patterns the smallest number "
      "applies."},
     DAEMON(slots_on_node), V_SLOTS, ANY, NULL},
    {{"restore-reserved", "daemon", "count", "1", "Additional slots reserved for restores."},
     DAEMON(restore_reserved), V_COUNT, 0, 1024, NULL},
    {{"concurrent-backups", "daemon", "count", "2", "Maximum number of backups at the same time; others are queued."},
     DAEMON(concurrent_backups), V_COUNT, 1, 1024, NULL},
    {{"prepare-ahead", "daemon", "count", "(slots + 1)", "Maximum number of exposed volumes that wait for a slot."},
     DAEMON(prepare_ahead), V_COUNT, 1, 4096, NULL},
    {{"per-device", "daemon", "count", "1", "Maximum number of operations at the same time on one device or pool."},
     DAEMON(per_device), V_COUNT, 1, 1024, NULL},
    {{"sweep", "daemon", "duration", "60s", "Interval at which all records are re-evaluated even without an event."},
     DAEMON(sweep_s), V_DURATION, 1, DAY, NULL},
    {{"orphan-grace", "daemon", "duration", "1h",
      "Age at which an object that carries this node's owner tag but has no record is removed."},
     DAEMON(orphan_grace_s), V_DURATION, 1, 365 * DAY, NULL},
    {{"keep-records", "daemon", "duration", "90d", "Time for which records of finished operations are kept."},
     DAEMON(keep_records_s), V_DURATION, 60, 36500 * DAY, NULL},
    {{"provisional-ttl", "daemon", "duration", "7d",
      "Age from which a scan offers for removal what other nodes recorded of backups that have not ended."},
     DAEMON(provisional_ttl_s), V_DURATION, 1, 3650 * DAY, NULL},
    {{"socket-group", "daemon", "text", "snapferry", "Group that may use the control socket, in addition to root."},
     DAEMON(socket_group), V_NAME, ANY, NULL},
    {{"state-dir", "daemon", "path", "/var/lib/snapferry", "Directory of records and results."},
     DAEMON(state_dir), V_PATH, ANY, NULL},
    {{"cache-dir", "daemon", "path", "/var/cache/snapferry", "Directory of repository caches."},
     DAEMON(cache_dir), V_PATH, ANY, NULL},
    {{"cache-max", "daemon", "bytes", "512MiB",
      "Limit of the cache directory for movers; each repository that is configured may use an equal part of it."},
     DAEMON(cache_max), V_BYTES, MIB, 1024 * TIB, NULL},
    {{"on-restart", "daemon", "resume|fail", "resume",
      "Whether unfinished backups, restores and verifications that had begun and whose mover no longer exists at the "
      "start of the daemon are resumed or fail."},
     DAEMON(on_restart), V_ENUM, ANY,
     "resume fail"},
    {{"log-level", "daemon", "word", "info", "Minimum level of log messages: debug, info, warning, error."},
     DAEMON(log_level), V_WORD, ANY,
     "debug info warning error"},
    {{"user", "mover", "text", "snapferry-mover", "User of mover processes; root or empty: the user of the daemon."},
     P(limits.user), V_NAME, ANY, NULL},
    {{"memory", LIMITS, "bytes", "256MiB", "Memory limit of a mover, at least 96MiB."},
     P(limits.memory), V_BYTES, 96 * MIB, TIB, NULL},
    {{"memory-max", LIMITS, "bytes", "0", "MemoryMax of its cgroup; 0: computed as memory + index-memory + 64MiB."},
     P(limits.memory_max), V_BYTES, 0, TIB, NULL},
    {{"index-memory", LIMITS, "bytes", "64MiB", "Limit of mapped index pages, in addition to memory."},
     P(limits.index_memory), V_BYTES, MIB, TIB, NULL},
    {{"workers", LIMITS, "count", "0", "Worker threads of a mover; 0: one per CPU, fewer if memory is small."},
     P(limits.workers), V_COUNT, 0, 1024, NULL},
    {{"cpu-quota", LIMITS, "percent", "0", "Limit of CPU time in percent of one CPU; 0: no limit."},
     P(limits.cpu_quota), V_COUNT, 0, 1000000, NULL},
    {{"cpu-weight", LIMITS, "count", "0", "CPUWeight of its cgroup, 1 to 10000; 0: not set."},
     P(limits.cpu_weight), V_COUNT, 0, 10000, NULL},
    {{"io-weight", LIMITS, "count", "0", "IOWeight of its cgroup, 1 to 10000; 0: not set."},
     P(limits.io_weight), V_COUNT, 0, 10000, NULL},
    {{"tasks-max", LIMITS, "count", "256", "TasksMax of its cgroup."}, P(limits.tasks_max), V_COUNT, 16, 1000000, NULL},
    {{"nice", LIMITS, "number", "0", "Nice level, -20 to 19."}, P(limits.nice), V_COUNT, -20, 19, NULL},
    {{"ioclass", LIMITS, "best-effort|idle", "", "I/O scheduling class; empty: not set."},
     P(limits.ioclass), V_WORD, ANY,
     "best-effort idle"},
    {{"cpus", LIMITS, "list of CPUs", "", "CPUs on which movers may run, such as 0-3,8; empty: any."},
     P(limits.cpus), V_CPUS, ANY, NULL},
    {{"slice", LIMITS, "text", "", "systemd slice of the mover's unit; empty: snapferry.slice."},
     P(limits.slice), V_NAME, ANY, NULL},
    {{"read-limit", LIMITS, "bytes per second", "0",
      "Maximum rate of reads from the volume or, for a restore, a verification or maintenance, from the repository; "
      "0: no limit."},
     P(limits.read_limit), V_RATE, RATE_MIN, 0, NULL},
    {{"write-limit", LIMITS, "bytes per second", "0",
      "Maximum rate of writes to the repository or, for a restore, to the volume; 0: no limit."},
     P(limits.write_limit), V_RATE, RATE_MIN, 0, NULL},
    {{"limit-times", LIMITS, "times", "",
      "Times of the week, in local time, at which read-limit and write-limit hold; empty: always."},
     P(limits.limit_times), V_TIMES, ANY, NULL},
    {{"unit-property", LIMITS, "list", "",
      "Additional properties of the mover's systemd unit, Name=value; quote values with spaces."},
     P(limits.unit_properties), V_PROPERTIES, ANY, NULL},
    {{"repository", POLICY, "name", "(the only one)", "Section [repository \"NAME\"] to which backups are written."},
     P(repository), V_NAME, ANY, NULL},
    {{"exclude", "storage-class volume", "yes|no", "no", "The volume is listed as skipped and not backed up."},
     P(exclude), V_YESNO, ANY, NULL},
    {{"group", "volume", "name", "",
      "Name of a group; snapshots of all volumes of a group are taken together, at one instant where the storage can."},
     P(group), V_NAME, ANY, NULL},
    {{"group-consistency", POLICY, "best-effort|strict", "best-effort",
      "strict: a backup of a group fails if its snapshots cannot be taken within group-max-skew."},
     P(group_consistency), V_ENUM, ANY,
     "best-effort strict"},
    {{"group-max-skew", POLICY, "duration", "1s",
      "Maximum time between the first and the last snapshot of a strict group, with units down to ms."},
     P(group_max_skew_ms), V_MS, 1, 3600000, NULL},
    {{"move-data", POLICY, "yes|no", "yes", "no: only native snapshots are taken, no data is moved to a repository."},
     P(move_data), V_YESNO, ANY, NULL},
    {{"snapshots-to-retain", POLICY, "count", "0",
      "Number of native snapshots to retain per volume after their data has been moved; 0: none."},
     P(snapshots_to_retain), V_COUNT, 0, 100000, NULL},
    {{"retain-max-age", POLICY, "duration", "0",
      "Age at which a retained native snapshot is pruned even within snapshots-to-retain; 0: no limit."},
     P(retain_max_age_s), V_DURATION0, 0, 36500 * DAY, NULL},
    {{"keep-on-failure", POLICY, "yes|no", "no",
      "Keep the native snapshot if its data could not be moved, for `snapferry retry`."},
     P(keep_on_failure), V_YESNO, ANY, NULL},
    {{"prune", POLICY, "before|after", "after",
      "When the oldest retained native snapshot is pruned for a new one: after the data of the new one has been moved, "
      "or before the new one is taken."},
     P(prune_before), V_ENUM, ANY,
     "after before"},
    {{"max-snapshots-per-volume", POLICY, "count", "64",
      "Maximum number of native snapshots of a volume, for whatever reason they are kept."},
     P(max_snapshots_per_volume), V_COUNT, 1, 100000, NULL},
    {{"pool-high-water", POLICY, "percent", "85",
      "Usage of the pool above which retained native snapshots are pruned and new ones with move-data = no are "
      "refused."},
     P(pool_high_water), V_COUNT, 1, 100, NULL},
    {{"snapshot-only-keep", POLICY, "count", "3", "Number of native snapshots to keep per volume with move-data = no."},
     P(snapshot_only_keep), V_COUNT, 1, 100000, NULL},
    {{"snapshot-only-max-age", POLICY, "duration", "0",
      "Age at which native snapshots with move-data = no are pruned, except the newest; 0: no limit."},
     P(snapshot_only_max_age_s), V_DURATION0, 0, 36500 * DAY, NULL},
    {{"backup-storage-class", POLICY, "name", "",
      "Storage class in which the intermediate volume is created; empty: the volume's own class."},
     P(backup_storage_class), V_NAME, ANY, NULL},
    {{"backup-read-only", POLICY, "yes|no", "yes",
      "no: the intermediate volume is writable, so that a hook can modify it before it is read."},
     P(backup_read_only), V_YESNO, ANY, NULL},
    {{"backup-option.*", POLICY, "text", "", "Option KEY of backup-option.KEY for the driver or plugin."},
     P(options), V_OPTIONS, ANY, NULL},
    {{"expose-keep-on-failure", POLICY, "yes|no", "no",
      "Keep the native snapshot and the intermediate volume of a backup that failed, for inspection, until `snapferry "
      "unhold`."},
     P(expose_keep_on_failure), V_YESNO, ANY, NULL},
    {{"copy-limit", POLICY, "bytes per second", "0",
      "Maximum rate of a full copy to an intermediate volume; 0: no limit."},
     P(copy_limit), V_RATE, ANY, NULL},
    {{"accept-inconsistent", POLICY, "yes|no", "no",
      "Back up a raw device without a snapshot; the backup is recorded as not crash-consistent."},
     P(accept_inconsistent), V_YESNO, ANY, NULL},
    {{"point-in-time", POLICY, "yes|no", "no",
      "Driver nbd: the exports are of one point in time (of snapshots, or of disks that nobody writes to)."},
     P(point_in_time), V_YESNO, ANY, NULL},
    {{"cow-size", POLICY, "percent", "20",
      "Driver lvm: space of a COW snapshot, in percent of its volume; it is invalid once more than that was "
      "overwritten."},
     P(cow_percent), V_COUNT, 1, 100, NULL},
    {{"snapshot-timeout", POLICY, "duration", "60s", "Time limit for taking a native snapshot."},
     P(snapshot_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"prepare-timeout", POLICY, "duration", "30min",
      "Time limit from the snapshot to the first byte read, over all attempts, without the time spent in the queue."},
     P(prepare_timeout_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"go-timeout", POLICY, "duration", "60s",
      "Time for which a started mover waits for permission to start its work."},
     P(go_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"stall-timeout", POLICY, "duration", "15min", "Time without progress after which a mover is killed."},
     P(stall_timeout_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"max-duration", POLICY, "duration", "0", "Time limit of an operation; 0: no limit."},
     P(max_duration_s), V_DURATION0, 0, 365 * DAY, NULL},
    {{"cancel-grace", POLICY, "duration", "30s", "Time from a cancel request to the kill."},
     P(cancel_grace_s), V_DURATION, 1, DAY, NULL},
    {{"repo-outage-max", POLICY, "duration", "6h",
      "Time for which operations wait for an unavailable repository before they fail."},
     P(repo_outage_max_s), V_DURATION, 1, 365 * DAY, NULL},
    {{"retries", POLICY, "count", "5", "Number of retries after a transient error; 0: none."},
     P(retries), V_COUNT, 0, 1000, NULL},
    {{"retry-first", POLICY, "duration", "1min", "Delay before the first retry; it doubles with each retry."},
     P(retry_first_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"retry-max", POLICY, "duration", "1h", "Maximum delay between retries."},
     P(retry_max_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"mover", POLICY, "builtin|plugin:NAME", "builtin", "Program that moves the data."}, P(mover), V_MOVER, ANY, NULL},
    {{"splitter", POLICY, "name", "(the repository's)", "Algorithm that splits the volume into chunks."},
     P(splitter), V_WORD, ANY, SPLITTERS},
    {{"compression", POLICY, "name", "(the repository's)", "Compressor of new data."},
     P(compression), V_WORD, ANY, COMPRESSORS},
    {{"bad-reads", POLICY, "fail|map", "fail", "map: unreadable ranges are recorded and the backup continues."},
     P(map_bad_reads), V_ENUM, ANY,
     "fail map"},
    {{"type", POLICY, "incremental|full", "incremental", "full: all data is read, and the parent is not used."},
     P(full), V_ENUM, ANY,
     "incremental full"},
    {{"changed-blocks", POLICY, "no|auto", "auto",
      "auto: only what changed since the last backup is read, where the storage can list it; one native snapshot is "
      "kept for that. no: all data is read."},
     P(changed_blocks), V_ENUM, ANY,
     "no auto"},
    {{"full-every", POLICY, "duration", "30d",
      "Age of the last full read at which all data is read again; 0: no limit."},
     P(full_every_s), V_DURATION0, 0, 36500 * DAY, NULL},
    {{"verify-sample", POLICY, "percent", "0.1",
      "Share of the unchanged data that is read and compared with its last backup in each run, for at most 60 s; 0: "
      "none."},
     P(verify_sample_ppm), V_SHARE, 0, 1000000, NULL},
    {{"hook-pre-backup", POLICY, "path", "",
      "Program run once before anything else is done for the backup of a volume."},
     P(hook_pre_backup), V_PATH, ANY, NULL},
    {{"hook-pre-snapshot", POLICY, "path", "", "Program run before the native snapshot is taken."},
     P(hook_pre_snapshot), V_PATH, ANY, NULL},
    {{"hook-post-snapshot", POLICY, "path", "",
      "Program run after the native snapshot, always, even after a failure or crash."},
     P(hook_post_snapshot), V_PATH, ANY, NULL},
    {{"hook-post-backup", POLICY, "path", "", "Program run after the data has been moved."},
     P(hook_post_backup), V_PATH, ANY, NULL},
    {{"hook-overlay", POLICY, "path", "", "Program that creates and removes a writable overlay for the driver device."},
     P(hook_overlay), V_PATH, ANY, NULL},
    {{"hook-prepare", POLICY, "path", "", "Program run on a writable intermediate before it is read."},
     P(hook_prepare), V_PATH, ANY, NULL},
    {{"hook-pre-restore", POLICY, "path", "", "Program run once before the target of a restore is touched."},
     P(hook_pre_restore), V_PATH, ANY, NULL},
    {{"hook-post-restore", POLICY, "path", "", "Program run after a restore."},
     P(hook_post_restore), V_PATH, ANY, NULL},
    {{"hook-timeout", POLICY, "duration", "30s",
      "Time limit for each hook."}, P(hook_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"hook-on-error", POLICY, "fail|continue", "fail", "Whether the operation fails or continues if a hook fails."},
     P(hook_on_error), V_ENUM, ANY,
     "fail continue"},
    {{"keep-latest", POLICY, "count", "",
      "Number of newest snapshots of the volume to keep in the repository (Kopia retention); not set: inherited from "
      "the repository's policies."},
     P(keep_latest), V_KEEP, 0, 1000000, NULL},
    {{"keep-hourly", POLICY, "count", "",
      "Number of hours for which to keep a snapshot of the volume in the repository (Kopia retention); not set: "
      "inherited from the repository's policies."},
     P(keep_hourly), V_KEEP, 0, 1000000, NULL},
    {{"keep-daily", POLICY, "count", "",
      "Number of days for which to keep a snapshot of the volume in the repository (Kopia retention); not set: "
      "inherited from the repository's policies."},
     P(keep_daily), V_KEEP, 0, 1000000, NULL},
    {{"keep-weekly", POLICY, "count", "",
      "Number of weeks for which to keep a snapshot of the volume in the repository (Kopia retention); not set: "
      "inherited from the repository's policies."},
     P(keep_weekly), V_KEEP, 0, 1000000, NULL},
    {{"keep-monthly", POLICY, "count", "",
      "Number of months for which to keep a snapshot of the volume in the repository (Kopia retention); not set: "
      "inherited from the repository's policies."},
     P(keep_monthly), V_KEEP, 0, 1000000, NULL},
    {{"keep-annual", POLICY, "count", "",
      "Number of years for which to keep a snapshot of the volume in the repository (Kopia retention); not set: "
      "inherited from the repository's policies."},
     P(keep_annual), V_KEEP, 0, 1000000, NULL},
    {{"max-per-class", "daemon driver storage-class", "count", "0",
      "Maximum number of operations at the same time on volumes of one storage class; 0: no separate limit."},
     P(max_per_class), V_COUNT, 0, 1024, NULL},
    {{"max-per-device", "driver storage-class", "count", "(per-device of [daemon])",
      "Maximum number of operations at the same time on one device or pool of the class."},
     P(max_per_device), V_COUNT, 1, 1024, NULL},
    {{"priority", POLICY, "count", "50", "Priority in the queue, 0 to 100; higher values first."},
     P(priority), V_COUNT, 0, 100, NULL},
    {{"listen", "metrics", "address", "127.0.0.1:9747",
      "Address at which metrics are served: ADDRESS:PORT, [ADDRESS6]:PORT or unix:PATH; empty: none."},
     METRICS(listen), V_LISTEN, ANY, NULL},
    {{"unix-group", "metrics", "text", "",
      "Group that may connect to unix:PATH, in addition to root; empty: root only."},
     METRICS(unix_group), V_NAME, ANY, NULL},
    {{"textfile", "metrics", "path", "",
      "File for node_exporter's textfile collector, written every textfile-period; empty: none."},
     METRICS(textfile), V_PATH, ANY, NULL},
    {{"textfile-period", "metrics", "duration", "15s", "Interval between writes of textfile."},
     METRICS(textfile_period_s), V_DURATION, 1, DAY, NULL},
    {{"compat-metrics", "metrics", "yes|no", "no",
      "Also export families under the names used by Velero (velero_*, podVolume_*)."},
     METRICS(compat), V_YESNO, ANY, NULL},
    {{"series-max", "metrics", "count", "10000",
      "Maximum number of samples of one family; further ones are omitted and counted."},
     METRICS(series_max), V_COUNT, 100, 10000000, NULL},
    {{"type", "repository copy", "word", "filesystem",
      "filesystem: a directory. s3: a bucket of S3-compatible object storage."},
     REPOSITORY(type), V_WORD, ANY,
     "filesystem s3"},
    {{"path", "repository copy", "path", "", "Absolute path of the directory; required for filesystem."},
     REPOSITORY(path), V_PATH, ANY, NULL},
    {{"password-file", "repository", "path or cred:NAME", "", "File with the password, or a systemd credential."},
     REPOSITORY(password_file), V_SECRET, ANY, NULL},
    {{"insecure-password-file", "repository", "yes|no", "no",
      "Use password-file even if others than root can read it."},
     REPOSITORY(insecure_password_file), V_YESNO, ANY, NULL},
    {{"splitter", "repository", "name", "",
      "Splitter of new repositories, and of backups of volumes whose policy does not set one."},
     REPOSITORY(splitter), V_WORD, ANY, SPLITTERS},
    {{"compression", "repository", "name", "",
      "Compressor of new data of volumes whose policy does not set one; empty or none: no compression."},
     REPOSITORY(compression), V_WORD, ANY, COMPRESSORS},
    {{"other-nodes", "repository", "list", "",
      "Names of other nodes whose backups in the repository are listed and can be restored here (read only)."},
     REPOSITORY(other_nodes), V_LIST, ANY, NULL},
    {{"maintenance", "repository", "yes|no", "yes",
      "Maintain the repository by schedule, if this node is the owner of its maintenance; no: on request only."},
     REPOSITORY(maintenance), V_YESNO, ANY, NULL},
    {{"maintenance-full", "repository", "calendar", "",
      "Schedule of full maintenance, which frees space, systemd.time(7); empty: at the interval that the repository "
      "has for it, a day unless that was changed."},
     REPOSITORY(maintenance_full), V_TEXT, ANY, NULL},
    {{"verification", "repository", "calendar", "",
      "Schedule of verification, systemd.time(7); empty: on request only."},
     REPOSITORY(verification), V_TEXT, ANY, NULL},
    {{"verification-read", "repository", "percent", "10",
      "Share of the contents that each verification by schedule reads, the next one the share that follows; index and "
      "packs are looked at in each."},
     REPOSITORY(verification_read_ppm), V_SHARE, 0, 1000000, NULL},
    {{"endpoint", "repository copy", "text", "",
      "s3: the service, as https://HOST or https://HOST:PORT; http:// is not encrypted; required for s3."},
     REPOSITORY(endpoint), V_NAME, ANY, NULL},
    {{"bucket", "repository copy", "name", "", "s3: bucket, which must exist; required for s3."},
     REPOSITORY(bucket), V_NAME, ANY, NULL},
    {{"prefix", "repository copy", "text", "",
      "s3: text that all keys of objects begin with, mostly ending in a slash; nothing is added to it."},
     REPOSITORY(prefix), V_NAME, ANY, NULL},
    {{"region", "repository copy", "name", "us-east-1", "s3: region of the bucket."},
     REPOSITORY(region), V_NAME, ANY, NULL},
    {{"credentials", "repository copy", "path or cred:NAME", "",
      "s3: file or systemd credential with the lines access-key = KEY, secret-key = SECRET and, for temporary keys, "
      "session-token = TOKEN; required for s3."},
     REPOSITORY(credentials), V_SECRET, ANY, NULL},
    {{"ca-file", "repository copy", "path", "",
      "s3: file of certificate authorities (PEM) that are trusted instead of the system's."},
     REPOSITORY(ca_file), V_PATH, ANY, NULL},
    {{"virtual-host", "repository copy", "yes|no", "no",
      "s3: yes: the bucket is part of the host name (BUCKET.HOST), no: of the path."},
     REPOSITORY(virtual_host), V_YESNO, ANY, NULL},
    {{"parallel-puts", "repository copy", "number", "5",
      "s3: Packs that are uploaded at a time, 1 to 32, each over a connection of its own; so many, and the one being "
      "filled, are files in the cache directory."},
     REPOSITORY(parallel_puts), V_COUNT, 1, 32, NULL},
    {{"point-in-time", "repository", "time", "",
      "s3: use the repository as it was at that time, by the versions of the bucket's objects, read only: "
      "2026-11-20T02:00:00Z, or local time as 2026-11-20 02:00."},
     REPOSITORY(at_ns), V_TIME, ANY, NULL},
    {{"repository", "copy", "name", "(the only one)", "Repository that is copied."},
     COPY(repository), V_NAME, ANY, NULL},
    {{"on-calendar", "copy", "calendar", "", "Schedule of the copy, systemd.time(7); empty: on request only."},
     COPY(on_calendar), V_TEXT, ANY, NULL},
    {{"verify", "copy", "yes|no", "no", "Read back each blob that was copied, and compare it."},
     COPY(verify), V_YESNO, ANY, NULL},
    {{"delete-after", "copy", "duration", "0",
      "Time after which blobs that the repository does not have any more are deleted in the copy; 0: never."},
     COPY(delete_after_s), V_DURATION0, 0, 36500 * DAY, NULL},
    {{"read-limit", "copy", "bytes per second", "0",
      "Maximum rate of reads from the repository; 0: read-limit of [mover]."},
     COPY(read_limit), V_RATE, RATE_MIN, 0, NULL},
    {{"write-limit", "copy", "bytes per second", "0",
      "Maximum rate of writes to the copy; 0: write-limit of [mover]."},
     COPY(write_limit), V_RATE, RATE_MIN, 0, NULL},
    {{"driver", "storage-class", "name", "",
      "Driver: reflink, device, lvm-thin, lvm, zfs, nbd, qemu, rbd, plugin:NAME; required."},
     CLASS(driver), V_DRIVER, ANY, NULL},
    {{"match", "storage-class", "list of patterns", "",
      "Patterns of the volumes of this class, or of what their storage says of them (vg:GROUP, pool:GROUP/POOL, "
      "pool:POOL, dataset:POOL/PATH, tag:NAME); empty: for intermediate volumes only."},
     CLASS(match), V_PATTERNS, ANY, NULL},
    {{"target", "storage-class", "text", "",
      "Directory (reflink), thin pool (lvm-thin: GROUP/POOL), volume group (lvm), or pool or dataset (zfs: POOL/PATH) "
      "in which intermediate and restored volumes are created; directory of fleecing images (qemu, required)."},
     CLASS(target), V_TEXT, ANY, NULL},
    {{"only-on-node", "storage-class", "list", "",
      "Patterns of the names of nodes on which the class is used; !PATTERN excludes."},
     CLASS(only_on_node), V_PATTERNS, ANY, NULL},
    {{"class", "volume", "name", "", "Storage class, regardless of match patterns."}, VOLUME(klass), V_NAME, ANY, NULL},
    {{"name", "volume", "text", "(the section's name)",
      "Name of the volume, if it is too long for a section name."},
     VOLUME(name), V_TEXT, ANY, NULL},
    {{"volumes", "job", "list", "",
      "Names and patterns of volumes, class:NAME for all of a class, tag:NAME and so on as in match; required."},
     JOB(volumes), V_PATTERNS, ANY, NULL},
    {{"on-calendar", "job", "calendar", "", "Schedule of the job, systemd.time(7); empty: manual runs only."},
     JOB(on_calendar), V_TEXT, ANY, NULL},
    {{"persistent", "job", "yes|no", "yes", "Catch up a missed run."}, JOB(persistent), V_YESNO, ANY, NULL},
    {{"jitter", "job", "duration", "0", "Maximum delay of the start, a fixed offset per node and job; 0: none."},
     JOB(jitter_s), V_DURATION0, 0, DAY, NULL},
    {{"paused", "job", "yes|no", "no", "Suspend the schedule of the job."}, JOB(paused), V_YESNO, ANY, NULL},
    {{"only-on-node", "job", "list", "", "Patterns of the names of nodes on which the job runs; !PATTERN excludes."},
     JOB(only_on_node), V_PATTERNS, ANY, NULL},
    {{"kind", "plugin", "driver|mover", "", "Kind of plugin; required."}, PLUGIN(kind), V_WORD, ANY, "driver mover"},
    {{"program", "plugin", "path", "", "Absolute path of the program; required."}, PLUGIN(program), V_PATH, ANY, NULL},
    {{"user", "plugin", "text", "nobody", "User of the program; ignored with privileged = yes."},
     PLUGIN(user), V_NAME, ANY, NULL},
    {{"privileged", "plugin", "yes|no", "no", "Run the program as the daemon's user, outside the sandbox."},
     PLUGIN(privileged), V_YESNO, ANY, NULL},
    {{"match-class", "plugin", "list of patterns", "",
      "Storage classes whose volumes are assigned to this mover plugin."},
     PLUGIN(match_class), V_PATTERNS, ANY, NULL},
    {{"match-path", "plugin", "list of patterns", "", "Volumes that are assigned to this mover plugin."},
     PLUGIN(match_path), V_PATTERNS, ANY, NULL},
    {{"min-size", "plugin", "bytes", "0", "Minimum size of volumes assigned to this mover plugin."},
     PLUGIN(min_size), V_BYTES, 0, INT64_MAX, NULL},
    {{"max-size", "plugin", "bytes", "(no limit)", "Maximum size of volumes assigned to this mover plugin."},
     PLUGIN(max_size), V_BYTES, 1, INT64_MAX, NULL},
    {{"priority", "plugin", "count", "50",
      "If several mover plugins match, the one with the highest priority is used; equal priorities are an error."},
     PLUGIN(priority), V_COUNT, 0, 100, NULL},
    {{"start-timeout", "plugin", "duration", "30s", "Time limit for the verb start."},
     PLUGIN(start_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"poll", "plugin", "duration", "10s", "Interval between calls of the verb progress."},
     PLUGIN(poll_s), V_DURATION, 1, DAY, NULL},
    {{"max-timeout", "plugin", "duration", "10min", "Maximum timeout that the plugin may request."},
     PLUGIN(max_timeout_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"progress-retry", "plugin", "count", "5",
      "Number of times that a failed call of the verb progress is repeated before the operation fails."},
     PLUGIN(progress_retry), V_COUNT, 1, 1000, NULL},
    {{"match", "policy", "list of patterns", "", "Volumes to which the policy applies; empty: any."},
     RULE(match), V_PATTERNS, ANY, NULL},
    {{"class", "policy", "list", "",
      "Storage classes to which the policy applies; empty: any."}, RULE(classes), V_LIST, ANY, NULL},
    {{"driver", "policy", "list", "",
      "Drivers to which the policy applies; empty: any."}, RULE(drivers), V_LIST, ANY, NULL},
    {{"min-size", "policy", "bytes", "0",
      "Minimum size of volumes to which the policy applies."}, RULE(min_size), V_BYTES, 0, INT64_MAX, NULL},
    {{"max-size", "policy", "bytes", "(no limit)", "Maximum size of volumes to which the policy applies."},
     RULE(max_size), V_BYTES, 1, INT64_MAX, NULL},
    {{"action", "policy", "skip|snapshot|backup", "",
      "skip: no backup; snapshot: native snapshot only; backup: move the data; required."},
     RULE(action), V_ENUM, ANY,
     "skip snapshot backup"},
};
/* clang-format on */
const unsigned n_keys = sizeof key_table / sizeof *key_table;

/* Whether `word` is one of the space-separated words. */
static bool has_word(const char *words, const char *word, size_t len)
{
    for (const char *w = words; *w; w += strspn(w, " ")) {
        size_t n = strcspn(w, " ");
        if (n == len && !memcmp(w, word, n))
            return true;
        w += n;
    }
    return false;
}

bool key_in(const struct key *k, enum kind kind)
{
    return has_word(k->pub.sections, kind_names[kind], strlen(kind_names[kind]));
}

/* "backup-option.*" matches any name after the dot. */
static bool same_name(const struct key *k, const char *name)
{
    if (k->type != V_OPTIONS)
        return !strcmp(k->pub.name, name);
    size_t n = strlen(k->pub.name) - 1;
    return !strncmp(k->pub.name, name, n) && name[n];
}

const struct key *key_find(enum kind kind, const char *name)
{
    for (unsigned i = 0; i < n_keys; i++)
        if (same_name(&key_table[i], name) && key_in(&key_table[i], kind))
            return &key_table[i];
    return NULL;
}

const struct key *key_anywhere(const char *name)
{
    for (unsigned i = 0; i < n_keys; i++)
        if (same_name(&key_table[i], name))
            return &key_table[i];
    return NULL;
}
