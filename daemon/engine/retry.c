/* SPDX-License-Identifier: GPL-2.0-or-later */
/* retry.c - a backup is tried again from its native snapshots, if the storage still has them (RS-03) */
#include "daemon/engine/engine-impl.h"
#include "daemon/records/step-answer.h"

#include <stdlib.h>

struct retrying {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    struct request_args req;
    struct step_answer seen;
    json_t *answer;
};

static void retry_end(struct retrying *r, const struct err *e)
{
    r->reply(e->cls ? NULL : r->answer, e->cls ? e : NULL, r->arg);
    request_args_clear(&r->req);
    step_answer_clear(&r->seen);
    json_decref(r->answer);
    free(r);
}

static int write_retry(struct decide *d, void *arg, struct err *e)
{
    struct retrying *r = arg;
    json_t *answer = NULL;
    const int rc = retry_submit(d, r->req.backup, r->req.volume, &r->seen, &answer, e);
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
    struct err e = s->err;
    if (!e.cls && step_answer_load(&r->seen, s->out) < 0)
        err_nomem(&e);
    if (e.cls)
        retry_end(r, &e);
    else
        engine_request(r->engine, write_retry, retry_written, r);
}

void engine_retry(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct retrying *r = calloc(1, sizeof *r);
    struct err e = ERR_INIT;
    if (!r) {
        err_nomem(&e);
        reply(NULL, &e, arg);
        return;
    }
    *r = (struct retrying){.engine = g, .reply = reply, .arg = arg};
    step_answer_init(&r->seen);
    CLEANUP_JSON json_t *in = NULL;
    if (request_args_copy(&r->req, req) < 0)
        err_nomem(&e);
    else if (g->stopping)
        err_set(&e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    else
        in = retry_look(&g->d, req->backup, req->volume, &e);
    if (in && step_start(g->steps, "look for the native snapshots", step_natives, in, 60, retry_seen, r, NULL, &e) == 0)
        return;
    retry_end(r, &e);
}
