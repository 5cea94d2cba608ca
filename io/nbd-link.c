/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/nbd-link.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/nbd-impl.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define EXTENT_SPAN ((uint64_t)1 << 30) /* asked for at once */
#define EXTENTS_MAX 65536u
#define POLL_MS 1000
#define STOP_NS (3 * NS_PER_S) /* from a cancel until requests are given up */
/* extents=no: QEMU before 8.2 reads what a guest has overwritten from the wrong place if a read of a snapshot reaches
 * from there into what was not (hbitmap_status()). Its clusters there are this long, or longer. */
#define CLUSTER 65536u

struct nbd_link {
    const struct nbd_lib *lib;
    struct nbd_handle *h;
    struct nbd_facts facts;
    char name[NBD_URI_MAX];
    int wake; /* eventfd: something was submitted, or the thread is to end */
    int64_t stall_ns;
    bool target;
    const _Atomic bool *stopped; /* NULL: no cancel */
    pthread_t thread;
    bool started;
    bool point_in_time; /* made by driver qemu, of a running machine */
    bool one_cluster;   /* no read goes beyond a multiple of max_block */

    pthread_mutex_t mu;
    pthread_cond_t cv;
    /* Under mu. */
    struct nbd_read *todo, **todo_tail;
    struct nbd_order *orders, **orders_tail;
    struct map_request *map_todo;
    bool stop;
    struct err dead; /* cls ERR_NONE: none */

    /* The thread only. */
    struct nbd_read *flying;  /* submitted to libnbd, in no order */
    struct nbd_order *obeyed; /* likewise */
    int64_t stopped_ns;       /* when the cancel was seen, 0: not */
    struct map_request *map_flying;
    int64_t moved_ns; /* when something was answered, or first asked for */

    /* Extents: under map_mu. */
    pthread_mutex_t map_mu;
    struct map_extent {
        uint64_t end;
        bool zero;
    } * map;
    size_t n_map;
    uint64_t map_from;
    bool no_map;
};

/* A question for the extents of a range. */
struct map_request {
    struct nbd_link *link;
    uint64_t pos, len;
    bool done, invalid;
    int error;
};

/* ---- the end of a link ---- */

/* Only the first reason counts. */
__attribute__((format(printf, 3, 4))) static void link_fail(struct nbd_link *l, int sys, const char *fmt, ...)
{
    char why[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&l->mu);
    if (l->dead.cls == ERR_NONE && l->target && sys == ECANCELED) {
        err_plain(&l->dead, ERR_INTERRUPTED, sys, "interrupted: NBD export %s: %s", l->name, why);
    } else if (l->dead.cls == ERR_NONE && l->target) {
        err_plain(&l->dead, ERR_TARGET, ESHUTDOWN, "NBD export %s cannot be written any more: %s", l->name, why);
        err_hint(&l->dead, "it is incomplete; when its server is back, the same command resumes");
    } else if (l->dead.cls == ERR_NONE) {
        err_plain(&l->dead, ERR_SOURCE, sys, "NBD export %s cannot be read any more: %s", l->name, why);
        if (l->point_in_time && sys == ESTALE)
            err_hint(&l->dead, "the storage class's target needs space for all that the guest overwrites during a "
                               "backup, on storage that is no slower than its drive; back up the volume again");
    }
    pthread_mutex_unlock(&l->mu);
}

int nbd_link_check(struct nbd_link *l, struct err *e)
{
    pthread_mutex_lock(&l->mu);
    const struct err dead = l->dead;
    pthread_mutex_unlock(&l->mu);
    if (dead.cls == ERR_NONE)
        return 0;
    if (e)
        *e = dead;
    return -ESHUTDOWN;
}

static bool is_over(struct nbd_link *l)
{
    pthread_mutex_lock(&l->mu);
    const bool over = l->stop || l->dead.cls != ERR_NONE;
    pthread_mutex_unlock(&l->mu);
    return over;
}

static void link_wake(struct nbd_link *l)
{
    const uint64_t one = 1;
    if (write(l->wake, &one, sizeof one) < 0)
        return; /* the counter is full: it is awake */
}

