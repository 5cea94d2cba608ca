/* SPDX-License-Identifier: GPL-2.0-or-later */
/* reader-flight.c - reads in flight: io_uring, or threads */
#include "io/reader-impl.h"
#include "io/rings.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define NBD_CANCEL_S 2

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
            int64_t n = reader_pread(r, fd, r->mem + p->v % r->ring + p->got, p->len - p->got, p->pos + p->got);
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

int reader_pool_start(struct reader *r)
{
    struct pool *q = &r->pool;
    pthread_mutex_init(&q->mu, NULL);
    pthread_cond_init(&q->todo_cv, NULL);
    pthread_cond_init(&q->done_cv, NULL);
    q->todo_tail = &q->todo;
    if (r->nbd)
        return 0;
    unsigned n = r->depth < POOL_MAX ? r->depth : POOL_MAX;
    while (q->threads < n && pthread_create(&q->thread[q->threads], NULL, pool_main, r) == 0)
        q->threads++;
    return q->threads ? 0 : -EAGAIN;
}

void reader_pool_stop(struct reader *r)
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

static void nbd_read_done(struct nbd_read *n, int64_t res)
{
    struct piece *p = n->arg;
    struct pool *q = &p->reader->pool;
    pthread_mutex_lock(&q->mu);
    p->res = res;
    p->next = q->done;
    q->done = p;
    pthread_cond_signal(&q->done_cv);
    pthread_mutex_unlock(&q->mu);
}

/* As much of the piece as the server takes at once. */
static void nbd_begin_read(struct reader *r, struct piece *p)
{
    p->reader = r;
    p->nbd = (struct nbd_read){
        .buf = r->mem + p->v % r->ring + p->got,
        .len = nbd_link_fit(r->nbd, p->pos + p->got, p->len - p->got),
        .pos = p->pos + p->got,
        .done = nbd_read_done,
        .arg = p,
    };
    nbd_link_read(r->nbd, &p->nbd);
}

void reader_begin_read(struct reader *r, struct piece *p)
{
    r->reads++;
    if (r->nbd) {
        nbd_begin_read(r, p);
        return;
    }
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
    /* The queue has twice `depth` entries, and at most `depth` reads are in flight. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    size_t at = p->v % r->ring + p->got;
    unsigned len = (unsigned)(p->len - p->got);
    int file = r->use_direct ? 0 : 1;
    if (!r->files_fixed)
        file = r->use_direct ? r->fd_direct : r->fd_plain;
    if (r->fixed)
        io_uring_prep_read_fixed(sqe, file, r->mem + at, len, p->pos + p->got, (int)(at / FIXED_MAX));
    else
        io_uring_prep_read(sqe, file, r->mem + at, len, p->pos + p->got);
    if (r->files_fixed)
        sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, p);
}

static void flight_result(struct reader *r, struct piece *p, int64_t res)
{
    if (r->fault.on_result)
        res = r->fault.on_result(r->fault.arg, p->pos + p->got, r->mem + p->v % r->ring + p->got, p->len - p->got, res);
    bool again = (res == -EINTR || res == -EAGAIN) && p->again++ < AGAIN_MAX;
    if (!again)
        piece_result(p, res);
    /* A short read is continued at a sector boundary; otherwise reader_mend() checks for the end of the source. */
    if (again || (p->result == PIECE_BROKEN && res > 0 && res % (int64_t)r->align == 0)) {
        reader_begin_read(r, p);
    } else {
        p->state = p->result;
        r->flying--;
    }
}

/* Waits for reads of an NBD export. After a cancel its server is not waited for long. */
static void nbd_wait_reads(struct reader *r)
{
    struct pool *q = &r->pool;
    struct timespec until;
    unsigned waited = 0;
    pthread_mutex_lock(&q->mu);
    while (!q->done) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (pthread_cond_timedwait(&q->done_cv, &q->mu, &until) == 0)
            continue;
        pthread_mutex_unlock(&q->mu);
        if (reader_is_cancelled(r) && ++waited >= NBD_CANCEL_S)
            nbd_link_abort(r->nbd);
        pthread_mutex_lock(&q->mu);
    }
    struct piece *done = q->done;
    q->done = NULL;
    pthread_mutex_unlock(&q->mu);
    for (struct piece *next; done; done = next) {
        next = done->next;
        flight_result(r, done, done->res);
    }
}

int reader_wait_reads(struct reader *r, struct err *e)
{
    if (r->nbd) {
        nbd_wait_reads(r);
        return 0;
    }
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
        return err_set(e, ERR_SOURCE, -rc, "cannot read %s by io_uring", r->info->path);
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&r->uring, &cqe) == 0) {
        struct piece *p = io_uring_cqe_get_data(cqe);
        int64_t res = cqe->res;
        io_uring_cqe_seen(&r->uring, cqe);
        flight_result(r, p, res);
    }
    return 0;
}

int reader_uring_open(struct reader *r)
{
    int rc = ring_take(&r->uring, r->depth * 2, RING_READ, r->fault.lower_flags);
    if (rc < 0 || rings_prepared())
        return rc;
    int fds[2] = {r->fd_direct >= 0 ? r->fd_direct : r->fd_plain, r->fd_plain};
    rc = io_uring_register_files(&r->uring, fds, 2);
    if (rc < 0) {
        ring_give(&r->uring);
        return rc;
    }
    r->files_fixed = true;
    return 0;
}

void reader_uring_fix_buffers(struct reader *r)
{
    if (rings_prepared()) /* nothing can be registered any more */
        return;
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
        reader_fallback(r, "no registered buffers: RLIMIT_MEMLOCK is %llu KiB, the ring needs %zu KiB",
                        (unsigned long long)lim.rlim_cur >> 10, r->ring >> 10);
    else if (rc < 0)
        reader_fallback(r, "no registered buffers: %s", strerror(-rc));
}
