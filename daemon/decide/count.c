/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * count.c - what is counted when something ends, once, whatever dies in between
 *
 * Each function is called in the transaction that makes the end a fact, with the counters held: one commit has both.
 * Labels are taken from small fixed sets or from the configuration, never from what a process says (a mover's result is
 * the word of a process that reads foreign data).
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/decide.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <math.h>

/* More than any of them can be: such a number is not believed. */
#define BYTES_MAX (INT64_C(1) << 60)
#define SECONDS_MAX (1000.0 * 366 * 86400)

const char *count_direction(enum op_kind kind)
{
    return kind == KIND_NONE ? "other" : op_kind_name(kind);
}

const char *count_result(enum outcome outcome)
{
    switch (outcome) {
    case OUTCOME_COMPLETED:
        return "completed";
    case OUTCOME_PARTIALLY_FAILED:
        return "partially_failed";
    case OUTCOME_CANCELED:
        return "canceled";
    case OUTCOME_SKIPPED:
        return "skipped";
    case OUTCOME_FAILED:
    case OUTCOME_NONE:
    case OUTCOMES:
        break;
    }
    return "failed";
}

const char *count_reason_at(unsigned i)
{
    /* Not what only the command line has, nor what is no failure. */
    static const enum err_class known[] = {ERR_GENERIC, ERR_USAGE,      ERR_PASSWORD,  ERR_NO_REPO, ERR_FORMAT,
                                           ERR_BUSY,    ERR_DAMAGE,     ERR_NOT_FOUND, ERR_TARGET,  ERR_NO_SPACE,
                                           ERR_SOURCE,  ERR_PERMISSION, ERR_CLOCK,     ERR_MEMORY,  ERR_INTERRUPTED};
    return i < sizeof known / sizeof *known ? err_class_name(known[i]) : NULL;
}

const char *count_code_at(unsigned i)
{
    return i < REQUEST_CODES ? request_codes[i] : NULL;
}

static bool is_one_of(const char *(*at)(unsigned i), const char *name)
{
    const char *k;
    for (unsigned i = 0; (k = at(i)); i++)
        if (!strcmp(k, name))
            return true;
    return false;
}

/* One of count_reason_at(), each of which has a sample from the start. */
static const char *reason_of(const struct operation *op)
{
    const char *name = err_class_name(op->error.code ? op->error.code : ERR_GENERIC);
    return is_one_of(count_reason_at, name) ? name : err_class_name(ERR_GENERIC);
}

/* Class that an operation counts for: "" if it has none, as a restore to a target outside of all classes. */
static const char *class_of(const struct operation *op)
{
    const char *name = op->own->name;
    return strcmp(name, CLASS_OF_TARGET) ? name : "";
}

/* ---- small helpers ---- */

static void add(struct decide *d, const char *name, json_t *labels, double value)
{
    struct err e = ERR_INIT;
    if (value > 0 && records_counter_add(d->records, name, labels, value, &e) < 0)
        plan_log(d, LOG_LVL_DEBUG, "%s", e.msg);
    json_decref(labels);
}

static void counter_set(struct decide *d, const char *name, json_t *labels, double value)
{
    struct err e = ERR_INIT;
    if (records_counter_set(d->records, name, labels, value, &e) < 0)
        plan_log(d, LOG_LVL_DEBUG, "%s", e.msg);
    json_decref(labels);
}

static json_t *one(const char *label, const char *value)
{
    json_t *o = json_object();
    jset_str(o, label, value);
    return o;
}

static json_t *label_two(const char *l1, const char *v1, const char *l2, const char *v2)
{
    json_t *o = one(l1, v1);
    jset_str(o, l2, v2);
    return o;
}

/* Number of a result: what cannot be is 0. */
static double bytes_counted(int64_t n)
{
    return n > 0 && n < BYTES_MAX ? (double)n : 0;
}

static void histogram_observe(struct decide *d, const char *name, json_t *labels, const double *bounds, double seconds)
{
    struct err e = ERR_INIT;
    if (isfinite(seconds) && seconds >= 0 && seconds < SECONDS_MAX &&
        records_histogram_observe(d->records, name, labels, bounds, HISTOGRAM_BOUNDS, seconds, &e) < 0)
        plan_log(d, LOG_LVL_DEBUG, "%s", e.msg);
    json_decref(labels);
}

/* ---- time spent in states ---- */

