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
 * Several of one subvolume of btrfs are cloned from one snapshot of it (reflink-subvolume.c).
 *
 * Crash points: see tag.c (native-...) and reflink-subvolume.c.
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

/* The directory of an image and HIDDEN_DIR in it. */
struct places {
    int dir, hidden;
    char hidden_path[VOLUME_NAME_MAX];
    const char *base; /* of the image's name */
};
#define PLACES_INIT                                                                                                    \
    {                                                                                                                  \
        .dir = -1, .hidden = -1                                                                                        \
    }

static void places_close(struct places *p)
{
    closep(&p->dir);
    closep(&p->hidden);
}

/* -ENOENT without words: there is no HIDDEN_DIR, and !create. */
static int places_open(struct places *p, const char *image, bool create, struct err *e)
{
    char dir_path[VOLUME_NAME_MAX];
    int rc = path_split(image, dir_path, &p->base, e);
    if (rc == 0)
        rc = path_join(p->hidden_path, dir_path, HIDDEN_DIR, e);
    if (rc < 0)
        return rc;
    p->dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot open the directory %s", dir_path);
    p->hidden = hidden_open(p->dir, dir_path, create, e);
    return p->hidden < 0 ? p->hidden : 0;
}

/* What a call that takes several has left, as far as it has this alias. */
static int group_left_remove(const char *image, const char *alias, struct err *e)
{
    CLEANUP(places_close) struct places p = PLACES_INIT;
    struct stat st;
    if (!alias_valid(alias) || places_open(&p, image, false, NULL) < 0 || fstat(p.hidden, &st) < 0)
        return 0;
    return subvolume_snapshot_remove(p.hidden, p.hidden_path, alias, e);
}

/* Clones `src` as the native snapshot of the volume. */
static int take(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                const struct places *p, int src, struct err *e)
{
    char name[ALIAS_LEN + 16];
    struct file_tag t = {.kind = TAG_NATIVE, .tag = *tag};
    snprintf(t.node, sizeof t.node, "%s", c->node);
    snprintf(t.tag.volume_id, sizeof t.tag.volume_id, "%s", v->id);
    snprintf(t.tag.volume_name, sizeof t.tag.volume_name, "%s", v->name);
    snprintf(name, sizeof name, "%s.native", tag->alias);
    return tagged_create(p->hidden, p->hidden_path, name, 0400, &t, fill_clone, &src, e);
}

static int sync_source(int src, const struct volume *v, struct err *e)
{
    return fdatasync(src) < 0 ? err_set(e, ERR_SOURCE, errno, "cannot sync %s before its snapshot", v->name) : 0;
}

/* The image, as it was looked up. */
static int source_open(const struct volume *v, int *fd, struct stat *st, struct err *e)
{
    char id[VOLUME_ID_MAX];
    CLEANUP_CLOSE int src = image_open(v->name, st, e);
    if (src < 0)
        return src;
    int rc = image_id(src, v->name, id, e);
    if (rc < 0)
        return rc;
    if (strcmp(id, v->id) != 0) {
        err_set(e, ERR_SOURCE, ESTALE, "%s is no longer the volume that was looked up (%s, now %s)", v->name, v->id,
                id);
        err_hint(e, "it was replaced; the next backup uses the new file");
        return -ESTALE;
    }
    *fd = take_fd(&src);
    return 0;
}

int reflink_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                     struct native *ret, struct err *e)
{
    struct tagged f = TAGGED_INIT;
    struct stat st;
    CLEANUP(places_close) struct places p = PLACES_INIT;
    CLEANUP_CLOSE int src = -1;
    int rc = group_left_remove(v->name, tag->alias, e);
    if (rc == 0)
        rc = find_in(c, v->name, tag->alias, NULL, &f, e);
    if (rc == 0) {
        rc = healthy(&f, e);
        if (rc == 0)
            describe(&f, true, ret);
        tagged_close(&f);
        return rc;
    }
    if (rc != -ENOENT)
        return rc;
    if ((rc = source_open(v, &src, &st, e)) < 0 || (rc = places_open(&p, v->name, true, e)) < 0 ||
        (rc = sync_source(src, v, e)) < 0 || (rc = take(c, v, tag, &p, src, e)) < 0)
        return rc;
    return reflink_find(c, v, tag->alias, "", ret, e);
}

/* ---- several at one instant ---- */

int reflink_group_domain(const struct driver_class *c, const struct volume *v, char ret[VOLUME_ID_MAX], struct err *e)
{
    CLEANUP(places_close) struct places p = PLACES_INIT;
    CLEANUP_CLOSE int top = -1;
    char below[VOLUME_NAME_MAX];
    struct fs_info fs;
    (void)c;
    ret[0] = '\0';
    int rc = places_open(&p, v->name, false, e);
    if (rc == 0 || rc == -ENOENT) /* without HIDDEN_DIR */
        rc = p.dir < 0 ? rc : fs_info_fd(p.dir, v->name, &fs, e);
    if (rc == 0 && fs.subvol && subvolume_top(p.dir, &top, below) == 0)
        snprintf(ret, VOLUME_ID_MAX, "btrfs:%s:%" PRIx64, fs.pool, fs.subvol);
    return rc;
}

/* An image among those of one instant. */
struct image {
    struct places p;
    int fd;
    struct stat st;
    char below[VOLUME_NAME_MAX]; /* of its directory */
};

struct images {
    struct image *v;
    size_t n;
    int top; /* of the subvolume of all */
};

static void images_close(struct images *x)
{
    for (size_t i = 0; i < x->n; i++) {
        places_close(&x->v[i].p);
        closep(&x->v[i].fd);
    }
    free(x->v);
    closep(&x->top);
}

