/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reading by hand: the tail of an odd size, and whatever went wrong. */
#include "io/reader-impl.h"

#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

void reader_fallback(struct reader *r, const char *fmt, ...)
{
    char line[sizeof r->st.fallback];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&r->mu);
    size_t n = strlen(r->st.fallback);
    snprintf(r->st.fallback + n, sizeof r->st.fallback - n, "%s%s", n ? "; " : "", line);
    pthread_mutex_unlock(&r->mu);
}

bool reader_is_cancelled(struct reader *r)
{
    pthread_mutex_lock(&r->mu);
    bool c = r->cancelled;
    pthread_mutex_unlock(&r->mu);
    return c;
}

void reader_wait_ms(struct reader *r, unsigned ms)
{
    const struct timespec until = ns_timespec(mono_ns() + ms * NS_PER_MS);
    pthread_mutex_lock(&r->mu);
    while (!r->cancelled && pthread_cond_timedwait(&r->room_cv, &r->mu, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&r->mu);
}

int reader_cancelled(struct reader *r, struct err *e)
{
    return err_set(e, ERR_INTERRUPTED, ECANCELED, "reading of %s was cancelled", r->info->path);
}

int64_t reader_pread(struct reader *r, int fd, void *buf, size_t len, uint64_t pos)
{
    ssize_t n;
    unsigned again = 0;
    do {
        struct iovec v = {buf, len};
        n = preadv(fd, &v, 1, (off_t)pos);
    } while (n < 0 && (errno == EINTR || (errno == EAGAIN && again++ < AGAIN_MAX)));
    int64_t res = n < 0 ? -errno : n;
    if (r->fault.on_result)
        res = r->fault.on_result(r->fault.arg, pos, buf, len, res);
    return res;
}

/* Reads until len bytes are there, an error comes, or the source ends: returns bytes or negative errno. */
static int64_t pread_full(struct reader *r, int fd, uint8_t *buf, size_t len, uint64_t pos)
{
    size_t got = 0;
    unsigned again = 0;
    while (got < len) {
        int64_t n = reader_pread(r, fd, buf + got, len - got, pos + got);
        if ((n == -EINTR || n == -EAGAIN) && again++ < AGAIN_MAX && !reader_is_cancelled(r))
            continue;
        if (n < 0)
            return n;
        if (n == 0)
            break;
        got += (size_t)n;
        if (fd == r->fd_direct && got % r->info->sector != 0)
            break; /* O_DIRECT stops in mid-sector only at the end of a file, and cannot go on from there */
    }
    return (int64_t)got;
}

static bool source_is_gone(int sys)
{
    return sys == ENODEV || sys == ENXIO || sys == ENOMEDIUM || sys == ESTALE || sys == EBADF || sys == ESHUTDOWN;
}

/* What a read by hand came to. */
enum hand { HAND_OK, HAND_BAD, HAND_FAILED };

/* The source ended at `pos`, or is not there any more: fills r->err through e. */
static int ended_early(struct reader *r, uint64_t pos, struct err *e)
{
    int rc = source_recheck(r->src, NULL, NULL, e);
    if (rc < 0)
        return err_wrap(e, "at byte %" PRIu64, pos);
    err_set(e, ERR_SOURCE, 0, "source %s ends at byte %" PRIu64 " although its size is %" PRIu64 " bytes",
            r->info->path, pos, r->size);
    return -EIO;
}

static enum hand hand_read(struct reader *r, uint8_t *buf, size_t len, uint64_t pos, int *sys, struct err *e)
{
    int fd = r->use_direct ? r->fd_direct : r->fd_plain;
    size_t ask = len;
    if (fd == r->fd_direct && len % r->info->sector != 0) {
        if (fd != r->fd_plain)
            fd = r->fd_plain;
        else
            ask = (size_t)up(len, r->info->sector); /* still inside the block */
    }
    int64_t n = pread_full(r, fd, buf, ask, pos);
    if (fd != r->fd_plain && (n == -EINVAL || (n >= 0 && (size_t)n < len))) {
        /* The page cache knows better: no alignment rule, and the exact end of a file. */
        size_t have = n > 0 ? (size_t)n : 0;
        int64_t m = pread_full(r, r->fd_plain, buf + have, len - have, pos + have);
        n = m < 0 ? m : (int64_t)have + m;
    }
    uint64_t want = min64(len, r->size - pos);
    if (n >= 0 && (uint64_t)n >= want) {
        r->reads++;
        r->read_bytes += want;
        return HAND_OK;
    }
    if (n >= 0) {
        ended_early(r, pos + (uint64_t)n, e);
        return HAND_FAILED;
    }
    *sys = (int)-n;
    /* A device that was pulled out answers EIO, and has no size. Zeros must not stand for the rest of it. */
    if (source_is_gone(*sys) || source_recheck(r->src, NULL, NULL, NULL) < 0) {
        if (source_recheck(r->src, NULL, NULL, e) == 0)
            err_set(e, ERR_SOURCE, *sys, "source %s has vanished at byte %" PRIu64, r->info->path, pos);
        return HAND_FAILED;
    }
    return HAND_BAD;
}

void reader_flush_bad(struct reader *r)
{
    if (r->bad_end > r->bad_start && r->o.on_bad)
        r->o.on_bad(r->bad_start, r->bad_end - r->bad_start, r->bad_sys, r->o.on_bad_arg);
    r->bad_start = r->bad_end = 0;
}

static void add_bad(struct reader *r, uint64_t pos, uint64_t end, int sys)
{
    if (r->bad_end != pos || r->bad_end == r->bad_start) {
        reader_flush_bad(r);
        r->bad_start = pos;
        r->bad_sys = sys;
    }
    r->bad_end = end;
    pthread_mutex_lock(&r->mu);
    r->st.bad_bytes += end - pos;
    pthread_mutex_unlock(&r->mu);
}

/* One sector that stays unreadable: by policy an error, or zeros. */
static int bad_sector(struct reader *r, uint8_t *buf, size_t len, uint64_t pos, int sys, struct err *e)
{
    uint64_t end = min64(pos + len, r->size);
    if (r->o.bad_read == BAD_READ_FAIL) {
        int rc = err_set(e, ERR_SOURCE, sys, "cannot read bytes %" PRIu64 " to %" PRIu64 " of %s", pos, end - 1,
                         r->info->path);
        err_hint(e, "check the device's log; a run that maps unreadable ranges to zeros can save the rest");
        return rc;
    }
    memset(buf, 0, len);
    if (end > r->start)
        add_bad(r, max64(pos, r->start), end, sys);
    return 0;
}

/* Halves a range that cannot be read until the bad sectors stand alone. Depth: log2(BLOCK_MAX / 512). */
static int narrow(struct reader *r, uint8_t *buf, size_t len, uint64_t pos, int sys, struct err *e)
{
    size_t sector = r->info->sector;
    if (reader_is_cancelled(r))
        return reader_cancelled(r, e);
    if (len <= sector) {
        for (unsigned i = 0; i < r->o.retries; i++) {
            enum hand h = hand_read(r, buf, len, pos, &sys, e);
            if (h != HAND_BAD)
                return h == HAND_OK ? 0 : -EIO;
        }
        return bad_sector(r, buf, len, pos, sys, e);
    }
    size_t half = (size_t)up(len / 2, sector);
    for (size_t at = 0; at < len; at += half) {
        size_t n = at + half < len ? half : len - at;
        enum hand h = hand_read(r, buf + at, n, pos + at, &sys, e);
        int rc = h == HAND_OK ? 0 : h == HAND_FAILED ? -EIO : narrow(r, buf + at, n, pos + at, sys, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int reader_mend(struct reader *r, struct piece *p, struct err *e)
{
    size_t off = (size_t)down(p->got, r->align);
    uint8_t *buf = r->mem + p->v % r->ring + off;
    size_t len = p->len - off;
    int sys = EIO;
    for (unsigned i = 0; i <= r->o.retries; i++) {
        if (reader_is_cancelled(r))
            return reader_cancelled(r, e);
        enum hand h = hand_read(r, buf, len, p->pos + off, &sys, e);
        if (h != HAND_BAD)
            return h == HAND_OK ? 0 : -EIO;
        if (i < r->o.retries)
            reader_wait_ms(r, 20u << (i < 5 ? i : 5)); /* a path that fails over needs a moment */
    }
    return narrow(r, buf, len, p->pos + off, sys, e);
}