void operation_spent(struct operation *op, enum op_state state, int64_t now_ns)
{
    int64_t since = op->state_since_ns ? op->state_since_ns : op->created_ns, ms = (now_ns - since) / 1000000;
    if (since && ms > 0) /* else the clock was set back */
        op->spent_ms.ms[state] += ms;
}

static double seconds_spent(const struct operation *op, enum op_state state)
{
    return (double)op->spent_ms.ms[state] / 1000;
}

void count_queue_wait(struct decide *d, struct operation *op, enum op_state state)
{
    if (op->queue_counted ||
        (state != OP_EXPOSING && state != OP_STARTING && state != OP_RUNNING && state != OP_SNAPSHOTTING))
        return;
    op->queue_counted = true;
    histogram_observe(d, "queue_wait_seconds", one("direction", count_direction(op->kind)), histogram_bounds,
                      seconds_spent(op, OP_QUEUED));
}

static void stage_observe(struct decide *d, const char *direction, const char *name, double seconds)
{
    histogram_observe(d, "operation_duration_seconds", label_two("direction", direction, "stage", name),
                      histogram_bounds, seconds);
}

/* What a mover calls its stages, and what they are to whoever waits for the operation. */
static void mover_stages(struct decide *d, const char *direction, const struct mover_result *result)
{
    static const char *const names[][3] = {
        {"backup", "read", "read"},
        {"backup", "hash", "hash"},
        {"backup", "compress", "compress"},
        {"backup", "write", "upload"},
        {"backup", "commit", "finalize"},
        {"restore", "read", "download"},
        {"restore", "hash", "hash"},
        {"restore", "write", "write"},
        {"restore", "decompress", "decompress"},
        {"verify", "decompress", "decompress"},
        {"verify", "read", "download"},
        {"verify", "hash", "hash"},
    };
    const struct mover_stage *s = result->stages.v;
    for (unsigned i = 0; i < result->stages.n && i < STAGES_OF_A_RESULT; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(direction, names[k][0]) && !strcmp(s[i].name, names[k][1]))
                stage_observe(d, direction, names[k][2], s[i].busy_s > 0 ? s[i].busy_s : 0);
}

/* From its beginning on; the states that it was in, since the clock may have been set meanwhile. */
static double took_s(const struct operation *op)
{
    double s = 0;
    for (size_t i = 0; i < sizeof op->spent_ms.ms / sizeof *op->spent_ms.ms; i++)
        s += (double)op->spent_ms.ms[i] / 1000;
    return s;
}

/* ---- ends ---- */

void count_operation_ended(struct decide *d, struct operation *op, enum outcome outcome)
{
    const char *direction = count_direction(op->kind), *result = count_result(outcome);
    CLEANUP_JSON json_t *labels = label_two("direction", direction, "class", class_of(op));
    jset_str(labels, "result", result);
    jset_str(labels, "reason", strcmp(result, "failed") != 0 ? "" : reason_of(op));
    records_counter_add(d->records, "operations_total", labels, 1, NULL);
    operation_spent(op, op->state, decide_now(d));
    stage_observe(d, direction, "total", took_s(op));
    stage_observe(d, direction, "move",
                  seconds_spent(op, OP_STARTING) + seconds_spent(op, OP_RUNNING) + seconds_spent(op, OP_CANCELLING));
    if (op->kind == KIND_BACKUP)
        stage_observe(d, direction, "snapshot", seconds_spent(op, OP_SNAPSHOTTING));
    if (op->kind == KIND_BACKUP || op->kind == KIND_RESTORE) {
        stage_observe(d, direction, "expose", seconds_spent(op, OP_EXPOSING));
        stage_observe(d, direction, "cleanup", seconds_spent(op, OP_CLEANING_UP));
    }
    mover_stages(d, direction, &op->result);
}

void count_retry(struct decide *d, const struct operation *op)
{
    add(d, "operation_retries_total", label_two("direction", count_direction(op->kind), "reason", reason_of(op)), 1);
}