void nbd_link_abort(struct nbd_link *l)
{
    link_fail(l, ECANCELED, "reading was ended");
    link_wake(l);
}

/* Nothing is being waited for. */
static bool is_idle(const struct nbd_link *l)
{
    return !l->flying && !l->obeyed && !l->map_flying;
}

/* ---- reads ---- */

/* Notes what was sent. Each byte once: a server that sends some twice has left out others. */
static void span_add(struct nbd_read *q, uint64_t from, uint64_t to)
{
    unsigned i = 0;
    while (i < q->n_got && q->got[i].to < from)
        i++;
    const bool left = i < q->n_got && q->got[i].to == from;
    const unsigned next = left ? i + 1 : i;
    const bool right = next < q->n_got && q->got[next].from == to;
    if ((i < q->n_got && !left && q->got[i].from < to) || (next < q->n_got && q->got[next].from < to)) {
        q->broken = true;
    } else if (left) {
        q->got[i].to = right ? q->got[next].to : to;
        if (right)
            memmove(&q->got[next], &q->got[next + 1], (--q->n_got - next) * sizeof *q->got);
    } else if (right) {
        q->got[next].from = from;
    } else if (q->n_got == NBD_SPANS) {
        q->broken = true;
    } else {
        memmove(&q->got[i + 1], &q->got[i], (q->n_got++ - i) * sizeof *q->got);
        q->got[i] = (struct nbd_span){from, to};
    }
}

static int read_chunk(void *arg, const void *part, size_t len, uint64_t pos, unsigned status, int *error)
{
    struct nbd_read *q = arg;
    (void)part, (void)error;
    if (status == LIBNBD_READ_ERROR || len == 0)
        return 0;
    if (pos < q->pos || pos + len > q->pos + q->len)
        q->broken = true;
    else
        span_add(q, pos, pos + len);
    return 0;
}

static void read_end(struct nbd_read *q, int64_t res)
{
    struct nbd_read **at = &q->link->flying;
    while (*at && *at != q)
        at = &(*at)->next;
    if (*at)
        *at = q->next;
    q->next = NULL;
    q->done(q, res);
}

/* What the server has answered: all bytes, an error of the medium, or something that ends the link. Then the read is
 * completed by the end of the thread, when the reason is known. */
static int read_completed(void *arg, int *error)
{
    struct nbd_read *q = arg;
    struct nbd_link *l = q->link;
    l->moved_ns = mono_ns();
    if (*error == EIO)
        read_end(q, -EIO);
    else if (*error == ENOTCONN) /* libnbd's, of a lost connection */
        return 1;
    else if (*error == EINVAL && l->point_in_time) /* EACCES of QEMU, for which the protocol has no number */
        link_fail(l, ESTALE,
                  "QEMU has given up this point in time, since what the guest overwrites could not be copied to the "
                  "fleecing image: there is no space left for it, or its storage does not answer in time");
    else if (*error)
        link_fail(l, *error, "the server answers a read of %zu bytes at %" PRIu64 " with: %s", q->len, q->pos,
                  strerror(*error));
    else if (q->broken || q->n_got != 1 || q->got[0].from != q->pos || q->got[0].to != q->pos + q->len)
        link_fail(l, EPROTO, "the server has not sent the %zu bytes at %" PRIu64 " that it was asked for", q->len,
                  q->pos);
    else
        read_end(q, (int64_t)q->len);
    return 1;
}

static void read_begin(struct nbd_link *l, struct nbd_read *q)
{
    q->n_got = 0;
    q->broken = false;
    if (is_idle(l))
        l->moved_ns = mono_ns();
    q->next = l->flying;
    l->flying = q;
    if (l->lib->aio_pread_structured(l->h, q->buf, q->len, q->pos,
                                     (nbd_chunk_callback){.callback = read_chunk, .user_data = q},
                                     (nbd_completion_callback){.callback = read_completed, .user_data = q}, 0) < 0)
        link_fail(l, EPROTO, "%s", l->lib->get_error());
}

