/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/target.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/claim.h"
#include "io/reader.h"
#include "io/target-impl.h"
#include "io/target-nbd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#define PAGE ((uint64_t)4096)
#define DIRTY_MAX ((uint64_t)64 << 20) /* bytes in writeback before a writer waits */
#define ZERO_IOV 16
#define COMPARE_STEP (1u << 20)
#define ZERO_RUN ((uint64_t)64 << 10)    /* shorter zeros among data are written */
#define ZERO_RUN_FAR ((uint64_t)1 << 20) /* where a request to zero costs more: a trip, or a command of a disk */
#define ZERO_STEP ((uint64_t)64 << 20)
#define ZERO_UNIT ((uint64_t)4 << 20) /* an image in Ceph has objects of this size, which are removed as a whole */

static const uint8_t zero_page[64 << 10];

static uint64_t round_down(uint64_t x, uint64_t a)
{
    return x - x % a;
}

static uint64_t round_up(uint64_t x, uint64_t a)
{
    return x % a ? x + (a - x % a) : x;
}

/* ---- what happens to the target meanwhile ---- */

/* A file that another program shortened has lost data that was written already, even if it grows again later: this is
 * checked before and after each write. */
int target_unchanged(const struct target *t, struct err *e)
{
    struct stat st;
    if (t->is_block)
        return 0;
    /* First, because a thread that is writing may make both greater meanwhile. */
    const uint64_t least = atomic_load(&t->least);
    if (fstat(t->fd, &st) < 0)
        return err_set(e, ERR_TARGET, errno, "cannot stat restore target %s", t->path);
    if ((uint64_t)st.st_size >= least)
        return 0;
    err_plain(e, ERR_TARGET, ESTALE,
              "restore target %s was truncated by another program: it has %jd bytes, had at least %" PRIu64, t->path,
              (intmax_t)st.st_size, least);
    err_hint(e, "its contents are incomplete; find out what else uses it, and restore again, as a whole");
    return -ESTALE;
}

int target_present(const struct target *t, struct err *e)
{
    struct stat st, now;
    if (fstat(t->fd, &st) < 0)
        return err_set(e, ERR_TARGET, errno, "cannot stat restore target %s", t->path);
    if (S_ISREG(st.st_mode) && st.st_nlink == 0) {
        err_plain(e, ERR_TARGET, ESTALE, "restore target %s was removed during the restore", t->path);
        return err_hint(e, "restore again, to a file that nothing else removes");
    }
    if (t->by_fd)
        return 0; /* its name is not visible here */
    const bool there = stat(t->path, &now) == 0;
    if (there && (S_ISBLK(st.st_mode) ? S_ISBLK(now.st_mode) && now.st_rdev == st.st_rdev
                                      : now.st_dev == st.st_dev && now.st_ino == st.st_ino))
        return target_unchanged(t, e);
    err_plain(e, ERR_TARGET, ESTALE, "restore target %s was %s during the restore", t->path,
              there ? "replaced by another one" : "renamed or removed");
    return err_hint(e, "restore again; what was written under the former name is incomplete");
}

/* ---- opening ---- */

static int open_error(const char *path, int sys, struct err *e)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
        return err_set(e, ERR_NOT_FOUND, sys, "cannot open restore target %s", path);
    case EACCES:
    case EPERM:
    case EROFS:
        return err_set(e, ERR_PERMISSION, sys, "cannot open restore target %s for writing", path);
    case ENOSPC:
    case EDQUOT:
        return err_set(e, ERR_NO_SPACE, sys, "cannot create restore target %s", path);
    default:
        return err_set(e, ERR_TARGET, sys, "cannot open restore target %s for writing", path);
    }
}

