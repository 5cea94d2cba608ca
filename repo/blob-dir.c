/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob-dir.c - blobs as files below a directory (Kopia repository format, section 2.2)
 *
 * A put writes NAME.f.tmp.<16 hex digits>, syncs it, renames it and syncs the directory. Parent directories may have
 * been created by other clients without a sync, so the first put into a directory also syncs those above it; a table of
 * fixed size records the ones that are synced.
 *
 * The directory may belong to another user: no link in it is followed (beneath.h), only the owners of what this process
 * has created are set, and only regular files are read.
 */
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/beneath.h"
#include "repo/blob-leftovers.h"
#include "repo/blob-ops.h"
#include "repo/blob-reserve.h"
#include "repo/blob-walk.h"
#include "repo/shards.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TMP_INFIX ".tmp."
#define TMP_PATH_MAX (SHARDS_PATH_MAX + 32)
#define SHARDS_FILE_MAX (1 << 20)
/* Writeback is started after so many bytes, so that the final sync has little to do. */
#define WRITEBACK_BYTES (4u << 20)
/* Alignment of writes past the page cache, in memory, file and length. No device needs more. */
#define DIRECT_ALIGN 4096
#define SYNCED_SLOTS 4096
/* One pread or pwrite; the kernel transfers at most 2 GiB at once. */
#define IO_MAX ((size_t)1 << 30)

struct dir_store {
    struct blobs base;
    int root;
    bool no_direct; /* the file system has no O_DIRECT, or does not benefit from it; atomic */
    struct shards *shards;
    bool chown; /* running as root, and the repository has another owner */
    uid_t uid;
    gid_t gid;
    bool chown_failed;
    uint64_t synced[SYNCED_SLOTS]; /* hashes of directories that are durable up to the root; atomic */
};

struct dir_writer {
    struct blob_writer base;
    int fd, direct;     /* of the same file, through and past the page cache; direct -1: none */
    bool direct_failed; /* atomic: direct is no longer used */
    uint64_t unflushed; /* atomic */
    char name[BLOB_NAME_MAX + 1];
    char path[SHARDS_PATH_MAX];
    char tmp[TMP_PATH_MAX];
};

static struct dir_store *store_of(struct blobs *b)
{
    return (struct dir_store *)b;
}

/* The error of a failed write, with a hint for known causes. */
static int write_failed(const struct dir_store *d, const char *what, const char *name, int sys, struct err *e)
{
    int rc = err_set(e, ERR_GENERIC, sys, "cannot %s %s in repository %s", what, name, d->base.location);
    switch (sys) {
    case ENOSPC:
        err_hint(
            e,
            "free space on the file system of %s, or keep less (keep-*): maintenance gives back the space of deleted "
            "snapshots, some hours later",
            d->base.location);
        break;
    case EDQUOT:
        err_hint(e, "raise the quota of the owner of %s", d->base.location);
        break;
    case EROFS:
        err_hint(e, "the file system of %s is mounted read-only: remount it for writing", d->base.location);
        break;
    case EACCES:
    case EPERM:
        err_hint(e, "run as the owner of %s or as root", d->base.location);
        break;
    case EIO:
        err_hint(e, "the storage of %s reports errors: see the kernel log", d->base.location);
        break;
    case ELOOP:
    case EXDEV:
        err_hint(e, "there is a symbolic link in its path; links in a repository are not followed: replace it by a "
                    "directory or a mount");
        break;
    default:
        break;
    }
    return rc;
}

static int read_failed(const struct dir_store *d, const char *name, int sys, struct err *e)
{
    if (sys == ENOENT || sys == ENOTDIR)
        return blob_missing(&d->base, name, e);
    int rc = err_set(e, sys == ELOOP || sys == EXDEV ? ERR_DAMAGE : ERR_GENERIC, sys,
                     "cannot read blob %s of repository %s", name, d->base.location);
    if (sys == EACCES || sys == EPERM)
        err_hint(e, "run as the owner of %s or as root", d->base.location);
    else if (sys == EIO)
        err_hint(e, "the storage of %s reports errors: see the kernel log", d->base.location);
    else if (sys == ELOOP || sys == EXDEV)
        err_hint(e, "there is a symbolic link in its path; links in a repository are not followed: replace it by a "
                    "directory or a mount");
    return rc;
}