void nbd_link_read(struct nbd_link *l, struct nbd_read *q)
{
    q->link = l;
    q->next = NULL;
    pthread_mutex_lock(&l->mu);
    const bool over = l->dead.cls != ERR_NONE || l->stop;
    if (!over) {
        *l->todo_tail = q;
        l->todo_tail = &q->next;
    }
    pthread_mutex_unlock(&l->mu);
    if (over)
        q->done(q, -ESHUTDOWN);
    else
        link_wake(l);
}

size_t nbd_link_fit(const struct nbd_link *l, uint64_t pos, size_t len)
{
    const size_t most = l->facts.max_block - (l->one_cluster ? (size_t)(pos % l->facts.max_block) : 0);
    return len < most ? len : most;
}

struct waiter {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    bool done;
    int64_t res;
};
#define WAITER                                                                                                         \
    {                                                                                                                  \
        .mu = PTHREAD_MUTEX_INITIALIZER, .cv = PTHREAD_COND_INITIALIZER                                                \
    }

static void waiter_end(struct waiter *w, int64_t res)
{
    pthread_mutex_lock(&w->mu);
    w->res = res;
    w->done = true;
    pthread_cond_signal(&w->cv);
    pthread_mutex_unlock(&w->mu);
}

static int64_t waiter_wait(struct waiter *w)
{
    pthread_mutex_lock(&w->mu);
    while (!w->done)
        pthread_cond_wait(&w->cv, &w->mu);
    pthread_mutex_unlock(&w->mu);
    return w->res;
}

static void waited_for(struct nbd_read *q, int64_t res)
{
    waiter_end(q->arg, res);
}

int64_t nbd_link_pread(struct nbd_link *l, void *buf, size_t len, uint64_t pos)
{
    if (pos >= l->facts.size)
        return 0;
    if (len > l->facts.size - pos)
        len = (size_t)(l->facts.size - pos);
    for (size_t at = 0; at < len;) {
        const size_t n = nbd_link_fit(l, pos + at, len - at);
        struct waiter w = WAITER;
        struct nbd_read q = {.buf = (uint8_t *)buf + at, .len = n, .pos = pos + at, .done = waited_for, .arg = &w};
        nbd_link_read(l, &q);
        const int64_t res = waiter_wait(&w);
        if (res < 0)
            return res;
        at += n;
    }
    return (int64_t)len;
}

/* ---- changes ---- */

static int order_completed(void *arg, int *error)
{
    struct nbd_order *q = arg;
    struct nbd_link *l = q->link;
    l->moved_ns = mono_ns();
    if (*error == ENOTCONN) /* libnbd's, of a lost connection: the end of the thread completes it */
        return 1;
    if (*error == ESHUTDOWN) {
        link_fail(l, *error, "the server is being shut down");
        return 1;
    }
    struct nbd_order **at = &l->obeyed;
    while (*at && *at != q)
        at = &(*at)->next;
    if (!*at)
        return 1; /* the end of the thread completes it */
    *at = q->next;
    q->done(q, -*error);
    return 1;
}

static void order_begin(struct nbd_link *l, struct nbd_order *q)
{
    const nbd_completion_callback end = {.callback = order_completed, .user_data = q};
    int64_t rc = -1;
    if (is_idle(l))
        l->moved_ns = mono_ns();
    q->next = l->obeyed;
    l->obeyed = q;
    switch (q->act) {
    case NBD_WRITE:
        rc = l->lib->aio_pwrite(l->h, q->buf, (size_t)q->len, q->pos, end, 0);
        break;
    case NBD_ZERO: /* without NO_HOLE: what is thin stays thin */
        rc = l->lib->aio_zero(l->h, q->len, q->pos, end, 0);
        break;
    case NBD_FLUSH:
        rc = l->lib->aio_flush(l->h, end, 0);
        break;
    }
    if (rc < 0)
        link_fail(l, EPROTO, "%s", l->lib->get_error());
}

