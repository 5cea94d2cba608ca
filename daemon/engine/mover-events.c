/* SPDX-License-Identifier: GPL-2.0-or-later */
/* mover-events.c - what movers report becomes events for the next turn */
#include "daemon/engine/engine-impl.h"
#include "daemon/records/opaque.h"

#include <string.h>

static void on_ready(const char *operation, const struct mover_ready *r, void *arg)
{
    struct engine *g = arg;
    if (repository_mover_ready(g, operation))
        return;
    struct event *ev = engine_event(EVENT_READY, ROW_OPERATION, operation);
    ev->identity = mover_identity_to_json(r->identity);
    snprintf(ev->plugin_id, sizeof ev->plugin_id, "%s", r->plugin_id);
    engine_post(g, ev);
}

static void on_started(const char *operation, void *arg)
{
    struct engine *g = arg;
    struct live *l = live_find(&g->d, operation);
    if (l)
        l->moved_ns = l->progress_ns = now_ns();
}

/* What a mover says is not believed blindly. */
static uint64_t amount(int64_t n)
{
    return n > 0 ? (uint64_t)n : 0;
}

#define SAVE_PROGRESS_S 30

void engine_progress(struct engine *g, const char *operation, const json_t *p)
{
    struct live *l = live_find(&g->d, operation);
    const struct operation *op = operation_peek(g->records, operation);
    const int64_t now = now_ns();
    if (!l)
        return;
    if (!l->progress || progress_has_moved(l->progress, p))
        l->moved_ns = now;
    json_decref(l->progress);
    l->progress = json_deep_copy(p);
    l->progress_ns = now;
    if (!op)
        return;
    const struct mover_progress is = progress_read(p);
    const int64_t mono = boot_ns();
    const struct pace_sample sample = {.t = (double)mono / 1e9,
                                       .phase = is.phase,
                                       .total = amount(is.total),
                                       .done = amount(is.done),
                                       .skipped = amount(is.skipped),
                                       .zero = amount(is.zero),
                                       .allocated = op->volume->allocated > 0 ? (uint64_t)op->volume->allocated : 0};
    pace_add(&l->pace, &sample);
    if (!l->saved_ns)
        l->saved_ns = mono; /* the first is worth no commit of its own */
    if (mono - l->saved_ns > SAVE_PROGRESS_S * NS_PER_S) {
        l->saved_ns = mono;
        engine_post(g, engine_event(EVENT_PROGRESS, ROW_OPERATION, operation));
    }
    waiters_progress(g, op);
}

static void on_progress(const char *operation, const json_t *p, void *arg)
{
    engine_progress(arg, operation, p);
}

static void on_ended(const char *operation, const struct mover_end *end, void *arg)
{
    struct engine *g = arg;
    struct mover_end own = *end;
    if (repository_mover_ended(g, operation, end))
        return;
    /* Whether the next one may try is seen at once, not by its failure. */
    const struct operation *op = operation_peek(g->records, operation);
    static const enum err_class of_repository[] = {ERR_PASSWORD, ERR_NO_REPO, ERR_FORMAT, ERR_PERMISSION};
    bool look = false;
    for (size_t i = 0; i < sizeof of_repository / sizeof *of_repository; i++)
        look |= end->err.cls == of_repository[i];
    if (op && look)
        repositories_reopen(g, op->policy->repository);
    if (op && op->kind == KIND_BACKUP && mover_result_recorded(end->result))
        record_written(g, op);
    json_incref(own.result);
    engine_mover_ended(g, operation, &own);
}

static int on_credentials(const char *operation, bool copy, char **ret, void *arg, struct err *e)
{
    return repository_mover_credentials(arg, operation, copy, ret, e);
}

const struct movers_events engine_mover_events = {on_ready, on_started, on_progress, on_ended, on_credentials};
