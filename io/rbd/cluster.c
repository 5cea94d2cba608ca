/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/rbd/cluster.h"

#include "base/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SNAPS_MAX 65536
#define EBLOCKLISTED ESHUTDOWN /* of librados: others have fenced this client */

int ceph_error(struct err *e, int rc, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const int sys = -rc;
    err_plain(e,
              sys == ENOENT                    ? ERR_NOT_FOUND
              : sys == EPERM || sys == EACCES  ? ERR_PERMISSION
              : sys == EBUSY                   ? ERR_BUSY
              : sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE
              : sys == ENOMEM                  ? ERR_MEMORY
                                               : ERR_SOURCE,
              sys, "%s: %s", text,
              sys == ETIMEDOUT      ? "Ceph does not answer"
              : sys == ENOSPC       ? "the cluster is full"
              : sys == EDQUOT       ? "the quota of the pool is reached"
              : sys == EBLOCKLISTED ? "this client was fenced (blocklisted)"
              : sys == EROFS ? "a client has its lock and gives it to nobody, or it is the copy of a mirrored image"
                             : strerror(sys));
    if (sys == EPERM || sys == EACCES)
        err_hint(e, "the user of Ceph needs the capabilities mon 'profile rbd' and osd 'profile rbd pool=POOL'");
    else if (sys == ETIMEDOUT)
        err_hint(e, "see ceph -s");
    else if (sys == EROFS)
        err_hint(e, "rbd lock ls, rbd info; an image must not be mapped with the option exclusive");
    else if (sys == ENOSPC || sys == EDQUOT)
        err_hint(e, "see ceph df and ceph health detail");
    return rc;
}

