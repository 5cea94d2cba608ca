/* SPDX-License-Identifier: GPL-2.0-or-later */
/* intermediate.c - clones and copies of native snapshots as tagged files */
#include "io/native/intermediate.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/native/fsinfo.h"
#include "io/native/overlay.h"
#include "io/native/path.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

static void intermediate_describe(const struct tagged *f, struct exposure *ret)
{
    const struct file_tag *t = &f->tag;
    memset(ret, 0, sizeof *ret);
    ret->mechanism = t->mechanism;
    ret->read_only = t->read_only;
    memcpy(ret->path, f->path, sizeof ret->path);
    memcpy(ret->handle, f->path, sizeof ret->handle);
    memcpy(ret->alias, t->tag.alias, sizeof ret->alias);
    memcpy(ret->klass, t->klass, sizeof ret->klass);
    const char *name;
    path_split(f->path, ret->where, &name, NULL);
    ret->size = t->size;
    ret->copied = t->copied;
    ret->seconds = t->seconds;
}

struct filling {
    const struct intermediate *m;
    int dir;
    double began;
};

static int clone_error(const char *path, int sys, const char *from, struct err *e)
{
    err_set(e, ERR_GENERIC, sys, "cannot clone %s to %s", from, path);
    if (sys == EXDEV || sys == EOPNOTSUPP || sys == ENOTTY)
        err_hint(e, "clones are made on one and the same XFS (with reflink=1) or btrfs file system only");
    return -sys;
}

static int intermediate_fill(int fd, const char *path, struct file_tag *t, void *arg, struct err *e)
{
    const struct filling *f = arg;
    const struct intermediate *m = f->m;
    if (m->mechanism == EXPOSE_CLONE) {
        match_clone_flags(m->from.src, fd);
        if (ioctl(fd, FICLONE, m->from.src) < 0)
            return clone_error(path, errno, m->from.src_path, e);
    } else {
        uint64_t need;
        int rc = filecopy_needs(&m->from, &need, e);
        if (rc == 0)
            rc = space_check(f->dir, m->dir_path, need, e);
        if (rc == 0)
            rc = filecopy_run(&m->from, fd, path, &t->copied, e);
        if (rc < 0)
            return rc;
    }
    struct stat st;
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != m->from.size)
        return err_set(e, ERR_SOURCE, 0, "%s has %jd bytes, its snapshot %" PRIu64, path, (intmax_t)st.st_size,
                       m->from.size);
    t->seconds = mono_s() - f->began;
    return 0;
}

