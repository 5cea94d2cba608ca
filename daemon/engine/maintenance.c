/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintenance.c - repositories are maintained by schedule (CF-36)
 *
 * What is due follows from the records, the configuration and the clock (daemon/decide/maintain.h); each sweep looks. A
 * missed run is one run, at the first sweep with a repository that is available.
 */
#include "base/time.h"
#include "daemon/decide/maintain.h"
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>
#include <string.h>

struct due {
    struct engine *engine;
    bool first; /* the repository is new to this node */
    struct maintain_order order;
    char repository[128], id[512];
};

static int write_due(struct decide *d, void *arg, struct err *e)
{
    struct due *x = arg;
    struct err busy = ERR_INIT;
    if (x->first)
        return maintain_begin(d, x->repository, e);
    int rc = maintain_submit(d, x->repository, &x->order, x->id, &busy);
    if (rc < 0 && busy.cls == ERR_BUSY)
        rc = 0; /* it is under way; what remains is due when it has ended */
    else if (rc < 0)
        *e = busy;
    return rc;
}

static void due_ended(const struct err *e, void *arg)
{
    struct due *x = arg;
    x->engine->maintenance_waits--;
    if (e->cls && !x->engine->stopping)
        log_warning("repository \"%s\": maintenance cannot be started: %s", x->repository, e->msg);
    free(x);
}

static void post_due(struct engine *g, const char *repository, bool first, bool full)
{
    struct due *x = calloc(1, sizeof *x);
    if (!x)
        return; /* the next sweep finds it again */
    x->engine = g;
    x->first = first;
    x->order.full = full;
    x->order.scheduled = true;
    snprintf(x->repository, sizeof x->repository, "%s", repository);
    g->maintenance_waits++;
    engine_request(g, write_due, due_ended, x);
}

static void look_at(struct engine *g, const struct cfg_repository *r, int64_t now)
{
    const struct maintain_memory *m = maintain_known(g->records, r->name);
    const struct repo_health *h = repository_health(&g->d, r->name);
    struct maintain_times t;
    maintain_times(g->cfg, r, m, now, &t);
    if (t.standing == MAINTAIN_OFF || !h || !h->known || !h->up)
        return;
    if (!m) {
        post_due(g, r->name, true, false);
        return;
    }
    const bool full = t.full_ns <= now;
    const int64_t due_ns = full ? t.full_ns : t.quick_ns;
    if (due_ns > now)
        return;
    struct jobs_now jobs = jobs_now(g);
    if (!maintain_gives_way(g->cfg, r->name, &jobs, due_ns, now))
        post_due(g, r->name, false, full);
    free(jobs.v);
}

void maintenance_look(struct engine *g)
{
    const struct cfg_repository *r;
    const int64_t now = now_ns();
    if (g->maintenance_waits || cfg_daemon(g->cfg)->slots == 0)
        return;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++)
        look_at(g, r, now);
}
