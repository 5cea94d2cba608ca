/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/pipeline.h"

#include "base/crash.h"
#include "base/time.h"
#include "chunker/hash.h"
#include "chunker/pool.h"
#include "daemon/mover/zeros.h"
#include "repo/item.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COMPANY_NS 300000000 /* how long a chunk waits for others to be hashed with */
#define DOUBT_MAX 31

enum chunk_state {
    CHUNK_WORKING, /* in the queue or at a worker */
    CHUNK_HELD,    /* hashed, not stored: its beginning is a guess until the parent's ranges before it are verified */
    CHUNK_KNOWN,   /* a chunk, stored, with its id (zeros: found in the cache or made when it is taken) */
    CHUNK_MISCUT,  /* the parent's range is not a chunk here */
    CHUNK_BROKEN   /* the worker failed: the pipeline has the error */
};

struct chunk {
    struct chunk *next;
    struct chunk *queued;       /* behind it in the queue for the workers */
    uint64_t start, len, count; /* `count` chunks of `len` bytes; more than one for zeros only */
    size_t ring;                /* bytes of the reader's ring that it may occupy */
    const uint8_t *data;        /* in the ring; NULL for zeros */
    bool zero, hole;
    bool hinted; /* `hint` is the parent's id */
    bool ends_section;
    bool put_only; /* was held: to be stored under its id */
    struct content_id hint;
    bool guess; /* under the lock: it follows a range of the parent that may turn out not to be a chunk */
    bool sure;  /* under the lock: hashed, and certain to be a chunk; it may still have to be stored */
    /* Set by the worker, valid once the state (under the lock) is no more CHUNK_WORKING. */
    enum chunk_state state;
    struct content_id id;
    size_t cut; /* CHUNK_MISCUT: the first cut, 0 if it is after the range */
    bool proven, existed;
    uint32_t stored;
};

struct chunk_list {
    struct chunk *head, *tail;
};

/* A chunk in one of a worker's lanes. */
struct lane {
    struct hash_job job; /* first: returned by the hasher */
    struct chunk *chunk; /* NULL: free */
};

/* Written by one worker only, read when all have ended. */
struct worker_state {
    struct pipeline *p;
    struct put_scratch *scratch;
    bool late; /* its chunks have waited long enough for others */
    struct lane *lanes;
    uint64_t wait_ns, settle_ns, hash_ns, lookup_ns, compress_ns, seal_ns, write_ns, split_ns, hashed_bytes;
} __attribute__((aligned(64)));

struct pipeline {
    struct pipeline_setup s;
    const struct hasher *hasher;
    unsigned lanes;
    struct pool *pool;
    struct worker_state *workers;
    struct zeros *zeros;
    uint64_t section;

    /* of the pipeline's thread */
    struct chunk *slots, *free_slots;
    struct chunk_list line;  /* from the oldest chunk not taken yet up to `front`, without gaps */
    struct chunk_list ahead; /* guesses after a range that is being cut again; without gaps up to ahead_end */
    struct chunk *unsure;    /* the first of the line whose end may still turn out wrong; NULL: none */
    uint64_t front, ahead_end;
    uint64_t zero_end, ahead_zero_end; /* end of the known hole that `front`, `ahead_end` lie in, if they do */
    size_t held;                       /* sum of `ring` over the line */
    unsigned doubt, skip;              /* after a wrong guess: hints to skip, increasing with every consecutive one */
    struct pipeline_stats stats;

    _Atomic uint64_t data_bytes;

    pthread_mutex_t lock; /* the state of chunks, and what follows */
    pthread_cond_t moved; /* the state of a chunk changed */
    pthread_cond_t work;  /* for the workers: anything below changed */
    struct chunk *queue, **queue_end;
    size_t n_queued;
    struct worker_state *filling; /* fills its lanes: no other worker takes chunks */
    bool urgent;                  /* the pipeline's thread waits: lanes no longer wait for others */
    bool ending;                  /* no more chunks will be queued */
    bool stopped, failed;
    struct err err;
};

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

