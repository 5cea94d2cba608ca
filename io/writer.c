/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * writer.c - write buffers for a restore target
 *
 * Files: the kernel serializes writes to one file, and waiting writers spin. Therefore one thread writes at a time, and
 * the others queue their buffers and continue. Devices: each writer has an io_uring with as many writes in flight as it
 * has buffers; without io_uring it writes synchronously. Both use O_DIRECT except for blocks shared by two contents,
 * and the page cache if O_DIRECT is refused or has no advantage (memory). NBD exports: as many writes in flight as
 * well, which the thread of the connection completes.
 */
#include "io/rings.h"
#include "io/target.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/time.h"
#include "io/target-impl.h"
#include "io/target-nbd.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS_MAX 1024u
#define BLOCK ((size_t)4096)    /* unit of O_DIRECT writes */
#define LARGE ((size_t)2 << 20) /* minimum size for huge pages */

struct write_buffer {
    struct writer *w;
    uint8_t *mem;
    size_t skip, len, done;
    uint64_t pos;
    unsigned next;               /* in the free list */
    struct write_buffer *behind; /* in the queue of the target */
    bool direct;
    struct nbd_write nbd;
};

struct writer {
    struct target *t;
    bool queued, shared; /* a file; a file or an export: other threads write for it */
    _Atomic bool direct; /* changed by the writing thread */
    /* Under queue_mu for a shared writer. */
    unsigned n, flying;
    unsigned first_free; /* n: none */
    size_t size, stride;
    struct pages pages;
    struct write_buffer *buf;
    struct io_uring uring;
    bool uring_up;
    struct err err; /* the first error */
    bool failed;
};

static void writer_lock(const struct writer *w)
{
    if (w->shared)
        pthread_mutex_lock(&w->t->queue_mu);
}

static void writer_unlock(const struct writer *w)
{
    if (w->shared)
        pthread_mutex_unlock(&w->t->queue_mu);
}

static void put_free(struct writer *w, struct write_buffer *b)
{
    b->next = w->first_free;
    w->first_free = (unsigned)(b - w->buf);
}

static int first_error(struct writer *w, struct err *e)
{
    if (!w->failed)
        return 0;
    if (e)
        *e = w->err;
    return w->err.sys > 0 ? -w->err.sys : -EIO;
}

static void note_error(struct writer *w, const struct write_buffer *b, int sys)
{
    if (!w->failed)
        target_write_error(w->t, b->pos + b->done, b->len - b->done, sys, &w->err);
    w->failed = true;
}

/* ---- creation ---- */

int writer_new(struct writer **ret, struct target *t, unsigned buffers, size_t buffer_size, struct err *e)
{
    if (buffers == 0 || buffers > BUFFERS_MAX || buffer_size == 0 || buffer_size > UINT32_MAX / 2)
        return err_set(e, ERR_USAGE, EINVAL, "invalid write buffers: %u of %zu bytes", buffers, buffer_size);
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->t = t;
    w->queued = !t->is_block;
    w->shared = w->queued || t->nbd;
    w->direct = t->direct >= 0;
    w->n = w->first_free = buffers;
    w->size = (buffer_size + BLOCK - 1) & ~(BLOCK - 1);
    w->stride = w->size + (t->direct >= 0 ? BLOCK : 0);
    w->buf = calloc(buffers, sizeof *w->buf);
    if (!w->buf || !pages_map(&w->pages, w->stride * w->n, w->stride >= LARGE)) {
        writer_free(w);
        return err_nomem(e);
    }
    for (unsigned i = buffers; i-- > 0;) {
        w->buf[i].w = w;
        w->buf[i].mem = w->pages.memory + i * w->stride;
        put_free(w, &w->buf[i]);
    }
    /* No registered file, because the kernel would release it some time after the ring is closed, so that an immediate
     * mount of the target would fail. */
    w->uring_up = !w->shared && !t->o.no_uring && ring_take(&w->uring, buffers, RING_WRITE, 0) == 0;
    *ret = w;
    return 0;
}

/* ---- synchronous writes ---- */

/* Returns 0 or an errno; b->done is the number of bytes written. */
static int write_by(struct write_buffer *b, int fd)
{
    struct target *t = b->w->t;
    uint64_t from = mono_ns();
    int sys = 0;
    while (b->done < b->len && !sys) {
        if (fd != t->fd && b->done % BLOCK)
            fd = t->fd; /* after a short write, O_DIRECT cannot continue within a block */
        ssize_t n = pwrite(fd, b->mem + b->skip + b->done, b->len - b->done, (off_t)(b->pos + b->done));
        if (n > 0)
            b->done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            sys = n < 0 ? errno : EIO;
    }
    target_spent(t, mono_ns() - from, 0);
    return sys;
}

static int write_now(struct write_buffer *b)
{
    return write_by(b, b->w->t->fd);
}

/* The blocks at both ends that are shared with adjacent contents are written to the page cache, where they remain until
 * the adjacent content is written or until the next sync; the rest of b then consists of whole blocks. */
