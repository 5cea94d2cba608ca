/* SPDX-License-Identifier: GPL-2.0-or-later */
/* retry.c - a backup is tried again from its native snapshots, if the storage still has them (RS-03) */
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>

struct retrying {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    json_t *req, *answer;
};

static void retry_end(struct retrying *r, const struct err *e)
{
    r->reply(e->cls ? NULL : r->answer, e->cls ? e : NULL, r->arg);
    json_decref(r->req);
    json_decref(r->answer);
    free(r);
}

static int write_retry(struct decide *d, void *arg, struct err *e)
{
    struct retrying *r = arg;
    json_t *answer = NULL;
    const int rc = retry_submit(d, r->req, &answer, e);
    json_take(&r->answer, answer);
    return rc;
}

static void retry_written(const struct err *e, void *arg)
{
    retry_end(arg, e);
}

static void retry_seen(struct step_result *s, void *arg)
{
    struct retrying *r = arg;
    if (s->err.cls) {
        retry_end(r, &s->err);
        return;
    }
    json_object_set(r->req, "seen", jarr(s->out, "natives"));
    engine_request(r->engine, write_retry, retry_written, r);
}

void engine_retry(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct retrying *r = calloc(1, sizeof *r);
    struct err e = ERR_INIT;
    if (!r) {
        err_nomem(&e);
        reply(NULL, &e, arg);
        return;
    }
    *r = (struct retrying){.engine = g, .reply = reply, .arg = arg, .req = json_deep_copy(req)};
    CLEANUP_JSON json_t *in = NULL;
    if (g->stopping)
        err_set(&e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    else
        in = retry_look(&g->d, r->req, &e);
    if (in && step_start(g->steps, "look for the native snapshots", step_natives, in, 60, retry_seen, r, NULL, &e) == 0)
        return;
    retry_end(r, &e);
}
