/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reflink-target.c - image files to restore into
 *
 * A volume is restored into a staging file NAME.snapferry-ALIAS beside its final name and is renamed when it is
 * complete (CF-27). A file that replaces a volume remains that volume: it inherits its id, owner and mode.
 *
 * Crash points: staging-... of tag.c; staging-synced (contents durable), staging-renamed (complete: the tag that is
 * still on it has no meaning under the final name), staging-committed.
 */
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "io/native/filecopy.h"
#include "io/native/fsinfo.h"
#include "io/native/path.h"
#include "io/native/reflink.h"
#include "io/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

/* ---- names ---- */

static int final_path(const struct driver_class *c, const char *name, char ret[VOLUME_NAME_MAX], struct err *e)
{
    char dir[VOLUME_NAME_MAX];
    const char *last;
    int rc = 0;
    if (name[0] == '/') {
        if (strlen(name) >= VOLUME_NAME_MAX)
            return err_set(e, ERR_USAGE, ENAMETOOLONG, "the target's name is longer than %d bytes",
                           VOLUME_NAME_MAX - 1);
        memcpy(ret, name, strlen(name) + 1);
    } else {
        if (!(c->target && *c->target))
            return err_set(e, ERR_USAGE, EINVAL,
                           "storage class \"%s\" has no target: use the absolute path of the file \"%.512s\"", c->name,
                           name);
        if (!*name || strchr(name, '/'))
            return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is neither a file name nor an absolute path", name);
        rc = path_join(ret, c->target, name, e);
    }
    if (rc == 0)
        rc = path_split(ret, dir, &last, e);
    if (rc == 0)
        rc = path_plain(ret, e);
    if (rc == 0 && (!name_is_text(ret) || strstr(ret, "/" HIDDEN_DIR "/")))
        rc = err_set(e, ERR_USAGE, EINVAL, "%s: invalid name of a volume", ret);
    return rc;
}

/* Whether an existing file may be replaced. 0 for a missing one. */
static int check_existing(int dir, const char *name, const char *path, bool overwrite, struct err *e)
{
    struct stat st;
    char user[256];
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_set(e, ERR_TARGET, errno, "cannot stat restore target %s", path);
    if (!S_ISREG(st.st_mode))
        return err_plain(e, ERR_TARGET, EEXIST, "restore target %s exists and is not a regular file", path);
    if (!overwrite) {
        err_plain(e, ERR_TARGET, EEXIST, "restore target %s exists (%jd bytes)", path, (intmax_t)st.st_size);
        err_hint(e, "use another file name, or allow it to be overwritten");
        return -EEXIST;
    }
    CLEANUP_CLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && image_locked(fd, user, sizeof user)) {
        err_plain(e, ERR_TARGET, EBUSY, "restore target %s is in use (by %s)", path, user);
        err_hint(e, "stop its user first, which would otherwise continue with the replaced file");
        return -EBUSY;
    }
    return fd >= 0 ? claim_target(fd, path, false, e) : 0;
}

/* ---- making ---- */

struct sizing {
    uint64_t size;
    int like; /* an existing file whose clone flags are taken over, or -1 */
    const char *like_path;
    bool keep; /* and its contents */
};

/* There may be room later, or elsewhere. */
static int restore_room(int dir, const char *path, uint64_t need, struct err *e)
{
    int rc = space_check(dir, path, need, e);
    return rc < 0 ? err_hint(e, "free space there, or restore to another file system") : 0;
}

/* The mover writes what differs, or a range, into a clone: the file itself stays as it is until the restore is
 * complete. Where nothing can be cloned it is copied. */
static int fill_with(int fd, const char *path, const struct sizing *s, struct err *e)
{
    struct stat st;
    uint64_t need, copied;
    if (fstat(s->like, &st) < 0)
        return err_set(e, ERR_TARGET, errno, "cannot stat %s", s->like_path);
    if (st.st_size == 0 || ioctl(fd, FICLONE, s->like) == 0)
        return 0;
    if (errno != EXDEV && errno != EOPNOTSUPP && errno != ENOTTY && errno != EINVAL)
        return err_set(e, errno == ENOSPC ? ERR_NO_SPACE : ERR_TARGET, errno, "cannot clone %s to %s", s->like_path,
                       path);
    const struct filecopy copy = {.src = s->like, .src_path = s->like_path, .size = (uint64_t)st.st_size};
    int rc = filecopy_needs(&copy, &need, e);
    if (rc == 0)
        rc = restore_room(fd, path, need, e);
    return rc < 0 ? rc : filecopy_run(&copy, fd, path, &copied, e);
}

