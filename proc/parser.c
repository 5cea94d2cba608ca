/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * parser.c - see parser.h
 *
 * A job is in one of three places: the list to do, the hands of the thread, the list of finished ones. The mutex guards
 * the lists. `done` and `arg` are the loop's, all else belongs to the thread until the job is finished.
 */
#include "proc/parser.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

struct parse {
    struct parser *owner;
    struct parse *next;
    struct parse_limits limits;
    char *path, *text; /* one of them, or `fd`; the text is read from the file */
    int fd;            /* -1: none */
    uint64_t at;       /* in that file */
    size_t len;
    json_t *doc;
    char why[256];
    parse_done_fn *done; /* NULL: dropped */
    void *arg;
};

struct jobs {
    struct parse *first, **end;
};

struct parser {
    pthread_mutex_t mu;
    pthread_cond_t more;
    pthread_t thread;
    bool there, ends;
    struct jobs to_do, finished;
    int fd;
    sd_event *loop;
    sd_event_source *source;
};

static void parse_free(struct parse *x)
{
    json_decref(x->doc);
    closep(&x->fd);
    free(x->path);
    free(x->text);
    free(x);
}

/* ---- lists ---- */

static void jobs_clear(struct jobs *l)
{
    l->first = NULL;
    l->end = &l->first;
}

static void jobs_append(struct jobs *l, struct parse *x)
{
    x->next = NULL;
    *l->end = x;
    l->end = &x->next;
}

static struct parse *jobs_shift(struct jobs *l)
{
    struct parse *x = l->first;
    if (x && !(l->first = x->next))
        l->end = &l->first;
    return x;
}

static bool jobs_remove(struct jobs *l, struct parse *x)
{
    struct parse **p = &l->first;
    while (*p && *p != x)
        p = &(*p)->next;
    if (!*p)
        return false;
    *p = x->next;
    if (l->end == &x->next)
        l->end = p;
    return true;
}

/* ---- the work ---- */

/* `len` bytes of a file into memory. */
static bool bytes_load(struct parse *x, int fd, uint64_t at, size_t len)
{
    x->len = 0;
    x->text = malloc(len);
    if (!x->text) {
        snprintf(x->why, sizeof x->why, "no memory for %zu bytes", len);
        return false;
    }
    while (x->len < len) {
        const ssize_t n = pread(fd, x->text + x->len, len - x->len, (off_t)(at + x->len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            snprintf(x->why, sizeof x->why, "cannot read it: %s",
                     n < 0 ? strerror(errno) : "truncated while it was read");
            return false;
        }
        x->len += (size_t)n;
    }
    return true;
}

/* The whole file into memory, bounded. */
static bool file_load(struct parse *x)
{
    CLEANUP_CLOSE int fd = open(x->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        snprintf(x->why, sizeof x->why, "%s", errno == ENOENT ? "missing" : strerror(errno));
        return false;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0 || (uint64_t)st.st_size > x->limits.bytes) {
        if (!S_ISREG(st.st_mode) || st.st_size == 0)
            snprintf(x->why, sizeof x->why, "%s", S_ISREG(st.st_mode) ? "empty" : "not a regular file");
        else
            snprintf(x->why, sizeof x->why, "size of %lld bytes", (long long)st.st_size);
        return false;
    }
    return bytes_load(x, fd, 0, (size_t)st.st_size);
}

static bool part_load(struct parse *x)
{
    if (!x->len || x->len > x->limits.bytes) {
        snprintf(x->why, sizeof x->why, "size of %zu bytes", x->len);
        return false;
    }
    return bytes_load(x, x->fd, x->at, x->len);
}

static void parse_run(struct parse *x)
{
    const struct json_bounds *b = &x->limits.bounds;
    json_error_t je;
    if (!x->text && !(x->path ? file_load(x) : part_load(x)))
        return;
    if (!json_within(x->text, x->len, b)) {
        snprintf(x->why, sizeof x->why, "more than %zu values, or nested deeper than %u", b->values, b->depth);
        return;
    }
    x->doc = json_loadb(x->text, x->len, x->limits.flags, &je);
    if (!x->doc)
        snprintf(x->why, sizeof x->why, "%.150s", je.text);
    free(x->text);
    x->text = NULL;
}

static void *parser_thread(void *arg)
{
    struct parser *p = arg;
    pthread_setname_np(pthread_self(), "parser");
    pthread_mutex_lock(&p->mu);
    while (!p->ends) {
        struct parse *x = jobs_shift(&p->to_do);
        if (!x) {
            pthread_cond_wait(&p->more, &p->mu);
            continue;
        }
        pthread_mutex_unlock(&p->mu);
        parse_run(x);
        pthread_mutex_lock(&p->mu);
        jobs_append(&p->finished, x);
        eventfd_write(p->fd, 1);
    }
    pthread_mutex_unlock(&p->mu);
    return NULL;
}

/* ---- the loop's side ---- */

static int on_finished(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct parser *p = arg;
    eventfd_t n;
    struct parse *x;
    (void)s, (void)events;
    eventfd_read(fd, &n);
    /* One at a time, so that a callback may drop one of the others. */
    for (;;) {
        pthread_mutex_lock(&p->mu);
        x = jobs_shift(&p->finished);
        pthread_mutex_unlock(&p->mu);
        if (!x)
            return 0;
        json_t *doc = x->doc;
        x->doc = NULL;
        if (x->done)
            x->done(doc, x->why, x->arg);
        else
            json_decref(doc);
        parse_free(x);
    }
}

int parser_new(struct parser **ret, sd_event *loop, struct err *e)
{
    struct parser *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(e);
    pthread_mutex_init(&p->mu, NULL);
    pthread_cond_init(&p->more, NULL);
    jobs_clear(&p->to_do);
    jobs_clear(&p->finished);
    json_object_seed(0); /* before there are two threads that make objects */
    p->loop = sd_event_ref(loop);
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = p->fd < 0 ? -errno : sd_event_add_io(loop, &p->source, p->fd, EPOLLIN, on_finished, p);
    if (rc < 0) {
        parser_free(p);
        return err_set(e, ERR_GENERIC, -rc, "cannot watch the thread that parses documents");
    }
    *ret = p;
    return 0;
}

void parser_free(struct parser *p)
{
    struct parse *x;
    if (!p)
        return;
    if (p->there) {
        pthread_mutex_lock(&p->mu);
        p->ends = true;
        pthread_cond_signal(&p->more);
        pthread_mutex_unlock(&p->mu);
        pthread_join(p->thread, NULL);
    }
    while ((x = jobs_shift(&p->to_do)) || (x = jobs_shift(&p->finished)))
        parse_free(x);
    sd_event_source_disable_unref(p->source);
    sd_event_unref(p->loop);
    closep(&p->fd);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->mu);
    free(p);
}

