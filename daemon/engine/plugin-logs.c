/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-logs.c - the log of a mover plugin that still works, for somebody who wants to read it */
#include "daemon/engine/engine-impl.h"
#include "daemon/movers/plugin.h"

#include <stdio.h>
#include <stdlib.h>

struct fetch {
    engine_reply_fn *reply;
    void *arg;
};

static void logs_fetched(struct step_result *s, void *arg)
{
    struct fetch *f = arg;
    f->reply(s->err.cls ? NULL : s->out, s->err.cls ? &s->err : NULL, f->arg);
    free(f);
}

void engine_logs(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    const struct operation *op = operation_peek(g->records, req->id);
    const struct cfg_plugin *p = op ? operation_plugin(g, op) : NULL;
    CLEANUP_JSON json_t *none = json_pack("{s:b}", "fetched", 0);
    if (!p || !op->plugin_id[0]) { /* ended, or its mover writes its log itself */
        reply(none, NULL, arg);
        return;
    }
    CLEANUP_JSON json_t *in = plugin_logs_in(p, g->paths.state_dir, op->id, op->plugin_id, op->kind == KIND_RESTORE);
    struct fetch *f = calloc(1, sizeof *f);
    char name[700];
    snprintf(name, sizeof name, "logs of %s by plugin %s", op->id, p->name);
    if (!f || !in)
        err_nomem(&e);
    else
        *f = (struct fetch){reply, arg};
    if (!e.cls && step_start(g->steps, name, plugin_logs_step, in, plugin_step_timeout(p, PV_LOGS), logs_fetched, f,
                             NULL, &e) == 0)
        return;
    free(f);
    reply(NULL, &e, arg);
}
