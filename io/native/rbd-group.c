/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rbd-group.c - native snapshots of several images at one instant, while nobody can write to any of them
 *
 * Ceph takes each for itself; what `rbd group snap` makes of several is no snapshot of the images (docs/rbd.md). But
 * where all that lies on the images are file systems that this node has mounted, these are frozen together, and all
 * snapshots that are taken until they thaw are of one instant.
 *
 * Crash points: rbd-group-made (after each snapshot), rbd-group-thawed.
 */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "io/native/freeze.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64

/* The devices of several images on this node. */
struct devices {
    char name[DEVICES_MAX][RBD_DEVICE_MAX];
    const char *path[DEVICES_MAX];
    size_t n;
};

static void devices_add(struct devices *d, const char *fsid, const struct rbd_image *i)
{
    const size_t from = d->n;
    d->n += rbd_mapped(fsid, i, d->name + from, DEVICES_MAX - from);
    for (size_t k = from; k < d->n; k++)
        d->path[k] = d->name[k];
}

int rbd_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e)
{
    char id[VOLUME_ID_MAX];
    const char *fsid;
    struct rbd_image i;
    CLEANUP_FREE struct devices *d = calloc(1, sizeof *d);
    ret[0] = '\0';
    if (!d)
        return err_nomem(e);
    memcpy(id, v->id, sizeof id);
    if (!rbd_id_split(id, &i, &fsid))
        return 0;
    devices_add(d, fsid, &i);
    if (d->n && freeze_can_hold(d->path, d->n, c->unfrozen))
        snprintf(ret, VOLUME_ID_MAX, "rbd:%s", fsid);
    return 0;
}

/* An image among those of one instant. */
struct one {
    struct group_member *m;
    struct rbd_report r;
    struct rbd_taking t;
    bool made;
};

struct group {
    struct one *v;
    size_t n;
};

static void one_free(struct one *x)
{
    rbd_report_free(&x->r);
    free(x->t.document);
}

static void group_free(struct group *g)
{
    for (size_t i = 0; i < g->n; i++)
        one_free(&g->v[i]);
    free(g->v);
}

/* ---- before ---- */

/* What an interrupted call has left of another instant; what it left incomplete is made anew. */
static int left_remove(const struct group_member *m, const struct rbd_report *r, struct err *e)
{
    CLEANUP_FREE struct native *n = malloc(sizeof *n);
    bool gone;
    if (!n)
        return err_nomem(e);
    int rc = rbd_native_taken(m->c, r, m->tag->alias, n, e);
    if (rc == 0)
        rc = rbd_native_remove(m->c, n, &gone, e);
    return rc == -ENOENT ? 0 : rc;
}

static int one_prepare(struct one *x, struct group_member *m, struct err *e)
{
    x->m = m;
    if (!alias_valid(m->tag->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", m->tag->alias);
    int rc = rbd_report_of(&x->r, m->c, m->v->name, e);
    if (rc == 0)
        rc = left_remove(m, &x->r, e);
    return rc < 0 ? rc : rbd_taking_prepare(&x->t, m->c, &x->r, m->v, m->tag, e);
}

/* ---- taking ---- */

static int apart(struct err *e, const char *why)
{
    err_plain(e, ERR_SOURCE, ENOTSUP, "%s", why);
    return -ENOTSUP;
}

static int group_freeze(const struct group *g, struct frozen **ret, struct err *e)
{
    CLEANUP_FREE struct devices *d = calloc(1, sizeof *d);
    if (!d)
        return err_nomem(e);
    for (size_t i = 0; i < g->n; i++) {
        const size_t before = d->n;
        devices_add(d, g->v[i].r.fsid, g->v[i].t.image);
        if (d->n == before)
            return apart(e, "one is not mapped on this node any more");
        if (d->n == DEVICES_MAX)
            return apart(e, "they are too many");
    }
    *ret = freeze_devices(d->path, d->n, g->v[0].m->c->unfrozen);
    return frozen_holds(*ret) ? 0 : apart(e, "not all that lies on them could be frozen");
}

static void one_remove(const struct one *x)
{
    CLEANUP_FREE struct native *n = calloc(1, sizeof *n);
    struct err why = ERR_INIT;
    bool gone;
    if (!n)
        return;
    n->tag = *x->m->tag;
    snprintf(n->handle, sizeof n->handle, "%s@%s", x->t.name, x->t.snap);
    if (rbd_native_remove(x->m->c, n, &gone, &why) < 0)
        log_warning("%s; the next sweep finds it", why.msg);
}

static int group_take(struct group *g, struct err *e)
{
    struct frozen *frozen = NULL;
    int rc = group_freeze(g, &frozen, e);
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        struct one *x = &g->v[i];
        x->made = rbd_taking_make(&x->t, &x->m->err) == 0;
        crash_point("rbd-group-made");
    }
    if (!frozen_thaw(frozen) && rc == 0)
        rc = apart(e, "their file systems were thawed before all were taken");
    crash_point("rbd-group-thawed");
    for (size_t i = 0; i < g->n; i++)
        if (rc < 0 && g->v[i].made)
            one_remove(&g->v[i]);
    return rc;
}

int rbd_group(struct group_member *m, size_t n, struct err *e)
{
    CLEANUP(group_free) struct group g = {.v = calloc(n, sizeof *g.v)};
    if (!g.v)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++) {
        struct one x = {.r = {.doc = NULL}};
        if (!m[i].err.cls && one_prepare(&x, &m[i], &m[i].err) == 0)
            g.v[g.n++] = x;
        else
            one_free(&x);
    }
    int rc = g.n ? group_take(&g, e) : 0;
    for (size_t i = 0; rc == 0 && i < g.n; i++) {
        const struct one *x = &g.v[i];
        if (x->made && rbd_taken_now(x->m->c, x->t.name, x->m->tag->alias, x->m->ret, &x->m->err) < 0)
            one_remove(x);
    }
    for (size_t i = 0; rc < 0 && i < n; i++)
        m[i].err = (struct err)ERR_INIT;
    return rc;
}
