/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backup.c - the phases of a backup: Queued, Snapshotting, Moving, Finalizing, and how it ends
 *
 * A restore is a backup record with one operation and without phase 1. Finalizing needs no slot: repository retention
 * by an admin operation, the post-backup hook, the summary, the record in the repository (record.c).
 *
 * Crash points: engine-backup-snapshotting, engine-backup-moving, engine-backup-finalizing, engine-backup-decided,
 * engine-backup-ended.
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_restore(const struct backup *b)
{
    return b->kind == KIND_RESTORE;
}

/* ---- counting ---- */

struct run_tally {
    struct run_tally *next;
    char *backup;   /* id */
    uint64_t after; /* number of the last operation that was read */
    unsigned seen;  /* of this part */
    bool whole;
    unsigned n, completed, failed, canceled, skipped;
    unsigned alone; /* completed, by a native snapshot alone */
    bool degraded;
    char degraded_why[1200]; /* of the first one that has completed all the same */
    struct backup_bytes bytes;
    unsigned read_fully[FULL_REASONS]; /* of so many all data was read, by reason (CF-10) */
    struct strs failed_names;
    struct op_error first;
    json_t *errors;
    json_t *expire;        /* repository -> [{"source"}]: retention that its volumes' keep-* ask for */
    json_t *repositories;  /* that its outcome is recorded in */
    json_t *plugins;       /* operations whose mover plugin is asked for it */
    struct operation hook; /* the first one whose hook after the run has not run */
    bool hook_found;
};

static const char *post_hook_of(const struct operation *op)
{
    return operation_is_restore(op) ? op->policy->hook_post_restore : op->policy->hook_post_backup;
}

static void add_expiry(struct run_tally *t, const struct operation *op)
{
    const struct policy *policy = op->policy;
    if (op->kind != KIND_BACKUP || op->state != OP_COMPLETED || !policy->move_data || !policy_keeps(&policy->keep))
        return;
    if (policy->mover[0]) {
        json_array_append_new(t->plugins, json_string(op->id));
        return;
    }
    json_t *list = json_object_get(t->expire, policy->repository);
    char source[SOURCE_TEXT];
    if (!list) {
        list = json_array();
        json_object_set_new(t->expire, policy->repository, list);
    }
    operation_source(op, source);
    json_array_append_new(list, json_pack("{s:s}", "source", source));
}

static int add_up(const struct operation *op, void *arg)
{
    struct run_tally *t = arg;
    t->after = op->seq;
    t->seen++;
    if (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE)
        return 0;
    if (!t->hook_found && post_hook_of(op)[0] && !op->post_hook_done)
        t->hook_found = operation_copy(&t->hook, op) == 0;
    add_expiry(t, op);
    backup_record_into(op, t->repositories);
    t->n++;
    t->degraded |= op->degraded;
    if (!op_state_terminal(op->state))
        return 0;
    result_bytes_add(&t->bytes.total, op->result.total);
    result_bytes_add(&t->bytes.incremental, op->result.incremental);
    result_bytes_add(&t->bytes.uploaded, op->result.uploaded);
    t->read_fully[op->full_reason]++;
    if (op->state == OP_COMPLETED) {
        t->completed++;
        if (op->degraded_why[0] && !t->degraded_why[0])
            snprintf(t->degraded_why, sizeof t->degraded_why, "%s: %.900s", op->volume->name, op->degraded_why);
        t->alone += op->kind == KIND_BACKUP && !op->policy->move_data;
    } else if (op->state == OP_SKIPPED) {
        t->skipped++;
    } else {
        if (op->state == OP_CANCELED)
            t->canceled++;
        else
            t->failed++;
        strs_add(&t->failed_names, op->volume->name);
        if (op->error.code) {
            if (!t->first.code)
                op_error_copy(&t->first, &op->error);
            json_array_append_new(t->errors, json_pack("{s:s,s:s,s:o}", "operation", op->id, "volume", op->volume->name,
                                                       "error", op_error_to_json(&op->error)));
        }
    }
    return 0;
}

