/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rbd-expose.c - native snapshots are read as they are, from a server */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "io/nbd-uri.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rbd_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
               enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e)
{
    struct nbd_uri u = {.socket = RBD_SERVER};
    CLEANUP_FREE struct native *now = malloc(sizeof *now);
    (void)into, (void)alias;
    if (!now)
        return err_nomem(e);
    if (m != EXPOSE_NATIVE || !read_only)
        return err_set(e, ERR_USAGE, ENOTSUP, "driver rbd reads snapshots as they are (storage class \"%s\")", c->name);
    int rc = rbd_native_find(c, NULL, n->tag.alias, n->handle, now, e);
    if (rc < 0)
        return rc;
    if (now->size != n->size)
        return err_set(e, ERR_DAMAGE, EIO, "%s has %" PRIu64 " bytes, and had %" PRIu64 " when it was taken",
                       now->handle, now->size, n->size);
    if ((size_t)snprintf(u.export, sizeof u.export, "%s", now->handle) >= sizeof u.export)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of %.200s is too long", now->handle);
    memset(ret, 0, sizeof *ret);
    ret->mechanism = EXPOSE_NATIVE;
    ret->read_only = true;
    ret->size = n->size;
    nbd_uri_text(&u, ret->path);
    memcpy(ret->where, now->handle, sizeof ret->where);
    snprintf(ret->klass, sizeof ret->klass, "%s", c->name);
    return 0;
}

int rbd_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    const struct rbd_image *i = NULL;
    struct rbd_snap s;
    const char *snap = strchr(x->where, '@');
    CLEANUP_FREE struct rbd_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    if (!snap || strncmp(snap + 1, RBD_PREFIX, sizeof RBD_PREFIX - 1) != 0)
        return err_set(e, ERR_GENERIC, EINVAL, "the record of an exposure names no native snapshot of driver rbd");
    int rc = rbd_find_ours(c, &r, x->where, snap + sizeof RBD_PREFIX, &i, t, e);
    if (rc == -ENOENT || (rc == 0 && !rbd_snap_find(i, snap + 1, &s)))
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "%s is no longer on the storage", x->where);
    if (rc < 0)
        return rc;
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, s.id);
    const char *const args[] = {"serve", i->pool, i->space, i->id, number, NULL};
    return rbd_serve(c, args, x->where, fd, e);
}
