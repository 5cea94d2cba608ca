/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * families.c - every metric there is: its name, type, labels and the sentence of its HELP line
 *
 * Names and units follow https://prometheus.io/docs/practices/naming/. The section of [job] that a backup was made for
 * is the label "schedule": Prometheus gives each sample a label "job" of its own. snapferry-metrics(7) explains them.
 */
#include "daemon/metrics/metrics.h"

#include <string.h>

#define COUNTER(name, labels, help) {name, METRIC_COUNTER, labels, help, NULL},
#define GAUGE(name, labels, help) {name, METRIC_GAUGE, labels, help, NULL},
#define HISTOGRAM(name, labels, help) {name, METRIC_HISTOGRAM, labels, help, NULL},
/* With a name for dashboards that were made for Velero: only where the meaning is the same. */
#define COUNTER_AS(name, alias, labels, help) {name, METRIC_COUNTER, labels, help, alias},
#define GAUGE_AS(name, alias, labels, help) {name, METRIC_GAUGE, labels, help, alias},
#define HISTOGRAM_AS(name, alias, labels, help) {name, METRIC_HISTOGRAM, labels, help, alias},

/* clang-format off */
const struct metric_family metric_families[] = {
    /* ---- the daemon ---- */
    GAUGE("build_info", "version,commit", "Always 1; the labels tell which build of the daemon this is.")
    GAUGE("start_time_seconds", "", "Unix time in seconds at which the daemon was started.")
    COUNTER("process_cpu_seconds_total", "",
        "Processor seconds, user and system, that the daemon's own process has used since its start.")
    GAUGE("process_resident_memory_bytes", "", "Resident memory of the daemon's own process, in bytes.")
    GAUGE("config_last_reload_successful", "",
        "1 if the configuration on disk was accepted when it was last read, 0 if it was refused and the one before is "
        "in force.")
    GAUGE("config_last_reload_timestamp_seconds", "",
        "Unix time in seconds at which the configuration that is in force was read.")
    GAUGE("config_hash", "",
        "First 48 bits of the hash of the configuration in force, as a number; it changes when the configuration does.")
    GAUGE("config_warnings", "", "Warnings that check-config has for the configuration in force.")
    COUNTER("record_write_errors_total", "", "Writes of the records that failed.")
    GAUGE("records_degraded", "", "1 while the records cannot be written and nothing new is started, else 0.")
    GAUGE("state_dir_free_bytes", "",
        "Bytes free for the daemon on the file system of its state directory, as last looked at by the sweep.")
    GAUGE("state_dir_size_bytes", "",
        "Bytes in all on the file system of the state directory, as last looked at by the sweep.")
    GAUGE("steps_running", "", "Short pieces of work (storage commands, look-ups) that run in children of the daemon.")
    GAUGE("steps_stuck", "",
        "Pieces of work that hang in the kernel and cannot be ended; more than 0 means dead storage.")
    GAUGE("movers", "", "Mover processes that run.")
    GAUGE("metrics_timestamp_seconds", "",
        "Unix time in seconds at which this answer was made: older than a second only while the daemon's event loop "
        "does not turn.")
    GAUGE("metrics_dropped_samples", "",
        "Samples left out of this answer because their family or labels are unknown, they came twice, or a family had "
        "too many.")

    /* ---- state ---- */
    GAUGE("operations", "direction,state",
        "Operations that are not finished, by state; the finished ones are counted by operations_total.")
    GAUGE("operation_state_age_seconds", "state",
        "Seconds that the operation which has been longest in this state has been in it; 0 if there is none.")
    GAUGE("queue_length", "direction", "Operations that wait for their turn.")
    HISTOGRAM("queue_wait_seconds", "direction",
        "Seconds from request to the first work for it; observed when that begins.")
    GAUGE("slots", "",
        "Movers of backups and restores that may run at once (slots of the configuration); 0 is maintenance mode.")
    GAUGE("slots_used", "", "Slots that are taken.")
    GAUGE("slots_restore_reserved", "", "Slots that only restores may take.")
    GAUGE("backups", "direction,phase",
        "Runs (a backup or restore with all its volumes) that are not finished, by phase.")

    /* ---- outcome ---- */
    COUNTER("operations_total", "direction,class,result,reason",
        "Operations that ended, counted with the record of their end; reason is the class of the error.")
    COUNTER("operation_retries_total", "direction,reason",
        "Attempts that failed and are followed by another one; reason is the class of the error.")
    COUNTER("backups_total", "direction,schedule,result",
        "Runs that ended, by the job they were made for; a start of the job that failed is one that failed.")

    /* ---- time ---- */
    HISTOGRAM("operation_duration_seconds", "direction,stage",
        "Seconds that one operation spent in each stage and in all (stage total); observed when it ends.")
    COUNTER("stage_busy_seconds_total", "direction,stage",
        "Seconds of work in the stages of movers, summed over their threads, counted when a mover ends.")
    COUNTER("stage_stall_seconds_total", "direction,stage",
        "Seconds in which stages of movers could not work because of their neighbours, counted when a mover ends.")
    COUNTER("bottleneck_total", "direction,stage", "Movers whose time this stage bound, counted when a mover ends.")

    /* ---- running operations ---- */
    GAUGE("operation_expected_bytes", "direction,volume",
        "Bytes that the running operation has to go through, zeros and holes among them; gone when it ends.")
    GAUGE("operation_done_bytes", "direction,volume",
        "Bytes that the running operation has gone through; gone when it ends.")
    GAUGE("operation_last_progress_timestamp_seconds", "direction,volume",
        "Unix time in seconds of the running operation's last progress, before the first of its start; gone when it "
        "ends.")

    /* ---- volumes ---- */
    GAUGE("volumes", "state",
        "Volumes that are known, by how they are judged (state: protected, unprotected, gone, excluded); the counts "
        "of `snapferry status`.")
    GAUGE("volume_info", "volume,id,class,driver",
        "Always 1; ties a volume's name to its id, storage class and driver.")
    GAUGE("volume_protected", "volume",
        "1 if the last good backup that still exists is not older than 2.5 intervals of its job, else 0; the answer "
        "of `snapferry status`. None for volumes that are gone or excluded.")
    GAUGE("volume_last_success_timestamp_seconds", "volume",
        "Unix time in seconds at which the last good backup ended; 0 if there was none.")
    GAUGE("volume_last_attempt_timestamp_seconds", "volume",
        "Unix time in seconds at which the last backup ended, however it did; 0 if there was none.")
    GAUGE("volume_last_snapshot_timestamp_seconds", "volume",
        "Unix time in seconds of the point in time that the last good backup holds; 0 if there was none.")
    GAUGE("volume_last_status", "volume",
        "1 if the last backup that was neither canceled nor skipped was good, 0 if not; no sample before the first "
        "one.")
    GAUGE("volume_expected_interval_seconds", "volume",
        "Seconds between runs of the most frequent job of this volume; no sample if no job has a schedule for it.")
    GAUGE("volume_expected_since_timestamp_seconds", "volume",
        "Unix time in seconds since when a job with a schedule names this volume; no sample if none does.")
    GAUGE("volume_size_bytes", "volume", "Size of the volume in bytes, as last seen by a backup.")
    GAUGE("volume_allocated_bytes", "volume",
        "Bytes that the storage has allocated for the volume, as last seen by a backup; no sample if its driver does "
        "not tell.")
    GAUGE("volume_last_changed_bytes", "volume",
        "Bytes of the last good backup that were not yet in the repository, before compression.")

    /* ---- data path ---- */
    COUNTER("read_bytes_total", "class", "Bytes that backups read from sources, counted when a mover ends.")
    COUNTER("zero_bytes_total", "class", "Bytes among those read that were zeros, counted when a mover ends.")
    COUNTER("skipped_bytes_total", "class,why",
        "Bytes that backups did not have to read (why: unallocated, unchanged), counted when a mover ends.")
    COUNTER("chunks_total", "class", "Chunks that backups cut, counted when a mover ends.")
    COUNTER("dedup_hit_bytes_total", "class",
        "Bytes of chunks that were in the repository already, counted when a mover ends.")
    COUNTER("new_bytes_total", "class",
        "Bytes of chunks that were not in the repository yet, before compression, counted when a mover ends.")
    COUNTER("compressed_bytes_total", "class",
        "Bytes that the new chunks took after compression and encryption, counted when a mover ends.")
    COUNTER("written_bytes_total", "class", "Bytes that restores wrote to their targets, counted when a mover ends.")
    COUNTER("unreadable_bytes_total", "class",
        "Bytes of sources that could not be read and were stored as zeros (bad-reads = map), counted when a mover "
        "ends.")
    COUNTER("upload_bytes_total", "repository",
        "Bytes that movers of all kinds wrote to the repository's storage, counted when one ends.")
    COUNTER("download_bytes_total", "repository",
        "Bytes that movers of all kinds read from the repository's storage, counted when one ends.")
    COUNTER("io_errors_total", "op",
        "Requests to sources and targets that the storage answered with an error (op: read, write), counted when a "
        "mover ends.")
    GAUGE("io_uring_inflight", "class",
        "Most requests that the reader of the last backup in this class had in flight at once; 0: it did without "
        "io_uring.")

    /* ---- changed-block tracking ---- */
    COUNTER("cbt_runs_total", "source,result",
        "Backups that asked the storage for changed blocks; this version never does.")
    COUNTER("full_fallback_total", "reason",
        "Backups that read all of a volume although changed blocks were asked for; this version never asks.")
    COUNTER("cbt_verify_mismatch_total", "",
        "Blocks that differed although the storage had called them unchanged; this version never asks.")

    /* ---- native snapshots ---- */
    GAUGE("snapshots", "class,reason",
        "Native snapshots on the storage, each under the strongest reason it is kept for.")
    GAUGE("snapshots_missing", "class", "Native snapshots on record that are not on the storage.")
    GAUGE("snapshot_limit", "class",
        "Native snapshots of one volume that are retained when their data has moved (snapshots-to-retain).")
    GAUGE("snapshot_max", "class",
        "Native snapshots that one volume may have for any reason (max-snapshots-per-volume); 0: no limit.")
    GAUGE("snapshot_used_bytes", "class",
        "Bytes that the native snapshots hold alone, as last looked at by the sweep; no sample if the driver does not "
        "tell.")
    GAUGE("snapshot_oldest_timestamp_seconds", "class",
        "Unix time in seconds at which the oldest native snapshot was taken; no sample if there is none.")
    HISTOGRAM("snapshot_create_seconds", "class",
        "Seconds from the call of the driver to the finished native snapshot; observed for each.")
    COUNTER("snapshot_delete_failures_total", "", "Native snapshots that could not be removed; each attempt counts.")
    COUNTER("restore_native_missing_total", "",
        "Restores that had to read the repository because the native snapshot they preferred was gone.")
    GAUGE("orphans", "kind",
        "Objects with our tag on the storage that no record knows, as last looked at by the sweep; must be 0.")
    GAUGE("pool_used_ratio", "class,pool",
        "How full the pool of native snapshots is, 0 to 1, as last looked at by the sweep.")
    GAUGE("pool_metadata_used_ratio", "class,pool",
        "How full the metadata of the pool is, 0 to 1; no sample if its driver does not tell.")

    /* ---- repositories ---- */
    GAUGE("repository_up", "repository", "1 if the repository's storage answered when it was last looked at, 0 if not.")
    GAUGE("repository_free_bytes", "repository", "Bytes free on the file system of the repository, as last looked at.")
    GAUGE("repository_size_bytes", "repository",
        "Bytes in all on the file system of the repository, as last looked at.")
    COUNTER("repository_requests_total", "repository,op,code",
        "Requests of movers to the repository's storage; code is ok or the class of the error; counted when a mover "
        "ends.")
    HISTOGRAM("repository_request_seconds", "repository,op",
        "Seconds that one request to the repository's storage took; observed when a mover ends.")
    COUNTER("repository_retries_total", "repository",
        "Requests to the repository's storage that were made again after an error, counted when a mover ends.")
    GAUGE("repository_stored_bytes", "repository",
        "Bytes of all contents in the repository's index, as the last verification counted them, and what backups of "
        "this node have added since; no sample before.")
    COUNTER("repository_backed_up_bytes_total", "repository",
        "Bytes of the volumes of which a mover made a snapshot, new or not, counted when it ends.")
    COUNTER("repository_added_bytes_total", "repository",
        "Bytes that these snapshots added to the repository, counted when a mover ends.")
    GAUGE("repository_unreferenced_bytes", "repository",
        "Bytes of contents that no snapshot refers to; no sample until maintenance counts them.")
    GAUGE("repository_contents", "repository", "Contents in the repository's index, as the last mover saw them.")
    GAUGE("repository_index_blobs", "repository",
        "Index blobs in the repository, as the last mover saw them; many of them slow down opening.")
    GAUGE("repository_clock_skew_seconds", "repository",
        "Seconds that the clock of the repository's storage was ahead of ours when the last mover compared them.")
    GAUGE("repository_lease_age_seconds", "repository",
        "Seconds since a lease on the repository was last renewed; this version takes none.")

    /* ---- maintenance and verification ---- */
    GAUGE("maintenance_last_success_timestamp_seconds", "repository,kind",
        "Unix time in seconds at which maintenance last ended well; this version does none.")
    HISTOGRAM("maintenance_duration_seconds", "repository,kind",
        "Seconds that one run of maintenance took; this version does none.")
    COUNTER("maintenance_reclaimed_bytes_total", "repository",
        "Bytes that maintenance gave back; this version does none.")
    COUNTER("maintenance_total", "repository,result", "Runs of maintenance that ended; this version does none.")
    GAUGE("verify_last_success_timestamp_seconds", "repository",
        "Unix time in seconds at which a verification last ended without damage found; 0 if there was none.")
    COUNTER("verify_errors_total", "repository",
        "Damaged or missing pieces that verifications found, counted when one ends.")
    GAUGE("verify_last_end_timestamp_seconds", "repository",
        "Unix time in seconds at which a verification last ended, whatever it found; no sample before.")
    GAUGE("verify_last_damages", "repository",
        "Damaged or missing pieces that the last verification found; no sample before.")
    GAUGE("verify_last_read_ratio", "repository",
        "Share of the contents that the last verification read, 0 to 1; no sample before.")

    /* ---- resources of movers ---- */
    GAUGE("mover_memory_bytes", "direction,volume",
        "Memory of the running mover in bytes: of its cgroup, else of its process; gone when it ends.")
    GAUGE("mover_memory_limit_bytes", "direction,volume",
        "Memory that the running mover may take, in bytes; no sample if nothing enforces a limit.")
    COUNTER("mover_cpu_seconds_total", "direction", "Processor seconds that movers used, counted when one ends.")
    COUNTER("mover_oom_total", "", "Movers that were killed because they reached their memory limit.")
    COUNTER("mover_exits_total", "direction,cause", "Movers that ended, attempts included, by how they did.")

    /* ---- jobs, and what dashboards made for Velero ask for ---- */
    GAUGE_AS("schedule_expected_interval_seconds", "velero_schedule_expected_interval_seconds", "schedule",
        "Longest time between two runs of the job in seconds, nights and weekends included; no sample while it is "
        "paused or has no schedule.")
    GAUGE("schedule_since_timestamp_seconds", "schedule",
        "Unix time in seconds since when the job has its present schedule; no sample while it is paused or has none.")
    GAUGE("schedule_next_timestamp_seconds", "schedule",
        "Unix time in seconds of the job's next run; no sample while it is paused or has no schedule.")
    GAUGE("schedule_volumes_missing", "schedule",
        "Volumes that the job names and its last start did not find or could not take, and classes that could not be "
        "listed then.")
    GAUGE("schedule_paused", "schedule", "1 if the job is paused, else 0.")
    COUNTER_AS("backup_attempts_total", "velero_backup_attempt_total", "schedule",
        "Backups that were begun, and starts of the job that failed before there was one.")
    COUNTER_AS("backup_successes_total", "velero_backup_success_total", "schedule",
        "Backups that ended with all their volumes good.")
    COUNTER_AS("backup_partial_failures_total", "velero_backup_partial_failure_total", "schedule",
        "Backups that ended with some of their volumes good.")
    COUNTER_AS("backup_failures_total", "velero_backup_failure_total", "schedule",
        "Backups that ended without a good volume, and starts of the job that failed.")
    HISTOGRAM_AS("backup_duration_seconds", "velero_backup_duration_seconds", "schedule",
        "Seconds from request to end of a backup with all its volumes; observed when it ends.")
    GAUGE_AS("backup_last_success_timestamp_seconds", "velero_backup_last_successful_timestamp", "schedule",
        "Unix time in seconds at which the job's last good backup ended; 0 if there was none.")
    GAUGE("backup_last_end_timestamp_seconds", "schedule,result",
        "Unix time in seconds at which a backup of the job last ended with that result; no sample before.")
    GAUGE_AS("backup_last_status", "velero_backup_last_status", "schedule",
        "1 if the job's last backup that was not canceled was good, else 0; no sample before the first one.")
    COUNTER_AS("restore_attempts_total", "velero_restore_attempt_total", "schedule",
        "Restores that were begun, by the job of the backup they read.")
    COUNTER_AS("restore_successes_total", "velero_restore_success_total", "schedule", "Restores that ended well.")
    COUNTER_AS("restore_failures_total", "velero_restore_failed_total", "schedule", "Restores that failed.")
    COUNTER_AS("snapshot_attempts_total", "velero_volume_snapshot_attempt_total", "schedule",
        "Native snapshots that a driver was asked to take.")
    COUNTER_AS("snapshot_successes_total", "velero_volume_snapshot_success_total", "schedule",
        "Native snapshots that were taken.")
    COUNTER_AS("snapshot_failures_total", "velero_volume_snapshot_failure_total", "schedule",
        "Native snapshots that could not be taken.")
    COUNTER_AS("uploads_completed_total", "podVolume_data_upload_success_total", "node",
        "Volumes whose backup completed: the sum of operations_total.")
    COUNTER_AS("uploads_failed_total", "podVolume_data_upload_failure_total", "node",
        "Volumes whose backup failed: the sum of operations_total.")
    COUNTER_AS("uploads_canceled_total", "podVolume_data_upload_cancel_total", "node",
        "Volumes whose backup was canceled: the sum of operations_total.")
    COUNTER_AS("downloads_completed_total", "podVolume_data_download_success_total", "node",
        "Volumes whose restore completed: the sum of operations_total.")
    COUNTER_AS("downloads_failed_total", "podVolume_data_download_failure_total", "node",
        "Volumes whose restore failed: the sum of operations_total.")
    COUNTER_AS("downloads_canceled_total", "podVolume_data_download_cancel_total", "node",
        "Volumes whose restore was canceled: the sum of operations_total.")
    {NULL, METRIC_GAUGE, NULL, NULL, NULL},
};
/* clang-format on */

static const char *const histogram_suffixes[] = {"_bucket", "_sum", "_count"};

const struct metric_family *metric_family(const char *name)
{
    for (const struct metric_family *f = metric_families; f->name; f++) {
        size_t len = strlen(f->name);
        if (strncmp(f->name, name, len) != 0)
            continue;
        if (f->type != METRIC_HISTOGRAM) {
            if (!name[len])
                return f;
            continue;
        }
        for (size_t i = 0; i < sizeof histogram_suffixes / sizeof *histogram_suffixes; i++)
            if (!strcmp(name + len, histogram_suffixes[i]))
                return f;
    }
    return NULL;
}