static int intermediate_create(const struct intermediate *m, struct dirs *d, struct err *e)
{
    char hidden_path[VOLUME_NAME_MAX], name[ALIAS_LEN + 32];
    struct fs_info fs;
    int rc = path_join(hidden_path, m->dir_path, HIDDEN_DIR, e);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int dir = open(m->dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_set(e, ERR_USAGE, errno, "cannot open %s, the target of storage class \"%s\": %s", m->dir_path,
                       m->into->name, strerror(errno));
    if ((rc = fs_info_fd(dir, m->dir_path, &fs, e)) < 0)
        return rc;
    if (!fs.holds_files)
        return err_set(e, ERR_USAGE, ENOTSUP,
                       "%s, the target of storage class \"%s\", is on a file system of type %s: XFS, btrfs, ext4 or "
                       "tmpfs required",
                       m->dir_path, m->into->name, fs.type);
    CLEANUP_CLOSE int hidden = hidden_open(dir, m->dir_path, true, e);
    if (hidden < 0)
        return hidden;
    struct file_tag t = {.kind = TAG_INTERMEDIATE, .tag = m->n->tag, .size = m->from.size};
    t.mechanism = m->mechanism;
    t.read_only = m->read_only;
    snprintf(t.node, sizeof t.node, "%s", m->into->node);
    snprintf(t.klass, sizeof t.klass, "%s", m->into->name);
    snprintf(t.native, sizeof t.native, "%s", m->n->tag.alias);
    snprintf(t.tag.alias, sizeof t.tag.alias, "%s", m->alias);
    t.tag.created_ns = now_ns();
    snprintf(name, sizeof name, "%s.intermediate", m->alias);
    struct filling f = {m, hidden, mono_s()};
    rc = tagged_create(hidden, hidden_path, name, m->read_only ? 0400 : 0600, &t, intermediate_fill, &f, e);
    if (rc < 0)
        return rc;
    return dirs_add(d, m->dir_path, e);
}

int intermediate_make(const struct intermediate *m, struct exposure *ret, struct err *e)
{
    struct dirs d = {0};
    struct tagged f = TAGGED_INIT;
    if (!alias_valid(m->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", m->alias);
    int rc = dirs_of_class(&d, m->into, e);
    if (rc == 0)
        rc = dirs_add(&d, m->dir_path, e);
    if (rc == 0)
        rc = tagged_find(&d, m->into->node, TAG_INTERMEDIATE, m->alias, NULL, &f, e);
    if (rc == -ENOENT) {
        rc = intermediate_create(m, &d, e);
        if (rc == 0)
            rc = tagged_find(&d, m->into->node, TAG_INTERMEDIATE, m->alias, NULL, &f, e);
        if (rc == -ENOENT)
            err_set(e, ERR_GENERIC, ENOENT, "intermediate %s disappeared from %s after its creation", m->alias,
                    m->dir_path);
    }
    if (rc == 0)
        intermediate_describe(&f, ret);
    tagged_close(&f);
    dirs_free(&d);
    return rc;
}

/* By alias, wherever it is: the alias may be all that was recorded. */
int intermediate_remove(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    struct dirs d = {0};
    struct tagged f = TAGGED_INIT;
    struct stat st;
    int rc = dirs_of_class(&d, into, e);
    if (rc == 0)
        rc = dirs_add_of(&d, x->handle, e);
    if (rc == 0)
        rc = tagged_find(&d, into->node, TAG_INTERMEDIATE, x->alias, x->handle, &f, e);
    if (rc == -ENOENT)
        rc = tagged_find(&d, into->node, TAG_STAGING, x->alias, x->handle, &f, e);
    if (rc == 0) {
        rc = tagged_unlink(&f, e);
    } else if (rc == -ENOENT && x->handle[0] && lstat(x->handle, &st) == 0) {
        err_set(e, ERR_PERMISSION, EPERM, "%s does not have the tag of intermediate %s of this node: not removed",
                x->handle, x->alias);
        err_hint(e, "check it, and remove it manually if it is not needed");
        rc = -EPERM;
    } else if (rc == -ENOENT) {
        rc = 0;
    }
    tagged_close(&f);
    dirs_free(&d);
    return rc;
}

int exposure_undo(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    if (!x->alias[0])
        return 0; /* the native snapshot itself: nothing was created */
    if (!alias_valid(x->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", x->alias);
    bool unknown = !x->handle[0], hook = into->overlay_hook && *into->overlay_hook;
    int rc = 0;
    if (x->mechanism == EXPOSE_OVERLAY || (unknown && hook))
        rc = overlay_remove(into, x, e);
    if (rc == 0 && (unknown || x->mechanism == EXPOSE_CLONE || x->mechanism == EXPOSE_COPY))
        rc = intermediate_remove(into, x, e);
    return rc;
}

bool exposure_made_nothing(const struct driver *d, const struct exposure *x)
{
    return x->mechanism == EXPOSE_NATIVE && !x->alias[0] && (!d->unexpose || d->unexpose == exposure_undo);
}

struct listing {
    const struct driver_class *into;
    exposure_fn *fn;
    void *arg;
};

static int list_one(const struct tagged *f, void *arg)
{
    const struct listing *l = arg;
    struct exposure x;
    intermediate_describe(f, &x);
    if (f->tag.kind == TAG_STAGING) { /* of a restore: treated by the sweep like any writable copy */
        x.mechanism = EXPOSE_COPY;
        snprintf(x.klass, sizeof x.klass, "%s", l->into->name);
    }
    return l->fn(&x, &f->tag.tag, l->arg);
}

int intermediate_each(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    struct dirs d = {0};
    struct listing l = {into, fn, arg};
    int rc = dirs_of_class(&d, into, e);
    if (rc == 0)
        rc = tagged_each(&d, into->node, TAG_INTERMEDIATE, list_one, &l, e);
    if (rc == 0)
        rc = tagged_each(&d, into->node, TAG_STAGING, list_one, &l, e);
    dirs_free(&d);
    return rc;
}

int intermediate_open(const struct exposure *x, int *fd, struct err *e)
{
    struct stat st;
    CLEANUP_CLOSE int f =
        open(x->path, (x->read_only ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (f < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_SOURCE, errno, "cannot open %s", x->path);
    if (fstat(f, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_SOURCE, 0, "%s is not a regular file", x->path);
    struct file_tag t;
    if (tag_read(f, &t) < 0 || t.kind != (x->mechanism == EXPOSE_NATIVE ? TAG_NATIVE : TAG_INTERMEDIATE) ||
        (x->alias[0] && strcmp(t.tag.alias, x->alias) != 0))
        return err_set(e, ERR_SOURCE, 0, "%s is not what was exposed: tag missing", x->path);
    if ((uint64_t)st.st_size != x->size)
        return err_set(e, ERR_DAMAGE, 0, "%s has %jd bytes, its snapshot %" PRIu64, x->path, (intmax_t)st.st_size,
                       x->size);
    *fd = take_fd(&f);
    return 0;
}