void count_maintained(struct decide *d, const struct operation *op)
{
    const struct mover_maintenance *m = &op->result.maintenance;
    const char *repository = op->policy->repository, *kind = op->maintain.full ? "full" : "quick";
    add(d, "maintenance_total", label_two("repository", repository, "result", count_result(op->outcome)), 1);
    if (m->there)
        add(d, "maintenance_reclaimed_bytes_total", one("repository", repository), bytes_counted(m->freed));
    if (m->there && m->merged > 0)
        add(d, "maintenance_merged_manifests_total", one("repository", repository), bytes_counted(m->merged));
    if (op->outcome != OUTCOME_COMPLETED)
        return;
    counter_set(d, "maintenance_last_success_timestamp_seconds", label_two("repository", repository, "kind", kind),
                (double)(decide_now(d) / NS_PER_S));
    if (isfinite(m->seconds) && m->seconds >= 0 && m->seconds < SECONDS_MAX)
        histogram_observe(d, "maintenance_duration_seconds", label_two("repository", repository, "kind", kind),
                          histogram_bounds, m->seconds);
    if (op->maintain.full)
        counter_set(d, "maintenance_reclaimable_bytes", one("repository", repository), bytes_counted(m->reclaimable));
}

void count_copied(struct decide *d, const struct operation *op)
{
    const struct mover_copy c = mover_copy_of(&op->result);
    const char *copy = op->target_name;
    add(d, "copies_total", label_two("copy", copy, "result", count_result(op->outcome)), 1);
    add(d, "copy_copied_bytes_total", one("copy", copy), bytes_counted(c.copied_bytes));
    add(d, "copy_extended_locks_total", one("copy", copy), bytes_counted(c.extended));
    if (op->outcome != OUTCOME_COMPLETED)
        return;
    counter_set(d, "copy_last_success_timestamp_seconds", one("copy", copy), (double)(decide_now(d) / NS_PER_S));
    counter_set(d, "copy_bytes", one("copy", copy),
                bytes_counted(c.copied_bytes + c.present_bytes + c.surplus_bytes - c.deleted_bytes));
    counter_set(d, "copy_surplus_bytes", one("copy", copy), bytes_counted(c.surplus_bytes - c.deleted_bytes));
}

void count_backup_begun(struct decide *d, const char *schedule, bool restore)
{
    add(d, restore ? "restore_attempts_total" : "backup_attempts_total", one("schedule", schedule), 1);
}

void count_start_failed(struct decide *d, const char *schedule)
{
    json_t *labels = label_two("direction", "backup", "schedule", schedule);
    jset_str(labels, "result", "failed");
    count_backup_begun(d, schedule, false);
    add(d, "backups_total", labels, 1);
    counter_set(d, "backup_last_status", one("schedule", schedule), 0);
}

void count_backup_ended(struct decide *d, const struct backup *b, enum outcome outcome)
{
    bool restore = b->kind == KIND_RESTORE;
    const char *schedule = restore ? b->of_job : b->job;
    CLEANUP_JSON json_t *labels = label_two("direction", restore ? "restore" : "backup", "schedule", schedule);
    jset_str(labels, "result", count_result(outcome));
    records_counter_add(d->records, "backups_total", labels, 1, NULL);
    if (restore)
        return;
    counter_set(d, "backup_last_end_timestamp_seconds",
                label_two("schedule", schedule, "result", count_result(outcome)), (double)decide_now(d) / 1e9);
    bool good = outcome == OUTCOME_COMPLETED;
    histogram_observe(d, "backup_duration_seconds", one("schedule", schedule), histogram_bounds,
                      (double)(decide_now(d) - b->created_ns - b->clock_ns) / 1e9);
    if (outcome != OUTCOME_CANCELED)
        counter_set(d, "backup_last_status", one("schedule", schedule), good);
    if (good)
        counter_set(d, "backup_last_success_timestamp_seconds", one("schedule", schedule),
                    (double)(decide_now(d) / NS_PER_S));
}

void count_snapshot(struct decide *d, const struct operation *op, bool taken, double seconds)
{
    add(d, taken ? "snapshot_successes_total" : "snapshot_failures_total", one("schedule", op->job), 1);
    if (taken)
        histogram_observe(d, "snapshot_create_seconds", one("class", class_of(op)), histogram_bounds_short, seconds);
}

/* ---- what a mover's result has ---- */

static void data_path(struct decide *d, const char *klass, const char *direction, const struct mover_figures *f)
{
    const struct {
        const char *counter;
        int64_t n;
    } of_backup[] = {
        {"read_bytes_total", f->read},
        {"zero_bytes_total", f->zero},
        {"chunks_total", f->chunks},
        {"dedup_hit_bytes_total", f->deduped},
        {"new_bytes_total", f->result.incremental},
        {"compressed_bytes_total", f->result.uploaded},
        {"unreadable_bytes_total", f->bad},
    };
    if (!strcmp(direction, "restore"))
        add(d, "written_bytes_total", one("class", klass), bytes_counted(f->written));
    if (strcmp(direction, "backup"))
        return;
    for (size_t i = 0; i < sizeof of_backup / sizeof *of_backup; i++)
        add(d, of_backup[i].counter, one("class", klass), bytes_counted(of_backup[i].n));
    /* What the reader left out; holes are chunks that are nothing but hole, and a plugin may know no more. */
    add(d, "skipped_bytes_total", label_two("class", klass, "why", "unallocated"),
        bytes_counted(f->reader.skipped >= 0 ? f->reader.skipped : f->hole));
    if (f->reader.there)
        counter_set(d, "io_uring_inflight", one("class", klass), bytes_counted(f->reader.inflight_max));
}

