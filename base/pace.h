/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pace.h - rate of a running operation and estimate of its end
 *
 * Pure arithmetic on the progress counters of movers: the daemon, `backup --wait` and the modes with -r show the same
 * figures. Three rules keep them meaningful:
 *
 * - The rate is that of data. Holes, skipped parts and stretches of zeros are not included: they take no time and
 *   would make it jump. It is bytes over time, both decaying with a half-life of PACE_HALF_LIFE seconds.
 * - The remaining time is derived from the bytes that will really be read: what the volume has allocated and was not
 *   read yet if that is known, else of what is left the share that was read so far; and from the rate of reading, zeros
 *   included, with a half-life of PACE_HALF_LIFE seconds or of a third of the phase, but PACE_HALF_LIFE_MIN. Its end,
 *   not its length, is smoothed with a half-life of PACE_END_HALF_LIFE seconds, or of a quarter of the phase while that
 *   is less: what the first seconds said is soon forgotten. There is none in the first PACE_SETTLE seconds of a phase
 *   (PACE_SETTLE_MIN, if a tenth was read by then), nor while there was no progress for PACE_STALL. Time before the
 *   first progress of a phase is preparation. Progress may come in lumps: the time between two of them counts when the
 *   second one comes, or after PACE_LUMP.
 * - 100 % is shown only after the end.
 */
#ifndef SNAPFERRY_BASE_PACE_H
#define SNAPFERRY_BASE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_HALF_LIFE 10.0
#define PACE_HALF_LIFE_MIN 1.0
#define PACE_END_HALF_LIFE 5.0
#define PACE_SETTLE 5.0
#define PACE_SETTLE_MIN 1.0
#define PACE_STALL 15.0
#define PACE_LUMP 3.0

/* One sample of an operation. Bytes; `t` in seconds of a monotonic clock. */
struct pace_sample {
    double t;
    const char *phase;  /* a new one restarts the estimate; NULL: none */
    uint64_t total;     /* 0: not known yet */
    uint64_t done;      /* of total: processed in whatever way */
    uint64_t skipped;   /* of done: no work (holes, unchanged, already equal) */
    uint64_t zero;      /* of done: read, and nothing but zeros */
    uint64_t allocated; /* of total: will be read at most; 0: not known */
};

struct pace {
    bool begun;
    char phase[32];
    double start, last, moved; /* of the phase; of the last sample; of the last progress */
    struct pace_sample at;
    double data, data_s; /* bytes and seconds, fading */
    double passed, pass_s;
    double waited;     /* seconds since the last progress that are not in pass_s yet */
    bool moving;       /* there was progress */
    double end;        /* estimated end, smoothed; < 0: not shown yet */
    unsigned setbacks; /* how often `done` decreased in one phase: a new attempt */
};

/* {0} is an empty one. */
void pace_add(struct pace *p, const struct pace_sample *s);

/* Bytes of data per second, >= 0. */
double pace_rate(const struct pace *p);
/* Seconds left at time `t`, or < 0 if unknown. */
double pace_left(const struct pace *p, double t);
/* Seconds since the last progress. */
double pace_stalled(const struct pace *p, double t);
/* 0..99, and 100 only if `ended`; < 0 if the total is not known. */
int pace_percent(int64_t done, int64_t total, bool ended);

#endif
