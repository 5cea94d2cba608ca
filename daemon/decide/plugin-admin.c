/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-admin.c - what mover plugins are asked about the backups that they store: retention deletes, verification
 * reads
 *
 * An operation of kind admin or verify whose policy names a plugin. Its steps ("do") name one operation each, whose
 * data the plugin deletes or verifies, in a process of its own and one after the other. A failed call is noted and the
 * next one made: retention tries again after the next backup.
 */
#include "base/cleanup.h"
#include "base/retention.h"
#include "daemon/decide/decide.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 10000 /* of one operation */
#define NAMED_MAX 100   /* failures that its result names */

/* What the plugin still stores of a backup. */
static bool is_stored(const struct operation *op, const char *mover)
{
    return op->kind == KIND_BACKUP && op->state == OP_COMPLETED && !op->lost && !strcmp(op->policy->mover, mover) &&
           op->result.there && !op->result.skip[0];
}

static int add_step(json_t *steps, enum plugin_ask ask, const char *operation)
{
    if (json_array_size(steps) >= STEPS_MAX)
        return 0;
    json_t *step = json_pack("{s:s,s:s}", "verb", enum_name(&plugin_ask_names, (int)ask), "operation", operation);
    return json_array_append_new(steps, step) < 0 ? -ENOMEM : 0;
}

/* ---- retention ---- */

struct stored {
    int64_t at_ns;
    char id[512], parent[192];
};
struct history {
    struct decide *decide;
    const char *mover;
    struct stored *v;
    size_t n, cap;
};

static int history_collect(const struct operation *op, void *arg)
{
    struct history *h = arg;
    if (!is_stored(op, h->mover))
        return 0;
    if (h->n == h->cap) {
        const size_t cap = h->cap ? 2 * h->cap : 64;
        struct stored *more = reallocarray(h->v, cap, sizeof *more);
        if (!more)
            return -ENOMEM;
        h->v = more;
        h->cap = cap;
    }
    struct stored *s = &h->v[h->n++];
    s->at_ns = op->snapshot_ns ? op->snapshot_ns : op->created_ns;
    snprintf(s->id, sizeof s->id, "%s", op->id);
    snprintf(s->parent, sizeof s->parent, "%s", op->parent);
    return 0;
}

static int note_read(const struct operation *op, void *arg)
{
    return op->kind == KIND_RESTORE && op->of[0] ? json_object_set_new(arg, op->of, json_true()) : 0;
}

static int keep_limit(int64_t n)
{
    return n < 0 ? 0 : n > 1000000 ? 1000000 : (int)n;
}

/* Not those that a restore reads, or whose backup is being deleted. */
static int history_expire(struct decide *d, const struct history *h, const struct policy_keep *k, json_t *steps,
                          struct err *e)
{
    const struct operation_filter live = {.live = true};
    const struct retention_policy p = {keep_limit(k->latest), keep_limit(k->hourly),  keep_limit(k->daily),
                                       keep_limit(k->weekly), keep_limit(k->monthly), keep_limit(k->annual)};
    CLEANUP_JSON json_t *reads = json_object();
    CLEANUP_FREE struct retention_item *items = calloc(h->n ? h->n : 1, sizeof *items);
    if (!items || !reads)
        return err_nomem(e);
    for (size_t i = 0; i < h->n; i++)
        items[i].start_ns = items[i].end_ns = h->v[i].at_ns;
    int rc = retention_apply(&p, items, h->n, "UTC", e);
    if (rc == 0)
        rc = operation_each(d->records, &live, note_read, reads, e);
    for (size_t i = 0; rc == 0 && i < h->n; i++) {
        const struct backup *b = backup_peek(d->records, h->v[i].parent);
        if (items[i].n_reasons || json_object_get(reads, h->v[i].id) || (b && b->deleting[0]))
            continue;
        rc = add_step(steps, PLUGIN_ASK_DELETE, h->v[i].id) < 0 ? err_nomem(e) : 0;
    }
    return rc;
}