void nbd_link_order(struct nbd_link *l, struct nbd_order *q)
{
    q->link = l;
    q->next = NULL;
    pthread_mutex_lock(&l->mu);
    const bool over = l->dead.cls != ERR_NONE || l->stop;
    if (!over) {
        *l->orders_tail = q;
        l->orders_tail = &q->next;
    }
    pthread_mutex_unlock(&l->mu);
    if (over)
        q->done(q, -ESHUTDOWN);
    else
        link_wake(l);
}

static void obeyed(struct nbd_order *q, int res)
{
    waiter_end(q->arg, res);
}

int nbd_link_obey(struct nbd_link *l, enum nbd_act act, const void *buf, uint64_t len, uint64_t pos)
{
    struct waiter w = WAITER;
    struct nbd_order q = {.act = act, .buf = buf, .pos = pos, .len = len, .done = obeyed, .arg = &w};
    nbd_link_order(l, &q);
    return (int)waiter_wait(&w);
}

/* ---- extents ---- */

static int map_entries(void *arg, const char *context, uint64_t pos, uint32_t *entry, size_t n, int *error)
{
    struct map_request *q = arg;
    struct nbd_link *l = q->link;
    (void)error;
    if (strcmp(context, LIBNBD_CONTEXT_BASE_ALLOCATION) != 0)
        return 0;
    q->invalid |= pos != q->pos || l->n_map > 0;
    for (size_t i = 0; i + 1 < n && l->n_map < EXTENTS_MAX && !q->invalid; i += 2) {
        const bool zero = (entry[i + 1] & LIBNBD_STATE_ZERO) != 0;
        /* Longer than asked for is allowed at the end of the range alone. */
        q->invalid = entry[i] == 0 || pos >= q->pos + q->len;
        pos += entry[i];
        if (pos > l->facts.size)
            pos = l->facts.size;
        if (l->n_map > 0 && l->map[l->n_map - 1].zero == zero)
            l->map[l->n_map - 1].end = pos;
        else
            l->map[l->n_map++] = (struct map_extent){pos, zero};
    }
    return 0;
}

static int map_completed(void *arg, int *error)
{
    struct map_request *q = arg;
    struct nbd_link *l = q->link;
    if (*error == ENOTCONN) /* libnbd's, of a lost connection: the end of the thread completes it */
        return 1;
    pthread_mutex_lock(&l->mu);
    l->moved_ns = mono_ns();
    l->map_flying = NULL;
    q->error = *error;
    q->done = true;
    pthread_cond_broadcast(&l->cv);
    pthread_mutex_unlock(&l->mu);
    return 1;
}

static void map_begin(struct nbd_link *l, struct map_request *q)
{
    if (is_idle(l))
        l->moved_ns = mono_ns();
    l->map_flying = q;
    if (l->lib->aio_block_status(l->h, q->len, q->pos, (nbd_extent_callback){.callback = map_entries, .user_data = q},
                                 (nbd_completion_callback){.callback = map_completed, .user_data = q}, 0) < 0)
        link_fail(l, EPROTO, "%s", l->lib->get_error());
}

/* Asks for what begins at `pos`; map_mu is held. Whatever the server has against it, all can be read as data. */
static int map_ask(struct nbd_link *l, uint64_t pos, struct err *e)
{
    const uint64_t left = l->facts.size - pos;
    struct map_request q = {.link = l, .pos = pos, .len = left < EXTENT_SPAN ? left : EXTENT_SPAN};
    if (!l->map && !(l->map = calloc(EXTENTS_MAX, sizeof *l->map)))
        return err_nomem(e);
    l->n_map = 0;
    l->map_from = pos;
    pthread_mutex_lock(&l->mu);
    q.done = l->dead.cls != ERR_NONE || l->stop;
    q.error = q.done ? ESHUTDOWN : 0;
    if (!q.done) {
        l->map_todo = &q;
        link_wake(l);
    }
    while (!q.done)
        pthread_cond_wait(&l->cv, &l->mu);
    pthread_mutex_unlock(&l->mu);
    int rc = nbd_link_check(l, e);
    if (rc < 0)
        return rc;
    if (q.invalid) {
        link_fail(l, EPROTO, "the server describes extents that are not the ones at %" PRIu64, pos);
        link_wake(l);
        return nbd_link_check(l, e);
    }
    if (q.error || l->n_map == 0) {
        log_warning("%s: holes are not known, all is read: %s", l->name,
                    q.error ? strerror(q.error) : "the server describes no extents");
        l->no_map = true;
    }
    return 0;
}

