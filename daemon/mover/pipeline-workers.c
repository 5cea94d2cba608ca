/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pipeline-workers.c - the threads that hash, verify and store chunks */
#include "base/crash.h"
#include "base/time.h"
#include "daemon/mover/pipeline-impl.h"
#include "repo/item.h"

#include <stdlib.h>
#include <string.h>

#define COMPANY_NS 300000000 /* how long a chunk waits for others to be hashed with */

void pipeline_stop(struct pipeline *p, const struct err *why)
{
    pthread_mutex_lock(&p->lock);
    if (why && !p->failed) {
        p->err = *why;
        p->failed = true;
    }
    p->stopped = true;
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    if (p->s.reader)
        reader_cancel(p->s.reader);
}

/* Determines what a hashed range is: the parent's chunk, or the same cut around other bytes, or not a chunk. */
static enum chunk_state chunk_verify(struct pipeline *p, struct worker_state *w, struct chunk *c)
{
    if (!c->hinted)
        return CHUNK_KNOWN;
    c->proven = content_id_equal(&c->id, &c->hint);
    if (c->proven)
        return CHUNK_KNOWN;
    uint64_t t = mono_ns();
    c->cut = splitter_cut(&p->s.splitter, c->data, c->len, 0);
    w->split_ns += mono_ns() - t;
    if (c->cut == c->len || (c->cut == 0 && c->ends_section))
        return CHUNK_KNOWN;
    return CHUNK_MISCUT;
}

static enum chunk_state chunk_store(struct pipeline *p, struct worker_state *w, struct chunk *c)
{
    struct err e = ERR_INIT;
    struct put_result put = {0};
    uint64_t t = mono_ns();
    int rc = session_put(p->s.session, w->scratch, &c->id, c->data, c->len, p->s.compression, &put, &e);
    t = mono_ns() - t;
    if (rc < 0) {
        pipeline_stop(p, &e);
        return CHUNK_BROKEN;
    }
    uint64_t told = put.compress_ns + put.seal_ns + put.write_ns;
    w->compress_ns += put.compress_ns;
    w->seal_ns += put.seal_ns;
    w->write_ns += put.write_ns;
    w->lookup_ns += t > told ? t - told : 0;
    c->existed = put.existed;
    c->stored = put.stored;
    if (!put.existed)
        crash_point("chunk-stored");
    return CHUNK_KNOWN;
}

/* Returns a chunk to the pipeline's thread. */
static void chunk_report(struct pipeline *p, struct chunk *c, enum chunk_state state)
{
    pthread_mutex_lock(&p->lock);
    c->state = state; /* from here on it belongs to the pipeline's thread */
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
}

/*
 * A chunk with an uncertain beginning is not stored before it is certain: a moved cut would leave contents in the
 * repository that no object refers to. Chunks of the parent exist already. Chunks that wait for the end of this one to
 * be certain need not wait until it is stored.
 */
static bool chunk_hold(struct pipeline *p, struct chunk *c)
{
    pthread_mutex_lock(&p->lock);
    bool held = c->guess && !c->proven;
    c->sure = true;
    if (held)
        c->state = CHUNK_HELD;
    if (held || c->hinted)
        pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    return held;
}

static bool is_failed(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    bool failed = p->failed;
    pthread_mutex_unlock(&p->lock);
    return failed;
}

static void chunk_settle(struct pipeline *p, struct worker_state *w, struct chunk *c, const uint8_t *digest)
{
    if (is_failed(p)) {
        chunk_report(p, c, CHUNK_BROKEN);
        return;
    }
    c->id = (struct content_id){.len = (uint8_t)hasher_size(p->hasher)};
    memcpy(c->id.hash, digest, c->id.len);
    enum chunk_state state = chunk_verify(p, w, c);
    if (state == CHUNK_KNOWN) {
        if (chunk_hold(p, c))
            return;
        state = chunk_store(p, w, c);
    }
    chunk_report(p, c, state);
}

/*
 * Whether a worker with `active` lanes in use may take a chunk, or has to continue or end without one. A kernel takes
 * as long for one lane as for all, so lanes wait for more chunks that are about to be found, but not for long (`late`):
 * from a slow source a single chunk takes seconds, and progress would advance by all lanes at a time. One worker fills
 * its lanes before the next one begins. With the lock held.
 */
enum lane_choice { LANE_TAKE, LANE_WAIT, LANE_NONE };

static enum lane_choice batch_choose(struct pipeline *p, struct worker_state *w, unsigned active, bool late)
{
    const bool hurry = p->urgent || p->ending || late;
    if (p->filling && p->filling != w)
        return LANE_WAIT;
    if (p->queue)
        return active > 0 || hurry || p->n_queued >= p->s.budget->batch ? LANE_TAKE : LANE_WAIT;
    if (active == 0)
        return p->ending ? LANE_NONE : LANE_WAIT;
    return hurry || active >= p->s.budget->batch ? LANE_NONE : LANE_WAIT;
}