int cluster_open(struct cluster *c, const char *conf, const char *user, struct err *e)
{
    char name[256];
    *c = (struct cluster){.lib = ceph_lib(e)};
    if (!c->lib)
        return -ENOTSUP;
    snprintf(name, sizeof name, "client.%s", user && *user ? user : "admin");
    int rc = c->lib->rados_create2(&c->rados, "ceph", name, 0);
    if (rc < 0)
        return ceph_error(e, rc, "cannot use librados as %s", name);
    rc = c->lib->rados_conf_read_file(c->rados, conf && *conf ? conf : NULL);
    if (rc < 0) {
        err_set(e, ERR_USAGE, -rc, "cannot read %s: %s", conf && *conf ? conf : "/etc/ceph/ceph.conf", strerror(-rc));
        return err_hint(e, "it names the monitors of the cluster; backup-option.ceph-config names another file");
    }
    static const char *const settings[][2] = {{"client_mount_timeout", CLUSTER_CONNECT_S},
                                              {"rados_mon_op_timeout", CLUSTER_CONNECT_S},
                                              {"rados_osd_op_timeout", CLUSTER_TIMEOUT_S},
                                              /* An image is read once, in order. */
                                              {"rbd_cache", "false"},
                                              {"log_to_stderr", "false"},
                                              {"log_file", ""},
                                              {"admin_socket", ""}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        (void)c->lib->rados_conf_set(c->rados, settings[i][0], settings[i][1]); /* an unknown one is of no use there */
    rc = c->lib->rados_connect(c->rados);
    if (rc < 0) {
        ceph_error(e, rc, "cannot connect to Ceph as %s", name);
        if (rc == -ENOENT && e) { /* of the keyring */
            e->cls = ERR_PERMISSION;
            err_hint(e, "is there a keyring of %s, such as /etc/ceph/ceph.%s.keyring?", name, name);
        }
        return rc;
    }
    rc = c->lib->rados_cluster_fsid(c->rados, c->fsid, sizeof c->fsid);
    return rc < 0 ? ceph_error(e, rc, "cannot read the id of the cluster") : 0;
}

void cluster_close(struct cluster *c)
{
    if (c->rados)
        c->lib->rados_shutdown(c->rados);
    c->rados = NULL;
}

int cluster_pool(const struct cluster *c, const char *pool, const char *space, rados_ioctx_t *ret, struct err *e)
{
    int rc = c->lib->rados_ioctx_create(c->rados, pool, ret);
    if (rc == -ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no pool %s in Ceph", pool);
    if (rc < 0)
        return ceph_error(e, rc, "cannot use pool %s of Ceph", pool);
    c->lib->rados_ioctx_set_namespace(*ret, space);
    /* In a cluster that is full writes fail, instead of waiting for space, and what is removed can be removed. */
    c->lib->rados_set_osdmap_full_try(*ret);
    return 0;
}

int ceph_image_open(struct image *x, const struct cluster *c, const char *pool, const char *space, const char *id,
                    bool writable, struct err *e)
{
    *x = (struct image){.cluster = c};
    snprintf(x->name, sizeof x->name, "%s/%s%s%s", pool, space, *space ? "/" : "", id);
    snprintf(x->header, sizeof x->header, "rbd_header.%s", id);
    int rc = cluster_pool(c, pool, space, &x->io, e);
    if (rc < 0)
        return rc;
    rc = (writable ? c->lib->rbd_open_by_id : c->lib->rbd_open_by_id_read_only)(x->io, id, &x->rbd, NULL);
    if (rc < 0)
        x->rbd = NULL;
    return rc < 0 ? ceph_error(e, rc, "cannot open image %s", x->name) : 0;
}

void ceph_image_close(struct image *x)
{
    if (x->rbd)
        x->cluster->lib->rbd_close(x->rbd);
    if (x->io)
        x->cluster->lib->rados_ioctx_destroy(x->io);
    x->rbd = x->io = NULL;
}

int ceph_image_at(struct image *x, uint64_t snap, struct err *e)
{
    const int rc = x->cluster->lib->rbd_snap_set_by_id(x->rbd, snap);
    return rc < 0 ? ceph_error(e, rc, "cannot read snapshot %" PRIu64 " of image %s", snap, x->name) : 0;
}

int ceph_image_has_snap(const struct image *x, uint64_t snap, struct err *e)
{
    uint8_t answer[12 + 8 * 1024], *p = answer;
    size_t room = sizeof answer;
    /* The highest id, and the list: a number and the ids. */
    int rc = x->cluster->lib->rados_exec(x->io, x->header, "rbd", "get_snapcontext", NULL, 0, (char *)p, room);
    if (rc == -ERANGE) {
        room = 12 + (size_t)8 * SNAPS_MAX;
        if (!(p = malloc(room)))
            return err_nomem(e);
        rc = x->cluster->lib->rados_exec(x->io, x->header, "rbd", "get_snapcontext", NULL, 0, (char *)p, room);
    }
    bool found = false;
    const uint32_t n = rc >= 12 ? get_le32(p + 8) : 0;
    for (uint32_t i = 0; i < n && 20 + (size_t)8 * i <= (size_t)rc && !found; i++)
        found = get_le64(p + 12 + (size_t)8 * i) == snap;
    if (p != answer)
        free(p);
    if (rc < 0)
        return ceph_error(e, rc, "cannot read the snapshots of image %s", x->name);
    return found ? 0
                 : err_plain(e, ERR_NOT_FOUND, ENOENT, "snapshot %" PRIu64 " of image %s was removed", snap, x->name);
}

int snaps_read(struct snaps *ret, const struct image *x, struct err *e)
{
    int room = 64, rc;
    *ret = (struct snaps){NULL, 0};
    do {
        free(ret->v);
        if (!(ret->v = calloc((size_t)room, sizeof *ret->v)))
            return err_nomem(e);
        rc = x->cluster->lib->rbd_snap_list(x->rbd, ret->v, &room);
    } while (rc == -ERANGE && room <= SNAPS_MAX);
    if (rc >= 0) {
        ret->n = rc;
        return 0;
    }
    free(ret->v);
    ret->v = NULL;
    return ceph_error(e, rc, "cannot list the snapshots of image %s", x->name);
}

void snaps_free(struct snaps *s, const struct image *x)
{
    if (s->v && s->n)
        x->cluster->lib->rbd_snap_list_end(s->v);
    free(s->v);
    s->v = NULL;
}
