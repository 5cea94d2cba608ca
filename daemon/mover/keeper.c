/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/keeper.h"

#include "base/time.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define TICK_NS 200000000
#define FRESH_NS ((uint64_t)NS_PER_MIN)

struct keeper {
    struct keeper_setup s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, wanted;
    /* of the thread */
    uint64_t flushes, flush_ns;
    uint64_t flushed_at, flushed_bytes, fresh_at;
    uint64_t taken_in; /* of earlier volumes of the same work */
};

static void keeper_main(struct keeper *k, bool wanted)
{
    struct err e = ERR_INIT;
    const uint64_t now = mono_ns(), bytes = pipeline_data_bytes(k->s.pipeline);
    if (k->s.cancel && atomic_load(&k->s.cancel->requested))
        pipeline_stop(k->s.pipeline, NULL);
    if (k->s.progress && k->s.reader) {
        struct reader_stats rs;
        reader_stats(k->s.reader, &rs);
        atomic_store_explicit(&k->s.progress->read, rs.read_bytes, memory_order_relaxed);
        atomic_store(&k->s.progress->taken_in, k->taken_in + rs.read_bytes);
    }
    bool due = now - k->flushed_at >= (uint64_t)k->s.flush_s * (uint64_t)NS_PER_S ||
               bytes - k->flushed_bytes >= k->s.flush_bytes;
    int rc = 0;
    if (wanted || (due && session_pending(k->s.session) > 0)) {
        rc = session_flush(k->s.session, &e);
        k->flushes++;
        k->flush_ns += mono_ns() - now;
    }
    if (wanted || due) {
        k->flushed_at = mono_ns();
        k->flushed_bytes = bytes;
    }
    if (rc == 0 && now - k->fresh_at >= FRESH_NS) {
        rc = repo_keep_fresh(session_repo(k->s.session), &e);
        k->fresh_at = now;
    }
    if (rc < 0)
        pipeline_stop(k->s.pipeline, &e);
}

static void *keeper_step(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        bool wanted = k->wanted;
        k->wanted = false;
        pthread_mutex_unlock(&k->lock);
        keeper_main(k, wanted);
        pthread_mutex_lock(&k->lock);
        if (k->stop || k->wanted)
            continue;
        const struct timespec t = ns_timespec(mono_ns() + TICK_NS);
        pthread_cond_timedwait(&k->wake, &k->lock, &t);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

int keeper_new(struct keeper **ret, const struct keeper_setup *s, struct err *e)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (!k)
        return err_nomem(e);
    k->s = *s;
    k->flushed_at = k->fresh_at = mono_ns();
    if (s->progress)
        k->taken_in = atomic_load(&s->progress->done) - atomic_load(&s->progress->skipped);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->wake, &attr);
    pthread_condattr_destroy(&attr);
    /* Signals are handled by the thread that waits for them. */
    sigset_t block, old;
    sigfillset(&block);
    pthread_sigmask(SIG_SETMASK, &block, &old);
    int sys = pthread_create(&k->thread, NULL, keeper_step, k);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (sys) {
        pthread_cond_destroy(&k->wake);
        pthread_mutex_destroy(&k->lock);
        free(k);
        return err_set(e, ERR_GENERIC, sys, "cannot start a thread");
    }
    *ret = k;
    return 0;
}

void keeper_end(struct keeper *k, uint64_t *flushes, uint64_t *flush_ns)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    *flushes += k->flushes;
    *flush_ns += k->flush_ns;
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

void keeper_flush(struct keeper *k)
{
    pthread_mutex_lock(&k->lock);
    k->wanted = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
}
