/* SPDX-License-Identifier: GPL-2.0-or-later */
/* answers.c - see answers.h and docs/control.md */
#include "daemon/answers/answers.h"
#include "base/cleanup.h"
#include "base/json.h"

#include <string.h>

static void copy(json_t *to, const char *key, const json_t *from, const char *member)
{
    json_t *v = json_object_get(from, member);
    if (v && !json_is_null(v) && !(json_is_string(v) && !json_string_value(v)[0]))
        json_object_set(to, key, v);
}

static void copy_ns(json_t *to, const char *key, int64_t ns)
{
    if (ns > 0)
        jset_int(to, key, ns);
}

static void copy_text(json_t *to, const char *key, const char *text)
{
    if (text[0])
        jset_str(to, key, text);
}

/* What the documented members do not say; never what is long or secret. */
static json_t *operation_details(const json_t *d)
{
    static const char *const members[] = {
        "exposure", "native",        "native_doc",  "target_name",   "from",          "of",
        "attempts", "identity",      "snapshot_ns", "snapshot_ms",   "group_skew_ms", "frozen_ms",
        "cancel",   "cancel_reason", "outcome",     "cleanup_error", "reason",        "do",
        "policy",   "into",          "own",         "prune_rounds",  "job",           "rebuilt",
        "size",     "snapshot",      "plugin_id"};
    json_t *o = json_object();
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy(o, members[i], d, members[i]);
    return o;
}

json_t *answer_operation(const struct operation *op)
{
    CLEANUP_JSON json_t *d = operation_to_json(op);
    json_t *o = json_object();
    jset_str(o, "id", op->id);
    jset_str(o, "kind", op_kind_name(op->kind));
    jset_str(o, "state", op_state_name(op->state));
    copy_text(o, "backup", op->parent);
    copy_text(o, "volume", op->volume->name);
    copy_text(o, "volume_id", op->volume_id);
    copy_text(o, "class", op->own->name);
    copy_text(o, "repository", op->policy->repository);
    copy(o, "does", json_array_get(op->does, 0), "verb");
    copy_text(o, "deletes", op->deletes);
    jset_int(o, "created_ns", op->created_ns);
    copy_ns(o, "started_ns", op->started_ns);
    copy_ns(o, "ended_ns", op->completed_ns);
    if (op->attempt)
        jset_int(o, "attempt", op->attempt + 1);
    if (!op_state_terminal(op->state) && json_is_object(op->progress))
        json_object_set(o, "progress", op->progress);
    if (op->state == OP_SKIPPED)
        copy_text(o, "why", op->skip_reason);
    else if (!op_state_terminal(op->state))
        copy_text(o, "why", op->cleanup_error[0] ? op->cleanup_error : op->waiting);
    copy(o, "error", d, "error");
    copy(o, "mover", d, "mover");
    copy(o, "result", d, "result");
    json_object_set_new(o, "details", operation_details(d));
    return o;
}

const char *velero_phase(enum backup_state state, bool degraded)
{
    static const struct {
        const char *velero, *degraded;
    } names[BACKUP_STATES] = {
        [BACKUP_QUEUED] = {"Queued", "Queued"},
        [BACKUP_SNAPSHOTTING] = {"InProgress", "InProgress"},
        [BACKUP_MOVING] = {"WaitingForPluginOperations", "WaitingForPluginOperationsPartiallyFailed"},
        [BACKUP_FINALIZING] = {"Finalizing", "FinalizingPartiallyFailed"},
        [BACKUP_DELETING] = {"Deleting", "Deleting"},
        [BACKUP_COMPLETED] = {"Completed", "PartiallyFailed"},
        [BACKUP_PARTIALLY_FAILED] = {"PartiallyFailed", "PartiallyFailed"},
        [BACKUP_FAILED] = {"Failed", "Failed"},
        [BACKUP_CANCELED] = {"Failed", "Failed"},
    };
    const char *name = degraded ? names[state].degraded : names[state].velero;
    return name ? name : "";
}

struct sum {
    json_t *volumes, *operations;
    unsigned n, completed, failed;
    int64_t size, fresh;
};

static int add_operation(const struct operation *op, void *arg)
{
    struct sum *s = arg;
    if (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE)
        return 0;
    s->n++;
    s->completed += op->state == OP_COMPLETED;
    s->failed += op->state == OP_FAILED || op->state == OP_CANCELED;
    s->size += jint(op->result, "totalBytes");
    s->fresh += jint(op->result, "incrementalBytes");
    if (json_array_size(s->volumes) < 1000)
        json_array_append_new(s->volumes, json_string(op->volume->name));
    if (s->operations)
        json_array_append_new(s->operations, answer_operation(op));
    return 0;
}

