/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reflink-native.c - native snapshots that share the image's blocks
 *
 * A native snapshot is a clone of the whole file (FICLONE) in HIDDEN_DIR beside it. XFS and btrfs write back the
 * source's dirty pages and block its writers (and faults through mappings) while they clone, so it is one point in
 * time: every write that had returned before is in it, none that began after; one in progress is in it completely,
 * partially or not at all, as after a crash. The source is synced first: FICLONE would do so anyway, but with the
 * writers blocked.
 *
 * Crash points: see tag.c (native-...).
 */
#include "io/native/reflink.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/native/fsinfo.h"
#include "io/native/path.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* Limits of the search of extents for the exclusive size of a snapshot: it must be cheap, and nothing depends on it. */
#define EXTENTS_AT_ONCE 256
#define EXTENTS_MAX 65536
#define EXTENTS_SECONDS 2

/* Bytes in extents that are not shared; UINT64_MAX if that cannot be determined cheaply. */
static uint64_t exclusive_bytes(int fd, uint64_t size)
{
    CLEANUP_FREE struct fiemap *m = calloc(1, sizeof *m + EXTENTS_AT_ONCE * sizeof m->fm_extents[0]);
    uint64_t pos = 0, sum = 0;
    unsigned seen = 0;
    const double began = mono_s();
    while (m && pos < size) {
        if (seen > EXTENTS_MAX || mono_s() - began > EXTENTS_SECONDS)
            return UINT64_MAX;
        m->fm_start = pos;
        m->fm_length = FIEMAP_MAX_OFFSET - pos;
        m->fm_flags = 0;
        m->fm_extent_count = EXTENTS_AT_ONCE;
        if (ioctl(fd, FS_IOC_FIEMAP, m) < 0)
            return UINT64_MAX;
        if (m->fm_mapped_extents == 0)
            return sum;
        for (unsigned i = 0; i < m->fm_mapped_extents && i < EXTENTS_AT_ONCE; i++) {
            const struct fiemap_extent *x = &m->fm_extents[i];
            if (!(x->fe_flags & FIEMAP_EXTENT_SHARED))
                sum += x->fe_length;
            if (x->fe_flags & FIEMAP_EXTENT_LAST)
                return sum;
            if (x->fe_logical + x->fe_length <= pos)
                return UINT64_MAX;
            pos = x->fe_logical + x->fe_length;
        }
        seen += m->fm_mapped_extents;
    }
    return m ? sum : UINT64_MAX;
}

static void describe(const struct tagged *f, bool with_used, struct native *ret)
{
    char id[VOLUME_ID_MAX];
    memset(ret, 0, sizeof *ret);
    ret->tag = f->tag.tag;
    memcpy(ret->handle, f->path, sizeof ret->handle);
    ret->size = (uint64_t)f->st.st_size;
    ret->used = with_used ? exclusive_bytes(f->fd, ret->size) : UINT64_MAX;
    ret->crash_consistent = true;
    /* Without it nothing can be compared, and everything is read: no error. */
    if (file_object_id(f->fd, f->path, id, NULL) == 0)
        snprintf(ret->change_id, sizeof ret->change_id, "%s", id);
}

static int healthy(const struct tagged *f, struct err *e)
{
    char byte;
    if ((uint64_t)f->st.st_size != f->tag.size)
        return err_set(e, ERR_DAMAGE, 0, "native snapshot %s has %jd bytes, %" PRIu64 " when it was taken", f->path,
                       (intmax_t)f->st.st_size, f->tag.size);
    if (f->st.st_size > 0 && pread(f->fd, &byte, 1, 0) != 1)
        return err_set(e, ERR_SOURCE, errno, "cannot read native snapshot %s", f->path);
    return 0;
}

static int find_in(const struct driver_class *c, const char *volume, const char *alias, const char *hint,
                   struct tagged *f, struct err *e)
{
    struct dirs d = {0};
    int rc = alias_valid(alias) ? 0 : err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    if (rc == 0 && volume && *volume)
        rc = dirs_add_of(&d, volume, e);
    if (rc == 0 && hint && *hint)
        rc = dirs_add_of(&d, hint, e);
    if (rc == 0)
        rc = tagged_find(&d, c->node, TAG_NATIVE, alias, hint, f, e);
    if (rc == -ENOENT) { /* only then all the class's directories */
        rc = dirs_of_class(&d, c, e);
        if (rc == 0)
            rc = tagged_find(&d, c->node, TAG_NATIVE, alias, NULL, f, e);
    }
    dirs_free(&d);
    return rc;
}

int reflink_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                 struct native *ret, struct err *e)
{
    struct tagged f = TAGGED_INIT;
    int rc = find_in(c, v ? v->name : NULL, alias, hint, &f, e);
    if (rc == -ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is no longer on the storage", alias,
                         v ? v->name : "a volume");
    if (rc == 0)
        rc = healthy(&f, e);
    if (rc == 0)
        describe(&f, true, ret);
    tagged_close(&f);
    return rc;
}

