/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * clock.c - deadlines in the records when the clock was set
 *
 * They are times of the clock, so that they hold over a restart, but what they mean is how long something waits: the
 * next attempt, the end of a mover that does not obey, prepare-timeout, repo-outage-max, and since when
 * it is in its state. They move with the clock. When something was begun stays as it was told; by how much the clock
 * was set since is remembered, for how long it took.
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

struct shifting {
    struct decide *decide;
    int64_t by_ns; /* 0: not known */
    unsigned n;
};

static void time_shift(int64_t *ns, int64_t by_ns)
{
    if (*ns)
        *ns += by_ns;
}

/* What was written later than now was so by a clock that was at least so much ahead. */
static int64_t shift_of(const struct shifting *x, int64_t updated_ns)
{
    const int64_t now = decide_now(x->decide);
    return x->by_ns ? x->by_ns : updated_ns > now ? now - updated_ns : 0;
}

static int shift_one(const struct operation *op, void *arg)
{
    struct shifting *x = arg;
    const int64_t by_ns = shift_of(x, op->updated_ns);
    CLEANUP(operation_clear) struct operation own = ROW_INIT;
    if (!by_ns || operation_copy(&own, op) < 0)
        return 0;
    time_shift(&own.state_since_ns, by_ns);
    time_shift(&own.wake_ns, by_ns);
    time_shift(&own.prepare_deadline_ns, by_ns);
    time_shift(&own.cancel_deadline_ns, by_ns);
    time_shift(&own.outage_ns, by_ns);
    own.clock_ns += by_ns;
    x->n += operation_write(x->decide, &own) == 0;
    return 0;
}

static int shift_run(const struct backup *b, void *arg)
{
    struct shifting *x = arg;
    const int64_t by_ns = shift_of(x, b->updated_ns);
    CLEANUP(backup_clear) struct backup own = ROW_INIT;
    if (!by_ns || backup_copy(&own, b) < 0)
        return 0;
    time_shift(&own.state_since_ns, by_ns);
    own.clock_ns += by_ns;
    backup_write(x->decide, &own);
    return 0;
}

unsigned clock_was_set(struct decide *d, int64_t by_ns)
{
    const struct operation_filter live = {.live = true};
    struct shifting x = {.decide = d, .by_ns = by_ns};
    const struct backup_filter runs = {.live = true};
    operation_each(d->records, &live, shift_one, &x, NULL);
    backup_each(d->records, &runs, shift_run, &x, NULL);
    return x.n;
}
