/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/reader.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/reader-impl.h"
#include "io/rings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <isa-l/mem_routines.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

bool zeros_only(const void *data, size_t len)
{
    return len == 0 || isal_zero_detect((void *)(uintptr_t)data, len) == 0;
}

/* ---- planning ---- */

/* The extent at pos; the edges of holes are moved inward to whole pages so that adjacent reads remain aligned. */
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
            uint64_t a = pos == r->start ? pos : round_up(pos, r->align);
            uint64_t b = x->start + x->len == r->size ? r->size : round_down(x->start + x->len, r->align);
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

/* The cursor is at a hole: records it, so that the consumer knows its end before its zeros are published. */
static void enter_hole(struct reader *r, const struct extent *x)
{
    uint64_t end = x->start + x->len;
    uint64_t from = round_up(x->start + r->window, r->block);
    uint64_t to = end > r->window ? round_down(end - r->window, r->block) : 0;
    pthread_mutex_lock(&r->mu);
    *reader_hole_at(r, r->hole_len) = (struct hole){x->start, end};
    r->hole_len++;
    if (to > from) {
        *reader_skip_at(r, r->skip_len) = (struct skip){from, to, r->base, false};
        r->skip_len++;
    }
    r->st.hole_bytes += x->len;
    pthread_mutex_unlock(&r->mu);
}

/*
 * If the cursor is at the end of a range to be read: moves it to the next one, and records what is skipped. Returns 1,
 * 0 if the list is full, negative on error.
 */
static int enter_range(struct reader *r, struct err *e)
{
    while (r->o.range && r->cursor == r->range_end && r->cursor < r->size) {
        pthread_mutex_lock(&r->mu);
        reader_forget_released(r);
        bool listed = r->skip_len < r->list_cap;
        pthread_mutex_unlock(&r->mu);
        if (!listed)
            return 0;
        struct extent x;
        int rc = r->o.range(r->cursor, &x, r->o.range_arg, e);
        if (rc < 0)
            return rc;
        const uint64_t to = rc ? min64(max64(round_down(x.start, r->block), r->cursor), r->size) : r->size;
        r->range_end = rc ? min64(round_up(x.start + x.len, r->block), r->size) : r->size;
        if (to == r->cursor)
            continue;
        pthread_mutex_lock(&r->mu);
        *reader_skip_at(r, r->skip_len) = (struct skip){r->cursor, to, r->base, true};
        r->skip_len++;
        r->st.unread_bytes += to - r->cursor;
        r->base += to - r->cursor;
        r->cursor = to;
        pthread_cond_signal(&r->data_cv);
        pthread_mutex_unlock(&r->mu);
    }
    return 1;
}

/*
 * Plans the piece at the cursor. Returns 1 if there is one, 0 if there is no space for it yet, negative on error.
 * *zero: it is part of a hole.
 */