static int fill_clone(int fd, const char *path, struct file_tag *t, void *arg, struct err *e)
{
    int src = *(int *)arg;
    struct stat st;
    match_clone_flags(src, fd);
    if (ioctl(fd, FICLONE, src) < 0) {
        int sys = errno;
        err_set(e, sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE : ERR_SOURCE, sys, "cannot clone %s to %s%s",
                t->tag.volume_name, path, sys == EOPNOTSUPP ? ": the file system cannot share blocks" : "");
        if (sys == EOPNOTSUPP || sys == ENOTTY || sys == EXDEV)
            err_hint(e, "native snapshots of files need XFS (with reflink=1) or btrfs");
        else if (sys == ETXTBSY)
            err_hint(e, "it is in use as swap");
        return -sys;
    }
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot stat %s", path);
    t->size = (uint64_t)st.st_size;
    return 0;
}

static int take(const struct driver_class *c, const struct volume *v, const struct native_tag *tag, int src,
                struct err *e)
{
    char dir_path[VOLUME_NAME_MAX], hidden_path[VOLUME_NAME_MAX], name[ALIAS_LEN + 16];
    const char *base;
    struct file_tag t = {.kind = TAG_NATIVE, .tag = *tag};
    int rc = path_split(v->name, dir_path, &base, e);
    if (rc == 0)
        rc = path_join(hidden_path, dir_path, HIDDEN_DIR, e);
    if (rc < 0)
        return rc;
    snprintf(t.node, sizeof t.node, "%s", c->node);
    snprintf(t.tag.volume_id, sizeof t.tag.volume_id, "%s", v->id);
    snprintf(t.tag.volume_name, sizeof t.tag.volume_name, "%s", v->name);
    CLEANUP_CLOSE int dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot open the directory %s", dir_path);
    CLEANUP_CLOSE int hidden = hidden_open(dir, dir_path, true, e);
    if (hidden < 0)
        return hidden;
    if (fdatasync(src) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot sync %s before its snapshot", v->name);
    snprintf(name, sizeof name, "%s.native", tag->alias);
    return tagged_create(hidden, hidden_path, name, 0400, &t, fill_clone, &src, e);
}

int reflink_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                     struct native *ret, struct err *e)
{
    struct tagged f = TAGGED_INIT;
    struct stat st;
    char id[VOLUME_ID_MAX];
    int rc = find_in(c, v->name, tag->alias, NULL, &f, e);
    if (rc == 0) {
        rc = healthy(&f, e);
        if (rc == 0)
            describe(&f, true, ret);
        tagged_close(&f);
        return rc;
    }
    if (rc != -ENOENT)
        return rc;
    CLEANUP_CLOSE int src = image_open(v->name, &st, e);
    if (src < 0)
        return src;
    if ((rc = image_id(src, v->name, id, e)) < 0)
        return rc;
    if (strcmp(id, v->id) != 0) {
        err_set(e, ERR_SOURCE, ESTALE, "%s is no longer the volume that was looked up (%s, now %s)", v->name, v->id,
                id);
        err_hint(e, "it was replaced; the next backup uses the new file");
        return -ESTALE;
    }
    if ((rc = take(c, v, tag, src, e)) < 0)
        return rc;
    return reflink_find(c, v, tag->alias, "", ret, e);
}

struct listing {
    native_fn *fn;
    void *arg;
    double began;
};

static int list_one(const struct tagged *f, void *arg)
{
    struct listing *l = arg;
    struct native n;
    describe(f, mono_s() - l->began <= EXTENTS_SECONDS, &n);
    return l->fn(&n, l->arg);
}

int reflink_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    struct dirs d = {0};
    struct listing l = {.fn = fn, .arg = arg, .began = mono_s()};
    int rc = dirs_of_class(&d, c, e);
    if (rc == 0)
        rc = tagged_each(&d, c->node, TAG_NATIVE, list_one, &l, e);
    dirs_free(&d);
    return rc;
}

int reflink_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    struct tagged f = TAGGED_INIT;
    struct stat st;
    *gone = false;
    int rc = find_in(c, n->tag.volume_name, n->tag.alias, n->handle, &f, e);
    if (rc == 0) {
        rc = tagged_unlink(&f, e);
    } else if (rc == -ENOENT && n->handle[0] && lstat(n->handle, &st) == 0) {
        err_set(e, ERR_PERMISSION, EPERM, "%s does not have the tag of native snapshot %s of node \"%s\": not removed",
                n->handle, n->tag.alias, c->node);
        err_hint(e, "check it, and remove it manually if it is not needed");
        rc = -EPERM;
    } else if (rc == -ENOENT) {
        *gone = true;
        rc = 0;
    }
    tagged_close(&f);
    return rc;
}
