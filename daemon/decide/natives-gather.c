/* SPDX-License-Identifier: GPL-2.0-or-later */
/* natives-gather.c - facts for the plan, from records and policy. docs/records.md names the members that are read. */
#include "daemon/decide/natives-plan.h"
#include "daemon/decide/decide.h"
#include "daemon/decide/judge.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void native_rules(struct native_rules *r, const struct policy *policy, const char *job, double pool_ratio, bool create,
                  int64_t now_ns)
{
    *r = (struct native_rules){
        .retain = (unsigned)policy->snapshots_to_retain,
        .retain_max_age_s = policy->retain_max_age_s,
        .max_per_volume = (unsigned)policy->max_snapshots_per_volume,
        .snapshot_only_keep = (unsigned)policy->snapshot_only_keep,
        .snapshot_only_max_age_s = policy->snapshot_only_max_age_s,
        .keep_on_failure = policy->keep_on_failure,
        .keep_parent = policy->changed_blocks,
        .about_to_create = create,
        .prune_after = !policy->prune_before,
        .snapshot_only = !policy->move_data,
        .pool_used_ratio = pool_ratio,
        .pool_high_water = (double)policy->pool_high_water / 100,
        .now_ns = now_ns,
    };
    if (policy->job_retain)
        snprintf(r->job, sizeof r->job, "%s", job);
}

const char *volume_ended_why(struct records *r, const struct cfg *c, const char *volume_id)
{
    const struct volume_row *v = volume_row_peek(r, volume_id);
    if (!v || v->state == VOL_GONE)
        return "its volume is gone";
    return c && volume_excluded(c, volume_subject(v->volume), v->volume->size) ? "its volume is no longer backed up"
                                                                               : NULL;
}

bool native_job_ended(struct records *r, const struct cfg *c, const struct native_row *n)
{
    const struct volume_row *v = volume_row_peek(r, n->volume_id);
    const struct cfg_subject s = {n->volume->name, v ? v->volume->labels : n->volume->labels};
    struct cfg_policy now = {.effective = NULL};
    if (!c || !n->job_retain)
        return false;
    if (!cfg_job(c, n->job))
        return true;
    if (cfg_policy(c, s, n->job, &now, NULL) < 0)
        return false;
    const bool own = cfg_policy_scope(&now, "snapshots-to-retain") == SCOPE_JOB;
    cfg_policy_clear(&now);
    return !own;
}

void natives_note_jobs(struct records *r, const struct cfg *c, struct native_rules *rules, struct native_facts *f,
                       size_t n)
{
    const struct native_row *first = n && c ? native_row_peek(r, f[0].alias) : NULL;
    const struct volume_row *v = first ? volume_row_peek(r, first->volume_id) : NULL;
    rules->jobs_retain = v && cfg_jobs_retain(c, volume_subject(v->volume));
    for (size_t i = 0; i < n; i++) {
        const struct native_row *row = f[i].job[0] && !f[i].running ? native_row_peek(r, f[i].alias) : NULL;
        f[i].job_ended = row && native_job_ended(r, c, row);
    }
}

const struct policy *native_policy(struct records *r, const struct cfg *c, const struct native_row *n, bool job)
{
    const struct policy *ret = &policy_none;
    const struct volume_row *v = volume_row_peek(r, n->volume_id);
    const struct cfg_subject s = {n->volume->name, v ? v->volume->labels : n->volume->labels};
    const char *name = job && n->policy->job_retain ? n->job : "";
    struct cfg_policy now = {.effective = NULL};
    struct policy own;
    if (!c || volume_ended_why(r, c, n->volume_id) || !cfg_class_of(c, s) || (name[0] && !cfg_job(c, name)) ||
        cfg_policy(c, s, name[0] ? name : NULL, &now, NULL) < 0) {
        policy_set(&ret, n->policy);
        return ret;
    }
    policy_from_cfg(&own, &now);
    policy_take(&ret, policy_make(&own));
    cfg_policy_clear(&now);
    return ret;
}