static void request_times(struct decide *d, const char *repository, const char *kind, const struct request_figures *q)
{
    uint64_t counts[REQUEST_TIMES];
    struct err e = ERR_INIT;
    _Static_assert(REQUEST_TIMES == HISTOGRAM_BOUNDS + 1, "a bucket for each bound, and one for what took longer");
    if (!q->has_times)
        return;
    for (size_t i = 0; i < REQUEST_TIMES; i++)
        counts[i] = (uint64_t)bytes_counted(q->times[i]);
    CLEANUP_JSON json_t *labels = label_two("repository", repository, "op", kind);
    if (records_histogram_add(d->records, "repository_request_seconds", labels, histogram_bounds_short,
                              HISTOGRAM_BOUNDS, counts,
                              isfinite(q->seconds) && q->seconds < SECONDS_MAX ? q->seconds : 0, &e) < 0)
        plan_log(d, LOG_LVL_DEBUG, "%s", e.msg);
}

static void requests_of(struct decide *d, const char *repository, const char *kind, const struct request_figures *q)
{
    for (unsigned i = 0; i < REQUEST_CODES; i++) {
        CLEANUP_JSON json_t *labels = label_two("repository", repository, "op", kind);
        jset_str(labels, "code", request_codes[i]);
        if (bytes_counted(q->codes[i]) > 0)
            records_counter_add(d->records, "repository_requests_total", labels, bytes_counted(q->codes[i]), NULL);
    }
    request_times(d, repository, kind, q);
}

static void repository_facts(struct decide *d, const char *name, const struct mover_figures *f)
{
    const struct repository_figures *r = &f->repository;
    const struct {
        const char *gauge;
        int64_t n;
    } gauges[] = {{"repository_stored_bytes", r->stored},
                  {"repository_contents", r->contents},
                  {"repository_index_blobs", r->index_blobs},
                  {"repository_index_cache_bytes", r->index_cache},
                  {"repository_unreferenced_bytes", r->unreferenced}};
    add(d, "upload_bytes_total", one("repository", name), bytes_counted(r->uploaded));
    add(d, "download_bytes_total", one("repository", name), bytes_counted(r->downloaded));
    add(d, "repository_retries_total", one("repository", name), bytes_counted(r->retries));
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        if (gauges[i].n >= 0)
            counter_set(d, gauges[i].gauge, one("repository", name), bytes_counted(gauges[i].n));
    if (json_is_number(r->clock_skew_s) && isfinite(json_number_value(r->clock_skew_s)))
        counter_set(d, "repository_clock_skew_seconds", one("repository", name), json_number_value(r->clock_skew_s));
    for (unsigned i = 0; i < REQUESTS; i++)
        requests_of(d, name, request_kinds[i], &f->requests[i]);
}

/* What the repository holds since its last verification, and what it took for how much. */
static void backed_up(struct decide *d, const char *repository, const struct mover_result *r)
{
    CLEANUP_JSON json_t *labels = one("repository", repository);
    const double added = bytes_counted(r->uploaded);
    double stored;
    add(d, "repository_backed_up_bytes_total", one("repository", repository), bytes_counted(r->total));
    add(d, "repository_added_bytes_total", one("repository", repository), added);
    if (records_counter_get(d->records, "repository_stored_bytes", labels, &stored))
        add(d, "repository_stored_bytes", one("repository", repository), added);
}

