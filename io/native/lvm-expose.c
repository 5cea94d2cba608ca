/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm-expose.c - making native snapshots readable: activation, and thin clones
 *
 * A thin snapshot is exposed by activating it. Before that it gets a tag with the alias of the exposure, after the
 * deactivation the tag is removed: what a crash leaves active is found by its tag. Two exposures of one snapshot have
 * two tags; the last one deactivates. A rule of udev (58-snapferry.rules) keeps the devices of our volumes out of
 * blkid, btrfs and LVM's own scan: they have the UUIDs of their origins.
 *
 * Crash points: lvm-expose-tagged, lvm-exposed, lvm-deactivated, lvm-clone-made, lvm-clone-removed.
 */
#include "io/native/lvm.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define ARGS 64
#define SECTOR_MAX 65536

static void place_of(const struct lvm_lv *lv, char *out, size_t size)
{
    if (lvm_is_thin(lv))
        snprintf(out, size, "%s/%s", lv->vg, lv->pool);
    else
        snprintf(out, size, "%s", lv->vg);
}

static int retag(const struct lvm_lv *lv, const char *how, const char *tag, const char *what, struct err *e)
{
    char full[2 * LVM_NAME_MAX + 2];
    snprintf(full, sizeof full, "%s/%s", lv->vg, lv->name);
    const char *const args[] = {"lvchange", how, tag, full, NULL};
    return lvm_change(what, args, e);
}

/* ---- the native snapshot itself ---- */

static int expose_native(const struct driver_class *c, const struct lvm_lv *lv, const struct lvm_tag *t,
                         const char *alias, const char *what, struct exposure *ret, struct err *e)
{
    char tag[LVM_TAG_MAX];
    int rc = 0;
    /* A COW snapshot is active with its origin. */
    if (*alias && lvm_is_thin(lv) && !strstr(lv->tags, alias)) {
        struct lvm_exposed x = {.created_ns = now_ns()};
        snprintf(x.alias, sizeof x.alias, "%s", alias);
        snprintf(x.node, sizeof x.node, "%s", c->node);
        rc = lvm_exposed_write(&x, tag, e);
        if (rc == 0)
            rc = retag(lv, "--addtag", tag, what, e);
        crash_point("lvm-expose-tagged");
    }
    if (rc == 0)
        rc = lvm_activate(lv, what, e);
    crash_point("lvm-exposed");
    ret->mechanism = EXPOSE_NATIVE;
    ret->read_only = true;
    ret->size = t->size;
    snprintf(ret->path, sizeof ret->path, "%s", lv->dm_path);
    if (*alias && lvm_is_thin(lv))
        snprintf(ret->alias, sizeof ret->alias, "%s", alias);
    place_of(lv, ret->where, sizeof ret->where);
    return rc;
}

struct gathering {
    const char *alias, *node;
    unsigned all;
    char tag[LVM_TAG_MAX]; /* of this alias */
};

static int gather_exposed(const char *tag, void *arg)
{
    struct gathering *g = arg;
    struct lvm_exposed x;
    if (!lvm_exposed_read(tag, &x))
        return 0;
    g->all++;
    if (strcmp(x.alias, g->alias) == 0 && strcmp(x.node, g->node) == 0)
        snprintf(g->tag, sizeof g->tag, "%s", tag);
    return 0;
}

/* Of the alias, or of no alias (a look at it): active only as long as somebody exposes it. */
static int hide_native(const struct driver_class *c, const struct lvm_lv *lv, const char *alias, struct err *e)
{
    char what[512];
    struct gathering g = {.alias = alias, .node = c->node};
    int rc = 0;
    lvm_each_tag(lv->tags, gather_exposed, &g);
    snprintf(what, sizeof what, "cannot deactivate native snapshot %s", lv->path);
    if (g.all == (g.tag[0] ? 1 : 0) && lvm_is_thin(lv)) {
        rc = lvm_deactivate(lv, what, e);
        crash_point("lvm-deactivated");
    }
    return rc == 0 && g.tag[0] ? retag(lv, "--deltag", g.tag, what, e) : rc;
}

