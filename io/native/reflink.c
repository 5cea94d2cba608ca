/* SPDX-License-Identifier: GPL-2.0-or-later */
/* reflink.c - image files on XFS and btrfs: abilities of a class, its volumes, and the driver */
#include "io/native/reflink.h"

#include "base/cleanup.h"
#include "io/native/fsinfo.h"
#include "io/native/intermediate.h"
#include "io/native/path.h"
#include "io/native/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- abilities ---- */

static int cannot_share(const struct fs_info *fs, enum err_class cls, const char *files, const char *where,
                        struct err *e)
{
    err_plain(e, cls, ENOTSUP, "%s%s cannot share blocks (its file system is %s%s)", files, where, fs->type,
              strcmp(fs->type, "xfs") == 0 ? ", created without reflink=1" : "");
    err_hint(e, "driver reflink needs XFS (with reflink=1) or btrfs");
    return -ENOTSUP;
}

struct checking {
    const struct driver_class *c;
    unsigned dirs; /* that can be used */
    struct err unfit;
    struct err *e;
};

static int check_dir(const char *dir, const char *last, void *arg)
{
    (void)last;
    struct checking *k = arg;
    struct fs_info fs;
    int rc = fs_info_path(dir, &fs, k->e);
    if (rc < 0)
        return err_wrap(k->e, "storage class \"%s\"", k->c->name);
    if (fs.reflink)
        k->dirs++;
    else if (!k->unfit.cls)
        cannot_share(&fs, ERR_USAGE, "files in ", dir, &k->unfit);
    return 0;
}

static int check_target(const struct driver_class *c, unsigned *ret, struct err *e)
{
    struct fs_info fs;
    struct stat st;
    if (c->target[0] != '/')
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": target %s is not an absolute path", c->name,
                       c->target);
    if (stat(c->target, &st) < 0)
        return err_set(e, ERR_USAGE, errno, "storage class \"%s\": no directory %s (target): %s", c->name, c->target,
                       strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_USAGE, ENOTDIR, "storage class \"%s\": target %s is not a directory", c->name, c->target);
    int rc = fs_info_path(c->target, &fs, e);
    if (rc < 0)
        return err_wrap(e, "storage class \"%s\"", c->name);
    if (!fs.holds_files)
        return err_set(e, ERR_USAGE, ENOTSUP,
                       "storage class \"%s\": target %s is on a file system of type %s, which is not supported: use "
                       "XFS, btrfs, ext4 or tmpfs",
                       c->name, c->target, fs.type);
    *ret |= DRIVER_COPY_TARGET | DRIVER_TARGET | DRIVER_POOL;
    return 0;
}

static int reflink_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    struct checking k = {.c = c, .e = e};
    struct paths p;
    int rc = 0;
    *ret = 0;
    if (c->target && *c->target)
        rc = check_target(c, ret, e);
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++) {
        rc = pattern_dirs(c->match[i], check_dir, &k, e);
        *ret |= DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_CLONE | DRIVER_CHANGED | DRIVER_TARGET | DRIVER_POOL;
    }
    /* One that is on a file system of its own, which is not mounted, must not stop the others, nor refuse a
     * configuration: a place without images is passed over when volumes are looked for. */
    if (rc == 0 && k.unfit.cls && !k.dirs && (rc = pattern_paths(c->match, &p, e)) == 0) {
        if (p.n > 0) {
            *e = k.unfit;
            rc = err_wrap(e, "storage class \"%s\"", c->name);
        }
        paths_free(&p);
    }
    if (rc < 0)
        *ret = 0;
    return rc;
}

/* ---- volumes ---- */

/* One that is not there, on a file system where no image can be: it may be that below the one that is not mounted. */
static int not_there(const char *name, int rc, struct err *e)
{
    char dir[VOLUME_NAME_MAX];
    const char *last;
    struct fs_info fs;
    if (rc == -ENOENT && path_split(name, dir, &last, NULL) == 0 && fs_info_path(dir, &fs, NULL) == 0 && !fs.reflink)
        err_hint(e, "is its file system mounted? Files in %s cannot share blocks", dir);
    return rc;
}

/* -ENOTUNIQ: a copy of it is there; *ret is complete. */
static int resolve_among(const struct file_systems *copies, const char *name, struct volume *ret, struct err *e)
{
    struct stat st;
    struct fs_info fs;
    char user[256];
    memset(ret, 0, sizeof *ret);
    CLEANUP_CLOSE int fd = image_open(name, &st, e);
    if (fd < 0)
        return not_there(name, fd, e);
    int rc = image_id(fd, name, ret->id, e);
    if (rc == 0)
        rc = fs_info_fd(fd, name, &fs, e);
    if (rc < 0)
        return rc;
    snprintf(ret->name, sizeof ret->name, "%s", name);
    snprintf(ret->pool, sizeof ret->pool, "%s", fs.pool);
    ret->size = (uint64_t)st.st_size;
    ret->allocated = (uint64_t)st.st_blocks * 512 < ret->size ? (uint64_t)st.st_blocks * 512 : ret->size;
    ret->sector = 512;
    ret->in_use = image_user(fd, &st, user, sizeof user);
    if (!fs.reflink)
        return cannot_share(&fs, ERR_SOURCE, "", name, e);
    return copies_refuse(copies, fd, name, e);
}