static int plan_piece(struct reader *r, struct piece *p, bool *zero, struct err *e)
{
    struct extent x;
    int rc = extent_at(r, r->cursor, &x, e);
    if (rc < 0)
        return rc;
    if (r->o.range)
        x.len = min64(x.len, r->range_end - r->cursor);

    pthread_mutex_lock(&r->mu);
    reader_forget_released(r);
    bool known = r->hole_len > 0 && reader_hole_at(r, r->hole_len - 1)->end > r->cursor;
    bool listed = r->hole_len < r->list_cap && r->skip_len < r->list_cap;
    pthread_mutex_unlock(&r->mu);
    if (x.hole && !known) {
        if (!listed)
            return 0;
        enter_hole(r, &x);
    }
    pthread_mutex_lock(&r->mu);
    if (x.hole && r->skip_len > 0) {
        const struct skip *k = reader_skip_at(r, r->skip_len - 1);
        if (r->cursor == k->from) {
            r->cursor = k->to;
            r->base = k->base + (k->to - k->from);
        }
    }
    uint64_t room = reader_v_of(r, min64(r->released, r->cursor)) + r->ring;
    uint64_t end = min64(round_down(r->cursor, r->block) + r->block, r->size);
    if (x.hole) {
        end = min64(end, x.start + x.len);
        if (r->skip_len > 0 && reader_skip_at(r, r->skip_len - 1)->from > r->cursor)
            end = min64(end, reader_skip_at(r, r->skip_len - 1)->from);
    }
    pthread_mutex_unlock(&r->mu);
    *zero = x.hole;

    uint64_t at = x.hole || r->cursor != r->start ? r->cursor : round_down(r->cursor, r->align);
    if (!x.hole) {
        /* Data includes holes that are too short for a separate request, up to the end of the block. */
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
        /* The last part of a sector cannot be read with O_DIRECT and becomes a separate piece. */
        uint64_t whole = round_down(end, r->info->sector);
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

/* Starts pieces as depth, fifo and space allow. Returns 1 if it stopped for lack of space. */
static int begin_pieces(struct reader *r, struct err *e)
{
    while (r->cursor < r->size && r->flying < r->depth && r->fifo_len < r->fifo_cap &&
           throttle_ahead_ns(r->o.limit) == 0) {
        struct piece *p = fifo_at(r, r->fifo_len);
        bool zero = false;
        int rc = enter_range(r, e);
        if (rc > 0 && r->cursor == r->size)
            break;
        if (rc > 0)
            rc = plan_piece(r, p, &zero, e);
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
            p->state = PIECE_BROKEN; /* the odd tail: read synchronously, in order */
        } else {
            r->flying++;
            if (r->flying > r->flying_max)
                r->flying_max = r->flying;
            reader_begin_read(r, p);
        }
    }
    return 0;
}

static void publish_to(struct reader *r, uint64_t end)
{
    pthread_mutex_lock(&r->mu);
    r->filled = end;
    r->st.read_bytes = r->read_bytes;
    r->st.reads = r->reads;
    r->st.inflight_max = r->uring_up || r->nbd ? r->flying_max : 0;
    pthread_cond_signal(&r->data_cv);
    pthread_mutex_unlock(&r->mu);
}

/* Publishes the complete pieces at the head of the fifo. */
static int publish_pieces(struct reader *r, struct err *e)
{
    while (r->fifo_len > 0 && fifo_at(r, 0)->state != PIECE_FLYING) {
        struct piece *p = fifo_at(r, 0);
        if (p->state == PIECE_BROKEN) {
            int rc = reader_mend(r, p, e);
            if (rc < 0)
                return rc;
        } else if (p->got) {
            r->read_bytes += p->len;
        }
        /* A bad range is reported before any byte after it is published. */
        if (r->bad_end != p->end || p->end == r->size)
            reader_flush_bad(r);
        r->fifo_head = (r->fifo_head + 1) % r->fifo_cap;
        r->fifo_len--;
        publish_to(r, p->end);
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

/* Nothing is in flight, and the rate limit does not allow a read yet. */
static void wait_turn(struct reader *r)
{
    const uint64_t ms = throttle_ahead_ns(r->o.limit) / 1000000 + 1;
    reader_wait_ms(r, ms < 100 ? (unsigned)ms : 100);
}

static int reader_run(struct reader *r, struct err *e)
{
    int rc = 0;
    struct err plan_err = ERR_INIT;
    bool planning = true;
    while (!reader_is_cancelled(r)) {
        pthread_mutex_lock(&r->mu);
        uint64_t seen = r->released;
        pthread_mutex_unlock(&r->mu);
        int no_room = 0;
        if (planning) {
            no_room = begin_pieces(r, &plan_err);
            planning = no_room >= 0; /* data before the error is still published */
        }
        if (r->uring_up && r->flying > 0)
            io_uring_submit(&r->uring);
        rc = publish_pieces(r, e);
        if (rc < 0)
            return rc;
        if (r->flying > 0) {
            rc = reader_wait_reads(r, e);
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
    return reader_cancelled(r, e);
}

/* Opens the source once more with O_DIRECT or, if that is not permitted (a descriptor that was passed), sets the flag
 * on the existing descriptor; tests it, because some file systems refuse only the read. */
static void direct_open(struct reader *r)
{
    uint64_t at = round_down(r->start, r->align);
    if (r->o.no_direct) {
        reader_fallback(r, "no O_DIRECT: disabled");
        return;
    }
    if (r->size < r->info->sector) {
        reader_fallback(r, "no O_DIRECT: the source is smaller than a sector");
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
        reader_fallback(r, "no O_DIRECT: %s", strerror(errno));
        return;
    }
    uint64_t left = round_down(r->size, r->info->sector) - min64(at, round_down(r->size, r->info->sector));
    size_t len = (size_t)min64(r->align, left);
    if (len > 0 && pread(fd, r->mem, len, (off_t)at) < 0 && errno == EINVAL) {
        reader_fallback(r, "no O_DIRECT: the file system refuses it");
        if (fd != r->fd_plain)
            close(fd);
        else
            fcntl(fd, F_SETFL, r->restore_flags);
        r->restore_flags = -1;
        return;
    }
    /* Before each O_DIRECT read the kernel writes dirty pages of the range piece by piece; for a recently written file
     * it is faster to start writeback of all of it. */
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
        if (!r->nbd)
            direct_open(r);
        if (!r->nbd && !r->use_direct)
            posix_fadvise(r->fd_plain, 0, 0, POSIX_FADV_SEQUENTIAL);
        if (r->nbd)
            ; /* its link has a thread */
        else if (r->o.no_uring)
            reader_fallback(r, "no io_uring: disabled");
        else if ((rc = reader_uring_open(r)) < 0)
            reader_fallback(r, "no io_uring: %s", strerror(-rc));
        else
            r->uring_up = true;
        if (r->uring_up)
            reader_uring_fix_buffers(r);
        else if ((rc = reader_pool_start(r)) < 0)
            err_set(&e, ERR_GENERIC, -rc, "cannot start the reader thread for %s", r->info->path);
        else
            rc = 0;
        pthread_mutex_lock(&r->mu);
        r->st.uring = r->uring_up;
        r->st.direct = r->use_direct;
        r->st.fixed_buffers = r->fixed;
        pthread_mutex_unlock(&r->mu);
        if (rc == 0 || r->uring_up)
            rc = reader_run(r, &e);
    }
    /* After an error or a cancellation the kernel may still be writing to the ring. */
    struct err ignored = ERR_INIT;
    while (r->flying > 0 && reader_wait_reads(r, &ignored) == 0)
        ;
    reader_flush_bad(r);
    pthread_mutex_lock(&r->mu);
    r->finished = true;
    if (rc < 0)
        r->err = e;
    r->st.read_bytes = r->read_bytes;
    r->st.reads = r->reads;
    pthread_cond_broadcast(&r->data_cv);
    pthread_mutex_unlock(&r->mu);
    if (r->uring_up) {
        /* The kernel frees an io_uring some time after it is closed. Its references are dropped now, because otherwise
         * a volume removed right after its backup would be busy. */
        if (r->fixed)
            io_uring_unregister_buffers(&r->uring);
        if (r->files_fixed)
            io_uring_unregister_files(&r->uring);
        ring_give(&r->uring);
    } else if (r->pool.todo_tail)
        reader_pool_stop(r);
    return NULL;
}

/* ---- consumer ---- */

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/*
 * Uses huge pages if possible: the ring is read in many places at a time, more than the second-level TLB has entries
 * for small pages, and allocating and pinning 60 MiB takes 7 ms instead of 55. A page must exist before it can be
 * collapsed into a huge page. On failure the ring has small pages.
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
    size_t mirror = (size_t)round_up(r->window, PAGE);
    CLEANUP_CLOSE int fd = memfd_create("snapferry-ring", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)r->ring) < 0)
        return err_set(e, ERR_MEMORY, errno, "cannot allocate a ring buffer of %zu bytes", r->ring);
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
    madvise(r->mapping, r->mapped, MADV_DONTDUMP); /* keeps user data out of core dumps */
    in_huge_pages(r);
    return 0;
}

static int reader_size(struct reader *r, struct err *e)
{
    const struct reader_opts *o = &r->o;
    if (r->start > r->size)
        return err_set(e, ERR_USAGE, EINVAL, "cannot start reading %s at byte %" PRIu64 ": its size is %" PRIu64,
                       r->info->path, r->start, r->size);
    r->align = max64(PAGE, r->info->sector);
    r->block = o->block ? o->block : BLOCK_DEFAULT;
    if ((r->block & (r->block - 1)) != 0 || r->block > BLOCK_MAX || r->align > BLOCK_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "invalid read size %zu", r->block);
    r->block = max64(throttle_piece(o->limit, HOLE_MIN < r->block ? (size_t)HOLE_MIN : r->block, r->block), r->align);
    if (o->range && r->start > 0)
        return err_set(e, ERR_USAGE, EINVAL, "ranges of %s can only be read from its beginning", r->info->path);
    r->window = o->window ? o->window : 1;
    if (r->window > SIZE_MAX / 8 || o->ring > SIZE_MAX / 8)
        return err_set(e, ERR_USAGE, EINVAL, "invalid ring size %zu for chunks of %zu bytes", o->ring, o->window);
    size_t least = (size_t)round_up(2 * r->window + 2 * r->block, r->block);
    r->ring = (size_t)round_up(max64(o->ring, least), r->block);
    /* A small source does not need the whole ring, and registered buffers are always pinned. */
    uint64_t span = round_up(r->size - round_down(r->start, r->block), r->block);
    if (span + r->block < r->ring)
        r->ring = (size_t)max64(least, span + r->block);
    uint64_t depth = o->depth ? o->depth : r->info->depth;
    depth = min64(min64(depth, DEPTH_MAX), r->ring / r->block);
    r->depth = depth ? (unsigned)depth : 1;
    r->fifo_cap = r->depth * 4 < 64 ? 64 : r->depth * 4;
    /* At least this much of each hole is in the ring, which limits the number of holes. */
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
    r->nbd = source_nbd(s);
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
        r->base = r->base_first = round_down(r->start, r->block);
        r->fifo = calloc(r->fifo_cap, sizeof *r->fifo);
        r->holes = calloc(r->list_cap, sizeof *r->holes);
        r->skips = calloc(r->list_cap, sizeof *r->skips);
        if (!r->fifo || !r->holes || !r->skips)
            rc = err_nomem(e);
    }
    if (rc == 0) {
        /* Signals are handled by other threads of the program. */
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int sys = pthread_create(&r->thread, NULL, reader_main, r);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (sys)
            rc = err_set(e, ERR_GENERIC, sys, "cannot start the reader thread for %s", r->info->path);
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

/* Whether a move within what is not in the ring frees nothing there: the thread need not be woken by each. */
static bool frees_nothing(struct reader *r, uint64_t from, uint64_t to)
{
    const struct skip *k = r->skip_len ? reader_skip_at(r, 0) : NULL;
    return k && from >= k->from && to < k->to;
}

void reader_release(struct reader *r, uint64_t pos)
{
    pthread_mutex_lock(&r->mu);
    if (pos > r->released) {
        const bool nothing = frees_nothing(r, r->released, pos);
        r->released = pos;
        if (!nothing)
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

/* State of a view: 1 available, 0 not yet, negative: an error of the caller. mu is held. */
static int view_at(struct reader *r, uint64_t pos, size_t want, struct view *ret, struct err *e)
{
    if (pos < r->released || pos > r->size || want > r->window)
        return err_set(e, ERR_GENERIC, EINVAL,
                       "invalid view of %zu bytes at %" PRIu64 " of %s (released up to %" PRIu64 ")", want, pos,
                       r->info->path, r->released);
    *ret = (struct view){r->mem, 0, pos, pos};
    if (pos == r->size)
        return 1;
    uint64_t limit = r->size;
    size_t n = reader_skips_until(r, pos);
    if (n > 0 && pos < reader_skip_at(r, n - 1)->to && reader_skip_at(r, n - 1)->unread) {
        ret->unread_end = reader_skip_at(r, n - 1)->to;
        return 1;
    }
    if (n > 0 && pos < reader_skip_at(r, n - 1)->to)
        return err_set(e, ERR_GENERIC, EINVAL, "byte %" PRIu64 " of %s is in the skipped middle of a hole", pos,
                       r->info->path);
    if (n < r->skip_len)
        limit = reader_skip_at(r, n)->from;
    n = reader_holes_until(r, pos);
    if (n > 0 && reader_hole_at(r, n - 1)->end > pos)
        ret->zero_end = reader_hole_at(r, n - 1)->end;
    size_t at = (size_t)(reader_v_of(r, pos) % r->ring);
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
        rc = r->cancelled ? reader_cancelled(r, e) : view_at(r, pos, want, ret, e);
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
