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
    GAUGE("build_info", "version,commit", "Always 1; the labels identify the build of the daemon.")
    GAUGE("start_time_seconds", "", "Unix time in seconds of the start of the daemon.")
    COUNTER("process_cpu_seconds_total", "",
        "User and system CPU time in seconds used by the daemon process since its start.")
    GAUGE("process_resident_memory_bytes", "", "Resident memory of the daemon process in bytes.")
    GAUGE("config_last_reload_successful", "",
        "1 if the last reload of the configuration succeeded, 0 if it was refused and the previous configuration is "
        "in use.")
    GAUGE("config_last_reload_timestamp_seconds", "",
        "Unix time in seconds at which the configuration in use was loaded.")
    GAUGE("config_hash", "", "First 48 bits of the hash of the configuration in use, as a number.")
    GAUGE("config_warnings", "",
        "Warnings of check-config for the configuration in use, at its last check (at least every ten minutes).")
    COUNTER("record_write_errors_total", "", "Failed writes of the records.")
    GAUGE("records_degraded", "", "1 while the records cannot be written and no new operations are started, else 0.")
    GAUGE("records_rebuilt_timestamp_seconds", "",
        "Unix time in seconds at which new or damaged records had something of before found again; absent if never.")
    GAUGE("state_dir_free_bytes", "", "Free bytes of the file system of the state directory, at the last sweep.")
    GAUGE("state_dir_size_bytes", "", "Size in bytes of the file system of the state directory, at the last sweep.")
    GAUGE("steps_running", "", "Short tasks (storage commands, look-ups) running in child processes of the daemon.")
    GAUGE("steps_stuck", "", "Child processes that hang in the kernel and cannot be killed.")
    GAUGE("movers", "", "Running mover processes.")
    GAUGE("metrics_timestamp_seconds", "",
        "Unix time in seconds at which this page was created; older than a second only if the event loop of the "
        "daemon hangs.")
    GAUGE("metrics_dropped_samples", "",
        "Samples omitted from this page because of unknown families or labels, duplicates, or too many samples of a "
        "family.")

    /* ---- state ---- */
    GAUGE("operations", "direction,state",
        "Unfinished operations by state; Queued: also prepared ones that wait. Finished ones are counted by "
        "operations_total.")
    GAUGE("operation_state_age_seconds", "state",
        "Time in seconds for which the oldest operation in this state has been in it; 0 if there is none.")
    GAUGE("queue_length", "direction", "Waiting operations: queued, or prepared and without a slot or repository.")
    HISTOGRAM("queue_wait_seconds", "direction",
        "Time in seconds from the request to the start of an operation; observed at the start.")
    GAUGE("slots", "",
        "Maximum number of movers for backups and restores at the same time (slots of the configuration); 0 is "
        "maintenance mode.")
    GAUGE("slots_used", "", "Slots that are in use.")
    GAUGE("slots_restore_reserved", "", "Additional slots reserved for restores.")
    GAUGE("backups", "direction,phase", "Unfinished runs (backups and restores with all their volumes) by phase.")

    /* ---- outcome ---- */
    COUNTER("operations_total", "direction,class,result,reason",
        "Finished operations, counted in the transaction that records the end; reason is the class of the error.")
    COUNTER("operation_retries_total", "direction,reason",
        "Failed attempts that are retried; reason is the class of the error.")
    COUNTER("backups_total", "direction,schedule,result",
        "Finished runs by job; a failed start of a job counts as a failed run.")

    /* ---- time ---- */
    HISTOGRAM("operation_duration_seconds", "direction,stage",
        "Time in seconds spent by an operation in each stage and in total (stage total); observed at the end.")
    COUNTER("stage_busy_seconds_total", "direction,stage",
        "Working time in seconds of the stages of movers, summed over their threads, counted when a mover exits.")
    COUNTER("stage_stall_seconds_total", "direction,stage",
        "Time in seconds for which stages of movers waited for other stages, counted when a mover exits.")
    COUNTER("bottleneck_total", "direction,stage",
        "Movers by the stage that limited their speed, counted when a mover exits.")

    /* ---- running operations ---- */
    GAUGE("operation_expected_bytes", "direction,volume",
        "Bytes to be processed by the running operation, including zeros and holes; absent after its end.")
    GAUGE("operation_done_bytes", "direction,volume", "Bytes processed by the running operation; absent after its end.")
    GAUGE("operation_last_progress_timestamp_seconds", "direction,volume",
        "Unix time in seconds of the last progress of the running operation, initially of its start; absent after its "
        "end.")

    /* ---- volumes ---- */
    GAUGE("volumes", "state",
        "Known volumes by state (protected, unprotected, gone, excluded), as in `snapferry status`.")
    GAUGE("volume_info", "volume,id,class,driver",
        "Always 1; maps the name of a volume to its id, storage class and driver.")
    GAUGE("volume_protected", "volume",
        "1 if the last existing successful backup is not older, nor further in the future, than 2.5 intervals of its "
        "job, else 0, as in `snapferry status`; absent for volumes that are gone or excluded.")
    GAUGE("volume_last_success_timestamp_seconds", "volume",
        "Unix time in seconds of the end of the last successful backup; 0 if there was none.")
    GAUGE("volume_last_attempt_timestamp_seconds", "volume",
        "Unix time in seconds of the end of the last backup, regardless of its result; 0 if there was none.")
    GAUGE("volume_last_snapshot_timestamp_seconds", "volume",
        "Unix time in seconds of the point in time captured by the last successful backup; 0 if there was none.")
    GAUGE("volume_last_status", "volume",
        "1 if the last backup that was neither canceled nor skipped was successful, 0 if not; absent before the first "
        "one.")
    GAUGE("volume_expected_interval_seconds", "volume",
        "Interval in seconds between runs of the most frequent job of this volume; absent without a scheduled job.")
    GAUGE("volume_expected_since_timestamp_seconds", "volume",
        "Unix time in seconds since which a scheduled job has included this volume; absent without a scheduled job.")
    GAUGE("volume_size_bytes", "volume", "Size of the volume in bytes, at the last backup.")
    GAUGE("volume_allocated_bytes", "volume",
        "Allocated bytes of the volume, at the last backup; absent if not supported by its driver.")
    GAUGE("volume_last_changed_bytes", "volume",
        "Bytes of the last successful backup that were new in the repository, before compression.")

    /* ---- data path ---- */
    COUNTER("read_bytes_total", "class", "Bytes read from sources by backups, counted when a mover exits.")
    COUNTER("zero_bytes_total", "class", "Bytes read from sources that were zero, counted when a mover exits.")
    COUNTER("skipped_bytes_total", "class,why",
        "Bytes that backups did not need to read (why: unallocated, unchanged), counted when a mover exits.")
    COUNTER("chunks_total", "class", "Chunks created by backups, counted when a mover exits.")
    COUNTER("dedup_hit_bytes_total", "class",
        "Bytes of chunks that were already in the repository, counted when a mover exits.")
    COUNTER("new_bytes_total", "class",
        "Bytes of chunks that were new in the repository, before compression, counted when a mover exits.")
    COUNTER("compressed_bytes_total", "class",
        "Bytes of new chunks after compression and encryption, counted when a mover exits.")
    COUNTER("written_bytes_total", "class", "Bytes written to targets by restores, counted when a mover exits.")
    COUNTER("unreadable_bytes_total", "class",
        "Bytes of sources that were unreadable and stored as zeros (bad-reads = map), counted when a mover exits.")
    COUNTER("upload_bytes_total", "repository",
        "Bytes written to the storage of the repository by all movers, counted when a mover exits.")
    COUNTER("download_bytes_total", "repository",
        "Bytes read from the storage of the repository by all movers, counted when a mover exits.")
    COUNTER("io_errors_total", "op", "I/O errors of sources and targets (op: read, write), counted when a mover exits.")
    GAUGE("io_uring_inflight", "class",
        "Maximum number of read requests in flight during the last backup in this class; 0 without io_uring.")

    /* ---- changed-block tracking ---- */
    COUNTER("cbt_runs_total", "source,result",
        "Backups with changed-blocks = auto of volumes whose driver can list changes (result: incremental, full).")
    COUNTER("full_fallback_total", "reason",
        "Backups that read the whole volume although changed-blocks is auto and the driver can list changes, "
        "by reason.")
    COUNTER("cbt_verify_mismatch_total", "",
        "Backups in which data that the storage listed as unchanged had changed.")
    COUNTER("incremental_runs_total", "class", "Backups that read only what changed since the last one.")
    COUNTER("incremental_changed_bytes_total", "class",
        "Bytes that the storage listed as changed for these backups, without known zeros (freed, discarded).")
    COUNTER("incremental_changed_ranges_total", "class", "Ranges in which these bytes were.")
    COUNTER("incremental_new_bytes_total", "class",
        "Bytes of chunks that these backups found new, before compression.")

    /* ---- native snapshots ---- */
    GAUGE("snapshots", "class,reason", "Native snapshots on the storage by the main reason for which they are kept.")
    GAUGE("snapshots_missing", "class", "Recorded native snapshots that are missing on the storage.")
    GAUGE("inspection_objects", "kind",
        "Objects of failed backups kept for inspection (expose-keep-on-failure; kind: native, intermediate).")
    GAUGE("inspection_used_bytes", "",
        "Bytes used by what is kept for inspection: native snapshots as in snapshot_used_bytes, and copies.")
    GAUGE("inspection_oldest_timestamp_seconds", "",
        "Unix time in seconds since when the oldest object is kept for inspection; absent if there is none.")
    GAUGE("snapshot_limit", "class",
        "Native snapshots to retain per volume after their data has been moved (snapshots-to-retain).")
    GAUGE("snapshot_max", "class",
        "Maximum number of native snapshots per volume (max-snapshots-per-volume); 0: no limit.")
    GAUGE("snapshot_used_bytes", "class",
        "Bytes used exclusively by native snapshots, at the last sweep; absent if not supported by the driver.")
    GAUGE("snapshot_oldest_timestamp_seconds", "class",
        "Unix time in seconds at which the oldest native snapshot was taken; absent if there is none.")
    HISTOGRAM("snapshot_create_seconds", "class", "Time in seconds to take a native snapshot; observed for each.")
    COUNTER("snapshot_delete_failures_total", "", "Failed attempts to remove a native snapshot.")
    COUNTER("restore_native_missing_total", "",
        "Restores that used the repository because the preferred native snapshot was missing.")
    GAUGE("orphans", "kind",
        "Objects on the storage with the owner tag of this node but without a record, at the last sweep.")
    GAUGE("pool_used_ratio", "class,pool", "Usage of the pool of native snapshots, 0 to 1, at the last sweep.")
    GAUGE("pool_metadata_used_ratio", "class,pool",
        "Usage of the metadata of the pool, 0 to 1; absent if not supported by its driver.")

    /* ---- repositories ---- */
    GAUGE("repository_up", "repository",
        "1 if the repository could be used at the last check, 0 if its storage is not available, its password does not "
        "open it, or another repository is at its place.")
    GAUGE("repository_recorded_timestamp_seconds", "repository,id",
        "Unix time in seconds at which the unique id of the repository was recorded; another repository at its place "
        "is refused.")
    GAUGE("repository_outcomes_owed", "repository",
        "Backups whose outcome is not recorded in the repository yet.")
    GAUGE("repository_outcomes_owed_since_timestamp_seconds", "repository",
        "Unix time in seconds since when the oldest of these outcomes is to be recorded; absent if there is none.")
    GAUGE("other_node_scan_timestamp_seconds", "repository,node",
        "Unix time in seconds of the last scan for the backups of another node (other-nodes); absent before the first "
        "one.")
    GAUGE("other_node_since_timestamp_seconds", "repository,node",
        "Unix time in seconds since when other-nodes names the node.")
    GAUGE("own_scan_timestamp_seconds", "repository,node",
        "Unix time in seconds of the last scan for what the repository has of this node; absent before the first one.")
    GAUGE("repository_free_bytes", "repository", "Free bytes of the file system of the repository, at the last check.")
    GAUGE("repository_size_bytes", "repository",
        "Size in bytes of the file system of the repository, at the last check.")
    COUNTER("repository_requests_total", "repository,op,code",
        "Requests of movers to the storage of the repository; code is ok or the class of the error; counted when a "
        "mover exits.")
    HISTOGRAM("repository_request_seconds", "repository,op",
        "Duration in seconds of requests to the storage of the repository; observed when a mover exits.")
    COUNTER("repository_retries_total", "repository",
        "Requests to the storage of the repository that were retried after an error, counted when a mover exits.")
    GAUGE("repository_stored_bytes", "repository",
        "Bytes of all contents in the index of the repository at the last verification, plus those added by backups "
        "of this node since then; absent before.")
    COUNTER("repository_backed_up_bytes_total", "repository",
        "Size in bytes of the volumes of which a mover created a snapshot, counted when it exits.")
    COUNTER("repository_added_bytes_total", "repository",
        "Bytes added to the repository by these snapshots, counted when a mover exits.")
    GAUGE("repository_unreferenced_bytes", "repository",
        "Bytes of contents without a snapshot that uses them; absent until counted by maintenance.")
    GAUGE("repository_contents", "repository", "Contents in the index of the repository, at the last mover.")
    GAUGE("repository_index_blobs", "repository",
        "Index blobs in the repository, at the last mover; a large number slows down opening.")
    GAUGE("repository_index_cache_bytes", "repository",
        "Bytes that the index of the repository takes in the cache of this node, at the last mover; limited by "
        "cache-max.")
    GAUGE("repository_clock_skew_seconds", "repository",
        "Offset in seconds of the clock of the repository's storage (positive: ahead), at the last mover.")
    GAUGE("repository_lease_age_seconds", "repository",
        "Time in seconds since a lease on the repository was last renewed; always absent in this version.")

    /* ---- maintenance and verification ---- */
    GAUGE("maintenance_last_success_timestamp_seconds", "repository,kind",
        "Unix time in seconds of the end of the last successful maintenance by this node; absent before the first one.")
    GAUGE("maintenance_overdue", "repository",
        "1 if the repository has not been maintained for three intervals, by this node, or for 72 hours at least by "
        "another client that owns its maintenance; 0 if not.")
    HISTOGRAM("maintenance_duration_seconds", "repository,kind",
        "Duration in seconds of successful maintenance.")
    COUNTER("maintenance_reclaimed_bytes_total", "repository",
        "Bytes of packs deleted by maintenance.")
    COUNTER("maintenance_merged_manifests_total", "repository",
        "Contents of manifests that maintenance has stored together in fewer ones.")
    GAUGE("maintenance_reclaimable_bytes", "repository",
        "Bytes that no snapshot needs and that were kept for now by the last successful full maintenance; absent "
        "before the first one.")
    COUNTER("maintenance_total", "repository,result",
        "Finished runs of maintenance; skipped: another client maintains the repository, or nobody.")
    GAUGE("copy_last_success_timestamp_seconds", "copy",
        "Unix time in seconds of the end of the last complete copy of its repository; absent before the first one.")
    GAUGE("copy_overdue", "copy",
        "1 if the copy has not been made for three intervals of its schedule; 0 if it has, or has no schedule.")
    GAUGE("copy_failed", "copy",
        "1 if the last run of the copy failed; 0 if not.")
    GAUGE("copy_bytes", "copy",
        "Bytes of all blobs in the copy, at the end of the last complete run; absent before the first one.")
    GAUGE("copy_surplus_bytes", "copy",
        "Bytes of blobs in the copy that the repository does not have any more; absent before the first complete run.")
    COUNTER("copy_copied_bytes_total", "copy",
        "Bytes of blobs that were copied, also by runs that were not complete.")
    COUNTER("copy_extended_locks_total", "copy",
        "Object locks of blobs in the copy that were extended, also by runs that were not complete.")
    COUNTER("copies_total", "copy,result",
        "Finished runs of copies; skipped is always 0.")
    GAUGE("verify_last_success_timestamp_seconds", "repository",
        "Unix time in seconds of the end of the last verification without damage; 0 if there was none.")
    GAUGE("verify_overdue", "repository",
        "1 if the repository has not been verified for three intervals of its schedule; 0 if it has, or has no "
        "schedule.")
    GAUGE("verify_damages", "repository",
        "Damaged or missing pieces that the last verification with damage found; 0 once all has been read since and is "
        "whole.")
    GAUGE("verify_corrected", "repository",
        "Contents and index blobs that verifications could read with the help of error correction only, without those "
        "that maintenance has stored again; 0 once all has been read since without it.")
    GAUGE("damaged_snapshots", "repository",
        "Snapshots of finished backups that a check before pruning found damaged in the repository, or not to be what "
        "was backed up; 0 once they are found whole, or their backups are deleted.")
    GAUGE("verify_all_read_timestamp_seconds", "repository",
        "Unix time in seconds since when all contents of the repository have been read by verifications; absent before "
        "the first complete round.")
    COUNTER("verify_errors_total", "repository",
        "Damaged or missing objects found by verifications, counted at the end.")
    GAUGE("verify_last_end_timestamp_seconds", "repository",
        "Unix time in seconds of the end of the last verification, regardless of its result; absent before the first "
        "one.")
    GAUGE("verify_last_damages", "repository",
        "Damaged or missing objects found by the last verification; absent before the first one.")
    GAUGE("verify_last_read_ratio", "repository",
        "Share of the contents read by the last verification, 0 to 1; absent before the first one.")

    /* ---- resources of movers ---- */
    GAUGE("mover_memory_bytes", "direction,volume",
        "Memory in bytes of the running mover: of its cgroup, otherwise of its process; absent after its end.")
    GAUGE("mover_memory_limit_bytes", "direction,volume",
        "Memory limit in bytes of the running mover; absent if no limit is enforced.")
    COUNTER("mover_cpu_seconds_total", "direction", "CPU time in seconds used by movers, counted when a mover exits.")
    COUNTER("mover_oom_total", "", "Movers killed at their memory limit.")
    COUNTER("mover_exits_total", "direction,cause", "Exits of movers by cause, including attempts that are retried.")

    /* ---- jobs, and what dashboards made for Velero ask for ---- */
    GAUGE_AS("schedule_expected_interval_seconds", "velero_schedule_expected_interval_seconds", "schedule",
        "Longest time in seconds between two runs of the job, including nights and weekends; absent while it is "
        "paused or has no schedule.")
    GAUGE("schedule_since_timestamp_seconds", "schedule",
        "Unix time in seconds at which the present schedule of the job was set; absent while it is paused or has "
        "none.")
    GAUGE("schedule_next_timestamp_seconds", "schedule",
        "Unix time in seconds of the next run of the job; absent while it is paused or has no schedule.")
    GAUGE("schedule_volumes_missing", "schedule",
        "Volumes of the job that its last start did not find or could not include, and classes that could not be "
        "listed.")
    GAUGE("schedule_paused", "schedule", "1 if the job is paused, else 0.")
    COUNTER_AS("backup_attempts_total", "velero_backup_attempt_total", "schedule",
        "Backups started, including failed starts of the job.")
    COUNTER_AS("backup_successes_total", "velero_backup_success_total", "schedule",
        "Backups in which all volumes succeeded.")
    COUNTER_AS("backup_partial_failures_total", "velero_backup_partial_failure_total", "schedule",
        "Backups in which some volumes succeeded.")
    COUNTER_AS("backup_failures_total", "velero_backup_failure_total", "schedule",
        "Backups in which no volume succeeded, and failed starts of the job.")
    HISTOGRAM_AS("backup_duration_seconds", "velero_backup_duration_seconds", "schedule",
        "Time in seconds from request to end of a backup with all its volumes; observed at the end.")
    GAUGE_AS("backup_last_success_timestamp_seconds", "velero_backup_last_successful_timestamp", "schedule",
        "Unix time in seconds of the end of the job's last successful backup; 0 if there was none.")
    GAUGE("backup_last_end_timestamp_seconds", "schedule,result",
        "Unix time in seconds of the end of the job's last backup with this result; absent before the first one.")
    GAUGE_AS("backup_last_status", "velero_backup_last_status", "schedule",
        "1 if the job's last backup that was not canceled was successful, else 0; absent before the first one.")
    COUNTER_AS("restore_attempts_total", "velero_restore_attempt_total", "schedule",
        "Restores started, by the job of the backup.")
    COUNTER_AS("restore_successes_total", "velero_restore_success_total", "schedule", "Successful restores.")
    COUNTER_AS("restore_failures_total", "velero_restore_failed_total", "schedule", "Failed restores.")
    COUNTER_AS("snapshot_attempts_total", "velero_volume_snapshot_attempt_total", "schedule",
        "Attempts to take a native snapshot.")
    COUNTER_AS("snapshot_successes_total", "velero_volume_snapshot_success_total", "schedule",
        "Native snapshots taken.")
    COUNTER_AS("snapshot_failures_total", "velero_volume_snapshot_failure_total", "schedule",
        "Failed attempts to take a native snapshot.")
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
