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

static uint64_t memory_of(const json_t *policy)
{
    const json_t *l = jobj(policy, "limits");
    int64_t max = jint(l, "memory_max");
    return (uint64_t)(max > 0 ? max : jint(l, "memory") + jint(l, "index_memory") + (64 << 20));
}

/* Why it cannot go whoever else does: its repository is away. NULL: nothing. */
static const char *stuck(struct engine *g, const struct rec *r)
{
    const json_t *policy = jobj(r->doc, "policy");
    bool needs = !jstr(policy, "mover")[0] && !(operation_is_restore(r) && jobj(r->doc, "native_doc"));
    return needs ? repository_down(g, jstr(policy, "repository")) : NULL;
}

static void entry_of(struct engine *g, struct queue_entry *q, const struct rec *r)
{
    const json_t *policy = jobj(r->doc, "policy");
    const char *s = r->state;
    *q = (struct queue_entry){.seq = r->seq, .priority = jint(policy, "priority"), .memory = memory_of(policy)};
    snprintf(q->id, sizeof q->id, "%s", r->id);
    q->wake_ns = r->wake_ns;
    q->canceled = jbool(r->doc, "cancel");
    q->restore = operation_is_restore(r);
    q->other = !q->restore && strcmp(jstr(r->doc, "kind"), "backup");
    if (q->other)
        return;
    q->moving = !strcmp(s, "Starting") || !strcmp(s, "Running") || !strcmp(s, "Cancelling");
    q->exposing = !strcmp(s, "Exposing");
    q->ready = q->exposing && (jobj(r->doc, "exposure") || jobj(r->doc, "target"));
    q->queued = !strcmp(s, "Queued") && (q->restore || jobj(r->doc, "native_doc"));
    q->phase_1 = !q->restore && (!strcmp(s, "Snapshotting") || (!strcmp(s, "Queued") && !jobj(r->doc, "native_doc")));
    q->stuck = stuck(g, r) != NULL;
    q->klass = name_hash(jstr(jobj(r->doc, "own"), "name"));
    q->device = name_hash(jstr(jobj(r->doc, "volume"), "pool"));
}

static int add_entry(struct rec *r, void *arg)
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
    entry_of(g, &g->queue[g->n_queue++], r);
    return 0;
}

int queue_view(struct engine *g)
{
    struct rec_filter live = {.live = true};
    if (g->queue_known)
        return 0;
    g->n_queue = 0;
    int rc = records_each(g->records, REC_OPERATION, &live, add_entry, g, NULL);
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

static bool may_move(const struct cfg_daemon *d, const struct usage *u, const struct rec *op, bool restore, char *why,
                     size_t cap)
{
    const json_t *policy = jobj(op->doc, "policy");
    unsigned backups = u->moving - u->moving_restores, total = d->slots + d->restore_reserved;
    unsigned per_class = (unsigned)jint(policy, "max_per_class"),
             class_max = (unsigned)jint(jobj(op->doc, "own"), "max"),
             per_device = (unsigned)jint(policy, "max_per_device");
    if (class_max && (!per_class || class_max < per_class))
        per_class = class_max;
    if (!per_device)
        per_device = d->per_device;
    if (restore ? u->moving >= total : backups >= d->slots || u->moving >= total)
        snprintf(why, cap, "all %u slots are in use", restore ? total : d->slots);
    else if (per_class && u->in_class >= per_class)
        snprintf(why, cap, "class \"%s\" has %u running already", jstr(jobj(op->doc, "own"), "name"), u->in_class);
    else if (per_device && u->on_device >= per_device)
        snprintf(why, cap, "its device group %s has %u running already", jstr(jobj(op->doc, "volume"), "pool"),
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
    struct live *l = live_get(g, REC_OPERATION, q->id);
    if (l)
        snprintf(l->waiting, sizeof l->waiting, "%.500s", why);
    return false;
}

bool queue_may(struct engine *g, const struct rec *op, bool move, char *why, size_t cap)
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

void operation_waits(struct engine *g, const struct rec *op, const char *why)
{
    struct live *l = *why ? live_get(g, REC_OPERATION, op->id) : live_find(g, op->id);
    if (l)
        snprintf(l->waiting, sizeof l->waiting, "%s", why);
}