/* Signals are the loop's. */
static bool thread_start(struct parser *p)
{
    sigset_t all, old;
    if (p->there)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    p->there = pthread_create(&p->thread, NULL, parser_thread, p) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return p->there;
}

/* Takes over what it is about; NULL: no memory. */
static struct parse *parse_begin(struct parser *p, const struct parse *about, const struct parse_limits *limits,
                                 parse_done_fn *done, void *arg)
{
    struct parse *x = about->path || about->text || about->fd >= 0 ? calloc(1, sizeof *x) : NULL;
    if (!x) {
        int fd = about->fd;
        closep(&fd);
        free(about->path);
        free(about->text);
        return NULL;
    }
    *x = *about;
    x->owner = p;
    x->limits = *limits;
    x->done = done;
    x->arg = arg;
    const bool beside = thread_start(p);
    if (!beside)
        parse_run(x);
    pthread_mutex_lock(&p->mu);
    jobs_append(beside ? &p->to_do : &p->finished, x);
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->mu);
    if (!beside)
        eventfd_write(p->fd, 1);
    return x;
}

struct parse *parse_file(struct parser *p, const char *path, const struct parse_limits *limits, parse_done_fn *done,
                         void *arg)
{
    return parse_begin(p, &(const struct parse){.path = strdup(path), .fd = -1}, limits, done, arg);
}

struct parse *parse_part(struct parser *p, int fd, uint64_t at, size_t len, const struct parse_limits *limits,
                         parse_done_fn *done, void *arg)
{
    const struct parse about = {.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3), .at = at, .len = len};
    return parse_begin(p, &about, limits, done, arg);
}

struct parse *parse_text(struct parser *p, char *text, size_t len, const struct parse_limits *limits,
                         parse_done_fn *done, void *arg)
{
    return parse_begin(p, &(const struct parse){.text = text, .len = len, .fd = -1}, limits, done, arg);
}

void parse_drop(struct parse *x)
{
    if (!x)
        return;
    struct parser *p = x->owner;
    pthread_mutex_lock(&p->mu);
    const bool here = jobs_remove(&p->to_do, x) || jobs_remove(&p->finished, x);
    pthread_mutex_unlock(&p->mu);
    x->done = NULL;
    if (here)
        parse_free(x);
}
