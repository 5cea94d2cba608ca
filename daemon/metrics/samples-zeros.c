/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * samples-zeros.c - counters that have not counted yet
 *
 * A series that appears with its first failure hides that failure from rate() and increase(). So each possible
 * combination is exported as 0 from the start, as long as the records have none.
 */
#include "daemon/metrics/samples.h"

#define N(list) (sizeof(list) / sizeof *(list))

static const char *const requests[] = {"get", "put", "list", "delete", "stat"};

static void of_ends(struct samples *s, const char *direction, const char *klass)
{
    static const char *const results[] = {"completed", "canceled", "skipped"};
    const char *reason;
    for (size_t i = 0; i < N(results); i++)
        sample_zero(s, "operations_total", "direction", direction, "class", klass, "result", results[i], "reason", "",
                    NULL);
    for (unsigned i = 0; (reason = count_reason_at(i)); i++)
        sample_zero(s, "operations_total", "direction", direction, "class", klass, "result", "failed", "reason", reason,
                    NULL);
}

static void of_class(struct samples *s, const char *klass)
{
    static const char *const data[] = {"read_bytes_total",
                                       "zero_bytes_total",
                                       "chunks_total",
                                       "dedup_hit_bytes_total",
                                       "new_bytes_total",
                                       "compressed_bytes_total",
                                       "unreadable_bytes_total",
                                       "written_bytes_total",
                                       "incremental_runs_total",
                                       "incremental_changed_bytes_total",
                                       "incremental_changed_ranges_total",
                                       "incremental_new_bytes_total"};
    of_ends(s, "backup", klass);
    of_ends(s, "restore", klass);
    for (size_t i = 0; i < N(data); i++)
        sample_zero(s, data[i], "class", klass, NULL);
    sample_zero(s, "skipped_bytes_total", "class", klass, "why", "unallocated", NULL);
    sample_zero(s, "skipped_bytes_total", "class", klass, "why", "unchanged", NULL);
    sample_zero_histogram(s, "snapshot_create_seconds", histogram_bounds_short, "class", klass, NULL);
}

static void of_schedule(struct samples *s, const char *schedule)
{
    static const char *const results[] = {"completed", "partially_failed", "failed", "canceled"};
    static const char *const names[] = {"backup_attempts_total",
                                        "backup_successes_total",
                                        "backup_partial_failures_total",
                                        "backup_failures_total",
                                        "restore_attempts_total",
                                        "restore_successes_total",
                                        "restore_failures_total",
                                        "snapshot_attempts_total",
                                        "snapshot_successes_total",
                                        "snapshot_failures_total",
                                        "backup_last_success_timestamp_seconds"};
    for (size_t i = 0; i < N(results); i++) {
        sample_zero(s, "backups_total", "direction", "backup", "schedule", schedule, "result", results[i], NULL);
        sample_zero(s, "backups_total", "direction", "restore", "schedule", schedule, "result", results[i], NULL);
    }
    for (size_t i = 0; i < N(names); i++)
        sample_zero(s, names[i], "schedule", schedule, NULL);
    sample_zero_histogram(s, "backup_duration_seconds", histogram_bounds, "schedule", schedule, NULL);
}

static void of_repository(struct samples *s, const char *name)
{
    static const char *const names[] = {"upload_bytes_total",
                                        "download_bytes_total",
                                        "repository_retries_total",
                                        "repository_backed_up_bytes_total",
                                        "repository_added_bytes_total",
                                        "verify_errors_total",
                                        "maintenance_reclaimed_bytes_total",
                                        "maintenance_merged_manifests_total",
                                        "verify_last_success_timestamp_seconds"};
    for (size_t i = 0; i < N(names); i++)
        sample_zero(s, names[i], "repository", name, NULL);
    static const char *const results[] = {"completed", "failed", "canceled", "skipped"};
    for (size_t i = 0; i < N(results); i++)
        sample_zero(s, "maintenance_total", "repository", name, "result", results[i], NULL);
    sample_zero_histogram(s, "maintenance_duration_seconds", histogram_bounds, "repository", name, "kind", "quick",
                          NULL);
    sample_zero_histogram(s, "maintenance_duration_seconds", histogram_bounds, "repository", name, "kind", "full",
                          NULL);
    for (size_t i = 0; i < N(requests); i++) {
        const char *code;
        for (unsigned k = 0; (code = count_code_at(k)); k++)
            sample_zero(s, "repository_requests_total", "repository", name, "op", requests[i], "code", code, NULL);
        sample_zero_histogram(s, "repository_request_seconds", histogram_bounds_short, "repository", name, "op",
                              requests[i], NULL);
    }
}

static void of_copy(struct samples *s, const char *name)
{
    static const char *const results[] = {"completed", "failed", "canceled", "skipped"};
    for (size_t i = 0; i < N(results); i++)
        sample_zero(s, "copies_total", "copy", name, "result", results[i], NULL);
    sample_zero(s, "copy_copied_bytes_total", "copy", name, NULL);
    sample_zero(s, "copy_extended_locks_total", "copy", name, NULL);
}

