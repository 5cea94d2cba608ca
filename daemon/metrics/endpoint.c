/* SPDX-License-Identifier: GPL-2.0-or-later */
/* endpoint.c - the server of metrics, connected to the engine */
#include "daemon/metrics/endpoint.h"

#include "base/cleanup.h"
#include "daemon/metrics/collect.h"
#include "daemon/metrics/server.h"

struct endpoint {
    struct engine *engine;
    struct metrics_server *server;
};

static json_t *samples(void *arg)
{
    return metrics_collect(((struct endpoint *)arg)->engine);
}

/* There is always an effective configuration: a refused one leaves the previous one in force. */
static bool ready(char *why, size_t cap, void *arg)
{
    struct endpoint *p = arg;
    if (!records_degraded(engine_records(p->engine)))
        return true;
    snprintf(why, cap, "the records cannot be written");
    return false;
}

int endpoint_new(struct endpoint **ret, sd_event *loop, struct engine *g, struct err *e)
{
    struct endpoint *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(e);
    const struct metrics_source source = {samples, ready, p};
    p->engine = g;
    int rc = metrics_server_new(&p->server, loop, &source, (struct cfg *)engine_cfg(g), e);
    if (rc < 0) {
        free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void endpoint_configured(struct endpoint *p, struct cfg *c)
{
    metrics_server_apply(p->server, c);
}

json_t *endpoint_status(const struct endpoint *p, json_t *problems)
{
    return metrics_server_json(p->server, problems);
}

void endpoint_stopping(struct endpoint *p)
{
    if (p)
        metrics_server_stopping(p->server, "the daemon ends");
}

void endpoint_free(struct endpoint *p)
{
    if (!p)
        return;
    metrics_server_free(p->server);
    free(p);
}
