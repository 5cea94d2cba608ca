/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-sums.h"

#include "base/bytes.h"
#include "base/time.h"
#include "chunker/sums.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Shorter ones are summed at once. */
#define SHORT_BODY (1u << 20)
/* A pack waits while others are written, but only so long; nothing was written for the second time: nothing will be. */
#define WAIT_NS (500 * NS_PER_MS)
#define STILL_NS (20 * NS_PER_MS)
/* Their files take up to 25 MB each. Most of what is to be gained is gained by so many. */
#define AHEAD 4

/* A body that a thread waits for, in the order in which they came. */
struct waiting {
    struct waiting *next;
    struct sums_body body;
    int64_t since_ns;
    bool taken, done;
    int rc;
    struct err err;
};

struct s3_summer {
    bool sha;
    _Atomic uint64_t written; /* how often */
    pthread_mutex_t lock;     /* of the rest */
    pthread_cond_t changed;   /* uses the monotonic clock */
    struct waiting *first;    /* not taken */
    unsigned waiting;
    bool busy; /* a thread sums those that it has taken */
};

struct s3_summer *s3_summer_new(bool sha, struct err *e)
{
    struct s3_summer *s = calloc(1, sizeof *s);
    pthread_condattr_t attr;
    if (!s) {
        err_nomem(e);
        return NULL;
    }
    s->sha = sha;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    return s;
}

void s3_summer_free(struct s3_summer *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

unsigned s3_summer_ahead(void)
{
    return sums_at_a_time() > 1 ? AHEAD : 0;
}

void s3_summer_written(struct s3_summer *s)
{
    atomic_fetch_add_explicit(&s->written, 1, memory_order_relaxed);
}

static void sums_text(const struct s3_summer *s, const struct body_sums *b, struct s3_sums *ret)
{
    EVP_EncodeBlock((uint8_t *)ret->md5, b->md5, sizeof b->md5);
    ret->sha[0] = '\0';
    if (s->sha)
        hex_encode(ret->sha, b->sha256, sizeof b->sha256);
}

/* With the lock, which it leaves meanwhile: sums as many of those that wait as can be summed at a time. */
static void waiting_sum(struct s3_summer *s)
{
    struct waiting *taken[SUMS_BODIES];
    struct sums_body bodies[SUMS_BODIES];
    struct err err = ERR_INIT;
    size_t n = 0;
    while (s->first && n < SUMS_BODIES) {
        struct waiting *w = s->first;
        s->first = w->next;
        s->waiting--;
        w->taken = true;
        bodies[n] = w->body;
        taken[n++] = w;
    }
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
    const int rc = sums_of_files(bodies, n, s->sha, &err);
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    for (size_t i = 0; i < n; i++) {
        taken[i]->body = bodies[i];
        taken[i]->rc = rc;
        taken[i]->err = err;
        taken[i]->done = true;
    }
    pthread_cond_broadcast(&s->changed);
}

static void waiting_add(struct s3_summer *s, struct waiting *w)
{
    struct waiting **at = &s->first;
    while (*at)
        at = &(*at)->next;
    *at = w;
    s->waiting++;
    pthread_cond_broadcast(&s->changed);
}

/* With the lock. True: for STILL_NS nothing came, and nothing was written. */
static bool wait_for_others(struct s3_summer *s)
{
    const uint64_t written = atomic_load_explicit(&s->written, memory_order_relaxed);
    const unsigned waiting = s->waiting;
    const int64_t until = mono_ns() + STILL_NS;
    const struct timespec at = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
    const int rc = pthread_cond_timedwait(&s->changed, &s->lock, &at);
    return rc == ETIMEDOUT && s->waiting == waiting &&
           atomic_load_explicit(&s->written, memory_order_relaxed) == written;
}

int s3_summer_file(struct s3_summer *s, int fd, uint64_t length, struct s3_sums *ret, int *read, struct err *e)
{
    struct waiting w = {.body = {.fd = fd, .length = length}, .since_ns = mono_ns(), .err = ERR_INIT};
    *read = 0;
    if (length < SHORT_BODY || sums_at_a_time() == 1) {
        w.rc = sums_of_files(&w.body, 1, s->sha, e);
    } else {
        pthread_mutex_lock(&s->lock);
        waiting_add(s, &w);
        bool still = false;
        while (!w.done) {
            if (w.taken || s->busy)
                pthread_cond_wait(&s->changed, &s->lock);
            else if (still || s->waiting >= AHEAD || mono_ns() - w.since_ns > WAIT_NS)
                waiting_sum(s);
            else
                still = wait_for_others(s);
        }
        pthread_mutex_unlock(&s->lock);
        if (w.rc < 0 && e)
            *e = w.err;
    }
    if (w.rc == 0)
        *read = w.body.rc;
    if (w.rc == 0 && w.body.rc == 0)
        sums_text(s, &w.body.sums, ret);
    return w.rc < 0 ? w.rc : w.body.rc;
}

int s3_summer_memory(const struct s3_summer *s, const void *data, size_t len, struct s3_sums *ret, struct err *e)
{
    struct body_sums sums;
    const int rc = sums_of_memory(data, len, s->sha, &sums, e);
    if (rc == 0)
        sums_text(s, &sums, ret);
    return rc;
}
