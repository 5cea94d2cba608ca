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

uint64_t throttle_ahead_ns(struct throttle *t)
{
    if (none(t) || stopped(t))
        return 0;
    uint64_t next = atomic_load(&t->next_ns), now = mono_ns();
    return next > now ? next - now : 0;
}

/* When the bytes may be used: their place in the queue. */
static uint64_t reserve(struct throttle *t, uint64_t bytes)
{
    const uint64_t now = mono_ns(), rate = rate_of(t);
    const uint64_t cost = rate ? (uint64_t)((double)bytes * 1e9 / (double)rate) : 0;
    uint64_t next = atomic_load(&t->next_ns), at;
    do
        at = next > now ? next : now;
    while (!atomic_compare_exchange_weak(&t->next_ns, &next, at + cost));
    return at;
}

void throttle_take(struct throttle *t, uint64_t bytes)
{
    if (!none(t))
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
    return none(t) ? 0 : reserve(t, bytes);
}

void throttle_until(struct throttle *t, uint64_t reserved)
{
    for (uint64_t now; reserved && !stopped(t) && !none(t) && (now = mono_ns()) < reserved;) {
        const uint64_t ns = reserved - now < LOOK_NS ? reserved - now : LOOK_NS;
        nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
    }
}

void throttle_wait(struct throttle *t, uint64_t bytes)
{
    if (none(t)) {
        pass(t, bytes);
        return;
    }
    const uint64_t most = throttle_piece(t, PIECE_MIN, PIECE_MAX);
    uint64_t n;
    do {
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
