/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/segments.h"
#include "repo/repo-impl.h"

#include "base/cleanup.h"
#include "base/pages.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Threads: number of concurrent writes where a store supports them. */
#define WRITERS 3
#define WRITER_STACK ((size_t)256 << 10)
#define LARGE ((size_t)1 << 20) /* from here on huge pages are faster */

enum segment_state { SEGMENT_FILLING, SEGMENT_QUEUED, SEGMENT_WRITING };

struct segment {
    struct segment *next;   /* of its blob, or of the free ones */
    struct segment *behind; /* in the queue */
    struct segmented *of;
    uint8_t *bytes;
    uint64_t offset; /* in the blob */
    size_t filled;   /* bytes */
    enum segment_state state;
    struct pages extra; /* beyond the pool's count: freed when it is released */
};

struct segmented {
    struct segments *pool;
    struct blob_writer *out;
    struct segment *live; /* filled, queued, being written: a few */
    unsigned unwritten;   /* of them queued or being written */
    unsigned writing;
    bool failed;
    struct err failure;
};

struct segments {
    size_t size;
    unsigned count, made;
    struct pages memory; /* of `count` segments */
    struct segment *free;
    struct segment *queue, **queue_end; /* in the order in which they became full */
    unsigned unwritten;                 /* of all blobs: these will be free */
    uint64_t write_ns, wait_ns;
    bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t work;    /* something was queued, or a blob can be written again */
    pthread_cond_t changed; /* a segment is free, or a blob has less unwritten */
    pthread_t threads[WRITERS];
    unsigned n_threads;
};

/* ---- memory ---- */

static struct segment *segment_new(struct segments *s, struct err *e)
{
    struct segment *g = calloc(1, sizeof *g);
    if (!g) {
        err_nomem(e);
        return NULL;
    }
    if (s->made < s->count) {
        g->bytes = s->memory.memory + s->made * s->size;
    } else {
        if (!pages_map(&g->extra, s->size, false)) {
            free(g);
            err_nomem(e);
            return NULL;
        }
        g->bytes = g->extra.memory;
    }
    s->made++;
    return g;
}

static void segment_free(struct segment *g)
{
    pages_unmap(&g->extra);
    free(g);
}

/* With the lock: releases the segment. The one used last is the next: it is in the cache. */
static void segment_release(struct segments *s, struct segment *g)
{
    if (g->extra.memory) {
        s->made--;
        segment_free(g);
    } else {
        g->next = s->free;
        s->free = g;
    }
    pthread_cond_broadcast(&s->changed);
}

/* ---- the threads ---- */

static void queue_remove(struct segments *s, struct segment **at)
{
    struct segment *g = *at;
    *at = g->behind;
    if (!*at)
        s->queue_end = at;
}

/* With the lock: takes the oldest segment that may be written now. */
static struct segment *queue_take(struct segments *s)
{
    for (struct segment **at = &s->queue; *at; at = &(*at)->behind) {
        struct segment *g = *at;
        /* Where writes to a file exclude each other, a second one would only block. */
        if (g->of->writing > 0 && !blob_writer_at_once(g->of->out))
            continue;
        queue_remove(s, at);
        return g;
    }
    return NULL;
}

/* With the lock, which is released meanwhile. */
static void segment_write(struct segments *s, struct segment *g)
{
    struct segmented *f = g->of;
    struct err err = ERR_INIT;
    int rc = 0;
    g->state = SEGMENT_WRITING;
    f->writing++;
    if (!f->failed) {
        pthread_mutex_unlock(&s->lock);
        uint64_t from = mono_ns();
        rc = blob_writer_write(f->out, g->offset, g->bytes, g->filled, &err);
        uint64_t ns = mono_ns() - from;
        pthread_mutex_lock(&s->lock);
        s->write_ns += ns;
    }
    if (rc < 0 && !f->failed) {
        f->failed = true;
        f->failure = err;
    }
    f->writing--;
    f->unwritten--;
    s->unwritten--;
    struct segment **at = &f->live;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    segment_release(s, g);
    if (s->queue)
        pthread_cond_signal(&s->work);
}

