/* SPDX-License-Identifier: GPL-2.0-or-later */
/* exchange.c - the last page, between the loop that makes it and the threads that serve it */
#include "daemon/metrics/exchange.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

/* Samples of volumes are shared with later pages, which the loop makes meanwhile. */
_Static_assert(JSON_HAVE_ATOMIC_BUILTINS || JSON_HAVE_SYNC_BUILTINS, "references are not counted atomically");

struct page *page_new(json_t *samples, const struct metrics_options *o)
{
    struct page *p = samples ? calloc(1, sizeof *p) : NULL;
    if (!p) {
        json_decref(samples);
        return NULL;
    }
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    p->samples = samples;
    p->options = *o;
    p->made_ns = mono_ns();
    return p;
}

const char *page_text(struct page *p, size_t *len)
{
    pthread_mutex_lock(&p->lock);
    if (!p->text && (p->text = metrics_text(p->samples, &p->options, &p->len))) {
        json_decref(p->samples);
        p->samples = NULL;
    }
    pthread_mutex_unlock(&p->lock);
    *len = p->text ? p->len : 0;
    return p->text;
}

struct page *page_ref(struct page *p)
{
    if (p)
        atomic_fetch_add(&p->refs, 1);
    return p;
}

void page_unref(struct page *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    json_decref(p->samples);
    pthread_mutex_destroy(&p->lock);
    free(p->text);
    free(p);
}

int exchange_init(struct exchange *x, struct err *e)
{
    pthread_condattr_t a;
    *x = (struct exchange){.asks = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .turn_ns = mono_ns()};
    if (x->asks < 0)
        return err_set(e, ERR_GENERIC, errno, "no eventfd can be made for the metrics");
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&x->answered, &a);
    pthread_condattr_destroy(&a);
    return 0;
}

void exchange_clear(struct exchange *x)
{
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->answered);
    page_unref(x->page);
    close(x->asks);
}

/* With the lock held: requests a page, and waits for the answer unless the loop is known to hang. */
static void ask(struct exchange *x, bool page)
{
    uint64_t mine = ++x->asked, one = 1;
    int64_t until = mono_ns() + LOOP_WAIT_NS;
    struct timespec t = {until / NS_PER_S, until % NS_PER_S};
    x->want_page |= page;
    if (write(x->asks, &one, sizeof one) < 0 && errno != EAGAIN)
        return;
    while (x->done < mine && !x->late && !x->closing)
        if (pthread_cond_timedwait(&x->answered, &x->lock, &t) == ETIMEDOUT)
            x->late = x->done < mine;
}

struct page *exchange_page(struct exchange *x, int64_t *age_ns)
{
    pthread_mutex_lock(&x->lock);
    if (!x->page || mono_ns() - x->page->made_ns >= PAGE_FRESH_NS)
        ask(x, true);
    struct page *p = page_ref(x->page);
    pthread_mutex_unlock(&x->lock);
    *age_ns = p ? mono_ns() - p->made_ns : 0;
    return p;
}

int64_t exchange_loop_age(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    int64_t now = mono_ns();
    if (now - x->turn_ns >= PAGE_FRESH_NS)
        ask(x, false);
    int64_t age = mono_ns() - x->turn_ns;
    pthread_mutex_unlock(&x->lock);
    return age;
}

bool exchange_ready(struct exchange *x, char *why, size_t cap)
{
    int64_t age = exchange_loop_age(x);
    pthread_mutex_lock(&x->lock);
    bool ready = x->ready && age < LOOP_DEAD_NS;
    if (x->ready && !ready)
        snprintf(why, cap, "the event loop has not turned for %lld s", (long long)(age / NS_PER_S));
    else
        snprintf(why, cap, "%s", x->why_not);
    pthread_mutex_unlock(&x->lock);
    return ready;
}

struct page *exchange_last(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    struct page *p = page_ref(x->page);
    pthread_mutex_unlock(&x->lock);
    return p;
}

bool exchange_take(struct exchange *x, uint64_t *asked)
{
    uint64_t n;
    if (read(x->asks, &n, sizeof n) < 0)
        n = 0; /* taken by an earlier turn */
    pthread_mutex_lock(&x->lock);
    *asked = x->asked;
    bool wanted = x->want_page && (!x->page || mono_ns() - x->page->made_ns >= PAGE_FRESH_NS);
    x->want_page = false;
    pthread_mutex_unlock(&x->lock);
    return wanted;
}

void exchange_answer(struct exchange *x, uint64_t asked, struct page *page, bool ready, const char *why_not)
{
    struct page *old = NULL;
    pthread_mutex_lock(&x->lock);
    if (page) {
        old = x->page;
        x->page = page;
    }
    x->done = asked;
    x->late = false;
    x->turn_ns = mono_ns();
    x->ready = ready;
    snprintf(x->why_not, sizeof x->why_not, "%s", why_not);
    pthread_cond_broadcast(&x->answered);
    pthread_mutex_unlock(&x->lock);
    page_unref(old);
}

void exchange_release(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->late = true;
    pthread_cond_broadcast(&x->answered);
    pthread_mutex_unlock(&x->lock);
}

void exchange_close(struct exchange *x, const char *why)
{
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    x->ready = false;
    snprintf(x->why_not, sizeof x->why_not, "%s", why);
    pthread_cond_broadcast(&x->answered);
    pthread_mutex_unlock(&x->lock);
}