static void of_movers(struct samples *s)
{
    static const char *const moving[] = {"backup", "restore", "verify", "admin", "maintain", "copy"};
    const char *reason;
    for (size_t i = 0; i < N(moving); i++) {
        for (int o = MOVER_OK; o <= MOVER_MISMATCH; o++)
            sample_zero(s, "mover_exits_total", "direction", moving[i], "cause",
                        mover_outcome_name((enum mover_outcome)o), NULL);
        sample_zero(s, "mover_cpu_seconds_total", "direction", moving[i], NULL);
    }
    for (size_t i = 0; i < FACT_DIRECTIONS; i++)
        for (unsigned k = 0; (reason = count_reason_at(k)); k++)
            sample_zero(s, "operation_retries_total", "direction", fact_directions[i], "reason", reason, NULL);
    sample_zero(s, "mover_oom_total", NULL);
}

static void of_stages(struct samples *s)
{
    static const char *const backup[] = {"read",     "zero",    "split", "hash",  "lookup",
                                         "compress", "encrypt", "write", "commit"},
                             *const restore[] = {"read", "decrypt", "decompress", "hash", "write"};
    static const struct {
        const char *direction;
        const char *const *stage;
        size_t n;
    } of[] = {{"backup", backup, N(backup)}, {"restore", restore, N(restore)}, {"verify", restore, N(restore) - 1}};
    for (size_t i = 0; i < N(of); i++)
        for (size_t k = 0; k < of[i].n; k++) {
            sample_zero(s, "stage_busy_seconds_total", "direction", of[i].direction, "stage", of[i].stage[k], NULL);
            sample_zero(s, "stage_stall_seconds_total", "direction", of[i].direction, "stage", of[i].stage[k], NULL);
            sample_zero(s, "bottleneck_total", "direction", of[i].direction, "stage", of[i].stage[k], NULL);
        }
}

static void of_durations(struct samples *s)
{
    static const char *const stages[][2] = {
        {"backup", "snapshot"},   {"backup", "expose"},   {"backup", "move"},        {"backup", "read"},
        {"backup", "hash"},       {"backup", "compress"}, {"backup", "upload"},      {"backup", "finalize"},
        {"backup", "cleanup"},    {"backup", "total"},    {"restore", "expose"},     {"restore", "move"},
        {"restore", "download"},  {"restore", "hash"},    {"restore", "decompress"}, {"restore", "write"},
        {"restore", "cleanup"},   {"restore", "total"},   {"verify", "move"},        {"verify", "download"},
        {"verify", "decompress"}, {"verify", "hash"},     {"verify", "total"},       {"admin", "move"},
        {"admin", "total"},       {"delete", "move"},     {"delete", "total"},       {"maintain", "move"},
        {"maintain", "total"},    {"copy", "move"},       {"copy", "total"},
    };
    for (size_t i = 0; i < N(stages); i++)
        sample_zero_histogram(s, "operation_duration_seconds", histogram_bounds, "direction", stages[i][0], "stage",
                              stages[i][1], NULL);
    for (size_t i = 0; i < FACT_DIRECTIONS; i++)
        sample_zero_histogram(s, "queue_wait_seconds", histogram_bounds, "direction", fact_directions[i], NULL);
}

void samples_of_zeros(struct samples *s)
{
    const struct cfg *c = s->engine->cfg;
    const struct cfg_class *k;
    const struct cfg_job *j;
    const struct cfg_repository *r;
    const struct cfg_copy *y;
    for (unsigned i = 0; (k = cfg_class_at(c, i)); i++)
        of_class(s, k->name);
    for (unsigned i = 0; (j = cfg_job_at(c, i)); i++)
        of_schedule(s, j->name);
    of_schedule(s, ""); /* by hand */
    for (unsigned i = 0; (r = cfg_repository_at(c, i)); i++)
        of_repository(s, r->name);
    for (unsigned i = 0; (y = cfg_copy_at(c, i)); i++)
        of_copy(s, y->name);
    /* A restore to a target outside all classes has none. */
    of_ends(s, "restore", "");
    sample_zero(s, "written_bytes_total", "class", "", NULL);
    of_ends(s, "verify", "");
    of_ends(s, "admin", "");
    of_ends(s, "delete", "");
    of_ends(s, "maintain", "");
    of_ends(s, "copy", "");
    of_movers(s);
    of_stages(s);
    of_durations(s);
    sample_zero(s, "snapshot_delete_failures_total", NULL);
    sample_zero(s, "restore_native_missing_total", NULL);
    sample_zero(s, "cbt_verify_mismatch_total", NULL);
    sample_zero(s, "io_errors_total", "op", "read", NULL);
    sample_zero(s, "io_errors_total", "op", "write", NULL);
}
