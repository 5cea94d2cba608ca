/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * own-node.c - what a repository has of this node is taken over once by records that do not have it (RS-15), and looked
 * at again and again
 *
 * Records begin anew on a node that is installed again, or after a loss. The repository may be configured, or be there,
 * only long after that: so it is recorded of each one whether it was scanned, and one that was not is, as soon as it is
 * available. Records that were damaged are caught up in the same way.
 *
 * From then on it is looked each day, and after each verification, whether what the records have is still there: others
 * can delete snapshots, and put an older state of the repository back, of which a verification says that it is whole.
 * These scans add nothing: records that were removed as too old (keep-records) would come back each day.
 */
#include "base/units.h"
#include "base/time.h"
#include "daemon/decide/verification.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/opaque.h"

#include <stdlib.h>
#include <string.h>

#define AFTER_FAILED 300 /* seconds */
#define AGAIN_S 86400

struct own_scan {
    struct own_scan *next;
    struct engine *engine;
    char repository[128];
    int64_t again_ns;    /* CLOCK_MONOTONIC: after one that failed */
    int64_t began_ns;    /* Unix time of the one that runs, and the verification before it */
    int64_t verified_ns; /* 0: none */
    bool failed;
};

void records_are_rebuilt(struct engine *g)
{
    struct err e = ERR_INIT;
    double at;
    if (!records_counter_get(g->records, RECORDS_REBUILT, NULL, &at) &&
        records_counter_set(g->records, RECORDS_REBUILT, NULL, (double)now_ns() / 1e9, &e) < 0)
        log_warning("since when the records are rebuilt cannot be recorded: %s", e.msg);
}

static void own_node_scanned(unsigned added, const struct err *e, void *arg)
{
    struct own_scan *o = arg;
    struct engine *g = o->engine;
    struct err own = ERR_INIT;
    g->own_running = false;
    if (g->stopping)
        return;
    o->again_ns = e ? mono_ns() + AFTER_FAILED * NS_PER_S : 0;
    if (e) {
        if (!o->failed)
            log_warning("repository \"%s\" cannot be scanned for snapshots of this node: %s", o->repository, e->msg);
        o->failed = true;
        return;
    }
    o->failed = false;
    if (added) {
        log_info("repository \"%s\" has %u volume%s of backups of node %s that %s not in the records: %s now",
                 o->repository, added, plural(added), cfg_daemon(g->cfg)->node_name, added == 1 ? "was" : "were",
                 added == 1 ? "it is" : "they are");
        records_are_rebuilt(g);
    }
    CLEANUP_JSON json_t *labels = own_scan_labels(g, o->repository);
    if (records_counter_set(g->records, OWN_SCANNED, labels, (double)o->began_ns / 1e9, &own) < 0)
        log_warning("repository \"%s\": that it was scanned cannot be recorded: %s", o->repository, own.msg);
    own_scans_look(g);
}

static struct own_scan *own_of(struct engine *g, const char *repository)
{
    for (struct own_scan *o = g->own_scans; o; o = o->next)
        if (!strcmp(o->repository, repository))
            return o;
    struct own_scan *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->engine = g;
    snprintf(o->repository, sizeof o->repository, "%s", repository);
    o->next = g->own_scans;
    return g->own_scans = o;
}

static int64_t verified_ns(const struct engine *g, const char *repository)
{
    const struct verify_memory *m = verification_known(g->records, repository);
    return m ? m->done_ns : 0;
}

/* Whether what was scanned once is to be looked at again. A clock that was set back makes nothing due for ever. */
static bool is_due_again(const struct engine *g, const struct own_scan *o)
{
    CLEANUP_JSON json_t *labels = own_scan_labels(g, o->repository);
    const int64_t now = now_ns(), verified = verified_ns(g, o->repository);
    double at = 0;
    if (!records_counter_get(g->records, OWN_SCANNED, labels, &at))
        return true;
    return now < (int64_t)at * NS_PER_S || now - (int64_t)at * NS_PER_S >= AGAIN_S * NS_PER_S ||
           (verified != o->verified_ns && (double)verified / 1e9 > at);
}

void own_scans_look(struct engine *g)
{
    const struct cfg_repository *r;
    for (unsigned i = 0; !g->own_running && !g->stopping && (r = cfg_repository_at(g->cfg, i)); i++) {
        const struct repo_health *h = repository_health(&g->d, r->name);
        struct own_scan *o = h && h->known && h->up ? own_of(g, r->name) : NULL;
        if (!o || o->again_ns > mono_ns() || !is_due_again(g, o))
            continue;
        CLEANUP(request_args_clear) struct request_args req;
        request_args_init(&req);
        str_set(&req.repository, r->name);
        req.periodic = !own_scan_is_due(g, r->name);
        o->began_ns = now_ns();
        o->verified_ns = verified_ns(g, r->name);
        g->own_running = true;
        scan_within(g, &req, own_node_scanned, o);
    }
}

void own_scans_again(struct engine *g)
{
    const struct cfg_repository *r;
    for (struct own_scan *o = g->own_scans; o; o = o->next)
        o->again_ns = 0;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        CLEANUP_JSON json_t *labels = own_scan_labels(g, r->name);
        struct err e = ERR_INIT;
        if (records_counter_remove(g->records, OWN_SCANNED, labels, &e) < 0)
            log_warning("repository \"%s\" is not scanned again: %s", r->name, e.msg);
    }
}

void own_scans_free(struct engine *g)
{
    while (g->own_scans) {
        struct own_scan *o = g->own_scans;
        g->own_scans = o->next;
        free(o);
    }
}