uint64_t pipeline_data_bytes(const struct pipeline *p)
{
    return atomic_load_explicit(&p->data_bytes, memory_order_relaxed);
}

/* ---- lists ---- */

static void list_push(struct chunk_list *l, struct chunk *c)
{
    c->next = NULL;
    if (l->tail)
        l->tail->next = c;
    else
        l->head = c;
    l->tail = c;
}

static struct chunk *list_pop(struct chunk_list *l)
{
    struct chunk *c = l->head;
    l->head = c->next;
    if (!l->head)
        l->tail = NULL;
    return c;
}

static void list_splice(struct chunk_list *l, struct chunk_list *from)
{
    if (!from->head)
        return;
    if (l->tail)
        l->tail->next = from->head;
    else
        l->head = from->head;
    l->tail = from->tail;
    from->head = from->tail = NULL;
}

static struct chunk *slot_take(struct pipeline *p)
{
    struct chunk *c = p->free_slots;
    p->free_slots = c->next;
    memset(c, 0, sizeof *c);
    return c;
}

static void slot_give(struct pipeline *p, struct chunk *c)
{
    c->next = p->free_slots;
    p->free_slots = c;
}

/* ---- workers ---- */

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

/* One job of the pool for the whole run. */
static void worker_run(void *arg, unsigned worker)
{
    struct pipeline *p = arg;
    struct worker_state *w = &p->workers[worker];
    const struct hash_feed feed = {.next = next_job, .done = job_done, .arg = w};
    uint64_t t = mono_ns() - w->wait_ns - w->settle_ns;
    hasher_run(p->hasher, &feed);
    w->hash_ns += mono_ns() - w->wait_ns - w->settle_ns - t;
}

static void chunk_enqueue(struct pipeline *p, struct chunk *c)
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

static enum chunk_state state_of(struct pipeline *p, const struct chunk *c)
{
    pthread_mutex_lock(&p->lock);
    enum chunk_state s = c->state;
    pthread_mutex_unlock(&p->lock);
    return s;
}

/* Whether the end of a chunk is final. With the lock held. */
static bool chunk_is_certain(const struct chunk *c)
{
    return !c->hinted || c->sure;
}

/* Waits until a chunk is done, or, with `or_sure`, until chunks held after `unsure` can be stored. */
static enum chunk_state wait_while(struct pipeline *p, const struct chunk *c, bool or_sure)
{
    uint64_t t = mono_ns();
    pthread_mutex_lock(&p->lock);
    if (c->state == CHUNK_WORKING) {
        p->urgent = true;
        pthread_cond_broadcast(&p->work);
        while (c->state == CHUNK_WORKING && !(or_sure && p->unsure && chunk_is_certain(p->unsure)))
            pthread_cond_wait(&p->moved, &p->lock);
        p->urgent = false;
    }
    enum chunk_state s = c->state;
    pthread_mutex_unlock(&p->lock);
    p->stats.wait_ns += mono_ns() - t;
    return s;
}

static enum chunk_state wait_for(struct pipeline *p, const struct chunk *c)
{
    return wait_while(p, c, false);
}

/* Advances `unsure` over verified chunks; chunks held after it are stored then. */
static void unsure_advance(struct pipeline *p)
{
    while (p->unsure) {
        struct chunk *c = p->unsure;
        pthread_mutex_lock(&p->lock);
        const bool held = c->state == CHUNK_HELD, moves_on = chunk_is_certain(c);
        c->guess = false;
        if (held)
            c->state = CHUNK_WORKING;
        pthread_mutex_unlock(&p->lock);
        if (held) {
            c->put_only = true;
            chunk_enqueue(p, c);
        }
        if (!moves_on)
            return;
        p->unsure = c->next;
    }
}

static bool is_stopped(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    bool s = p->stopped;
    pthread_mutex_unlock(&p->lock);
    return s;
}

static int canceled(struct err *e)
{
    return err_set(e, ERR_INTERRUPTED, ECANCELED, "backup interrupted");
}

