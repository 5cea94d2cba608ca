/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * on-restart.c - on-restart = fail: what an earlier daemon had begun and whose mover is gone is not resumed (AO-41)
 *
 * Of backups, restores and verifications. What waits in the queue has nothing to lose, and a mover that still runs, or
 * has left its result, goes on. A backup that was taking its snapshots fails as a whole: the point in time is gone.
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

#include <errno.h>

static bool is_meant(const struct operation *op)
{
    return op->kind == KIND_BACKUP || op->kind == KIND_RESTORE || op->kind == KIND_VERIFY;
}

static bool in_phase_1(const struct decide *d, const struct operation *op)
{
    const struct backup *b = op->parent[0] ? backup_peek(d->records, op->parent) : NULL;
    return b && b->state == BACKUP_SNAPSHOTTING;
}

static int restart_note(const struct operation *op, void *arg)
{
    struct decide *d = arg;
    struct live *l = NULL;
    if (is_meant(op) && (op->state != OP_QUEUED || in_phase_1(d, op)) && !(l = live_get(d, op->id)))
        return -ENOMEM;
    if (l)
        l->found = true;
    return 0;
}

int on_restart_note(struct decide *d, struct err *e)
{
    const struct operation_filter live = {.live = true};
    if (cfg_daemon(d->world.cfg)->on_restart != ON_RESTART_FAIL)
        return 0;
    const int rc = operation_each(d->records, &live, restart_note, d, e);
    return rc < 0 && !e->cls ? err_nomem(e) : rc;
}

static const char *stage_of(const struct operation *op)
{
    switch (op->state) {
    case OP_SNAPSHOTTING:
    case OP_QUEUED:
        return "snapshot";
    case OP_EXPOSING:
        return operation_is_restore(op) ? "target" : "expose";
    case OP_STARTING:
        return "start";
    case OP_NONE:
    case OP_RUNNING:
    case OP_RETRYING:
    case OP_CANCELLING:
    case OP_CLEANING_UP:
    case OP_COMPLETED:
    case OP_PARTIALLY_FAILED:
    case OP_FAILED:
    case OP_CANCELED:
    case OP_SKIPPED:
    case OP_STATES:
        break;
    }
    return "move";
}

static void give_up(struct decide *d, struct operation *op)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_INTERRUPTED, 0, "the daemon was restarted %s, and on-restart = fail",
            op->state == OP_SNAPSHOTTING || op->state == OP_QUEUED ? "while snapshots were taken"
            : op->state == OP_RUNNING                              ? "and its mover had ended"
            : op->state == OP_RETRYING                             ? "while it waited for another attempt"
                                                                   : "before it had a mover");
    operation_attempt_failed(d, op, stage_of(op), &e, false);
}

bool on_restart_failed(struct decide *d, struct operation *op)
{
    const struct live *l = live_find(d, op->id);
    if (!l || !l->found || op->cancel || op->filled)
        return false;
    switch (op->state) {
    case OP_QUEUED:
    case OP_SNAPSHOTTING:
    case OP_EXPOSING:
    case OP_STARTING:
    case OP_RETRYING:
        give_up(d, op);
        return true;
    case OP_RUNNING: /* once its mover was looked for */
    case OP_NONE:
    case OP_CANCELLING:
    case OP_CLEANING_UP:
    case OP_COMPLETED:
    case OP_PARTIALLY_FAILED:
    case OP_FAILED:
    case OP_CANCELED:
    case OP_SKIPPED:
    case OP_STATES:
        break;
    }
    return false;
}

bool on_restart_mover_gone(struct decide *d, struct operation *op, const struct mover_report *r)
{
    struct live *l = live_find(d, op->id);
    if (!l || !l->found)
        return false;
    if (!r->looked_for) {
        l->found = false; /* it was adopted, and is retried as ever */
        return false;
    }
    give_up(d, op);
    return true;
}