static void verification_counted(struct decide *d, const char *repository, enum mover_outcome outcome,
                                 const struct mover_figures *f)
{
    const double contents = bytes_counted(f->contents), damages = bytes_counted(f->damages);
    add(d, "verify_errors_total", one("repository", repository), damages);
    if (outcome == MOVER_OK || damages > 0) {
        counter_set(d, "verify_last_end_timestamp_seconds", one("repository", repository), (double)decide_now(d) / 1e9);
        counter_set(d, "verify_last_damages", one("repository", repository), damages);
        counter_set(d, "verify_last_read_ratio", one("repository", repository),
                    contents > 0 ? bytes_counted(f->contents_read) / contents : 1);
    }
    if (outcome == MOVER_OK && !(damages > 0))
        counter_set(d, "verify_last_success_timestamp_seconds", one("repository", repository),
                    (double)(decide_now(d) / NS_PER_S));
}

void count_mover_ended(struct decide *d, const struct operation *op, const struct mover_report *end,
                       const struct mover_figures *f)
{
    const char *direction = count_direction(op->kind), *klass = class_of(op);
    const char *repository = op->policy->repository;
    add(d, "mover_exits_total", label_two("direction", direction, "cause", mover_outcome_name(end->outcome)), 1);
    if (end->outcome == MOVER_OOM)
        add(d, "mover_oom_total", NULL, 1);
    if (isfinite(end->cpu_seconds) && end->cpu_seconds < SECONDS_MAX)
        add(d, "mover_cpu_seconds_total", one("direction", direction), end->cpu_seconds);
    if (end->err.cls == ERR_SOURCE)
        add(d, "io_errors_total", one("op", "read"), 1);
    add(d, "io_errors_total", one("op", "read"), (double)json_array_size(f->bad_ranges));
    if (!f->there)
        return;
    count_stages(d->records, direction, f);
    data_path(d, klass, direction, f);
    /* A plugin keeps what it moves elsewhere. */
    if (f->repository.there && cfg_repository(d->world.cfg, repository))
        repository_facts(d, repository, f);
    if (!strcmp(direction, "backup") && end->outcome == MOVER_OK && cfg_repository(d->world.cfg, repository) &&
        !op->policy->mover[0])
        backed_up(d, repository, &f->result);
    if (!strcmp(direction, "verify"))
        verification_counted(d, repository, end->outcome, f);
}

/* ---- counters of earlier versions ---- */

struct old_counter {
    struct old_counter *next;
    char name[64];
    json_t *labels;
    double value;
};

/* With the words of the first version: the records' own. */
static bool has_old_words(const json_t *labels)
{
    return json_object_get(labels, "kind") != NULL;
}

static int collect_old(const char *name, const json_t *labels, double value, void *arg)
{
    struct old_counter **list = arg;
    if (!has_old_words(labels) && strcmp(count_labels_read(labels).klass, CLASS_OF_TARGET) != 0)
        return 0;
    struct old_counter *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    snprintf(c->name, sizeof c->name, "%s", name);
    c->labels = json_deep_copy(labels);
    c->value = value;
    c->next = *list;
    *list = c;
    return 0;
}

static void move_label(json_t *labels, const char *from, const char *to)
{
    json_t *v = json_object_get(labels, from);
    if (v)
        json_object_set(labels, to, v);
    json_object_del(labels, from);
}

static void use_new_words(const char *name, json_t *labels)
{
    move_label(labels, "kind", "direction");
    move_label(labels, "job", "schedule");
    move_label(labels, "outcome", "cause");
    if (json_object_get(labels, "result")) {
        char result[32];
        snprintf(result, sizeof result, "%s",
                 count_result((enum outcome)enum_value(&outcome_names, count_labels_read(labels).result)));
        jset_str(labels, "result", result);
    }
    if (!strcmp(name, "operations_total")) /* why was not counted then */
        jset_str(labels, "reason",
                 strcmp(count_labels_read(labels).result, "failed") ? "" : err_class_name(ERR_GENERIC));
}

static void rename_counter(struct records *r, const struct old_counter *c)
{
    CLEANUP_JSON json_t *labels = json_deep_copy(c->labels);
    const char *name = strcmp(c->name, "stage_stalled_seconds_total") ? c->name : "stage_stall_seconds_total";
    if (has_old_words(c->labels))
        use_new_words(name, labels);
    if (!strcmp(count_labels_read(labels).klass, CLASS_OF_TARGET))
        jset_str(labels, "class", "");
    if (records_counter_add(r, name, labels, c->value, NULL) == 0)
        records_counter_remove(r, c->name, c->labels, NULL);
}

void count_migrate(struct records *r)
{
    struct old_counter *list = NULL;
    records_counters(r, collect_old, &list, NULL);
    while (list) {
        struct old_counter *c = list;
        list = c->next;
        rename_counter(r, c);
        json_decref(c->labels);
        free(c);
    }
}