static int fill_size(int fd, const char *path, struct file_tag *t, void *arg, struct err *e)
{
    (void)t;
    const struct sizing *s = arg;
    if (s->like >= 0)
        match_clone_flags(s->like, fd);
    int rc = s->like >= 0 && s->keep ? fill_with(fd, path, s, e) : 0;
    if (rc < 0)
        return rc;
    if (s->size > INT64_MAX || ftruncate(fd, (off_t)s->size) < 0)
        return err_set(e, ERR_TARGET, s->size > INT64_MAX ? EFBIG : errno, "cannot make %s a file of %" PRIu64 " bytes",
                       path, s->size);
    return 0;
}

static void warn_of_space(int dir, const char *path, uint64_t size)
{
    struct statvfs v;
    if (fstatvfs(dir, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize < size)
        log_warning("%s will have %" PRIu64 " bytes, its file system has %" PRIu64
                    " free: enough only if the image is sparse",
                    path, size, (uint64_t)v.f_bavail * v.f_frsize);
}

/* An open staging file by its name; -ENOENT without a message if there is none, -ESTALE if another file has its name.
 */
static int open_staging(const struct driver_class *c, const char *path, const char *alias, struct tagged *f,
                        struct err *e)
{
    struct dirs none = {0};
    struct stat st;
    int rc = tagged_find(&none, c->node, TAG_STAGING, alias, path, f, e);
    if (rc == -ENOENT && lstat(path, &st) == 0) {
        err_plain(e, ERR_TARGET, ESTALE, "the file that was restored into is gone: another file has its name, %s",
                  path);
        err_hint(e, "it was not changed; restore again, to a file that nothing else replaces");
        return -ESTALE;
    }
    return rc;
}

static int make_staging(const struct driver_class *c, int dir, const char *dir_path, const char *staging,
                        const struct restore_target *t, const char *alias, enum target_use use, struct err *e)
{
    struct fs_info fs;
    const char *name = strrchr(t->final, '/') + 1;
    int rc = fs_info_fd(dir, dir_path, &fs, e);
    if (rc < 0)
        return rc;
    if (!fs.holds_files) {
        err_set(e, ERR_TARGET, ENOTSUP, "%s is on a file system of type %s, which cannot hold staging files", dir_path,
                fs.type);
        err_hint(e, "restore to XFS, btrfs, ext4 or tmpfs; `snapferry -r REPO restore` writes to any file");
        return -ENOTSUP;
    }
    CLEANUP_CLOSE int like = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool keep = use == TARGET_UPDATE || use == TARGET_PATCH;
    /* What appears under the name meanwhile is not replaced unless that was allowed, or it is what was updated. */
    struct file_tag tag = {
        .kind = TAG_STAGING, .size = t->size, .overwrite = use == TARGET_REPLACE || (keep && like >= 0)};
    snprintf(tag.node, sizeof tag.node, "%s", c->node);
    snprintf(tag.tag.alias, sizeof tag.tag.alias, "%s", alias);
    tag.tag.created_ns = now_ns();
    snprintf(tag.tag.volume_name, sizeof tag.tag.volume_name, "%s", t->final);
    snprintf(tag.final, sizeof tag.final, "%s", t->final);
    struct sizing s = {t->size, like, t->final, keep};
    warn_of_space(dir, t->handle, t->size);
    return tagged_create(dir, dir_path, staging, 0600, &tag, fill_size, &s, e);
}

/* A range is written into what is there: the rest of a longer file stays. */
static uint64_t patched_size(int dir, const char *name, uint64_t size)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size > size)
        return (uint64_t)st.st_size;
    return size;
}

int reflink_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias,
                   enum target_use use, struct restore_target *ret, struct err *e)
{
    char dir_path[VOLUME_NAME_MAX], staging[NAME_MAX + 1];
    const char *last;
    struct tagged f = TAGGED_INIT;
    memset(ret, 0, sizeof *ret);
    ret->size = size;
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = final_path(c, name, ret->final, e);
    if (rc < 0 || (rc = path_split(ret->final, dir_path, &last, e)) < 0)
        return rc;
    staging_name(last, alias, staging);
    if ((rc = path_join(ret->handle, dir_path, staging, e)) < 0)
        return rc;
    memcpy(ret->path, ret->handle, sizeof ret->path);
    CLEANUP_CLOSE int dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_TARGET, errno, "cannot open the directory %s",
                       dir_path);
    if ((rc = claim_place_of_file(ret->final, e)) < 0)
        return rc;
    if ((rc = check_existing(dir, last, ret->final, use != TARGET_NEW, e)) < 0)
        return rc;
    rc = open_staging(c, ret->handle, alias, &f, e);
    if (use == TARGET_PATCH)
        ret->size = rc == 0 && (uint64_t)f.st.st_size >= size ? (uint64_t)f.st.st_size : patched_size(dir, last, size);
    if (rc == -ENOENT)
        return make_staging(c, dir, dir_path, staging, ret, alias, use, e);
    if (rc == 0 && (uint64_t)f.st.st_size != ret->size)
        rc = err_plain(e, ERR_TARGET, EEXIST, "%s has %jd bytes, not %" PRIu64, ret->handle, (intmax_t)f.st.st_size,
                       ret->size);
    tagged_close(&f);
    return rc;
}

