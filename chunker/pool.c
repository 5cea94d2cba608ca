/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "chunker/pool.h"

#include "base/time.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_JOB UINT64_MAX

struct job {
    pool_job_fn *fn;
    void *arg;
};

struct worker {
    struct pool *pool;
    unsigned number;
    pthread_t thread;
    uint64_t running; /* number of the current job, NO_JOB while waiting */
    uint64_t since;   /* start of that state, ns */
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work;  /* a job was queued, or the pool is stopping */
    pthread_cond_t room;  /* a job left the queue */
    pthread_cond_t ended; /* a job ended while a caller drains */
    bool stopping;
    unsigned threads;  /* started */
    unsigned draining; /* callers in pool_drain() */
    size_t queue_len;
    /* Jobs are numbered in the order of submission: those from `taken` to `submitted` are in the queue, at the index
     * number % queue_len. */
    uint64_t taken, submitted;
    struct pool_stats stats; /* finished periods only */
    struct job *queue;
    struct worker worker[];
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->taken == p->submitted && !p->stopping)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->taken == p->submitted)
            break;
        struct job job = p->queue[p->taken % p->queue_len];
        w->running = p->taken++;
        pthread_cond_signal(&p->room);
        uint64_t t = mono_ns();
        p->stats.idle_ns += t - w->since;
        w->since = t;
        pthread_mutex_unlock(&p->lock);

        job.fn(job.arg, w->number);

        pthread_mutex_lock(&p->lock);
        t = mono_ns();
        p->stats.busy_ns += t - w->since;
        p->stats.jobs++;
        w->since = t;
        w->running = NO_JOB;
        if (p->draining > 0)
            pthread_cond_broadcast(&p->ended);
    }
    p->stats.idle_ns += mono_ns() - w->since;
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Starts a worker with all signals blocked, so that they are delivered to the thread that waits for them, except
 * signals raised by faults, which are delivered to the faulting thread. */
static int start_worker(struct worker *w, const char *name)
{
    sigset_t block, old;
    sigfillset(&block);
    sigdelset(&block, SIGSEGV);
    sigdelset(&block, SIGBUS);
    sigdelset(&block, SIGILL);
    sigdelset(&block, SIGFPE);
    pthread_sigmask(SIG_SETMASK, &block, &old);
    int rc = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0) {
        char text[16]; /* the kernel's limit */
        snprintf(text, sizeof text, "%.10s-%u", name, w->number);
        pthread_setname_np(w->thread, text);
    }
    return rc;
}

int pool_new(struct pool **ret, unsigned threads, size_t queue_len, const char *name, struct err *e)
{
    if (threads == 0 || queue_len == 0)
        return err_set(e, ERR_GENERIC, EINVAL, "invalid thread pool: %u threads, queue of %zu jobs", threads,
                       queue_len);
    if (threads > INT_MAX / sizeof(struct worker) || queue_len > SIZE_MAX / sizeof(struct job))
        return err_nomem(e);
    struct pool *p = calloc(1, sizeof *p + threads * sizeof p->worker[0]);
    if (!p)
        return err_nomem(e);
    p->queue = calloc(queue_len, sizeof *p->queue);
    if (!p->queue) {
        free(p);
        return err_nomem(e);
    }
    p->queue_len = queue_len;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->room, NULL);
    pthread_cond_init(&p->ended, NULL);
    for (unsigned i = 0; i < threads; i++)
        p->worker[i] = (struct worker){.pool = p, .number = i, .running = NO_JOB, .since = mono_ns()};
    for (; p->threads < threads; p->threads++) {
        int rc = start_worker(&p->worker[p->threads], name);
        if (rc != 0) {
            err_set(e, ERR_GENERIC, rc, "cannot start thread %u of %u of %s", p->threads + 1, threads, name);
            pool_free(p);
            return err_hint(e, "lower the number of workers, or raise the task limit");
        }
    }
    *ret = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->threads; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->ended);
    pthread_cond_destroy(&p->room);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->queue);
    free(p);
}

void pool_submit(struct pool *p, pool_job_fn *fn, void *arg)
{
    pthread_mutex_lock(&p->lock);
    if (p->submitted - p->taken == p->queue_len) {
        uint64_t t = mono_ns();
        while (p->submitted - p->taken == p->queue_len)
            pthread_cond_wait(&p->room, &p->lock);
        p->stats.block_ns += mono_ns() - t;
    }
    p->queue[p->submitted++ % p->queue_len] = (struct job){fn, arg};
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

/* Whether all jobs with numbers below `end` have ended. */
static bool all_ended(const struct pool *p, uint64_t end)
{
    if (p->taken < end)
        return false;
    for (unsigned i = 0; i < p->threads; i++)
        if (p->worker[i].running < end)
            return false;
    return true;
}

void pool_drain(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    uint64_t end = p->submitted;
    p->draining++;
    while (!all_ended(p, end))
        pthread_cond_wait(&p->ended, &p->lock);
    p->draining--;
    pthread_mutex_unlock(&p->lock);
}

void pool_stats(struct pool *p, struct pool_stats *ret)
{
    pthread_mutex_lock(&p->lock);
    *ret = p->stats;
    uint64_t t = mono_ns();
    for (unsigned i = 0; i < p->threads; i++)
        *(p->worker[i].running == NO_JOB ? &ret->idle_ns : &ret->busy_ns) += t - p->worker[i].since;
    pthread_mutex_unlock(&p->lock);
}