json_t *answer_backup(struct records *r, const struct backup *b, bool with_operations)
{
    CLEANUP_JSON json_t *d = backup_to_json(b);
    const struct operation_filter f = {.parent = b->id};
    struct sum s = {.volumes = json_array(), .operations = with_operations ? json_array() : NULL};
    json_t *o = json_object(), *details = json_object();
    const bool deleting = b->deleting[0] != '\0';
    const enum backup_state state = deleting ? BACKUP_DELETING : b->state;
    operation_each(r, &f, add_operation, &s, NULL);
    jset_str(o, "id", b->id);
    jset_str(o, "kind", b->kind == KIND_NONE ? "backup" : op_kind_name(b->kind));
    jset_str(o, "state", backup_state_name(state));
    copy_text(o, "velero", velero_phase(state, b->degraded_phase));
    copy_text(o, "job", b->job);
    copy_text(o, "description", b->description);
    jset_bool(o, "degraded", b->degraded_phase || b->degraded);
    jset_int(o, "created_ns", b->created_ns);
    copy_ns(o, "snapshots_done_ns", b->snapshots_done_ns);
    copy_ns(o, "started_ns", b->started_ns);
    copy_ns(o, "ended_ns", b->completed_ns);
    json_object_set_new(o, "volumes", s.volumes);
    jset_int(o, "total", s.n);
    jset_int(o, "completed", s.completed);
    jset_int(o, "failed", s.failed);
    jset_int(o, "size", s.size);
    jset_int(o, "new", s.fresh);
    if (!backup_state_terminal(b->state)) {
        if (b->position)
            jset_int(o, "position", b->position);
        copy_text(o, "blocked_by", b->blocked_by);
    }
    copy_text(o, "target", b->target);
    copy_text(o, "from", restore_from_name(b->from));
    copy(o, "error", d, "error");
    if (deleting) {
        CLEANUP(operation_clear) struct operation del;
        if (operation_get(r, b->deleting, &del, NULL) == 0)
            copy_text(o, "why", del.waiting);
    }
    if (s.operations)
        json_object_set_new(o, "operations", s.operations);
    static const char *const members[] = {"skipped",   "counts", "bytes",  "failed_volumes", "errors",  "origin",
                                          "caught_up", "of",     "cancel", "rebuilt",        "deleting"};
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy(details, members[i], d, members[i]);
    json_object_set_new(o, "details", details);
    return o;
}

json_t *answer_native(const struct native_row *n)
{
    CLEANUP_JSON json_t *d = native_row_to_json(n);
    json_t *o = json_object(), *details = json_object();
    jset_str(o, "alias", n->id);
    jset_str(o, "volume", n->volume->name[0] ? n->volume->name : n->volume_id);
    copy_text(o, "volume_id", n->volume_id);
    copy_text(o, "class", n->klass->name);
    copy_text(o, "backup", n->parent);
    jset_str(o, "state", native_state_name(n->state));
    jset_int(o, "created_ns", n->native->created_ns ? n->native->created_ns : n->created_ns);
    copy(o, "size", jobj(d, "native"), "size");
    copy(o, "used", jobj(d, "native"), "used");
    jset_bool(o, "hold", n->hold.held);
    copy_text(o, "note", n->hold.note);
    copy_text(o, "handle", n->native->handle);
    static const char *const members[] = {
        "moved",  "moved_verified", "snapshot_only", "failed",      "effective_retain", "job",
        "driver", "adopted",        "remove_error",  "why_removed", "snapshot"};
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++)
        copy(details, members[i], d, members[i]);
    json_object_set_new(o, "details", details);
    return o;
}

/* ---- from the counters ---- */

static bool counted(struct records *r, const char *name, const json_t *labels, double scale, int64_t *value)
{
    double d;
    if (!labels || !records_counter_get(r, name, labels, &d) || !(d >= 0 && d * scale < 9e18))
        return false;
    *value = (int64_t)(d * scale);
    return true;
}

