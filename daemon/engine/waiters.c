/* SPDX-License-Identifier: GPL-2.0-or-later */
/* waiters.c - clients that wait for a backup, a restore or an operation are told what becomes of it */
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>
#include <string.h>

/* Those that went away while they were told something. */
static void purge_waiters(struct engine *g)
{
    for (struct waiter **p = &g->waiters; *p;) {
        struct waiter *w = *p;
        if (!w->fn) {
            *p = w->next;
            free(w);
        } else {
            p = &w->next;
        }
    }
}

/* `own`: the waiter's record itself has changed, not one of its operations. */
static bool due(struct waiter *w, bool own, bool progress_only, int64_t now)
{
    /* A backup is not reported anew with each step of each of its operations. */
    if ((progress_only || !own) && now - w->told_ns < NS_PER_S * 9 / 10)
        return false;
    w->told_ns = now;
    return true;
}

static void tell(struct waiter *w, json_t *state, bool terminal)
{
    CLEANUP_JSON json_t *owned = state;
    if (owned && w->fn)
        w->fn(owned, terminal, w->arg);
}

static void tell_of_operation(struct engine *g, const struct operation *op, bool progress_only)
{
    const int64_t now = now_ns();
    g->telling++;
    for (struct waiter *w = g->waiters; w; w = w->next) {
        const bool own = !strcmp(w->id, op->id);
        if (!w->fn || (!own && strcmp(w->id, op->parent) != 0) || !due(w, own, progress_only, now))
            continue;
        if (own) {
            tell(w, engine_operation_json(g, op), op_state_terminal(op->state));
            continue;
        }
        CLEANUP(backup_clear) struct backup b;
        if (backup_read(&g->d, op->parent, &b) == 0)
            tell(w, engine_backup_json(g, &b, true), false);
    }
    if (--g->telling == 0)
        purge_waiters(g);
}

static void tell_of_backup(struct engine *g, const struct backup *b)
{
    const int64_t now = now_ns();
    g->telling++;
    for (struct waiter *w = g->waiters; w; w = w->next)
        if (w->fn && !strcmp(w->id, b->id) && due(w, true, false, now))
            tell(w, engine_backup_json(g, b, true), backup_state_terminal(b->state));
    if (--g->telling == 0)
        purge_waiters(g);
}

void waiters_progress(struct engine *g, const struct operation *op)
{
    if (g->waiters)
        tell_of_operation(g, op, true);
}

void waiters_note(struct engine *g, enum row_kind k, const char *id)
{
    if (!g->waiters)
        return;
    if (!g->changed)
        g->changed = json_object();
    json_object_set_new(g->changed, id, json_integer(k));
}

#define REMIND_S 10

void waiters_remind(struct engine *g)
{
    const int64_t now = now_ns();
    for (struct waiter *w = g->waiters; w; w = w->next) {
        if (!w->fn || now - w->told_ns < REMIND_S * NS_PER_S)
            continue;
        if (backup_peek(g->records, w->id))
            waiters_note(g, ROW_BACKUP, w->id);
        else if (operation_peek(g->records, w->id))
            waiters_note(g, ROW_OPERATION, w->id);
    }
}

void waiters_tell(struct engine *g)
{
    CLEANUP_JSON json_t *changed = g->changed;
    const char *id;
    json_t *k;
    g->changed = NULL;
    json_object_foreach(changed, id, k)
    {
        CLEANUP(backup_clear) struct backup b = ROW_INIT;
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        if (json_integer_value(k) == ROW_BACKUP && backup_read(&g->d, id, &b) == 0)
            tell_of_backup(g, &b);
        else if (json_integer_value(k) == ROW_OPERATION && operation_read(&g->d, id, &op) == 0)
            tell_of_operation(g, &op, false);
    }
}

int engine_wait(struct engine *g, const char *id, engine_wait_fn *fn, void *arg, struct err *e)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP_JSON json_t *state = NULL;
    bool terminal;
    operation_init(&op);
    if (backup_get(g->records, id, &b, NULL) == 0) {
        terminal = backup_state_terminal(b.state);
        state = engine_backup_json(g, &b, true);
    } else if (operation_get(g->records, id, &op, NULL) == 0) {
        terminal = op_state_terminal(op.state);
        state = engine_operation_json(g, &op);
    } else {
        err_set(e, ERR_NOT_FOUND, 0, "there is no backup, restore or operation %s", id);
        return err_hint(e, "`snapferry backups` and `snapferry operations --all` list them");
    }
    if (!terminal) {
        struct waiter *w = calloc(1, sizeof *w);
        if (!w)
            return err_nomem(e);
        snprintf(w->id, sizeof w->id, "%s", id);
        w->fn = fn;
        w->arg = arg;
        w->told_ns = now_ns();
        w->next = g->waiters;
        g->waiters = w;
    }
    if (state)
        fn(state, terminal, arg);
    return 0;
}

void engine_unwait(struct engine *g, void *arg)
{
    for (struct waiter *w = g->waiters; w; w = w->next)
        if (w->arg == arg)
            w->fn = NULL;
    if (!g->telling)
        purge_waiters(g);
}
