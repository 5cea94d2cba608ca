/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/content-ahead.h"
#include "repo/repo-impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define ITEMS CONTENT_AHEAD_ITEMS
#define KNOWN 32768              /* contents that are remembered as read, roughly; of 16 bytes */
#define KEPT ((size_t)256 << 10) /* a reader keeps so much for its next content */

/* A content that was read, or is being read. */
struct got {
    struct got *next;
    struct index_entry place;
    bool done;
    int64_t len; /* negative: it could not be read */
    uint8_t data[];
};

struct content_ahead {
    struct repo *r;
    content_ahead_fn *fn;
    void *arg;
    size_t memory;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t changed;
    size_t n;     /* items */
    size_t next;  /* the first one that no thread has */
    size_t first; /* the one that the caller is at: those before first + ITEMS may be read for */
    size_t used;  /* bytes */
    unsigned reading;
    bool stop;
    struct slot {
        bool done;
        struct got *got;
    } slots[ITEMS];
    uint8_t (*known)[16]; /* by their ids */
    unsigned started;
    pthread_t threads[THREADS];
};

struct content_ahead_job {
    struct content_ahead *a;
    struct content_reader *c;
    size_t i;
};

static bool same_place(const struct index_entry *x, const struct index_entry *y)
{
    return x->offset == y->offset && x->packed == y->packed && x->length == y->length &&
           x->compression == y->compression && x->format_version == y->format_version && x->key_id == y->key_id &&
           content_id_equal(&x->id, &y->id) && !strcmp(x->pack, y->pack);
}

/* ---- reading: with the lock held unless noted ---- */

/* Whether it was read ahead before, and that it is now. Ids that share a place supersede each other. */
static bool is_known(struct content_ahead *a, const struct content_id *id, bool note)
{
    uint32_t at;
    uint8_t key[16];
    memcpy(&at, id->hash, sizeof at);
    memcpy(key, id->hash, sizeof key);
    key[15] ^= (uint8_t)id->prefix ^ id->len;
    uint8_t *k = a->known[at % KNOWN];
    const bool known = !memcmp(k, key, sizeof key);
    if (note)
        memcpy(k, key, sizeof key);
    return known;
}

static bool fits(const struct content_ahead *a, size_t bytes, bool first)
{
    return a->used + bytes <= (first ? a->memory : a->memory - a->memory / 4);
}

/*
 * The last quarter is left to the item that the caller waits for, which waits only for reads that are under way: they
 * end by themselves. The others may wait until it is their turn.
 */
static bool room_wait(const struct content_ahead_job *j, size_t bytes)
{
    struct content_ahead *a = j->a;
    bool first = j->i == a->first;
    if (bytes > a->memory)
        return false;
    while (!a->stop && !fits(a, bytes, first) && (!first || a->reading > 0)) {
        pthread_cond_wait(&a->changed, &a->lock);
        first = j->i == a->first;
    }
    return !a->stop && fits(a, bytes, first);
}

static int64_t got_read(const struct content_ahead_job *j, struct got *g, size_t need)
{
    struct content_ahead *a = j->a;
    a->reading++;
    pthread_mutex_unlock(&a->lock);
    const int64_t len = content_try_entry(j->c, &g->place, g->data, g->place.length);
    if (need > KEPT)
        content_reader_trim(j->c);
    pthread_mutex_lock(&a->lock);
    a->reading--;
    return len;
}

int64_t content_ahead_read(struct content_ahead_job *j, const struct index_entry *x, const uint8_t **ret)
{
    struct content_ahead *a = j->a;
    const size_t held = sizeof(struct got) + x->length, need = sizeof(struct got) + content_read_memory(a->r, x);
    struct got *g = NULL;
    int64_t len = -ENOENT;
    pthread_mutex_lock(&a->lock);
    if (j->c && !is_known(a, &x->id, false) && room_wait(j, need) && !is_known(a, &x->id, true))
        g = malloc(held);
    if (g) {
        struct slot *s = &a->slots[j->i % ITEMS];
        struct got **end = &s->got;
        while (*end)
            end = &(*end)->next;
        *g = (struct got){.place = *x};
        *end = g;
        a->used += need;
        g->len = len = got_read(j, g, need);
        g->done = true;
        a->used -= need - held;
        pthread_cond_broadcast(&a->changed);
        *ret = g->data;
    }
    pthread_mutex_unlock(&a->lock);
    return len;
}