void answer_repository_counts(struct records *r, json_t *repository)
{
    CLEANUP_JSON json_t *labels = json_pack("{s:s}", "repository", jstr(repository, "name"));
    int64_t stored, backed_up, added, at_ns, damages = 0;
    double ratio = 1;
    if (counted(r, "repository_stored_bytes", labels, 1, &stored))
        jset_int(repository, "stored", stored);
    if (counted(r, "repository_backed_up_bytes_total", labels, 1, &backed_up) &&
        counted(r, "repository_added_bytes_total", labels, 1, &added)) {
        jset_int(repository, "backed_up", backed_up);
        jset_int(repository, "added", added);
        if (added > 0)
            json_object_set_new(repository, "dedup", json_real((double)backed_up / (double)added));
    }
    if (!counted(r, "verify_last_end_timestamp_seconds", labels, 1e9, &at_ns))
        return;
    counted(r, "verify_last_damages", labels, 1, &damages);
    if (!records_counter_get(r, "verify_last_read_ratio", labels, &ratio))
        ratio = 1;
    json_object_set_new(
        repository, "verified",
        json_pack("{s:I, s:I, s:f}", "at_ns", (json_int_t)at_ns, "damages", (json_int_t)damages, "read_ratio", ratio));
}

/* Adds `last_result` to a job: how its last backup ended, and when. */
static void add_result(struct records *r, json_t *job)
{
    static const char *const results[][2] = {{"completed", "Completed"},
                                             {"partially_failed", "PartiallyFailed"},
                                             {"failed", "Failed"},
                                             {"canceled", "Canceled"}};
    const char *state = NULL;
    int64_t at_ns = -1;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        CLEANUP_JSON json_t *labels = json_pack("{s:s, s:s}", "schedule", jstr(job, "job"), "result", results[i][0]);
        int64_t then;
        if (counted(r, "backup_last_end_timestamp_seconds", labels, 1e9, &then) && then > at_ns) {
            at_ns = then;
            state = results[i][1];
        }
    }
    if (state)
        json_object_set_new(job, "last_result", json_pack("{s:s, s:I}", "state", state, "ended_ns", (json_int_t)at_ns));
}

/* ---- jobs ---- */

/* Its last run, and what became of its last start. */
static json_t *job_past(const char *name, int64_t last_ns, const char *backup, const struct job_failure *failed,
                        const json_t *missing, struct records *r)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    json_t *o = json_object();
    jset_str(o, "job", name);
    jset_int(o, "last", last_ns);
    copy_text(o, "last_backup", backup);
    if (backup[0] && backup_get(r, backup, &b, NULL) == 0)
        jset_str(o, "last_state", backup_state_name(b.state));
    add_result(r, o);
    if (failed)
        json_object_set_new(o, "failed",
                            json_pack("{s:s, s:s, s:I}", "message", failed->message, "hint", failed->hint, "at_ns",
                                      (json_int_t)failed->at_ns));
    if (json_array_size(missing))
        json_object_set(o, "missing", (json_t *)(uintptr_t)missing);
    return o;
}

static json_t *job_json(const struct job_view *v, struct records *r)
{
    json_t *o = job_past(v->name, v->last_ns, v->last_backup, v->failed, v->missing, r);
    jset_str(o, "on_calendar", v->on_calendar);
    jset_int(o, "next", v->next_ns);
    jset_bool(o, "due", v->due);
    jset_bool(o, "paused", v->paused);
    jset_bool(o, "elsewhere", v->elsewhere);
    copy_text(o, "idle_because", v->idle_because);
    jset_int(o, "since_ns", v->since_ns);
    jset_int(o, "interval_s", v->interval_s);
    jset_int(o, "jitter_s", v->jitter_s);
    return o;
}

json_t *answer_jobs(const struct schedule *s, struct records *r, int64_t now_ns)
{
    json_t *list = json_array();
    unsigned n;
    struct job_view *v = schedule_views(s, now_ns, &n);
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list, job_json(&v[i], r));
    free(v);
    return list;
}

struct past {
    json_t *list;
    struct records *records;
};

static int add_past(const struct job_run *m, void *arg)
{
    const struct past *p = arg;
    json_t *o =
        job_past(m->id, m->last_run_ns, m->last_backup, m->failed.there ? &m->failed : NULL, m->missing, p->records);
    jset_str(o, "on_calendar", m->on_calendar);
    jset_str(o, "idle_because", "the configuration cannot be read");
    return json_array_append_new(p->list, o);
}

json_t *answer_jobs_offline(const struct cfg *c, struct records *r, int64_t now_ns)
{
    const struct schedule_opts o = {.records = r};
    struct schedule *s = NULL;
    json_t *list = NULL;
    if (c && schedule_new(&s, &o, NULL) == 0 && schedule_apply(s, c, now_ns, NULL) == 0)
        list = answer_jobs(s, r, now_ns);
    schedule_free(s);
    if (list)
        return list;
    struct past p = {json_array(), r};
    job_run_each(r, NULL, add_past, &p, NULL);
    return p.list;
}