/* Restored data is not read again soon and should not fill the page cache. */
static void open_direct(struct target *t)
{
    struct statfs fs;
    char self[32];
    if (t->o.no_uring ||
        (!t->is_block && (fstatfs(t->fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)))
        return;
    /* Reopens what was opened, not what has the name now. A mover that may not reopen it uses the page cache. */
    snprintf(self, sizeof self, "/proc/self/fd/%d", t->fd);
    t->direct = open(self, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY);
}

static int setup_device(struct target *t, struct err *e)
{
    struct stat now;
    t->is_block = true;
    if (fstat(t->fd, &now) < 0 || !S_ISBLK(now.st_mode))
        return err_set(e, ERR_TARGET, 0, "restore target %s changed while it was opened", t->path);
    t->rdev = now.st_rdev;
    int rc = blockdev_writable(t->fd, t->path, e);
    if (rc < 0)
        return rc;
    t->size = blockdev_size(t->fd);
    if (t->size < t->o.size) {
        err_set(e, ERR_TARGET, 0, "restore target %s is too small: it has %" PRIu64 " bytes, the image has %" PRIu64,
                t->path, t->size, t->o.size);
        err_hint(e, "restore to a device of at least that size, or to a file");
        return -ENOSPC;
    }
    open_direct(t);
    char dir[PATH_MAX], line[64];
    t->ways = WAY_PUNCH | WAY_ZEROOUT;
    /* Thin volumes zero by discarding only (dm-thin has no write-zeroes), and written zeros would allocate. */
    if (!blockdev_sysfs(t->rdev, dir, sizeof dir))
        dir[0] = '\0';
    if (strstr(dir, "/block/dm-") && sysfs_line(dir, "queue/discard_granularity", line, sizeof line)) {
        unsigned long g = strtoul(line, NULL, 10);
        if (g >= 512 && g <= (1ul << 30)) {
            t->discard = (uint32_t)g;
            t->ways |= WAY_DISCARD;
        }
    }
    t->unmaps = dir[0] && sysfs_line(dir, "queue/discard_max_bytes", line, sizeof line) && strtoull(line, NULL, 10) > 0;
    return 0;
}

static int open_device(struct target *t, const struct stat *st, struct err *e)
{
    int flags = O_RDWR | O_CLOEXEC | O_NOCTTY;
    /* O_EXCL on a device: the kernel refuses devices that are mounted, used as swap, or part of another device. */
    t->fd = open(t->path, t->o.force ? flags : flags | O_EXCL);
    if (t->fd < 0)
        return errno == EBUSY ? claim_refused(t->path, st, e) : open_error(t->path, errno, e);
    int rc = claim_target(t->fd, t->path, t->o.force, e);
    return rc < 0 ? rc : setup_device(t, e);
}

static int setup_existing(struct target *t, struct err *e)
{
    struct stat st;
    if (fstat(t->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_TARGET, 0, "restore target %s changed while it was opened", t->path);
    /* Whoever wants to see this name restored does not expect that others change with it: a blob of a repository may be
     * one of them. */
    if (st.st_nlink > 1) {
        err_plain(e, ERR_TARGET, EMLINK,
                  "restore target %s has %ju names (hard links): all of them would be overwritten", t->path,
                  (uintmax_t)st.st_nlink);
        err_hint(e, "restore to a new file and rename it to this name, or remove the name first");
        return -EMLINK;
    }
    /* A file with a size but no data can be overwritten without loss, and reads as zeros like a new one. */
    bool empty = st.st_size == 0 || (lseek(t->fd, 0, SEEK_DATA) < 0 && errno == ENXIO);
    if (!empty && !t->o.force && !t->o.keep_contents && !t->o.resume) {
        err_plain(e, ERR_TARGET, EEXIST, "restore target %s exists and is not empty (%lld bytes)", t->path,
                  (long long)st.st_size);
        err_hint(e, "use another file; --resume continues an interrupted restore to this one, --force overwrites it");
        return -EEXIST;
    }
    if (!empty && !t->o.keep_contents && !t->o.resume) {
        if (ftruncate(t->fd, 0) < 0)
            return err_set(e, ERR_TARGET, errno, "cannot truncate restore target %s", t->path);
        st.st_size = 0;
        empty = true;
    }
    t->is_new = empty;
    t->size = (uint64_t)st.st_size;
    atomic_store(&t->least, t->size);
    return 0;
}

/* Locked, and still the file of that name: another restore may have replaced or removed it before it was locked. */
static int claim_file(struct target *t, struct err *e)
{
    int rc = claim_target(t->fd, t->path, t->o.force, e);
    return rc < 0 ? rc : target_present(t, e);
}

static int open_existing(struct target *t, struct err *e)
{
    t->fd = open(t->path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (t->fd < 0)
        return open_error(t->path, errno, e);
    int rc = claim_file(t, e);
    return rc < 0 ? rc : setup_existing(t, e);
}

static int setup_size(struct target *t, struct err *e);

static int open_file(struct target *t, bool exists, struct err *e)
{
    t->ways = WAY_PUNCH;
    if (!exists) {
        t->fd = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
        if (t->fd < 0 && errno != EEXIST)
            return open_error(t->path, errno, e);
        t->created = t->is_new = t->fd >= 0;
    }
    int rc = t->fd < 0 ? open_existing(t, e) : claim_file(t, e);
    if (rc < 0)
        return rc;
    rc = setup_size(t, e);
    if (rc == 0)
        open_direct(t);
    return rc;
}

static int setup_size(struct target *t, struct err *e)
{
    if (!t->is_new)
        return 0;
    /* Set immediately, so that a file system that cannot hold the file reports it before the restore. */
    if (t->o.size > INT64_MAX || ftruncate(t->fd, (off_t)t->o.size) < 0) {
        int sys = t->o.size > INT64_MAX ? EFBIG : errno;
        if (t->created)
            unlink(t->path);
        return err_set(e, ERR_TARGET, sys, "cannot set the size of restore target %s to %" PRIu64 " bytes", t->path,
                       t->o.size);
    }
    t->size = t->o.size;
    atomic_store(&t->least, t->size);
    struct statvfs vfs;
    if (fstatvfs(t->fd, &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < t->o.size)
        log_warning("restore target %s needs up to %" PRIu64 " bytes, its file system has %" PRIu64
                    " free, which suffices only if the image is sparse",
                    t->path, t->o.size, (uint64_t)vfs.f_bavail * vfs.f_frsize);
    return 0;
}

static struct target *target_alloc(const char *path, const struct target_opts *o, struct err *e)
{
    if (strlen(path) >= sizeof((struct target *)0)->path) {
        open_error("(a path of more than 4095 bytes)", ENAMETOOLONG, e);
        return NULL;
    }
    struct target *t = calloc(1, sizeof *t);
    if (!t) {
        err_nomem(e);
        return NULL;
    }
    snprintf(t->path, sizeof t->path, "%s", path);
    t->o = *o;
    t->fd = t->direct = -1;
    pthread_mutex_init(&t->mu, NULL);
    pthread_mutex_init(&t->queue_mu, NULL);
    pthread_cond_init(&t->queue_moved, NULL);
    return t;
}

static int wrong_type(const char *path, const struct stat *st, struct err *e)
{
    return err_set(e, ERR_TARGET, 0, "restore target %s is neither a block device nor a regular file%s", path,
                   S_ISDIR(st->st_mode) ? " (it is a directory)" : "");
}

/* Over a connected socket, or -1. */
static int open_export(struct target *t, int fd, struct err *e)
{
    const int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd >= 0 && own < 0)
        return err_set(e, ERR_TARGET, errno, "cannot use the socket of restore target %s", t->path);
    int rc = nbd_target_open(&t->nbd, own, t->path, t->o.size, t->o.stop, e);
    if (rc < 0)
        return rc;
    t->is_block = true;
    t->size = nbd_target_size(t->nbd);
    return 0;
}

int target_from_fd(struct target **ret, int fd, const char *name, const struct target_opts *o, struct err *e)
{
    struct stat st;
    struct target *t = target_alloc(name, o, e);
    if (!t)
        return -EINVAL;
    int flags = fcntl(fd, F_GETFL), rc = 0;
    t->by_fd = true;
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode))
        rc = open_export(t, fd, e);
    else if (flags < 0 || fstat(fd, &st) < 0 || (t->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot use the descriptor of restore target %s", name);
    else if ((flags & O_ACCMODE) != O_RDWR)
        rc = err_set(e, ERR_TARGET, EBADF, "restore target %s was not opened for reading and writing", name);
    else if (S_ISBLK(st.st_mode))
        rc = setup_device(t, e);
    else if (!S_ISREG(st.st_mode))
        rc = wrong_type(name, &st, e);
    else {
        t->ways = WAY_PUNCH;
        rc = setup_existing(t, e);
        if (rc == 0)
            rc = setup_size(t, e);
        if (rc == 0)
            open_direct(t);
    }
    if (rc < 0)
        target_free(t);
    else
        *ret = t;
    return rc;
}

int target_open(struct target **ret, const char *path, const struct target_opts *o, struct err *e)
{
    struct stat st;
    int rc;
    struct target *t = target_alloc(path, o, e);
    if (!t)
        return strlen(path) >= sizeof((struct target *)0)->path ? -ENAMETOOLONG : -ENOMEM;
    const bool export = nbd_uri_is(path), exists = !export && stat(path, &st) == 0;
    if (export)
        rc = open_export(t, -1, e);
    else if (!exists && errno != ENOENT)
        rc = open_error(path, errno, e);
    else if ((!exists || S_ISREG(st.st_mode)) && (rc = claim_place_of_file(path, e)) < 0)
        ; /* refused */
    else if (!exists)
        rc = open_file(t, false, e);
    else if (S_ISBLK(st.st_mode))
        rc = open_device(t, &st, e);
    else if (S_ISREG(st.st_mode))
        rc = open_file(t, true, e);
    else
        rc = wrong_type(path, &st, e);
    if (rc < 0)
        target_free(t);
    else
        *ret = t;
    return rc;
}

static bool reads_as_zeros(int fd, uint64_t pos, size_t len)
{
    static const uint8_t zeros[4096];
    uint8_t buf[sizeof zeros];
    for (size_t at = 0; at < len; at += sizeof buf) {
        ssize_t n = pread(fd, buf, sizeof buf, (off_t)(pos + at));
        if (n < 0 || memcmp(buf, zeros, (size_t)n) != 0)
            return false;
        if ((size_t)n < sizeof buf)
            break;
    }
    return true;
}

#define CONTENTS_PART ((size_t)1 << 20)

/* One that cannot be read has nothing that could be overwritten: the restore will say why. */
static bool export_contents(const char *address, struct target_contents *ret)
{
    struct nbd_target *t;
    CLEANUP_FREE uint8_t *buf = malloc(CONTENTS_PART);
    if (!buf || nbd_target_open(&t, -1, address, 0, NULL, NULL) < 0)
        return false;
    ret->is_block = true;
    ret->size = nbd_target_size(t);
    const uint64_t last = ret->size > CONTENTS_PART ? ret->size - CONTENTS_PART : 0;
    bool found = false;
    for (unsigned i = 0; i < 2 && !found; i++) {
        const int64_t n = nbd_target_read(t, buf, CONTENTS_PART, i ? last : 0, NULL);
        found = n < 0 || !zeros_only(buf, (size_t)n);
    }
    nbd_target_free(t);
    return found;
}

bool target_contents(const char *path, struct target_contents *ret)
{
    struct stat st;
    *ret = (struct target_contents){.size = 0};
    if (nbd_uri_is(path))
        return export_contents(path, ret);
    if (stat(path, &st) < 0 || (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode)))
        return false;
    ret->is_block = S_ISBLK(st.st_mode);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (!ret->is_block) {
        ret->size = (uint64_t)st.st_size;
        return st.st_size > 0 && (fd < 0 || lseek(fd, 0, SEEK_DATA) >= 0 || errno != ENXIO);
    }
    const size_t part = CONTENTS_PART;
    if (!blockdev_user(st.st_rdev, ret->user, sizeof ret->user))
        ret->user[0] = '\0';
    ret->size = fd < 0 ? 0 : blockdev_size(fd);
    return fd < 0 || ret->user[0] || !reads_as_zeros(fd, 0, part) ||
           !reads_as_zeros(fd, ret->size > part ? ret->size - part : 0, part);
}

void target_free(struct target *t)
{
    if (!t)
        return;
    closep(&t->fd);
    closep(&t->direct);
    nbd_target_free(t->nbd);
    pthread_mutex_destroy(&t->mu);
    pthread_mutex_destroy(&t->queue_mu);
    pthread_cond_destroy(&t->queue_moved);
    free(t);
}

bool target_is_block(const struct target *t)
{
    return t->is_block;
}

void target_stats(const struct target *t, struct target_stats *ret)
{
    pthread_mutex_t *mu = (pthread_mutex_t *)&t->mu;
    pthread_mutex_lock(mu);
    *ret = t->st;
    pthread_mutex_unlock(mu);
}

/* ---- reading back ---- */

int64_t target_read(struct target *t, void *buf, size_t len, uint64_t pos, struct err *e)
{
    size_t got = 0;
    if (t->nbd)
        return nbd_target_read(t->nbd, buf, len, pos, e);
    while (got < len) {
        ssize_t n = pread(t->fd, (uint8_t *)buf + got, len - got, (off_t)(pos + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, ERR_TARGET, errno, "cannot read %zu bytes at %" PRIu64 " of restore target %s", len - got,
                           pos + got, t->path);
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (int64_t)got;
}

bool target_is_zero(struct target *t, uint64_t pos, uint64_t len)
{
    return t->nbd && nbd_target_is_zero(t->nbd, pos, len);
}

void target_ahead(struct target *t, uint64_t pos, uint64_t len)
{
    if (!t->nbd && target_check_range(t, pos, len, NULL) == 0)
        posix_fadvise(t->fd, (off_t)pos, (off_t)len, POSIX_FADV_WILLNEED);
}

/* ---- writing ---- */

/* What the error of a device does not tell: where to look for its reason. */
static int write_failed(const struct target *t, int sys, struct err *e)
{
    if (t->is_block && !t->nbd && (sys == EIO || sys == ENOSPC || sys == EREMOTEIO))
        err_hint(e, "see dmesg; if it is a thin volume, whether its pool is full: lvs, or zpool list");
    return -sys;
}

static enum err_class write_class(int sys)
{
    return sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE : ERR_TARGET;
}

int target_write_error(const struct target *t, uint64_t pos, uint64_t len, int sys, struct err *e)
{
    int rc = t->nbd ? nbd_target_check(t->nbd, e) : 0;
    if (rc < 0)
        return rc; /* why the connection has ended */
    err_set(e, write_class(sys), sys, "cannot write bytes %" PRIu64 " to %" PRIu64 " of restore target %s", pos,
            pos + (len ? len - 1 : 0), t->path);
    return write_failed(t, sys, e);
}

int target_check_range(const struct target *t, uint64_t pos, uint64_t len, struct err *e)
{
    uint64_t end = t->is_block ? t->size : INT64_MAX;
    if (pos > end || len > end - pos)
        return err_set(e, ERR_TARGET, EINVAL, "%" PRIu64 " bytes at %" PRIu64 " are outside restore target %s", len,
                       pos, t->path);
    return 0;
}

static void writeback_failed(struct target *t, uint64_t pos, int sys)
{
    pthread_mutex_lock(&t->mu);
    if (!t->bad_sys) {
        t->bad_sys = sys;
        t->bad_pos = pos;
    }
    pthread_mutex_unlock(&t->mu);
}

void target_count_written(struct target *t, uint64_t len)
{
    pthread_mutex_lock(&t->mu);
    t->st.written += len;
    pthread_mutex_unlock(&t->mu);
}

void target_spent(struct target *t, uint64_t write_ns, uint64_t wait_ns)
{
    pthread_mutex_lock(&t->mu);
    t->st.write_ns += write_ns;
    t->st.wait_ns += wait_ns;
    pthread_mutex_unlock(&t->mu);
}

void target_wrote(struct target *t, uint64_t pos, uint64_t len)
{
    if (len == 0)
        return;
    if (sync_file_range(t->fd, (off_t)pos, (off_t)len, SYNC_FILE_RANGE_WRITE) < 0 && errno == EIO)
        writeback_failed(t, pos, errno);
    pthread_mutex_lock(&t->mu);
    t->st.written += len;
    t->dirty_bytes += len;
    t->dirty[(t->dirty_head + t->dirty_len) % DIRTY_SLOTS].pos = pos;
    t->dirty[(t->dirty_head + t->dirty_len) % DIRTY_SLOTS].len = len;
    t->dirty_len++;
    while (t->dirty_len == DIRTY_SLOTS || (t->dirty_bytes > DIRTY_MAX && t->dirty_len > 1)) {
        uint64_t at = t->dirty[t->dirty_head].pos, n = t->dirty[t->dirty_head].len;
        t->dirty_head = (t->dirty_head + 1) % DIRTY_SLOTS;
        t->dirty_len--;
        t->dirty_bytes -= n;
        pthread_mutex_unlock(&t->mu);
        uint64_t from = mono_ns();
        int rc = sync_file_range(t->fd, (off_t)at, (off_t)n,
                                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        /* This wait consumes the error of a later fsync, so it is recorded here. */
        if (rc < 0 && errno != EINVAL && errno != ESPIPE && errno != ENOSYS)
            writeback_failed(t, at, errno);
        posix_fadvise(t->fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
        uint64_t waited = mono_ns() - from;
        pthread_mutex_lock(&t->mu);
        t->st.wait_ns += waited;
    }
    pthread_mutex_unlock(&t->mu);
}

static int write_zeros(struct target *t, uint64_t pos, uint64_t len, struct err *e)
{
    struct iovec v[ZERO_IOV];
    while (len) {
        uint64_t ask = 0;
        int n = 0;
        for (; n < ZERO_IOV && ask < len; n++) {
            size_t part = len - ask < sizeof zero_page ? (size_t)(len - ask) : sizeof zero_page;
            v[n] = (struct iovec){(void *)(uintptr_t)zero_page, part};
            ask += part;
        }
        ssize_t w = pwritev(t->fd, v, n, (off_t)pos);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return target_write_error(t, pos, len, w < 0 ? errno : EIO, e);
        target_wrote(t, pos, (uint64_t)w);
        pthread_mutex_lock(&t->mu);
        t->st.written -= (uint64_t)w;
        t->st.zero_written += (uint64_t)w;
        pthread_mutex_unlock(&t->mu);
        pos += (uint64_t)w;
        len -= (uint64_t)w;
    }
    return 0;
}

static bool zero_way_usable(struct target *t, unsigned way)
{
    pthread_mutex_lock(&t->mu);
    bool yes = (t->ways & way) != 0;
    pthread_mutex_unlock(&t->mu);
    return yes;
}

static void zero_way_disable(struct target *t, unsigned way)
{
    pthread_mutex_lock(&t->mu);
    t->ways &= ~way;
    pthread_mutex_unlock(&t->mu);
}

static bool zeroing_refused(int sys)
{
    return sys == EOPNOTSUPP || sys == ENOSYS || sys == EINVAL || sys == ENOTTY || sys == EPERM || sys == EREMOTEIO;
}

/* Discards whole units of [pos, end) and reads them back. [*a, *b) is the part that is zero, possibly empty. */
static int discard_zero(struct target *t, uint64_t pos, uint64_t end, uint64_t *a, uint64_t *b, struct err *e)
{
    enum { STEP = 256 << 10 };
    uint64_t range[2] = {round_up(pos, t->discard), round_down(end, t->discard)};
    *a = *b = pos;
    if (range[1] <= range[0])
        return 0;
    range[1] -= range[0];
    if (ioctl(t->fd, BLKDISCARD, range) < 0) {
        if (zeroing_refused(errno)) {
            zero_way_disable(t, WAY_DISCARD);
            return 0;
        }
        return target_write_error(t, range[0], range[1], errno, e);
    }
    CLEANUP_FREE uint8_t *buf = malloc(STEP);
    if (!buf)
        return err_nomem(e);
    uint64_t at = range[0], stop = range[0] + range[1];
    while (at < stop) {
        size_t n = stop - at < STEP ? (size_t)(stop - at) : STEP;
        int64_t got = target_read(t, buf, n, at, e);
        if (got < 0)
            return (int)got;
        if ((size_t)got < n || !zeros_only(buf, n)) {
            zero_way_disable(t, WAY_DISCARD); /* this device does not return zeros after a discard */
            break;
        }
        at += n;
    }
    posix_fadvise(t->fd, (off_t)range[0], (off_t)range[1], POSIX_FADV_DONTNEED);
    *a = range[0];
    *b = at;
    return 0;
}

/* Zeroes the whole pages of a device's range. */
static int zero_pages(struct target *t, uint64_t pos, uint64_t end, enum target_zero_how *how, struct err *e)
{
    /* On a device this writes zeros and may unmap, and fails if the device does not support it. */
    if (zero_way_usable(t, WAY_PUNCH)) {
        if (fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)pos, (off_t)(end - pos)) == 0) {
            *how = ZERO_PUNCHED;
            return 0;
        }
        if (!zeroing_refused(errno))
            return target_write_error(t, pos, end - pos, errno, e);
        zero_way_disable(t, WAY_PUNCH);
    }
    if (zero_way_usable(t, WAY_DISCARD)) {
        uint64_t a, b;
        int rc = discard_zero(t, pos, end, &a, &b, e);
        if (rc < 0)
            return rc;
        if (b > a) {
            enum target_zero_how rest;
            *how = ZERO_PUNCHED;
            /* Remaining: less than a unit at the ends, or all after the first nonzero byte. */
            rc = a > pos ? zero_pages(t, pos, a, &rest, e) : 0;
            if (rc == 0 && b < end)
                rc = zero_pages(t, b, end, &rest, e);
            return rc;
        }
    }
    if (zero_way_usable(t, WAY_ZEROOUT)) {
        uint64_t range[2] = {pos, end - pos};
        if (ioctl(t->fd, BLKZEROOUT, range) == 0) {
            *how = ZERO_BLKZEROOUT;
            return 0;
        }
        if (!zeroing_refused(errno))
            return target_write_error(t, pos, end - pos, errno, e);
        zero_way_disable(t, WAY_ZEROOUT);
    }
    *how = ZERO_WRITTEN;
    return write_zeros(t, pos, end - pos, e);
}

static int zero_device(struct target *t, uint64_t pos, uint64_t end, enum target_zero_how *how, struct err *e)
{
    /* Whole pages, so that the kernel does not invalidate partly written pages of the page cache. */
    uint64_t a = round_up(pos, PAGE), b = round_down(end, PAGE);
    *how = ZERO_WRITTEN;
    if (a >= b)
        return write_zeros(t, pos, end - pos, e);
    int rc = zero_pages(t, a, b, how, e);
    if (rc == 0 && a > pos)
        rc = write_zeros(t, pos, a - pos, e);
    if (rc == 0 && end > b)
        rc = write_zeros(t, b, end - b, e);
    if (rc == 0 && *how != ZERO_WRITTEN) {
        pthread_mutex_lock(&t->mu);
        *(*how == ZERO_PUNCHED ? &t->st.punched : &t->st.zeroed_out) += b - a;
        pthread_mutex_unlock(&t->mu);
    }
    return rc;
}

static int zero_export(struct target *t, uint64_t pos, uint64_t len, enum target_zero_how *how, struct err *e)
{
    uint64_t written;
    int rc = nbd_target_zero(t->nbd, pos, len, &written, e);
    *how = written < len ? ZERO_BLKZEROOUT : ZERO_WRITTEN;
    pthread_mutex_lock(&t->mu);
    t->st.zero_written += written;
    t->st.zeroed_out += rc < 0 ? 0 : len - written;
    pthread_mutex_unlock(&t->mu);
    return rc;
}

int target_zero(struct target *t, uint64_t pos, uint64_t len, enum target_zero_how *how, struct err *e)
{
    enum target_zero_how dummy;
    if (!how)
        how = &dummy;
    *how = ZERO_SKIPPED;
    int rc = target_check_range(t, pos, len, e);
    if (rc < 0 || len == 0 || t->is_new)
        return rc;
    if (t->nbd)
        return zero_export(t, pos, len, how, e);
    if (t->is_block)
        return zero_device(t, pos, pos + len, how, e);
    if (zero_way_usable(t, WAY_PUNCH)) {
        if (fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)pos, (off_t)len) == 0) {
            pthread_mutex_lock(&t->mu);
            t->st.punched += len;
            pthread_mutex_unlock(&t->mu);
            *how = ZERO_PUNCHED;
            return 0;
        }
        if (!zeroing_refused(errno))
            return target_write_error(t, pos, len, errno, e);
        zero_way_disable(t, WAY_PUNCH);
    }
    *how = ZERO_WRITTEN;
    return write_zeros(t, pos, len, e);
}

/* A thin volume discards whole units only. */
static uint64_t zero_part(const struct target *t, uint64_t pos, uint64_t len, uint64_t about)
{
    const uint64_t unit = t->discard ? t->discard : ZERO_UNIT, step = 2 * unit > about ? 2 * unit : about;
    return len <= step ? len : round_down(pos + step, unit) - pos;
}

uint64_t target_zero_step(const struct target *t, uint64_t pos, uint64_t len)
{
    return t->is_new ? len : zero_part(t, pos, len, ZERO_STEP);
}

uint64_t target_zero_unit(const struct target *t)
{
    if (t->discard) /* of device mapper: likely a thin volume, where written zeros take space and a discard is cheap */
        return round_up(ZERO_RUN, t->discard);
    if (t->is_block)
        return t->nbd || t->unmaps ? ZERO_RUN_FAR : 0;
    return ZERO_RUN;
}

uint64_t target_compare_step(const struct target *t, uint64_t pos, uint64_t len)
{
    if (!t->discard)
        return len < COMPARE_STEP ? len : COMPARE_STEP;
    return zero_part(t, pos, len, COMPARE_STEP);
}

/* ---- the end ---- */

static int sync_directory(const struct target *t, struct err *e)
{
    char dir[sizeof t->path];
    snprintf(dir, sizeof dir, "%s", t->path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        snprintf(dir, sizeof dir, ".");
    else
        slash[slash == dir] = '\0';
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL && errno != EBADF && errno != EOPNOTSUPP))
        return err_set(e, ERR_TARGET, errno, "cannot sync the directory of restore target %s", t->path);
    return 0;
}

/* The kernel reports a failed writeback once, to whoever waits first; a sync that succeeds afterwards proves nothing.
 */
static int target_written_back(struct target *t, struct err *e)
{
    pthread_mutex_lock(&t->mu);
    int sys = t->bad_sys;
    uint64_t pos = t->bad_pos;
    pthread_mutex_unlock(&t->mu);
    if (!sys)
        return 0;
    err_set(e, write_class(sys), sys, "writeback near byte %" PRIu64 " of restore target %s failed", pos, t->path);
    return write_failed(t, sys, e);
}

static int sync_failed(const struct target *t, int sys, struct err *e)
{
    err_set(e, write_class(sys), sys, "cannot sync restore target %s", t->path);
    return write_failed(t, sys, e);
}

int target_sync(struct target *t, struct err *e)
{
    if (t->nbd)
        return nbd_target_flush(t->nbd, e);
    if (fdatasync(t->fd) < 0)
        return sync_failed(t, errno, e);
    int rc = target_written_back(t, e);
    return rc < 0 ? rc : target_present(t, e);
}

int target_finish(struct target *t, struct err *e)
{
    if (t->nbd)
        return nbd_target_flush(t->nbd, e);
    if (!t->is_block) {
        struct stat st;
        int rc = target_unchanged(t, e);
        if (rc < 0)
            return rc;
        if (fstat(t->fd, &st) < 0)
            return err_set(e, ERR_TARGET, errno, "cannot stat restore target %s", t->path);
        if ((uint64_t)st.st_size != t->o.size && ftruncate(t->fd, (off_t)t->o.size) < 0)
            return err_set(e, ERR_TARGET, errno, "cannot set the size of restore target %s to %" PRIu64 " bytes",
                           t->path, t->o.size);
        atomic_store(&t->least, t->o.size);
    }
    if (fsync(t->fd) < 0)
        return sync_failed(t, errno, e);
    int written = target_written_back(t, e);
    if (written < 0)
        return written;
    /* Verification must read from the medium, not from the page cache. */
    posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED);
    int rc = t->created ? sync_directory(t, e) : 0;
    return rc < 0 ? rc : target_present(t, e);
}
