/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * status-asked.c - the status as it is now: repositories and pools are looked at when somebody asks; the pools alone
 * for those that ask about native snapshots
 *
 * Else one that has gone away would be called available until the next look. The looks are steps. Who asks waits until
 * they have ended, but not longer than a second: an NFS server that hangs delays an answer by that, and none while it
 * goes on hanging. What was seen last is told then, and when that was.
 */
#include "base/time.h"
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>

#define WAIT_NS (1 * NS_PER_S)

struct status_asked {
    struct status_asked *next;
    engine_reply_fn *reply;
    void *arg;
    int64_t asked_ns; /* boot_ns() */
    bool pools_only;  /* its answer is made when it is called */
};

/* Those that have waited for long enough, or whose looks have ended. A look that began before somebody has asked tells
 * nothing of now. */
static void status_answer(struct engine *g)
{
    CLEANUP_JSON json_t *status = NULL;
    struct status_asked *list = g->status_asked;
    g->status_asked = NULL;
    while (list) {
        struct status_asked *a = list;
        list = a->next;
        const bool pools = g->pools_running && boot_ns() - g->pools_began_ns < WAIT_NS; /* else it hangs */
        if (boot_ns() - a->asked_ns < WAIT_NS &&
            (pools || (!a->pools_only && !repositories_seen_since(g, a->asked_ns, WAIT_NS)))) {
            a->next = g->status_asked;
            g->status_asked = a;
            continue;
        }
        status = status || a->pools_only ? status : engine_status(g);
        a->reply(a->pools_only ? NULL : status, NULL, a->arg);
        free(a);
    }
}

/* Looks for those that wait on, and until when the one that has waited longest may wait. */
static int64_t status_look(struct engine *g)
{
    int64_t newest = 0, until = INT64_MAX;
    for (const struct status_asked *a = g->status_asked; a; a = a->next) {
        newest = !a->pools_only && a->asked_ns > newest ? a->asked_ns : newest;
        until = a->asked_ns + WAIT_NS < until ? a->asked_ns + WAIT_NS : until;
    }
    if (newest)
        repositories_look_since(g, newest);
    return until;
}

int status_asked_due(sd_event_source *s, uint64_t usec, void *arg)
{
    struct engine *g = arg;
    (void)usec;
    status_answer(g);
    if (!g->status_asked)
        return 0;
    const int64_t left = status_look(g) - boot_ns();
    sd_event_source_set_time_relative(s, left > 0 ? (uint64_t)(left / NS_PER_US) : 0);
    sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
    return 0;
}

static bool asked(struct engine *g, bool pools_only, engine_reply_fn *reply, void *arg)
{
    struct status_asked *a = g->stopping ? NULL : calloc(1, sizeof *a);
    if (!a)
        return false;
    *a = (struct status_asked){g->status_asked, reply, arg, boot_ns(), pools_only};
    g->status_asked = a;
    pools_look(g);
    status_asked_due(g->status_due, 0, g);
    return true;
}

void engine_status_asked(struct engine *g, engine_reply_fn *reply, void *arg)
{
    if (asked(g, false, reply, arg))
        return;
    CLEANUP_JSON json_t *status = engine_status(g);
    reply(status, NULL, arg);
}

void engine_pools_asked(struct engine *g, engine_reply_fn *reply, void *arg)
{
    if (!asked(g, true, reply, arg))
        reply(NULL, NULL, arg);
}

void status_asked_stop(struct engine *g, const struct err *e)
{
    while (g->status_asked) {
        struct status_asked *a = g->status_asked;
        g->status_asked = a->next;
        a->reply(NULL, e, a->arg);
        free(a);
    }
}
