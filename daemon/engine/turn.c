/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * turn.c - one turn: decide, commit, act
 *
 * The commit runs in a thread of its own. Until it has ended there is no other turn: rows that are being written are
 * decided about again only when they are durable. What happens meanwhile waits as events, answers come from memory.
 */
#include "daemon/engine/engine-impl.h"

#define LOOKS 256 /* rows that one turn looks at */
#define RETRY_S 1 /* until a turn that could not be committed is tried again */
#define RETRY_DEGRADED_S 10

static void undone(struct engine *g, const struct err *e)
{
    decide_undone(&g->d);
    const int64_t wait_s = records_degraded(g->records) ? RETRY_DEGRADED_S : RETRY_S;
    g->retry_ns = mono_ns() + wait_s * NS_PER_S;
    log_warning("what was decided cannot be recorded, retrying in %lld s: %s", (long long)wait_s, e->msg);
}

static void finish(struct engine *g, int rc, const struct err *e)
{
    if (rc < 0) {
        undone(g, e);
    } else {
        engine_act(g, &g->d.plan);
        decide_acted(&g->d);
    }
    waiters_tell(g);
}

/* Decides what is to be written; false: nothing can be written now. */
static bool decide(struct engine *g)
{
    struct err e = ERR_INIT;
    struct decide *d = &g->d;
    if (g->retry_ns && mono_ns() < g->retry_ns)
        return false;
    g->retry_ns = 0;
    d->world.cfg = g->cfg;
    d->world.writable = !records_degraded(g->records);
    if (g->was_degraded && d->world.writable)
        decide_look_at_all(d);
    g->was_degraded = !d->world.writable;
    if (records_begin(g->records, &e) < 0) {
        g->retry_ns = mono_ns() + RETRY_S * NS_PER_S;
        log_warning("the records cannot be used, retrying: %s", e.msg);
        return false;
    }
    records_counters_hold(g->records);
    decide_turn(d, LOOKS);
    if (!d->plan.failed)
        return true;
    err_set(&e, ERR_GENERIC, 0, "a row cannot be written");
    records_rollback(g->records);
    records_counters_settle(g->records);
    finish(g, -1, &e);
    return false;
}

void engine_turn(struct engine *g)
{
    struct err e = ERR_INIT;
    if (g->d.in_flight || !decide(g))
        return;
    int rc = records_commit_start(g->records, &e);
    records_counters_settle(g->records);
    if (rc <= 0)
        finish(g, rc, &e);
}

void engine_committed(struct engine *g)
{
    struct err e = ERR_INIT;
    if (records_committing(g->records))
        finish(g, records_commit_end(g->records, &e), &e);
}

void engine_turn_now(struct engine *g)
{
    struct err e = ERR_INIT;
    engine_committed(g);
    if (g->d.in_flight || !decide(g))
        return;
    int rc = records_commit(g->records, &e);
    records_counters_settle(g->records);
    finish(g, rc, &e);
}
