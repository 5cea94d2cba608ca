/* SPDX-License-Identifier: GPL-2.0-or-later */
/* schedule-judge.c - is a job due at a given time: pure functions of its calendar and of what is remembered */
#include "base/time.h"
#include "daemon/schedule/schedule-impl.h"

#include <stdio.h>
#include <string.h>

/* A run that starts so much later than planned has been missed. */
#define LATE_NS NS_PER_MIN

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t calendar_latest(const struct calendar *c, int64_t from_ns, int64_t now_ns)
{
    /* Windows that grow, until one has an event in it; then the last of those few. */
    for (int64_t window = NS_PER_S / 1000;; window *= 8) {
        int64_t from = window > now_ns - from_ns ? from_ns : now_ns - window;
        int64_t t = calendar_next(c, from), last = 0;
        for (; t <= now_ns; t = calendar_next(c, t))
            last = t;
        if (last || from == from_ns)
            return last;
    }
}

/* The time from which on events count. */
static int64_t reference(const struct sched_job *j)
{
    return max_of(j->since_ns, max_of(j->last_planned_ns, j->asked_ns));
}

void sched_judge(struct sched_job *j, int64_t now, int64_t patience_ns, struct sched_verdict *v, bool *forgotten)
{
    int64_t wait = j->offset_ns + patience_ns, ref = reference(j);
    *v = (struct sched_verdict){.next_ns = INT64_MAX, .look_ns = INT64_MAX};
    *forgotten = false;
    if (ref > now) {
        int64_t next = calendar_next(j->calendar, now), after = calendar_next(j->calendar, next);
        int64_t interval = after == INT64_MAX ? NS_PER_H : after - next;
        if (ref - now > (interval < NS_PER_H ? interval : NS_PER_H)) {
            j->since_ns = j->last_planned_ns = j->asked_ns = ref = now;
            *forgotten = true;
        }
    }
    int64_t planned = calendar_next(j->calendar, ref);
    if (planned <= now - wait) {
        int64_t latest = calendar_latest(j->calendar, ref, now - wait);
        v->planned_ns = max_of(planned, latest);
        /* Patience that has run out is lateness, too. */
        v->caught_up = patience_ns > 0 || planned != v->planned_ns || now - v->planned_ns - j->offset_ns > LATE_NS;
        v->due = j->persistent || !v->caught_up;
        j->asked_ns = v->planned_ns;
        planned = calendar_next(j->calendar, v->planned_ns);
    }
    v->next_ns = planned;
    v->look_ns = planned > INT64_MAX - wait ? INT64_MAX : planned + wait;
}

/* ---- how far runs are apart ---- */

#define LOOK_AHEAD_NS (32 * NS_PER_DAY) /* holds every week, and a month's first days as well as its others */
#define RUNS_MIN 10                     /* of rare ones so many, however far they are */

/*
 * Runs every second are too many to walk through. A distance longer than `step` is found by asking for the first run
 * that is at least `step` after another: if it lies in such a distance, it is its end. So the walk may leap, and does
 * by more the farther it has come: what repeats each day or week is met early enough.
 */
int64_t sched_interval_s(const struct calendar *c, int64_t now)
{
    int64_t longest = 0, before = calendar_latest(c, 0, now), t = before ? before : calendar_next(c, now);
    if (t == INT64_MAX)
        return 0;
    for (int runs = 0; t - now < LOOK_AHEAD_NS || runs < RUNS_MIN; runs++) {
        int64_t step = max_of((t - now) / 100, runs < RUNS_MIN ? 0 : longest);
        int64_t next = calendar_next(c, step > 0 ? t + step - 1 : t);
        if (next == INT64_MAX)
            break;
        /* Nothing in the `longest` before it: the distance that ends with it is the longest so far. */
        if (next - longest > t && calendar_next(c, next - longest - 1) == next)
            longest = next - calendar_latest(c, t - 1, next - 1);
        t = next;
    }
    return longest / NS_PER_S;
}

int64_t sched_offset_ns(const char *node, const char *job, int64_t jitter_s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    if (jitter_s <= 0)
        return 0;
    for (const char *p = node; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    h *= UINT64_C(0x100000001b3); /* a NUL between them */
    for (const char *p = job; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    /* The low bits of this hash are poor ones. */
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    return (int64_t)(h % ((uint64_t)jitter_s * 1000 + 1)) * (NS_PER_S / 1000);
}
