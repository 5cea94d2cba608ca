/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * turn.c - one turn: decide, commit, act
 *
 * The commit runs in a thread of its own. Until it has ended there is no other turn: rows that are being written are
 * decided about again only when they are durable. What happens meanwhile waits as events, answers come from memory.
 *
 * If a commit fails, a transaction without changes shows whether the records can be written at all. If not, nothing is
 * decided until they can, requests are refused, and it is tried again. If they can, one of the units of the turn is the
 * cause: the next turns have half as many, until one with a single unit fails, which is kept aside.
 *
 * A request that changes many rows does so in parts, and clients are served in between: the transaction stays open, and
 * is committed as a whole.
 *
 * While several movers run, what they and the steps report is gathered for some milliseconds before the next turn
 * begins: it is one commit then. A request does not wait for that.
 *
 * A turn that has only started movers, which wait for their go, goes on until they are ready or something else is to be
 * written: it is one transaction then, and one commit.
 */
#include "base/time.h"
#include "daemon/engine/engine-impl.h"

#define UNITS 256    /* of one turn, about */
#define GOOD_TURNS 4 /* after as many, turns have twice as many units again */
#define RETRY_S 1    /* until it is tried again whether the records can be written */
#define RETRY_DEGRADED_S 10

/* What is gathered for one turn: at most as long as this, and the less the fewer movers there are. */
#define GATHER_MOVER_NS (4 * NS_PER_MS)
#define GATHER_MAX_NS (20 * NS_PER_MS)

/* ---- after a failure ---- */

static void retry_later(struct engine *g, const struct err *e)
{
    const int64_t wait_s = records_degraded(g->records) ? RETRY_DEGRADED_S : RETRY_S;
    g->retry_ns = mono_ns() + wait_s * NS_PER_S;
    log_warning("what was decided cannot be recorded, retrying in %lld s: %s", (long long)wait_s, e->msg);
}

static void turn_failed(struct engine *g, const struct err *e)
{
    struct failed_turn *f = &g->failed;
    f->units = g->d.units;
    f->err = *e;
    f->probe = true;
    f->good = 0;
    engine_act_undo(g, &g->d.plan);
    decide_undone(&g->d);
    if (f->units < 2)
        return;
    g->units = f->units / 2;
    log_debug("a turn of %u cannot be recorded: %s", f->units, e->msg);
}

static void probe_ended(struct engine *g, int rc, const struct err *e)
{
    struct failed_turn *f = &g->failed;
    g->probing = false;
    if (rc < 0) {
        retry_later(g, e);
        requests_refuse(&g->d, e);
        return;
    }
    f->probe = false;
    if (f->units != 1)
        return;
    g->units = UNITS;
    decide_blame(&g->d, &f->err);
}

static void turn_succeeded(struct engine *g)
{
    if (g->units == UNITS || ++g->failed.good < GOOD_TURNS)
        return;
    g->failed.good = 0;
    g->units = g->units < UNITS / 2 ? 2 * g->units : UNITS;
}

/* ---- old records ---- */

#define KEEP_ROWS 200 /* of each kind, however old */

static void pruned(struct engine *g)
{
    struct err e = ERR_INIT;
    g->prune_turn = g->d.turn;
    if (records_prune_end(g->records, &g->prune_wanted, &e) < 0)
        log_warning("old records cannot be removed: %s", e.msg);
}

/* When nothing else is to be written, or a turn was between two parts. */
static bool prune(struct engine *g)
{
    struct err e = ERR_INIT;
    if (!g->prune_wanted || g->failed.probe || g->retry_ns || (decide_is_due(&g->d) && g->prune_turn == g->d.turn))
        return false;
    const int rc = records_prune_start(g->records, cfg_daemon(g->cfg)->keep_records_s, KEEP_ROWS, &e);
    if (rc < 0) {
        g->prune_wanted = false; /* until the next sweep */
        log_warning("old records cannot be removed: %s", e.msg);
    }
    return rc > 0;
}

/* ---- the turn ---- */

static int64_t gather_ns(const struct engine *g)
{
    const int64_t movers = movers_count(g->movers);
    if (movers < 2)
        return 0;
    return movers * GATHER_MOVER_NS < GATHER_MAX_NS ? movers * GATHER_MOVER_NS : GATHER_MAX_NS;
}

