/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintenance.c - repositories are maintained (CF-36), verified (E-12) and copied by schedule
 *
 * What is due follows from the records, the configuration and the clock (daemon/decide/maintain.h, verification.h,
 * copies.h); each sweep looks. A missed run is one run, at the first sweep with a repository that is available.
 */
#include "base/time.h"
#include "daemon/decide/copies.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/verification.h"
#include "daemon/engine/engine-impl.h"

#include <stdlib.h>
#include <string.h>

enum due_kind {
    DUE_KNOWN,     /* its maintenance: the repository is new to this node */
    DUE_MAINTAIN,  /* a run */
    DUE_SCHEDULED, /* its verification: there is a schedule now, or none any more */
    DUE_VERIFY,    /* a run */
    DUE_COPIES,    /* a copy: there is a schedule now, or none any more */
    DUE_COPY       /* a run */
};

struct due {
    struct engine *engine;
    enum due_kind kind;
    struct maintain_order order;
    char name[128], id[512]; /* name: of a repository, or of a copy */
};

static int write_what(struct decide *d, struct due *x, struct err *e)
{
    const struct cfg_repository *r = cfg_repository(x->engine->cfg, x->name);
    const struct cfg_copy *k = cfg_copy(x->engine->cfg, x->name);
    switch (x->kind) {
    case DUE_KNOWN:
        return maintain_begin(d, x->name, e);
    case DUE_MAINTAIN:
        return maintain_submit(d, x->name, &x->order, x->id, e);
    case DUE_SCHEDULED: /* one that is not there was removed by a reload meanwhile */
        return r ? verification_begin(d, r, e) : 0;
    case DUE_VERIFY:
        return r ? verification_submit(d, r, e) : 0;
    case DUE_COPIES:
        return k ? copy_begin(d, k, e) : 0;
    case DUE_COPY:
        return k ? copy_submit(d, k, (struct copy_allow){false, false}, x->id, e) : 0;
    }
    return 0;
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
        log_warning("%s \"%s\"%s cannot be started: %s", x->kind >= DUE_COPIES ? "copy" : "repository", x->name,
                    x->kind >= DUE_COPIES      ? ""
                    : x->kind >= DUE_SCHEDULED ? ": verification"
                                               : ": maintenance",
                    e->msg);
    free(x);
}

static void post_due(struct engine *g, const char *name, enum due_kind kind, bool full)
{
    struct due *x = calloc(1, sizeof *x);
    if (!x)
        return; /* the next sweep finds it again */
    x->engine = g;
    x->kind = kind;
    x->order.full = full;
    x->order.scheduled = true;
    snprintf(x->name, sizeof x->name, "%s", name);
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

static bool is_up(struct engine *g, const char *repository)
{
    const struct repo_health *h = repository_health(&g->d, repository);
    return h && h->known && h->up;
}

static void look_at_copy(struct engine *g, const struct cfg_copy *k, int64_t now)
{
    const struct copy_memory *m = copy_known(g->records, k->name);
    struct copy_times t;
    if (!(m && m->since_ns) != !k->on_calendar[0]) {
        post_due(g, k->name, DUE_COPIES, false);
        return;
    }
    copy_times(k, m, now, &t);
    if (t.next_ns <= now && is_up(g, k->repository) && !gives_way(g, k->repository, t.next_ns, now))
        post_due(g, k->name, DUE_COPY, false);
}

void maintenance_look(struct engine *g)
{
    const struct cfg_repository *r;
    const struct cfg_copy *k;
    const int64_t now = now_ns();
    if (g->maintenance_waits || cfg_daemon(g->cfg)->slots == 0)
        return;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        if (!is_up(g, r->name))
            continue;
        look_at_maintenance(g, r, now);
        look_at_verification(g, r, now);
    }
    for (unsigned i = 0; (k = cfg_copy_at(g->cfg, i)); i++)
        look_at_copy(g, k, now);
}
