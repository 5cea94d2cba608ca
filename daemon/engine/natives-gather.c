/* SPDX-License-Identifier: GPL-2.0-or-later */
/* natives_gather.c - facts for the plan, from records and policy. docs/records.md names the members that are read. */
#include "daemon/engine/natives-plan.h"

#include "base/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gather {
    struct records *r;
    struct native_facts *f;
    size_t n, cap;
    json_t *used; /* aliases that live operations need, as members */
    struct err *e;
};

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool is_true(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

/* What an operation that is not finished works on, unless it is only about to let go of it. */
static int note_use(struct rec *op, void *arg)
{
    struct gather *g = arg;
    const char *alias = text(op->doc, "native");
    if (alias[0] && !is_true(op->doc, "releasing") && json_object_set_new(g->used, alias, json_true()) < 0)
        return err_nomem(g->e);
    return 0;
}

static uint64_t number(const json_t *o, const char *key, uint64_t absent)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v) : absent;
}

static void read_doc(const struct rec *n, struct native_facts *f)
{
    const json_t *native = json_object_get(n->doc, "native");
    const json_t *hold = json_object_get(n->doc, "hold");
    uint64_t seq = number(native, "seq", 0), retain = number(n->doc, "effective_retain", UINT_MAX);
    snprintf(f->alias, sizeof f->alias, "%s", n->id);
    f->seq = seq ? seq : n->seq;
    f->created_ns = (int64_t)number(native, "created_ns", (uint64_t)n->created_ns);
    f->used = number(native, "used", UINT64_MAX);
    f->hold = json_is_object(hold) || json_is_true(hold);
    f->cbt_parent = is_true(n->doc, "cbt_parent");
    f->moved = is_true(n->doc, "moved") && is_true(n->doc, "moved_verified");
    f->failed = is_true(n->doc, "failed");
    f->snapshot_only = is_true(n->doc, "snapshot_only");
    f->expired = is_true(n->doc, "expired");
    f->missing = strcmp(n->state, "missing") == 0;
    f->removing = strcmp(n->state, "removing") == 0;
    f->effective_retain = retain < UINT_MAX ? (unsigned)retain : UINT_MAX;
    if (is_true(n->doc, "job_retain"))
        snprintf(f->job, sizeof f->job, "%s", text(n->doc, "job"));
    snprintf(f->backup, sizeof f->backup, "%s", n->parent[0] ? n->parent : text(native, "backup"));
    snprintf(f->repository, sizeof f->repository, "%s", text(native, "repository"));
}

/* How the backup it was taken for stands; one that the records do not know (any more) says nothing. */
static int read_backup(struct gather *g, const struct rec *n, struct native_facts *f)
{
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    if (!n->parent[0])
        return 0;
    struct err e = ERR_INIT;
    int rc = records_get(g->r, REC_BACKUP, n->parent, &b, &e);
    if (rc == -ENOENT || (rc == -EBADMSG && e.cls == ERR_DAMAGE))
        return 0;
    if (rc < 0) {
        if (g->e)
            *g->e = e;
        return rc;
    }
    if (strcmp(b.state, "Deleting") == 0)
        f->expired = true;
    else
        f->running = !state_terminal(b.state);
    return 0;
}

static int gather_one(struct rec *n, void *arg)
{
    struct gather *g = arg;
    if (g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 16;
        struct native_facts *more = reallocarray(g->f, cap, sizeof *more);
        if (!more)
            return err_nomem(g->e);
        g->f = more;
        g->cap = cap;
    }
    struct native_facts *f = &g->f[g->n];
    memset(f, 0, sizeof *f);
    read_doc(n, f);
    f->in_use = json_object_get(g->used, n->id) != NULL;
    int rc = read_backup(g, n, f);
    if (rc >= 0)
        g->n++;
    return rc;
}

int natives_gather(struct records *r, const char *volume_id, struct native_facts **ret, size_t *n, struct err *e)
{
    struct gather g = {.r = r, .used = json_object(), .e = e};
    *ret = NULL;
    *n = 0;
    if (!g.used)
        return err_nomem(e);
    const struct rec_filter live = {.live = true}, of_volume = {.volume = volume_id};
    int rc = records_each(r, REC_OPERATION, &live, note_use, &g, e);
    if (rc >= 0)
        rc = records_each(r, REC_NATIVE, &of_volume, gather_one, &g, e);
    json_decref(g.used);
    if (rc < 0) {
        free(g.f);
        return rc;
    }
    *ret = g.f;
    *n = g.n;
    return 0;
}

void natives_rules(struct native_rules *ret, const struct cfg_policy *p, double pool_used_ratio, bool about_to_create,
                   int64_t now_ns)
{
    *ret = (struct native_rules){
        .retain = p->snapshots_to_retain,
        .retain_max_age_s = p->retain_max_age_s,
        .max_per_volume = p->max_snapshots_per_volume,
        .snapshot_only_keep = p->snapshot_only_keep,
        .snapshot_only_max_age_s = p->snapshot_only_max_age_s,
        .keep_on_failure = p->keep_on_failure,
        .about_to_create = about_to_create,
        .prune_after = !p->prune_before,
        .snapshot_only = !p->move_data,
        .pool_used_ratio = pool_used_ratio,
        .pool_high_water = p->pool_high_water / 100.0,
        .now_ns = now_ns,
    };
}