/* What an interrupted call has left of another instant. */
static int left_remove(const struct group_member *m, struct err *e)
{
    struct tagged f = TAGGED_INIT;
    int rc = group_left_remove(m->v->name, m->tag->alias, e);
    if (rc == 0)
        rc = find_in(m->c, m->v->name, m->tag->alias, NULL, &f, e);
    if (rc == 0)
        rc = tagged_unlink(&f, e);
    tagged_close(&f);
    return rc == -ENOENT ? 0 : rc;
}

static int image_prepare(struct images *x, size_t i, const struct group_member *m, struct err *e)
{
    struct image *im = &x->v[i];
    CLEANUP_CLOSE int top = -1;
    int rc = left_remove(m, e);
    if (rc == 0)
        rc = source_open(m->v, &im->fd, &im->st, e);
    if (rc == 0)
        rc = places_open(&im->p, m->v->name, true, e);
    if (rc == 0 && (rc = subvolume_top(im->p.dir, &top, im->below)) < 0)
        return err_set(e, ERR_SOURCE, -rc, "cannot find the top of the subvolume of %s", m->v->name);
    if (rc == 0)
        rc = sync_source(im->fd, m->v, e);
    if (rc == 0 && x->top < 0)
        x->top = take_fd(&top);
    return rc;
}

/* The image as the snapshot of the subvolume has it: no other file that was given its name meanwhile. */
static int image_within(int subvolume, const struct image *im, const struct group_member *m, int *fd, struct err *e)
{
    struct stat st;
    long was = 0, is = 0; /* the kernel writes an int */
    CLEANUP_CLOSE int dir = openat(subvolume, im->below[0] ? im->below : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_CLOSE int in = dir < 0 ? -1 : openat(dir, im->p.base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0 || ioctl(im->fd, FS_IOC_GETVERSION, &was) < 0 ||
        ioctl(in, FS_IOC_GETVERSION, &is) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot open %s in the snapshot of its subvolume", m->v->name);
    if (!S_ISREG(st.st_mode) || st.st_ino != im->st.st_ino || (int)was != (int)is)
        return err_set(e, ERR_SOURCE, ESTALE, "%s was replaced while its snapshot was taken", m->v->name);
    *fd = take_fd(&in);
    return 0;
}

static int member_take(int subvolume, const struct image *im, struct group_member *m)
{
    CLEANUP_CLOSE int src = -1;
    int rc = image_within(subvolume, im, m, &src, &m->err);
    if (rc == 0)
        rc = take(m->c, m->v, m->tag, &im->p, src, &m->err);
    return rc < 0 ? rc : reflink_find(m->c, m->v, m->tag->alias, "", m->ret, &m->err);
}

int reflink_group(struct group_member *m, size_t n, struct err *e)
{
    CLEANUP(images_close) struct images x = {.v = calloc(n, sizeof *x.v), .top = -1};
    CLEANUP_CLOSE int subvolume = -1;
    struct err why = ERR_INIT;
    if (!x.v)
        return err_nomem(e);
    for (; x.n < n; x.n++)
        x.v[x.n] = (struct image){.p = PLACES_INIT, .fd = -1};
    for (size_t i = 0; i < n; i++)
        if (!m[i].err.cls)
            image_prepare(&x, i, &m[i], &m[i].err);
    size_t first = 0;
    while (first < n && m[first].err.cls)
        first++;
    if (first == n)
        return 0;
    const struct places *p = &x.v[first].p;
    int rc = subvolume_snapshot(x.top, p->hidden, p->hidden_path, m[first].tag->alias, &subvolume, e);
    for (size_t i = 0; i < n; i++) {
        if (rc < 0)
            m[i].err = (struct err)ERR_INIT;
        else if (!m[i].err.cls)
            member_take(subvolume, &x.v[i], &m[i]);
    }
    closep(&subvolume);
    subvolume = -1;
    if (subvolume_snapshot_remove(p->hidden, p->hidden_path, m[first].tag->alias, &why) < 0)
        log_warning("%s; it is removed with native snapshot %s", why.msg, m[first].tag->alias);
    return rc;
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
    struct file_systems copies;
    int rc = copies_find(c, &copies, e);
    /* Of each native snapshot there are two with the same tag. */
    if (rc == 0)
        rc = copies_refuse_all(&copies, e);
    if (rc == 0)
        rc = dirs_of_class(&d, c, e);
    if (rc == 0)
        rc = tagged_each(&d, c->node, TAG_NATIVE, list_one, &l, e);
    copies_free(&copies);
    dirs_free(&d);
    return rc;
}

/* How full the file system is will be asked for next (RS-30). */
static int remove_and_settle(struct tagged *f, struct err *e)
{
    CLEANUP_CLOSE int dir = fcntl(f->dir, F_DUPFD_CLOEXEC, 0);
    const int rc = tagged_unlink(f, e);
    tagged_close(f); /* the last one that has it open */
    if (rc == 0 && dir >= 0)
        fs_free_settle(dir);
    return rc;
}

int reflink_untagged(const struct driver_class *c, const struct native *n, struct err *e)
{
    struct stat st;
    (void)c;
    return n->handle[0] && lstat(n->handle, &st) == 0 ? native_foreign(n->handle, n->tag.alias, "remove or move it", e)
                                                      : 0;
}

int reflink_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    struct tagged f = TAGGED_INIT;
    *gone = false;
    int rc = group_left_remove(n->tag.volume_name, n->tag.alias, e);
    if (rc == 0)
        rc = find_in(c, n->tag.volume_name, n->tag.alias, n->handle, &f, e);
    if (rc == 0) {
        rc = remove_and_settle(&f, e);
    } else if (rc == -ENOENT) {
        rc = reflink_untagged(c, n, e);
        *gone = rc == 0;
    }
    tagged_close(&f);
    return rc;
}
