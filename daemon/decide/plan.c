/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plan.c - what a turn has decided to do once its changes are durable */
#include "daemon/decide/decide.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t decide_now(const struct decide *d)
{
    return d->in_turn ? d->world.now_ns : d->world.clock();
}

static const char *const work_names[WORKS] = {
    [WORK_NONE] = "nothing",
    [WORK_POOL] = "look at the pool of",
    [WORK_PRUNE] = "prune for",
    [WORK_PRE_HOOK] = "pre-snapshot hook of",
    [WORK_SNAPSHOT] = "snapshot",
    [WORK_POST_HOOK] = "post-snapshot hook of",
    [WORK_EXPOSE] = "expose the snapshot of",
    [WORK_TARGET] = "make the target of",
    [WORK_BEGIN_HOOK] = "pre hook of",
    [WORK_PREPARE_HOOK] = "prepare hook of",
    [WORK_CHANGES] = "list the changes of",
    [WORK_OPEN] = "open the intermediate of",
    [WORK_TARGET_OPEN] = "open the target of",
    [WORK_COMMIT] = "put into place",
    [WORK_UNDO] = "clean up",
    [WORK_DELETE_NATIVES] = "remove the native snapshots of",
    [WORK_DELETE_PLUGIN] = "delete by plugin",
    [WORK_ASK_PLUGIN] = "ask the plugin of",
    [WORK_RUN_HOOK] = "post hook of",
    [WORK_LOOK] = "look at the native snapshots of",
};

const char *work_name(enum work w)
{
    return work_names[w];
}

static void act_clear(struct act *a)
{
    json_decref(a->doc);
    free(a->id);
    free(a->text);
    free(a->natives);
    if (a->op) {
        operation_clear(a->op);
        free(a->op);
    }
    if (a->backup) {
        backup_clear(a->backup);
        free(a->backup);
    }
}

void plan_clear(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        act_clear(&p->acts[i]);
    free(p->acts);
    *p = (struct plan){.acts = NULL};
}

/* NULL: no memory, and the plan has failed. */
static struct act *act_add(struct decide *d, enum act_kind kind, const char *id)
{
    struct plan *p = &d->plan;
    if (p->n == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        struct act *more = reallocarray(p->acts, cap, sizeof *more);
        if (!more) {
            p->failed = true;
            return NULL;
        }
        p->acts = more;
        p->cap = cap;
    }
    struct act *a = &p->acts[p->n];
    *a = (struct act){.kind = kind, .fd = -1, .id = id ? strdup(id) : NULL};
    if (id && !a->id) {
        p->failed = true;
        return NULL;
    }
    p->n++;
    return a;
}

/* The row is not decided about again in this turn. */
void plan_note(struct decide *d, const char *id)
{
    struct live *l = live_get(d, id);
    if (l)
        l->planned = d->turn;
    else
        d->plan.failed = true;
}

/* An operation as it is now, for whoever acts. */
static void act_keep(struct decide *d, struct act *a, const struct operation *op)
{
    struct operation *copy = a ? malloc(sizeof *copy) : NULL;
    if (copy && operation_copy(copy, op) == 0) {
        a->op = copy;
        return;
    }
    free(copy);
    d->plan.failed = true;
}

void plan_cut(struct plan *p, size_t n)
{
    while (p->n > n)
        act_clear(&p->acts[--p->n]);
}

void plan_work(struct decide *d, enum row_kind k, const char *id, enum work w, json_t *in, int64_t timeout_s)
{
    struct act *a = in ? act_add(d, ACT_WORK, id) : NULL;
    if (!a) {
        json_decref(in);
        d->plan.failed = true;
        return;
    }
    a->row = k;
    a->work = w;
    a->doc = in;
    a->timeout_s = timeout_s < 1 ? 60 : timeout_s > 864000 ? 864000 : timeout_s;
    plan_note(d, id);
}

void plan_work_cancel(struct decide *d, const char *id)
{
    act_add(d, ACT_WORK_CANCEL, id);
}

void plan_mover_start(struct decide *d, const struct operation *op, int fd)
{
    struct act *a = act_add(d, ACT_MOVER_START, op->id);
    act_keep(d, a, op);
    if (a)
        a->fd = fd;
    plan_note(d, op->id);
}

void plan_mover_go(struct decide *d, const struct operation *op)
{
    act_add(d, ACT_MOVER_GO, op->id);
}

void plan_mover_adopt(struct decide *d, const struct operation *op)
{
    act_keep(d, act_add(d, ACT_MOVER_ADOPT, op->id), op);
    plan_note(d, op->id);
}

void plan_mover_cancel(struct decide *d, const struct operation *op)
{
    act_keep(d, act_add(d, ACT_MOVER_CANCEL, op->id), op);
}

void plan_mover_forget(struct decide *d, const char *id, const char *plugin, const char *plugin_id)
{
    struct act *a = act_add(d, ACT_MOVER_FORGET, id);
    if (!a || !plugin)
        return;
    a->text = strdup(plugin);
    a->doc = json_string(plugin_id);
    if (!a->text || !a->doc)
        d->plan.failed = true;
}

void plan_live_drop(struct decide *d, const char *id)
{
    act_add(d, ACT_LIVE_DROP, id);
}

void plan_sweep_kept(struct decide *d)
{
    bool planned = !d->in_turn;
    for (size_t i = 0; i < d->plan.n; i++)
        planned = planned || d->plan.acts[i].kind == ACT_SWEEP_KEPT;
    if (!planned)
        act_add(d, ACT_SWEEP_KEPT, NULL);
}

void plan_log(struct decide *d, enum log_level level, const char *fmt, ...)
{
    char line[2600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    struct act *a = d->in_turn ? act_add(d, ACT_LOG, NULL) : NULL;
    if (a) {
        a->level = level;
        a->text = strdup(line);
    }
    if (!a || !a->text)
        log_line(level, "%s", line);
}

void plan_operation_ended(struct decide *d, const struct operation *op)
{
    act_keep(d, act_add(d, ACT_JOURNAL_OPERATION, op->id), op);
}

void plan_run_ended(struct decide *d, const struct backup *b)
{
    struct act *a = act_add(d, ACT_JOURNAL_RUN, b->id);
    struct backup *copy = a ? malloc(sizeof *copy) : NULL;
    if (copy && backup_copy(copy, b) == 0) {
        a->backup = copy;
        return;
    }
    free(copy);
    d->plan.failed = true;
}

void plan_natives(struct decide *d, const struct native_facts *f, size_t n)
{
    struct act *a = d->in_turn && n ? act_add(d, ACT_NATIVES, NULL) : NULL;
    struct native_facts *copy = a ? reallocarray(NULL, n, sizeof *copy) : NULL;
    if (!copy)
        return; /* only what metrics show */
    memcpy(copy, f, n * sizeof *copy);
    a->natives = copy;
    a->n_natives = n;
}

void plan_crash_point(struct decide *d, const char *name)
{
    struct act *a = act_add(d, ACT_CRASH_POINT, NULL);
    if (a)
        a->name = name;
}

void plan_fail(struct decide *d, const struct err *e)
{
    log_warning("the records cannot be written, retrying: %s", e->msg);
    if (!d->plan.failed)
        d->plan.err = *e;
    d->plan.failed = true;
}

void plan_request_ended(struct decide *d, const struct event *ev)
{
    struct act *a = act_add(d, ACT_REQUEST_ENDED, NULL);
    if (a)
        a->event = ev;
}