int plugin_retention_steps(struct decide *d, const struct operation *op, json_t *steps, struct err *e)
{
    const struct operation_filter f = {.volume_id = op->volume_id};
    struct history h = {.decide = d, .mover = op->policy->mover};
    int rc = operation_each(d->records, &f, history_collect, &h, e);
    if (rc == 0)
        rc = history_expire(d, &h, &op->policy->keep, steps, e);
    free(h.v);
    return rc;
}

/* ---- requests ---- */

int plugin_admin_submit(struct decide *d, enum op_kind kind, const char *mover, json_t *steps, const char *parent,
                        const char *prefix, char id[512], struct err *e)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    op.does = steps;
    return admin_add_mover(d, kind, prefix, "", mover, &op, parent, id, e);
}

struct sample {
    struct plugin_verify *of;
    const char *mover;
    double percent;
    unsigned seen;
};

static int add_sample(const void *row, void *arg)
{
    const struct operation *op = row;
    struct sample *s = arg;
    s->seen++;
    s->of->before = op->seq;
    if (!is_stored(op, s->mover))
        return 0;
    s->of->due += s->percent;
    if (s->of->due < 100)
        return 0;
    s->of->due -= 100;
    return add_step(s->of->steps, PLUGIN_ASK_VERIFY, op->id);
}

void plugin_verify_clear(struct plugin_verify *x)
{
    json_decref(x->steps);
    *x = (struct plugin_verify){.steps = NULL};
}

int plugin_verify_submit(struct decide *d, const char *mover, double percent, unsigned most, struct plugin_verify *x,
                         char id[512], struct err *e)
{
    const struct row_filter f = {.state = OP_COMPLETED, .newest_first = true, .before = x->before, .limit = most};
    const struct cfg_plugin *p = cfg_plugin(d->world.cfg, mover + strlen("plugin:"));
    struct sample s = {.of = x, .mover = mover, .percent = percent};
    if (!p || strcmp(p->kind, "mover") != 0) {
        err_set(e, ERR_USAGE, 0, "there is no mover plugin \"%s\" in the configuration", mover + strlen("plugin:"));
        return err_hint(e, "`snapferry check-config` lists the errors of the configuration");
    }
    if (!x->before) {
        x->due = percent > 0 ? 100 - percent : 0; /* at least the newest one */
        json_take(&x->steps, json_array());
    }
    const int rc = x->steps ? row_each(d->records, ROW_OPERATION, &f, add_sample, &s, e) : err_nomem(e);
    if (rc < 0)
        return rc;
    if (s.seen == most)
        return 1;
    return plugin_admin_submit(d, KIND_VERIFY, mover, json_incref(x->steps), NULL, "verify", id, e);
}

/* ---- the operation ---- */

static struct mover_result *result_now(struct operation *op)
{
    struct mover_result *r = &op->result;
    if (r->there)
        return r;
    r->there = true;
    str_set(&r->plugin, op->policy->mover + strlen("plugin:"));
    r->done = r->damaged = r->missing = r->failed = 0;
    return r;
}

/* The first failure is that of the operation; damage counts more. */
static void note_failure(struct operation *op, struct decide *d, const struct operation *of, const struct err *e)
{
    struct err named = *e;
    err_wrap(&named, "%s of %s", of->volume->name, of->parent);
    if (op->error.code == ERR_NONE || (e->cls == ERR_DAMAGE && op->error.code != ERR_DAMAGE))
        operation_error(d, op, op->kind == KIND_VERIFY ? "verify" : "delete", &named);
    if (op->result.failures.n < NAMED_MAX)
        mover_result_add_failure(&op->result, of->id, of->volume->name, e->msg);
}

/* Nothing of it is stored any more. */
static void copy_gone(struct decide *d, struct operation *of, const char *why)
{
    struct err e = ERR_INIT;
    if (operation_write(d, of) == 0 && volume_backup_lost(d, of->volume_id, of->parent, why, &e) < 0)
        plan_log(d, LOG_LVL_WARNING, "%s: %s", of->id, e.msg);
}