static void tally_free(struct run_tally *t)
{
    strs_clear(&t->failed_names);
    op_error_clear(&t->first);
    json_decref(t->errors);
    json_decref(t->expire);
    json_decref(t->plugins);
    json_decref(t->repositories);
    operation_clear(&t->hook);
    free(t->backup);
    free(t);
}

void tallies_forget(struct decide *d)
{
    for (struct run_tally *t = d->tallies, *next; t; t = next) {
        next = t->next;
        tally_free(t);
    }
    d->tallies = NULL;
}

static void tally_forget(struct decide *d, const struct backup *b)
{
    for (struct run_tally **at = &d->tallies, *t; (t = *at); at = &t->next) {
        if (strcmp(t->backup, b->id) != 0)
            continue;
        *at = t->next;
        tally_free(t);
        return;
    }
}

static struct run_tally *tally_of(struct decide *d, const struct backup *b)
{
    for (struct run_tally *t = d->tallies; t; t = t->next)
        if (!strcmp(t->backup, b->id))
            return t;
    struct run_tally *t = calloc(1, sizeof *t);
    char *id = strdup(b->id);
    if (!t || !id) {
        free(t);
        free(id);
        return NULL;
    }
    *t = (struct run_tally){.next = d->tallies,
                            .backup = id,
                            .first = OP_ERROR_INIT,
                            .errors = json_array(),
                            .expire = json_object(),
                            .plugins = json_array(),
                            .repositories = json_object()};
    operation_init(&t->hook);
    return d->tallies = t;
}

#define TALLY_PART 100 /* operations that are read in one turn: they are finished, and on disk */

/* False: not all were read yet. */
static bool tally_up(struct decide *d, const struct backup *b, struct run_tally *t)
{
    const struct operation_filter f = {.parent = b->id, .limit = TALLY_PART, .after = t->after};
    if (t->whole)
        return true;
    t->seen = 0;
    if (operation_each(d->records, &f, add_up, t, NULL) < 0) {
        tally_forget(d, b);
        return false;
    }
    t->whole = t->seen < TALLY_PART;
    if (!t->whole)
        decide_look_again(d, ROW_BACKUP, b->id);
    return t->whole;
}

/* ---- finalizing ---- */

static int stop_at_first(const struct operation *op, void *arg)
{
    (void)op;
    *(bool *)arg = true;
    return 1;
}

/* Its volumes' operations have ended: what is not finished is retention. */
static bool retention_runs(struct decide *d, const struct backup *b)
{
    const struct operation_filter f = {.parent = b->id, .live = true};
    bool found = false;
    operation_each(d->records, &f, stop_at_first, &found, NULL);
    return found;
}

/* plugin:NAME -> steps. */
static json_t *plugin_steps(struct decide *d, const struct run_tally *t)
{
    json_t *ret = json_object(), *steps;
    const json_t *v;
    size_t i;
    json_array_foreach(t->plugins, i, v)
    {
        struct err e = ERR_INIT;
        CLEANUP(operation_clear) struct operation op;
        operation_init(&op);
        if (operation_read(d, json_string_value(v), &op) < 0)
            continue;
        if (!(steps = json_object_get(ret, op.policy->mover)))
            json_object_set_new(ret, op.policy->mover, steps = json_array());
        if (plugin_retention_steps(d, &op, steps, &e) < 0)
            plan_log(d, LOG_LVL_WARNING, "%s: retention is left to the next backup: %s", operation_label(&op), e.msg);
    }
    return ret;
}