/* ---- clones ---- */

static void describe_clone(const struct lvm_lv *lv, const struct lvm_tag *t, struct exposure *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->mechanism = t->kind == LVM_INTERMEDIATE ? EXPOSE_CLONE : EXPOSE_COPY;
    ret->read_only = t->read_only;
    ret->size = t->size;
    snprintf(ret->path, sizeof ret->path, "%s", lv->dm_path);
    snprintf(ret->handle, sizeof ret->handle, "%s", lv->path);
    snprintf(ret->alias, sizeof ret->alias, "%s", t->tag.alias);
    snprintf(ret->klass, sizeof ret->klass, "%s", t->klass);
    place_of(lv, ret->where, sizeof ret->where);
}

static int clone_make(const struct lvm_report *r, const struct lvm_lv *of, const struct lvm_tag *from,
                      const struct driver_class *into, bool read_only, const char *alias, const char *what,
                      struct err *e)
{
    char name[ALIAS_LEN + sizeof LVM_PREFIX], origin[2 * LVM_NAME_MAX + 2];
    CLEANUP_FREE struct lvm_tag *t = calloc(1, sizeof *t);
    CLEANUP_FREE struct lvm_tags *tags = malloc(sizeof *tags);
    if (!t || !tags)
        return err_nomem(e);
    t->kind = LVM_INTERMEDIATE;
    t->tag = from->tag;
    snprintf(t->tag.alias, sizeof t->tag.alias, "%s", alias);
    t->tag.created_ns = now_ns();
    t->size = from->size;
    t->read_only = read_only;
    snprintf(t->node, sizeof t->node, "%s", into->node);
    snprintf(t->vg_uuid, sizeof t->vg_uuid, "%s", of->vg_uuid);
    snprintf(t->klass, sizeof t->klass, "%s", into->name);
    int rc = lvm_pool_check(r, lvm_find(r, of->vg, of->pool), what, e);
    if (rc == 0)
        rc = lvm_tag_write(t, tags, e);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, LVM_PREFIX "%s", alias);
    snprintf(origin, sizeof origin, "%s/%s", of->vg, of->name);
    const char *args[ARGS] = {
        "lvcreate", "--snapshot", "--permission", read_only ? "r" : "rw", "--setactivationskip", "y", "--name", name};
    size_t n = 8;
    for (unsigned i = 0; i < tags->n; i++) {
        args[n++] = "--addtag";
        args[n++] = tags->text[i];
    }
    args[n] = origin;
    rc = lvm_change(what, args, e);
    crash_point("lvm-clone-made");
    return rc;
}

static int expose_clone(const struct lvm_report *r, const struct lvm_lv *of, const struct lvm_tag *from,
                        const struct driver_class *into, bool read_only, const char *alias, const char *what,
                        struct exposure *ret, struct err *e)
{
    struct lvm_report now = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    const double began = mono_s();
    if (!t)
        return err_nomem(e);
    if (!lvm_is_thin(of))
        return err_set(e, ERR_USAGE, ENOTSUP, "%s: COW snapshots of LVM cannot be cloned", what);
    int rc = lvm_find_ours_in(into, &now, of->path, LVM_INTERMEDIATE, alias, &lv, t, e);
    if (rc == -ENOENT) {
        lvm_report_free(&now);
        rc = clone_make(r, of, from, into, read_only, alias, what, e);
        if (rc == 0)
            rc = lvm_find_ours_in(into, &now, of->path, LVM_INTERMEDIATE, alias, &lv, t, e);
        if (rc == -ENOENT)
            rc = err_set(e, ERR_GENERIC, ENOENT, "intermediate %s disappeared after its creation", alias);
    }
    if (rc == 0)
        rc = lvm_activate(lv, what, e);
    if (rc == 0) {
        describe_clone(lv, t, ret);
        ret->seconds = mono_s() - began;
    }
    lvm_report_free(&now);
    return rc;
}

/* ---- the driver's functions ---- */

