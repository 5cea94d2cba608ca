/* SPDX-License-Identifier: GPL-2.0-or-later */
/* reader-hand.c - synchronous reads: the tail of an odd size, and repairs of failed reads */
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
    return err_set(e, ERR_INTERRUPTED, ECANCELED, "reading %s was canceled", r->info->path);
}

int64_t reader_pread(struct reader *r, int fd, void *buf, size_t len, uint64_t pos)
{
    ssize_t n;
    unsigned again = 0;
    int64_t res;
    if (r->nbd) {
        res = nbd_link_pread(r->nbd, buf, len, pos);
    } else {
        do {
            struct iovec v = {buf, len};
            n = preadv(fd, &v, 1, (off_t)pos);
        } while (n < 0 && (errno == EINTR || (errno == EAGAIN && again++ < AGAIN_MAX)));
        res = n < 0 ? -errno : n;
    }
    if (r->fault.on_result)
        res = r->fault.on_result(r->fault.arg, pos, buf, len, res);
    return res;
}

/* Reads until len bytes are read, an error occurs, or the source ends: returns bytes or negative errno. */
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
            break; /* with O_DIRECT this is the end of a file; the rest of the sector cannot be read */
    }
    return (int64_t)got;
}

static bool source_is_gone(int sys)
{
    return sys == ENODEV || sys == ENXIO || sys == ENOMEDIUM || sys == ESTALE || sys == EBADF || sys == ESHUTDOWN;
}

/* Result of a synchronous read. */
enum hand { HAND_OK, HAND_BAD, HAND_FAILED };

/* The source ended at `pos`, or no longer exists: fills in the error. */
static int ended_early(struct reader *r, uint64_t pos, struct err *e)
{
    int rc = source_recheck(r->src, NULL, NULL, e);
    if (rc < 0)
        return err_wrap(e, "at byte %" PRIu64, pos);
    err_set(e, ERR_SOURCE, 0, "source %s ends at byte %" PRIu64 ", but its size is %" PRIu64 " bytes", r->info->path,
            pos, r->size);
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
            ask = (size_t)round_up(len, r->info->sector); /* still within the block */
    }
    int64_t n = pread_full(r, fd, buf, ask, pos);
    if (fd != r->fd_plain && (n == -EINVAL || (n >= 0 && (size_t)n < len))) {
        /* The page cache has no alignment rule and returns the exact end of a file. */
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
    /* A removed device returns EIO and has no size; its remaining bytes must not be replaced by zeros. */
    if (source_is_gone(*sys) || source_recheck(r->src, NULL, NULL, NULL) < 0) {
        if (source_recheck(r->src, NULL, NULL, e) == 0)
            err_set(e, ERR_SOURCE, *sys, "source %s was removed during the read at byte %" PRIu64, r->info->path, pos);
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

/* A sector that remains unreadable: an error, or zeros, according to the policy. */
static int bad_sector(struct reader *r, uint8_t *buf, size_t len, uint64_t pos, int sys, struct err *e)
{
    uint64_t end = min64(pos + len, r->size);
    if (r->o.bad_read == BAD_READ_FAIL) {
        int rc = err_set(e, ERR_SOURCE, sys, "cannot read bytes %" PRIu64 " to %" PRIu64 " of %s", pos, end - 1,
                         r->info->path);
        err_hint(
            e,
            "check the kernel log for errors of the device; use --bad-reads map to store unreadable ranges as zeros");
        return rc;
    }
    memset(buf, 0, len);
    if (end > r->start)
        add_bad(r, max64(pos, r->start), end, sys);
    return 0;
}

/* Bisects an unreadable range down to its bad sectors. Depth: log2(BLOCK_MAX / 512). */
static int bisect_bad(struct reader *r, uint8_t *buf, size_t len, uint64_t pos, int sys, struct err *e)
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
    size_t half = (size_t)round_up(len / 2, sector);
    for (size_t at = 0; at < len; at += half) {
        size_t n = at + half < len ? half : len - at;
        enum hand h = hand_read(r, buf + at, n, pos + at, &sys, e);
        int rc = h == HAND_OK ? 0 : h == HAND_FAILED ? -EIO : bisect_bad(r, buf + at, n, pos + at, sys, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int64_t probe_pread(void *arg, void *buf, size_t len, uint64_t pos)
{
    struct reader *r = arg;
    return reader_pread(r, r->use_direct ? r->fd_direct : r->fd_plain, buf, len, pos);
}

/*
 * A piece of which something remains unreadable: finds out what. A source of which nothing can be read any more is an
 * error under any policy: searching it sector by sector would take hours and end in zeros. It may also happen
 * meanwhile, so it is asked again before zeros count as the source's; a snapshot that has overflowed remains so.
 */
static int search_bad(struct reader *r, uint8_t *buf, size_t len, uint64_t pos, int sys, struct err *e)
{
    int rc = source_probe(r->src, probe_pread, r, e);
    if (rc < 0)
        return err_wrap(e, "at byte %" PRIu64, pos);
    rc = bisect_bad(r, buf, len, pos, sys, e);
    if (rc < 0 || r->bad_end <= pos || (rc = source_probe(r->src, probe_pread, r, e)) == 0)
        return rc;
    r->bad_end = r->bad_start < pos ? pos : r->bad_start; /* what lies before is published already */
    return err_wrap(e, "at byte %" PRIu64, pos);
}

int reader_mend(struct reader *r, struct piece *p, struct err *e)
{
    size_t off = (size_t)round_down(p->got, r->align);
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
            reader_wait_ms(r, 20u << (i < 5 ? i : 5)); /* allows time for a path failover */
    }
    return search_bad(r, buf, len, p->pos + off, sys, e);
}
