/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-backup.c - the phases of a backup: Queued, Snapshotting, Moving, Finalizing, and how it ends
 *
 * A restore is a backup record with one operation and without phase 1. Finalizing needs no slot: repository retention
 * by an admin operation, the post-backup hook, the summary.
 *
 * Crash points: engine-backup-snapshotting, engine-backup-moving, engine-backup-finalizing, engine-backup-ended.
 */
#include "base/crash.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/engine/hooks.h"

#include <errno.h>
#include <string.h>

static bool is_restore(const struct backup *b)
{
    return b->kind == KIND_RESTORE;
}

/* ---- may it begin? ---- */

struct blockers {
    const struct backup *b;
    unsigned running, position;
    char by[192];
};

/* Texts are shared: equal ones have one address. */
static bool overlap(const struct backup *a, const struct backup *b)
{
    for (unsigned i = 0; i < a->volume_ids.n; i++)
        for (unsigned k = 0; k < b->volume_ids.n; k++)
            if (a->volume_ids.v[i] == b->volume_ids.v[k])
                return true;
    return false;
}

static int find_blocker(const struct backup *r, void *arg)
{
    struct blockers *x = arg;
    if (!strcmp(r->id, x->b->id) || is_restore(r))
        return 0;
    if (r->state == BACKUP_SNAPSHOTTING)
        x->running++;
    bool queued = r->state == BACKUP_QUEUED;
    if (queued && r->seq > x->b->seq)
        return 0;
    x->position += queued;
    /* Never before an earlier one with the same volumes: no starvation (AO-47). */
    if (!x->by[0] && overlap(r, x->b))
        snprintf(x->by, sizeof x->by, "%s", r->id);
    return 0;
}

static void begin(struct engine *g, struct backup *b)
{
    struct blockers x = {.b = b};
    struct backup_filter live = {.live = true};
    if (backup_each(g->records, &live, find_blocker, &x, NULL) < 0)
        return;
    bool full = !x.by[0] && x.running >= cfg_daemon(g->cfg)->concurrent_backups;
    if (x.by[0] || full) {
        if (strcmp(b->blocked_by, x.by) != 0 || b->position != x.position) {
            str_set(&b->blocked_by, x.by);
            b->position = x.position;
            backup_write(g, b);
        }
        return;
    }
    str_clear(&b->blocked_by);
    b->position = 0;
    b->started_ns = now_ns();
    if (backup_become(g, b, is_restore(b) ? BACKUP_MOVING : BACKUP_SNAPSHOTTING) == 0)
        crash_point("engine-backup-snapshotting");
    engine_kick(g);
}

/* ---- counting ---- */

struct tally {
    unsigned n, completed, failed, canceled, skipped, admin_live;
    bool degraded;
    struct backup_bytes bytes;
    struct strs failed_names;
    struct op_error first;
    json_t *errors;
};