static int blob_path(const struct dir_store *d, const char *name, char *path, struct err *e)
{
    if (shards_locate(d->shards, name, path) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "invalid blob name \"%s\" (repository %s)", name, d->base.location);
    return 0;
}

/* ---- plain input and output ---- */

static int pwrite_all(int fd, const void *data, size_t len, uint64_t offset)
{
    for (const char *p = data; len > 0;) {
        ssize_t n = pwrite(fd, p, len < IO_MAX ? len : IO_MAX, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Bytes read: fewer than len only at the end of the file. */
static ssize_t pread_all(int fd, void *out, size_t len, uint64_t offset)
{
    size_t done = 0;
    while (done < len) {
        size_t part = len - done < IO_MAX ? len - done : IO_MAX;
        ssize_t n = pread(fd, (char *)out + done, part, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static int open_retry(int dir, const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = openat(dir, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

static int fsync_retry(int fd)
{
    int rc;
    do
        rc = fsync(fd);
    while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : 0;
}

/* Some file systems cannot sync a directory; nothing else can be done there. */
static int fsync_dir(int fd)
{
    int rc = fsync_retry(fd);
    return rc == -EINVAL || rc == -ENOTSUP || rc == -ENOSYS ? 0 : rc;
}

/* ---- durable directories ---- */

/* FNV-1a, never 0. */
static uint64_t path_hash(const char *path, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)path[i]) * 0x100000001b3u;
    return h ? h : 1;
}

/* Syncs the parent directory of `path` and, unless done before, those above it. */
static int sync_parents(struct dir_store *d, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    uint64_t hash = path_hash(path, len);
    uint64_t *slot = &d->synced[hash % SYNCED_SLOTS];
    bool known = __atomic_load_n(slot, __ATOMIC_ACQUIRE) == hash;
    char dir[SHARDS_PATH_MAX];
    memcpy(dir, path, len);
    for (;;) {
        dir[len] = '\0';
        if (len == 0)
            break;
        CLEANUP_CLOSE int fd = beneath_open(d->root, dir, O_RDONLY | O_DIRECTORY, 0);
        int rc = fd < 0 ? fd : fsync_dir(fd);
        if (rc < 0)
            return rc;
        if (known)
            return 0;
        const char *up = memrchr(dir, '/', len);
        len = up ? (size_t)(up - dir) : 0;
    }
    int rc = fsync_dir(d->root);
    if (rc == 0)
        __atomic_store_n(slot, hash, __ATOMIC_RELEASE);
    return rc;
}

static void parents_forget(struct dir_store *d, const char *path)
{
    const char *slash = strrchr(path, '/');
    uint64_t hash = path_hash(path, slash ? (size_t)(slash - path) : 0);
    __atomic_store_n(&d->synced[hash % SYNCED_SLOTS], 0, __ATOMIC_RELEASE);
}

/* A file system without owners (FAT, squashed NFS) must not fail a backup: it is logged once. */
static int set_owner(struct dir_store *d, int fd)
{
    if (!d->chown || fchown(fd, d->uid, d->gid) == 0)
        return 0;
    int sys = errno;
    if (sys != EPERM && sys != EINVAL && sys != ENOTSUP)
        return -sys;
    if (!__atomic_exchange_n(&d->chown_failed, true, __ATOMIC_RELAXED))
        log_warning("files written to %s remain owned by root: the file system does not allow changing their owner",
                    d->base.location);
    return 0;
}

/* Creates the parent directories of `path`. */
static int make_parents(struct dir_store *d, const char *path)
{
    char dir[SHARDS_PATH_MAX];
    parents_forget(d, path);
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t len = (size_t)(slash - path);
        const char *name;
        memcpy(dir, path, len);
        dir[len] = '\0';
        CLEANUP_CLOSE int above = beneath_parent(d->root, dir, &name);
        if (above < 0)
            return above;
        if (mkdirat(above, name, 0700) < 0) {
            if (errno != EEXIST)
                return -errno;
            continue;
        }
        if (!d->chown)
            continue;
        struct stat st;
        CLEANUP_CLOSE int fd = open_retry(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        int rc = fd;
        /* Only the one that was made: its owner is this process. */
        if (fd >= 0)
            rc = fstat(fd, &st) == 0 && st.st_uid == geteuid() ? set_owner(d, fd) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- writing ---- */

/* A new temporary file beside `path`; its name goes to tmp[TMP_PATH_MAX]. Returns a descriptor or negative errno. */
static int tmp_new(struct dir_store *d, const char *path, char *tmp)
{
    int fd = -EEXIST;
    for (int attempt = 0; attempt < 8; attempt++) {
        uint8_t random[8];
        char hex[17];
        if (RAND_bytes(random, sizeof random) != 1)
            return -EIO;
        snprintf(tmp, TMP_PATH_MAX, "%s" TMP_INFIX "%s", path, hex_encode(hex, random, sizeof random));
        fd = beneath_open(d->root, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
        if (fd == -ENOENT) {
            int rc = make_parents(d, path);
            if (rc < 0)
                return rc;
        } else if (fd != -EEXIST) {
            break;
        }
    }
    if (fd < 0)
        return fd;
    int rc = set_owner(d, fd);
    if (rc < 0) {
        beneath_unlink(d->root, tmp);
        close(fd);
        return rc;
    }
    return fd;
}

/* Starts writeback of the data written so far, without waiting. Errors are reported by the sync. */
static void start_writeback(int fd)
{
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

/* Syncs, renames, syncs the directory. Closes fd; on failure the temporary file is removed. */
static int file_publish(struct dir_store *d, int fd, const char *tmp, const char *path)
{
    int rc = fsync_retry(fd);
    if (close(fd) < 0 && rc == 0 && errno != EINTR)
        rc = -errno;
    if (rc == 0)
        rc = beneath_rename(d->root, tmp, path);
    if (rc < 0) {
        beneath_unlink(d->root, tmp);
        return rc;
    }
    return sync_parents(d, path);
}

static int put_file(struct dir_store *d, const char *path, const void *data, size_t len)
{
    char tmp[TMP_PATH_MAX];
    int fd = tmp_new(d, path, tmp);
    if (fd < 0)
        return fd;
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0;) {
        size_t part = len - at < WRITEBACK_BYTES ? len - at : WRITEBACK_BYTES;
        rc = pwrite_all(fd, (const char *)data + at, part, at);
        at += part;
        if (rc == 0 && at < len)
            start_writeback(fd);
    }
    if (rc < 0) {
        beneath_unlink(d->root, tmp);
        close(fd);
        return rc;
    }
    return file_publish(d, fd, tmp, path);
}

/* A write has failed with rc, and may succeed now: the reserve may be used for it, and has given some room back. */
static bool has_more_room(struct dir_store *d, int rc, uint64_t len)
{
    return (rc == -ENOSPC || rc == -EDQUOT) && blobs_may_use_reserve(&d->base) && reserve_release(d->root, len) == 1;
}

static int dir_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    struct dir_store *d = store_of(b);
    char path[SHARDS_PATH_MAX];
    int rc = blob_path(d, name, path, e);
    if (rc < 0)
        return rc;
    do
        rc = put_file(d, path, data, len);
    while (has_more_room(d, rc, len));
    return rc < 0 ? write_failed(d, "write blob", name, -rc, e) : 0;
}

static int dir_delete(struct blobs *b, const char *name, struct err *e)
{
    struct dir_store *d = store_of(b);
    char path[SHARDS_PATH_MAX];
    int rc = blob_path(d, name, path, e);
    if (rc < 0)
        return rc;
    rc = beneath_unlink(d->root, path);
    if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR)
        return write_failed(d, "delete blob", name, -rc, e);
    return 0;
}

/* Not one that exists: renameat2(2) where the file system has it. */
static int rename_apart(struct dir_store *d, const char *from, const char *to)
{
    const char *name, *other;
    CLEANUP_CLOSE int dir = beneath_parent(d->root, from, &name);
    CLEANUP_CLOSE int there = dir < 0 ? dir : beneath_parent(d->root, to, &other);
    if (dir < 0 || there < 0)
        return dir < 0 ? dir : there;
    int rc = renameat2(dir, name, there, other, RENAME_NOREPLACE);
    if (rc < 0 && (errno == EINVAL || errno == ENOSYS))
        rc = faccessat(there, other, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? (errno = EEXIST, -1)
                                                                     : renameat(dir, name, there, other);
    return rc < 0 ? -errno : 0;
}

static int dir_move(struct blobs *b, const char *from, const char *to, struct err *e)
{
    struct dir_store *d = store_of(b);
    char path[SHARDS_PATH_MAX], target[SHARDS_PATH_MAX];
    int rc = blob_path(d, from, path, e);
    if (rc == 0)
        rc = blob_path(d, to, target, e);
    if (rc < 0)
        return rc;
    rc = make_parents(d, target);
    if (rc == 0)
        rc = rename_apart(d, path, target);
    if (rc == 0)
        rc = sync_parents(d, target);
    if (rc == 0)
        rc = sync_parents(d, path);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return blob_missing(b, from, e);
    return rc < 0 ? write_failed(d, "rename blob", from, -rc, e) : 0;
}

/* A written pack is not read soon: it should not displace other data in the page cache, nor be copied there. */
static int open_direct(struct dir_store *d, int file, const char *tmp)
{
    struct statfs fs;
    struct stat st, same;
    if (__atomic_load_n(&d->no_direct, __ATOMIC_RELAXED))
        return -1;
    int fd = fstatfs(d->root, &fs) == 0 && fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC
                 ? beneath_open(d->root, tmp, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_NONBLOCK, 0)
                 : -1;
    if (fd >= 0 && (fstat(fd, &st) < 0 || fstat(file, &same) < 0 || st.st_dev != same.st_dev ||
                    st.st_ino != same.st_ino)) { /* somebody exchanged it */
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        __atomic_store_n(&d->no_direct, true, __ATOMIC_RELAXED);
    return fd < 0 ? -1 : fd;
}

static void close_direct(struct dir_writer *w)
{
    if (w->direct >= 0)
        close(w->direct);
    w->direct = -1;
}

static int dir_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e)
{
    struct dir_store *d = store_of(b);
    CLEANUP_FREE struct dir_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->base.b = b;
    snprintf(w->name, sizeof w->name, "%s", name);
    int rc = blob_path(d, name, w->path, e);
    if (rc < 0)
        return rc;
    do
        w->fd = tmp_new(d, w->path, w->tmp);
    while (has_more_room(d, w->fd, 0));
    if (w->fd < 0)
        return write_failed(d, "write blob", name, -w->fd, e);
    w->direct = open_direct(d, w->fd, w->tmp);
    *ret = &take_ptr(&w)->base;
    return 0;
}

/* 1: written; 0: to be written through the page cache; negative errno. */
static int write_direct(struct dir_writer *w, uint64_t offset, const void *data, size_t len)
{
    if (w->direct < 0 || __atomic_load_n(&w->direct_failed, __ATOMIC_RELAXED) || len == 0 ||
        ((uintptr_t)data | offset | len) % DIRECT_ALIGN != 0)
        return 0;
    int rc = pwrite_all(w->direct, data, len, offset);
    if (rc != -EINVAL && rc != -EOPNOTSUPP)
        return rc < 0 ? rc : 1;
    /* Opened, but writes are refused: network file systems, unusual block sizes. */
    __atomic_store_n(&w->direct_failed, true, __ATOMIC_RELAXED);
    __atomic_store_n(&store_of(w->base.b)->no_direct, true, __ATOMIC_RELAXED);
    return 0;
}

static int dir_writer_write(struct blob_writer *bw, uint64_t offset, const void *data, size_t len, struct err *e)
{
    struct dir_writer *w = (struct dir_writer *)bw;
    struct dir_store *d = store_of(bw->b);
    int rc = offset > INT64_MAX || len > INT64_MAX - offset ? -EFBIG : 0;
    while (rc == 0) {
        rc = write_direct(w, offset, data, len - len % DIRECT_ALIGN);
        if (!has_more_room(d, rc, len))
            break;
        rc = 0;
    }
    if (rc == 1) {
        /* The end of a pack is not a whole page. */
        data = (const uint8_t *)data + (len - len % DIRECT_ALIGN);
        offset += len - len % DIRECT_ALIGN;
        len %= DIRECT_ALIGN;
    }
    if (rc >= 0 && len > 0)
        do
            rc = pwrite_all(w->fd, data, len, offset);
        while (has_more_room(d, rc, len));
    if (rc < 0)
        return write_failed(d, "write blob", w->name, -rc, e);
    uint64_t before = __atomic_fetch_add(&w->unflushed, len, __ATOMIC_RELAXED);
    if (before / WRITEBACK_BYTES != (before + len) / WRITEBACK_BYTES)
        start_writeback(w->fd);
    return 0;
}

static bool dir_writer_at_once(const struct blob_writer *bw)
{
    const struct dir_writer *w = (const struct dir_writer *)bw;
    return w->direct >= 0 && !__atomic_load_n(&w->direct_failed, __ATOMIC_RELAXED);
}

static int dir_writer_read(struct blob_writer *bw, uint64_t offset, void *data, size_t len, struct err *e)
{
    struct dir_writer *w = (struct dir_writer *)bw;
    ssize_t n = offset > INT64_MAX || len > INT64_MAX - offset ? -EFBIG : pread_all(w->fd, data, len, offset);
    if (n < 0)
        return read_failed(store_of(bw->b), w->name, (int)-n, e);
    if ((size_t)n < len)
        return err_set(e, ERR_GENERIC, EINVAL, "read of blob %s beyond the data written so far", w->name);
    return 0;
}

static void dir_writer_abort(struct blob_writer *bw)
{
    struct dir_writer *w = (struct dir_writer *)bw;
    beneath_unlink(store_of(bw->b)->root, w->tmp);
    close_direct(w);
    close(w->fd);
    free(w);
}

static int dir_writer_commit(struct blob_writer *bw, uint64_t length, struct err *e)
{
    struct dir_writer *w = (struct dir_writer *)bw;
    struct dir_store *d = store_of(bw->b);
    int rc;
    do
        rc = length > INT64_MAX ? (errno = EFBIG, -1) : ftruncate(w->fd, (off_t)length);
    while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        rc = write_failed(d, "write blob", w->name, errno, e);
        dir_writer_abort(bw);
        return rc;
    }
    close_direct(w);
    rc = file_publish(d, w->fd, w->tmp, w->path);
    if (rc < 0)
        rc = write_failed(d, "write blob", w->name, -rc, e);
    free(w);
    return rc;
}

/* ---- reading ---- */

static int open_blob(struct dir_store *d, const char *name, struct err *e)
{
    char path[SHARDS_PATH_MAX];
    int rc = blob_path(d, name, path, e);
    if (rc < 0)
        return rc;
    struct stat st;
    CLEANUP_CLOSE int fd = beneath_open(d->root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    const bool is_socket = fd == -ENXIO;
    if (fd < 0 && !is_socket)
        return read_failed(d, name, -fd, e);
    if (!is_socket && fstat(fd, &st) < 0)
        return read_failed(d, name, errno, e);
    /* Reading a FIFO would wait for somebody. */
    if (is_socket || !S_ISREG(st.st_mode))
        return err_set(e, ERR_DAMAGE, EBADMSG, "blob %s of repository %s is not a regular file", name,
                       d->base.location);
    return take_fd(&fd);
}

static int dir_open_file(struct blobs *b, const char *name, struct err *e)
{
    return open_blob(store_of(b), name, e);
}

static int dir_read(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e)
{
    struct dir_store *d = store_of(b);
    CLEANUP_CLOSE int fd = open_blob(d, name, e);
    if (fd < 0)
        return fd;
    ssize_t n = pread_all(fd, dst, len, offset);
    if (n < 0)
        return read_failed(d, name, (int)-n, e);
    if ((size_t)n < len)
        return err_set(e, ERR_DAMAGE, EBADMSG,
                       "blob %s of repository %s is too short: bytes %llu to %llu expected, end at %llu", name,
                       b->location, (unsigned long long)offset, (unsigned long long)(offset + len),
                       n > 0 ? (unsigned long long)(offset + (uint64_t)n) : (unsigned long long)lseek(fd, 0, SEEK_END));
    return 0;
}

static int dir_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e)
{
    struct dir_store *d = store_of(b);
    CLEANUP_CLOSE int fd = open_blob(d, name, e);
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return read_failed(d, name, errno, e);
    if ((uint64_t)st.st_size > max || (uint64_t)st.st_size >= SIZE_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "blob %s of repository %s has %lld bytes, at most %zu expected", name,
                       b->location, (long long)st.st_size, max);
    size_t size = (size_t)st.st_size;
    CLEANUP_FREE uint8_t *data = malloc(size + 1);
    if (!data)
        return err_nomem(e);
    ssize_t n = pread_all(fd, data, size, 0);
    if (n < 0)
        return read_failed(d, name, (int)-n, e);
    if ((size_t)n < size)
        return err_set(e, ERR_DAMAGE, EBADMSG, "blob %s of repository %s was truncated while it was read", name,
                       b->location);
    data[size] = '\0';
    *ret = take_ptr(&data);
    *len = size;
    return 0;
}

static int dir_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e)
{
    struct dir_store *d = store_of(b);
    char path[SHARDS_PATH_MAX];
    int rc = blob_path(d, name, path, e);
    if (rc < 0)
        return rc;
    struct stat st;
    CLEANUP_CLOSE int fd = beneath_open(d->root, path, O_PATH, 0);
    if (fd < 0)
        return read_failed(d, name, -fd, e);
    if (fstat(fd, &st) < 0)
        return read_failed(d, name, errno, e);
    snprintf(ret->name, sizeof ret->name, "%s", name);
    ret->length = (uint64_t)st.st_size;
    ret->mtime_ns = timespec_ns(st.st_mtim);
    return 0;
}

/* ---- listing ---- */

static int dir_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    return blob_walk(store_of(b)->root, b->location, prefix, fn, arg, e);
}

static int dir_leftovers(struct blobs *b, blob_list_fn *fn, void *arg, bool dry_run, struct blob_leftovers *ret,
                         struct err *e)
{
    return blob_leftovers_sweep(store_of(b)->root, b->location, fn, arg, dry_run, ret, e);
}

/* ---- room ---- */

static int dir_room(struct blobs *b, struct blob_room *ret, struct err *e)
{
    struct statvfs fs;
    const struct dir_store *d = store_of(b);
    if (fstatvfs(d->root, &fs) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot determine the free space of %s", b->location);
    ret->free = (uint64_t)fs.f_bavail * fs.f_frsize;
    ret->reserve = reserve_left(d->root);
    return 0;
}

static void dir_reserve(struct blobs *b)
{
    struct dir_store *d = store_of(b);
    CLEANUP_CLOSE int fd = -1;
    int rc = reserve_fill(d->root, &fd);
    if (rc == 0 && fd >= 0) {
        (void)set_owner(d, fd);
        rc = fsync_dir(d->root);
    }
    if (rc < 0)
        log_info("no room is reserved for maintenance in %s: %s", b->location, strerror(-rc));
}

/* Times of a directory need no room. They mean nothing in a repository. */
static int dir_clock(struct blobs *b, int64_t *ns, struct err *e)
{
    struct stat st;
    const struct dir_store *d = store_of(b);
    if (futimens(d->root, NULL) < 0 || fstat(d->root, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot determine the time of the storage of %s", b->location);
    *ns = timespec_ns(st.st_mtim);
    return 0;
}

/* ---- opening ---- */

static void dir_free(struct blobs *b)
{
    struct dir_store *d = store_of(b);
    if (d->root >= 0)
        close(d->root);
    shards_free(d->shards);
    free(d);
}

static int load_shards(struct dir_store *d, struct err *e);

static int dir_check_layout(struct blobs *b, struct err *e)
{
    const struct dir_store *d = store_of(b);
    struct dir_store now = {.base.location = b->location, .root = d->root};
    struct err why = ERR_INIT;
    int rc = load_shards(&now, &why);
    if (rc < 0) {
        *e = why;
        err_wrap(e, "changed while it was in use");
    } else if (!shards_same(d->shards, now.shards)) {
        rc = err_set(e, ERR_DAMAGE, EBADMSG,
                     "the file %s/" SHARDS_FILE " was changed while it was in use: others look for its blobs in other "
                     "directories",
                     b->location);
        err_hint(e, "restore that file as it was; what was stored is found again then");
    }
    shards_free(now.shards);
    return rc;
}

static const struct blobs_ops dir_ops = {
    .check_layout = dir_check_layout,
    .free = dir_free,
    .read = dir_read,
    .open_file = dir_open_file,
    .get = dir_get,
    .stat = dir_stat,
    .put = dir_put,
    .del = dir_delete,
    .move = dir_move,
    .list = dir_list,
    .leftovers = dir_leftovers,
    .room = dir_room,
    .reserve = dir_reserve,
    .clock = dir_clock,
    .writer_new = dir_writer_new,
    .writer_write = dir_writer_write,
    .writer_at_once = dir_writer_at_once,
    .writer_read = dir_writer_read,
    .writer_commit = dir_writer_commit,
    .writer_abort = dir_writer_abort,
};

/* mkdir -p, durable. */
static int make_root(const char *dir, struct err *e)
{
    CLEANUP_FREE char *path = strdup(dir);
    if (!path)
        return err_nomem(e);
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char c = *p;
        *p = '\0';
        if (mkdir(path, 0700) == 0) {
            char *slash = strrchr(path, '/');
            CLEANUP_CLOSE int above = -1;
            if (slash && slash != path) {
                *slash = '\0';
                above = open_retry(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
                *slash = '/';
            } else {
                above = open_retry(AT_FDCWD, slash ? "/" : ".", O_RDONLY | O_DIRECTORY, 0);
            }
            /* A directory that may be entered but not read cannot be synced. */
            int rc = above == -EACCES ? 0 : above < 0 ? above : fsync_dir(above);
            if (rc < 0)
                return err_set(e, ERR_GENERIC, -rc, "cannot create directory %s", path);
        } else if (errno != EEXIST) {
            return err_set(e, ERR_GENERIC, errno, "cannot create directory %s", path);
        }
        *p = c;
        if (c == '\0')
            return 0;
    }
}

/* .shards, which an interrupted create leaves, does not count. */
static int must_be_empty(const struct dir_store *d, struct err *e)
{
    int fd = open_retry(d->root, ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, -fd, "cannot read directory %s", d->base.location);
    CLEANUP_CLOSEDIR DIR *dir = fdopendir(fd);
    if (!dir) {
        int sys = errno;
        close(fd);
        return err_set(e, ERR_GENERIC, sys, "cannot read directory %s", d->base.location);
    }
    for (;;) {
        errno = 0;
        const struct dirent *de = readdir(dir);
        if (!de)
            return errno == 0 ? 0 : err_set(e, ERR_GENERIC, errno, "cannot read directory %s", d->base.location);
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 || strcmp(de->d_name, "lost+found") == 0 ||
            strcmp(de->d_name, SHARDS_FILE) == 0)
            continue;
        if (faccessat(d->root, "kopia.repository" BLOB_SUFFIX, F_OK, 0) == 0)
            err_plain(e, ERR_EXISTS, EEXIST, "repository %s already exists", d->base.location);
        else
            err_set(e, ERR_EXISTS, ENOTEMPTY,
                    "cannot create a repository in %s: the directory is not empty (\"%.255s\")", d->base.location,
                    de->d_name);
        err_hint(e, "use an empty or a new directory");
        return e ? -e->sys : -EEXIST;
    }
}

/*
 * A repository without .shards is read as [3,3], as stock clients do. If directories of one letter show that this is
 * wrong, new blobs would be written where no client finds them.
 */
static int assume_shards(struct dir_store *d, struct err *e)
{
    static const int assumed[] = {3, 3};
    static const char *const tell_tale[] = {"p", "q", "x", "s"};
    if (faccessat(d->root, "kopia.repository" BLOB_SUFFIX, F_OK, 0) == 0) {
        for (size_t i = 0; i < sizeof tell_tale / sizeof tell_tale[0]; i++) {
            struct stat st;
            if (fstatat(d->root, tell_tale[i], &st, 0) < 0 || !S_ISDIR(st.st_mode))
                continue;
            err_set(e, ERR_DAMAGE, EBADMSG,
                    "the file %s/" SHARDS_FILE " is missing, which defines the directories of blobs", d->base.location);
            err_hint(e, "a repository with directories of one letter usually has "
                        "{\"default\":[1,3],\"maxNonShardedLength\":20}: restore this file first");
            return -EBADMSG;
        }
        log_info("%s has no " SHARDS_FILE ": assuming directories of three letters", d->base.location);
    }
    d->base.guessed = true;
    return shards_make(&d->shards, assumed, 2, e);
}

static int load_shards(struct dir_store *d, struct err *e)
{
    CLEANUP_CLOSE int fd = beneath_open(d->root, SHARDS_FILE, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    struct stat st;
    if (fd == -ENOENT)
        return assume_shards(d, e);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
        return err_set(e, ERR_DAMAGE, EBADMSG, "%s/" SHARDS_FILE " is not a regular file", d->base.location);
    CLEANUP_FREE char *text = malloc(SHARDS_FILE_MAX + 1);
    if (!text)
        return err_nomem(e);
    ssize_t n = fd < 0 ? fd : pread_all(fd, text, SHARDS_FILE_MAX + 1, 0);
    if (n < 0)
        return err_set(e, ERR_GENERIC, (int)-n, "cannot read %s/" SHARDS_FILE, d->base.location);
    int rc =
        n > SHARDS_FILE_MAX ? err_set(e, ERR_DAMAGE, EINVAL, "too long") : shards_parse(&d->shards, text, (size_t)n, e);
    if (rc == -EINVAL) {
        char why[512] = "";
        if (e)
            snprintf(why, sizeof why, "%.500s", e->msg);
        rc = err_set(e, ERR_DAMAGE, EBADMSG, "the file %s/" SHARDS_FILE " is damaged: %s", d->base.location, why);
        err_hint(e, "it defines the directories of blobs: restore it from a copy");
    }
    return rc;
}

static int write_shards(struct dir_store *d, const int *shards, size_t n, struct err *e)
{
    static const int standard[] = {1, 3};
    int rc = shards ? shards_make(&d->shards, shards, n, e) : shards_make(&d->shards, standard, 2, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE char *text = shards_document(d->shards);
    if (!text)
        return err_nomem(e);
    rc = put_file(d, SHARDS_FILE, text, strlen(text));
    return rc < 0 ? write_failed(d, "write", SHARDS_FILE, -rc, e) : 0;
}

static void store_freep(struct dir_store **d)
{
    if (*d)
        blobs_free(&(*d)->base);
}

int blobs_open_dir(struct blobs **ret, const char *dir, enum blobs_open_mode mode, const int *shards, size_t n_shards,
                   struct err *e)
{
    if (dir[0] == '\0')
        return err_set(e, ERR_USAGE, EINVAL, "empty repository directory");
    CLEANUP(store_freep) struct dir_store *d = calloc(1, sizeof *d);
    if (!d)
        return err_nomem(e);
    d->base.ops = &dir_ops;
    d->root = -1;
    d->base.location = strdup(dir);
    if (!d->base.location)
        return err_nomem(e);
    int rc = mode == BLOBS_CREATE ? make_root(dir, e) : 0;
    if (rc < 0)
        return rc;
    d->root = open_retry(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, 0);
    if (d->root == -ENOENT || d->root == -ENOTDIR) {
        rc = err_set(e, ERR_NO_REPO, -d->root, "no repository at %s", dir);
        err_hint(e, "check the path, or create one with `snapferry -r %s repo create`", dir);
        return rc;
    }
    if (d->root < 0)
        return err_set(e, ERR_GENERIC, -d->root, "cannot open repository directory %s", dir);
    struct stat st;
    if (fstat(d->root, &st) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open repository directory %s", dir);
    d->uid = st.st_uid;
    d->gid = st.st_gid;
    d->chown = geteuid() == 0 && (d->uid != 0 || d->gid != getegid());
    if (mode == BLOBS_OPEN) {
        rc = load_shards(d, e);
    } else {
        rc = must_be_empty(d, e);
        if (rc == 0)
            rc = write_shards(d, shards, n_shards, e);
    }
    if (rc < 0)
        return rc;
    *ret = &take_ptr(&d)->base;
    return 0;
}