static void set_filling(struct pipeline *p, struct worker_state *w)
{
    if (p->filling == w)
        return;
    p->filling = w;
    if (!w)
        pthread_cond_broadcast(&p->work);
}

static struct chunk *queue_take(struct pipeline *p)
{
    struct chunk *c = p->queue;
    p->queue = c->queued;
    p->n_queued--;
    if (!p->queue)
        p->queue_end = &p->queue;
    return c;
}

/* Until there may be work, or a while: with the lock held. */
static void wait_for_work(struct pipeline *p)
{
    const struct timespec t = ns_timespec(mono_ns() + COMPANY_NS);
    pthread_cond_timedwait(&p->work, &p->lock, &t);
}

static struct chunk *next_chunk(struct worker_state *w, unsigned active)
{
    struct pipeline *p = w->p;
    struct chunk *c = NULL;
    pthread_mutex_lock(&p->lock);
    enum lane_choice choice = batch_choose(p, w, active, w->late);
    if (choice == LANE_WAIT) {
        const uint64_t t = mono_ns();
        do {
            /* If it has chunks in its lanes it gets the next ones. */
            if (!p->filling && active > 0)
                p->filling = w;
            wait_for_work(p);
            w->late = mono_ns() - t >= COMPANY_NS;
        } while ((choice = batch_choose(p, w, active, w->late)) == LANE_WAIT);
        w->wait_ns += mono_ns() - t;
    }
    /* The hasher asks repeatedly while lanes are free: chunks that have waited do not wait again, unless there are
     * others. */
    w->late = choice == LANE_NONE && active > 0;
    if (choice == LANE_TAKE)
        c = queue_take(p);
    /* A chunk that is only to be stored takes no lane. */
    if (c && active + !c->put_only < p->lanes && active + !c->put_only > 0)
        set_filling(p, w);
    else if (p->filling == w)
        set_filling(p, NULL);
    pthread_mutex_unlock(&p->lock);
    return c;
}

static struct hash_job *next_job(void *arg, unsigned active)
{
    struct worker_state *w = arg;
    struct chunk *c;
    while ((c = next_chunk(w, active)) && c->put_only) {
        uint64_t t = mono_ns();
        chunk_report(w->p, c, is_failed(w->p) ? CHUNK_BROKEN : chunk_store(w->p, w, c));
        w->settle_ns += mono_ns() - t;
    }
    if (!c)
        return NULL;
    struct lane *l = w->lanes;
    while (l->chunk)
        l++;
    l->chunk = c;
    l->job.data = c->data;
    l->job.len = c->len;
    w->hashed_bytes += c->len;
    return &l->job;
}

static void job_done(void *arg, struct hash_job *job)
{
    struct worker_state *w = arg;
    struct lane *l = (struct lane *)job;
    struct chunk *c = l->chunk;
    l->chunk = NULL;
    uint64_t t = mono_ns();
    chunk_settle(w->p, w, c, job->out);
    w->settle_ns += mono_ns() - t;
}

void worker_run(void *arg, unsigned worker)
{
    struct pipeline *p = arg;
    struct worker_state *w = &p->workers[worker];
    const struct hash_feed feed = {.next = next_job, .done = job_done, .arg = w};
    uint64_t t = mono_ns() - w->wait_ns - w->settle_ns;
    hasher_run(p->hasher, &feed);
    w->hash_ns += mono_ns() - w->wait_ns - w->settle_ns - t;
}

void chunk_enqueue(struct pipeline *p, struct chunk *c)
{
    c->queued = NULL;
    pthread_mutex_lock(&p->lock);
    *p->queue_end = c;
    p->queue_end = &c->queued;
    p->n_queued++;
    if (p->filling || p->n_queued >= p->s.budget->batch)
        pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
}

int workers_new(struct pipeline *p, struct err *e)
{
    const struct budget *b = p->s.budget;
    p->workers = aligned_alloc(64, b->workers * sizeof *p->workers);
    if (!p->workers)
        return err_nomem(e);
    memset(p->workers, 0, b->workers * sizeof *p->workers);
    for (unsigned i = 0; i < b->workers; i++) {
        struct worker_state *w = &p->workers[i];
        w->p = p;
        w->lanes = calloc(p->lanes, sizeof *w->lanes);
        if (!w->lanes)
            return err_nomem(e);
        int rc = put_scratch_new(&w->scratch, session_repo(p->s.session), p->s.compression, p->s.splitter.max, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void workers_free(struct pipeline *p)
{
    for (unsigned i = 0; p->workers && i < p->s.budget->workers; i++) {
        put_scratch_free(p->workers[i].scratch);
        free(p->workers[i].lanes);
    }
    free(p->workers);
}
