/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pace.h - how fast a running operation is and when it will be done, as a person may believe it
 *
 * Pure arithmetic on what movers count of their progress: the daemon, `backup --wait` and the modes with -r show
 * the same figures. Three rules make them honest:
 *
 * - The rate is that of data. Holes and skipped parts are not in it, nor are stretches of zeros: they go by in an
 *   instant and would make it jump. It is bytes over time, both forgotten with a half-life of PACE_HALF_LIFE seconds.
 * - The time left comes from the bytes that will really be read: what the volume has allocated and was not read yet
 *   where that is known, else all that is left; and from how fast reading went, zeros included. Its end, not its
 *   length, is smoothed with a half-life of PACE_END_HALF_LIFE seconds. There is none in the first PACE_SETTLE seconds
 * of a phase, nor while nothing has moved for PACE_STALL.
 * - 100 % is said of what has ended, of nothing else.
 */
#ifndef SNAPFERRY_BASE_PACE_H
#define SNAPFERRY_BASE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_HALF_LIFE 10.0
#define PACE_END_HALF_LIFE 5.0
#define PACE_SETTLE 5.0
#define PACE_STALL 15.0

/* One look at an operation. Bytes; `t` in seconds of a clock that does not go back. */
struct pace_sample {
    double t;
    const char *phase;  /* a new one starts anew; NULL: there is one */
    uint64_t total;     /* 0: not known yet */
    uint64_t done;      /* of total: passed in whatever way */
    uint64_t skipped;   /* of done: cost nothing (holes, unchanged, already equal) */
    uint64_t zero;      /* of done: read, and nothing but zeros */
    uint64_t allocated; /* of total: will be read at most; 0: not known */
};

struct pace {
    bool begun;
    char phase[32];
    double start, last, moved; /* of the phase; of the last sample; when something moved last */
    struct pace_sample at;
    double data, data_s; /* bytes and seconds, fading */
    double passed, pass_s;
    double end;        /* when it will be done, smoothed; < 0: not told yet */
    unsigned setbacks; /* how often `done` went back in one phase: a new attempt */
};

/* {0} is an empty one. */
void pace_add(struct pace *p, const struct pace_sample *s);

/* Bytes of data per second, >= 0. */
double pace_rate(const struct pace *p);
/* Seconds left at time `t`, or < 0 if it cannot be told. */
double pace_left(const struct pace *p, double t);
/* Seconds since something moved. */
double pace_stalled(const struct pace *p, double t);
/* 0..99, and 100 only if `ended`; < 0 if the total is not known. */
int pace_percent(int64_t done, int64_t total, bool ended);

#endif
