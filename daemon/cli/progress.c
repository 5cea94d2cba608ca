/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * progress.c - progress of an operation with -r
 *
 * On a terminal one live line, five times a second; elsewhere a plain line every ten seconds; with --json one object a
 * second. Rate and time left are those of base/pace.h.
 */
#include "base/time.h"
#include "daemon/cli/live.h"
#include "base/pace.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define PLAIN_S 10.0
#define JSON_S 1
#define SAMPLE_S 0.2 /* often, so that the beginning of a phase is known */

struct progress_view {
    struct mover_progress *p;
    const char *what;
    bool json;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    uint64_t allocated;
    struct pace pace;
    struct live live;
    double start, printed;
};

static const char *const phase_names[] = {"opening", "moving", "committing", "checking", "done"};

struct sample {
    const char *phase;
    uint64_t total, done, read, zero, skipped, duplicate, fresh, stored, errors;
    double at, rate, left, stalled;
};

static void take_sample(struct progress_view *v, struct sample *s)
{
    struct mover_progress *p = v->p;
    const int phase = mover_progress_phase(p);
    *s = (struct sample){.phase = phase >= 0 && phase <= PHASE_DONE ? phase_names[phase] : "?",
                         .total = atomic_load(&p->total),
                         .done = mover_progress_done(p),
                         .read = atomic_load(&p->read),
                         .zero = atomic_load(&p->zero),
                         .skipped = atomic_load(&p->skipped),
                         .duplicate = atomic_load(&p->duplicate),
                         .fresh = atomic_load(&p->fresh),
                         .stored = atomic_load(&p->stored),
                         .errors = atomic_load(&p->errors),
                         .at = mono_s()};
    const struct pace_sample x = {.t = s->at,
                                  .phase = s->phase,
                                  .total = s->total,
                                  .done = s->done,
                                  .skipped = s->skipped,
                                  .zero = s->zero,
                                  .allocated = v->allocated};
    pace_add(&v->pace, &x);
    bool moves = phase == PHASE_MOVING || phase == PHASE_CHECKING;
    s->rate = pace_rate(&v->pace);
    s->left = moves ? pace_left(&v->pace, s->at) : -1;
    s->stalled = moves ? pace_stalled(&v->pace, s->at) : 0;
}

static void print_sample_json(struct progress_view *v, const struct sample *s)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "type", "progress",
                          "verb", v->what, "phase", s->phase, "totalBytes", (json_int_t)s->total, "doneBytes",
                          (json_int_t)s->done, "readBytes", (json_int_t)s->read, "zeroBytes", (json_int_t)s->zero,
                          "skippedBytes", (json_int_t)s->skipped, "duplicateBytes", (json_int_t)s->duplicate,
                          "newBytes", (json_int_t)s->fresh, "storedBytes", (json_int_t)s->stored, "errors",
                          (json_int_t)s->errors, "bytesPerSecond", s->rate, "seconds", s->at - v->start);
    if (j && s->left >= 0)
        json_object_set_new(j, "etaSeconds", json_real(s->left));
    if (j)
        print_json(j);
}

static void show_progress(struct progress_view *v)
{
    struct sample s;
    take_sample(v, &s);
    if (v->json) {
        if (s.at - v->printed < JSON_S - SAMPLE_S / 2)
            return;
        v->printed = s.at;
        print_sample_json(v, &s);
        return;
    }
    if (!v->live.on && s.at - v->printed < PLAIN_S - 0.5)
        return;
    v->printed = s.at;
    const struct shown shown = {.what = v->what,
                                .phase = s.phase,
                                .total = (int64_t)s.total,
                                .done = (int64_t)s.done,
                                .zero = (int64_t)s.zero,
                                .skipped = (int64_t)s.skipped,
                                .duplicate = (int64_t)s.duplicate,
                                .rate = s.rate,
                                .left = s.left,
                                .stalled = s.stalled,
                                .errors = s.errors,
                                .rest = ""};
    char line[2048], *lines[] = {line};
    unsigned columns, rows;
    live_size(&columns, &rows);
    progress_line(&shown, v->live.on ? columns - 1 : SCREEN_ENDLESS, line, sizeof line);
    if (v->live.on) {
        live_draw(&v->live, lines, 1);
    } else {
        fprintf(stderr, "%s\n", line);
        fflush(stderr);
    }
}

static void *progress_thread(void *arg)
{
    struct progress_view *v = arg;
    pthread_mutex_lock(&v->lock);
    while (!v->stop) {
        struct timespec until = ns_timespec(mono_ns() + (int64_t)(SAMPLE_S * 1e9));
        pthread_cond_timedwait(&v->wake, &v->lock, &until);
        if (!v->stop)
            show_progress(v);
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

int progress_start(struct progress_view **ret, const struct options *o, const char *what, struct mover_progress *p,
                   struct err *e)
{
    *ret = NULL;
    if (o->progress == PROGRESS_OFF || (o->quiet && o->progress != PROGRESS_ON))
        return 0;
    CLEANUP_FREE struct progress_view *v = calloc(1, sizeof *v);
    if (!v)
        return err_nomem(e);
    v->p = p;
    v->what = what;
    v->json = o->json;
    v->live.on = !o->json && live_possible();
    v->start = v->printed = mono_s();
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&v->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&v->lock, NULL);
    int rc = pthread_create(&v->thread, NULL, progress_thread, v);
    if (rc)
        return err_set(e, ERR_GENERIC, rc, "cannot start the progress thread");
    *ret = take_ptr(&v);
    return 0;
}

void progress_allocated(struct progress_view *v, uint64_t bytes)
{
    if (!v)
        return;
    pthread_mutex_lock(&v->lock);
    v->allocated = bytes;
    pthread_mutex_unlock(&v->lock);
}

void progress_stop(struct progress_view *v)
{
    if (!v)
        return;
    pthread_mutex_lock(&v->lock);
    v->stop = true;
    pthread_cond_signal(&v->wake);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    live_clear(&v->live);
    pthread_cond_destroy(&v->wake);
    pthread_mutex_destroy(&v->lock);
    free(v);
}
