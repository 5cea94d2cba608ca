/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reflink.c - image files on XFS and btrfs: volumes, and native snapshots that share the image's blocks
 *
 * A native snapshot is a clone of the whole file (FICLONE) in HIDDEN_DIR beside it. XFS and btrfs write the source's
 * dirty pages out and hold off its writers (and faults through mappings) while they clone, so it is one point in time:
 * every write that had returned before is in it, none that began after; one that was under way is in it whole, in part
 * or not at all, as after a crash. The source is synced first: FICLONE would do it anyway, but with the writers
 * waiting.
 *
 * Crash points: see tag.c (native-...).
 */
#include "io/native/reflink.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/native/filecopy.h"
#include "io/native/fsinfo.h"
#include "io/native/json-fields.h"
#include "io/native/pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* Bounds of the look at extents that tells what a snapshot holds alone: it must be cheap, for it is no decision. */
#define EXTENTS_AT_ONCE 256
#define EXTENTS_MAX 65536
#define EXTENTS_SECONDS 2

/* ---- abilities ---- */

struct checking {
    const struct driver_class *c;
    unsigned dirs;
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
    k->dirs++;
    if (fs.reflink)
        return 0;
    err_set(k->e, ERR_USAGE, ENOTSUP, "storage class \"%s\": files in %s cannot share blocks (its file system is %s%s)",
            k->c->name, dir, fs.type, strcmp(fs.type, "xfs") == 0 ? ", made without reflink=1" : "");
    err_hint(k->e, "driver reflink needs XFS (with reflink=1) or btrfs");
    return -ENOTSUP;
}

static int check_target(const struct driver_class *c, unsigned *ret, struct err *e)
{
    struct fs_info fs;
    struct stat st;
    if (c->target[0] != '/')
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": target %s is no absolute path", c->name, c->target);
    if (stat(c->target, &st) < 0)
        return err_set(e, ERR_USAGE, errno, "storage class \"%s\": there is no directory %s (target): %s", c->name,
                       c->target, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_USAGE, ENOTDIR, "storage class \"%s\": target %s is no directory", c->name, c->target);
    int rc = fs_info_path(c->target, &fs, e);
    if (rc < 0)
        return err_wrap(e, "storage class \"%s\"", c->name);
    if (!fs.holds_files)
        return err_set(
            e, ERR_USAGE, ENOTSUP,
            "storage class \"%s\": target %s is on a file system of type %s, which cannot hold our files: use "
            "XFS, btrfs, ext4 or tmpfs",
            c->name, c->target, fs.type);
    *ret |= DRIVER_COPY_TARGET | DRIVER_TARGET | DRIVER_POOL;
    return 0;
}

static int reflink_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    struct checking k = {c, 0, e};
    int rc = 0;
    *ret = 0;
    if (c->target && *c->target)
        rc = check_target(c, ret, e);
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++) {
        rc = pattern_dirs(c->match[i], check_dir, &k, e);
        *ret |= DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_CLONE | DRIVER_TARGET | DRIVER_POOL;
    }
    if (rc < 0)
        *ret = 0;
    return rc;
}

/* ---- volumes ---- */

bool name_is_text(const char *name)
{
    json_t *j = json_string(name);
    json_decref(j);
    return j != NULL;
}

static int image_error(const char *path, int sys, struct err *e)
{
    bool absent = sys == ENOENT || sys == ENOTDIR;
    return err_set(e,
                   absent                          ? ERR_NOT_FOUND
                   : sys == EACCES || sys == EPERM ? ERR_PERMISSION
                                                   : ERR_SOURCE,
                   sys, "cannot open image %s", path);
}

int image_open(const char *path, struct stat *st, struct err *e)
{
    char dir[VOLUME_NAME_MAX];
    const char *name;
    struct file_tag tag;
    int rc = path_split(path, dir, &name, e);
    if (rc == 0)
        rc = path_plain(path, e);
    if (rc < 0)
        return rc;
    if (!name_is_text(path))
        return err_set(e, ERR_USAGE, EILSEQ, "a name in %s is no UTF-8 and cannot be recorded: rename the file", dir);
    if (strstr(path, "/" HIDDEN_DIR "/"))
        return err_set(e, ERR_USAGE, EINVAL, "%s is a file of our own and no volume", path);
    /* Looked at before it is opened: opening a device or a pipe has effects. */
    if (lstat(path, st) < 0)
        return image_error(path, errno, e);
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_USAGE, EINVAL, "%s is no regular file%s", path,
                       S_ISLNK(st->st_mode) ? " but a symbolic link: name the file itself" : "");
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return image_error(path, errno, e);
    if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode))
        return err_set(e, ERR_SOURCE, ESTALE, "%s changed while it was opened", path);
    if (tag_read(fd, &tag) == 0 && (tag.kind != TAG_STAGING || staging_named(name, tag.tag.alias)))
        return err_set(e, ERR_USAGE, EINVAL, "%s is a file of our own and no volume (it carries our tag)", path);
    return take_fd(&fd);
}

int image_id(int fd, const char *path, char ret[VOLUME_ID_MAX], struct err *e)
{
    struct stat st;
    /* Several names for one file: the inherited id could stand for more than one of them. */
    if (fstat(fd, &st) == 0 && st.st_nlink == 1 && volume_mark_read(fd, ret, NULL) == 0)
        return 0;
    return file_object_id(fd, path, ret, e);
}