static int reflink_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    struct file_systems copies;
    int rc = copies_find(c, &copies, e);
    if (rc == 0)
        rc = resolve_among(&copies, name, ret, e);
    copies_free(&copies);
    return rc;
}

/* Files with several names: each is one volume. */
struct seen {
    struct {
        dev_t dev;
        ino_t ino;
    } * id;
    size_t n;
};

static int seen_before(struct seen *s, const struct stat *st, struct err *e)
{
    if (st->st_nlink < 2)
        return 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->id[i].dev == st->st_dev && s->id[i].ino == st->st_ino)
            return 1;
    if (s->n % 16 == 0) {
        void *p = reallocarray(s->id, s->n + 16, sizeof *s->id);
        if (!p)
            return err_nomem(e);
        s->id = p;
    }
    s->id[s->n].dev = st->st_dev;
    s->id[s->n++].ino = st->st_ino;
    return 0;
}

struct looking {
    const struct driver_class *c;
    struct file_systems copies;
    struct seen seen;
    volume_fn *fn;
    void *arg;
};

static int one_volume(struct looking *l, const char *path, struct err *e)
{
    struct err why = ERR_INIT;
    struct volume v;
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    int rc = seen_before(&l->seen, &st, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = resolve_among(&l->copies, path, &v, &why);
    if (rc == -ENOTUNIQ)
        v.doubt = &why;
    else if (rc < 0 && rc != -ENOTSUP && (why.cls != ERR_USAGE || !name_is_text(path))) /* ours: no news */
        log_warning("class \"%s\": ignored: %s", l->c->name, why.msg);
    return rc == 0 || v.doubt ? l->fn(&v, l->arg) : 0;
}

/* A directory in which images were looked for: on which file system, or that this one, as it is now, has no volumes. It
 * may be that below the one that is not mounted. */
static int tell_place(const char *dir, const char *last, void *arg)
{
    (void)last;
    struct looking *l = arg;
    struct fs_info fs;
    struct err why = ERR_INIT;
    CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
    if (!v)
        return -ENOMEM;
    if (fs_info_path(dir, &fs, NULL) < 0)
        return 0;
    snprintf(v->name, sizeof v->name, "%s", dir);
    if (fs.reflink) {
        snprintf(v->pool, sizeof v->pool, "%s", fs.pool);
        return l->fn(v, l->arg);
    }
    cannot_share(&fs, ERR_SOURCE, "files in ", dir, &why);
    err_hint(&why, "they are not backed up: mount the file system, or remove it from the match of class \"%s\"",
             l->c->name);
    v->doubt = &why;
    return l->fn(v, l->arg);
}

static int reflink_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct paths p;
    struct looking l = {.c = c, .fn = fn, .arg = arg};
    int rc = pattern_paths(c->match, &p, e);
    if (rc == 0 && (rc = copies_find(c, &l.copies, e)) < 0)
        paths_free(&p);
    for (size_t i = 0; rc == 0 && i < p.n; i++)
        rc = one_volume(&l, p.path[i], e);
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++)
        rc = pattern_dirs(c->match[i], tell_place, &l, e);
    free(l.seen.id);
    copies_free(&l.copies);
    paths_free(&p);
    return rc;
}

static bool reflink_same_pool(const struct driver_class *c, const struct volume *v, const struct driver_class *into)
{
    struct fs_info fs, source;
    char dir[VOLUME_NAME_MAX];
    const char *name, *pool = v->pool;
    (void)c;
    /* A volume known only by its native snapshot. */
    if (!*pool && path_split(v->name, dir, &name, NULL) == 0 && fs_info_path(dir, &source, NULL) == 0)
        pool = source.pool;
    return into->target && *into->target && fs_info_path(into->target, &fs, NULL) == 0 && fs.reflink &&
           strcmp(fs.pool, pool) == 0;
}

const struct driver driver_reflink = {
    .name = REFLINK_NAME,
    .text = "image files on XFS or btrfs; a native snapshot is a copy that shares the image's blocks",
    .traits = DRIVER_PEERS,
    .abilities = reflink_abilities,
    .volumes = reflink_volumes,
    .resolve = reflink_resolve,
    .snapshot = reflink_snapshot,
    .group_domain = reflink_group_domain,
    .group = reflink_group,
    .find = reflink_find,
    .list = reflink_list,
    .remove = reflink_remove,
    .untagged = reflink_untagged,
    .same_pool = reflink_same_pool,
    .expose = reflink_expose,
    .copy = reflink_copy,
    .unexpose = exposure_undo,
    .exposures = intermediate_each,
    .open = reflink_open,
    .changed = reflink_changed,
    .pool = reflink_pool,
    .target = reflink_target,
    .target_commit = reflink_target_commit,
    .target_abort = reflink_target_abort,
    .target_kept = reflink_target_kept,
    .target_from_native = reflink_target_from_native,
};
