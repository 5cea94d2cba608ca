/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keys.c - the table of every key: where it may stand, what it holds, its default, where it is stored
 *
 * Parsing, the effective policy, explain, help and the test of the man page all read these lines. A default in
 * parentheses is worked out elsewhere and only told here.
 */
#include "cfg/internal.h"

#include <string.h>

const char *const kind_names[KIND_COUNT] = {"daemon",        "mover",  "metrics", "driver", "repository",
                                            "storage-class", "volume", "job",     "plugin", "policy"};

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
#define P(field) IN_POLICY, AT(struct cfg_policy, field)

#define MIB (INT64_C(1) << 20)
#define TIB (INT64_C(1) << 40)
#define DAY INT64_C(86400)

#define ANY 0, 0
/* What repo/ can write and chunker/ can cut (test_cfg_names compares them): the control plane has neither room. */
#define COMPRESSORS                                                                                                    \
    "none zstd zstd-fastest zstd-better-compression zstd-best-compression gzip gzip-best-speed "                       \
    "gzip-best-compression pgzip pgzip-best-speed pgzip-best-compression deflate-default deflate-best-speed "          \
    "deflate-best-compression"
#define SPLITTERS                                                                                                      \
    "DYNAMIC-128K-BUZHASH DYNAMIC-256K-BUZHASH DYNAMIC-512K-BUZHASH DYNAMIC-1M-BUZHASH DYNAMIC-2M-BUZHASH "            \
    "DYNAMIC-4M-BUZHASH DYNAMIC-8M-BUZHASH DYNAMIC-128K-RABINKARP DYNAMIC-256K-RABINKARP DYNAMIC-512K-RABINKARP "      \
    "DYNAMIC-1M-RABINKARP DYNAMIC-2M-RABINKARP DYNAMIC-4M-RABINKARP DYNAMIC-8M-RABINKARP FIXED-128K FIXED-256K "       \
    "FIXED-512K FIXED-1M FIXED-2M FIXED-4M FIXED-8M FIXED DYNAMIC"
