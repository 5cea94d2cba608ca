/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/pace.h"

#include <stdio.h>
#include <string.h>

#define LN2 0.69314718055994531
/* Shorter samples are noise: they are added to the next one. */
#define SAMPLE_MIN 0.05

/* 2^-x for x >= 0; the daemon is not linked with libm. */
static double decayed(double x)
{
    double r = 1;
    for (; x >= 1 && r > 1e-12; x -= 1)
        r /= 2;
    if (x >= 1)
        return 0;
    double y = x * LN2;
    return r / (1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6))))));
}

/* Of what has passed. What the first seconds were like, when packs are filled and nothing arrives, is soon forgotten.
 */
static double half_life(const struct pace *p, double t)
{
    const double third = (t - p->start) / 3;
    return third < PACE_HALF_LIFE_MIN ? PACE_HALF_LIFE_MIN : third < PACE_HALF_LIFE ? third : PACE_HALF_LIFE;
}

static uint64_t is_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void phase_begin(struct pace *p, const struct pace_sample *s)
{
    unsigned setbacks = p->setbacks;
    *p = (struct pace){.begun = true, .start = s->t, .last = s->t, .moved = s->t, .end = -1, .setbacks = setbacks};
    snprintf(p->phase, sizeof p->phase, "%s", s->phase ? s->phase : "");
    p->at = *s;
    p->at.phase = NULL;
}

/* Bytes still to be read. */
static double to_read(const struct pace_sample *s)
{
    uint64_t left = is_less(s->total, s->done), read = is_less(s->done, s->skipped);
    /* Not known: what is left is as full as what was done. */
    if (!s->allocated || s->allocated >= s->total)
        return read ? (double)left * ((double)read / (double)s->done) : (double)left;
    uint64_t known = is_less(s->allocated, read);
    /* More was read than is allocated: the storage compresses, or counts differently. Then the rest is estimated
     * from the past. */
    if (!known && left)
        return s->done ? (double)left * ((double)read / (double)s->done) : (double)left;
    return (double)(known < left ? known : left);
}

/* A tenth of a short run says as much as the first seconds of a long one. */
static bool is_settled(const struct pace *p, double t)
{
    const double age = t - p->start, read = (double)is_less(p->at.done, p->at.skipped);
    return age >= PACE_SETTLE || (age >= PACE_SETTLE_MIN && read >= (read + to_read(&p->at)) / 10);
}

static void forecast(struct pace *p, double t, double dt)
{
    double speed = p->pass_s > 0 ? p->passed / p->pass_s : 0;
    if (!is_settled(p, t) || speed < 1 || p->at.total <= p->at.done) {
        p->end = -1;
        return;
    }
    const double end = t + to_read(&p->at) / speed, quarter = (t - p->start) / 4,
                 settles = quarter < PACE_END_HALF_LIFE ? quarter : PACE_END_HALF_LIFE;
    p->end = p->end < 0 ? end : end + (p->end - end) * decayed(dt / settles);
    if (p->end < t)
        p->end = t;
}

void pace_add(struct pace *p, const struct pace_sample *s)
{
    bool other = p->begun && strncmp(p->phase, s->phase ? s->phase : "", sizeof p->phase - 1) != 0;
    bool back = p->begun && !other && s->done < p->at.done;
    if (!p->begun || other || back || s->t < p->last) {
        p->setbacks += back;
        phase_begin(p, s);
        return;
    }
    double dt = s->t - p->last;
    if (dt < SAMPLE_MIN)
        return;
    const struct pace_sample *o = &p->at;
    uint64_t zeros = is_less(s->zero, o->zero),
             read = is_less(is_less(s->done, o->done), is_less(s->skipped, o->skipped));
    uint64_t data = is_less(read, zeros);
    double keep = decayed(dt / PACE_HALF_LIFE);
    const bool progress = s->done != o->done || s->total != o->total;
    if (progress)
        p->moved = s->t;
    /* Time spent on zeros or holes alone is not used for data. */
    bool tells = data > zeros || (!read && s->skipped == o->skipped);
    if (tells) {
        p->data = p->data * keep + (double)data;
        p->data_s = p->data_s * keep + dt;
    }
    const bool only_skipped = !read && s->skipped != o->skipped;
    p->at = *s;
    p->at.phase = NULL;
    p->last = s->t;
    p->waited += dt;
    if (!progress && p->waited < PACE_LUMP)
        return;
    keep = decayed(p->waited / half_life(p, s->t));
    if (p->moving && !only_skipped) {
        p->passed = p->passed * keep + (double)read;
        p->pass_s = p->pass_s * keep + p->waited;
    }
    p->moving = p->moving || read;
    forecast(p, s->t, p->waited);
    p->waited = 0;
}

double pace_rate(const struct pace *p)
{
    return p->data_s > 0 ? p->data / p->data_s : 0;
}

double pace_stalled(const struct pace *p, double t)
{
    return p->begun && t > p->moved ? t - p->moved : 0;
}

double pace_left(const struct pace *p, double t)
{
    if (!p->begun || p->end < 0 || pace_stalled(p, t) >= PACE_STALL)
        return -1;
    return p->end > t ? p->end - t : 0;
}

int pace_percent(int64_t done, int64_t total, bool ended)
{
    if (total <= 0 || done < 0)
        return -1;
    if (ended)
        return done >= total ? 100 : (int)(100.0 * (double)done / (double)total);
    double part = 100.0 * (double)done / (double)total;
    return part >= 99 ? 99 : (int)part;
}
