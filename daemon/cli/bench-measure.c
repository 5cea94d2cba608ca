/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench-measure.c - how fast a row is
 *
 * One core: several short runs on one thread, each timed by that thread's CPU clock; the median counts, and the best is
 * told beside it. All cores: one run on all threads at a time by the wall clock, and what share of the CPUs the threads
 * got, so that a machine that has other work to do does not pass for a slow one. A step comes before either, untimed:
 * it touches the memory and fills the caches.
 */
#include "daemon/cli/bench.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define RUNS_MAX 32
#define STACK ((size_t)512 << 10)

static double clock_s(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_wall(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

double bench_process_cpu(void)
{
    return clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

static bool canceled(const struct mover_cancel *c)
{
    return c && atomic_load(&c->requested);
}

int bench_interrupted(const struct mover_cancel *c, struct err *e)
{
    return canceled(c) ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted") : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- one core ---- */

static int time_runs(struct bench_row *r, struct bench_work *w, const struct bench_limits *l, struct err *e)
{
    double rates[RUNS_MAX], share = l->seconds / l->runs;
    int64_t n = r->kind->step(w, e);
    double enough = clock_s(CLOCK_THREAD_CPUTIME_ID) + l->seconds;
    for (unsigned i = 0; n >= 0 && i < l->runs; i++) {
        double begin = clock_s(CLOCK_THREAD_CPUTIME_ID), t = 0;
        if (i && begin >= enough) /* one step takes longer than a run was meant to */
            break;
        uint64_t bytes = 0;
        do {
            n = bench_interrupted(l->cancel, e);
            if (n >= 0)
                n = r->kind->step(w, e);
            if (n < 0)
                return (int)n;
            bytes += (uint64_t)n;
            t = clock_s(CLOCK_THREAD_CPUTIME_ID) - begin;
        } while (t < share);
        rates[r->runs++] = (double)bytes / t * 1e-9;
    }
    if (n < 0)
        return (int)n;
    qsort(rates, r->runs, sizeof *rates, by_value);
    r->core = (rates[r->runs / 2] + rates[(r->runs - 1) / 2]) / 2;
    r->core_best = rates[r->runs - 1];
    if (w->stored)
        r->stored = (double)w->stored / (double)w->sample->piece;
    return 0;
}

static int measure_core(struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l, struct err *e)
{
    struct bench_work w = {.row = r, .sample = s};
    int rc = r->kind->begin(&w, e);
    if (rc >= 0)
        rc = time_runs(r, &w, l, e);
    r->kind->end(&w);
    return rc;
}

/* ---- all cores ---- */

struct race {
    const struct bench_row *row;
    const struct bench_sample *sample;
    const struct bench_limits *limits;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    unsigned ready; /* under lock, as is go */
    bool go;
    _Atomic bool failed;
};

struct racer {
    struct race *race;
    pthread_t thread;
    double seconds, cpu;
    uint64_t bytes;
    int rc;
    struct err e;
};

static void wait_for_start(struct race *c)
{
    pthread_mutex_lock(&c->lock);
    c->ready++;
    pthread_cond_broadcast(&c->turn);
    while (!c->go)
        pthread_cond_wait(&c->turn, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void *race_run(void *arg)
{
    struct racer *me = arg;
    struct race *c = me->race;
    const struct bench_kind *k = c->row->kind;
    struct bench_work w = {.row = c->row, .sample = c->sample};
    int64_t n = k->begin(&w, &me->e);
    if (n >= 0)
        n = k->step(&w, &me->e);
    if (n < 0)
        atomic_store(&c->failed, true);
    wait_for_start(c);
    double begin = bench_wall(), cpu = clock_s(CLOCK_THREAD_CPUTIME_ID);
    while (n >= 0 && !atomic_load(&c->failed) && !canceled(c->limits->cancel)) {
        n = k->step(&w, &me->e);
        me->bytes += n > 0 ? (uint64_t)n : 0;
        me->seconds = bench_wall() - begin;
        if (me->seconds >= c->limits->seconds)
            break;
    }
    me->cpu = clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu;
    me->rc = n < 0 ? (int)n : 0;
    k->end(&w);
    return NULL;
}

/* Each thread's own rate, added up: the last ones to end are then not taken for slow. */
static int race_sum(struct bench_row *r, const struct racer *racers, unsigned n, struct err *e)
{
    double rate = 0, cpu = 0, wall = 0;
    for (unsigned i = 0; i < n; i++) {
        if (racers[i].rc < 0) {
            *e = racers[i].e;
            return racers[i].rc;
        }
        if (racers[i].seconds > 0)
            rate += (double)racers[i].bytes / racers[i].seconds * 1e-9;
        cpu += racers[i].cpu;
        wall += racers[i].seconds;
    }
    r->all = rate;
    r->threads = n;
    r->share = wall > 0 && cpu < wall ? cpu / wall : 1;
    return 0;
}

/* All begin when the last one is ready. Returns how many could be started. */
static unsigned race_start(struct race *c, struct racer *racers, unsigned n)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    unsigned started = 0;
    for (; started < n; started++) {
        racers[started] = (struct racer){.race = c};
        if (pthread_create(&racers[started].thread, &attr, race_run, &racers[started]) != 0)
            break;
    }
    pthread_attr_destroy(&attr);
    pthread_mutex_lock(&c->lock);
    while (c->ready < started)
        pthread_cond_wait(&c->turn, &c->lock);
    c->go = true;
    pthread_cond_broadcast(&c->turn);
    pthread_mutex_unlock(&c->lock);
    return started;
}

/* As many threads as there are, or as fit into memory: a code with a window of megabytes on 64 CPUs does not. */
static unsigned threads_for(const struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l)
{
    uint64_t each = r->kind->memory(r, s) + STACK, fit = l->memory / each;
    return fit < l->threads ? (unsigned)fit : l->threads;
}

static int measure_all(struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l, struct err *e)
{
    unsigned n = threads_for(r, s, l);
    if (n == 0)
        return 0;
    CLEANUP_FREE struct racer *racers = calloc(n, sizeof *racers);
    if (!racers)
        return err_nomem(e);
    struct race c = {
        .row = r, .sample = s, .limits = l, .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};
    unsigned started = race_start(&c, racers, n);
    for (unsigned i = 0; i < started; i++)
        pthread_join(racers[i].thread, NULL);
    int rc = bench_interrupted(l->cancel, e);
    if (rc < 0)
        return rc;
    if (started == 0)
        return err_set(e, ERR_GENERIC, EAGAIN, "no thread can be started");
    return race_sum(r, racers, started, e);
}

int bench_measure(struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l, struct err *e)
{
    int rc = measure_core(r, s, l, e);
    if (rc >= 0)
        rc = measure_all(r, s, l, e);
    if (rc < 0)
        return rc == -ECANCELED ? rc : err_wrap(e, "%s %s", bench_group_name(r->group), r->name);
    r->done = true;
    return 0;
}
