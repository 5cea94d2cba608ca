/* SPDX-License-Identifier: GPL-2.0-or-later */
/* endpoint.c - the server of metrics with the engine behind it */
#include "daemon/metrics/endpoint.h"

#include "base/cleanup.h"
#include "daemon/metrics/server.h"

struct endpoint {
    struct engine *engine;
    struct metrics_server *server;
    struct engine_neighbour neighbour;
};

static json_t *samples(void *arg)
{
    return engine_metrics(((struct endpoint *)arg)->engine);
}

/* There is always a configuration in force: one that was refused leaves the one before. */
static bool ready(char *why, size_t cap, void *arg)
{
    struct endpoint *p = arg;
    if (!records_degraded(engine_records(p->engine)))
        return true;
    snprintf(why, cap, "the records cannot be written");
    return false;
}

static void configured(struct cfg *c, void *arg)
{
    metrics_server_apply(((struct endpoint *)arg)->server, c);
}

static json_t *status(void *arg)
{
    return metrics_server_json(((struct endpoint *)arg)->server);
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
    p->neighbour = (struct engine_neighbour){configured, status, p};
    engine_set_neighbour(g, &p->neighbour);
    *ret = p;
    return 0;
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
    engine_set_neighbour(p->engine, NULL);
    metrics_server_free(p->server);
    free(p);
}
