/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/pipeline-impl.h"

#include "base/time.h"
#include "chunker/hash.h"
#include "repo/item.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DOUBT_MAX 31

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
    } else if (c->cloned) {
        st->cloned_chunks++;
        st->cloned_bytes += bytes;
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
        reader_advance_front(c->hole || c->cloned ? &g->skipped
                             : c->zero            ? &g->zero
                             : c->existed         ? &g->duplicate
                                                  : &g->fresh,
                             bytes);
    }
    return 0;
}

/* What no worker has ever had is known from its beginning. */
static bool chunk_is_known(struct pipeline *p, const struct chunk *c)
{
    return c->zero || c->cloned || state_of(p, c) == CHUNK_KNOWN;
}

/* Takes the chunks at the head of the line that are known. 0, or an error. */
static int chunks_take_known(struct pipeline *p, struct err *e)
{
    unsure_advance(p);
    while (p->line.head && chunk_is_known(p, p->line.head)) {
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
    if (!c->zero && !c->cloned)
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

/* The id of the splitter's shortest chunk if that is zeros. */
static const struct content_id *shortest_zero(struct pipeline *p)
{
    struct content_id *zero = &p->shortest_zero;
    if (!zero->len) {
        hasher_digest(p->hasher, zeros_data(p->zeros), p->s.splitter.min, zero->hash);
        zero->len = (uint8_t)hasher_size(p->hasher);
    }
    return zero;
}

/* Appends the parent's chunk at `front` if it is one here too. 1 if so, 0, or an error. Not of zeros: these are found
 * by zeros_keep(), a whole run in one step, of which sparse volumes have millions of chunks. */
static int chunk_clone(struct pipeline *p, uint64_t left, struct err *e)
{
    struct hint h;
    int rc = unchanged_at(p->s.unchanged, &p->s.splitter, p->front, left, &h, e);
    if (rc <= 0 || h.id.len != hasher_size(p->hasher))
        return rc < 0 ? rc : 0;
    if (h.len == p->s.splitter.min && content_id_equal(&h.id, shortest_zero(p)))
        return 0;
    rc = session_has(p->s.session, &h.id, e); /* also what was deleted during the run is read */
    if (rc <= 0)
        return rc;
    struct chunk *c = slot_take(p);
    c->start = p->front;
    c->len = h.len;
    c->count = 1;
    c->id = h.id;
    c->cloned = c->existed = true;
    c->state = CHUNK_KNOWN;
    /* The reader widens its ranges to whole blocks: up to one at each end of this chunk. */
    c->ring = (size_t)min_u64(h.len, 2 * p->s.budget->block);
    line_append(p, c);
    return 1;
}

/* Bytes from `front` on that were zeros in the parent and have not changed are known to be zeros, too. */
static int zeros_keep(struct pipeline *p, uint64_t end, struct err *e)
{
    uint64_t to;
    int rc = unchanged_zeros(p->s.unchanged, &p->s.splitter, shortest_zero(p), p->front, end, &to, e);
    if (rc == 0 && to > p->front && to > p->zero_end)
        p->zero_end = to;
    return rc;
}

/*
 * The view ends with the reader's range, or there is none at `front`. If there is no cut in it: reads on from there, up
 * to the longest chunk. 1, with the view; 0: the memory for it is still in use; negative: an error.
 */
static int view_extend(struct pipeline *p, size_t want, struct view *v, struct err *e)
{
    const struct splitter *s = &p->s.splitter;
    if (v->avail >= s->min && splitter_cut(s, v->data, v->avail, 0) > 0)
        return 1;
    if (p->line.head) {
        p->drain = true;
        return 0;
    }
    if (!p->apart)
        p->apart = aligned_alloc(4096, s->max + SOURCE_READ_EXTRA);
    if (!p->apart)
        return err_nomem(e);
    /* Where data ends in zeros, the cut is right behind it, or at the shortest length. */
    size_t len = (v->avail < s->min ? s->min : v->avail) + ((size_t)64 << 10);
    for (;; len *= 2) {
        v->avail = len < want ? len : want;
        int rc = source_read(p->s.source, p->front, v->avail, p->apart, &v->data, e);
        if (rc < 0)
            return rc;
        p->stats.extra_bytes += v->avail;
        if (v->avail == want || splitter_cut(s, v->data, v->avail, 0) > 0)
            return 1;
    }
}

/* Finds the chunk (or the run of zero chunks) at `front` and appends it to the line. */
static int chunk_find(struct pipeline *p, struct err *e)
{
    const struct splitter *s = &p->s.splitter;
    const uint64_t end = section_end(p, p->front), left = end - p->front;
    if (p->s.unchanged) {
        int rc = chunk_clone(p, left, e);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        rc = zeros_keep(p, end, e);
        if (rc < 0)
            return rc;
    }
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
        if (p->s.unchanged && zeros < s->min && zeros < left && v.avail < want) {
            rc = view_extend(p, want, &v, e);
            if (rc <= 0)
                return rc;
        } else if (zeros < s->min && zeros < left && v.avail < want)
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
        size_t n = splitter_cut(s, v.data, v.avail < want ? v.avail : want, 0);
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
    if (!p->line.head)
        p->drain = false;
    if (p->drain) {
        wait_while(p, p->line.head, true);
        return 0;
    }
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
        rc = workers_new(p, e);
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
    workers_free(p);
    free(p->slots);
    free(p->apart);
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
