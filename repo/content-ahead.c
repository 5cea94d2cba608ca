/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/content-ahead.h"
#include "repo/repo-impl.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS 8
#define SLOTS 16
#define LONGEST (1u << 20)

struct content_ahead {
    struct repo *r;
    size_t n;
    content_ahead_fn *entry;
    void *arg;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t changed;
    size_t next;  /* the first one that no thread has */
    size_t first; /* the first one that may still be taken; those up to first + SLOTS may be read */
    bool stop;
    struct slot {
        size_t i;
        bool done;
        int64_t len; /* negative: not read */
        uint8_t *data;
    } slots[SLOTS];
    unsigned started;
    pthread_t threads[THREADS];
};

static int64_t read_one(struct content_reader *c, const struct index_entry *x, uint8_t **ret)
{
    /* Whoever reads it again reports what is wrong. */
    struct err ignored = ERR_INIT;
    return content_get_entry(c, x, ret, LONGEST, &ignored);
}

static void *reader_main(void *arg)
{
    struct content_ahead *a = arg;
    struct content_reader *c = NULL;
    struct err ignored = ERR_INIT;
    const bool able = content_reader_new(&c, a->r, &ignored) == 0;
    pthread_mutex_lock(&a->lock);
    while (!a->stop && a->next < a->n) {
        if (a->next >= a->first + SLOTS) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        const size_t i = a->next++;
        struct slot *s = &a->slots[i % SLOTS];
        struct index_entry x;
        *s = (struct slot){.i = i, .len = -1};
        if (able && a->entry(a->arg, i, &x) && x.packed <= LONGEST) {
            uint8_t *data = NULL;
            pthread_mutex_unlock(&a->lock);
            const int64_t len = read_one(c, &x, &data);
            pthread_mutex_lock(&a->lock);
            s->len = len;
            s->data = len < 0 ? NULL : data;
        }
        s->done = true;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    content_reader_free(c);
    return NULL;
}

struct content_ahead *content_ahead_new(struct repo *r, size_t n, content_ahead_fn *entry, void *arg)
{
    if (n < 2 || blobs_are_files(r->blobs))
        return NULL;
    struct content_ahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct content_ahead){.r = r, .n = n, .entry = entry, .arg = arg};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    while (a->started < THREADS && a->started < n && pthread_create(&a->threads[a->started], NULL, reader_main, a) == 0)
        a->started++;
    if (a->started > 0)
        return a;
    content_ahead_free(a);
    return NULL;
}

void content_ahead_free(struct content_ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    for (unsigned i = 0; i < a->started; i++)
        pthread_join(a->threads[i], NULL);
    for (unsigned i = 0; i < SLOTS; i++)
        free(a->slots[i].data);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a);
}

/* With the lock held: waits until content i is done. */
static struct slot *slot_of(struct content_ahead *a, size_t i)
{
    struct slot *s = &a->slots[i % SLOTS];
    while (a->next <= i || s->i != i || !s->done)
        pthread_cond_wait(&a->changed, &a->lock);
    return s;
}

int64_t content_ahead_get(struct content_ahead *a, size_t i, uint8_t **out)
{
    pthread_mutex_lock(&a->lock);
    struct slot *s = NULL;
    while (a->first <= i) {
        s = slot_of(a, a->first);
        if (a->first < i)
            free(s->data);
        *out = a->first < i ? NULL : s->data;
        s->data = NULL;
        a->first++;
        pthread_cond_broadcast(&a->changed);
    }
    const int64_t len = s ? s->len : -1;
    pthread_mutex_unlock(&a->lock);
    return len;
}