static bool plugin_retention_start(struct decide *d, const struct backup *b, const struct run_tally *t)
{
    CLEANUP_JSON json_t *of = plugin_steps(d, t);
    const char *mover;
    json_t *steps;
    bool started = false;
    json_object_foreach(of, mover, steps)
    {
        struct err e = ERR_INIT;
        char id[512];
        if (!json_array_size(steps))
            continue;
        if (plugin_admin_submit(d, KIND_ADMIN, mover, json_incref(steps), b->id, "admin-expire", id, &e) < 0)
            plan_log(d, LOG_LVL_WARNING, "%s: retention of %s is left to the next backup: %s", b->id, mover, e.msg);
        else
            started = true;
    }
    return started;
}

/* Retention where the volumes' keep-* ask for it, one admin operation per repository. True: it runs. */
static bool retention_start(struct decide *d, struct backup *b, const struct run_tally *t)
{
    const char *repo;
    json_t *list;
    bool started = false;
    json_object_foreach(t->expire, repo, list)
    {
        struct err e = ERR_INIT;
        char id[512];
        /* The mover has written keep-* into the source's policy; what is in force is Kopia's inheritance of it. */
        json_t *steps = json_pack("[{s:s,s:O,s:b}]", "verb", "expire", "sources", list, "dry_run", 0);
        if (admin_submit(d, repo, steps, b->id, "admin-expire", id, &e) < 0)
            plan_log(d, LOG_LVL_WARNING, "%s: retention of repository \"%s\" is left to the next backup: %s", b->id,
                     repo, e.msg);
        else
            started = true;
    }
    started |= plugin_retention_start(d, b, t);
    b->expired = true;
    backup_write(d, b);
    return started;
}

/* The hook of each volume that has one, one after the other. */
void backup_work_ended(struct decide *d, struct backup *b, enum work w, struct work_result *s)
{
    if (w == WORK_LOOK) {
        backup_look_ended(d, b, s);
        return;
    }
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (s->err.cls) {
        const char *stage = is_restore(b) ? "post-restore hook" : "post-backup hook";
        plan_log(d, LOG_LVL_WARNING, "%s: %s: %s", b->id, stage, s->err.msg);
        b->degraded = true;
        backup_error(d, b, stage, &s->err);
        backup_write(d, b);
    }
    if (operation_read(d, b->post_hook_operation, &op) == 0) {
        op.post_hook_done = true;
        operation_write(d, &op);
    }
    tally_forget(d, b); /* which hook is next */
}

/* True: none is left to be run. */
static bool post_hook(struct decide *d, struct backup *b, const struct run_tally *t)
{
    const struct operation *op = &t->hook;
    if (!t->hook_found)
        return true;
    int64_t timeout = op->policy->hook_timeout_s;
    json_t *in = json_pack("{s:s,s:s,s:s,s:s,s:o,s:s,s:s,s:I,s:s,s:s}", "program", post_hook_of(op), "phase",
                           is_restore(b) ? "post-restore" : "post-backup", "backup", b->id, "operation", op->id,
                           "volume", volume_desc_to_json(op->volume), "class", op->own->name, "job", op->job,
                           "timeout_s", (json_int_t)timeout, "result", op_state_name(op->state), "device",
                           is_restore(b) ? op->target_name : "");
    str_set(&b->post_hook_operation, op->id);
    if (backup_write(d, b) == 0)
        plan_work(d, ROW_BACKUP, b->id, WORK_RUN_HOOK, in, timeout + 10);
    else
        json_decref(in);
    return false;
}

/* PartiallyFailed names its volumes (AO-12). */
static enum outcome outcome_of(const struct run_tally *t, const struct backup *b)
{
    if (t->completed + t->skipped == t->n)
        return t->degraded || b->degraded ? OUTCOME_PARTIALLY_FAILED : OUTCOME_COMPLETED;
    if (t->canceled == t->n || (b->cancel && t->completed == 0))
        return OUTCOME_CANCELED;
    if (t->completed == 0)
        return OUTCOME_FAILED;
    return OUTCOME_PARTIALLY_FAILED;
}