/* ---- into place ---- */

static int alias_of(const struct restore_target *t, char ret[ALIAS_LEN + 1], struct err *e)
{
    size_t n = strlen(t->handle);
    if (n > ALIAS_LEN && alias_valid(t->handle + n - ALIAS_LEN)) {
        memcpy(ret, t->handle + n - ALIAS_LEN, ALIAS_LEN + 1);
        return 0;
    }
    return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not a staging file of a restore", t->handle);
}

/* Takes over what makes the replaced file the volume that it is. */
static int inherit(int dir, const char *name, const struct tagged *f, const char *alias, struct err *e)
{
    char id[VOLUME_ID_MAX];
    struct stat st;
    CLEANUP_CLOSE int old = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int rc = 0;
    if (old >= 0 && fstat(old, &st) == 0 && S_ISREG(st.st_mode)) {
        if ((fchown(f->fd, st.st_uid, st.st_gid) < 0 && geteuid() == 0) || fchmod(f->fd, st.st_mode & 07777) < 0)
            return err_set(e, ERR_TARGET, errno, "cannot set owner and mode of the replaced file on %s", f->path);
        rc = st.st_nlink == 1 ? image_id(old, name, id, e) : file_object_id(f->fd, f->path, id, e);
    } else {
        rc = file_object_id(f->fd, f->path, id, e);
    }
    return rc < 0 ? rc : volume_mark_write(f->fd, f->path, id, alias, e);
}

/* Under its final name the tag has no meaning any more. */
static int untag(int fd, const char *path, struct err *e)
{
    int rc = tag_remove(fd, path, e);
    if (rc == 0 && fsync(fd) < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot sync %s", path);
    if (rc == 0)
        crash_point("staging-committed");
    return rc;
}

/* No staging file: it may have been renamed already. */
static int committed(const struct restore_target *t, const char *alias, struct err *e)
{
    char restored[ALIAS_LEN + 1];
    CLEANUP_CLOSE int fd = open(t->final, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || volume_mark_read(fd, NULL, restored) < 0 || strcmp(restored, alias) != 0)
        return -ENOENT;
    return untag(fd, t->final, e);
}

static int rename_staging(int dir, const struct tagged *f, const struct restore_target *t, const char *name,
                          struct err *e)
{
    int rc = check_existing(dir, name, t->final, f->tag.overwrite, e);
    if (rc < 0)
        return rc;
    if (renameat2(f->dir, f->name, dir, name, f->tag.overwrite ? 0 : RENAME_NOREPLACE) < 0)
        return err_set(e, ERR_TARGET, errno, "cannot rename %s to %s", f->path, t->final);
    if (fsync(dir) < 0)
        return err_set(e, ERR_TARGET, errno, "cannot sync the directory of %s", t->final);
    crash_point("staging-renamed");
    return 0;
}

int reflink_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char dir_path[VOLUME_NAME_MAX], alias[ALIAS_LEN + 1];
    const char *name;
    struct tagged f = TAGGED_INIT;
    int rc = alias_of(t, alias, e);
    if (rc < 0 || (rc = path_split(t->final, dir_path, &name, e)) < 0)
        return rc;
    rc = open_staging(c, t->handle, alias, &f, e);
    if (rc == -ENOENT) {
        rc = committed(t, alias, e);
        if (rc != -ENOENT)
            return rc;
        err_plain(e, ERR_TARGET, ENOENT, "the file that was restored into, %s, was renamed or removed", t->handle);
        err_hint(e, "restore again, to a file that nothing else renames or removes");
        return -ENOENT;
    }
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot open the directory %s", dir_path);
    else if (strcmp(f.tag.final, t->final) != 0)
        rc = err_set(e, ERR_USAGE, EINVAL, "%s was made for %s, not for %s", t->handle, f.tag.final, t->final);
    else if ((uint64_t)f.st.st_size != t->size)
        rc = err_set(e, ERR_TARGET, 0, "%s has %jd bytes, not %" PRIu64, t->handle, (intmax_t)f.st.st_size, t->size);
    if (rc == 0)
        rc = inherit(dir, name, &f, alias, e);
    if (rc == 0 && fsync(f.fd) < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot sync %s", t->handle);
    if (rc == 0) {
        crash_point("staging-synced");
        rc = rename_staging(dir, &f, t, name, e);
    }
    if (rc == 0)
        rc = untag(f.fd, t->final, e);
    tagged_close(&f);
    return rc;
}

int reflink_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    struct tagged f = TAGGED_INIT;
    int rc = alias_of(t, alias, e);
    if (rc == 0)
        rc = open_staging(c, t->handle, alias, &f, e);
    if (rc == 0)
        rc = tagged_unlink(&f, e);
    tagged_close(&f);
    if (rc != -ENOENT && rc != -ESTALE)
        return rc;
    if (rc == -ESTALE)
        log_warning("%s is another file than the one that was restored into: not removed", t->handle);
    if (e)
        *e = (struct err)ERR_INIT;
    return 0;
}

