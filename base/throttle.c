/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/throttle.h"
#include "base/time.h"

#include <time.h>

#define LOOK_NS (NS_PER_S / 10) /* interval at which a waiting thread checks for a stop and for another rate */
#define PLACE_MAX (UINT64_MAX / 2)
#define PIECE_MIN ((size_t)16 << 10)
#define PIECE_MAX ((size_t)64 << 20)

/* 0: no limit. */
static uint64_t rate_of(const struct throttle *t)
{
    const uint64_t changed = t && t->changed ? atomic_load_explicit(t->changed, memory_order_relaxed) : 0;
    return changed == THROTTLE_NONE ? 0 : changed ? changed : t ? t->rate : 0;
}

static bool none(const struct throttle *t)
{
    return rate_of(t) == 0;
}

static bool stopped(const struct throttle *t)
{
    return t->stop && atomic_load_explicit(t->stop, memory_order_relaxed);
}

/* ---- the queue ---- */

/* When a place is due, by the rate of now. With the lock held and a rate. */
static int64_t time_of(const struct throttle *t, uint64_t place)
{
    const uint64_t behind = place > t->due_place ? place - t->due_place : 0;
    const double ns = (double)behind * 1e9 / (double)t->due_rate;
    return ns < (double)(INT64_MAX - t->since_ns) / 2 ? t->since_ns + (int64_t)ns + (behind > 0) : INT64_MAX;
}

/* Brings the queue to `now` and to the rate of now. With the lock held. */
static void advance(struct throttle *t, int64_t now, uint64_t rate)
{
    if (t->next_place == 0) /* not used before */
        t->next_place = t->due_place = 1;
    if (t->due_rate == 0 || time_of(t, t->next_place) <= now) {
        t->due_place = t->next_place; /* nobody waits, and the time that nobody used is lost */
        t->since_ns = now;
    } else if (rate != t->due_rate) {
        const uint64_t n = (uint64_t)((double)(now - t->since_ns) * (double)t->due_rate / 1e9);
        const uint64_t most = t->next_place - t->due_place;
        t->due_place += n < most ? n : most;
        t->since_ns = now;
    }
    atomic_store_explicit(&t->due_rate, rate, memory_order_relaxed);
}

/* Whether there is no limit. The queue has to know, for when there is one again. */
static bool none_now(struct throttle *t)
{
    if (!none(t))
        return false;
    if (t && atomic_load_explicit(&t->due_rate, memory_order_relaxed) != 0) {
        pthread_mutex_lock(&t->lock);
        if (none(t))
            advance(t, mono_ns(), 0);
        pthread_mutex_unlock(&t->lock);
    }
    return true;
}

/* Nanoseconds until a place is due, NULL: until the next one is. 0: now, or there is no limit. */
static uint64_t ahead_of(struct throttle *t, const uint64_t *place)
{
    pthread_mutex_lock(&t->lock);
    const int64_t now = mono_ns();
    const uint64_t rate = rate_of(t);
    advance(t, now, rate);
    const int64_t at = rate ? time_of(t, place ? *place : t->next_place) : now;
    pthread_mutex_unlock(&t->lock);
    return at > now ? (uint64_t)(at - now) : 0;
}

uint64_t throttle_ahead_ns(struct throttle *t)
{
    return none_now(t) || stopped(t) ? 0 : ahead_of(t, NULL);
}

/* The place of the bytes in the queue, never 0. */
static uint64_t reserve(struct throttle *t, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    advance(t, mono_ns(), rate_of(t));
    const uint64_t place = t->next_place;
    t->next_place = bytes < PLACE_MAX - place ? place + bytes : PLACE_MAX;
    pthread_mutex_unlock(&t->lock);
    return place;
}

void throttle_take(struct throttle *t, uint64_t bytes)
{
    if (!none_now(t))
        reserve(t, bytes);
}

static void pass(struct throttle *t, uint64_t bytes)
{
    if (t && t->passed)
        atomic_fetch_add_explicit(t->passed, bytes, memory_order_relaxed);
}

uint64_t throttle_reserve(struct throttle *t, uint64_t bytes)
{
    pass(t, bytes);
    return none_now(t) ? 0 : reserve(t, bytes);
}

void throttle_until(struct throttle *t, uint64_t reserved)
{
    for (uint64_t ns; reserved && !none_now(t) && !stopped(t) && (ns = ahead_of(t, &reserved)) > 0;)
        nanosleep(&(struct timespec){.tv_nsec = (long)(ns < LOOK_NS ? ns : LOOK_NS)}, NULL);
}

void throttle_wait(struct throttle *t, uint64_t bytes)
{
    if (none_now(t)) {
        pass(t, bytes);
        return;
    }
    uint64_t n;
    do {
        const uint64_t most = throttle_piece(t, PIECE_MIN, PIECE_MAX);
        n = bytes < most || stopped(t) || none(t) ? bytes : most;
        throttle_until(t, reserve(t, n));
        pass(t, n);
        bytes -= n;
    } while (bytes);
}

size_t throttle_piece(const struct throttle *t, size_t least, size_t most)
{
    const uint64_t rate = rate_of(t);
    size_t n = most;
    while (rate && n > least && n > rate / 8)
        n /= 2;
    return n;
}
