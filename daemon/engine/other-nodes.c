/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * other-nodes.c - backups of the nodes that other-nodes of a repository names are kept in the records (AO-18)
 *
 * Each node is scanned at the start, after each reload, and each hour, one at a time. What is found can be listed and
 * restored here, and counts for nothing else (scan.c).
 */
#include "base/time.h"
#include "base/units.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/opaque.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_S 3600     /* after a scan */
#define AFTER_FAILED 300 /* seconds */

/* Its Unix time in seconds; labels repository and node. Part of the records: exported as a metric, too. */
#define SCANNED "other_node_scan_timestamp_seconds"
/* Likewise: since when it is named. One whose scan never succeeded is known by that. */
#define SINCE "other_node_since_timestamp_seconds"

struct other_node {
    struct other_node *next;
    struct engine *engine;
    int64_t again_ns; /* CLOCK_MONOTONIC; 0: it was not scanned under this configuration */
    bool running, failed;
    char repository[128], name[256];
};

static struct other_node *other_of(struct engine *g, const char *repository, const char *name)
{
    for (struct other_node *o = g->others; o; o = o->next)
        if (!strcmp(o->repository, repository) && !strcmp(o->name, name))
            return o;
    struct other_node *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->engine = g;
    snprintf(o->repository, sizeof o->repository, "%s", repository);
    snprintf(o->name, sizeof o->name, "%s", name);
    o->next = g->others;
    g->others = o;
    return o;
}

static void other_node_scanned(unsigned added, const struct err *e, void *arg)
{
    struct other_node *o = arg;
    struct engine *g = o->engine;
    struct err own = ERR_INIT;
    o->running = g->others_running = false;
    if (g->stopping)
        return;
    o->again_ns = mono_ns() + (e ? AFTER_FAILED : AGAIN_S) * NS_PER_S;
    if (e) {
        if (!o->failed)
            log_warning("repository \"%s\": the backups of node %s cannot be listed: %s", o->repository, o->name,
                        e->msg);
        o->failed = true;
        return;
    }
    o->failed = false;
    if (added)
        log_info("repository \"%s\": %u volume%s of backups of node %s added to the records", o->repository, added,
                 plural(added), o->name);
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "repository", o->repository, "node", o->name);
    if (records_counter_set(g->records, SCANNED, labels, (double)now_ns() / 1e9, &own) < 0)
        log_warning("repository \"%s\": the time of the scan of node %s cannot be recorded: %s", o->repository, o->name,
                    own.msg);
}

static void scan_other(struct engine *g, struct other_node *o)
{
    CLEANUP(request_args_clear) struct request_args req;
    request_args_init(&req);
    str_set(&req.repository, o->repository);
    str_set(&req.node, o->name);
    req.periodic = true;
    o->running = g->others_running = true;
    scan_within(g, &req, other_node_scanned, o);
}

/* ---- those that are not configured any more ---- */

static bool is_configured(const struct cfg *c, const char *repository, const char *node)
{
    const struct cfg_repository *r = cfg_repository(c, repository);
    for (const char *const *n = r ? r->other_nodes : NULL; n && *n; n++)
        if (!strcmp(*n, node))
            return true;
    return false;
}

struct former {
    struct engine *engine;
    const char *counter;
    json_t *labels; /* of one; NULL: none was found */
};
static int see_former(const char *name, const json_t *labels, double at, void *arg)
{
    struct former *x = arg;
    const struct count_labels of = count_labels_read(labels);
    (void)at;
    if (!x->labels && !strcmp(name, x->counter) && !is_configured(x->engine->cfg, of.repository, of.node))
        x->labels = json_deep_copy(labels);
    return 0;
}

static void forget_former(struct engine *g, const char *counter)
{
    for (;;) {
        struct former x = {g, counter, NULL};
        struct err e = ERR_INIT;
        records_counters(g->records, see_former, &x, NULL);
        CLEANUP_JSON json_t *labels = x.labels;
        if (!labels || records_counter_remove(g->records, counter, labels, &e) < 0)
            return;
    }
}

/* ---- those that were added ---- */

static void note_named(struct engine *g, const char *repository, const char *node)
{
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "repository", repository, "node", node);
    struct err e = ERR_INIT;
    double at;
    if (!records_counter_get(g->records, SINCE, labels, &at) &&
        records_counter_set(g->records, SINCE, labels, (double)now_ns() / 1e9, &e) < 0)
        log_warning("repository \"%s\": since when other-nodes names %s cannot be recorded: %s", repository, node,
                    e.msg);
}

/* ---- when ---- */

void other_nodes_changed(struct engine *g)
{
    for (struct other_node *o = g->others; o; o = o->next)
        o->again_ns = 0;
    forget_former(g, SCANNED);
    forget_former(g, SINCE);
    const struct cfg_repository *r;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++)
        for (const char *const *n = r->other_nodes; n && *n; n++)
            note_named(g, r->name, *n);
}

void other_nodes_look(struct engine *g)
{
    const struct cfg_repository *r;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        const struct repo_health *h = r->other_nodes && *r->other_nodes ? repository_health(&g->d, r->name) : NULL;
        if (!h || !h->known || !h->up)
            continue;
        for (const char *const *n = r->other_nodes; *n; n++) {
            struct other_node *o = other_of(g, r->name, *n);
            if (g->others_running)
                return;
            if (o && o->again_ns <= mono_ns())
                scan_other(g, o);
        }
    }
}

void other_nodes_free(struct engine *g)
{
    while (g->others) {
        struct other_node *o = g->others;
        g->others = o->next;
        free(o);
    }
}
