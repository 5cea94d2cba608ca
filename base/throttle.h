/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * throttle.h - so many bytes per second at most, for all threads together
 *
 * The generic cell rate algorithm (ITU-T I.371) without a burst: what is taken moves the time at which the next may
 * begin by its length over the rate; time that nobody used is lost. Over any stretch the rate is kept but for one piece
 * at its beginning, so pieces should be small against a second's worth. All functions are thread-safe.
 */
#ifndef SNAPFERRY_BASE_THROTTLE_H
#define SNAPFERRY_BASE_THROTTLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Below this what is in memory takes minutes to be written, which looks like a stall. */
#define THROTTLE_MIN ((uint64_t)256 << 10)

struct throttle {
    uint64_t rate;            /* bytes per second; 0: no limit */
    const _Atomic bool *stop; /* once true nobody waits any more; NULL: never */
    _Atomic uint64_t next_ns; /* private: when the next may begin, CLOCK_MONOTONIC */
};

/* Nanoseconds until something may be taken, 0: now. Of a NULL throttle or one without a rate 0. */
uint64_t throttle_ahead_ns(struct throttle *t);
/* Counts bytes whose turn has come. */
void throttle_take(struct throttle *t, uint64_t bytes);
/* Waits for its turn, then takes. In the order in which they come; ends early, and takes, when `stop` becomes true. */
void throttle_wait(struct throttle *t, uint64_t bytes);

/* The largest power of two from `least` (itself one) to `most` that is no more than an eighth of a second's worth;
 * `most` of a throttle without a rate. */
size_t throttle_piece(const struct throttle *t, size_t least, size_t most);

#endif