/* Rows, or aliases that live operations need: borrowed from the records, which nobody writes meanwhile. */
struct pointers {
    const void **v;
    size_t n, cap;
};

static int pointers_add(struct pointers *x, const void *p)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 16;
        const void **more = reallocarray(x->v, cap, sizeof *more);
        if (!more)
            return -ENOMEM;
        x->v = more;
        x->cap = cap;
    }
    x->v[x->n++] = p;
    return 0;
}

struct gather {
    struct records *r;
    struct pointers rows, used;
    struct err *e;
};

/* What an operation that is not finished works on, unless it is only about to release it. */
static int note_use(const struct operation *seen, void *arg)
{
    struct gather *g = arg;
    const struct operation *op = seen->native[0] && !seen->releasing ? operation_peek(g->r, seen->id) : NULL;
    return op && pointers_add(&g->used, op->native) < 0 ? err_nomem(g->e) : 0;
}

static int note_row(const struct native_row *seen, void *arg)
{
    struct gather *g = arg;
    const struct native_row *n = native_row_peek(g->r, seen->id);
    return n && pointers_add(&g->rows, n) < 0 ? err_nomem(g->e) : 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The rows of one volume (NULL: of all), the oldest first, and what is in use, sorted. */
static int volume_gather(struct gather *g, const char *volume_id)
{
    /* A restore has the volume id of the backup it reads. */
    const struct operation_filter live = {.volume_id = volume_id, .live = true};
    const struct native_row_filter of_volume = {.volume_id = volume_id};
    int rc = operation_each(g->r, &live, note_use, g, g->e);
    if (rc >= 0)
        rc = native_row_each(g->r, &of_volume, note_row, g, g->e);
    if (g->used.n)
        qsort(g->used.v, g->used.n, sizeof *g->used.v, by_text);
    return rc;
}

static void gather_clear(struct gather *g)
{
    free(g->rows.v);
    free(g->used.v);
}

int64_t kept_used(const struct native_row *n)
{
    const struct exposed x = exposure_read(n->kept.exposure);
    const int64_t used = n->native->used > 0 && n->state != NATIVE_MISSING ? n->native->used : 0;
    return n->kept.there ? used + (x.as == EXPOSED_COPY ? x.size : 0) : 0;
}

bool native_is_foreign(const struct native_row *r)
{
    return r->remove_error.cls == ERR_PERMISSION && r->remove_error.sys == ESTALE;
}

static void read_row(const struct native_row *n, struct native_facts *f)
{
    const struct native_desc *native = n->native;
    snprintf(f->alias, sizeof f->alias, "%s", n->id);
    f->seq = native->seq ? native->seq : n->seq;
    f->created_ns = native->created_ns ? native->created_ns : n->created_ns;
    f->used = native->used >= 0 ? (uint64_t)native->used : UINT64_MAX;
    f->hold = n->hold.held;
    f->inspection = n->kept.there && !n->kept.released;
    f->releasing = n->kept.there && n->kept.released && n->kept.alias[0];
    f->cbt_parent = n->cbt_parent;
    f->bookmark = n->bookmark;
    f->moved = n->moved && n->moved_verified;
    f->failed = n->failed;
    f->snapshot_only = n->snapshot_only;
    f->expired = n->expired && !f->moved; /* what was seen in the repository counts until it is looked for in vain */
    f->missing = n->state == NATIVE_MISSING;
    f->removing = n->state == NATIVE_REMOVING;
    f->foreign = f->missing && native_is_foreign(n);
    f->effective_retain = (unsigned)n->effective_retain; /* -1, not known: UINT_MAX */
    if (n->job_retain)
        snprintf(f->job, sizeof f->job, "%s", n->job);
    snprintf(f->backup, sizeof f->backup, "%s", n->parent[0] ? n->parent : native->backup);
    snprintf(f->repository, sizeof f->repository, "%s", native->repository);
}

/* How the backup it was taken for stands; one that is finished, or that the records do not know (any more), needs
 * nothing. */
static void read_backup(const struct records *r, const struct native_row *n, struct native_facts *f)
{
    const struct backup *b = n->parent[0] ? backup_peek(r, n->parent) : NULL;
    if (b && b->state == BACKUP_DELETING)
        f->expired = true;
    else
        f->running = b != NULL;
}

static void read_facts(const struct gather *g, const struct native_row *n, struct native_facts *f)
{
    const void *alias = n->id;
    memset(f, 0, sizeof *f);
    read_row(n, f);
    f->in_use = g->used.n && bsearch(&alias, g->used.v, g->used.n, sizeof *g->used.v, by_text);
    read_backup(g->r, n, f);
}

int natives_gather(struct records *r, const char *volume_id, struct native_facts **ret, size_t *n, struct err *e)
{
    struct gather g = {.r = r, .e = e};
    *ret = NULL;
    *n = 0;
    int rc = volume_gather(&g, volume_id);
    struct native_facts *f = rc < 0 || !g.rows.n ? NULL : calloc(g.rows.n, sizeof *f);
    if (rc >= 0 && g.rows.n && !f)
        rc = err_nomem(e);
    for (size_t i = 0; f && i < g.rows.n; i++)
        read_facts(&g, g.rows.v[i], &f[i]);
    if (f) {
        *ret = f;
        *n = g.rows.n;
    }
    gather_clear(&g);
    return rc < 0 ? rc : 0;
}

/* ---- all volumes ---- */

struct same_volume {
    size_t first, n; /* of the rows */
    uint64_t seq;    /* of the oldest */
};

static int by_volume(const void *a, const void *b)
{
    const struct native_row *x = *(const struct native_row *const *)a, *y = *(const struct native_row *const *)b;
    int rc = strcmp(x->volume_id, y->volume_id);
    return rc ? rc : (x->seq > y->seq) - (x->seq < y->seq);
}

static int by_oldest(const void *a, const void *b)
{
    const struct same_volume *x = a, *y = b;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* Sorts the rows by volume. */
static struct same_volume *find_volumes(struct pointers *rows, size_t *n, size_t *most)
{
    struct same_volume *v = calloc(rows->n + 1, sizeof *v);
    *n = *most = 0;
    if (!v || !rows->n)
        return v;
    qsort(rows->v, rows->n, sizeof *rows->v, by_volume);
    for (size_t i = 0; i < rows->n; i++) {
        const struct native_row *row = rows->v[i], *before = i ? rows->v[i - 1] : NULL;
        if (!before || strcmp(before->volume_id, row->volume_id) != 0)
            v[(*n)++] = (struct same_volume){i, 0, row->seq};
        if (++v[*n - 1].n > *most)
            *most = v[*n - 1].n;
    }
    qsort(v, *n, sizeof *v, by_oldest);
    return v;
}

int natives_each(struct records *r, natives_fn *fn, void *arg, struct err *e)
{
    struct gather g = {.r = r, .e = e};
    size_t n = 0, most = 0;
    int rc = volume_gather(&g, NULL);
    struct same_volume *volumes = rc < 0 ? NULL : find_volumes(&g.rows, &n, &most);
    struct native_facts *f = volumes ? calloc(most + 1, sizeof *f) : NULL;
    if (rc >= 0 && !f)
        rc = err_nomem(e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct native_row *const *rows = (const struct native_row *const *)(g.rows.v + volumes[i].first);
        for (size_t k = 0; k < volumes[i].n; k++)
            read_facts(&g, rows[k], &f[k]);
        rc = fn(rows, f, volumes[i].n, arg);
    }
    free(f);
    free(volumes);
    gather_clear(&g);
    return rc;
}