static void *writer_main(void *arg)
{
    struct segments *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct segment *g = queue_take(s);
        if (g)
            segment_write(s, g);
        else if (s->stopping)
            break;
        else
            pthread_cond_wait(&s->work, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int segments_new(struct segments **ret, size_t size, unsigned count, struct err *e)
{
    struct segments *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->size = size;
    s->count = count;
    s->queue_end = &s->queue;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->changed, NULL);
    int rc = pages_map(&s->memory, s->count * s->size, s->size >= LARGE) ? 0 : err_nomem(e);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, WRITER_STACK);
    while (rc == 0 && s->n_threads < WRITERS) {
        rc = -pthread_create(&s->threads[s->n_threads], &attr, writer_main, s);
        if (rc < 0)
            err_set(e, ERR_MEMORY, -rc, "cannot start a thread");
        else
            s->n_threads++;
    }
    pthread_attr_destroy(&attr);
    if (rc < 0) {
        segments_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void segments_free(struct segments *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->n_threads; i++)
        pthread_join(s->threads[i], NULL);
    for (struct segment *g = s->free, *next; g; g = next) {
        next = g->next;
        segment_free(g);
    }
    pages_unmap(&s->memory);
    pthread_cond_destroy(&s->changed);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void segments_times(struct segments *s, uint64_t *write_ns, uint64_t *wait_ns)
{
    pthread_mutex_lock(&s->lock);
    *write_ns = s->write_ns;
    *wait_ns = s->wait_ns;
    pthread_mutex_unlock(&s->lock);
}

/* ---- a blob ---- */

int segmented_new(struct segmented **ret, struct segments *s, struct blob_writer *out, struct err *e)
{
    struct segmented *f = calloc(1, sizeof *f);
    if (!f)
        return err_nomem(e);
    f->pool = s;
    f->out = out;
    *ret = f;
    return 0;
}

void segmented_free(struct segmented *f)
{
    if (!f)
        return;
    struct segments *s = f->pool;
    pthread_mutex_lock(&s->lock);
    for (struct segment **at = &s->queue; *at;) {
        if ((*at)->of == f) {
            queue_remove(s, at);
            f->unwritten--;
            s->unwritten--;
        } else {
            at = &(*at)->behind;
        }
    }
    while (f->unwritten > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    while (f->live) {
        struct segment *g = f->live;
        f->live = g->next;
        segment_release(s, g);
    }
    pthread_mutex_unlock(&s->lock);
    free(f);
}

/* With the lock. */
static struct segment *find_live(const struct segmented *f, uint64_t offset)
{
    struct segment *g = f->live;
    while (g && g->offset != offset)
        g = g->next;
    return g;
}

static int failure_of(const struct segmented *f, struct err *e)
{
    if (!f->failed)
        return 0;
    if (e)
        *e = f->failure;
    return -(f->failure.sys ? f->failure.sys : EIO);
}

/* With the lock: the segment at `offset`, a new one if it is not there. Waits for a free one. */
static struct segment *segment_at(struct segmented *f, uint64_t offset, struct err *e)
{
    struct segments *s = f->pool;
    uint64_t since = 0;
    struct segment *g;
    for (;;) {
        g = failure_of(f, e) < 0 ? NULL : find_live(f, offset);
        if (g || f->failed)
            break;
        g = s->free;
        if (g)
            s->free = g->next;
        else if (s->made < s->count || s->unwritten == 0)
            g = segment_new(s, e);
        else {
            since = since ? since : (uint64_t)mono_ns();
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        if (!g)
            break;
        g->of = f;
        g->offset = offset;
        g->filled = 0;
        g->state = SEGMENT_FILLING;
        g->next = f->live;
        f->live = g;
        break;
    }
    if (since)
        s->wait_ns += mono_ns() - since;
    return g;
}

int segmented_span(struct segmented *f, uint64_t offset, size_t len, uint8_t **ret, size_t *n, struct err *e)
{
    struct segments *s = f->pool;
    const size_t in = (size_t)(offset % s->size);
    pthread_mutex_lock(&s->lock);
    struct segment *g = segment_at(f, offset - in, e);
    pthread_mutex_unlock(&s->lock);
    if (!g)
        return e && e->sys ? -e->sys : -EIO;
    *ret = g->bytes + in;
    *n = len < s->size - in ? len : s->size - in;
    return 0;
}

/* With the lock. */
static void queue_segment(struct segmented *f, struct segment *g)
{
    struct segments *s = f->pool;
    g->state = SEGMENT_QUEUED;
    g->behind = NULL;
    *s->queue_end = g;
    s->queue_end = &g->behind;
    f->unwritten++;
    s->unwritten++;
    pthread_cond_signal(&s->work);
}

void segmented_filled(struct segmented *f, uint64_t offset, size_t n)
{
    struct segments *s = f->pool;
    pthread_mutex_lock(&s->lock);
    struct segment *g = find_live(f, offset - offset % s->size);
    if (g) /* it is: only full ones leave the list, except when the blob failed or is freed */
        g->filled += n;
    if (g && g->filled == s->size)
        queue_segment(f, g);
    pthread_mutex_unlock(&s->lock);
}

int segmented_put(struct segmented *f, uint64_t offset, const void *data, size_t len, struct err *e)
{
    for (const uint8_t *p = data; len > 0;) {
        uint8_t *to;
        size_t n;
        int rc = segmented_span(f, offset, len, &to, &n, e);
        if (rc < 0)
            return rc;
        memcpy(to, p, n);
        segmented_filled(f, offset, n);
        offset += n;
        p += n;
        len -= n;
    }
    return 0;
}

int segmented_read(struct segmented *f, uint64_t offset, void *data, size_t len, struct err *e)
{
    struct segments *s = f->pool;
    for (uint8_t *to = data; len > 0;) {
        const size_t in = (size_t)(offset % s->size);
        const size_t n = len < s->size - in ? len : s->size - in;
        pthread_mutex_lock(&s->lock);
        const struct segment *g = find_live(f, offset - in);
        int rc = failure_of(f, e);
        if (rc == 0 && g)
            memcpy(to, g->bytes + in, n);
        pthread_mutex_unlock(&s->lock);
        if (rc == 0 && !g)
            rc = blob_writer_read(f->out, offset, to, n, e);
        if (rc < 0)
            return rc;
        offset += n;
        to += n;
        len -= n;
    }
    return 0;
}

int segmented_end(struct segmented *f, uint64_t end, struct err *e)
{
    struct segments *s = f->pool;
    pthread_mutex_lock(&s->lock);
    struct segment *last = end % s->size ? find_live(f, end - end % s->size) : NULL;
    /* One with a gap remains, and is reported below. */
    if (last && last->state == SEGMENT_FILLING && last->filled == end % s->size)
        queue_segment(f, last);
    while (f->unwritten > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    int rc = failure_of(f, e);
    if (rc == 0 && f->live)
        rc = err_set(e, ERR_GENERIC, EINVAL, "blob ended before all of its bytes were written");
    pthread_mutex_unlock(&s->lock);
    return rc;
}
