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

static void waiter_tell(struct waiter *w, json_t *state, bool terminal)
{
    CLEANUP_JSON json_t *owned = state;
    if (owned && w->fn)
        w->fn(owned, terminal, w->arg);
}

static void tell_of_row(struct engine *g, struct waiter *w)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (w->kind == ROW_BACKUP && backup_read(&g->d, w->id, &b) == 0) {
        w->told_state = (int)b.state;
        waiter_tell(w, engine_backup_json(g, &b, true), backup_state_terminal(b.state));
    } else if (w->kind == ROW_OPERATION && operation_read(&g->d, w->id, &op) == 0) {
        w->told_state = (int)op.state;
        waiter_tell(w, engine_operation_json(g, &op), op_state_terminal(op.state));
    }
}

/* A new state is told at once, all else that changes in a row, progress and its operations each second: a backup of
 * many volumes changes with each of them. */
#define TELL_EACH_NS (NS_PER_S * 9 / 10)

static bool state_is_new(const struct engine *g, const struct waiter *w)
{
    const struct backup *b = w->kind == ROW_BACKUP ? backup_peek(g->records, w->id) : NULL;
    const struct operation *op = w->kind == ROW_OPERATION ? operation_peek(g->records, w->id) : NULL;
    return b ? (int)b->state != w->told_state : op ? (int)op->state != w->told_state : true;
}

static bool tell_is_due(const struct engine *g, const struct waiter *w, int64_t now)
{
    if (!w->fn || !(w->row_changed || w->part_changed))
        return false;
    return now - w->told_ns >= TELL_EACH_NS || now < w->told_ns || (w->row_changed && state_is_new(g, w));
}

int64_t waiters_due_ns(const struct engine *g)
{
    const int64_t now = now_ns();
    int64_t due = INT64_MAX;
    for (const struct waiter *w = g->waiters; w; w = w->next)
        if (w->fn && (w->row_changed || w->part_changed) && w->told_ns + TELL_EACH_NS - now < due)
            due = w->told_ns + TELL_EACH_NS - now;
    return due > 0 ? due : 0;
}

static void tell_those_due(struct engine *g)
{
    const int64_t now = now_ns();
    g->telling++;
    for (struct waiter *w = g->waiters; w; w = w->next) {
        if (!tell_is_due(g, w, now))
            continue;
        w->told_ns = now;
        w->row_changed = w->part_changed = false;
        tell_of_row(g, w);
    }
    if (--g->telling == 0)
        purge_waiters(g);
}

static bool note(struct engine *g, const char *id, const char *parent, bool progress)
{
    bool any = false;
    for (struct waiter *w = g->waiters; w; w = w->next) {
        const bool own = !strcmp(w->id, id), part = parent[0] && !strcmp(w->id, parent);
        w->row_changed |= own && !progress;
        w->part_changed |= part || (own && progress);
        any |= own || part;
    }
    return any;
}

void waiters_progress(struct engine *g, const struct operation *op)
{
    /* What is being written is not told before it is durable. */
    if (note(g, op->id, op->parent, true) && !g->open_ns && !engine_is_writing(g))
        tell_those_due(g);
}

void waiters_note(struct engine *g, const char *id, const char *parent)
{
    note(g, id, parent, false);
}

#define REMIND_S 10

void waiters_remind(struct engine *g)
{
    const int64_t now = now_ns();
    for (struct waiter *w = g->waiters; w; w = w->next)
        w->part_changed |= now - w->told_ns >= REMIND_S * NS_PER_S;
}

void waiters_tell(struct engine *g)
{
    if (g->waiters)
        tell_those_due(g);
}

int engine_wait(struct engine *g, const char *id, engine_wait_fn *fn, void *arg, struct err *e)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP_JSON json_t *state = NULL;
    enum row_kind kind = ROW_BACKUP;
    bool terminal;
    operation_init(&op);
    if (backup_get(g->records, id, &b, NULL) == 0) {
        terminal = backup_state_terminal(b.state);
        state = engine_backup_json(g, &b, true);
    } else if (operation_get(g->records, id, &op, NULL) == 0) {
        kind = ROW_OPERATION;
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
        w->kind = kind;
        w->fn = fn;
        w->arg = arg;
        w->told_ns = now_ns();
        w->told_state = kind == ROW_BACKUP ? (int)b.state : (int)op.state;
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

void waiters_on_stop(struct engine *g, const void *arg, request_ended_fn *stopped)
{
    for (struct waiter *w = g->waiters; w; w = w->next)
        if (w->arg == arg)
            w->stopped = stopped;
}

void waiters_stop(struct engine *g, const struct err *e)
{
    for (struct waiter *w = g->waiters; w; w = g->waiters) {
        while (w && !(w->fn && w->stopped))
            w = w->next;
        if (!w)
            break;
        request_ended_fn *stopped = w->stopped;
        void *arg = w->arg;
        engine_unwait(g, arg); /* it may wait for several */
        stopped(e, arg);
    }
}
