/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * exchange.h - the last page, between the event loop that makes it and the threads that serve it
 *
 * A thread requests it, the loop answers in its next turn. A thread waits for the loop for a short time once, and not
 * again until the loop responds: a hanging loop makes the page old, not the scrape slow. No lock is held while a page
 * is made.
 */
#ifndef SNAPFERRY_DAEMON_METRICS_EXCHANGE_H
#define SNAPFERRY_DAEMON_METRICS_EXCHANGE_H

#include "base/err.h"
#include "base/time.h"
#include "daemon/metrics/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_FRESH_NS INT64_C(250000000) /* scrapes within that time share a page */
#define LOOP_WAIT_NS INT64_C(500000000)  /* for the loop's answer */
#define LOOP_DEAD_NS (10 * NS_PER_S)     /* without a turn: reported by /healthz */

/* Samples, and their text once somebody has asked for it: thousands of lines are not written in the loop. */
struct page {
    _Atomic unsigned refs;
    pthread_mutex_t lock;
    json_t *samples; /* nobody changes them; NULL: the text was made */
    struct metrics_options options;
    char *text;
    size_t len;
    int64_t made_ns; /* CLOCK_MONOTONIC */
};
/* Takes over the reference to `samples`, an array as metrics_text() takes; NULL for no memory. */
struct page *page_new(json_t *samples, const struct metrics_options *o);
/* Any thread: makes the text at the first call. Borrowed; NULL: no memory. */
const char *page_text(struct page *p, size_t *len);
struct page *page_ref(struct page *p);
void page_unref(struct page *p);

struct exchange {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int asks; /* eventfd: readable when a page is requested */
    uint64_t asked, done;
    bool want_page, late, closing;
    struct page *page;
    int64_t turn_ns; /* last turn of the loop, CLOCK_MONOTONIC */
    bool ready;
    char why_not[256];
};

int exchange_init(struct exchange *x, struct err *e);
void exchange_clear(struct exchange *x);

/* ---- any thread ---- */

/* The page, made anew if the loop turns and this one is not fresh; its age in *age_ns. NULL: there is none yet. The
 * caller drops the reference. */
struct page *exchange_page(struct exchange *x, int64_t *age_ns);
/* Time since the last turn of the loop, after a request. */
int64_t exchange_loop_age(struct exchange *x);
bool exchange_ready(struct exchange *x, char *why, size_t cap);

/* ---- the loop ---- */

/* The last page as it is, NULL: none yet. The caller drops the reference. */
struct page *exchange_last(struct exchange *x);
/* Takes the requests; true: a page is needed and the last is not fresh. exchange_answer() must follow. */
bool exchange_take(struct exchange *x, uint64_t *asked);
/* `page` NULL: the last one is kept. Takes the reference. */
void exchange_answer(struct exchange *x, uint64_t asked, struct page *page, bool ready, const char *why_not);
/* Threads no longer wait for the loop until it answers again: it is about to wait for them. */
void exchange_release(struct exchange *x);
/* Threads no longer wait, and it is not ready. */
void exchange_close(struct exchange *x, const char *why);

#endif
