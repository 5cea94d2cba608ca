/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-queue.c - who may go next
 *
 * Slots are counted from the records each time, never kept in a counter that can leak (E-02). Restores come before
 * backups and have slots of their own; then priority, then the order in which they were made, so that nobody starves.
 */
#include "daemon/engine-impl.h"

#include <string.h>

struct usage {
    struct engine *engine;
    const struct rec *op;
    bool restore;
    unsigned moving, moving_restores, exposed, in_class, on_device;
    uint64_t memory;
    char ahead[512]; /* an operation that is to go before this one */
    unsigned n_ahead;
    bool want_move;
};

static bool moving(const char *state)
{
    return !strcmp(state, "Starting") || !strcmp(state, "Running") || !strcmp(state, "Cancelling");
}

static uint64_t memory_of(const json_t *policy)
{
    const json_t *l = jobj(policy, "limits");
    int64_t max = jint(l, "memory_max");
    return (uint64_t)(max > 0 ? max : jint(l, "memory") + jint(l, "index_memory") + (64 << 20));
}

/* Whether `a` goes before `b` by rule; both wait for the same thing. */
static bool before(const struct rec *a, const struct rec *b)
{
    bool ra = !strcmp(jstr(a->doc, "kind"), "restore"), rb = !strcmp(jstr(b->doc, "kind"), "restore");
    int64_t pa = jint(jobj(a->doc, "policy"), "priority"), pb = jint(jobj(b->doc, "policy"), "priority");
    if (ra != rb)
        return ra;
    return pa != pb ? pa > pb : a->seq < b->seq;
}

static const char *device_of(const struct rec *op)
{
    return jstr(jobj(op->doc, "volume"), "pool");
}

static int count(struct rec *r, void *arg)
{
    struct usage *u = arg;
    const char *kind = jstr(r->doc, "kind");
    bool restore = !strcmp(kind, "restore");
    if (strcmp(kind, "backup") && !restore)
        return 0;
    if (!strcmp(r->id, u->op->id))
        return 0;
    bool moves = moving(r->state);
    if (moves) {
        u->moving++;
        u->moving_restores += restore;
        u->memory += memory_of(jobj(r->doc, "policy"));
        if (!strcmp(jstr(jobj(r->doc, "own"), "name"), jstr(jobj(u->op->doc, "own"), "name")))
            u->in_class++;
        if (device_of(r)[0] && !strcmp(device_of(r), device_of(u->op)))
            u->on_device++;
    }
    if (moves || !strcmp(r->state, "Exposing"))
        u->exposed++;
    /* Those that could go now as well and have the better right. */
    bool waits = u->want_move ? !strcmp(r->state, "Exposing") && (jobj(r->doc, "exposure") || jobj(r->doc, "target"))
                              : !strcmp(r->state, "Queued") && (restore || jobj(r->doc, "native_doc"));
    if (waits && !jbool(r->doc, "cancel") && before(r, u->op) && restore == u->restore) {
        u->n_ahead++;
        snprintf(u->ahead, sizeof u->ahead, "%s", r->id);
    }
    return 0;
}

bool queue_may(struct engine *g, const struct rec *op, bool move, char *why, size_t cap)
{
    const struct cfg_daemon *d = cfg_daemon(g->cfg);
    const json_t *policy = jobj(op->doc, "policy");
    struct usage u = {.engine = g, .op = op, .want_move = move};
    struct rec_filter live = {.live = true};
    u.restore = !strcmp(jstr(op->doc, "kind"), "restore");
    const char *down = u.restore && jobj(op->doc, "native_doc") ? NULL : repository_down(g, jstr(policy, "repository"));
    if (down && !jstr(policy, "mover")[0]) {
        snprintf(why, cap, "%s", down);
        return false;
    }
    if (records_each(g->records, REC_OPERATION, &live, count, &u, NULL) < 0) {
        snprintf(why, cap, "the records cannot be read");
        return false;
    }
    if (records_degraded(g->records)) {
        snprintf(why, cap, "the records cannot be written: nothing new is started until they can");
        return false;
    }
    if (d->slots == 0) {
        snprintf(why, cap, "maintenance mode: slots = 0");
        return false;
    }
    unsigned backups = u.moving - u.moving_restores, total = d->slots + d->restore_reserved;
    if (!move) {
        unsigned ahead = d->prepare_ahead > d->slots ? d->prepare_ahead : d->slots;
        if (u.exposed >= ahead + (u.restore ? d->restore_reserved : 0)) {
            snprintf(why, cap, "%u operations are prepared already (prepare-ahead)", u.exposed);
            return false;
        }
        if (u.exposed + u.n_ahead >= ahead + (u.restore ? d->restore_reserved : 0)) {
            snprintf(why, cap, "%s goes first", u.ahead);
            return false;
        }
        return true;
    }
    if (u.restore ? u.moving >= total : backups >= d->slots || u.moving >= total) {
        snprintf(why, cap, "all %u slots are in use", u.restore ? total : d->slots);
        return false;
    }
    unsigned per_class = (unsigned)jint(policy, "max_per_class"),
             class_max = (unsigned)jint(jobj(op->doc, "own"), "max");
    if (class_max && (!per_class || class_max < per_class))
        per_class = class_max;
    if (per_class && u.in_class >= per_class) {
        snprintf(why, cap, "class \"%s\" has %u running already", jstr(jobj(op->doc, "own"), "name"), u.in_class);
        return false;
    }
    unsigned per_device = (unsigned)jint(policy, "max_per_device");
    if (!per_device)
        per_device = d->per_device;
    if (per_device && u.on_device >= per_device) {
        snprintf(why, cap, "its device group %s has %u running already", device_of(op), u.on_device);
        return false;
    }
    if (d->memory_total && u.moving && u.memory + memory_of(policy) > d->memory_total) {
        snprintf(why, cap, "the memory of all movers would be over memory-total");
        return false;
    }
    return true;
}