int lvm_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
               enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e)
{
    char what[512];
    struct lvm_report r = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    memset(ret, 0, sizeof *ret);
    if (m != EXPOSE_NATIVE && m != EXPOSE_CLONE)
        return err_set(e, ERR_USAGE, ENOTSUP, "storage class \"%s\": driver %s supports neither overlays nor copies",
                       c->name, c->driver);
    if (m == EXPOSE_NATIVE && !read_only)
        return err_set(e, ERR_USAGE, EINVAL, "native snapshot %s is never made writable", n->handle);
    if ((m == EXPOSE_CLONE || *alias) && !alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    snprintf(what, sizeof what, "cannot expose native snapshot %s", n->tag.alias);
    int rc = lvm_find_ours(c, &r, n->handle, LVM_NATIVE, n->tag.alias, &lv, t, e);
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is no longer on the storage", n->tag.alias,
                       n->tag.volume_name);
    if (rc == 0)
        rc = lvm_native_healthy(&r, lv, t, e);
    if (rc == 0)
        rc = m == EXPOSE_NATIVE ? expose_native(c, lv, t, alias, what, ret, e)
                                : expose_clone(&r, lv, t, into, read_only, alias, what, ret, e);
    if (rc == 0 && m == EXPOSE_NATIVE)
        snprintf(ret->klass, sizeof ret->klass, "%s", c->name);
    lvm_report_free(&r);
    return rc;
}

static const struct lvm_lv *exposed_by(const struct driver_class *c, const struct lvm_report *r, const char *alias)
{
    for (size_t i = 0; i < r->n; i++) {
        struct gathering g = {.alias = alias, .node = c->node};
        if (!strstr(r->lv[i].tags, alias))
            continue;
        lvm_each_tag(r->lv[i].tags, gather_exposed, &g);
        if (g.tag[0])
            return &r->lv[i];
    }
    return NULL;
}

/* Exposed without an alias: what was recorded of it is its device. */
static int hide_path(const struct driver_class *c, const struct exposure *x, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    int rc = x->path[0] && lvm_thin_class(c) ? lvm_report_read(&r, NULL, e) : 0;
    for (size_t i = 0; rc == 0 && i < r.n; i++)
        if (strcmp(r.lv[i].dm_path, x->path) == 0 && lvm_tag_read(&r.lv[i], t) == 0 && t->kind == LVM_NATIVE &&
            strcmp(t->node, c->node) == 0)
            rc = hide_native(c, &r.lv[i], "", e);
    lvm_report_free(&r);
    return rc;
}

int lvm_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    char what[512];
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    if (!x->alias[0])
        return hide_path(into, x, e);
    /* Only its alias may be known, and not of which kind it is. */
    int rc = lvm_find_ours(into, &r, x->handle, LVM_INTERMEDIATE, x->alias, &lv, t, e);
    if (rc == -ENOENT && (lv = exposed_by(into, &r, x->alias))) {
        rc = hide_native(into, lv, x->alias, e);
    } else if (rc == -ENOENT) {
        rc = lvm_metadata_undo(into, &r, x->alias, e);
        if (rc == -ENOENT)
            rc = lvm_target_undo(into, &r, x->alias, e);
    } else if (rc == 0) {
        snprintf(what, sizeof what, "cannot remove intermediate %s", lv->path);
        rc = lvm_remove_lv(lv, what, e);
        crash_point("lvm-clone-removed");
    }
    lvm_report_free(&r);
    return rc;
}

struct listing {
    const struct driver_class *into;
    const struct lvm_lv *lv;
    const struct lvm_tag *t;
    struct exposure *x;
    exposure_fn *fn;
    void *arg;
};

static int list_exposed(const char *tag, void *arg)
{
    const struct listing *l = arg;
    struct lvm_exposed found;
    if (!lvm_exposed_read(tag, &found) || strcmp(found.node, l->into->node) != 0)
        return 0;
    CLEANUP_FREE struct native_tag *of = malloc(sizeof *of);
    if (!of)
        return -ENOMEM;
    *of = l->t->tag;
    of->created_ns = found.created_ns;
    memset(l->x, 0, sizeof *l->x);
    l->x->mechanism = EXPOSE_NATIVE;
    l->x->read_only = true;
    l->x->size = l->t->size;
    snprintf(l->x->path, sizeof l->x->path, "%s", l->lv->dm_path);
    snprintf(l->x->alias, sizeof l->x->alias, "%s", found.alias);
    snprintf(l->x->klass, sizeof l->x->klass, "%s", l->into->name);
    place_of(l->lv, l->x->where, sizeof l->x->where);
    return l->fn(l->x, of, l->arg);
}

