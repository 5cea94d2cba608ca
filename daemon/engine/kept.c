/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kept.c - what status says of all volumes is kept up to date, a part at a time
 *
 * Changes are looked at a moment later, so that all changes of one operation cost one look; an answer looks at the
 * first ones itself, so that with few volumes it is exact.
 */
#include "base/time.h"
#include "daemon/answers/overview.h"
#include "daemon/engine/engine-impl.h"

#define LATER_USEC 250000
#define PART 128    /* volumes between two looks at the control socket */
#define FRESH_S 600 /* intervals of calendars change with the seasons only */

static int on_behind(sd_event_source *s, uint64_t usec, void *arg)
{
    struct engine *g = arg;
    (void)usec;
    if (!g->stopping && overview_work(g->overview, PART, now_ns()) > 0) {
        sd_event_source_set_time_relative(s, 0);
        sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
    }
    return 0;
}

static void kept_soon(struct engine *g)
{
    int on = SD_EVENT_OFF;
    if (!g->behind || sd_event_source_get_enabled(g->behind, &on) < 0 || on != SD_EVENT_OFF ||
        !overview_is_behind(g->overview))
        return;
    sd_event_source_set_time_relative(g->behind, LATER_USEC);
    sd_event_source_set_enabled(g->behind, SD_EVENT_ONESHOT);
}

void kept_configure(struct engine *g)
{
    struct jobs_now jobs = jobs_now(g);
    overview_configure(g->overview, g->cfg, &jobs);
    jobs_now_clear(&jobs);
    g->kept_ns = mono_ns();
    kept_soon(g);
}

void kept_refresh(struct engine *g)
{
    if (mono_ns() - g->kept_ns >= FRESH_S * NS_PER_S)
        kept_configure(g);
}

void kept_row(struct engine *g, enum row_kind k, const char *id, const void *was, const void *now)
{
    overview_row(k, id, was, now, g->overview);
    kept_soon(g);
}

const struct overview *kept_now(struct engine *g)
{
    if (overview_work(g->overview, PART, now_ns()) > 0)
        kept_soon(g);
    return g->overview;
}

int kept_new(struct engine *g, struct err *e)
{
    if (!(g->overview = overview_new(g->records)))
        return err_nomem(e);
    kept_configure(g);
    overview_work(g->overview, SIZE_MAX, now_ns());
    int rc = sd_event_add_time_relative(g->loop, &g->behind, CLOCK_MONOTONIC, LATER_USEC, 0, on_behind, g);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(g->behind, SD_EVENT_OFF);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "the event loop takes no more sources") : 0;
}

void kept_free(struct engine *g)
{
    sd_event_source_disable_unref(g->behind);
    g->behind = NULL;
    overview_free(g->overview);
    g->overview = NULL;
}