static int write_edges(struct write_buffer *b)
{
    const size_t head = (size_t)(-b->pos % BLOCK), tail = (size_t)((b->pos + b->len) % BLOCK);
    struct write_buffer part = *b;
    part.len = head;
    int sys = head ? write_now(&part) : 0;
    if (!sys && tail) {
        part = *b;
        part.skip += b->len - tail;
        part.pos += b->len - tail;
        part.len = tail;
        sys = write_now(&part);
    }
    target_count_written(b->w->t, head + tail);
    b->skip += head;
    b->pos += head;
    b->len -= head + tail;
    return sys;
}

/* Whether its whole blocks should be written with O_DIRECT. */
static bool suits_direct(const struct write_buffer *b)
{
    const size_t in_block = (uintptr_t)(b->mem + b->skip) % BLOCK;
    return atomic_load_explicit(&b->w->direct, memory_order_relaxed) && in_block == b->pos % BLOCK &&
           b->len >= 4 * BLOCK;
}

/* Refuses to go on in a file that another program truncated. */
static bool still_whole(struct write_buffer *b)
{
    struct writer *w = b->w;
    struct err e = ERR_INIT;
    if (target_unchanged(w->t, &e) == 0)
        return true;
    writer_lock(w);
    if (!w->failed)
        w->err = e;
    w->failed = true;
    writer_unlock(w);
    return false;
}

static int write_and_start(struct write_buffer *b)
{
    int sys;
    if (suits_direct(b)) {
        sys = write_edges(b);
        if (!sys)
            sys = write_by(b, b->w->t->direct);
        if (!sys)
            target_count_written(b->w->t, b->len);
        if (sys != EINVAL)
            return sys;
        atomic_store_explicit(&b->w->direct, false,
                              memory_order_relaxed); /* O_DIRECT was opened, but writes are refused */
    }
    sys = write_now(b);
    if (!sys)
        target_wrote(b->w->t, b->pos, b->len);
    return sys;
}

/* Writes the queued buffers of all writers. Called with queue_mu held, by one thread at a time. */
static void write_queue(struct target *t)
{
    t->writing = true;
    for (struct write_buffer *b; (b = t->queue_first);) {
        t->queue_first = b->behind;
        pthread_mutex_unlock(&t->queue_mu);
        const uint64_t end = b->pos + b->len;
        int sys = still_whole(b) ? write_and_start(b) : 0;
        pthread_mutex_lock(&t->queue_mu);
        if (sys)
            note_error(b->w, b, sys);
        else if (end > t->least)
            t->least = end;
        b->w->flying--;
        put_free(b->w, b);
        pthread_cond_broadcast(&t->queue_moved);
    }
    t->writing = false;
}

static void queue_append(struct target *t, struct write_buffer *b)
{
    b->behind = NULL;
    if (t->queue_first)
        t->queue_last->behind = b;
    else
        t->queue_first = b;
    t->queue_last = b;
    b->w->flying++;
    if (!t->writing)
        write_queue(t);
}

/* Waits until the writer has at most `flying` buffers in the queue or under way. Called with queue_mu held. */
static void wait_queue(struct writer *w, unsigned flying)
{
    if (w->flying <= flying)
        return;
    uint64_t from = mono_ns();
    while (w->flying > flying)
        pthread_cond_wait(&w->t->queue_moved, &w->t->queue_mu);
    target_spent(w->t, 0, mono_ns() - from);
}

/* ---- NBD ---- */

/* In the thread of the connection, or in the caller's. */
static void export_written(struct nbd_write *n, int sys)
{
    struct write_buffer *b = n->arg;
    struct writer *w = b->w;
    if (!sys)
        target_count_written(w->t, b->len);
    writer_lock(w);
    if (sys)
        note_error(w, b, sys);
    w->flying--;
    put_free(w, b);
    pthread_cond_broadcast(&w->t->queue_moved);
    writer_unlock(w);
}

/* Called with queue_mu held, which is released meanwhile. */
static void export_write(struct writer *w, struct write_buffer *b)
{
    b->nbd =
        (struct nbd_write){.buf = b->mem + b->skip, .len = b->len, .pos = b->pos, .done = export_written, .arg = b};
    w->flying++;
    writer_unlock(w);
    const uint64_t from = mono_ns();
    nbd_target_write(w->t->nbd, &b->nbd);
    target_spent(w->t, mono_ns() - from, 0);
    writer_lock(w);
}

/* ---- io_uring ---- */

static void uring_start(struct writer *w, struct write_buffer *b)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&w->uring);
    if (!sqe) { /* unreachable: there are as many entries as buffers */
        note_error(w, b, EBUSY);
        w->flying--;
        put_free(w, b);
        return;
    }
    io_uring_prep_write(sqe, b->direct ? w->t->direct : w->t->fd, b->mem + b->skip + b->done,
                        (unsigned)(b->len - b->done), b->pos + b->done);
    io_uring_sqe_set_data(sqe, b);
}

