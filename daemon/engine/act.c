/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * act.c - what a turn has planned is carried out, and what comes of it becomes events for the next
 *
 * Called when the changes of the turn are durable. An action that fails is an event as any other.
 */
#include "base/crash.h"
#include "daemon/engine/facts.h"
#include "daemon/engine/hooks.h"
#include "daemon/movers/plugin.h"
#include "daemon/records/opaque.h"
#include "daemon/records/step-request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static step_fn *const step_of[WORKS] = {
    [WORK_POOL] = step_pool,
    [WORK_PRUNE] = step_remove,
    [WORK_PRE_HOOK] = hook_step,
    [WORK_SNAPSHOT] = step_snapshot,
    [WORK_POST_HOOK] = hook_step,
    [WORK_EXPOSE] = step_expose,
    [WORK_TARGET] = step_target,
    [WORK_BEGIN_HOOK] = hook_step,
    [WORK_PREPARE_HOOK] = hook_step,
    [WORK_CHANGES] = step_changes,
    [WORK_OPEN] = step_open,
    [WORK_TARGET_OPEN] = step_target_open,
    [WORK_COMMIT] = step_target_commit,
    [WORK_UNDO] = step_undo,
    [WORK_DELETE_NATIVES] = step_remove,
    [WORK_DELETE_PLUGIN] = plugin_step,
    [WORK_ASK_PLUGIN] = plugin_step,
    [WORK_RUN_HOOK] = hook_step,
    [WORK_LOOK] = step_natives,
};

/* ---- work ---- */

struct running {
    struct engine *engine;
    struct event *event; /* made at the start, so that its end is never lost */
};

static void work_ended(struct step_result *s, void *arg)
{
    struct running *r = arg;
    struct engine *g = r->engine;
    struct event *ev = r->event;
    struct live *l = live_find(&g->d, ev->id);
    if (l)
        l->step = NULL;
    ev->result.out = json_incref(s->out);
    ev->result.fd = s->fd;
    s->fd = -1; /* ours now */
    ev->result.timed_out = s->timed_out;
    ev->result.canceled = s->canceled;
    ev->result.err = s->err;
    if (ev->work == WORK_POST_HOOK)
        ev->result.fired = hook_watchdog_stop(ev->id);
    free(r);
    engine_post(g, ev);
}

/* A second process releases at a deadline what the pre-snapshot hook stops. */
static int start_watchdog(json_t *in, struct err *e)
{
    unsigned deadline_s;
    CLEANUP_JSON json_t *hook = step_request_watchdog(in, &deadline_s);
    return hook ? hook_watchdog_start(hook, deadline_s, e) : 0;
}

/* Nothing is deleted but where the word is "delete". */
static int plugin_verb_of(enum plugin_ask ask, enum plugin_verb *ret, struct err *e)
{
    switch (ask) {
    case PLUGIN_ASK_DELETE:
        *ret = PV_DELETE;
        return 0;
    case PLUGIN_ASK_VERIFY:
        *ret = PV_VERIFY;
        return 0;
    case PLUGIN_ASK_NONE:
    case PLUGIN_ASKS:
        break;
    }
    return err_set(e, ERR_GENERIC, EINVAL, "a mover plugin was to be asked neither to delete nor to verify a backup");
}

/* What is frozen for a snapshot must not be waited for by the daemon, or by a mover that writes. */
static json_t *snapshot_request(const struct engine *g, const struct act *a, struct err *e)
{
    json_t *in = json_copy(a->doc), *paths = json_array();
    const struct cfg_repository *r;
    const struct cfg_copy *c;
    json_array_append_new(paths, json_string(g->paths.state_dir));
    json_array_append_new(paths, json_string(g->paths.runtime_dir));
    json_array_append_new(paths, json_string(g->paths.cache_dir));
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++)
        if (r->path[0])
            json_array_append_new(paths, json_string(r->path));
    for (unsigned i = 0; (c = cfg_copy_at(g->cfg, i)); i++)
        if (c->place.path[0])
            json_array_append_new(paths, json_string(c->place.path));
    if (json_object_set_new(in, "unfrozen", paths) < 0)
        err_nomem(e);
    return in;
}

