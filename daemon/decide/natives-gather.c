/* SPDX-License-Identifier: GPL-2.0-or-later */
/* natives-gather.c - facts for the plan, from records and policy. docs/records.md names the members that are read. */
#include "daemon/decide/natives-plan.h"

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
    struct strs used; /* aliases that live operations need */
    struct err *e;
};

/* What an operation that is not finished works on, unless it is only about to let go of it. */
static int note_use(const struct operation *op, void *arg)
{
    struct gather *g = arg;
    if (op->native[0] && !op->releasing && strs_add(&g->used, op->native) < 0)
        return err_nomem(g->e);
    return 0;
}

static void read_row(const struct native_row *n, struct native_facts *f)
{
    const struct native_desc *native = n->native;
    snprintf(f->alias, sizeof f->alias, "%s", n->id);
    f->seq = native->seq ? native->seq : n->seq;
    f->created_ns = native->created_ns ? native->created_ns : n->created_ns;
    f->used = native->used >= 0 ? (uint64_t)native->used : UINT64_MAX;
    f->hold = n->hold.held;
    f->cbt_parent = n->cbt_parent;
    f->moved = n->moved && n->moved_verified;
    f->failed = n->failed;
    f->snapshot_only = n->snapshot_only;
    f->expired = n->expired;
    f->missing = n->state == NATIVE_MISSING;
    f->removing = n->state == NATIVE_REMOVING;
    f->effective_retain =
        n->effective_retain >= 0 && n->effective_retain < UINT_MAX ? (unsigned)n->effective_retain : UINT_MAX;
    if (n->job_retain)
        snprintf(f->job, sizeof f->job, "%s", n->job);
    snprintf(f->backup, sizeof f->backup, "%s", n->parent[0] ? n->parent : native->backup);
    snprintf(f->repository, sizeof f->repository, "%s", native->repository);
}

/* How the backup it was taken for stands; one that is finished, or that the records do not know (any more), needs
 * nothing. */
static void read_backup(const struct gather *g, const struct native_row *n, struct native_facts *f)
{
    const struct backup *b = n->parent[0] ? backup_peek(g->r, n->parent) : NULL;
    if (b && b->state == BACKUP_DELETING)
        f->expired = true;
    else
        f->running = b != NULL;
}

static int gather_one(const struct native_row *n, void *arg)
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
    read_row(n, f);
    f->in_use = strs_has(&g->used, n->id);
    read_backup(g, n, f);
    g->n++;
    return 0;
}

int natives_gather(struct records *r, const char *volume_id, struct native_facts **ret, size_t *n, struct err *e)
{
    struct gather g = {.r = r, .e = e};
    *ret = NULL;
    *n = 0;
    /* A restore has the volume id of the backup it reads. */
    const struct operation_filter live = {.volume_id = volume_id, .live = true};
    const struct native_row_filter of_volume = {.volume_id = volume_id};
    int rc = operation_each(r, &live, note_use, &g, e);
    if (rc >= 0)
        rc = native_row_each(r, &of_volume, gather_one, &g, e);
    strs_clear(&g.used);
    if (rc < 0) {
        free(g.f);
        return rc;
    }
    *ret = g.f;
    *n = g.n;
    return 0;
}