static void apply_answer(struct decide *d, struct operation *op, const struct work_result *s)
{
    struct mover_result *result = result_now(op);
    const struct plugin_step step = plugin_step_read(op->does, op->plugins_done);
    const bool verify = step.ask == PLUGIN_ASK_VERIFY, removed = step.ask == PLUGIN_ASK_DELETE;
    const struct err *e = &s->err;
    CLEANUP(operation_clear) struct operation of;
    operation_init(&of);
    if (operation_read(d, step.operation, &of) < 0)
        return; /* deleted meanwhile */
    if (verify && e->cls == ERR_NOT_FOUND) {
        result->missing++;
        note_failure(op, d, &of, e);
        operation_is_gone(d, &of, "is missing in its mover plugin");
        operation_is_lost(d, &of, "its mover plugin does not have it");
        copy_gone(d, &of, "is missing in its mover plugin");
    } else if (e->cls) {
        ++*(verify && e->cls == ERR_DAMAGE ? &result->damaged : &result->failed);
        note_failure(op, d, &of, e);
    } else {
        result->done++;
        if (removed) {
            operation_is_lost(d, &of, "it has expired");
            copy_gone(d, &of, "was deleted by retention");
        }
    }
}

void plugin_admin_work_ended(struct decide *d, struct operation *op, const struct work_result *s)
{
    if (s->canceled && op->cancel) {
        operation_finish(d, op, OUTCOME_CANCELED);
        return;
    }
    apply_answer(d, op, s);
    op->plugins_done++;
    operation_write(d, op);
}

static void plan_call(struct decide *d, struct operation *op, enum plugin_ask ask, const struct operation *of)
{
    json_t *in = json_pack("{s:s,s:s,s:{s:s,s:s,s:s,s:O?}}", "plugin", op->policy->mover + strlen("plugin:"), "verb",
                           enum_name(&plugin_ask_names, (int)ask), "args", "operation", of->id, "id", of->result.id,
                           "direction", "backup", "stored", of->result.stored);
    plan_work(d, ROW_OPERATION, op->id, WORK_ASK_PLUGIN, in, 600);
}

/* A step of a newer version: what it asks for is not known, and nothing else is done in its place. */
static void refuse_step(struct decide *d, struct operation *op, const struct operation *of)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_GENERIC, 0, "this version of snapferryd can only delete or verify what a mover plugin stored");
    result_now(op)->failed++;
    note_failure(op, d, of, &e);
}

/* The next step whose data is still stored; false: there is none. */
static bool call_next(struct decide *d, struct operation *op)
{
    for (; (size_t)op->plugins_done < json_array_size(op->does); op->plugins_done++) {
        const struct plugin_step step = plugin_step_read(op->does, op->plugins_done);
        CLEANUP(operation_clear) struct operation of;
        operation_init(&of);
        if (operation_read(d, step.operation, &of) < 0 || !is_stored(&of, op->policy->mover))
            continue;
        if (step.ask == PLUGIN_ASK_NONE) {
            refuse_step(d, op, &of);
            continue;
        }
        plan_call(d, op, step.ask, &of);
        return true;
    }
    return false;
}

static void plugin_admin_end(struct decide *d, struct operation *op)
{
    if (op->outcome == OUTCOME_NONE)
        op->outcome = OUTCOME_FAILED;
    op->completed_ns = decide_now(d);
    count_operation_ended(d, op, op->outcome);
    if (operation_become(d, op, op_state_of(op->outcome)) == 0)
        plan_live_drop(d, op->id);
}

void decide_plugin_admin(struct decide *d, struct operation *op)
{
    if (op->state == OP_CLEANING_UP) {
        plugin_admin_end(d, op);
        return;
    }
    if (op->cancel) {
        operation_cancel(d, op);
        return;
    }
    if (busy(d, op->id))
        return;
    if (op->state == OP_QUEUED && operation_become(d, op, OP_STARTING) < 0)
        return;
    if (op->state == OP_STARTING) {
        op->running_ns = decide_now(d);
        if (operation_become(d, op, OP_RUNNING) < 0)
            return;
    }
    if (call_next(d, op))
        return;
    result_now(op);
    if (op->error.code)
        plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), op->error.message);
    operation_finish(d, op, op->error.code ? OUTCOME_FAILED : OUTCOME_COMPLETED);
}
