/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lists.c - lists of records in pages, and describe: requests for the builders of daemon/answers */
#include "base/time.h"
#include "daemon/answers/answers.h"
#include "daemon/control/control-impl.h"

#include <errno.h>
#include <string.h>

#define PAGE_DEFAULT 50
#define PAGE_MAX 1000
#define NATIVES_MAX 500 /* of a page */

static void reply_built(struct request *q, int rc, json_t *answer, const struct err *e)
{
    if (rc < 0)
        request_fail(q, e);
    else
        request_answer(q, answer);
}

static void reply_page(struct request *q, struct request_args *args, enum row_kind k)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    const int64_t limit = args->limit;
    struct err e = ERR_INIT;
    json_t *answer = NULL;
    engine_facts(q->control->engine, &f);
    const struct answer_query query = {.volume = args->volume,
                                       .backup = args->backup,
                                       .state = args->state,
                                       .before = (uint64_t)args->before,
                                       .since_ns = answer_list_since(args->all, f.now_ns),
                                       .limit = limit <= 0         ? PAGE_DEFAULT
                                                : limit > PAGE_MAX ? PAGE_MAX
                                                                   : (size_t)limit,
                                       .max_bytes = CONTROL_PAGE_BYTES};
    int rc = answer_list(&f, k, &query, &answer, &e);
    reply_built(q, rc, answer, &e);
}

void control_operations(struct request *q, struct request_args *args)
{
    reply_page(q, args, ROW_OPERATION);
}

void control_backups(struct request *q, struct request_args *args)
{
    reply_page(q, args, ROW_BACKUP);
}

void control_natives(struct request *q, struct request_args *args)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    struct err e = ERR_INIT;
    json_t *answer = NULL;
    engine_facts(q->control->engine, &f);
    const int64_t limit = args->limit;
    const struct answer_query query = {.volume = args->volume,
                                       .before = (uint64_t)args->before,
                                       .limit = limit > 0 && limit < NATIVES_MAX ? (size_t)limit : NATIVES_MAX};
    int rc = answer_natives(&f, &query, &answer, &e);
    reply_built(q, rc, answer, &e);
}

void control_jobs(struct request *q, struct request_args *args)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    (void)args;
    engine_facts(q->control->engine, &f);
    request_answer(q, answer_jobs(&f));
}

/* ---- describe ---- */

static void on_volumes(json_t *volumes, const struct err *failed, void *arg)
{
    struct request *q = arg;
    if (!q->control || !volumes) {
        request_reply(volumes, failed, q);
        return;
    }
    CLEANUP(answer_facts_clear) struct answer_facts f;
    struct err e = ERR_INIT;
    json_t *answer = NULL;
    engine_facts(q->control->engine, &f);
    int rc = answer_describe_volume(&f, jarr(volumes, "volumes"), q->what, &answer, &e);
    reply_built(q, rc, answer, &e);
}

void control_describe(struct request *q, struct request_args *args)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    struct engine *g = q->control->engine;
    const char *id = args->id;
    struct err e = ERR_INIT;
    json_t *answer = NULL;
    engine_facts(g, &f);
    int rc = answer_describe(&f, id, &answer, &e);
    if (rc < 0 && e.cls == ERR_NOT_FOUND && (q->what = strdup(id)))
        engine_volume(g, id, on_volumes, q);
    else
        reply_built(q, rc, answer, &e);
}
