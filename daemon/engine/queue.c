/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-queue.c - who may go next
 *
 * Slots are counted from the records each time, never kept in a counter that can leak (E-02). Restores come before
 * backups and have slots of their own; then priority, then the order in which they were made, so that nobody starves.
 */
#include "daemon/engine/engine-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A name as a number; two names that share one only wait for each other without need. */
static uint32_t name_hash(const char *name)
{
    uint32_t h = 2166136261u;
    if (!*name)
        return 0;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h ? h : 1;
}

static uint64_t memory_of(const struct policy *policy)
{
    const struct policy_limits *l = &policy->limits;
    return (uint64_t)(l->memory_max > 0 ? l->memory_max : l->memory + l->index_memory + (64 << 20));
}

/* Why it cannot go whoever else does: its repository is away. NULL: nothing. */
static const char *stuck(struct engine *g, const struct operation *op)
{
    bool needs = !op->policy->mover[0] && !(operation_is_restore(op) && !is_none(op->native_doc));
    return needs ? repository_down(g, op->policy->repository) : NULL;
}

static void entry_of(struct engine *g, struct queue_entry *q, const struct operation *op)
{
    const bool native = !is_none(op->native_doc);
    *q = (struct queue_entry){.seq = op->seq, .priority = op->policy->priority, .memory = memory_of(op->policy)};
    snprintf(q->id, sizeof q->id, "%s", op->id);
    q->wake_ns = op->wake_ns;
    q->canceled = op->cancel;
    q->restore = operation_is_restore(op);
    q->other = !q->restore && op->kind != KIND_BACKUP;
    if (q->other)
        return;
    q->moving = op->state == OP_STARTING || op->state == OP_RUNNING || op->state == OP_CANCELLING;
    q->exposing = op->state == OP_EXPOSING;
    q->ready = q->exposing && (op->exposure || op->target);
    q->queued = op->state == OP_QUEUED && (q->restore || native);
    q->phase_1 = !q->restore && (op->state == OP_SNAPSHOTTING || (op->state == OP_QUEUED && !native));
    q->stuck = stuck(g, op) != NULL;
    q->klass = name_hash(op->own->name);
    q->device = name_hash(op->volume->pool);
}