int lvm_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    CLEANUP_FREE struct exposure *x = malloc(sizeof *x);
    if (!t || !x)
        return err_nomem(e);
    int rc = lvm_report_read(&r, NULL, e);
    for (size_t i = 0; rc == 0 && i < r.n; i++) {
        const struct lvm_lv *lv = &r.lv[i];
        if (lvm_is_pool(lv) && lvm_thin_class(into))
            rc = lvm_metadata_left(into, lv, fn, arg);
        if (lvm_is_thin(lv) != lvm_thin_class(into) || lvm_tag_read(lv, t) < 0 || strcmp(t->node, into->node) != 0 ||
            !lvm_is_ours(lv, t))
            continue;
        if (t->kind == LVM_NATIVE) {
            struct listing l = {into, lv, t, x, fn, arg};
            rc = lvm_each_tag(lv->tags, list_exposed, &l);
            continue;
        }
        describe_clone(lv, t, x);
        if (t->kind != LVM_INTERMEDIATE) /* of a restore: treated by the sweep like any writable copy */
            snprintf(x->klass, sizeof x->klass, "%s", into->name);
        rc = fn(x, &t->tag, arg);
    }
    lvm_report_free(&r);
    return rc;
}

/* ---- opening ---- */

/* The kernel refuses each read of a COW snapshot that has overflowed, from the moment at which it does. */
static int check_valid(const struct lvm_report *r, const struct lvm_lv *lv, int fd, struct err *e)
{
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    CLEANUP_FREE void *sector = aligned_alloc(SECTOR_MAX, SECTOR_MAX);
    if (!t || !sector)
        return err_nomem(e);
    if (lvm_tag_read(lv, t) == 0) {
        int rc = lvm_native_healthy(r, lv, t, e);
        if (rc < 0)
            return rc;
    }
    return pread(fd, sector, 512, 0) == 512 ? 0 : err_set(e, ERR_SOURCE, errno, "cannot read %s", lv->dm_path);
}

int lvm_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    char vg[LVM_NAME_MAX];
    struct lvm_report r = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    uint64_t size = 0;
    int f = -1;
    (void)c;
    snprintf(vg, sizeof vg, "%.*s", (int)strcspn(x->where, "/") % LVM_NAME_MAX, x->where);
    if (!vg[0])
        return err_set(e, ERR_GENERIC, EINVAL, "the record of an exposure names no volume group");
    int rc = lvm_report_read(&r, vg, e);
    for (size_t i = 0; rc == 0 && i < r.n; i++)
        if (strcmp(r.lv[i].dm_path, x->path) == 0)
            lv = &r.lv[i];
    if (rc == 0 && !lv)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "%s is no longer on the storage", x->path);
    /* The machine went down since it was exposed: its tag survives that, and its device does not. */
    if (rc == 0 && x->alias[0] && strstr(lv->tags, x->alias))
        rc = lvm_activate(lv, "cannot activate what is exposed", e);
    if (rc == 0)
        rc = lvm_open_device(lv, x->read_only ? O_RDONLY : O_RDWR, &f, e);
    if (rc == 0 && (ioctl(f, BLKGETSIZE64, &size) < 0 || size != x->size))
        rc = err_set(e, ERR_SOURCE, 0, "%s has %" PRIu64 " bytes, %" PRIu64 " were exposed", x->path, size, x->size);
    if (rc == 0 && lvm_is_cow(lv))
        rc = check_valid(&r, lv, f, e);
    lvm_report_free(&r);
    if (rc < 0 && f >= 0)
        close(f);
    else
        *fd = f;
    return rc;
}
