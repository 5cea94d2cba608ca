/* SPDX-License-Identifier: GPL-2.0-or-later */
/* record.c - what is to be recorded in the next turn, of requests and of what was found by looking */
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>

void engine_request(struct engine *g, request_write_fn *write, request_ended_fn *ended, void *arg)
{
    const struct request q = {write, ended, arg};
    struct err e = ERR_INIT;
    repositories_look_again(g, true);
    if (request_post(&g->d, &q) == 0) {
        engine_kick(g);
    } else {
        err_nomem(&e);
        ended(&e, arg);
    }
}

struct record {
    struct engine *engine;
    const char *what;
    record_fn *fn;
    json_t *doc;
};

static int write_record(struct decide *d, void *arg, struct err *e)
{
    const struct record *r = arg;
    (void)d;
    return r->fn(r->engine, r->doc, e);
}

static void record_ended(const struct err *e, void *arg)
{
    struct record *r = arg;
    if (e->cls && !r->engine->stopping)
        log_warning("%s: cannot be recorded: %s", r->what, e->msg);
    json_decref(r->doc);
    free(r);
}

void engine_record(struct engine *g, const char *what, record_fn *fn, json_t *doc)
{
    struct record *r = calloc(1, sizeof *r);
    if (!r) {
        log_warning("%s: no memory", what);
        json_decref(doc);
        return;
    }
    *r = (struct record){g, what, fn, doc};
    engine_request(g, write_record, record_ended, r);
}

static int write_jobs(struct decide *d, void *arg, struct err *e)
{
    const struct engine *g = arg;
    (void)d;
    return schedule_write(g->schedule, e);
}

static void jobs_written(const struct err *e, void *arg)
{
    struct engine *g = arg;
    g->jobs_wait = false;
    if (!e->cls) {
        schedule_written(g->schedule);
        jobs_record(g); /* what has changed meanwhile */
    } else if (!g->stopping) {
        log_warning("schedules of jobs: %s", e->msg); /* recorded with the next change, or the next sweep */
    }
}

void jobs_record(struct engine *g)
{
    if (g->jobs_wait || !schedule_is_changed(g->schedule))
        return;
    g->jobs_wait = true;
    engine_request(g, write_jobs, jobs_written, g);
}
