/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-queue.c - who may go next
 *
 * Slots are counted on the board, which is made from the rows alone: nothing is counted up or down by hand (E-02).
 * Restores come before backups and have slots of their own; then priority, then the order in which they were made, so
 * that nobody starves.
 */
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Why it cannot go whoever else does: its repository is unavailable. NULL: nothing. */
static const char *stuck(struct engine *g, const struct operation *op)
{
    bool needs = !op->policy->mover[0] && !(operation_is_restore(op) && !is_none(op->native_doc));
    return needs ? repository_down(g, op->policy->repository) : NULL;
}

static bool is_down(const char *repository, void *arg)
{
    return repository_down(arg, repository) != NULL;
}

/* How many operations are exposed before their turn to move. */
static unsigned prepare_ahead(const struct cfg_daemon *d, bool restore)
{
    return (d->prepare_ahead > d->slots ? d->prepare_ahead : d->slots) + (restore ? d->restore_reserved : 0);
}

static bool may_prepare(struct engine *g, const struct operation *op, char *why, size_t cap)
{
    const struct board_usage u = board_usage(g->board, op->id);
    const unsigned ahead = prepare_ahead(cfg_daemon(g->cfg), operation_is_restore(op));
    const char *first;
    if (u.exposed >= ahead)
        snprintf(why, cap, "%u operations are prepared already (prepare-ahead)", u.exposed);
    else if (u.exposed + board_ahead(g->board, op, is_down, g, &first) >= ahead)
        snprintf(why, cap, "%s goes first", first);
    else
        return true;
    return false;
}

static bool may_move(struct engine *g, const struct operation *op, char *why, size_t cap)
{
    const struct cfg_daemon *d = cfg_daemon(g->cfg);
    const struct policy *policy = op->policy;
    const struct board_usage u = board_usage(g->board, op->id);
    const bool restore = operation_is_restore(op);
    const unsigned backups = u.moving - u.moving_restores, total = d->slots + d->restore_reserved,
                   in_class = board_in_class(g->board, op->own->name, op->id),
                   on_device = board_on_device(g->board, op->volume->pool, op->id), class_max = (unsigned)op->own->max;
    unsigned per_class = (unsigned)policy->max_per_class, per_device = (unsigned)policy->max_per_device;
    if (class_max && (!per_class || class_max < per_class))
        per_class = class_max;
    if (!per_device)
        per_device = d->per_device;
    if (restore ? u.moving >= total : backups >= d->slots || u.moving >= total)
        snprintf(why, cap, "all %u slots are in use", restore ? total : d->slots);
    else if (per_class && in_class >= per_class)
        snprintf(why, cap, "class \"%s\" has %u running already", op->own->name, in_class);
    else if (per_device && on_device >= per_device)
        snprintf(why, cap, "its device group %s has %u running already", op->volume->pool, on_device);
    else if (d->memory_total && u.moving && u.memory + policy_memory(policy) > d->memory_total)
        snprintf(why, cap, "the memory of all movers would be over memory-total");
    else
        return true;
    return false;
}

void queue_mark_next(struct engine *g)
{
    const struct cfg_daemon *d = cfg_daemon(g->cfg);
    const unsigned exposed = board_usage(g->board, "").exposed;
    board_mark_ready(g->board);
    for (int restores = 0; restores < 2; restores++) {
        const unsigned ahead = prepare_ahead(d, restores);
        if (exposed < ahead)
            board_mark_next(g->board, restores, ahead - exposed, is_down, g);
    }
}

void queue_mark_down(struct engine *g)
{
    board_mark_down(g->board, is_down, g);
}

bool queue_may(struct engine *g, const struct operation *op, bool move, char *why, size_t cap)
{
    const char *down = stuck(g, op);
    if (down)
        snprintf(why, cap, "%s", down);
    else if (records_degraded(g->records))
        snprintf(why, cap, "the records cannot be written: nothing new is started until they can");
    else if (cfg_daemon(g->cfg)->slots == 0)
        snprintf(why, cap, "maintenance mode: slots = 0");
    else
        return move ? may_move(g, op, why, cap) : may_prepare(g, op, why, cap);
    return false;
}

void operation_waits_for(struct engine *g, const struct operation *op, char *why, size_t cap)
{
    const bool restore = operation_is_restore(op), ready = op->exposure || op->target;
    why[0] = '\0';
    if ((op->kind != KIND_BACKUP && !restore) || op->cancel || busy(g, op->id))
        return;
    if (op->state == OP_QUEUED && (restore || !is_none(op->native_doc)))
        queue_may(g, op, false, why, cap);
    else if (op->state == OP_EXPOSING && ready && !op->filled)
        queue_may(g, op, true, why, cap);
}
