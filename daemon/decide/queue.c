/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * queue.c - who may go next
 *
 * Slots are counted on the board, which is made from the rows alone: nothing is counted up or down by hand (E-02).
 * Restores come before backups and have slots of their own; then priority, then the order in which they were made, so
 * that nobody starves.
 */
#include "daemon/decide/decide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *queue_outage(struct decide *d, const struct operation *op)
{
    bool needs = !op->policy->mover[0] && !(operation_is_restore(op) && !is_none(op->native_doc));
    return needs ? repository_down(d, op->policy->repository) : NULL;
}

static bool is_down(const char *repository, void *arg)
{
    return repository_down(arg, repository) != NULL;
}

/* How many operations are exposed before their turn to move. */
static unsigned prepare_ahead(const struct cfg_daemon *c, bool restore)
{
    return (c->prepare_ahead > c->slots ? c->prepare_ahead : c->slots) + (restore ? c->restore_reserved : 0);
}

static bool may_prepare(struct decide *d, const struct operation *op, char *why, size_t cap)
{
    const struct board_usage u = board_usage(d->board, op->id);
    const unsigned ahead = prepare_ahead(cfg_daemon(d->world.cfg), operation_is_restore(op));
    const char *first;
    if (u.exposed >= ahead)
        snprintf(why, cap, "%u operation%s prepared already (prepare-ahead)", u.exposed,
                 u.exposed == 1 ? " is" : "s are");
    else if (u.exposed + board_ahead(d->board, op, is_down, d, &first) >= ahead)
        snprintf(why, cap, "queued behind %s", first);
    else
        return true;
    return false;
}

static bool may_move(struct decide *d, const struct operation *op, char *why, size_t cap)
{
    const struct cfg_daemon *c = cfg_daemon(d->world.cfg);
    const struct policy *policy = op->policy;
    const struct board_usage u = board_usage(d->board, op->id);
    const bool restore = operation_is_restore(op);
    const unsigned backups = u.moving - u.moving_restores, total = c->slots + c->restore_reserved,
                   in_class = board_in_class(d->board, op->own->name, op->id), per_class = (unsigned)op->own->max,
                   on_device = board_on_device(d->board, op->volume->pool, op->id);
    unsigned per_device = (unsigned)policy->max_per_device;
    if (!per_device)
        per_device = c->per_device;
    if (restore ? u.moving >= total : backups >= c->slots || u.moving >= total)
        snprintf(why, cap, (restore ? total : c->slots) == 1 ? "the only slot is in use" : "all %u slots are in use",
                 restore ? total : c->slots);
    else if (per_class && in_class >= per_class)
        snprintf(why, cap, "class \"%s\" has %u running already", op->own->name, in_class);
    else if (per_device && on_device >= per_device)
        snprintf(why, cap, "its device group %s has %u running already", op->volume->pool, on_device);
    else if (c->memory_total && u.moving && u.memory + policy_memory(policy) > c->memory_total)
        snprintf(why, cap, "memory-total would be exceeded");
    else
        return true;
    return false;
}

void queue_mark_next(struct decide *d)
{
    const struct cfg_daemon *c = cfg_daemon(d->world.cfg);
    const unsigned exposed = board_usage(d->board, "").exposed;
    board_mark_ready(d->board);
    for (int restores = 0; restores < 2; restores++) {
        const unsigned ahead = prepare_ahead(c, restores);
        if (exposed < ahead)
            board_mark_next(d->board, restores, ahead - exposed, is_down, d);
    }
}

void queue_mark_down(struct decide *d)
{
    board_mark_down(d->board, is_down, d);
}

bool queue_may(struct decide *d, const struct operation *op, bool move, char *why, size_t cap)
{
    const char *down = queue_outage(d, op);
    if (down)
        snprintf(why, cap, "%s", down);
    else if (!d->world.writable)
        snprintf(why, cap, "the records cannot be written: no new operations are started");
    else if (cfg_daemon(d->world.cfg)->slots == 0)
        snprintf(why, cap, "maintenance mode: slots = 0");
    else
        return move ? may_move(d, op, why, cap) : may_prepare(d, op, why, cap);
    return false;
}

void operation_waits_for(struct decide *d, const struct operation *op, char *why, size_t cap)
{
    const bool restore = operation_is_restore(op), ready = op->exposure || op->target;
    why[0] = '\0';
    if ((op->kind != KIND_BACKUP && !restore) || op->cancel || busy(d, op->id))
        return;
    if (op->state == OP_QUEUED && (restore || !is_none(op->native_doc)))
        queue_may(d, op, false, why, cap);
    else if (op->state == OP_EXPOSING && ready && !op->filled)
        queue_may(d, op, true, why, cap);
}
