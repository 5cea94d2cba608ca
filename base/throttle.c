/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/throttle.h"
#include "base/time.h"

#include <time.h>

#define LOOK_NS (NS_PER_S / 10) /* interval at which a waiting thread checks for a stop */
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

/* With its lock: the bytes that are due now, by the rate of now from now on. */
static uint64_t due_now(struct throttle *t, uint64_t rate)
{
    const uint64_t now = mono_ns(), was = atomic_load_explicit(&t->due_rate, memory_order_relaxed);
    uint64_t due = t->due_bytes + (uint64_t)((double)(now - t->since_ns) * (double)was / 1e9);
    if (rate == was)
        return due;
    if (was == 0 && due < t->next_bytes)
        due = t->next_bytes; /* there was no limit: nobody waits */
    t->due_bytes = due;
    t->since_ns = now;
    atomic_store_explicit(&t->due_rate, rate, memory_order_relaxed);
    return due;
}

/* How long it takes from `due` until `place` is. */
static uint64_t distance_ns(uint64_t due, uint64_t place, uint64_t rate)
{
    if (place <= due)
        return 0;
    const double ns = (double)(place - due) * 1e9 / (double)rate;
    const uint64_t whole = ns < 1e18 ? (uint64_t)ns : UINT64_C(1000000000000000000);
    return whole + ((double)whole < ns && whole < UINT64_C(1000000000000000000));
}

/* True: there is no limit, which the queue is to know when there is one again. */
static bool none_now(struct throttle *t)
{
    if (!none(t))
        return false;
    if (t && atomic_load_explicit(&t->due_rate, memory_order_relaxed) != 0) {
        pthread_mutex_lock(&t->lock);
        if (none(t))
            due_now(t, 0);
        pthread_mutex_unlock(&t->lock);
    }
    return true;
}

/* 0: now, or there is no limit. */
static uint64_t ahead_of(struct throttle *t, const uint64_t *place)
{
    pthread_mutex_lock(&t->lock);
    const uint64_t rate = rate_of(t), due = due_now(t, rate);
    const uint64_t ns = rate ? distance_ns(due, place ? *place : t->next_bytes, rate) : 0;
    pthread_mutex_unlock(&t->lock);
    return ns;
}

uint64_t throttle_ahead_ns(struct throttle *t)
{
    return none_now(t) || stopped(t) ? 0 : ahead_of(t, NULL);
}

/* Their place in the queue: they may be used when so many bytes are due. */
static uint64_t reserve(struct throttle *t, uint64_t bytes)
{
    pthread_mutex_lock(&t->lock);
    const uint64_t due = due_now(t, rate_of(t)), at = t->next_bytes > due ? t->next_bytes : due;
    t->next_bytes = bytes < UINT64_MAX / 2 - at ? at + bytes : UINT64_MAX / 2;
    pthread_mutex_unlock(&t->lock);
    return at;
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
        n = bytes < most || stopped(t) ? bytes : most;
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
