/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/reader.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/reader-test.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <isa-l/mem_routines.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

/*
 * Addresses. A position in the source is `pos`. What goes into the ring has a second, gapless address v = pos - base,
 * and lies at v % ring. base is a multiple of `block` and grows by the length of each skipped middle of a hole, which
 * is a multiple of `block` too: so v and pos are equal modulo the block, reads keep the alignment that O_DIRECT wants,
 * and a block never straddles the end of the ring.
 *
 * Pieces (a read, or zeros of a hole) are begun in order, completed in any order, and published in order.
 */
#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCK_DEFAULT ((size_t)1 << 20)
#define BLOCK_MAX ((size_t)64 << 20)
#define DEPTH_MAX 256u
#define POOL_MAX 8u                   /* threads that stand in for io_uring */
#define FIXED_MAX ((size_t)512 << 20) /* bytes per registered buffer; the kernel takes at most 1 GiB */
#define HOLE_MIN ((uint64_t)64 << 10) /* shorter holes are read: cheaper than two requests around them */
#define AGAIN_MAX 64u

enum piece_state { PIECE_FLYING, PIECE_DONE, PIECE_BROKEN };

struct piece {
    uint64_t pos, v;
    size_t len;   /* what is asked for, sector-aligned where the position is */
    uint64_t end; /* position up to which it fills the stream; may be less than pos + len at the end of the source */
    size_t got;
    unsigned again;
    enum piece_state state;  /* the reader's thread only */
    enum piece_state result; /* what state will become, from whoever read */
    struct piece *next;      /* in the pool's queues */
};

struct hole {
    uint64_t start, end;
};

struct skip {
    uint64_t from, to; /* positions [from, to) are not in the ring */
    uint64_t base;     /* of positions before `from` */
};

/* Threads that call preadv: the stand-in where io_uring is refused. */
struct pool {
    pthread_mutex_t mu;
    pthread_cond_t todo_cv, done_cv;
    struct piece *todo, **todo_tail, *done;
    pthread_t thread[POOL_MAX];
    unsigned threads;
    bool stop;
};

struct reader {
    struct source *src;
    const struct source_info *info;
    struct reader_opts o;
    struct reader_fault fault;
    uint64_t size, start;
    size_t ring, window, block, align;
    unsigned depth;
    uint8_t *mem;     /* of the ring, and its mirror behind it */
    uint8_t *mapping; /* what it lies in */
    size_t mapped;

    int fd_direct, fd_plain; /* fd_direct -1: no O_DIRECT; fd_plain is the source's */
    int restore_flags;       /* of the source's descriptor, if O_DIRECT had to be set on it; else -1 */
    bool use_direct;         /* reader's thread, set before the pool starts */

    /* The reader's thread only. */
    struct piece *fifo;
    unsigned fifo_cap, fifo_head, fifo_len, flying, flying_max;
    uint64_t cursor, base; /* next position to begin a piece at */
    struct extent ext;     /* the last one asked for */
    bool ext_valid;
    struct io_uring uring;
    bool uring_up, fixed;
    struct pool pool;
    uint64_t bad_start, bad_end; /* a bad range that may go on in the next piece */
    int bad_sys;
    uint64_t reads, read_bytes;

    pthread_t thread;
    bool started;
    pthread_mutex_t mu;
    pthread_cond_t data_cv, room_cv;
    /* Under mu. */
    bool cancelled, finished;
    uint64_t filled; /* all before is in the ring, or was, or is a skipped middle */
    uint64_t released;
    uint64_t base_first; /* base before the first of skips */
    struct hole *holes;  /* rings of `list_cap` */
    struct skip *skips;
    size_t list_cap, hole_head, hole_len, skip_head, skip_len;
    struct reader_stats st;
    struct err err; /* cls ERR_NONE: none */
};

static uint64_t down(uint64_t x, uint64_t a)
{
    return x - x % a;
}

