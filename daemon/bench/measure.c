/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * measure.c - how fast a row is
 *
 * One core: several short runs on one thread by its CPU clock: median, best and worst. All cores: one run on all
 * threads by the wall clock, and the share of the CPUs that they got, to detect other load. Each starts with an untimed
 * step, which touches the memory and fills the caches.
 */
#include "daemon/bench/bench.h"

#include "base/cleanup.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static bool canceled(const _Atomic bool *c)
{
    return c && atomic_load(c);
}

int bench_interrupted(const _Atomic bool *c, struct err *e)
{
    return canceled(c) ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted") : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, unsigned n)
{
    qsort(values, n, sizeof *values, by_value);
    return n ? (values[n / 2] + values[(n - 1) / 2]) / 2 : 0;
}

unsigned bench_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more of them than a set has bits */
    return n > 0 ? (unsigned)n : 1;
}

/* ---- one core ---- */

/* Steps until so many CPU seconds have passed, at least one; their rate. */
static int time_run(struct bench_work *w, double seconds, const _Atomic bool *cancel, double *rate, struct err *e)
{
    double begin = clock_s(CLOCK_THREAD_CPUTIME_ID), t;
    uint64_t bytes = 0;
    do {
        int64_t n = bench_interrupted(cancel, e);
        if (n >= 0)
            n = w->row->kind->step(w, e);
        if (n < 0)
            return (int)n;
        bytes += (uint64_t)n;
        t = clock_s(CLOCK_THREAD_CPUTIME_ID) - begin;
    } while (t < seconds);
    *rate = t > 0 ? (double)bytes / t * 1e-9 : 0;
    return 0;
}

struct core_runs {
    struct bench_work w;
    double rates[BENCH_RUNS_MAX], used; /* CPU seconds of all runs */
    unsigned n;
};

static void keep_runs(struct bench_row *r, struct core_runs *c)
{
    r->runs = c->n;
    r->core = bench_median(c->rates, c->n);
    r->core_worst = c->rates[0];
    r->core_best = c->rates[c->n - 1];
    if (c->w.stored)
        r->stored = (double)c->w.stored / (double)c->w.sample->piece;
}

static int begin_runs(struct core_runs *c, const struct bench_row *r, const struct bench_sample *s, struct err *e)
{
    *c = (struct core_runs){.w = {.row = r, .sample = s, .threads = 1}};
    int64_t n = r->kind->begin(&c->w, e);
    if (n >= 0)
        n = r->kind->step(&c->w, e);
    return n < 0 ? (int)n : 0;
}

/* There are fewer runs if one step takes longer than a run should. */
static int next_run(struct core_runs *c, const struct bench_limits *l, unsigned runs, struct err *e)
{
    const double now = clock_s(CLOCK_THREAD_CPUTIME_ID);
    if (c->n && l->seconds > 0 && c->used >= l->seconds)
        return 0;
    int rc = time_run(&c->w, l->seconds / runs, l->cancel, &c->rates[c->n], e);
    c->used += clock_s(CLOCK_THREAD_CPUTIME_ID) - now;
    c->n += rc >= 0;
    return rc;
}

int bench_measure_core(struct bench_row *rows, unsigned n, const struct bench_sample *s, const struct bench_limits *l,
                       struct err *e)
{
    const unsigned runs = l->runs < 1 ? 1 : l->runs > BENCH_RUNS_MAX ? BENCH_RUNS_MAX : l->runs;
    CLEANUP_FREE struct core_runs *list = calloc(n + 1, sizeof *list);
    unsigned begun = 0;
    int rc = list ? 0 : err_nomem(e);
    for (; rc >= 0 && begun < n; begun++)
        rc = begin_runs(&list[begun], &rows[begun], s, e);
    for (unsigned run = 0; rc >= 0 && run < runs; run++)
        for (unsigned i = 0; rc >= 0 && i < n; i++)
            rc = next_run(&list[i], l, runs, e);
    for (unsigned i = 0; i < begun; i++) {
        rows[i].kind->end(&list[i].w);
        if (rc >= 0)
            keep_runs(&rows[i], &list[i]);
    }
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
    unsigned index, threads;
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
    struct bench_work w = {.row = c->row, .sample = c->sample, .index = me->index, .threads = me->threads};
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

/* The sum of the rates of all threads, each by its own time. */
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

/* All start when the last one is ready. Returns the number of started threads. */
static unsigned race_start(struct race *c, struct racer *racers, unsigned n)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    unsigned started = 0;
    for (; started < n; started++) {
        racers[started] = (struct racer){.race = c, .index = started, .threads = n};
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

/* All threads, or as many as fit into memory. */
static unsigned threads_for(const struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l)
{
    uint64_t each = r->kind->memory(r, s, l->threads) + STACK, fit = l->memory / each;
    return fit < l->threads ? (unsigned)fit : l->threads;
}

static int measure_all(struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l, struct err *e)
{
    unsigned n = l->threads ? threads_for(r, s, l) : 0;
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
        return err_set(e, ERR_GENERIC, EAGAIN, "cannot start a thread");
    return race_sum(r, racers, started, e);
}

int bench_measure(struct bench_row *r, const struct bench_sample *s, const struct bench_limits *l, struct err *e)
{
    int rc = bench_measure_core(r, 1, s, l, e);
    if (rc >= 0)
        rc = measure_all(r, s, l, e);
    if (rc < 0)
        return rc == -ECANCELED ? rc : err_wrap(e, "%s %s", bench_group_name(r->group), r->name);
    r->done = true;
    return 0;
}