static void uring_written(struct writer *w, struct write_buffer *b, int res)
{
    if (res == -EINTR || res == -EAGAIN) {
        uring_start(w, b);
        return;
    }
    if (res == -EINVAL && b->direct) {
        /* O_DIRECT was opened, but writes are refused. */
        w->direct = b->direct = false;
        uring_start(w, b);
        return;
    }
    if (res > 0) {
        b->done += (size_t)res;
        if (b->done < b->len) {
            if (b->done % BLOCK)
                b->direct = false;
            uring_start(w, b); /* the error will be reported for the rest */
            return;
        }
        if (b->direct)
            target_count_written(w->t, b->len);
        else
            target_wrote(w->t, b->pos, b->len);
    } else {
        note_error(w, b, res < 0 ? -res : EIO);
    }
    w->flying--;
    put_free(w, b);
}

/* Waits until a write in flight is completed, and collects all completed ones. */
static void uring_reap(struct writer *w)
{
    unsigned before = w->flying;
    while (w->flying == before && w->flying > 0) {
        uint64_t from = mono_ns();
        int rc = io_uring_submit_and_wait(&w->uring, 1);
        target_spent(w->t, 0, mono_ns() - from);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            /* The ring has failed: its buffers in flight are lost, and no more writes are possible. */
            if (!w->failed)
                err_set(&w->err, ERR_TARGET, -rc, "cannot write %s by io_uring", w->t->path);
            w->failed = true;
            return;
        }
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&w->uring, &cqe) == 0) {
            struct write_buffer *b = io_uring_cqe_get_data(cqe);
            int res = cqe->res;
            io_uring_cqe_seen(&w->uring, cqe);
            uring_written(w, b, res);
        }
    }
}

static void uring_submit(struct writer *w, struct write_buffer *b)
{
    b->direct = suits_direct(b);
    int sys = b->direct ? write_edges(b) : 0;
    if (sys) {
        note_error(w, b, sys);
        put_free(w, b);
        return;
    }
    uint64_t from = mono_ns();
    w->flying++;
    uring_start(w, b);
    int rc = io_uring_submit(&w->uring);
    (void)rc; /* the rest is submitted by the next wait */
    target_spent(w->t, mono_ns() - from, 0);
}

/* ---- public functions ---- */

static void wait_all(struct writer *w)
{
    if (w->shared) {
        wait_queue(w, 0);
        return;
    }
    unsigned before = w->flying + 1;
    while (w->flying > 0 && w->flying < before) {
        before = w->flying;
        uring_reap(w);
    }
}

void writer_free(struct writer *w)
{
    if (!w)
        return;
    writer_lock(w);
    wait_all(w);
    writer_unlock(w);
    if (w->uring_up)
        ring_give(&w->uring);
    pages_unmap(&w->pages);
    free(w->buf);
    free(w);
}

int writer_buffer(struct writer *w, uint64_t pos, uint8_t **ret, struct err *e)
{
    writer_lock(w);
    if (w->first_free == w->n && w->flying > 0) {
        if (w->shared)
            wait_queue(w, w->flying - 1);
        else
            uring_reap(w);
    }
    int rc = first_error(w, e);
    if (rc == 0 && w->first_free == w->n)
        rc = err_set(e, ERR_GENERIC, EBUSY, "all %u write buffers are held by the caller", w->n);
    if (rc == 0) {
        struct write_buffer *b = &w->buf[w->first_free];
        w->first_free = b->next;
        *ret = b->mem + (w->stride > w->size ? pos % BLOCK : 0);
    }
    writer_unlock(w);
    return rc;
}

static struct write_buffer *buffer_of(struct writer *w, const uint8_t *mem)
{
    return &w->buf[(size_t)(mem - w->pages.memory) / w->stride];
}

void writer_return(struct writer *w, uint8_t *buf)
{
    writer_lock(w);
    put_free(w, buffer_of(w, buf));
    writer_unlock(w);
}

int writer_submit(struct writer *w, uint8_t *buf, size_t skip, size_t len, uint64_t pos, struct err *e)
{
    struct write_buffer *b = buffer_of(w, buf);
    int rc = skip > w->size || len > w->size - skip
                 ? err_set(e, ERR_GENERIC, EINVAL, "a write of %zu bytes exceeds its buffer", len)
                 : target_check_range(w->t, pos, len, e);
    writer_lock(w);
    if (rc == 0)
        rc = first_error(w, e);
    if (rc < 0 || len == 0) {
        put_free(w, b);
        writer_unlock(w);
        return rc;
    }
    b->skip = (size_t)(buf - b->mem) + skip;
    b->len = len;
    b->pos = pos;
    b->done = 0;
    if (w->queued) {
        queue_append(w->t, b);
    } else if (w->t->nbd) {
        export_write(w, b);
    } else if (w->uring_up) {
        uring_submit(w, b);
    } else {
        int sys = write_and_start(b);
        if (sys)
            note_error(w, b, sys);
        put_free(w, b);
    }
    rc = w->uring_up ? 0 : first_error(w, e);
    writer_unlock(w);
    return rc;
}

int writer_flush(struct writer *w, struct err *e)
{
    writer_lock(w);
    wait_all(w);
    int rc = first_error(w, e);
    writer_unlock(w);
    return rc;
}