int nbd_link_extent(struct nbd_link *l, uint64_t pos, uint64_t *len, bool *hole, struct err *e)
{
    int rc = 0;
    *hole = false;
    *len = l->facts.size - pos;
    if (!l->facts.allocation)
        return nbd_link_check(l, e);
    pthread_mutex_lock(&l->map_mu);
    const uint64_t at = pos - pos % l->facts.min_block;
    if (!l->no_map && (l->n_map == 0 || at < l->map_from || at >= l->map[l->n_map - 1].end))
        rc = map_ask(l, at, e);
    if (rc == 0 && !l->no_map) {
        size_t lo = 0, hi = l->n_map - 1;
        while (lo < hi) { /* the first that ends behind pos */
            const size_t mid = lo + (hi - lo) / 2;
            if (l->map[mid].end <= pos)
                lo = mid + 1;
            else
                hi = mid;
        }
        *len = l->map[lo].end - pos;
        *hole = l->map[lo].zero;
    }
    pthread_mutex_unlock(&l->map_mu);
    return rc;
}

void nbd_link_forget_extents(struct nbd_link *l)
{
    pthread_mutex_lock(&l->map_mu);
    l->n_map = 0;
    pthread_mutex_unlock(&l->map_mu);
}

/* ---- the thread ---- */

static void begin_submitted(struct nbd_link *l)
{
    pthread_mutex_lock(&l->mu);
    struct nbd_read *q = l->todo;
    struct nbd_order *o = l->orders;
    struct map_request *m = l->map_todo;
    l->todo = NULL;
    l->todo_tail = &l->todo;
    l->orders = NULL;
    l->orders_tail = &l->orders;
    l->map_todo = NULL;
    pthread_mutex_unlock(&l->mu);
    if (m)
        map_begin(l, m);
    while (q) {
        struct nbd_read *next = q->next;
        read_begin(l, q);
        q = next;
    }
    while (o) {
        struct nbd_order *next = o->next;
        order_begin(l, o);
        o = next;
    }
}

static void check_stall(struct nbd_link *l)
{
    const int64_t now = mono_ns();
    int64_t patience = l->stall_ns;
    for (const struct nbd_order *q = l->obeyed; q && patience == l->stall_ns; q = q->next)
        if (q->act != NBD_WRITE)
            patience *= NBD_SLOW;
    if (!is_idle(l) && now - l->moved_ns > patience)
        link_fail(l, ETIMEDOUT, "the server has not answered for %" PRId64 " s", patience / NS_PER_S);
    if (!l->stopped || !atomic_load(l->stopped))
        return;
    if (!l->stopped_ns)
        l->stopped_ns = now;
    if (!is_idle(l) && now - l->stopped_ns > STOP_NS)
        link_fail(l, ECANCELED, "the server has not answered for %" PRId64 " s after the cancel", STOP_NS / NS_PER_S);
}