static int add_up(const struct operation *op, void *arg)
{
    struct tally *t = arg;
    if (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE) {
        t->admin_live += !op_state_terminal(op->state);
        return 0;
    }
    t->n++;
    t->degraded |= op->degraded;
    if (!op_state_terminal(op->state))
        return 0;
    t->bytes.total += jint(op->result, "totalBytes");
    t->bytes.incremental += jint(op->result, "incrementalBytes");
    t->bytes.uploaded += jint(op->result, "uploadedBytes");
    if (op->state == OP_COMPLETED)
        t->completed++;
    else if (op->state == OP_SKIPPED)
        t->skipped++;
    else {
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

static int tally_up(struct engine *g, const struct backup *b, struct tally *t)
{
    struct operation_filter f = {.parent = b->id};
    *t = (struct tally){.first = OP_ERROR_INIT, .errors = json_array()};
    return operation_each(g->records, &f, add_up, t, NULL);
}

static void tally_clear(struct tally *t)
{
    strs_clear(&t->failed_names);
    op_error_clear(&t->first);
    json_decref(t->errors);
}

/* ---- finalizing ---- */

struct expiry {
    json_t *by_repository; /* repository -> [{"source"}] */
};
static int collect_keep(const struct operation *op, void *arg)
{
    struct expiry *x = arg;
    const struct policy *policy = op->policy;
    if (op->kind != KIND_BACKUP || op->state != OP_COMPLETED || !policy->move_data || policy->mover[0] ||
        !policy_keeps(&policy->keep))
        return 0;
    json_t *list = jarr(x->by_repository, policy->repository);
    char source[700];
    if (!list) {
        list = json_array();
        json_object_set_new(x->by_repository, policy->repository, list);
    }
    snprintf(source, sizeof source, "snapferry@%s:/%s", op->own->node, op->volume_id);
    return json_array_append_new(list, json_pack("{s:s}", "source", source));
}

/* Retention where the volumes' keep-* ask for it, one admin operation per repository. True when it is done. */
static bool finalize_retention(struct engine *g, struct backup *b)
{
    struct expiry x = {json_object()};
    struct operation_filter f = {.parent = b->id};
    const char *repo;
    json_t *list;
    bool started = false;
    if (b->expired) {
        json_decref(x.by_repository);
        struct tally t;
        tally_up(g, b, &t);
        bool done = t.admin_live == 0;
        tally_clear(&t);
        return done;
    }
    operation_each(g->records, &f, collect_keep, &x, NULL);
    json_object_foreach(x.by_repository, repo, list)
    {
        struct err e = ERR_INIT;
        char id[512];
        /* The mover has written keep-* into the source's policy; what is in force is Kopia's inheritance of it. */
        json_t *steps = json_pack("[{s:s,s:O,s:b}]", "verb", "expire", "sources", list, "dry_run", 0);
        if (admin_submit(g, repo, steps, b->id, "admin-expire", id, &e) < 0)
            log_warning("%s: retention of repository \"%s\" is left to the next backup: %s", b->id, repo, e.msg);
        else
            started = true;
    }
    json_decref(x.by_repository);
    b->expired = true;
    backup_write(g, b);
    return !started;
}

/* The hook of each volume that has one, one after the other. */
static void post_backup_done(struct engine *g, struct backup *b, struct step_result *s)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (s->err.cls) {
        log_warning("%s: the hook after it: %s", b->id, s->err.msg);
        b->degraded = true;
        backup_error(b, "post-backup hook", &s->err);
        backup_write(g, b);
    }
    if (operation_read(g, b->post_hook_operation, &op) == 0) {
        op.post_hook_done = true;
        operation_write(g, &op);
    }
}

struct find_hook {
    struct operation op;
    bool found;
};
static const char *post_hook_of(const struct operation *op)
{
    return operation_is_restore(op) ? op->policy->hook_post_restore : op->policy->hook_post_backup;
}
static int find_post_hook(const struct operation *op, void *arg)
{
    struct find_hook *h = arg;
    if (!post_hook_of(op)[0] || op->post_hook_done)
        return 0;
    h->found = operation_copy(&h->op, op) == 0;
    return 1;
}

static bool post_hook(struct engine *g, struct backup *b)
{
    struct find_hook h = {.found = false};
    struct operation_filter f = {.parent = b->id};
    struct err e = ERR_INIT;
    bool done = true;
    operation_init(&h.op);
    operation_each(g->records, &f, find_post_hook, &h, NULL);
    if (!h.found)
        return true;
    int64_t timeout = h.op.policy->hook_timeout_s;
    json_t *in = json_pack("{s:s,s:s,s:s,s:s,s:o,s:s,s:I,s:s}", "program", post_hook_of(&h.op), "phase",
                           is_restore(b) ? "post-restore" : "post-backup", "backup", b->id, "operation", h.op.id,
                           "volume", volume_desc_to_json(h.op.volume), "class", h.op.own->name, "timeout_s",
                           (json_int_t)timeout, "result", op_state_name(h.op.state));
    str_set(&b->post_hook_operation, h.op.id);
    if (backup_write(g, b) < 0)
        json_decref(in);
    else if (backup_work(g, b, "post hook of", hook_step, in, timeout + 10, post_backup_done, &e) < 0)
        log_warning("%s: %s", b->id, e.msg);
    else
        done = false;
    operation_clear(&h.op);
    return done;
}

/* PartiallyFailed names its volumes (AO-12). */
static enum outcome outcome_of(const struct tally *t, const struct backup *b)
{
    if (t->completed + t->skipped == t->n)
        return t->degraded || b->degraded ? OUTCOME_PARTIALLY_FAILED : OUTCOME_COMPLETED;
    if (t->canceled == t->n || (b->cancel && t->completed == 0))
        return OUTCOME_CANCELED;
    if (t->completed == 0)
        return OUTCOME_FAILED;
    return OUTCOME_PARTIALLY_FAILED;
}

static void summary(struct backup *b, const struct tally *t)
{
    b->counts.attempted = t->n;
    b->counts.completed = t->completed;
    b->counts.failed = t->failed;
    b->counts.canceled = t->canceled;
    b->counts.skipped = t->skipped;
    b->bytes.total = t->bytes.total;
    b->bytes.incremental = t->bytes.incremental;
    b->bytes.uploaded = t->bytes.uploaded;
    strs_clear(&b->failed_volumes);
    for (unsigned i = 0; i < t->failed_names.n; i++)
        strs_add(&b->failed_volumes, t->failed_names.v[i]);
    json_set(&b->errors, t->errors);
    if (t->first.code && !b->error.code)
        op_error_copy(&b->error, &t->first);
}

static void end(struct engine *g, struct backup *b)
{
    struct tally t;
    if (tally_up(g, b, &t) < 0) {
        tally_clear(&t);
        return;
    }
    if (post_hook(g, b)) {
        enum outcome outcome = outcome_of(&t, b);
        summary(b, &t);
        b->completed_ns = now_ns();
        records_counters_hold(g->records);
        count_backup_ended(g, b, outcome);
        if (backup_become(g, b, backup_state_of(outcome)) == 0) {
            journal_run(b);
            live_drop(g, b->id);
        }
        records_counters_settle(g->records);
        crash_point("engine-backup-ended");
    }
    tally_clear(&t);
}

/* ---- the function ---- */

static int cancel_op(const struct operation *op, void *arg)
{
    struct engine *g = arg;
    CLEANUP(operation_clear) struct operation fresh;
    operation_init(&fresh);
    if (op->cancel || (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE))
        return 0;
    if (operation_read(g, op->id, &fresh) == 0)
        operation_cancel(g, &fresh, "its backup was cancelled");
    return 0;
}

static int count_ops(struct engine *g, const struct backup *b, enum op_state state, bool live, uint64_t *n)
{
    struct operation_filter f = {.parent = b->id, .state = state, .live = live};
    return operation_count(g->records, &f, n, NULL);
}

static void reconcile(struct engine *g, struct backup *b)
{
    if (b->cancel) {
        struct operation_filter f = {.parent = b->id, .live = true};
        operation_each(g->records, &f, cancel_op, g, NULL);
    }
    /* Until Finalizing a backup has no operations but those of its volumes. */
    uint64_t left = 0, failed = 0, canceled = 0, snapshotting = 0;
    if (count_ops(g, b, OP_NONE, true, &left) < 0 || count_ops(g, b, OP_FAILED, false, &failed) < 0 ||
        count_ops(g, b, OP_CANCELED, false, &canceled) < 0 ||
        count_ops(g, b, OP_SNAPSHOTTING, false, &snapshotting) < 0)
        return;
    bool all_ended = left == 0, degraded = failed || canceled;
    if (degraded && !b->degraded_phase) {
        b->degraded_phase = true; /* seen while others go on (AO-13) */
        backup_write(g, b);
    }
    if (b->state == BACKUP_QUEUED) {
        if (all_ended)
            backup_become(g, b, BACKUP_FINALIZING);
        else if (!b->cancel)
            begin(g, b);
    } else if (b->state == BACKUP_SNAPSHOTTING || b->state == BACKUP_MOVING) {
        /* Later, too, where one of them is tried again without a native snapshot. */
        bool phase_1 = !is_restore(b) && (b->state == BACKUP_SNAPSHOTTING || snapshotting);
        bool snapshots_done = !phase_1 || reconcile_snapshots(g, b);
        if (all_ended) {
            if (backup_become(g, b, BACKUP_FINALIZING) == 0)
                crash_point("engine-backup-finalizing");
            engine_kick(g);
        } else if (snapshots_done && b->state == BACKUP_SNAPSHOTTING) {
            b->snapshots_done_ns = now_ns(); /* the point in time that can be restored (AO-42) */
            if (backup_become(g, b, BACKUP_MOVING) == 0)
                crash_point("engine-backup-moving");
            engine_kick(g);
        }
    } else if (b->state == BACKUP_FINALIZING && finalize_retention(g, b)) {
        end(g, b);
    }
}

void reconcile_backup(struct engine *g, const char *id)
{
    CLEANUP(backup_clear) struct backup b;
    if (backup_read(g, id, &b) == 0 && !backup_state_terminal(b.state) && !busy(g, b.id))
        reconcile(g, &b);
}
