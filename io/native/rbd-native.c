/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rbd-native.c - native snapshots of images; crash points are those of io/rbd/commands.h */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "io/native/freeze.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- taking ---- */

int rbd_native_taken(const struct driver_class *c, const struct rbd_report *r, const char *alias, struct native *ret,
                     struct err *e)
{
    char snap[64];
    struct rbd_snap s;
    const struct rbd_image *i = &r->image[0];
    CLEANUP_FREE struct rbd_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    snprintf(snap, sizeof snap, RBD_PREFIX "%.36s", alias);
    const bool tagged = rbd_tag_read(c, r, i, alias, t) == 0, there = rbd_snap_find(i, snap, &s);
    if (there && !tagged)
        return err_set(e, ERR_TARGET, EEXIST, "there is a snapshot %s/%s@%s, and it is not ours", i->pool, i->name,
                       snap);
    return tagged && rbd_native_of(r, i, t, ret) ? 0 : -ENOENT;
}

/* What is left of one that somebody else has removed. */
static int forget(const struct rbd_report *r, const struct rbd_image *i, const struct rbd_tag *t, void *arg)
{
    char key[64], snap[64];
    struct err why = ERR_INIT;
    struct rbd_snap s;
    rbd_tag_key(t->tag.alias, key);
    snprintf(snap, sizeof snap, RBD_PREFIX "%.36s", t->tag.alias);
    const char *const args[] = {"remove", i->pool, i->space, i->id, snap, key, NULL};
    (void)r;
    if (t->snap && !rbd_snap_find(i, snap, &s) && rbd_change(arg, "a tag without a snapshot", args, NULL, &why) < 0)
        log_warning("%s", why.msg);
    return 0;
}

int rbd_taking_prepare(struct rbd_taking *t, const struct driver_class *c, const struct rbd_report *r,
                       const struct volume *v, const struct native_tag *tag, struct err *e)
{
    CLEANUP_FREE struct volume *now = malloc(sizeof *now);
    CLEANUP_FREE struct native_tag *own = malloc(sizeof *own);
    if (!now || !own)
        return err_nomem(e);
    int rc = rbd_tags(c, r, forget, (void *)(uintptr_t)c, e);
    if (rc < 0)
        return rc;
    rbd_describe(r, &r->image[0], now);
    if (strcmp(now->id, v->id) != 0)
        return err_plain(e, ERR_SOURCE, ESTALE, "%s is no longer the volume that was looked up (%s, now %s)", v->name,
                         v->id, now->id);
    *own = *tag;
    memcpy(own->volume_id, now->id, sizeof own->volume_id);
    memcpy(own->volume_name, now->name, sizeof own->volume_name);
    t->c = c;
    t->image = &r->image[0];
    rbd_tag_key(tag->alias, t->key);
    snprintf(t->snap, sizeof t->snap, RBD_PREFIX "%.36s", tag->alias);
    t->name = v->name;
    return rbd_tag_write(c, r, t->image, own, &t->document, e);
}

int rbd_taking_make(const struct rbd_taking *t, struct err *e)
{
    char what[512];
    const struct rbd_image *i = t->image;
    const char *const args[] = {"create", i->pool, i->space, i->id, t->snap, t->key, NULL};
    snprintf(what, sizeof what, "cannot take a native snapshot of %.300s", t->name);
    return rbd_change(t->c, what, args, t->document, e);
}

int rbd_taken_now(const struct driver_class *c, const char *name, const char *alias, struct native *ret, struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    int rc = rbd_report_of(&r, c, name, e);
    if (rc == 0 && (rc = rbd_native_taken(c, &r, alias, ret, e)) == -ENOENT)
        rc = err_set(e, ERR_GENERIC, ENOENT, "native snapshot %s disappeared after its creation", alias);
    return rc;
}

int rbd_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag, struct native *ret,
                 struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    struct rbd_taking t = {.document = NULL};
    if (!alias_valid(tag->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", tag->alias);
    int rc = rbd_report_of(&r, c, v->name, e);
    if (rc == 0)
        rc = rbd_native_taken(c, &r, tag->alias, ret, e);
    if (rc != -ENOENT || !r.n)
        return rc;
    rc = rbd_taking_prepare(&t, c, &r, v, tag, e);
    if (rc == 0) {
        struct frozen *frozen = rbd_freeze(c, r.fsid, t.image);
        rc = rbd_taking_make(&t, e);
        frozen_thaw(frozen);
    }
    free(t.document);
    return rc < 0 ? rc : rbd_taken_now(c, v->name, tag->alias, ret, e);
}

/* ---- finding ---- */

int rbd_native_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                    struct native *ret, struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    const struct rbd_image *i = NULL;
    CLEANUP_FREE struct rbd_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    int rc = rbd_find_ours(c, &r, hint && *hint ? hint : v ? v->name : "", alias, &i, t, e);
    if (rc == 0 && !rbd_native_of(&r, i, t, ret))
        rc = -ENOENT;
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is no longer on the storage", alias,
                       v ? v->name : "a volume");
    return rc;
}

struct listing {
    native_fn *fn;
    void *arg;
    struct native n;
};

static int list_one(const struct rbd_report *r, const struct rbd_image *i, const struct rbd_tag *t, void *arg)
{
    struct listing *l = arg;
    return rbd_native_of(r, i, t, &l->n) || !t->snap ? l->fn(&l->n, l->arg) : 0;
}

int rbd_native_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    CLEANUP(rbd_patterns_free) char **patterns = NULL;
    CLEANUP_FREE struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    l->fn = fn;
    l->arg = arg;
    int rc = rbd_patterns(c, true, &patterns, e);
    if (rc < 0 || !patterns[0])
        return rc;
    rc = rbd_report_read(&r, c, (const char *const *)patterns, e);
    return rc < 0 ? rc : rbd_tags(c, &r, list_one, l, e);
}

/* ---- removing ---- */

int rbd_native_untagged(const struct driver_class *c, const struct native *n, struct err *e)
{
    char name[VOLUME_NAME_MAX];
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    struct err why = ERR_INIT;
    struct rbd_snap s;
    const char *snap = strchr(n->handle, '@');
    if (!snap)
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)(snap - n->handle), n->handle);
    int rc = rbd_report_of(&r, c, name, &why);
    if (rc < 0 && why.cls == ERR_NOT_FOUND)
        return 0;
    if (rc < 0) {
        if (e)
            *e = why;
        return rc;
    }
    if (!rbd_snap_find(&r.image[0], snap + 1, &s))
        return 0;
    return native_foreign(n->handle, n->tag.alias, "remove (rbd snap rm) or rename it", e);
}

int rbd_native_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    char what[512], key[64], snap[64];
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    const struct rbd_image *i = NULL;
    struct rbd_snap s;
    CLEANUP_FREE struct rbd_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    *gone = false;
    snprintf(what, sizeof what, "cannot remove native snapshot %s", n->tag.alias);
    int rc = rbd_find_ours(c, &r, n->handle[0] ? n->handle : n->tag.volume_name, n->tag.alias, &i, t, e);
    if (rc == -ENOENT) {
        rc = rbd_native_untagged(c, n, e);
        *gone = rc == 0;
        return rc;
    }
    if (rc < 0)
        return rc;
    rbd_tag_key(n->tag.alias, key);
    snprintf(snap, sizeof snap, RBD_PREFIX "%.36s", n->tag.alias);
    *gone = !rbd_snap_find(i, snap, &s);
    const char *const args[] = {"remove", i->pool, i->space, i->id, snap, key, NULL};
    return rbd_change(c, what, args, NULL, e);
}