static void *ahead_main(void *arg)
{
    struct content_ahead *a = arg;
    struct err ignored = ERR_INIT;
    struct content_ahead_job j = {.a = a};
    if (content_reader_new(&j.c, a->r, &ignored) == 0)
        content_reader_apart(j.c);
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (a->next >= a->n || a->next >= a->first + ITEMS) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        a->next = a->next < a->first ? a->first : a->next;
        j.i = a->next++;
        pthread_mutex_unlock(&a->lock);
        a->fn(a->arg, j.i, &j);
        pthread_mutex_lock(&a->lock);
        a->slots[j.i % ITEMS].done = true;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    content_reader_free(j.c);
    return NULL;
}

/* ---- the caller's side ---- */

/* One thread for each item, at most. With the lock held. */
static void threads_start(struct content_ahead *a)
{
    while (a->started < THREADS && a->started < a->n &&
           pthread_create(&a->threads[a->started], NULL, ahead_main, a) == 0)
        a->started++;
}

struct content_ahead *content_ahead_new(struct repo *r, size_t memory, size_t n, content_ahead_fn *fn, void *arg)
{
    if (blobs_are_files(r->blobs))
        return NULL;
    struct content_ahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct content_ahead){.r = r, .memory = memory, .n = n, .fn = fn, .arg = arg};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->known = calloc(KNOWN, sizeof *a->known);
    if (!a->known) {
        content_ahead_free(a);
        return NULL;
    }
    pthread_mutex_lock(&a->lock);
    threads_start(a);
    pthread_mutex_unlock(&a->lock);
    return a;
}

static void got_free(struct content_ahead *a, struct got *g)
{
    a->used -= sizeof *g + g->place.length;
    free(g);
}

static void slot_clear(struct content_ahead *a, struct slot *s)
{
    for (struct got *g = s->got, *next; g; g = next) {
        next = g->next;
        got_free(a, g);
    }
    *s = (struct slot){.got = NULL};
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
    for (unsigned i = 0; i < ITEMS; i++)
        slot_clear(a, &a->slots[i]);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a->known);
    free(a);
}

void content_ahead_more(struct content_ahead *a, size_t n)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->n = n;
    threads_start(a);
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

void content_ahead_at(struct content_ahead *a, size_t i)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        struct slot *s = &a->slots[a->first % ITEMS];
        while (!s->done && a->started > 0) /* without a thread nothing is read ahead */
            pthread_cond_wait(&a->changed, &a->lock);
        if (a->first >= i)
            break;
        slot_clear(a, s);
        a->first++;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
}

int64_t content_ahead_take(struct content_ahead *a, const struct index_entry *x, void *out)
{
    int64_t len = -ENOENT;
    struct got **at = NULL;
    if (!a)
        return len;
    pthread_mutex_lock(&a->lock);
    struct slot *s = a->slots;
    for (; s < a->slots + ITEMS; s++) {
        for (at = &s->got; *at && !same_place(&(*at)->place, x);)
            at = &(*at)->next;
        if (*at)
            break;
    }
    struct got *g = s < a->slots + ITEMS ? *at : NULL;
    /* One of a later item: it is not dropped meanwhile. */
    while (g && !g->done)
        pthread_cond_wait(&a->changed, &a->lock);
    if (g && g->len >= 0) {
        len = g->len;
        memcpy(out, g->data, (size_t)len);
    }
    /* It is in use, too, until the thread that has read it is done with its item. */
    if (g && s->done) {
        *at = g->next;
        got_free(a, g);
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return len;
}