/* A loop device upon this file. */
static bool loop_of(const struct stat *st, char *out, size_t size)
{
    CLEANUP_CLOSEDIR DIR *d = opendir("/sys/block");
    const struct dirent *de;
    while (d && (de = readdir(d))) {
        char attr[512], line[VOLUME_NAME_MAX];
        struct stat b;
        if (strncmp(de->d_name, "loop", 4) != 0)
            continue;
        snprintf(attr, sizeof attr, "/sys/block/%s/loop/backing_file", de->d_name);
        CLEANUP_FCLOSE FILE *f = fopen(attr, "re");
        if (!f || !fgets(line, sizeof line, f))
            continue;
        line[strcspn(line, "\n")] = '\0';
        if (stat(line, &b) == 0 && b.st_dev == st->st_dev && b.st_ino == st->st_ino) {
            snprintf(out, size, "the loop device /dev/%s", de->d_name);
            return true;
        }
    }
    return false;
}

bool image_user(int fd, const struct stat *st, char *out, size_t size)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* only asked for, never taken */
    if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
        if (lock.l_pid > 0)
            snprintf(out, size, "process %d, which holds a lock on it", (int)lock.l_pid);
        else
            snprintf(out, size, "a process that holds a lock on it");
        return true;
    }
    return loop_of(st, out, size);
}

static int reflink_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    (void)c;
    struct stat st;
    struct fs_info fs;
    char user[256];
    memset(ret, 0, sizeof *ret);
    CLEANUP_CLOSE int fd = image_open(name, &st, e);
    if (fd < 0)
        return fd;
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
    return 0;
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

static int one_volume(const struct driver_class *c, const char *path, struct seen *seen, volume_fn *fn, void *arg,
                      struct err *e)
{
    struct err why = ERR_INIT;
    struct volume v;
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    int rc = seen_before(seen, &st, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = reflink_resolve(c, path, &v, &why);
    if (rc == 0)
        return fn(&v, arg);
    if (why.cls != ERR_USAGE || !name_is_text(path)) /* ours: no news */
        log_warning("class \"%s\": passed over: %s", c->name, why.msg);
    return 0;
}

static int reflink_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct paths p;
    struct seen seen = {NULL, 0};
    int rc = pattern_paths(c->match, &p, e);
    for (size_t i = 0; rc == 0 && i < p.n; i++)
        rc = one_volume(c, p.path[i], &seen, fn, arg, e);
    free(seen.id);
    paths_free(&p);
    return rc;
}

/* ---- native snapshots ---- */

/* Bytes in extents that nothing else shares; UINT64_MAX if that is not known cheaply. */
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
    memset(ret, 0, sizeof *ret);
    ret->tag = f->tag.tag;
    memcpy(ret->handle, f->path, sizeof ret->handle);
    ret->size = (uint64_t)f->st.st_size;
    ret->used = with_used ? exclusive_bytes(f->fd, ret->size) : UINT64_MAX;
    ret->crash_consistent = true;
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
    int rc = alias_valid(alias) ? 0 : err_set(e, ERR_USAGE, EINVAL, "\"%.64s\" is no alias", alias);
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
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is not on the storage any more", alias,
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

static int reflink_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
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
        err_set(e, ERR_SOURCE, ESTALE, "%s is another file than the volume that was looked up (%s, now %s)", v->name,
                v->id, id);
        err_hint(e, "it was replaced; the next backup takes it as it is now");
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

static int reflink_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    struct dirs d = {0};
    struct listing l = {.fn = fn, .arg = arg, .began = mono_s()};
    int rc = dirs_of_class(&d, c, e);
    if (rc == 0)
        rc = tagged_each(&d, c->node, TAG_NATIVE, list_one, &l, e);
    dirs_free(&d);
    return rc;
}

static int reflink_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    struct tagged f = TAGGED_INIT;
    struct stat st;
    *gone = false;
    int rc = find_in(c, n->tag.volume_name, n->tag.alias, n->handle, &f, e);
    if (rc == 0) {
        rc = tagged_unlink(&f, e);
    } else if (rc == -ENOENT && n->handle[0] && lstat(n->handle, &st) == 0) {
        err_set(e, ERR_PERMISSION, EPERM, "%s does not carry the tag of native snapshot %s of node \"%s\": not removed",
                n->handle, n->tag.alias, c->node);
        err_hint(e, "look what it is; remove it yourself if it is not needed");
        rc = -EPERM;
    } else if (rc == -ENOENT) {
        *gone = true;
        rc = 0;
    }
    tagged_close(&f);
    return rc;
}

const struct driver driver_reflink = {
    .name = "reflink",
    .text = "image files on XFS or btrfs; a native snapshot is a copy that shares the image's blocks",
    .abilities = reflink_abilities,
    .volumes = reflink_volumes,
    .resolve = reflink_resolve,
    .snapshot = reflink_snapshot,
    .find = reflink_find,
    .list = reflink_list,
    .remove = reflink_remove,
    .expose = reflink_expose,
    .unexpose = exposure_undo,
    .exposures = intermediate_each,
    .open = reflink_open,
    .pool = reflink_pool,
    .target = reflink_target,
    .target_commit = reflink_target_commit,
    .target_abort = reflink_target_abort,
    .target_from_native = reflink_target_from_native,
};