int64_t engine_turn_waits(const struct engine *g)
{
    if (!g->next_ns || g->open_ns || g->failed.probe || g->retry_ns || requests_wait(&g->d))
        return 0;
    const int64_t wait = g->next_ns - mono_ns();
    return wait > 0 ? wait : 0;
}

static void turn_finish(struct engine *g, int rc, const struct err *e)
{
    g->next_ns = 0;
    if (g->probing) {
        probe_ended(g, rc, e);
    } else if (rc < 0) {
        turn_failed(g, e);
    } else {
        turn_succeeded(g);
        engine_act(g, &g->d.plan);
        decide_acted(&g->d);
        g->next_ns = mono_ns() + gather_ns(g);
    }
    waiters_tell(g);
}

static bool turn_begin(struct engine *g)
{
    struct err e = ERR_INIT;
    if (records_begin(g->records, &e) == 0)
        return true;
    retry_later(g, &e);
    requests_refuse(&g->d, &e);
    return false;
}

/* False: there is nothing to be written now. */
static bool turn_decide(struct engine *g)
{
    struct decide *d = &g->d;
    d->world.cfg = g->cfg;
    d->world.writable = !records_degraded(g->records);
    clock_look(g);
    if (g->was_degraded && d->world.writable)
        decide_look_at_all(d);
    g->was_degraded = !d->world.writable;
    if (!g->open_ns) {
        if (!turn_begin(g))
            return false;
        records_counters_hold(g->records);
    }
    decide_turn(d, g->units ? g->units : (g->units = UNITS));
    if (!d->plan.failed)
        return true;
    const struct err e = d->plan.err;
    g->open_ns = 0;
    records_rollback(g->records);
    records_counters_settle(g->records);
    engine_act_undo(g, &d->plan);
    decide_undone(d);
    retry_later(g, &e);
    return false;
}

/* A request has more to change: clients are served first. */
static bool turn_pauses(struct engine *g)
{
    if (!decide_pauses(&g->d))
        return false;
    if (!g->open_ns)
        g->open_ns = mono_ns();
    return true;
}

/* The turn has only started movers: it waits for them, and their go needs no commit of its own. Not after a failure,
 * when turns are to be small. */
static bool goes_on(struct engine *g)
{
    const int64_t now = mono_ns();
    if (g->units != UNITS || !decide_may_go_on(&g->d) || (g->open_ns && now - g->open_ns >= TURN_GOES_ON_NS))
        return false;
    if (!g->open_ns)
        g->open_ns = now;
    engine_act_early(g, &g->d.plan);
    decide_go_on(&g->d);
    return true;
}

static int sync_results(void *arg, struct err *e)
{
    return movers_sync(arg, e);
}

/* Once for all movers that begin, and not in the event loop. */
static bool lets_movers_begin(const struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->acts[i].kind == ACT_MOVER_GO)
            return true;
    return false;
}

static void turn_commit(struct engine *g)
{
    struct err e = ERR_INIT;
    g->open_ns = 0;
    records_commit_before(g->records, lets_movers_begin(&g->d.plan) ? sync_results : NULL, g->movers);
    const int rc = records_commit_start(g->records, &e);
    records_counters_settle(g->records);
    if (rc <= 0)
        turn_finish(g, rc, &e);
}

static bool probe_begin(struct engine *g)
{
    if (!turn_begin(g))
        return false;
    records_counters_hold(g->records);
    records_probe(g->records);
    g->probing = true;
    return true;
}

void engine_turn(struct engine *g)
{
    if (engine_is_writing(g) || (!g->open_ns && prune(g)))
        return;
    /* Who asks for something learns at once that it cannot be recorded. */
    if (g->retry_ns && mono_ns() < g->retry_ns && !requests_wait(&g->d))
        return;
    const bool again = g->failed.probe || g->retry_ns;
    g->retry_ns = 0;
    if (again ? !probe_begin(g) : !turn_decide(g) || turn_pauses(g) || goes_on(g))
        return;
    turn_commit(g);
}

void engine_turn_end(struct engine *g)
{
    if (g->open_ns) {
        decide_part_undo(&g->d);
        turn_commit(g);
    }
    engine_committed(g);
}

void engine_committed(struct engine *g)
{
    struct err e = ERR_INIT;
    if (records_pruning(g->records))
        pruned(g);
    else if (records_committing(g->records))
        turn_finish(g, records_commit_end(g->records, &e), &e);
}