#define RATE_MIN (256 << 10) /* slower looks like a stall: what is in memory takes minutes */
/* clang-format off */
const struct key key_table[] = {
    {{"node-name", "daemon", "text", "(the host's name)",
      "Name of this node in snapshot sources (snapferry@NODE) and owner tags; never change it while native snapshots "
      "exist."},
     DAEMON(node_name), V_NAME, ANY, NULL},
    {{"only-on-node", "daemon", "list", "",
      "Patterns of node names on which this configuration takes and moves backups; elsewhere the daemon only answers; "
      "!PATTERN excludes."},
     DAEMON(only_on_node), V_PATTERNS, ANY, NULL},
    {{"memory-total", "daemon", "bytes", "2GiB", "Memory of all movers together; a mover that does not fit waits."},
     DAEMON(memory_total), V_BYTES, 96 * MIB, 1024 * TIB, NULL},
    {{"slots", "daemon", "count", "2",
      "Operations that move data at the same time; 0 is the maintenance mode, in which nothing starts."},
     DAEMON(slots), V_COUNT, 0, 1024, NULL},
    {{"slots-on-node", "daemon", "list", "",
      "PATTERN=NUMBER of nodes with another number of slots; the smallest that matches the node's name counts."},
     DAEMON(slots_on_node), V_SLOTS, ANY, NULL},
    {{"restore-reserved", "daemon", "count", "1", "Further slots that only restores may use."},
     DAEMON(restore_reserved), V_COUNT, 0, 1024, NULL},
    {{"concurrent-backups", "daemon", "count", "2", "Backups that run at the same time; others are queued."},
     DAEMON(concurrent_backups), V_COUNT, 1, 1024, NULL},
    {{"prepare-ahead", "daemon", "count", "(slots + 1)", "Volumes that may be exposed and wait for a slot."},
     DAEMON(prepare_ahead), V_COUNT, 1, 4096, NULL},
    {{"per-device", "daemon", "count", "1", "Operations at the same time on one device or pool."},
     DAEMON(per_device), V_COUNT, 1, 1024, NULL},
    {{"sweep", "daemon", "duration", "60s", "Period in which every record is looked at again even without an event."},
     DAEMON(sweep_s), V_DURATION, 1, DAY, NULL},
    {{"orphan-grace", "daemon", "duration", "1h", "Age at which an object of ours that no record knows is removed."},
     DAEMON(orphan_grace_s), V_DURATION, 1, 365 * DAY, NULL},
    {{"keep-records", "daemon", "duration", "90d", "How long records of finished operations are kept."},
     DAEMON(keep_records_s), V_DURATION, 60, 36500 * DAY, NULL},
    {{"socket-group", "daemon", "text", "snapferry", "Group that may use the control socket beside root."},
     DAEMON(socket_group), V_NAME, ANY, NULL},
    {{"state-dir", "daemon", "path", "/var/lib/snapferry", "Directory of records and results."},
     DAEMON(state_dir), V_PATH, ANY, NULL},
    {{"cache-dir", "daemon", "path", "/var/cache/snapferry", "Directory of repository caches."},
     DAEMON(cache_dir), V_PATH, ANY, NULL},
    {{"cache-max", "daemon", "bytes", "512MiB", "Hard limit of the cache directory."},
     DAEMON(cache_max), V_BYTES, MIB, 1024 * TIB, NULL},
    {{"on-restart", "daemon", "resume|fail", "resume",
      "What becomes of unfinished operations whose mover is gone when the daemon starts."},
     DAEMON(on_restart), V_ENUM, ANY,
     "resume fail"},
    {{"log-level", "daemon", "word", "info", "Least level of what is logged: debug, info, warning, error."},
     DAEMON(log_level), V_WORD, ANY,
     "debug info warning error"},
    {{"user", "mover", "text", "snapferry-mover", "User of mover processes; root or empty: as the daemon."},
     P(limits.user), V_NAME, ANY, NULL},
    {{"memory", LIMITS, "bytes", "256MiB", "Memory budget of one mover, at least 96MiB."},
     P(limits.memory), V_BYTES, 96 * MIB, TIB, NULL},
    {{"memory-max", LIMITS, "bytes", "0", "MemoryMax of its cgroup; 0: computed as memory + index-memory + 64MiB."},
     P(limits.memory_max), V_BYTES, 0, TIB, NULL},
    {{"index-memory", LIMITS, "bytes", "64MiB", "Limit of mapped index pages, on top of memory."},
     P(limits.index_memory), V_BYTES, MIB, TIB, NULL},
    {{"workers", LIMITS, "count", "0", "Threads of a mover; 0: one per CPU, fewer if the memory is small."},
     P(limits.workers), V_COUNT, 0, 1024, NULL},
    {{"cpu-quota", LIMITS, "percent", "0", "CPU time in percent of one CPU; 0: no limit."},
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
    {{"cpus", LIMITS, "list of CPUs", "", "CPUs on which it may run, such as 0-3,8; empty: any."},
     P(limits.cpus), V_CPUS, ANY, NULL},
    {{"slice", LIMITS, "text", "", "systemd slice of its unit; empty: the default, snapferry.slice."},
     P(limits.slice), V_NAME, ANY, NULL},
    {{"read-limit", LIMITS, "bytes per second", "0", "Limit of reading, from the volume or, to restore, from the repository; 0: none."},
     P(limits.read_limit), V_RATE, RATE_MIN, 0, NULL},
    {{"write-limit", LIMITS, "bytes per second", "0", "Limit of writing, to the repository or, to restore, to the volume; 0: none."},
     P(limits.write_limit), V_RATE, RATE_MIN, 0, NULL},
    {{"unit-property", LIMITS, "list", "",
      "Further properties of its systemd unit, Name=value; quotes hold a value with spaces together."},
     P(limits.unit_properties), V_PROPERTIES, ANY, NULL},
    {{"repository", POLICY, "name", "(the only one)", "Section [repository \"NAME\"] that backups go to."},
     P(repository), V_NAME, ANY, NULL},
    {{"exclude", "storage-class volume", "yes|no", "no", "The volume is listed as skipped and not backed up."},
     P(exclude), V_YESNO, ANY, NULL},
    {{"group", "volume", "name", "", "Volumes of one group are snapshotted together."}, P(group), V_NAME, ANY, NULL},
    {{"group-consistency", POLICY, "best-effort|strict", "best-effort",
      "strict: a group whose snapshots cannot be taken within group-max-skew is refused."},
     P(group_consistency), V_ENUM, ANY,
     "best-effort strict"},
    {{"group-max-skew", POLICY, "duration", "1s",
      "Longest time between the first and the last snapshot of a strict group; ms is a unit here."},
     P(group_max_skew_ms), V_MS, 1, 3600000, NULL},
    {{"move-data", POLICY, "yes|no", "yes", "no: only native snapshots are taken, nothing goes to a repository."},
     P(move_data), V_YESNO, ANY, NULL},
    {{"snapshots-to-retain", POLICY, "count", "0",
      "Native snapshots that stay per volume after their data has moved; 0: none."},
     P(snapshots_to_retain), V_COUNT, 0, 100000, NULL},
    {{"retain-max-age", POLICY, "duration", "0",
      "Age at which a retained native snapshot goes even if the number allows it; 0: none."},
     P(retain_max_age_s), V_DURATION0, 0, 36500 * DAY, NULL},
    {{"keep-on-failure", POLICY, "yes|no", "no",
      "Keep the native snapshot when its data could not be moved, for a retry by hand."},
     P(keep_on_failure), V_YESNO, ANY, NULL},
    {{"prune", POLICY, "before|after", "before",
      "Whether old native snapshots go before or after the new one is taken."},
     P(prune_before), V_ENUM, ANY,
     "after before"},
    {{"max-snapshots-per-volume", POLICY, "count", "64",
      "Most native snapshots of a volume, whatever they are kept for."},
     P(max_snapshots_per_volume), V_COUNT, 1, 100000, NULL},
    {{"pool-high-water", POLICY, "percent", "85",
      "Fill level of the pool above which retained native snapshots go and new ones without data movement are "
      "refused."},
     P(pool_high_water), V_COUNT, 1, 100, NULL},
    {{"snapshot-only-keep", POLICY, "count", "3", "Native snapshots that stay per volume with move-data = no."},
     P(snapshot_only_keep), V_COUNT, 1, 100000, NULL},
    {{"snapshot-only-max-age", POLICY, "duration", "0", "Age at which these go, but for the newest; 0: none."},
     P(snapshot_only_max_age_s), V_DURATION0, 0, 36500 * DAY, NULL},
    {{"backup-storage-class", POLICY, "name", "",
      "Storage class in which the intermediate volume is made; empty: the volume's own."},
     P(backup_storage_class), V_NAME, ANY, NULL},
    {{"backup-read-only", POLICY, "yes|no", "yes",
      "no: the intermediate is writable, so that a hook can repair it before it is read."},
     P(backup_read_only), V_YESNO, ANY, NULL},
    {{"backup-option.*", POLICY, "text", "", "Option KEY of backup-option.KEY, handed to the driver or plugin."},
     P(options), V_OPTIONS, ANY, NULL},
    {{"expose-keep-on-failure", POLICY, "yes|no", "no",
      "Leave the intermediate in place when exposing failed, for diagnosis."},
     P(expose_keep_on_failure), V_YESNO, ANY, NULL},
    {{"copy-limit", POLICY, "bytes per second", "0", "Limit of a full copy to an intermediate volume; 0: none."},
     P(copy_limit), V_RATE, ANY, NULL},
    {{"accept-inconsistent", POLICY, "yes|no", "no",
      "Back a raw device up without a snapshot; it is recorded as not consistent."},
     P(accept_inconsistent), V_YESNO, ANY, NULL},
    {{"snapshot-timeout", POLICY, "duration", "60s", "Time for taking one native snapshot."},
     P(snapshot_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"prepare-timeout", POLICY, "duration", "30min", "Time from the snapshot to the first byte."},
     P(prepare_timeout_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"go-timeout", POLICY, "duration", "60s", "Time a started mover waits for the word to begin."},
     P(go_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"stall-timeout", POLICY, "duration", "15min", "Time without progress after which a mover is ended."},
     P(stall_timeout_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"max-duration", POLICY, "duration", "0", "Longest time of an operation; 0: none."},
     P(max_duration_s), V_DURATION0, 0, 365 * DAY, NULL},
    {{"cancel-grace", POLICY, "duration", "30s", "Time from a cancel to the kill."},
     P(cancel_grace_s), V_DURATION, 1, DAY, NULL},
    {{"repo-outage-max", POLICY, "duration", "6h", "How long operations wait for a repository that is gone."},
     P(repo_outage_max_s), V_DURATION, 1, 365 * DAY, NULL},
    {{"retries", POLICY, "count", "5", "Further attempts after a passing error; 0: none."},
     P(retries), V_COUNT, 0, 1000, NULL},
    {{"retry-first", POLICY, "duration", "1min", "Wait before the first retry; it doubles each time."},
     P(retry_first_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"retry-max", POLICY, "duration", "1h", "Longest wait between retries."},
     P(retry_max_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"mover", POLICY, "builtin|plugin:NAME", "builtin", "Who moves the data."}, P(mover), V_MOVER, ANY, NULL},
    {{"splitter", POLICY, "name", "(the repository's)", "How the volume is cut into chunks."},
     P(splitter), V_WORD, ANY, SPLITTERS},
    {{"compression", POLICY, "name", "(the repository's)", "Compressor of new data."},
     P(compression), V_WORD, ANY, COMPRESSORS},
    {{"bad-reads", POLICY, "fail|map", "fail", "map: unreadable ranges are recorded and the backup goes on."},
     P(map_bad_reads), V_ENUM, ANY,
     "fail map"},
    {{"type", POLICY, "incremental|full", "incremental", "full: everything is read, nothing is taken from the parent."},
     P(full), V_ENUM, ANY,
     "incremental full"},
    {{"hook-pre-snapshot", POLICY, "path", "", "Program run before the native snapshot is taken."},
     P(hook_pre_snapshot), V_PATH, ANY, NULL},
    {{"hook-post-snapshot", POLICY, "path", "",
      "Program run after the snapshot, always, even after a failure or crash."},
     P(hook_post_snapshot), V_PATH, ANY, NULL},
    {{"hook-post-backup", POLICY, "path", "", "Program run after the data has moved."},
     P(hook_post_backup), V_PATH, ANY, NULL},
    {{"hook-overlay", POLICY, "path", "", "Program that makes and removes a writable overlay for the driver device."},
     P(hook_overlay), V_PATH, ANY, NULL},
    {{"hook-prepare", POLICY, "path", "", "Program run on a writable intermediate before it is read."},
     P(hook_prepare), V_PATH, ANY, NULL},
    {{"hook-post-restore", POLICY, "path", "", "Program run after a restore."},
     P(hook_post_restore), V_PATH, ANY, NULL},
    {{"hook-timeout", POLICY, "duration", "30s", "Time for each hook."}, P(hook_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"hook-on-error", POLICY, "fail|continue", "fail", "What a failed hook means for the backup."},
     P(hook_on_error), V_ENUM, ANY,
     "fail continue"},
    {{"keep-latest", POLICY, "count", "",
      "Newest snapshots of which the repository keeps a snapshot of the volume (Kopia retention); not set: inherited "
      "from the repository's policies."},
     P(keep_latest), V_KEEP, 0, 1000000, NULL},
    {{"keep-hourly", POLICY, "count", "",
      "Hours of which the repository keeps a snapshot of the volume (Kopia retention); not set: inherited from the "
      "repository's policies."},
     P(keep_hourly), V_KEEP, 0, 1000000, NULL},
    {{"keep-daily", POLICY, "count", "",
      "Days of which the repository keeps a snapshot of the volume (Kopia retention); not set: inherited from the "
      "repository's policies."},
     P(keep_daily), V_KEEP, 0, 1000000, NULL},
    {{"keep-weekly", POLICY, "count", "",
      "Weeks of which the repository keeps a snapshot of the volume (Kopia retention); not set: inherited from the "
      "repository's policies."},
     P(keep_weekly), V_KEEP, 0, 1000000, NULL},
    {{"keep-monthly", POLICY, "count", "",
      "Months of which the repository keeps a snapshot of the volume (Kopia retention); not set: inherited from the "
      "repository's policies."},
     P(keep_monthly), V_KEEP, 0, 1000000, NULL},
    {{"keep-annual", POLICY, "count", "",
      "Years of which the repository keeps a snapshot of the volume (Kopia retention); not set: inherited from the "
      "repository's policies."},
     P(keep_annual), V_KEEP, 0, 1000000, NULL},
    {{"max-per-class", "daemon driver storage-class", "count", "0",
      "Operations at the same time on volumes of one storage class; 0: no limit of its own."},
     P(max_per_class), V_COUNT, 0, 1024, NULL},
    {{"max-per-device", "driver storage-class", "count", "(per-device of [daemon])",
      "Operations at the same time on one device or pool of the class."},
     P(max_per_device), V_COUNT, 1, 1024, NULL},
    {{"priority", POLICY, "count", "50", "Order in the queue, 0 to 100; higher goes first."},
     P(priority), V_COUNT, 0, 100, NULL},
    {{"listen", "metrics", "address", "127.0.0.1:9747",
      "Where metrics are served: ADDRESS:PORT, [ADDRESS6]:PORT or unix:PATH; empty: nowhere."},
     METRICS(listen), V_LISTEN, ANY, NULL},
    {{"unix-group", "metrics", "text", "", "Group that may connect to unix:PATH beside root; empty: root only."},
     METRICS(unix_group), V_NAME, ANY, NULL},
    {{"textfile", "metrics", "path", "",
      "File of node_exporter's textfile collector that is written anew each textfile-period; empty: none."},
     METRICS(textfile), V_PATH, ANY, NULL},
    {{"textfile-period", "metrics", "duration", "15s", "Time between two writes of textfile."},
     METRICS(textfile_period_s), V_DURATION, 1, DAY, NULL},
    {{"compat-metrics", "metrics", "yes|no", "no",
      "Give families that Velero has under their names there, too (velero_*, podVolume_*)."},
     METRICS(compat), V_YESNO, ANY, NULL},
    {{"series-max", "metrics", "count", "10000",
      "Most samples of one family; those beyond are left out and counted."},
     METRICS(series_max), V_COUNT, 100, 10000000, NULL},
    {{"type", "repository", "word", "filesystem", "filesystem, or s3, for which this build has no store."},
     REPOSITORY(type), V_WORD, ANY,
     "filesystem s3"},
    {{"path", "repository", "path", "", "Absolute path of the directory; required for filesystem."},
     REPOSITORY(path), V_PATH, ANY, NULL},
    {{"password-file", "repository", "path or cred:NAME", "", "File with the password, or a systemd credential."},
     REPOSITORY(password_file), V_SECRET, ANY, NULL},
    {{"splitter", "repository", "name", "", "Splitter of new repositories, and of backups where a volume's policy says nothing."},
     REPOSITORY(splitter), V_WORD, ANY, SPLITTERS},
    {{"compression", "repository", "name", "", "Compressor of new data, where a volume's policy says nothing; empty or none: none."},
     REPOSITORY(compression), V_WORD, ANY, COMPRESSORS},
    {{"endpoint", "repository", "text", "", "s3: host of the service, with an optional https:// and port."},
     REPOSITORY(endpoint), V_NAME, ANY, NULL},
    {{"bucket", "repository", "name", "", "s3: bucket."}, REPOSITORY(bucket), V_NAME, ANY, NULL},
    {{"prefix", "repository", "text", "", "s3: prefix of all objects."}, REPOSITORY(prefix), V_NAME, ANY, NULL},
    {{"region", "repository", "name", "", "s3: region."}, REPOSITORY(region), V_NAME, ANY, NULL},
    {{"credentials", "repository", "path or cred:NAME", "",
      "s3: file or systemd credential with access key and secret key."},
     REPOSITORY(credentials), V_SECRET, ANY, NULL},
    {{"driver", "storage-class", "name", "",
      "Driver: reflink, device, plugin:NAME; lvm-thin, lvm, zfs and rbd are known to the language only; required."},
     CLASS(driver), V_DRIVER, ANY, NULL},
    {{"match", "storage-class", "list of patterns", "",
      "Patterns of the volumes of this class; empty: for intermediates only."},
     CLASS(match), V_PATTERNS, ANY, NULL},
    {{"target", "storage-class", "text", "", "Directory or pool in which intermediates and restored volumes are made."},
     CLASS(target), V_TEXT, ANY, NULL},
    {{"only-on-node", "storage-class", "list", "",
      "Patterns of node names on which the class is used; !PATTERN excludes."},
     CLASS(only_on_node), V_PATTERNS, ANY, NULL},
    {{"class", "volume", "name", "", "Storage class, whatever the patterns say."}, VOLUME(klass), V_NAME, ANY, NULL},
    {{"name", "volume", "text", "(the section's name)",
      "Name of the volume where it is too long for the name of a section."},
     VOLUME(name), V_TEXT, ANY, NULL},
    {{"volumes", "job", "list", "", "Names and patterns of volumes, class:NAME for all of a class; required."},
     JOB(volumes), V_PATTERNS, ANY, NULL},
    {{"on-calendar", "job", "calendar", "", "When it runs, systemd.time(7); empty: by hand only."},
     JOB(on_calendar), V_TEXT, ANY, NULL},
    {{"persistent", "job", "yes|no", "yes", "Catch a missed run up."}, JOB(persistent), V_YESNO, ANY, NULL},
    {{"jitter", "job", "duration", "0", "Spread of the start, a fixed offset per node and job; 0: none."},
     JOB(jitter_s), V_DURATION0, 0, DAY, NULL},
    {{"paused", "job", "yes|no", "no", "The schedule is kept but does not run."}, JOB(paused), V_YESNO, ANY, NULL},
    {{"only-on-node", "job", "list", "", "Patterns of node names on which the job runs; !PATTERN excludes."},
     JOB(only_on_node), V_PATTERNS, ANY, NULL},
    {{"kind", "plugin", "driver|mover", "", "Kind of plugin; required."}, PLUGIN(kind), V_WORD, ANY, "driver mover"},
    {{"program", "plugin", "path", "", "Absolute path of the program; required."}, PLUGIN(program), V_PATH, ANY, NULL},
    {{"user", "plugin", "text", "nobody", "User it runs as; ignored with privileged = yes."},
     PLUGIN(user), V_NAME, ANY, NULL},
    {{"privileged", "plugin", "yes|no", "no", "Run it as the daemon's user, outside the sandbox."},
     PLUGIN(privileged), V_YESNO, ANY, NULL},
    {{"match-class", "plugin", "list of patterns", "", "Storage classes whose volumes a mover plugin takes by itself."},
     PLUGIN(match_class), V_PATTERNS, ANY, NULL},
    {{"match-path", "plugin", "list of patterns", "", "Volumes that a mover plugin takes by itself."},
     PLUGIN(match_path), V_PATTERNS, ANY, NULL},
    {{"min-size", "plugin", "bytes", "0", "Smallest volume that it takes by itself."},
     PLUGIN(min_size), V_BYTES, 0, INT64_MAX, NULL},
    {{"max-size", "plugin", "bytes", "(no limit)", "Largest volume that it takes by itself."},
     PLUGIN(max_size), V_BYTES, 1, INT64_MAX, NULL},
    {{"priority", "plugin", "count", "50",
      "Which plugin wins where several match; the same priority twice is an error."},
     PLUGIN(priority), V_COUNT, 0, 100, NULL},
    {{"start-timeout", "plugin", "duration", "30s", "Time for the verb start."},
     PLUGIN(start_timeout_s), V_DURATION, 1, DAY, NULL},
    {{"poll", "plugin", "duration", "10s", "Time between two questions for progress."},
     PLUGIN(poll_s), V_DURATION, 1, DAY, NULL},
    {{"max-timeout", "plugin", "duration", "10min", "Longest timeout that the plugin may ask for in place of ours."},
     PLUGIN(max_timeout_s), V_DURATION, 1, 30 * DAY, NULL},
    {{"progress-retry", "plugin", "count", "5",
      "Failed questions for progress in a row after which the operation fails."},
     PLUGIN(progress_retry), V_COUNT, 1, 1000, NULL},
    {{"match", "policy", "list of patterns", "", "Volumes it is about; empty: any."},
     RULE(match), V_PATTERNS, ANY, NULL},
    {{"class", "policy", "list", "", "Storage classes it is about; empty: any."}, RULE(classes), V_LIST, ANY, NULL},
    {{"driver", "policy", "list", "", "Drivers it is about; empty: any."}, RULE(drivers), V_LIST, ANY, NULL},
    {{"min-size", "policy", "bytes", "0", "Smallest volume it is about."}, RULE(min_size), V_BYTES, 0, INT64_MAX, NULL},
    {{"max-size", "policy", "bytes", "(no limit)", "Largest volume it is about."},
     RULE(max_size), V_BYTES, 1, INT64_MAX, NULL},
    {{"action", "policy", "skip|snapshot|backup", "",
      "What happens: not backed up, native snapshot only, data moved; required."},
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

/* "backup-option.*" takes any name that goes on behind the dot. */
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