static uint64_t up(uint64_t x, uint64_t a)
{
    return x % a ? x + (a - x % a) : x;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool zeros_only(const void *data, size_t len)
{
    return len == 0 || isal_zero_detect((void *)(uintptr_t)data, len) == 0;
}

/* ---- the lists of holes and skips; mu is held ---- */

static struct hole *hole_at(struct reader *r, size_t i)
{
    return &r->holes[(r->hole_head + i) % r->list_cap];
}

static struct skip *skip_at(struct reader *r, size_t i)
{
    return &r->skips[(r->skip_head + i) % r->list_cap];
}

/* Number of holes that begin at or before pos. */
static size_t holes_until(struct reader *r, uint64_t pos)
{
    size_t lo = 0, hi = r->hole_len;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (hole_at(r, mid)->start <= pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Number of skips whose middle begins at or before pos. */
static size_t skips_until(struct reader *r, uint64_t pos)
{
    size_t lo = 0, hi = r->skip_len;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (skip_at(r, mid)->from <= pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The gapless address of a position; a position in a skipped middle has that of the seam. */
static uint64_t v_of(struct reader *r, uint64_t pos)
{
    size_t n = skips_until(r, pos);
    if (n == 0)
        return pos - r->base_first;
    const struct skip *k = skip_at(r, n - 1);
    if (pos < k->to)
        return k->from - k->base;
    return pos - (k->base + (k->to - k->from));
}

/* The consumer may have released what the cursor has still to pass: that is kept. The reader's thread only. */
static void forget_released(struct reader *r)
{
    uint64_t pos = min64(r->released, r->cursor);
    while (r->hole_len && hole_at(r, 0)->end <= pos) {
        r->hole_head = (r->hole_head + 1) % r->list_cap;
        r->hole_len--;
    }
    while (r->skip_len && skip_at(r, 0)->to <= pos) {
        const struct skip *k = skip_at(r, 0);
        r->base_first = k->base + (k->to - k->from);
        r->skip_head = (r->skip_head + 1) % r->list_cap;
        r->skip_len--;
    }
}

/* ---- errors and remarks ---- */

static void fallback(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fallback(struct reader *r, const char *fmt, ...)
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

static bool is_cancelled(struct reader *r)
{
    pthread_mutex_lock(&r->mu);
    bool c = r->cancelled;
    pthread_mutex_unlock(&r->mu);
    return c;
}

static void wait_ms(struct reader *r, unsigned ms)
{
    const struct timespec until = ns_timespec(mono_ns() + ms * NS_PER_MS);
    pthread_mutex_lock(&r->mu);
    while (!r->cancelled && pthread_cond_timedwait(&r->room_cv, &r->mu, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&r->mu);
}

/* ---- reading by hand: the tail of an odd size, and whatever went wrong ---- */

static int64_t pread_once(struct reader *r, int fd, void *buf, size_t len, uint64_t pos)
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
        int64_t n = pread_once(r, fd, buf + got, len - got, pos + got);
        if ((n == -EINTR || n == -EAGAIN) && again++ < AGAIN_MAX && !is_cancelled(r))
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

static void flush_bad(struct reader *r)
{
    if (r->bad_end > r->bad_start && r->o.on_bad)
        r->o.on_bad(r->bad_start, r->bad_end - r->bad_start, r->bad_sys, r->o.on_bad_arg);
    r->bad_start = r->bad_end = 0;
}

static void add_bad(struct reader *r, uint64_t pos, uint64_t end, int sys)
{
    if (r->bad_end != pos || r->bad_end == r->bad_start) {
        flush_bad(r);
        r->bad_start = pos;
        r->bad_sys = sys;
    }
    r->bad_end = end;
    pthread_mutex_lock(&r->mu);
    r->st.bad_bytes += end - pos;
    pthread_mutex_unlock(&r->mu);
}

static int cancelled_err(struct reader *r, struct err *e)
{
    return err_set(e, ERR_INTERRUPTED, ECANCELED, "reading of %s was cancelled", r->info->path);
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
    if (is_cancelled(r))
        return cancelled_err(r, e);
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

/* Mends the piece at the head of the line, so that bad ranges come to light in order. */
static int mend(struct reader *r, struct piece *p, struct err *e)
{
    size_t off = (size_t)down(p->got, r->align);
    uint8_t *buf = r->mem + p->v % r->ring + off;
    size_t len = p->len - off;
    int sys = EIO;
    for (unsigned i = 0; i <= r->o.retries; i++) {
        if (is_cancelled(r))
            return cancelled_err(r, e);
        enum hand h = hand_read(r, buf, len, p->pos + off, &sys, e);
        if (h != HAND_BAD)
            return h == HAND_OK ? 0 : -EIO;
        if (i < r->o.retries)
            wait_ms(r, 20u << (i < 5 ? i : 5)); /* a path that fails over needs a moment */
    }
    return narrow(r, buf, len, p->pos + off, sys, e);
}

/* ---- reads in flight: io_uring, or threads ---- */

static void piece_result(struct piece *p, int64_t res)
{
    p->result = PIECE_BROKEN;
    if (res <= 0)
        return;
    p->got += (size_t)res;
    if (p->got >= p->len)
        p->result = PIECE_DONE;
}

static void *pool_main(void *arg)
{
    struct reader *r = arg;
    struct pool *q = &r->pool;
    pthread_mutex_lock(&q->mu);
    for (;;) {
        while (!q->todo && !q->stop)
            pthread_cond_wait(&q->todo_cv, &q->mu);
        struct piece *p = q->todo;
        if (!p)
            break;
        q->todo = p->next;
        if (!q->todo)
            q->todo_tail = &q->todo;
        pthread_mutex_unlock(&q->mu);

        int fd = r->use_direct ? r->fd_direct : r->fd_plain;
        while (p->got < p->len) {
            int64_t n = pread_once(r, fd, r->mem + p->v % r->ring + p->got, p->len - p->got, p->pos + p->got);
            if ((n == -EINTR || n == -EAGAIN) && p->again++ < AGAIN_MAX)
                continue;
            piece_result(p, n);
            if (n <= 0 || n % (int64_t)r->align != 0)
                break;
        }
        pthread_mutex_lock(&q->mu);
        p->next = q->done;
        q->done = p;
        pthread_cond_signal(&q->done_cv);
    }
    pthread_mutex_unlock(&q->mu);
    return NULL;
}

static int pool_start(struct reader *r)
{
    struct pool *q = &r->pool;
    pthread_mutex_init(&q->mu, NULL);
    pthread_cond_init(&q->todo_cv, NULL);
    pthread_cond_init(&q->done_cv, NULL);
    q->todo_tail = &q->todo;
    unsigned n = r->depth < POOL_MAX ? r->depth : POOL_MAX;
    while (q->threads < n && pthread_create(&q->thread[q->threads], NULL, pool_main, r) == 0)
        q->threads++;
    return q->threads ? 0 : -EAGAIN;
}

static void pool_stop(struct reader *r)
{
    struct pool *q = &r->pool;
    pthread_mutex_lock(&q->mu);
    q->stop = true;
    pthread_cond_broadcast(&q->todo_cv);
    pthread_mutex_unlock(&q->mu);
    for (unsigned i = 0; i < q->threads; i++)
        pthread_join(q->thread[i], NULL);
    pthread_cond_destroy(&q->todo_cv);
    pthread_cond_destroy(&q->done_cv);
    pthread_mutex_destroy(&q->mu);
}

static void begin_read(struct reader *r, struct piece *p)
{
    r->reads++;
    if (!r->uring_up) {
        struct pool *q = &r->pool;
        p->next = NULL;
        pthread_mutex_lock(&q->mu);
        *q->todo_tail = p;
        q->todo_tail = &p->next;
        pthread_cond_signal(&q->todo_cv);
        pthread_mutex_unlock(&q->mu);
        return;
    }
    /* The queue has twice `depth` entries, and no more than `depth` reads are ever in flight. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    size_t at = p->v % r->ring + p->got;
    unsigned len = (unsigned)(p->len - p->got);
    int file = r->use_direct ? 0 : 1;
    if (r->fixed)
        io_uring_prep_read_fixed(sqe, file, r->mem + at, len, p->pos + p->got, (int)(at / FIXED_MAX));
    else
        io_uring_prep_read(sqe, file, r->mem + at, len, p->pos + p->got);
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, p);
}

static void uring_result(struct reader *r, struct piece *p, int64_t res)
{
    if (r->fault.on_result)
        res = r->fault.on_result(r->fault.arg, p->pos + p->got, r->mem + p->v % r->ring + p->got, p->len - p->got, res);
    bool again = (res == -EINTR || res == -EAGAIN) && p->again++ < AGAIN_MAX;
    if (!again)
        piece_result(p, res);
    /* A short read is continued where a sector begins; otherwise mend() looks whether the source ends there. */
    if (again || (p->result == PIECE_BROKEN && res > 0 && res % (int64_t)r->align == 0)) {
        begin_read(r, p);
    } else {
        p->state = p->result;
        r->flying--;
    }
}

/* Waits for at least one read that is in flight. */
static int wait_reads(struct reader *r, struct err *e)
{
    if (!r->uring_up) {
        struct pool *q = &r->pool;
        pthread_mutex_lock(&q->mu);
        while (!q->done)
            pthread_cond_wait(&q->done_cv, &q->mu);
        for (; q->done; q->done = q->done->next) {
            q->done->state = q->done->result;
            r->flying--;
        }
        pthread_mutex_unlock(&q->mu);
        return 0;
    }
    int rc;
    do {
        rc = io_uring_submit_and_wait(&r->uring, 1);
    } while (rc == -EINTR);
    if (rc < 0 && rc != -EAGAIN && rc != -EBUSY)
        return err_set(e, ERR_SOURCE, -rc, "io_uring cannot read %s", r->info->path);
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&r->uring, &cqe) == 0) {
        struct piece *p = io_uring_cqe_get_data(cqe);
        int64_t res = cqe->res;
        io_uring_cqe_seen(&r->uring, cqe);
        uring_result(r, p, res);
    }
    return 0;
}

static int uring_open(struct reader *r)
{
    static const unsigned flags[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN,
                                     0};
    int rc = -EINVAL;
    for (unsigned i = r->fault.lower_flags; i < 3; i++) {
        rc = io_uring_queue_init(r->depth * 2, &r->uring, flags[i]);
        if (rc != -EINVAL)
            break;
    }
    if (rc < 0)
        return rc;
    int fds[2] = {r->fd_direct >= 0 ? r->fd_direct : r->fd_plain, r->fd_plain};
    rc = io_uring_register_files(&r->uring, fds, 2);
    if (rc < 0) {
        io_uring_queue_exit(&r->uring);
        return rc;
    }
    return 0;
}

static void uring_fix_buffers(struct reader *r)
{
    unsigned n = (unsigned)((r->ring + FIXED_MAX - 1) / FIXED_MAX);
    CLEANUP_FREE struct iovec *v = calloc(n, sizeof *v);
    int rc = -ENOMEM;
    if (v) {
        for (unsigned i = 0; i < n; i++)
            v[i] = (struct iovec){r->mem + i * FIXED_MAX, min64(FIXED_MAX, r->ring - i * FIXED_MAX)};
        rc = io_uring_register_buffers(&r->uring, v, n);
    }
    r->fixed = rc == 0;
    struct rlimit lim;
    if (rc == -ENOMEM && getrlimit(RLIMIT_MEMLOCK, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY)
        fallback(r, "no registered buffers: RLIMIT_MEMLOCK is %llu KiB, the ring has %zu KiB",
                 (unsigned long long)lim.rlim_cur >> 10, r->ring >> 10);
    else if (rc < 0)
        fallback(r, "no registered buffers: %s", strerror(-rc));
}

/* ---- planning ---- */

/* The extent at pos, its hole edges drawn in to whole pages so that reads beside it stay aligned. */
static int extent_at(struct reader *r, uint64_t pos, struct extent *ret, struct err *e)
{
    struct extent *x = &r->ext;
    if (!r->ext_valid || pos < x->start || pos >= x->start + x->len) {
        r->ext_valid = false;
        int rc = source_extent(r->src, pos, x, e);
        if (rc < 0)
            return rc;
        r->ext_valid = true;
        if (x->hole) {
            uint64_t a = pos == r->start ? pos : up(pos, r->align);
            uint64_t b = x->start + x->len == r->size ? r->size : down(x->start + x->len, r->align);
            if (b < a || b - a < HOLE_MIN)
                x->hole = false;
            else if (a > pos)
                *x = (struct extent){pos, a - pos, false};
            else
                x->len = b - pos;
        }
    }
    *ret = (struct extent){pos, x->start + x->len - pos, x->hole};
    return 0;
}

/* The cursor stands at a hole: notes it, so that the consumer can know its end before its zeros are through. */
static void enter_hole(struct reader *r, const struct extent *x)
{
    uint64_t end = x->start + x->len;
    uint64_t from = up(x->start + r->window, r->block);
    uint64_t to = end > r->window ? down(end - r->window, r->block) : 0;
    pthread_mutex_lock(&r->mu);
    *hole_at(r, r->hole_len) = (struct hole){x->start, end};
    r->hole_len++;
    if (to > from) {
        *skip_at(r, r->skip_len) = (struct skip){from, to, r->base};
        r->skip_len++;
    }
    r->st.hole_bytes += x->len;
    pthread_mutex_unlock(&r->mu);
}

/*
 * Plans the piece at the cursor. Returns 1 if there is one, 0 if there is no room for it yet, negative on error.
 * *zero: it is part of a hole.
 */
static int plan(struct reader *r, struct piece *p, bool *zero, struct err *e)
{
    struct extent x;
    int rc = extent_at(r, r->cursor, &x, e);
    if (rc < 0)
        return rc;

    pthread_mutex_lock(&r->mu);
    forget_released(r);
    bool known = r->hole_len > 0 && hole_at(r, r->hole_len - 1)->end > r->cursor;
    bool listed = r->hole_len < r->list_cap && r->skip_len < r->list_cap;
    pthread_mutex_unlock(&r->mu);
    if (x.hole && !known) {
        if (!listed)
            return 0;
        enter_hole(r, &x);
    }
    pthread_mutex_lock(&r->mu);
    if (x.hole && r->skip_len > 0) {
        const struct skip *k = skip_at(r, r->skip_len - 1);
        if (r->cursor == k->from) {
            r->cursor = k->to;
            r->base = k->base + (k->to - k->from);
        }
    }
    uint64_t room = v_of(r, min64(r->released, r->cursor)) + r->ring;
    uint64_t end = min64(down(r->cursor, r->block) + r->block, r->size);
    if (x.hole) {
        end = min64(end, x.start + x.len);
        if (r->skip_len > 0 && skip_at(r, r->skip_len - 1)->from > r->cursor)
            end = min64(end, skip_at(r, r->skip_len - 1)->from);
    }
    pthread_mutex_unlock(&r->mu);
    *zero = x.hole;

    uint64_t at = x.hole || r->cursor != r->start ? r->cursor : down(r->cursor, r->align);
    if (!x.hole) {
        /* Data goes on through holes that are too short to be worth a request, but not behind the block. */
        uint64_t to = x.start + x.len;
        while (to < end) {
            rc = extent_at(r, to, &x, e);
            if (rc < 0)
                return rc;
            if (x.hole)
                break;
            to = x.start + x.len;
        }
        end = min64(end, to);
        /* The last part of a sector cannot be read with O_DIRECT: it is a piece of its own. */
        uint64_t whole = down(end, r->info->sector);
        if (whole > r->cursor)
            end = whole;
    }
    *p = (struct piece){.pos = at, .v = at - r->base, .len = (size_t)(end - at), .end = end, .state = PIECE_FLYING};
    return p->v + p->len <= room;
}

/* ---- the thread ---- */

static struct piece *fifo_at(struct reader *r, unsigned i)
{
    return &r->fifo[(r->fifo_head + i) % r->fifo_cap];
}

/* Begins pieces as far as depth, line and room allow. Returns 1 if it stopped for want of room. */
static int begin_pieces(struct reader *r, struct err *e)
{
    while (r->cursor < r->size && r->flying < r->depth && r->fifo_len < r->fifo_cap &&
           throttle_ahead_ns(r->o.limit) == 0) {
        struct piece *p = fifo_at(r, r->fifo_len);
        bool zero = false;
        int rc = plan(r, p, &zero, e);
        if (rc <= 0)
            return rc < 0 ? rc : 1;
        r->fifo_len++;
        r->cursor = p->end;
        if (!zero)
            throttle_take(r->o.limit, p->len);
        if (zero) {
            memset(r->mem + p->v % r->ring, 0, p->len);
            p->state = PIECE_DONE;
        } else if (p->len % r->info->sector != 0) {
            p->state = PIECE_BROKEN; /* the odd tail: read by hand when its turn comes */
        } else {
            r->flying++;
            if (r->flying > r->flying_max)
                r->flying_max = r->flying;
            begin_read(r, p);
        }
    }
    return 0;
}

static void publish(struct reader *r, uint64_t end)
{
    pthread_mutex_lock(&r->mu);
    r->filled = end;
    r->st.read_bytes = r->read_bytes;
    r->st.reads = r->reads;
    r->st.inflight_max = r->uring_up ? r->flying_max : 0;
    pthread_cond_signal(&r->data_cv);
    pthread_mutex_unlock(&r->mu);
}

/* Hands out what is complete at the head of the line. */
static int publish_pieces(struct reader *r, struct err *e)
{
    while (r->fifo_len > 0 && fifo_at(r, 0)->state != PIECE_FLYING) {
        struct piece *p = fifo_at(r, 0);
        if (p->state == PIECE_BROKEN) {
            int rc = mend(r, p, e);
            if (rc < 0)
                return rc;
        } else if (p->got) {
            r->read_bytes += p->len;
        }
        /* A bad range is reported before any byte behind it is handed out. */
        if (r->bad_end != p->end || p->end == r->size)
            flush_bad(r);
        r->fifo_head = (r->fifo_head + 1) % r->fifo_cap;
        r->fifo_len--;
        publish(r, p->end);
    }
    return 0;
}

/* Nothing is in flight and the ring is full: waits for the consumer. */
static void wait_room(struct reader *r, uint64_t seen)
{
    uint64_t t = mono_ns();
    pthread_mutex_lock(&r->mu);
    while (!r->cancelled && r->released == seen)
        pthread_cond_wait(&r->room_cv, &r->mu);
    r->st.full_ns += mono_ns() - t;
    pthread_mutex_unlock(&r->mu);
}

/* Nothing is in flight, and the limit says not yet. */
static void wait_turn(struct reader *r)
{
    const uint64_t ms = throttle_ahead_ns(r->o.limit) / 1000000 + 1;
    wait_ms(r, ms < 100 ? (unsigned)ms : 100);
}

static int run(struct reader *r, struct err *e)
{
    int rc = 0;
    struct err plan_err = ERR_INIT;
    bool planning = true;
    while (!is_cancelled(r)) {
        pthread_mutex_lock(&r->mu);
        uint64_t seen = r->released;
        pthread_mutex_unlock(&r->mu);
        int no_room = 0;
        if (planning) {
            no_room = begin_pieces(r, &plan_err);
            planning = no_room >= 0; /* what lies before the error is still handed out */
        }
        if (r->uring_up && r->flying > 0)
            io_uring_submit(&r->uring);
        rc = publish_pieces(r, e);
        if (rc < 0)
            return rc;
        if (r->flying > 0) {
            rc = wait_reads(r, e);
            if (rc < 0)
                return rc;
        } else if (r->fifo_len == 0 && !planning) {
            *e = plan_err;
            return -EIO;
        } else if (r->fifo_len == 0 && r->cursor == r->size) {
            return 0;
        } else if (no_room > 0 && r->fifo_len == 0) {
            wait_room(r, seen);
        } else if (r->fifo_len == 0) {
            wait_turn(r);
        }
    }
    return cancelled_err(r, e);
}

/* Opens the source once more for O_DIRECT, or where that is not allowed (a descriptor that was handed over) sets the
 * flag on the one there is; and tries it, because some file systems only refuse the read. */
static void direct_open(struct reader *r)
{
    uint64_t at = down(r->start, r->align);
    if (r->o.no_direct) {
        fallback(r, "no O_DIRECT: switched off");
        return;
    }
    if (r->size < r->info->sector) {
        fallback(r, "no O_DIRECT: the source is smaller than a sector");
        return;
    }
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", r->fd_plain);
    int fd = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EPERM || errno == ENOENT || errno == ENXIO)) {
        int flags = fcntl(r->fd_plain, F_GETFL);
        if (flags >= 0 && fcntl(r->fd_plain, F_SETFL, flags | O_DIRECT) == 0) {
            r->restore_flags = flags;
            fd = r->fd_plain;
        }
    }
    if (fd < 0) {
        fallback(r, "no O_DIRECT: %s", strerror(errno));
        return;
    }
    uint64_t left = down(r->size, r->info->sector) - min64(at, down(r->size, r->info->sector));
    size_t len = (size_t)min64(r->align, left);
    if (len > 0 && pread(fd, r->mem, len, (off_t)at) < 0 && errno == EINVAL) {
        fallback(r, "no O_DIRECT: the file system refuses it");
        if (fd != r->fd_plain)
            close(fd);
        else
            fcntl(fd, F_SETFL, r->restore_flags);
        r->restore_flags = -1;
        return;
    }
    /* O_DIRECT has dirty pages written out piece by piece before each read: a file that was just written is faster read
     * when all of it is on its way already. */
    if (!r->info->is_block)
        sync_file_range(r->fd_plain, 0, 0, SYNC_FILE_RANGE_WRITE);
    r->fd_direct = fd;
    r->use_direct = true;
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    struct err e = ERR_INIT;
    int rc = 0;
    if (r->cursor < r->size) {
        direct_open(r);
        if (!r->use_direct)
            posix_fadvise(r->fd_plain, 0, 0, POSIX_FADV_SEQUENTIAL);
        if (r->o.no_uring)
            fallback(r, "no io_uring: switched off");
        else if ((rc = uring_open(r)) < 0)
            fallback(r, "no io_uring: %s", strerror(-rc));
        else
            r->uring_up = true;
        if (r->uring_up)
            uring_fix_buffers(r);
        else if ((rc = pool_start(r)) < 0)
            err_set(&e, ERR_GENERIC, -rc, "cannot start a thread that reads %s", r->info->path);
        else
            rc = 0;
        pthread_mutex_lock(&r->mu);
        r->st.uring = r->uring_up;
        r->st.direct = r->use_direct;
        r->st.fixed_buffers = r->fixed;
        pthread_mutex_unlock(&r->mu);
        if (rc == 0 || r->uring_up)
            rc = run(r, &e);
    }
    /* On an error or a cancellation the kernel may still be writing into the ring. */
    struct err ignored = ERR_INIT;
    while (r->flying > 0 && wait_reads(r, &ignored) == 0)
        ;
    flush_bad(r);
    pthread_mutex_lock(&r->mu);
    r->finished = true;
    if (rc < 0)
        r->err = e;
    r->st.read_bytes = r->read_bytes;
    r->st.reads = r->reads;
    pthread_cond_broadcast(&r->data_cv);
    pthread_mutex_unlock(&r->mu);
    if (r->uring_up) {
        /* A ring is torn down some time after its end. What it holds is taken back now, or whoever removes the volume
         * right after its backup would find it busy. */
        if (r->fixed)
            io_uring_unregister_buffers(&r->uring);
        io_uring_unregister_files(&r->uring);
        io_uring_queue_exit(&r->uring);
    } else if (r->pool.todo_tail)
        pool_stop(r);
    return NULL;
}

/* ---- the consumer's side ---- */

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/*
 * Memory in huge pages where the kernel can: the ring is read in many places at a time, more than there are entries for
 * small pages in the second-level TLB, and to make and pin 60 MiB takes 7 ms instead of 55. What is to become a huge
 * page must have a page already. Where it fails the ring is one of small pages.
 */
static void in_huge_pages(const struct reader *r)
{
    const size_t len = r->ring - r->ring % HUGE_PAGE;
    for (size_t at = 0; at < len; at += HUGE_PAGE)
        *(volatile uint8_t *)(r->mem + at) = 0;
    if (len)
        madvise(r->mem, len, MADV_COLLAPSE);
}

static int map_ring(struct reader *r, struct err *e)
{
    size_t mirror = (size_t)up(r->window, PAGE);
    CLEANUP_CLOSE int fd = memfd_create("snapferry-ring", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)r->ring) < 0)
        return err_set(e, ERR_MEMORY, errno, "cannot make a ring buffer of %zu bytes", r->ring);
    r->mapped = r->ring + mirror + HUGE_PAGE;
    uint8_t *p = mmap(NULL, r->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_MEMORY, errno, "cannot map a ring buffer of %zu bytes", r->ring);
    r->mapping = p;
    p += -(uintptr_t)p & (HUGE_PAGE - 1);
    r->mem = p;
    if (mmap(p, r->ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        mmap(p + r->ring, mirror, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return err_set(e, ERR_MEMORY, errno, "cannot map a ring buffer of %zu bytes", r->ring);
    madvise(r->mapping, r->mapped, MADV_DONTDUMP); /* a user's data has no place in a core dump of ours */
    in_huge_pages(r);
    return 0;
}

static int reader_size(struct reader *r, struct err *e)
{
    const struct reader_opts *o = &r->o;
    if (r->start > r->size)
        return err_set(e, ERR_USAGE, EINVAL, "reading of %s cannot begin at byte %" PRIu64 ": it has %" PRIu64,
                       r->info->path, r->start, r->size);
    r->align = max64(PAGE, r->info->sector);
    r->block = o->block ? o->block : BLOCK_DEFAULT;
    if ((r->block & (r->block - 1)) != 0 || r->block > BLOCK_MAX || r->align > BLOCK_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "%zu is no possible size of a read", r->block);
    r->block = max64(throttle_piece(o->limit, HOLE_MIN < r->block ? (size_t)HOLE_MIN : r->block, r->block), r->align);
    r->window = o->window ? o->window : 1;
    if (r->window > SIZE_MAX / 8 || o->ring > SIZE_MAX / 8)
        return err_set(e, ERR_USAGE, EINVAL, "a ring of %zu bytes for chunks of %zu is impossible", o->ring, o->window);
    size_t least = (size_t)up(2 * r->window + 2 * r->block, r->block);
    r->ring = (size_t)up(max64(o->ring, least), r->block);
    /* A small source does not need it all: registered buffers are pinned whether they are used or not. */
    uint64_t span = up(r->size - down(r->start, r->block), r->block);
    if (span + r->block < r->ring)
        r->ring = (size_t)max64(least, span + r->block);
    uint64_t depth = o->depth ? o->depth : r->info->depth;
    depth = min64(min64(depth, DEPTH_MAX), r->ring / r->block);
    r->depth = depth ? (unsigned)depth : 1;
    r->fifo_cap = r->depth * 4 < 64 ? 64 : r->depth * 4;
    /* Of each hole in the ring this much is there, so that there cannot be more of them. */
    r->list_cap = r->ring / (size_t)min64(HOLE_MIN, 2 * r->window) + 8;
    return 0;
}

int reader_new_faulty(struct reader **ret, struct source *s, const struct reader_opts *o, const struct reader_fault *f,
                      struct err *e)
{
    struct reader *r = calloc(1, sizeof *r);
    if (!r)
        return err_nomem(e);
    r->src = s;
    r->info = source_info(s);
    r->o = *o;
    r->o.retries = o->retries ? o->retries : 2;
    if (f)
        r->fault = *f;
    r->size = r->info->size;
    r->start = o->start;
    r->fd_plain = source_fd(s);
    r->fd_direct = r->restore_flags = -1;
    r->cursor = r->filled = r->released = r->start;
    pthread_condattr_t ca;
    pthread_condattr_init(&ca);
    pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->mu, NULL);
    pthread_cond_init(&r->data_cv, NULL);
    pthread_cond_init(&r->room_cv, &ca);
    pthread_condattr_destroy(&ca);
    int rc = reader_size(r, e);
    if (rc == 0)
        rc = map_ring(r, e);
    if (rc == 0) {
        r->base = r->base_first = down(r->start, r->block);
        r->fifo = calloc(r->fifo_cap, sizeof *r->fifo);
        r->holes = calloc(r->list_cap, sizeof *r->holes);
        r->skips = calloc(r->list_cap, sizeof *r->skips);
        if (!r->fifo || !r->holes || !r->skips)
            rc = err_nomem(e);
    }
    if (rc == 0) {
        /* Signals are for the threads of the program that wait for them. */
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int sys = pthread_create(&r->thread, NULL, reader_main, r);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (sys)
            rc = err_set(e, ERR_GENERIC, sys, "cannot start a thread that reads %s", r->info->path);
        r->started = sys == 0;
    }
    if (rc < 0)
        reader_free(r);
    else
        *ret = r;
    return rc;
}

int reader_new(struct reader **ret, struct source *s, const struct reader_opts *o, struct err *e)
{
    return reader_new_faulty(ret, s, o, NULL, e);
}

void reader_free(struct reader *r)
{
    if (!r)
        return;
    if (r->started) {
        reader_cancel(r);
        pthread_join(r->thread, NULL);
    }
    if (r->restore_flags >= 0)
        fcntl(r->fd_plain, F_SETFL, r->restore_flags);
    if (r->fd_direct >= 0 && r->fd_direct != r->fd_plain)
        close(r->fd_direct);
    if (r->mapping)
        munmap(r->mapping, r->mapped);
    free(r->fifo);
    free(r->holes);
    free(r->skips);
    pthread_cond_destroy(&r->data_cv);
    pthread_cond_destroy(&r->room_cv);
    pthread_mutex_destroy(&r->mu);
    free(r);
}

void reader_cancel(struct reader *r)
{
    pthread_mutex_lock(&r->mu);
    r->cancelled = true;
    pthread_cond_broadcast(&r->data_cv);
    pthread_cond_broadcast(&r->room_cv);
    pthread_mutex_unlock(&r->mu);
}

void reader_release(struct reader *r, uint64_t pos)
{
    pthread_mutex_lock(&r->mu);
    if (pos > r->released) {
        r->released = pos;
        pthread_cond_signal(&r->room_cv);
    }
    pthread_mutex_unlock(&r->mu);
}

void reader_stats(struct reader *r, struct reader_stats *ret)
{
    pthread_mutex_lock(&r->mu);
    *ret = r->st;
    pthread_mutex_unlock(&r->mu);
}

/* What peek can say now: 1 it is enough, 0 more is to come, negative: an error of the caller. mu is held. */
static int look(struct reader *r, uint64_t pos, size_t want, struct view *ret, struct err *e)
{
    if (pos < r->released || pos > r->size || want > r->window)
        return err_set(e, ERR_GENERIC, EINVAL, "no view of %zu bytes at %" PRIu64 " of %s (released to %" PRIu64 ")",
                       want, pos, r->info->path, r->released);
    *ret = (struct view){r->mem, 0, pos};
    if (pos == r->size)
        return 1;
    uint64_t limit = r->size;
    size_t n = skips_until(r, pos);
    if (n > 0 && pos < skip_at(r, n - 1)->to)
        return err_set(e, ERR_GENERIC, EINVAL, "byte %" PRIu64 " of %s lies in the skipped middle of a hole", pos,
                       r->info->path);
    if (n < r->skip_len)
        limit = skip_at(r, n)->from;
    n = holes_until(r, pos);
    if (n > 0 && hole_at(r, n - 1)->end > pos)
        ret->zero_end = hole_at(r, n - 1)->end;
    size_t at = (size_t)(v_of(r, pos) % r->ring);
    ret->data = r->mem + at;
    uint64_t end = min64(r->filled, limit);
    ret->avail = end > pos ? (size_t)min64(end - pos, r->ring + r->window - at) : 0;
    return ret->avail >= want || pos + ret->avail == limit;
}

int reader_peek(struct reader *r, uint64_t pos, size_t want, struct view *ret, struct err *e)
{
    uint64_t t = 0;
    int rc;
    pthread_mutex_lock(&r->mu);
    for (;;) {
        rc = r->cancelled ? cancelled_err(r, e) : look(r, pos, want, ret, e);
        if (rc == 0 && r->finished) {
            if (e)
                *e = r->err;
            rc = r->err.sys > 0 ? -r->err.sys : -EIO;
        }
        if (rc != 0)
            break;
        if (!t)
            t = mono_ns();
        pthread_cond_wait(&r->data_cv, &r->mu);
    }
    if (t)
        r->st.wait_ns += mono_ns() - t;
    pthread_mutex_unlock(&r->mu);
    return rc < 0 ? rc : 0;
}
