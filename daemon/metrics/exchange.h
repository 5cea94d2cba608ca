/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * exchange.h - the last page, between the event loop that makes it and the threads that hand it out
 *
 * A thread asks, the loop answers in its next turn. A thread waits for the loop a short time once, and not again until
 * the loop has turned: a loop that hangs makes the page old, not the scrape slow. Nothing is held while a page is made.
 */
#ifndef SNAPFERRY_DAEMON_METRICS_EXCHANGE_H
#define SNAPFERRY_DAEMON_METRICS_EXCHANGE_H

#include "base/err.h"
#include "base/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_FRESH_NS INT64_C(250000000) /* scrapes within that time share a page */
#define LOOP_WAIT_NS INT64_C(500000000)  /* for the loop's answer */
#define LOOP_DEAD_NS (10 * NS_PER_S)     /* without a turn: /healthz says so */

struct page {
    _Atomic unsigned refs;
    char *text;
    size_t len;
    int64_t made_ns; /* CLOCK_MONOTONIC */
};
/* Takes `text` over; NULL for no memory (text is freed). */
struct page *page_new(char *text, size_t len);
struct page *page_ref(struct page *p);
void page_unref(struct page *p);

struct exchange {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int asks; /* eventfd: readable when somebody asks */
    uint64_t asked, done;
    bool want_page, late, closing;
    struct page *page;
    int64_t turn_ns; /* last time that the loop was seen, CLOCK_MONOTONIC */
    bool ready;
    char why_not[256];
};

int exchange_init(struct exchange *x, struct err *e);
void exchange_clear(struct exchange *x);

/* ---- any thread ---- */

/* The page, made anew if the loop turns and this one is not fresh; its age in *age_ns. NULL: there is none yet. The
 * caller drops the reference. */
struct page *exchange_page(struct exchange *x, int64_t *age_ns);
/* How long the loop has not turned, after asking it. */
int64_t exchange_loop_age(struct exchange *x);
bool exchange_ready(struct exchange *x, char *why, size_t cap);

/* ---- the loop ---- */

/* The last page as it is, NULL: none yet. The caller drops the reference. */
struct page *exchange_last(struct exchange *x);
/* Takes the asks; true: a page is wanted and the last is not fresh. exchange_answer() must follow. */
bool exchange_take(struct exchange *x, uint64_t *asked);
/* `page` NULL: the last one stays. Takes the reference over. */
void exchange_answer(struct exchange *x, uint64_t asked, struct page *page, bool ready, const char *why_not);
/* Nobody waits for the loop until it answers again: it is about to wait for their threads. */
void exchange_release(struct exchange *x);
/* Nobody waits any more, and it is not ready. */
void exchange_close(struct exchange *x, const char *why);

#endif