static json_t *fully_read(const struct run_tally *t)
{
    json_t *o = NULL;
    for (unsigned i = FULL_NONE + 1; i < FULL_REASONS; i++) {
        if (t->read_fully[i] && !o)
            o = json_object();
        if (t->read_fully[i])
            json_object_set_new(o, full_reason_name((enum full_reason)i), json_integer(t->read_fully[i]));
    }
    return o;
}

static void backup_summary(struct decide *d, struct backup *b, const struct run_tally *t)
{
    b->counts.attempted = t->n;
    b->counts.completed = t->completed;
    b->counts.failed = t->failed;
    b->counts.canceled = t->canceled;
    b->counts.skipped = t->skipped;
    b->alone = t->alone;
    b->bytes.total = t->bytes.total;
    b->bytes.incremental = t->bytes.incremental;
    b->bytes.uploaded = t->bytes.uploaded;
    json_decref(b->read_fully);
    b->read_fully = fully_read(t);
    strs_clear(&b->failed_volumes);
    for (unsigned i = 0; i < t->failed_names.n; i++)
        strs_add(&b->failed_volumes, t->failed_names.v[i]);
    json_set(&b->errors, t->errors);
    struct err e = ERR_INIT;
    if (t->first.code && !b->error.code)
        op_error_copy(&b->error, &t->first);
    if (!b->error.code && t->degraded_why[0] && outcome_of(t, b) == OUTCOME_PARTIALLY_FAILED) {
        err_set(&e, ERR_PARTIAL, 0, "%s", t->degraded_why);
        backup_error(d, b, "backup", &e);
    }
}

static void backup_end_now(struct decide *d, struct backup *b)
{
    b->completed_ns = decide_now(d);
    count_backup_ended(d, b, b->outcome);
    if (backup_become(d, b, backup_state_of(b->outcome)) == 0) {
        plan_run_ended(d, b);
        plan_live_drop(d, b->id);
    }
    plan_crash_point(d, "engine-backup-ended");
}

/* From here on it cannot change; it is in the row before anybody records it elsewhere. */
static void decide_outcome(struct decide *d, struct backup *b, const struct run_tally *t)
{
    b->outcome = outcome_of(t, b);
    backup_summary(d, b, t);
    if (is_restore(b) || !backup_record(d, b, t->repositories)) {
        backup_end_now(d, b);
    } else if (backup_write(d, b) == 0) {
        plan_crash_point(d, "engine-backup-decided");
    }
}

/* Retention, the hooks, another look at the native snapshots, the outcome, its record, the end. */
static void backup_finalize(struct decide *d, struct backup *b)
{
    if (b->outcome != OUTCOME_NONE) {
        if (backup_record_waits(d, b)) {
            if (b->cancel)
                backup_record_hurry(d, b);
            return;
        }
        if (!b->disproved)
            backup_end_now(d, b);
        if (backup_state_terminal(b->state) || !backup_record_again(d, b))
            return;
    }
    struct run_tally *t = b->expired && retention_runs(d, b) ? NULL : tally_of(d, b);
    if (!t || !tally_up(d, b, t) || (!b->expired && retention_start(d, b, t)) || !post_hook(d, b, t) ||
        (!is_restore(b) && !backup_looked(d, b)))
        return;
    decide_outcome(d, b, t);
    tally_forget(d, b);
}

/* ---- the function ---- */

static int cancel_op(const struct operation *op, void *arg)
{
    struct decide *d = arg;
    CLEANUP(operation_clear) struct operation fresh;
    operation_init(&fresh);
    /* In Finalizing also retention, which is left to the next backup. */
    if (op->cancel || (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE && op->kind != KIND_ADMIN))
        return 0;
    if (operation_read(d, op->id, &fresh) == 0)
        operation_ask_cancel(d, &fresh, "its backup was canceled");
    return 0;
}

