/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/fetch-ahead.h"

#include <stdlib.h>

struct fetch_ahead {
    struct blobs *blobs;
    uint64_t most, gap;
    const struct fetch_item *next; /* the first one that no slot has */
    size_t left;                   /* from there on */
    unsigned reads, started;
    unsigned first, n; /* slots in use, a ring: from the one that is taken next */
    bool taken;        /* the first one is with the worker */
    pthread_mutex_t lock;
    pthread_cond_t wanted, ended;
    bool stop;
    struct slot {
        enum { SLOT_FREE, SLOT_WANTED, SLOT_READING, SLOT_READ, SLOT_FAILED } state;
        const struct fetch_item *item; /* the first of its group */
        size_t items;
        uint64_t from, to;
        uint8_t *buf;
    } slots[FETCH_AHEAD_MAX];
    pthread_t threads[FETCH_AHEAD_MAX];
};

static struct slot *slot_at(struct fetch_ahead *a, unsigned i)
{
    return &a->slots[(a->first + i) % a->reads];
}

/* The first one wanted, in the order in which they are taken. Called with the lock held. */
static struct slot *wanted(struct fetch_ahead *a)
{
    for (unsigned i = 0; i < a->n; i++)
        if (slot_at(a, i)->state == SLOT_WANTED)
            return slot_at(a, i);
    return NULL;
}

static void *reader_main(void *arg)
{
    struct fetch_ahead *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        struct slot *s = wanted(a);
        if (!s) {
            pthread_cond_wait(&a->wanted, &a->lock);
            continue;
        }
        s->state = SLOT_READING;
        pthread_mutex_unlock(&a->lock);
        /* Whoever reads the items again, one by one, reports what is wrong. */
        struct err ignored = ERR_INIT;
        const int rc = blobs_read(a->blobs, s->item->entry.pack, s->from, s->buf, (size_t)(s->to - s->from), &ignored);
        pthread_mutex_lock(&a->lock);
        s->state = rc < 0 ? SLOT_FAILED : SLOT_READ;
        pthread_cond_broadcast(&a->ended);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int fetch_thread(pthread_t *ret, void *(*fn)(void *), void *arg, const char *what, struct err *e)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 512u << 10);
    const int sys = pthread_create(ret, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return sys ? err_set(e, ERR_GENERIC, sys, "cannot start %s", what) : 0;
}

int fetch_ahead_new(struct fetch_ahead **ret, struct blobs *b, unsigned reads, uint64_t most, uint64_t gap,
                    struct err *e)
{
    struct fetch_ahead *a = calloc(1, sizeof *a);
    if (!a)
        return err_nomem(e);
    a->blobs = b;
    a->reads = reads;
    a->most = most;
    a->gap = gap;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wanted, NULL);
    pthread_cond_init(&a->ended, NULL);
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < reads; i++) {
        a->slots[i].buf = malloc((size_t)most);
        if (!a->slots[i].buf)
            rc = err_nomem(e);
    }
    while (rc == 0 && a->started < reads) {
        rc = fetch_thread(&a->threads[a->started], reader_main, a, "a thread that reads ahead", e);
        a->started += rc == 0;
    }
    if (rc < 0) {
        fetch_ahead_free(a);
        return rc;
    }
    *ret = a;
    return 0;
}

void fetch_ahead_free(struct fetch_ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->wanted);
    pthread_mutex_unlock(&a->lock);
    for (unsigned i = 0; i < a->started; i++)
        pthread_join(a->threads[i], NULL);
    for (unsigned i = 0; i < a->reads; i++)
        free(a->slots[i].buf);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->wanted);
    pthread_cond_destroy(&a->ended);
    free(a);
}

/* Called with the lock held. */
static void fill(struct fetch_ahead *a)
{
    for (; a->left && a->n < a->reads; a->n++) {
        struct slot *s = slot_at(a, a->n);
        s->item = a->next;
        s->items = fetch_group(a->next, a->left, a->most, a->gap, &s->from, &s->to);
        s->state = s->to - s->from > a->most ? SLOT_FAILED : SLOT_WANTED;
        a->next += s->items;
        a->left -= s->items;
    }
    pthread_cond_broadcast(&a->wanted);
}

bool fetch_ahead_wants(const struct fetch_ahead *a)
{
    return !a->left; /* of the worker's thread alone */
}

void fetch_ahead_begin(struct fetch_ahead *a, const struct fetch_item *items, size_t n)
{
    fetch_ahead_drop(a);
    fetch_ahead_follow(a, items, n);
}

void fetch_ahead_follow(struct fetch_ahead *a, const struct fetch_item *items, size_t n)
{
    pthread_mutex_lock(&a->lock);
    a->next = items;
    a->left = n;
    fill(a);
    pthread_mutex_unlock(&a->lock);
}

/* Called with the lock held. */
static void release_first(struct fetch_ahead *a)
{
    slot_at(a, 0)->state = SLOT_FREE;
    a->first = (a->first + 1) % a->reads;
    a->n--;
    a->taken = false;
}

void fetch_ahead_done(struct fetch_ahead *a)
{
    pthread_mutex_lock(&a->lock);
    if (a->taken)
        release_first(a);
    fill(a);
    pthread_mutex_unlock(&a->lock);
}

size_t fetch_ahead_next(struct fetch_ahead *a, const uint8_t **sealed, uint64_t *from)
{
    pthread_mutex_lock(&a->lock);
    if (a->taken)
        release_first(a);
    fill(a);
    const struct slot *s = slot_at(a, 0);
    while (s->state == SLOT_WANTED || s->state == SLOT_READING)
        pthread_cond_wait(&a->ended, &a->lock);
    a->taken = true;
    *sealed = s->state == SLOT_READ ? s->buf : NULL;
    *from = s->from;
    const size_t n = s->items;
    pthread_mutex_unlock(&a->lock);
    return n;
}

void fetch_ahead_drop(struct fetch_ahead *a)
{
    pthread_mutex_lock(&a->lock);
    a->left = 0;
    while (a->n) {
        const struct slot *s = slot_at(a, 0);
        while (s->state == SLOT_READING)
            pthread_cond_wait(&a->ended, &a->lock);
        release_first(a);
    }
    a->taken = false;
    pthread_mutex_unlock(&a->lock);
}
