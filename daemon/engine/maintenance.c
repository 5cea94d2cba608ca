/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintenance.c - repositories are maintained (CF-36) and verified (E-12) by schedule
 *
 * What is due follows from the records, the configuration and the clock (daemon/decide/maintain.h, verification.h);
 * each sweep looks. A missed run is one run, at the first sweep with a repository that is available.
 */
#include "base/time.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/verification.h"
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>
#include <string.h>

enum due_kind {
    DUE_KNOWN,     /* its maintenance: the repository is new to this node */
    DUE_MAINTAIN,  /* a run */
    DUE_SCHEDULED, /* its verification: there is a schedule now, or none any more */
    DUE_VERIFY     /* a run */
};

struct due {
    struct engine *engine;
    enum due_kind kind;
    struct maintain_order order;
    char repository[128], id[512];
};

static int write_what(struct decide *d, struct due *x, struct err *e)
{
    const struct cfg_repository *r = cfg_repository(x->engine->cfg, x->repository);
    if (x->kind == DUE_KNOWN)
        return maintain_begin(d, x->repository, e);
    if (x->kind == DUE_MAINTAIN)
        return maintain_submit(d, x->repository, &x->order, x->id, e);
    if (!r)
        return 0; /* it was removed by a reload meanwhile */
    return x->kind == DUE_SCHEDULED ? verification_begin(d, r, e) : verification_submit(d, r, e);
}

static int write_due(struct decide *d, void *arg, struct err *e)
{
    struct err why = ERR_INIT;
    int rc = write_what(d, arg, &why);
    if (rc < 0 && why.cls == ERR_BUSY)
        return 0; /* it is under way; what remains is due when it has ended */
    if (rc < 0)
        *e = why;
    return rc;
}

static void due_ended(const struct err *e, void *arg)
{
    struct due *x = arg;
    x->engine->maintenance_waits--;
    if (e->cls && !x->engine->stopping)
        log_warning("repository \"%s\": %s cannot be started: %s", x->repository,
                    x->kind >= DUE_SCHEDULED ? "verification" : "maintenance", e->msg);
    free(x);
}

static void post_due(struct engine *g, const char *repository, enum due_kind kind, bool full)
{
    struct due *x = calloc(1, sizeof *x);
    if (!x)
        return; /* the next sweep finds it again */
    x->engine = g;
    x->kind = kind;
    x->order.full = full;
    x->order.scheduled = true;
    snprintf(x->repository, sizeof x->repository, "%s", repository);
    g->maintenance_waits++;
    engine_request(g, write_due, due_ended, x);
}

/* What is due waits for jobs that back up into the repository, for a while. */
static bool gives_way(struct engine *g, const char *repository, int64_t due_ns, int64_t now)
{
    struct jobs_now jobs = jobs_now(g);
    const bool ret = maintain_gives_way(g->cfg, repository, &jobs, due_ns, now);
    free(jobs.v);
    return ret;
}

static void look_at_maintenance(struct engine *g, const struct cfg_repository *r, int64_t now)
{
    const struct maintain_memory *m = maintain_known(g->records, r->name);
    struct maintain_times t;
    maintain_times(g->cfg, r, m, now, &t);
    if (t.standing == MAINTAIN_OFF)
        return;
    if (!m) {
        post_due(g, r->name, DUE_KNOWN, false);
        return;
    }
    const bool full = t.full_ns <= now;
    const int64_t due_ns = full ? t.full_ns : t.quick_ns;
    if (due_ns <= now && !gives_way(g, r->name, due_ns, now))
        post_due(g, r->name, DUE_MAINTAIN, full);
}

static void look_at_verification(struct engine *g, const struct cfg_repository *r, int64_t now)
{
    const struct verify_memory *m = verification_known(g->records, r->name);
    struct verification_times t;
    if (!(m && m->since_ns) != !r->verification[0]) {
        post_due(g, r->name, DUE_SCHEDULED, false);
        return;
    }
    verification_times(r, m, now, &t);
    if (t.next_ns <= now && !gives_way(g, r->name, t.next_ns, now))
        post_due(g, r->name, DUE_VERIFY, false);
}

void maintenance_look(struct engine *g)
{
    const struct cfg_repository *r;
    const int64_t now = now_ns();
    if (g->maintenance_waits || cfg_daemon(g->cfg)->slots == 0)
        return;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        const struct repo_health *h = repository_health(&g->d, r->name);
        if (!h || !h->known || !h->up)
            continue;
        look_at_maintenance(g, r, now);
        look_at_verification(g, r, now);
    }
}
