/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/target.h"

#include "base/cleanup.h"
#include "io/target-impl.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BUFFERS_MAX 1024u

struct buffer {
    uint8_t *mem;
    size_t skip, len, done;
    uint64_t pos;
    unsigned next; /* of the free list */
    bool flying;
};

struct writer {
    struct target *t;
    unsigned n, flying;
    unsigned first_free; /* n: none */
    size_t size, mapped;
    uint8_t *mem;
    struct buffer *buf;
    struct io_uring uring;
    bool uring_up;
    struct err err; /* the first that happened */
    bool failed;
};

static void put_free(struct writer *w, struct buffer *b)
{
    b->flying = false;
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

static void note_error(struct writer *w, const struct buffer *b, int sys)
{
    if (!w->failed)
        target_write_error(w->t, b->pos + b->done, b->len - b->done, sys, &w->err);
    w->failed = true;
}

int writer_new(struct writer **ret, struct target *t, unsigned buffers, size_t buffer_size, struct err *e)
{
    if (buffers == 0 || buffers > BUFFERS_MAX || buffer_size == 0 || buffer_size > UINT32_MAX / 2)
        return err_set(e, ERR_USAGE, EINVAL, "%u write buffers of %zu bytes are impossible", buffers, buffer_size);
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->t = t;
    w->n = w->first_free = buffers;
    w->size = (buffer_size + 4095) & ~(size_t)4095;
    w->mapped = w->size * buffers;
    w->buf = calloc(buffers, sizeof *w->buf);
    void *mem = mmap(NULL, w->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    w->mem = mem == MAP_FAILED ? NULL : mem;
    if (!w->buf || !w->mem) {
        writer_free(w);
        return err_nomem(e);
    }
    madvise(w->mem, w->mapped, MADV_DONTDUMP);
    for (unsigned i = buffers; i-- > 0;) {
        w->buf[i].mem = w->mem + i * w->size;
        put_free(w, &w->buf[i]);
    }
    /* Not SINGLE_ISSUER: the thread that makes a writer need not be the one that uses it. No registered file: the
     * kernel would let go of it some time after the ring is gone, and whoever mounts the target at once would find it
     * busy. */
    w->uring_up = !t->o.no_uring && (io_uring_queue_init(buffers, &w->uring, IORING_SETUP_COOP_TASKRUN) == 0 ||
                                     io_uring_queue_init(buffers, &w->uring, 0) == 0);
    *ret = w;
    return 0;
}

static void start(struct writer *w, struct buffer *b)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&w->uring);
    if (!sqe) { /* there are as many entries as buffers, so that this is out of reach */
        note_error(w, b, EBUSY);
        w->flying--;
        put_free(w, b);
        return;
    }
    io_uring_prep_write(sqe, w->t->fd, b->mem + b->skip + b->done, (unsigned)(b->len - b->done), b->pos + b->done);
    io_uring_sqe_set_data(sqe, b);
}

static void written(struct writer *w, struct buffer *b, int res)
{
    if (res == -EINTR || res == -EAGAIN) {
        start(w, b);
        return;
    }
    if (res > 0) {
        b->done += (size_t)res;
        if (b->done < b->len) {
            start(w, b); /* the error that cut it short comes with the rest */
            return;
        }
        target_wrote(w->t, b->pos, b->len);
    } else {
        note_error(w, b, res < 0 ? -res : EIO);
    }
    w->flying--;
    put_free(w, b);
}

/* Waits until a write in flight is done, and takes all that are. */
static void reap(struct writer *w)
{
    unsigned before = w->flying;
    while (w->flying == before && w->flying > 0) {
        int rc = io_uring_submit_and_wait(&w->uring, 1);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            /* The ring itself is broken: buffers in flight are lost to it, so nothing more may be promised. */
            if (!w->failed)
                err_set(&w->err, ERR_TARGET, -rc, "io_uring cannot write %s", w->t->path);
            w->failed = true;
            return;
        }
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&w->uring, &cqe) == 0) {
            struct buffer *b = io_uring_cqe_get_data(cqe);
            int res = cqe->res;
            io_uring_cqe_seen(&w->uring, cqe);
            written(w, b, res);
        }
    }
}

void writer_free(struct writer *w)
{
    if (!w)
        return;
    if (w->uring_up) {
        unsigned before = w->flying + 1;
        while (w->flying > 0 && w->flying < before) {
            before = w->flying;
            reap(w);
        }
        io_uring_queue_exit(&w->uring);
    }
    if (w->mem)
        munmap(w->mem, w->mapped);
    free(w->buf);
    free(w);
}

int writer_buffer(struct writer *w, uint8_t **ret, struct err *e)
{
    if (w->first_free == w->n && w->flying > 0)
        reap(w);
    int rc = first_error(w, e);
    if (rc < 0)
        return rc;
    if (w->first_free == w->n)
        return err_set(e, ERR_GENERIC, EBUSY, "all %u write buffers are in the caller's hands", w->n);
    struct buffer *b = &w->buf[w->first_free];
    w->first_free = b->next;
    *ret = b->mem;
    return 0;
}

static struct buffer *buffer_of(struct writer *w, const uint8_t *mem)
{
    return &w->buf[(size_t)(mem - w->mem) / w->size];
}

void writer_return(struct writer *w, uint8_t *buf)
{
    put_free(w, buffer_of(w, buf));
}

static void write_now(struct writer *w, struct buffer *b)
{
    while (b->done < b->len) {
        ssize_t n = pwrite(w->t->fd, b->mem + b->skip + b->done, b->len - b->done, (off_t)(b->pos + b->done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            note_error(w, b, n < 0 ? errno : EIO);
            return;
        }
        b->done += (size_t)n;
    }
    target_wrote(w->t, b->pos, b->len);
}

int writer_submit(struct writer *w, uint8_t *buf, size_t skip, size_t len, uint64_t pos, struct err *e)
{
    struct buffer *b = buffer_of(w, buf);
    int rc = skip > w->size || len > w->size - skip
                 ? err_set(e, ERR_GENERIC, EINVAL, "a write of %zu bytes goes beyond its buffer", len)
                 : target_check_range(w->t, pos, len, e);
    if (rc == 0)
        rc = first_error(w, e);
    if (rc < 0 || len == 0) {
        put_free(w, b);
        return rc;
    }
    b->skip = skip;
    b->len = len;
    b->pos = pos;
    b->done = 0;
    if (!w->uring_up) {
        write_now(w, b);
        put_free(w, b);
        return first_error(w, e);
    }
    b->flying = true;
    w->flying++;
    start(w, b);
    rc = io_uring_submit(&w->uring);
    (void)rc; /* what could not be submitted now is when somebody waits */
    return 0;
}

int writer_flush(struct writer *w, struct err *e)
{
    unsigned before = w->flying + 1;
    while (w->flying > 0 && w->flying < before) {
        before = w->flying;
        reap(w);
    }
    return first_error(w, e);
}