static void *link_main(void *arg)
{
    struct nbd_link *l = arg;
    uint64_t n;
    const int64_t ms = l->stall_ns / NS_PER_MS / 4;
    while (!is_over(l)) {
        if (read(l->wake, &n, sizeof n) < 0 && errno != EAGAIN && errno != EINTR)
            link_fail(l, errno, "the event counter of its thread does not work");
        begin_submitted(l);
        if (nbd_drive(l->lib, l->h, l->wake, ms < POLL_MS ? (int)ms : POLL_MS) < 0) {
            const char *why = l->lib->get_error();
            link_fail(l, EPIPE, "the connection is lost%s%s", why ? ": " : "", why ? why : "");
        }
        check_stall(l);
    }
    /* libnbd lets go of the buffers before those who wait for them go on. */
    struct nbd_handle *h = l->h;
    pthread_mutex_lock(&l->mu);
    struct nbd_read *flying = l->flying, *todo = l->todo;
    struct nbd_order *orders[] = {l->obeyed, l->orders};
    struct map_request *m[] = {l->map_flying, l->map_todo};
    l->flying = l->todo = NULL;
    l->todo_tail = &l->todo;
    l->obeyed = l->orders = NULL;
    l->orders_tail = &l->orders;
    l->map_flying = l->map_todo = NULL;
    l->stop = true;
    pthread_mutex_unlock(&l->mu);
    l->lib->close(h);
    for (struct nbd_read *next; flying; flying = next) {
        next = flying->next;
        flying->done(flying, -ESHUTDOWN);
    }
    for (struct nbd_read *next; todo; todo = next) {
        next = todo->next;
        todo->done(todo, -ESHUTDOWN);
    }
    for (size_t i = 0; i < 2; i++)
        for (struct nbd_order *q = orders[i], *next; q; q = next) {
            next = q->next;
            q->done(q, -ESHUTDOWN);
        }
    pthread_mutex_lock(&l->mu);
    for (size_t i = 0; i < 2; i++)
        if (m[i]) {
            m[i]->error = ESHUTDOWN;
            m[i]->done = true;
        }
    pthread_cond_broadcast(&l->cv);
    pthread_mutex_unlock(&l->mu);
    return NULL;
}

int nbd_link_open(struct nbd_link **ret, int fd, const struct nbd_uri *u, const struct nbd_link_opts *o, struct err *e)
{
    static const struct nbd_link_opts usual = {.stall_s = NBD_STALL_S};
    const struct nbd_lib *lib = nbd_lib(e);
    struct nbd_link *l = lib ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        close(fd);
        return lib ? err_nomem(e) : -ENOTSUP;
    }
    l->lib = lib;
    o = o ? o : &usual;
    l->stall_ns = (o->stall_s ? o->stall_s : NBD_STALL_S) * NS_PER_S;
    l->target = o->target;
    l->stopped = o->stop;
    l->todo_tail = &l->todo;
    l->orders_tail = &l->orders;
    l->point_in_time = strncmp(u->export, NBD_POINT_IN_TIME, sizeof NBD_POINT_IN_TIME - 1) == 0;
    nbd_uri_text(u, l->name);
    pthread_mutex_init(&l->mu, NULL);
    pthread_mutex_init(&l->map_mu, NULL);
    pthread_cond_init(&l->cv, NULL);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = nbd_handshake(lib, &l->h, fd, u, LIBNBD_CONTEXT_BASE_ALLOCATION, o->stop, l->name, e);
    if (rc == 0)
        rc = nbd_facts_of(lib, l->h, l->name, &l->facts, e);
    if (rc == 0 && u->no_extents) {
        l->one_cluster = true;
        l->facts.max_block = CLUSTER < l->facts.max_block ? CLUSTER : l->facts.max_block;
    }
    if (rc == 0 && l->wake < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot create an event counter");
    if (rc == 0) {
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        const int sys = pthread_create(&l->thread, NULL, link_main, l);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (sys)
            rc = err_set(e, ERR_GENERIC, sys, "cannot start a thread for %s", l->name);
        l->started = sys == 0;
    }
    if (rc < 0)
        nbd_link_free(l);
    else
        *ret = l;
    return rc;
}

void nbd_link_free(struct nbd_link *l)
{
    if (!l)
        return;
    if (l->started) {
        pthread_mutex_lock(&l->mu);
        l->stop = true;
        pthread_mutex_unlock(&l->mu);
        link_wake(l);
        pthread_join(l->thread, NULL);
    } else if (l->h) {
        l->lib->close(l->h);
    }
    closep(&l->wake);
    pthread_cond_destroy(&l->cv);
    pthread_mutex_destroy(&l->mu);
    pthread_mutex_destroy(&l->map_mu);
    free(l->map);
    free(l);
}

const struct nbd_facts *nbd_link_facts(const struct nbd_link *l)
{
    return &l->facts;
}
