/* SPDX-License-Identifier: GPL-2.0-or-later */
/* memory.c - rows that read, write and copy memory: the ceiling for everything that touches each byte */
#include "daemon/bench/bench.h"

#include <stdlib.h>
#include <string.h>

#define PAGE ((size_t)4096)

typedef uint64_t wide __attribute__((vector_size(16)));

/* Each thread has a part of its own. */
static size_t part_of(const struct bench_sample *s, unsigned threads)
{
    size_t part = s->memory / (threads ? threads : 1) / PAGE * PAGE;
    return part ? part : PAGE;
}

static const uint8_t *part_from(const struct bench_work *w)
{
    return w->sample->random + part_of(w->sample, w->threads) * w->index;
}

static int begin_target(struct bench_work *w, struct err *e)
{
    size_t part = part_of(w->sample, w->threads);
    w->state = aligned_alloc(PAGE, part);
    if (!w->state)
        return err_nomem(e);
    memset(w->state, 1, part);
    return 0;
}

static int begin_read(struct bench_work *w, struct err *e)
{
    (void)w;
    (void)e;
    return 0;
}

static void end_target(struct bench_work *w)
{
    free(w->state);
}

static size_t no_memory(const struct bench_row *r, const struct bench_sample *s, unsigned threads)
{
    (void)r;
    (void)s;
    (void)threads;
    return 0;
}

static size_t target_memory(const struct bench_row *r, const struct bench_sample *s, unsigned threads)
{
    (void)r;
    return part_of(s, threads);
}

static int64_t step_read(struct bench_work *w, struct err *e)
{
    (void)e;
    const size_t len = part_of(w->sample, w->threads);
    const wide *p = (const wide *)(const void *)part_from(w);
    wide a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 4 <= len / sizeof *p; i += 4) {
        a ^= p[i];
        b ^= p[i + 1];
        c ^= p[i + 2];
        d ^= p[i + 3];
    }
    a ^= b ^ c ^ d;
    w->sink += a[0] ^ a[1];
    return (int64_t)len;
}

static int64_t step_write(struct bench_work *w, struct err *e)
{
    (void)e;
    const size_t len = part_of(w->sample, w->threads);
    uint8_t *to = w->state;
    memset(to, (int)(w->at++ & 0xff), len);
    __asm__ volatile("" : : "r"(to) : "memory");
    w->sink += to[len / 2];
    return (int64_t)len;
}

/* Counted once. */
static int64_t step_copy(struct bench_work *w, struct err *e)
{
    (void)e;
    const size_t len = part_of(w->sample, w->threads);
    uint8_t *to = w->state;
    memcpy(to, part_from(w), len);
    __asm__ volatile("" : : "r"(to) : "memory");
    w->sink += to[len / 2];
    return (int64_t)len;
}

const struct bench_kind bench_memory_read = {begin_read, step_read, end_target, no_memory};
const struct bench_kind bench_memory_write = {begin_target, step_write, end_target, target_memory};
const struct bench_kind bench_memory_copy = {begin_target, step_copy, end_target, target_memory};