static json_t *request_of(struct engine *g, const struct act *a, int64_t *timeout_s, struct err *e)
{
    enum plugin_verb v;
    if (a->work == WORK_SNAPSHOT)
        return snapshot_request(g, a, e);
    if (a->work != WORK_DELETE_PLUGIN && a->work != WORK_ASK_PLUGIN)
        return json_incref(a->doc);
    const struct plugin_work w = plugin_work_read(a->doc);
    if (plugin_verb_of(a->work == WORK_DELETE_PLUGIN ? PLUGIN_ASK_DELETE : w.ask, &v, e) < 0)
        return NULL;
    const struct cfg_plugin *p = cfg_plugin(g->cfg, w.plugin);
    if (!p) {
        err_set(e, ERR_USAGE, 0, "there is no [plugin \"%s\"] in the configuration", w.plugin);
        return NULL;
    }
    *timeout_s = plugin_step_timeout(p, v);
    return plugin_step_in(p, v, w.args);
}

static void set_working(struct engine *g, const char *id, enum work w)
{
    struct live *l = live_find(&g->d, id);
    if (!l)
        return;
    l->working = w;
    l->working_since_ns = boot_ns();
}

/* A driver that copies data itself gets on as a mover does. */
static void work_moved(const json_t *progress, void *arg)
{
    const struct running *r = arg;
    engine_progress(r->engine, r->event->id, progress);
}

static void start_work(struct engine *g, const struct act *a)
{
    struct err e = ERR_INIT;
    struct running *r = calloc(1, sizeof *r);
    struct event *ev = engine_event(EVENT_WORK, a->row, a->id);
    struct live *l = live_get(&g->d, a->id);
    int64_t timeout_s = a->timeout_s;
    char name[640];
    const char *member;
    ev->work = a->work;
    ev->result.in = json_incref(a->doc);
    snprintf(name, sizeof name, "%s %s", work_name(a->work), a->id);
    set_working(g, a->id, a->work);
    if (a->work == WORK_SNAPSHOT) /* one piece of work for all members of a group */
        for (size_t i = 0; *(member = step_request_operation(a->doc, i)); i++)
            set_working(g, member, a->work);
    CLEANUP_JSON json_t *in = request_of(g, a, &timeout_s, &e);
    if (!r || !l)
        err_nomem(&e);
    if (!e.cls && a->work == WORK_PRE_HOOK)
        start_watchdog(in, &e);
    if (!e.cls) {
        *r = (struct running){g, ev};
        struct step *step = NULL;
        if (step_start(g->steps, name, step_of[a->work], in, (unsigned)timeout_s, work_ended, r, &step, &e) == 0) {
            l->step = step;
            step_watch(step, work_moved, r);
            return;
        }
    }
    free(r);
    ev->result.not_started = true;
    ev->result.err = e;
    engine_post(g, ev);
}

static void cancel_work(struct engine *g, const char *id)
{
    struct live *l = live_find(&g->d, id);
    if (l && l->step)
        step_cancel(l->step); /* its end is an event */
}

/* ---- movers ---- */

static void mover_is_there(struct engine *g, const char *id)
{
    struct live *l = live_get(&g->d, id);
    if (l)
        l->mover = true;
}

static void start_mover(struct engine *g, const struct act *a)
{
    struct err e = ERR_INIT;
    bool transient;
    struct live *l = live_find(&g->d, a->id);
    const bool another = l && l->undone && movers_has(g->movers, a->id); /* which is being ended */
    int rc = mover_start(g, a->op, a->fd, l ? l->changes_fd : -1, &transient, &e);
    if (l)
        live_forget_changes(l); /* duplicated; another attempt makes another list */
    if (l && !another)
        l->undone = false;
    if (rc < 0)
        engine_post_not_started(g, a->id, transient, &e);
    else
        mover_is_there(g, a->id);
}

