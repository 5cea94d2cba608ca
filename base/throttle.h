/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * throttle.h - a limit in bytes per second for all threads together
 *
 * The generic cell rate algorithm (ITU-T I.371) without a burst: the bytes taken delay the next ones by their length
 * over the rate; unused time is lost. Over any period the rate is kept except for one piece at its beginning, so pieces
 * should be small compared with a second's worth. All functions are thread-safe. One that is all zeros but for its rate
 * and pointers is ready; it may be copied until it is used.
 */
#ifndef SNAPFERRY_BASE_THROTTLE_H
#define SNAPFERRY_BASE_THROTTLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At lower rates writing buffered data takes minutes, which looks like a stall. */
#define THROTTLE_MIN ((uint64_t)256 << 10)

#define THROTTLE_NONE UINT64_MAX

struct throttle {
    uint64_t rate; /* bytes per second; 0: no limit */
    /* A rate that another thread may set to replace it: 0: none does, THROTTLE_NONE: there is no limit any more. It is
     * that of what waits already, too, within a tenth of a second. NULL: the rate stays. */
    const _Atomic uint64_t *changed;
    const _Atomic bool *stop; /* once true no thread waits any more; NULL: never */
    /* Counter of what throttle_wait() let pass, also without a rate; NULL: none. Of many bytes at once it is increased
     * as they become due, so that it moves steadily. */
    _Atomic uint64_t *passed;
    /* Private: the queue, in bytes and not in times, so that another rate is that of all who wait. A place is the
     * number of the first of its bytes, from 1 on. due_place was due at since_ns (CLOCK_MONOTONIC), those behind it are
     * due by due_rate; next_place is that of who comes next, and never before due_place. */
    pthread_mutex_t lock; /* of the next */
    uint64_t due_place, next_place;
    int64_t since_ns;
    _Atomic uint64_t due_rate; /* 0: there is no limit, or there never was a request */
};

/* Nanoseconds until bytes may be taken, 0: now. Of a NULL throttle or one without a rate 0. */
uint64_t throttle_ahead_ns(struct throttle *t);
/* Counts bytes that are due. */
void throttle_take(struct throttle *t, uint64_t bytes);
/* Waits until they are due, then takes them; many bytes in pieces, of several threads in turns. Ends early, and takes,
 * when `stop` becomes true. */
void throttle_wait(struct throttle *t, uint64_t bytes);

/* For bytes to which another limit applies as well, before this one: their place in the queue is taken first, and then
 * waited for, so that they wait for both limits at once and not for one after the other. 0: there is no limit. */
uint64_t throttle_reserve(struct throttle *t, uint64_t bytes);
void throttle_until(struct throttle *t, uint64_t reserved);

/* The largest power of two from `least` (itself one) to `most` that is no more than an eighth of a second's worth;
 * `most` of a throttle without a rate. */
size_t throttle_piece(const struct throttle *t, size_t least, size_t most);

#endif
