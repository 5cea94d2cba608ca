/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/native/filecopy.h"

#include "base/cleanup.h"
#include "base/throttle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define PIECE ((size_t)1 << 20)
#define GRAIN ((size_t)65536)          /* a run of zeros this long becomes a hole when a device is copied */
#define WRITEBACK ((uint64_t)16 << 20) /* limit of dirty pages: the page cache is for others */

static const uint8_t zeros[GRAIN];

/* The data extent at or after `pos`: [*start, *end). False: only a hole follows. If the file system does not report
 * extents, all is data. */
static bool next_data(const struct filecopy *c, uint64_t pos, uint64_t *start, uint64_t *end)
{
    *start = pos;
    *end = c->size;
    if (pos >= c->size)
        return false;
    if (c->block)
        return true;
    off_t data = lseek(c->src, (off_t)pos, SEEK_DATA);
    if (data < 0)
        return errno != ENXIO;
    off_t hole = lseek(c->src, data, SEEK_HOLE);
    *start = (uint64_t)data;
    if (hole > data && (uint64_t)hole < c->size)
        *end = (uint64_t)hole;
    return *start < c->size;
}

int filecopy_needs(const struct filecopy *c, uint64_t *ret, struct err *e)
{
    uint64_t start, end, pos = 0;
    (void)e;
    *ret = 0;
    while (next_data(c, pos, &start, &end)) {
        *ret += end - start;
        pos = end;
    }
    return 0;
}

int space_check(int dir, const char *path, uint64_t need, struct err *e)
{
    struct statvfs v;
    if (fstatvfs(dir, &v) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot determine free space of %s", path);
    uint64_t have = (uint64_t)v.f_bavail * v.f_frsize;
    uint64_t extra = need / 128 + ((uint64_t)1 << 20); /* metadata of the file system */
    if (have >= extra && have - extra >= need)
        return 0;
    err_set(e, ERR_NO_SPACE, ENOSPC, "%s has %" PRIu64 " bytes free, %" PRIu64 " needed", path, have, need + extra);
    err_hint(e, "free space there, or use another backup-storage-class");
    return -ENOSPC;
}

static int write_all(int fd, const char *path, const uint8_t *buf, size_t len, uint64_t pos, struct err *e)
{
    while (len) {
        ssize_t n = pwrite(fd, buf, len, (off_t)pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int sys = n < 0 ? errno : EIO;
            return err_set(e, sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE : ERR_TARGET, sys,
                           "cannot write %zu bytes at %" PRIu64 " of %s", len, pos, path);
        }
        buf += n;
        pos += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

struct copying {
    const struct filecopy *c;
    int dst;
    const char *dst_path;
    uint8_t *buf;
    uint64_t copied, flushed, read;
    struct throttle limit;
};

static int write_piece(struct copying *w, size_t len, uint64_t pos, struct err *e)
{
    for (size_t at = 0; at < len;) {
        size_t n = len;
        if (w->c->block) {
            n = len - at < GRAIN ? len - at : GRAIN;
            if (memcmp(w->buf + at, zeros, n) == 0) {
                at += n;
                continue;
            }
        }
        int rc = write_all(w->dst, w->dst_path, w->buf + at, n, pos + at, e);
        if (rc < 0)
            return rc;
        w->copied += n;
        throttle_take(&w->limit, n);
        at += n;
    }
    return 0;
}

/* All before `done` is as it should be. */
static void tell(const struct copying *w, uint64_t done)
{
    const struct fill *f = w->c->watched;
    const struct fill_progress now = {.done = done, .read = w->read, .skipped = done - w->read};
    if (f && f->progress)
        f->progress(&now, f->arg);
}

static int copy_extent(struct copying *w, uint64_t pos, uint64_t end, struct err *e)
{
    const struct filecopy *c = w->c;
    /* A tenth of a second's worth at most, so that a low rate is even and not in bursts. */
    size_t piece = c->rate && c->rate / 10 < PIECE ? (size_t)(c->rate / 10) : PIECE;
    piece = piece < 4096 ? 4096 : piece - piece % 4096;
    while (pos < end) {
        size_t len = end - pos < piece ? (size_t)(end - pos) : piece;
        ssize_t n = pread(c->src, w->buf, len, (off_t)pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, ERR_SOURCE, n < 0 ? errno : 0, "cannot read %zu bytes at %" PRIu64 " of %s%s", len, pos,
                           c->src_path, n == 0 ? ": truncated meanwhile" : "");
        int rc = write_piece(w, (size_t)n, pos, e);
        if (rc < 0)
            return rc;
        pos += (uint64_t)n;
        w->read += (uint64_t)n;
        tell(w, pos);
        if (pos - w->flushed >= WRITEBACK || pos == end) {
            sync_file_range(w->dst, (off_t)w->flushed, (off_t)(pos - w->flushed), SYNC_FILE_RANGE_WRITE);
            posix_fadvise(c->src, (off_t)w->flushed, (off_t)(pos - w->flushed), POSIX_FADV_DONTNEED);
            w->flushed = pos;
        }
        throttle_wait(&w->limit, 0);
    }
    return 0;
}

int filecopy_run(const struct filecopy *c, int dst, const char *dst_path, uint64_t *copied, struct err *e)
{
    CLEANUP_FREE uint8_t *buf = malloc(PIECE);
    struct copying w = {.c = c, .dst = dst, .dst_path = dst_path, .buf = buf, .limit = {.rate = c->rate}};
    uint64_t start, end, pos = 0;
    if (!buf)
        return err_nomem(e);
    if (c->size > INT64_MAX || ftruncate(dst, (off_t)c->size) < 0)
        return err_set(e, ERR_TARGET, c->size > INT64_MAX ? EFBIG : errno, "cannot make %s a file of %" PRIu64 " bytes",
                       dst_path, c->size);
    while (next_data(c, pos, &start, &end)) {
        w.flushed = start;
        int rc = copy_extent(&w, start, end, e);
        if (rc < 0)
            return rc;
        pos = end;
    }
    tell(&w, c->size);
    *copied = w.copied;
    return 0;
}