static void cancel_mover(struct engine *g, const struct operation *op)
{
    struct err e = ERR_INIT;
    struct live *l = live_find(&g->d, op->id);
    if (mover_start_drop(g, op->id)) {
        err_set(&e, ERR_INTERRUPTED, ECANCELED, "canceled before its mover was started");
        engine_post_not_started(g, op->id, false, &e);
        return;
    }
    int rc = movers_cancel(g->movers, op->id, op->cancel_deadline_ns, &e);
    if (rc >= 0 || rc == -ESRCH || !l) /* gone: that is an event */
        return;
    l->cancel_failed = true; /* asked again with the next sweep */
    log_warning("%s: cancel request failed, retrying: %s", operation_label(op), e.msg);
}

static void adopt_mover(struct engine *g, const struct act *a)
{
    struct err e = ERR_INIT;
    if (mover_adopt(g, a->op, &e) < 0) {
        engine_post_not_started(g, a->id, false, &e);
        return;
    }
    mover_is_there(g, a->id);
    if (a->op->cancel || a->op->state == OP_CANCELLING)
        cancel_mover(g, a->op);
}

static void forget_mover(struct engine *g, const struct act *a)
{
    const struct cfg_plugin *plugin = a->text ? cfg_plugin(g->cfg, a->text) : NULL;
    struct live *l = live_find(&g->d, a->id);
    if (l && !l->mover)
        l->undone = false;
    if (!a->text || plugin)
        movers_forget(g->movers, a->id, plugin, plugin ? json_string_value(a->doc) : NULL, NULL);
}

/* ---- all of it ---- */

static void act_on(struct engine *g, const struct act *a)
{
    struct err e = ERR_INIT;
    switch (a->kind) {
    case ACT_WORK:
        start_work(g, a);
        break;
    case ACT_WORK_CANCEL:
        cancel_work(g, a->id);
        break;
    case ACT_MOVER_START:
        start_mover(g, a);
        break;
    case ACT_MOVER_GO:
        if (movers_go(g->movers, a->id, &e) < 0)
            log_warning("%s: %s", a->id, e.msg);
        break;
    case ACT_MOVER_ADOPT:
        adopt_mover(g, a);
        break;
    case ACT_MOVER_CANCEL:
        cancel_mover(g, a->op);
        break;
    case ACT_MOVER_FORGET:
        forget_mover(g, a);
        break;
    case ACT_LIVE_DROP:
        live_drop(&g->d, a->id);
        break;
    case ACT_LOG:
        log_line(a->level, "%s", a->text);
        break;
    case ACT_JOURNAL_OPERATION:
        journal_operation(a->op);
        break;
    case ACT_JOURNAL_RUN:
        journal_run(a->backup);
        break;
    case ACT_NATIVES:
        facts_plan(g, a->natives, a->n_natives);
        break;
    case ACT_SWEEP_KEPT:
        sweep_released(g);
        break;
    case ACT_REQUEST_ENDED:
        a->event->request.ended(&a->event->err, a->event->request.arg);
        break;
    case ACT_CRASH_POINT:
        crash_point(a->name);
        break;
    }
}

void engine_act(struct engine *g, const struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (!p->acts[i].done)
            act_on(g, &p->acts[i]);
}

void engine_act_early(struct engine *g, struct plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct act *a = &p->acts[i];
        if (a->done || !act_is_early(a))
            continue;
        a->done = true;
        act_on(g, a);
    }
}

void engine_act_undo(struct engine *g, const struct plan *p)
{
    struct err e = ERR_INIT;
    for (size_t i = 0; i < p->n; i++) { /* it waits for its go: nothing is lost */
        const char *id = p->acts[i].id;
        struct live *l = p->acts[i].done ? live_find(&g->d, id) : NULL;
        if (l && mover_start_drop(g, id))
            l->mover = false;
        else if (p->acts[i].done && movers_cancel(g->movers, id, now_ns(), &e) < 0)
            log_debug("%s: %s", id, e.msg);
    }
}