/* The error of a worker or of the keeper, or the cancellation. */
static int stop_reason(struct pipeline *p, struct err *e)
{
    pthread_mutex_lock(&p->lock);
    bool failed = p->failed;
    if (failed && e)
        *e = p->err;
    int sys = p->err.sys;
    pthread_mutex_unlock(&p->lock);
    if (failed)
        return sys > 0 ? -sys : -EIO;
    return canceled(e);
}

/* ---- taking chunks into the table ---- */

/* The id of `len` zero bytes; the first time a worker makes and stores it. */
static int zero_id(struct pipeline *p, size_t len, struct content_id *ret, uint32_t *stored, struct err *e)
{
    *stored = 0;
    if (zeros_find(p->zeros, len, ret))
        return 0;
    struct chunk c = {.len = len, .count = 1, .data = zeros_data(p->zeros)};
    chunk_enqueue(p, &c);
    if (wait_for(p, &c) != CHUNK_KNOWN)
        return stop_reason(p, e);
    zeros_learn(p->zeros, len, &c.id);
    *ret = c.id;
    *stored = c.stored;
    return 0;
}

static void reader_advance_front(_Atomic uint64_t *counter, uint64_t by)
{
    if (by)
        atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static int chunk_take(struct pipeline *p, struct chunk *c, struct err *e)
{
    struct pipeline_stats *st = &p->stats;
    uint64_t bytes = c->len * c->count;
    uint32_t stored = c->stored;
    if (c->zero) {
        int rc = zero_id(p, c->len, &c->id, &stored, e);
        if (rc < 0)
            return rc;
    }
    uint64_t t = mono_ns();
    struct object_id id = {.content = c->id};
    int rc = object_table_add(p->s.table, c->len, &id, c->count, e);
    st->table_ns += mono_ns() - t;
    if (rc == 0 && (c->zero || c->existed))
        rc = refs_add(p->s.refs, &c->id, e);
    if (rc < 0)
        return rc;
    st->pos = c->start + bytes;
    st->chunks += c->count;
    st->stored_bytes += stored;
    if (c->hole)
        st->hole_bytes += bytes;
    else if (c->zero)
        st->zero_bytes += bytes;
    if (c->zero) {
        st->zero_chunks += c->count;
    } else {
        *(c->existed ? &st->duplicate_chunks : &st->new_chunks) += 1;
        *(c->existed ? &st->duplicate_bytes : &st->new_bytes) += bytes;
        reader_advance_front(&p->data_bytes, bytes);
    }
    if (c->proven) {
        st->hinted_chunks++;
        st->hinted_bytes += bytes;
        p->doubt = 0;
    }
    struct mover_progress *g = p->s.progress;
    if (g) {
        reader_advance_front(&g->done, bytes);
        reader_advance_front(&g->stored, stored);
        reader_advance_front(c->hole      ? &g->skipped
                             : c->zero    ? &g->zero
                             : c->existed ? &g->duplicate
                                          : &g->fresh,
                             bytes);
    }
    return 0;
}

/* Takes the chunks at the head of the line that are known. 0, or an error. */
static int chunks_take_known(struct pipeline *p, struct err *e)
{
    unsure_advance(p);
    while (p->line.head && state_of(p, p->line.head) == CHUNK_KNOWN) {
        struct chunk *c = p->line.head;
        unsure_advance(
            p); /* it may have become known meanwhile: `unsure` must not refer to a chunk that leaves the line */
        int rc = chunk_take(p, c, e);
        if (rc < 0)
            return rc;
        list_pop(&p->line);
        p->held -= c->ring;
        slot_give(p, c);
    }
    if (p->s.reader)
        reader_release(p->s.reader, p->line.head ? p->line.head->start : p->front);
    return 0;
}

/* ---- finding chunks ---- */

static uint64_t section_end(const struct pipeline *p, uint64_t pos)
{
    uint64_t in = pos % p->section;
    uint64_t left = p->s.size - pos;
    return p->section - in < left ? pos + (p->section - in) : p->s.size;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Bytes from `front` on that are known to be zero without reading, inside the section. */
static uint64_t known_zeros(const struct pipeline *p, uint64_t end)
{
    return p->zero_end > p->front ? min_u64(p->zero_end, end) - p->front : 0;
}

static void line_append(struct pipeline *p, struct chunk *c)
{
    c->guess = p->unsure != NULL;
    list_push(&p->line, c);
    p->held += c->ring;
    p->front = c->start + c->len * c->count;
    if (!p->unsure && c->hinted)
        p->unsure = c;
    if (!c->zero)
        chunk_enqueue(p, c);
}

static void line_append_zeros(struct pipeline *p, uint64_t len, uint64_t count, bool hole)
{
    struct chunk *c = slot_take(p);
    c->start = p->front;
    c->len = len;
    c->count = count;
    c->zero = true;
    c->hole = hole;
    c->state = CHUNK_KNOWN;
    /* Of a long hole the reader provides a window at both ends. */
    uint64_t most = 2 * (uint64_t)p->s.budget->window + 2 * p->s.budget->block;
    c->ring = (size_t)min_u64(len * count, hole ? most : UINT64_MAX);
    line_append(p, c);
}

/* The parent's chunk at `front`, if it can be one here. */
static bool usable_hint(struct pipeline *p, uint64_t left, struct hint *h)
{
    const struct splitter *s = &p->s.splitter;
    if (!p->s.hints || p->ahead.head || !hints_at(p->s.hints, p->front, h))
        return false;
    if (h->len == 0 || h->len > left || h->len > s->max || h->id.prefix || h->id.len != hasher_size(p->hasher))
        return false;
    /* An end counts as a cut only if the section ends here too. */
    if (h->len < left && (h->end || h->len < s->min))
        return false;
    if (p->skip) {
        p->skip--;
        return false;
    }
    return true;
}

/* Finds the chunk (or the run of zero chunks) at `front` and appends it to the line. */
static int chunk_find(struct pipeline *p, struct err *e)
{
    const struct splitter *s = &p->s.splitter;
    const uint64_t end = section_end(p, p->front), left = end - p->front;
    uint64_t zeros = known_zeros(p, end);
    struct view v = {0};
    const size_t want = (size_t)min_u64(s->max, left);
    if (zeros < s->min && zeros < left) {
        int rc = reader_peek(p->s.reader, p->front, want, &v, e);
        if (rc < 0)
            return rc;
        if (v.zero_end > p->front)
            p->zero_end = v.zero_end;
        zeros = known_zeros(p, end);
        if (zeros < s->min && zeros < left && v.avail < want)
            return err_set(e, ERR_SOURCE, EIO, "the source ends at %" PRIu64 " instead of %" PRIu64 " bytes",
                           p->front + v.avail, p->s.size);
    }
    if (zeros >= s->min) {
        line_append_zeros(p, s->min, zeros / s->min, true);
        return 0;
    }
    if (zeros == left) {
        line_append_zeros(p, left, 1, true);
        return 0;
    }
    if (left >= s->min) {
        uint64_t t = mono_ns();
        bool z = zeros_only(v.data + zeros, s->min - (size_t)zeros);
        p->stats.zero_ns += mono_ns() - t;
        if (z) {
            p->stats.zero_tested += s->min;
            line_append_zeros(p, s->min, 1, false);
            return 0;
        }
    }
    struct chunk *c = slot_take(p);
    struct hint h;
    c->start = p->front;
    c->count = 1;
    c->data = v.data;
    if (usable_hint(p, left, &h)) {
        c->hinted = true;
        c->hint = h.id;
        c->len = h.len;
    } else {
        uint64_t t = mono_ns();
        size_t n = splitter_cut(s, v.data, want, 0);
        p->stats.split_ns += mono_ns() - t;
        c->len = n ? n : left; /* no cut: less than `max` is left, and the section's end ends the chunk */
        p->stats.split_scanned += c->len > s->min ? c->len - s->min : 0;
    }
    c->ends_section = c->len == left;
    c->ring = c->len;
    line_append(p, c);
    return 0;
}

/* The oldest chunk is not a chunk. Cuts it again; what was found after it becomes a guess that a new cut may meet. */
static int chunk_recut(struct pipeline *p, struct err *e)
{
    const struct splitter *s = &p->s.splitter;
    struct chunk *c = p->line.head;
    const uint64_t left = section_end(p, c->start) - c->start;
    uint64_t len = c->cut;
    const size_t want = (size_t)min_u64(s->max, left);
    if (!len) {
        struct view v;
        int rc = reader_peek(p->s.reader, c->start, want, &v, e);
        if (rc < 0)
            return rc;
        if (v.avail < want)
            return err_set(e, ERR_SOURCE, EIO, "the source ends at %" PRIu64 " instead of %" PRIu64 " bytes",
                           c->start + v.avail, p->s.size);
        uint64_t t = mono_ns();
        len = splitter_cut(s, v.data, want, c->len);
        p->stats.split_ns += mono_ns() - t;
        p->stats.split_scanned += (len ? len : want) - c->len;
        c->data = v.data;
        if (!len)
            len = left;
    }
    list_pop(&p->line);
    p->ahead = p->line;
    p->ahead_end = p->front;
    p->ahead_zero_end = p->zero_end;
    p->line = (struct chunk_list){0};
    p->unsure = NULL;
    p->held = 0;
    p->zero_end = 0;
    p->stats.recuts++;
    p->doubt = p->doubt * 2 + 1 < DOUBT_MAX ? p->doubt * 2 + 1 : DOUBT_MAX;
    p->skip = p->doubt;
    c->len = c->ring = len;
    c->hinted = c->proven = c->sure = false;
    c->ends_section = len == left;
    c->state = CHUNK_WORKING;
    line_append(p, c);
    return 0;
}

/* Drops guesses that the new cuts have passed, and adopts the rest if one begins where the line ends. */
static void guesses_meet(struct pipeline *p)
{
    while (p->ahead.head) {
        struct chunk *c = p->ahead.head;
        if (p->front < c->start)
            return;
        if (p->front == c->start) {
            for (struct chunk *i = c; i; i = i->next)
                p->held += i->ring;
            if (!p->unsure)
                p->unsure = c;
            list_splice(&p->line, &p->ahead);
            p->front = p->ahead_end;
            p->zero_end = p->ahead_zero_end;
            return;
        }
        /* A run of zeros that was passed in part is found again by arithmetic: the new cut lies less than a longest
         * chunk behind the hole's beginning, which is within the window that the reader keeps there. */
        /* Its memory may only be released when the worker has finished with it. */
        wait_for(p, c);
        p->stats.wrong_guesses += !c->zero;
        list_pop(&p->ahead);
        slot_give(p, c);
    }
}

/* Whether the reader can have a longest chunk at `front` in its ring while everything in the line is held. */
static bool ring_has_room(const struct pipeline *p)
{
    const struct budget *b = p->s.budget;
    if (!p->line.head)
        return true;
    /* One slot is reserved, so that guesses can never take the last one from chunks before them. */
    bool slot = p->free_slots && (p->ahead.head || p->free_slots->next);
    return slot && p->held + b->window + 2 * b->block <= b->ring;
}

static int pipeline_step(struct pipeline *p, struct err *e)
{
    if (p->line.head) {
        enum chunk_state s = state_of(p, p->line.head);
        if (s == CHUNK_BROKEN)
            return stop_reason(p, e);
        if (s == CHUNK_MISCUT)
            return chunk_recut(p, e);
    }
    guesses_meet(p);
    if (p->front < p->s.size && ring_has_room(p))
        return chunk_find(p, e);
    if (p->line.head)
        wait_while(p, p->line.head, true);
    return 0;
}

/* A zero-byte object, and the empty last section of one whose length is a multiple of the section. */
static int empty_object(struct pipeline *p, struct err *e)
{
    struct content_id id;
    uint32_t stored;
    int rc = zero_id(p, 0, &id, &stored, e);
    if (rc == 0)
        rc = refs_add(p->s.refs, &id, e);
    if (rc < 0)
        return rc;
    p->stats.chunks++;
    p->stats.stored_bytes += stored;
    struct object_id obj = {.content = id};
    return object_table_add(p->s.table, 0, &obj, 1, e);
}

static int source_move(struct pipeline *p, struct err *e)
{
    for (;;) {
        int rc = chunks_take_known(p, e);
        if (rc == 0 && is_stopped(p))
            return stop_reason(p, e);
        if (rc == 0 && !p->line.head && !p->ahead.head && p->front == p->s.size)
            break;
        if (rc == 0)
            rc = p->s.tick(p->s.tick_arg, e);
        if (rc == 0)
            rc = pipeline_step(p, e);
        if (rc < 0)
            return rc;
    }
    bool sections = p->s.size > p->section;
    if (p->s.size == 0 || (sections && p->s.size % p->section == 0))
        return empty_object(p, e);
    return 0;
}

int pipeline_run(struct pipeline *p, struct err *e)
{
    for (unsigned i = 0; i < p->s.budget->workers; i++)
        pool_submit(p->pool, worker_run, p);
    int rc = source_move(p, e);
    if (rc == -ECANCELED && is_stopped(p)) {
        /* The end reported by the reader may be due to a failure. */
        rc = stop_reason(p, e);
        /* Chunks found so far are finished as far as they are certain, so that the checkpoint covers them. */
        while (rc == -ECANCELED && p->line.head) {
            enum chunk_state s = wait_for(p, p->line.head);
            if (s != CHUNK_KNOWN && s != CHUNK_HELD)
                break;
            int rc2 = chunks_take_known(p, e);
            if (rc2 < 0)
                rc = rc2;
        }
    }
    pthread_mutex_lock(&p->lock);
    p->ending = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    pool_drain(p->pool);
    return rc;
}

/* ---- beginning and end ---- */

static int make_workers(struct pipeline *p, struct err *e)
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

int pipeline_new(struct pipeline **ret, const struct pipeline_setup *s, struct err *e)
{
    struct pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(e);
    p->s = *s;
    p->section = s->section;
    p->hasher = sealer_hasher(repo_sealer(session_repo(s->session)));
    p->lanes = hasher_lanes(p->hasher);
    p->queue_end = &p->queue;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->moved, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->work, &attr);
    pthread_condattr_destroy(&attr);
    int rc = zeros_new(&p->zeros, s->splitter.max, e);
    if (rc == 0) {
        p->slots = calloc(s->budget->slots, sizeof *p->slots);
        if (!p->slots)
            rc = err_nomem(e);
        for (size_t i = 0; p->slots && i < s->budget->slots; i++)
            slot_give(p, &p->slots[i]);
    }
    if (rc == 0)
        rc = make_workers(p, e);
    if (rc == 0)
        rc = pool_new(&p->pool, s->budget->workers, s->budget->workers, "chunk", e);
    if (rc < 0) {
        pipeline_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void pipeline_free(struct pipeline *p)
{
    if (!p)
        return;
    pool_free(p->pool);
    for (unsigned i = 0; p->workers && i < p->s.budget->workers; i++) {
        put_scratch_free(p->workers[i].scratch);
        free(p->workers[i].lanes);
    }
    free(p->workers);
    free(p->slots);
    zeros_free(p->zeros);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->moved);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void pipeline_stats(const struct pipeline *p, struct pipeline_stats *ret)
{
    *ret = p->stats;
}

void pipeline_stats_all(struct pipeline *p, struct pipeline_stats *ret)
{
    *ret = p->stats;
    for (unsigned i = 0; i < p->s.budget->workers; i++) {
        const struct worker_state *w = &p->workers[i];
        ret->hash_ns += w->hash_ns;
        ret->lookup_ns += w->lookup_ns;
        ret->compress_ns += w->compress_ns;
        ret->seal_ns += w->seal_ns;
        ret->write_ns += w->write_ns;
        ret->worker_split_ns += w->split_ns;
        ret->hashed_bytes += w->hashed_bytes;
    }
    struct pool_stats ps;
    pool_stats(p->pool, &ps);
    ret->busy_ns = ps.busy_ns;
    ret->idle_ns = ps.idle_ns;
    for (unsigned i = 0; i < p->s.budget->workers; i++) {
        ret->busy_ns -= p->workers[i].wait_ns;
        ret->idle_ns += p->workers[i].wait_ns;
    }
}