static int add_entry(const struct operation *op, void *arg)
{
    struct engine *g = arg;
    if (g->n_queue == g->cap_queue) {
        unsigned cap = g->cap_queue ? 2 * g->cap_queue : 64;
        struct queue_entry *p = realloc(g->queue, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        g->queue = p;
        g->cap_queue = cap;
    }
    entry_of(g, &g->queue[g->n_queue++], op);
    return 0;
}

int queue_view(struct engine *g)
{
    struct operation_filter live = {.live = true};
    if (g->queue_known)
        return 0;
    g->n_queue = 0;
    int rc = operation_each(g->records, &live, add_entry, g, NULL);
    g->queue_known = rc == 0;
    return rc;
}

/* Whether `a` goes before `b` by rule; both wait for the same thing. */
static bool before(const struct queue_entry *a, const struct queue_entry *b)
{
    if (a->restore != b->restore)
        return a->restore;
    return a->priority != b->priority ? a->priority > b->priority : a->seq < b->seq;
}

struct usage {
    unsigned moving, moving_restores, exposed, in_class, on_device;
    uint64_t memory;
    const char *ahead; /* an operation that is to go before this one */
    unsigned n_ahead;
};

static void count(const struct engine *g, const struct queue_entry *own, bool want_move, struct usage *u)
{
    *u = (struct usage){.ahead = ""};
    for (unsigned i = 0; i < g->n_queue; i++) {
        const struct queue_entry *q = &g->queue[i];
        if (!strcmp(q->id, own->id))
            continue;
        if (q->moving) {
            u->moving++;
            u->moving_restores += q->restore;
            u->memory += q->memory;
            u->in_class += q->klass == own->klass;
            u->on_device += q->device && q->device == own->device;
        }
        u->exposed += q->moving || q->exposing;
        /* Those that could go now as well and have the better right. */
        if ((want_move ? q->ready : q->queued) && !q->canceled && !q->stuck && q->restore == own->restore &&
            before(q, own)) {
            u->n_ahead++;
            u->ahead = q->id;
        }
    }
}

static bool may_prepare(const struct cfg_daemon *d, const struct usage *u, bool restore, char *why, size_t cap)
{
    unsigned ahead = (d->prepare_ahead > d->slots ? d->prepare_ahead : d->slots) + (restore ? d->restore_reserved : 0);
    if (u->exposed >= ahead)
        snprintf(why, cap, "%u operations are prepared already (prepare-ahead)", u->exposed);
    else if (u->exposed + u->n_ahead >= ahead)
        snprintf(why, cap, "%s goes first", u->ahead);
    else
        return true;
    return false;
}

static bool may_move(const struct cfg_daemon *d, const struct usage *u, const struct operation *op, bool restore, char *why,
                     size_t cap)
{
    const struct policy *policy = op->policy;
    unsigned backups = u->moving - u->moving_restores, total = d->slots + d->restore_reserved;
    unsigned per_class = (unsigned)policy->max_per_class,
             class_max = (unsigned)op->own->max,
             per_device = (unsigned)policy->max_per_device;
    if (class_max && (!per_class || class_max < per_class))
        per_class = class_max;
    if (!per_device)
        per_device = d->per_device;
    if (restore ? u->moving >= total : backups >= d->slots || u->moving >= total)
        snprintf(why, cap, "all %u slots are in use", restore ? total : d->slots);
    else if (per_class && u->in_class >= per_class)
        snprintf(why, cap, "class \"%s\" has %u running already", op->own->name, u->in_class);
    else if (per_device && u->on_device >= per_device)
        snprintf(why, cap, "its device group %s has %u running already", op->volume->pool,
                 u->on_device);
    else if (d->memory_total && u->moving && u->memory + memory_of(policy) > d->memory_total)
        snprintf(why, cap, "the memory of all movers would be over memory-total");
    else
        return true;
    return false;
}

bool queue_worth_a_look(struct engine *g, unsigned i)
{
    const struct queue_entry *q = &g->queue[i];
    struct usage u;
    char why[640];
    if (q->phase_1 && !q->canceled)
        return false;
    if (!q->queued || q->canceled || q->stuck || busy(g, q->id))
        return true;
    count(g, q, false, &u);
    if (may_prepare(cfg_daemon(g->cfg), &u, q->restore, why, sizeof why))
        return true;
    struct live *l = live_get(g, ROW_OPERATION, q->id);
    if (l)
        snprintf(l->waiting, sizeof l->waiting, "%.500s", why);
    return false;
}

bool queue_may(struct engine *g, const struct operation *op, bool move, char *why, size_t cap)
{
    const struct cfg_daemon *d = cfg_daemon(g->cfg);
    struct queue_entry own;
    struct usage u;
    entry_of(g, &own, op);
    const char *down = stuck(g, op);
    if (down)
        snprintf(why, cap, "%s", down);
    else if (queue_view(g) < 0)
        snprintf(why, cap, "the records cannot be read");
    else if (records_degraded(g->records))
        snprintf(why, cap, "the records cannot be written: nothing new is started until they can");
    else if (d->slots == 0)
        snprintf(why, cap, "maintenance mode: slots = 0");
    else {
        count(g, &own, move, &u);
        return move ? may_move(d, &u, op, own.restore, why, cap) : may_prepare(d, &u, own.restore, why, cap);
    }
    return false;
}

void operation_waits(struct engine *g, const struct operation *op, const char *why)
{
    struct live *l = *why ? live_get(g, ROW_OPERATION, op->id) : live_find(g, op->id);
    if (l)
        snprintf(l->waiting, sizeof l->waiting, "%s", why);
}
