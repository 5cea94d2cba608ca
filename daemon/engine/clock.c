/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * clock.c - the clock was set: while the daemon runs, seen by a clock that nobody sets, or before it was started
 *
 * What is remembered as a time is as long ago afterwards as it was before, and deadlines are as far away.
 */
#include "base/time.h"
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>

#define CLOCK_SET_NS (2 * NS_PER_S) /* less is a clock that is corrected slowly, or a slow look at both clocks */

struct clock_set {
    int64_t by_ns;
    unsigned n;
};

static int write_clock_set(struct decide *d, void *arg, struct err *e)
{
    struct clock_set *x = arg;
    (void)e;
    x->n = clock_was_set(d, x->by_ns);
    return 0;
}

static void clock_set_written(const struct err *e, void *arg)
{
    struct clock_set *x = arg;
    if (e->cls)
        log_warning("the clock was set, and deadlines of operations stay as they were: %s", e->msg);
    else if (x->n)
        log_info("the clock was set: the deadlines of %u unfinished operation%s have moved with it", x->n,
                 x->n == 1 ? "" : "s");
    free(x);
}

static void request_shift(struct engine *g, int64_t by_ns)
{
    struct clock_set *x = calloc(1, sizeof *x);
    if (!x)
        return;
    x->by_ns = by_ns;
    engine_request(g, write_clock_set, clock_set_written, x);
}

void clock_begin(struct engine *g)
{
    const struct operation_filter live = {.live = true};
    uint64_t n = 0;
    if (operation_count(g->records, &live, &n, NULL) == 0 && n)
        request_shift(g, 0);
}

void clock_look(struct engine *g)
{
    const int64_t clock_ns = now_ns() - boot_ns(), by_ns = clock_ns - g->clock_ns;
    if (llabs(by_ns) < CLOCK_SET_NS || g->stopping)
        return;
    g->clock_ns = clock_ns;
    g->started_ns += by_ns;
    g->reload_ns += by_ns;
    g->sweep_ns = g->orphans_ns = g->strays_ns = 0; /* are due */
    repositories_clock_set(g, by_ns);
    request_shift(g, by_ns);
}
