/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * progress.c - what a running operation shows
 *
 * On a terminal one live line, five times a second; elsewhere a plain line every ten seconds; with --json one object a
 * second. The rate is smoothed (time constant 5 s) and the time left is computed from what still needs work, so that a
 * long hole that is stepped over in an instant does not make the forecast jump.
 */
#include "daemon/cli/cli.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

struct progress_view {
    struct mover_progress *p;
    const char *what;
    bool live, json;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, drawn;
    double rate; /* bytes of work per second, smoothed */
    uint64_t last_work;
    double last_time, start;
};

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static const char *const phase_names[] = {"opening", "moving", "committing", "checking", "done"};

struct sample {
    int phase;
    uint64_t total, done, read, zero, skipped, duplicate, fresh, stored, errors;
    double rate, eta, seconds;
};

/* The rate counts bytes that cost work: everything that is done but was neither skipped nor a known zero. */
static void take_sample(struct progress_view *v, struct sample *s)
{
    struct mover_progress *p = v->p;
    s->phase = atomic_load(&p->phase);
    s->total = atomic_load(&p->total);
    s->done = atomic_load(&p->done);
    s->read = atomic_load(&p->read);
    s->zero = atomic_load(&p->zero);
    s->skipped = atomic_load(&p->skipped);
    s->duplicate = atomic_load(&p->duplicate);
    s->fresh = atomic_load(&p->fresh);
    s->stored = atomic_load(&p->stored);
    s->errors = atomic_load(&p->errors);
    double t = now_s();
    uint64_t work = s->done > s->skipped ? s->done - s->skipped : 0;
    double dt = t - v->last_time;
    if (dt > 0.05) {
        double now_rate = work > v->last_work ? (double)(work - v->last_work) / dt : 0;
        double a = 1 - exp(-dt / 5);
        v->rate = v->rate < 0 ? now_rate : v->rate + a * (now_rate - v->rate);
        v->last_work = work;
        v->last_time = t;
    }
    s->seconds = t - v->start;
    s->rate = v->rate < 0 ? 0 : v->rate;
    s->eta = s->total > s->done && s->rate > 1 ? (double)(s->total - s->done) / s->rate : -1;
}

static const char *phase_name(int phase)
{
    return phase >= 0 && phase <= PHASE_DONE ? phase_names[phase] : "?";
}

static void print_sample_json(struct progress_view *v, const struct sample *s)
{
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "type", "progress", "verb", v->what,
        "phase", phase_name(s->phase), "totalBytes", (json_int_t)s->total, "doneBytes", (json_int_t)s->done,
        "readBytes", (json_int_t)s->read, "zeroBytes", (json_int_t)s->zero, "skippedBytes", (json_int_t)s->skipped,
        "duplicateBytes", (json_int_t)s->duplicate, "newBytes", (json_int_t)s->fresh, "storedBytes",
        (json_int_t)s->stored, "errors", (json_int_t)s->errors, "bytesPerSecond", s->rate, "seconds", s->seconds);
    if (j && s->eta >= 0)
        json_object_set_new(j, "etaSeconds", json_real(s->eta));
    if (j)
        print_json(j);
}

static unsigned terminal_width(void)
{
    struct winsize ws;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= 20)
        return ws.ws_col;
    return 80;
}

static void format_line(const struct progress_view *v, const struct sample *s, char *out, size_t cap)
{
    char pct[16] = "";
    if (s->total)
        snprintf(pct, sizeof pct, " %3.0f%%", floor(100.0 * (double)s->done / (double)s->total));
    int n = snprintf(out, cap, "%s: %s%s %s", v->what, phase_name(s->phase), pct, text_bytes(s->done));
    if (s->total && n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, " of %s", text_bytes(s->total));
    if (s->phase != PHASE_OPENING && n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, ", %s", text_rate(s->rate));
    if (s->eta >= 0 && n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, ", %s left", text_seconds(s->eta));
    uint64_t quiet = s->zero + s->skipped;
    if (quiet && n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, ", %s zero/skipped", text_bytes(quiet));
    if (s->duplicate && n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, ", %s dup", text_bytes(s->duplicate));
    if (s->errors && n > 0 && (size_t)n < cap)
        snprintf(out + n, cap - (size_t)n, ", %lu ERRORS", (unsigned long)s->errors);
}

static void show(struct progress_view *v)
{
    struct sample s;
    take_sample(v, &s);
    if (v->json) {
        print_sample_json(v, &s);
        return;
    }
    char line[512];
    format_line(v, &s, line, sizeof line);
    if (v->live) {
        unsigned w = terminal_width();
        if (w - 1 < strlen(line))
            line[w - 1] = '\0';
        fprintf(stderr, "\r\033[K%s", line);
        v->drawn = true;
    } else {
        fprintf(stderr, "%s\n", line);
    }
    fflush(stderr);
}

static void *run(void *arg)
{
    struct progress_view *v = arg;
    const double interval = v->json ? 1 : v->live ? 0.2 : 10;
    pthread_mutex_lock(&v->lock);
    while (!v->stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        double t = (double)until.tv_nsec * 1e-9 + interval;
        until.tv_sec += (time_t)t;
        until.tv_nsec = (long)((t - floor(t)) * 1e9);
        pthread_cond_timedwait(&v->wake, &v->lock, &until);
        if (!v->stop)
            show(v);
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

int progress_start(struct progress_view **ret, const struct options *o, const char *what, struct mover_progress *p,
                   struct err *e)
{
    *ret = NULL;
    bool tty = isatty(STDERR_FILENO);
    if (o->progress == PROGRESS_OFF || (o->quiet && o->progress != PROGRESS_ON))
        return 0;
    CLEANUP_FREE struct progress_view *v = calloc(1, sizeof *v);
    if (!v)
        return err_nomem(e);
    v->p = p;
    v->what = what;
    v->json = o->json;
    v->live = tty && !o->json;
    v->rate = -1;
    v->start = v->last_time = now_s();
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&v->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&v->lock, NULL);
    int rc = pthread_create(&v->thread, NULL, run, v);
    if (rc)
        return err_set(e, ERR_GENERIC, rc, "cannot start the progress thread");
    *ret = take_ptr(&v);
    return 0;
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
    if (v->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    pthread_cond_destroy(&v->wake);
    pthread_mutex_destroy(&v->lock);
    free(v);
}
