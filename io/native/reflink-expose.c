/* SPDX-License-Identifier: GPL-2.0-or-later */
/* reflink-expose.c - native snapshots of image files made readable, and the space of their file system */
#include "base/cleanup.h"
#include "io/native/fsinfo.h"
#include "io/native/intermediate.h"
#include "io/native/path.h"
#include "io/native/reflink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

/* The directory (not the hidden one) in which the snapshot lies. */
static int base_dir(const char *handle, char ret[VOLUME_NAME_MAX], struct err *e)
{
    const char *name;
    int rc = path_split(handle, ret, &name, e);
    char *last = rc < 0 ? NULL : strrchr(ret, '/');
    if (last && last != ret && strcmp(last + 1, HIDDEN_DIR) == 0)
        *last = '\0';
    return rc;
}

static int unable(const struct driver_class *c, const struct driver_class *into, enum expose_mechanism m,
                  bool read_only, struct err *e)
{
    if (m == EXPOSE_NATIVE && !read_only)
        return err_set(e, ERR_USAGE, EINVAL, "a native snapshot itself is never writable");
    if (m == EXPOSE_OVERLAY)
        return err_set(e, ERR_USAGE, ENOTSUP, "driver reflink does not support overlays (storage class \"%s\")",
                       c->name);
    if (m != EXPOSE_NATIVE && (m != EXPOSE_CLONE || strcmp(into->driver, REFLINK_NAME) != 0))
        return err_set(e, ERR_USAGE, ENOTSUP, "storage class \"%s\" (driver %s) cannot hold a %s of an image file",
                       into->name, into->driver, expose_mechanism_name(m));
    return 0;
}

static int expose_native(const struct driver_class *c, const struct native *n, struct exposure *ret, struct err *e)
{
    const char *name;
    memset(ret, 0, sizeof *ret);
    ret->mechanism = EXPOSE_NATIVE;
    ret->read_only = true;
    ret->size = n->size;
    memcpy(ret->path, n->handle, sizeof ret->path);
    snprintf(ret->klass, sizeof ret->klass, "%s", c->name);
    return path_split(n->handle, ret->where, &name, e);
}

static int expose_clone(const struct native *n, struct intermediate *i, struct exposure *ret, struct err *e)
{
    char dir[VOLUME_NAME_MAX];
    int rc = base_dir(n->handle, dir, e);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int src = open(n->handle, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (src < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot open native snapshot %s", n->handle);
    i->from.src = src;
    i->dir_path = i->into->target && *i->into->target ? i->into->target : dir;
    return intermediate_make(i, ret, e);
}

int reflink_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                   enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e)
{
    struct native now;
    struct volume v = {.size = n->size};
    struct intermediate i = {.into = into, .alias = alias, .mechanism = m, .read_only = read_only};
    int rc = unable(c, into, m, read_only, e);
    if (rc < 0)
        return rc;
    snprintf(v.name, sizeof v.name, "%s", n->tag.volume_name);
    if ((rc = reflink_find(c, &v, n->tag.alias, n->handle, &now, e)) < 0)
        return rc;
    if (m == EXPOSE_NATIVE)
        return expose_native(c, &now, ret, e);
    i.n = &now;
    i.from.size = now.size;
    i.from.src_path = now.handle;
    return expose_clone(&now, &i, ret, e);
}

/* The source may be of any driver, which exposes it read-only. */
int reflink_copy(const struct driver_class *into, const struct driver *owner, const struct driver_class *c,
                 const struct native *n, bool read_only, const char *alias, uint64_t rate, struct exposure *ret,
                 struct err *e)
{
    struct intermediate i = {.into = into,
                             .n = n,
                             .alias = alias,
                             .dir_path = into->target,
                             .mechanism = EXPOSE_COPY,
                             .read_only = read_only,
                             .from = {.size = n->size, .rate = rate}};
    struct exposure x;
    struct stat st;
    CLEANUP_CLOSE int src = -1;
    if (!(into->target && *into->target))
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\" has no target to hold a copy", into->name);
    /* With the copy's alias: the sweep finds what an interrupted copy has left exposed. */
    int rc = owner->expose(c, n, c, EXPOSE_NATIVE, true, alias, &x, e);
    if (rc < 0)
        return rc;
    rc = owner->open(c, &x, &src, e);
    if (rc == 0 && fstat(src, &st) < 0)
        rc = err_set(e, ERR_SOURCE, errno, "cannot stat %s", x.path);
    if (rc == 0) {
        i.from.src = src;
        i.from.src_path = x.path;
        i.from.block = S_ISBLK(st.st_mode);
        rc = intermediate_make(&i, ret, e);
    }
    if (exposure_made_nothing(owner, &x))
        return rc;
    struct err undo = ERR_INIT;
    if (src >= 0)
        close(take_fd(&src));
    if (owner->unexpose(c, &x, &undo) < 0)
        log_warning("native snapshot %s was copied, but is still exposed: %s", n->tag.alias, undo.msg);
    return rc;
}

int reflink_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    (void)c;
    return intermediate_open(x, fd, e);
}

int reflink_pool(const struct driver_class *c, const struct volume *v, struct pool_usage *ret, struct err *e)
{
    char dir[VOLUME_NAME_MAX];
    struct fs_info fs;
    struct statvfs s;
    const char *name;
    memset(ret, 0, sizeof *ret);
    if (v) {
        int rc = path_split(v->name, dir, &name, e);
        if (rc < 0)
            return rc;
    } else if (c->target && *c->target) {
        snprintf(dir, sizeof dir, "%s", c->target);
    } else {
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\" has no target, and no volume was named", c->name);
    }
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_GENERIC, errno, "cannot open %s", dir);
    int rc = fs_info_fd(fd, dir, &fs, e);
    if (rc < 0)
        return rc;
    if (fstatvfs(fd, &s) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot determine free space of %s", dir);
    snprintf(ret->name, sizeof ret->name, "%s", fs.pool);
    ret->size = (uint64_t)s.f_blocks * s.f_frsize;
    ret->free = (uint64_t)s.f_bavail * s.f_frsize;
    if (s.f_blocks)
        ret->used_ratio = 1.0 - (double)s.f_bavail / (double)s.f_blocks;
    if (s.f_files && 1.0 - (double)s.f_favail / (double)s.f_files > ret->used_ratio)
        ret->used_ratio = 1.0 - (double)s.f_favail / (double)s.f_files;
    return 0;
}
