/* SPDX-License-Identifier: GPL-2.0-or-later */
/* core.c - what every file of the engine uses: names, the next turn, what the engine has */
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>
#include <sys/random.h>

/* Counted from a random number: 65536 in a row differ, whatever the clock does, and another node or a daemon that was
 * started within the same second hardly ever has one of them. */
static void unique_stamp(struct ids *ids, int64_t now_ns, char out[32])
{
    char stamp[TIME_STAMP];
    if (!ids->begun && getrandom(&ids->next, sizeof ids->next, 0) != sizeof ids->next)
        ids->next = (uint16_t)now_ns;
    ids->begun = true;
    snprintf(out, 32, "%s-%04x", time_stamp(now_ns, stamp), ids->next++);
}

_Static_assert(ALIAS_TEXT == ALIAS_LEN + 1, "an alias has the same length everywhere");
static void random_alias(struct ids *ids, char out[ALIAS_TEXT])
{
    (void)ids;
    alias_new(out);
}

void engine_ids(struct ids *ret)
{
    *ret = (struct ids){.stamp = unique_stamp, .alias = random_alias};
}

bool engine_is_writing(const struct engine *g)
{
    return g->d.in_flight || records_committing(g->records);
}

void engine_kick(struct engine *g)
{
    if (g->kicked || g->stopping)
        return;
    g->kicked = true;
    sd_event_source_set_enabled(g->kick, SD_EVENT_ONESHOT);
}

/* What happened must not be lost: without memory for it the daemon ends, and the next one finds out by itself. */
struct event *engine_event(enum event_kind kind, enum row_kind row, const char *id)
{
    struct event *ev = event_new(kind, row, id);
    if (!ev) {
        log_line(LOG_LVL_ERROR, "out of memory for an event of %s: stopping, systemd restarts the daemon", id);
        abort();
    }
    return ev;
}

void engine_post(struct engine *g, struct event *ev)
{
    event_post(&g->d, ev);
    engine_kick(g);
}

void engine_post_not_started(struct engine *g, const char *id, bool transient, const struct err *e)
{
    struct event *ev = engine_event(EVENT_NOT_STARTED, ROW_OPERATION, id);
    ev->err = *e;
    ev->transient = transient;
    engine_post(g, ev);
}

void engine_mover_ended(struct engine *g, const char *id, const struct mover_end *end)
{
    struct event *ev = engine_event(EVENT_ENDED, ROW_OPERATION, id);
    ev->report = (struct mover_report){.outcome = end->outcome,
                                       .result = end->result,
                                       .status = end->status,
                                       .memory_peak = end->memory_peak,
                                       .oom_kills = end->oom_kills,
                                       .cpu_seconds = end->cpu_seconds,
                                       .looked_for = end->looked_for,
                                       .err = end->err};
    engine_post(g, ev);
}

void engine_look_at_all(struct engine *g)
{
    decide_look_at_all(&g->d);
    engine_kick(g);
}

struct records *engine_records(struct engine *g)
{
    return g->records;
}

const struct cfg *engine_cfg(const struct engine *g)
{
    return g->cfg;
}

const struct schedule *engine_schedule(const struct engine *g)
{
    return g->schedule;
}

struct jobs_now jobs_now(const struct engine *g)
{
    struct jobs_now j;
    j.v = schedule_views(g->schedule, now_ns(), &j.n);
    return j;
}

void count_write_errors(struct engine *g)
{
    const uint64_t n = records_write_errors(g->records);
    struct err e = ERR_INIT;
    if (records_degraded(g->records) || n <= g->write_errors_kept)
        return;
    const uint64_t fresh = n - g->write_errors_kept;
    g->write_errors_kept = n;
    if (records_counter_add(g->records, WRITE_ERRORS, NULL, (double)fresh, &e) < 0)
        log_debug("%s", e.msg);
}