/* The staging file has been renamed, or it has not: that is one step, and what it leaves has the restore's mark. */
bool reflink_target_kept(const struct driver_class *c, const struct restore_target *t)
{
    char alias[ALIAS_LEN + 1], restored[ALIAS_LEN + 1];
    struct tagged f = TAGGED_INIT;
    struct stat st;
    if (alias_of(t, alias, NULL) < 0)
        return false;
    int rc = open_staging(c, t->handle, alias, &f, NULL);
    tagged_close(&f);
    if (rc == 0)
        return true;
    if (lstat(t->final, &st) < 0)
        return errno == ENOENT;
    if (!S_ISREG(st.st_mode))
        return true;
    CLEANUP_CLOSE int fd = open(t->final, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 && (volume_mark_read(fd, NULL, restored) < 0 || strcmp(restored, alias) != 0);
}

/* Its size stays: by that it is known to be the restore's, whatever interrupts what follows. */
static int empty(int fd, uint64_t size)
{
    if (size == 0 || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0)
        return 0;
    return ftruncate(fd, 0) < 0 ? -1 : ftruncate(fd, (off_t)size);
}

int reflink_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                               const struct fill *how, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    struct tagged f = TAGGED_INIT;
    struct native now;
    struct volume v = {.size = n->size};
    uint64_t copied;
    snprintf(v.name, sizeof v.name, "%s", n->tag.volume_name);
    int rc = alias_of(t, alias, e);
    if (rc == 0)
        rc = reflink_find(c, &v, n->tag.alias, n->handle, &now, e);
    if (rc < 0)
        return rc;
    rc = open_staging(c, t->handle, alias, &f, e);
    if (rc < 0)
        return rc == -ENOENT ? err_plain(e, ERR_NOT_FOUND, ENOENT, "no staging file %s", t->handle) : rc;
    CLEANUP_CLOSE int src = open(now.handle, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP_CLOSE int dst = openat(f.dir, f.name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct filecopy copy = {.src = src, .src_path = now.handle, .size = now.size, .rate = how->rate, .watched = how};
    if (now.size != t->size)
        rc = err_set(e, ERR_USAGE, EINVAL, "native snapshot %s has %" PRIu64 " bytes, the target %" PRIu64, now.handle,
                     now.size, t->size);
    else if (src < 0 || dst < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot open %s", src < 0 ? now.handle : t->handle);
    else if (empty(dst, t->size) < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot empty %s", t->handle);
    else
        match_clone_flags(src, dst);
    if (rc == 0 && ioctl(dst, FICLONE, src) < 0) {
        /* On another file system: copied, as by a mover. */
        uint64_t need;
        if (errno != EXDEV && errno != EOPNOTSUPP && errno != ENOTTY && errno != EINVAL)
            rc = err_set(e, errno == ENOSPC ? ERR_NO_SPACE : ERR_TARGET, errno, "cannot clone %s to %s", now.handle,
                         t->handle);
        else if ((rc = filecopy_needs(&copy, &need, e)) == 0 && (rc = restore_room(f.dir, t->handle, need, e)) == 0)
            rc = filecopy_run(&copy, dst, t->handle, &copied, e);
    }
    if (rc == 0 && fsync(dst) < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot sync %s", t->handle);
    tagged_close(&f);
    return rc;
}