/* How its operations stand; NULL: not known. */
static const struct board_run *operations_of(struct decide *d, const struct backup *b)
{
    const struct operation_filter failed = {.parent = b->id, .state = OP_FAILED},
                                  canceled = {.parent = b->id, .state = OP_CANCELED};
    struct board_run *r = board_run(d->board, b->id);
    uint64_t n_failed = 0, n_canceled = 0;
    if (r && !r->counted) {
        if (operation_count(d->records, &failed, &n_failed, NULL) < 0 ||
            operation_count(d->records, &canceled, &n_canceled, NULL) < 0)
            return NULL;
        r->failed = (unsigned)n_failed;
        r->canceled = (unsigned)n_canceled;
        r->counted = true;
        r->summed = r->live == b->volume_ids.n; /* none has ended */
    }
    return r;
}

static int add_ended(const struct operation *op, void *arg)
{
    if (op_state_terminal(op->state))
        board_ended_add(arg, op);
    return 0;
}

bool backup_ended_operations(struct decide *d, const struct backup *b, struct board_ended *ret)
{
    const struct operation_filter f = {.parent = b->id};
    struct board_run *r = backup_state_terminal(b->state) ? NULL : board_run(d->board, b->id);
    struct board_ended sum = {.n = 0};
    if (!r)
        return false;
    if (!r->summed && operation_each(d->records, &f, add_ended, &sum, NULL) >= 0) {
        r->ended = sum;
        r->summed = true;
    }
    *ret = r->ended;
    return r->summed;
}

bool backup_only_waits(struct decide *d, const char *id)
{
    const struct backup *b = backup_peek(d->records, id);
    const struct board_run *r = b ? board_run(d->board, id) : NULL;
    return r && r->counted && b->state == BACKUP_MOVING && !b->cancel && r->live && !r->snapshotting &&
           (b->degraded_phase || !(r->failed || r->canceled));
}

void decide_backup(struct decide *d, struct backup *b)
{
    if (backup_state_terminal(b->state))
        backup_record_again(d, b);
    if (backup_state_terminal(b->state) || busy(d, b->id))
        return;
    if (b->cancel) {
        struct operation_filter f = {.parent = b->id, .live = true};
        operation_each(d->records, &f, cancel_op, d, NULL);
    }
    /* Until Finalizing a backup has no operations but those of its volumes. */
    const struct board_run *r = operations_of(d, b);
    if (!r)
        return;
    const bool snapshotting = r->snapshotting > 0;
    const bool all_ended = r->live == 0, degraded = r->failed || r->canceled;
    /* Seen while others go on (AO-13). In Finalizing the repository's retention is counted as well: it degrades no
     * data. */
    if (degraded && !b->degraded_phase && b->state != BACKUP_FINALIZING) {
        b->degraded_phase = true;
        backup_write(d, b);
    }
    if (b->state == BACKUP_QUEUED) {
        if (all_ended)
            backup_become(d, b, BACKUP_FINALIZING); /* else begin_backups() sees to it */
    } else if (b->state == BACKUP_SNAPSHOTTING || b->state == BACKUP_MOVING) {
        /* Later, too, where one of them is tried again without a native snapshot. */
        bool phase_1 = !is_restore(b) && (b->state == BACKUP_SNAPSHOTTING || snapshotting);
        bool snapshots_done = !phase_1 || decide_snapshots(d, b);
        if (all_ended) {
            if (backup_become(d, b, BACKUP_FINALIZING) == 0)
                plan_crash_point(d, "engine-backup-finalizing");
        } else if (snapshots_done && b->state == BACKUP_SNAPSHOTTING) {
            if (!b->retry_of[0])
                b->snapshots_done_ns = decide_now(d); /* the point in time that can be restored (AO-42) */
            if (backup_become(d, b, BACKUP_MOVING) == 0)
                plan_crash_point(d, "engine-backup-moving");
        }
    } else if (b->state == BACKUP_FINALIZING) {
        backup_finalize(d, b);
    }
}
