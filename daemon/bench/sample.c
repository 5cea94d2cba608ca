/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sample.c - the data that is measured with, made from a seed */
#include "daemon/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT ((size_t)16 << 10)

/* splitmix64: the stream can be started at any place. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void bench_fill_random(uint8_t *out, size_t len, uint64_t pos)
{
    uint64_t n = pos / 8;
    for (size_t i = 0; i + 8 <= len; i += 8, n++) {
        uint64_t v = mix(BENCH_SEED + n * UINT64_C(0x9e3779b97f4a7c15));
        memcpy(out + i, &v, 8);
    }
}

/* Lines of a log: few frequent words, many rare ones, and numbers. */
static void fill_text(uint8_t *out, size_t len, uint64_t seed)
{
    static const char *const words[] = {
        "the ",      "volume ",  "of ",      "snapshot ",   "is ",    "and ",     "backup ", "started ",
        "finished ", "bytes ",   "in ",      "error ",      "at ",    "block ",   "node ",   "reading ",
        "device ",   "written ", "segment ", "checkpoint ", "retry ", "warning ", "queue ",  "timeout ",
        "mount ",    "unit ",    "kernel ",  "service ",    "user ",  "session ", "closed ", "opened "};
    const unsigned n = sizeof words / sizeof *words;
    size_t at = 0;
    uint64_t x = seed;
    while (at < len) {
        x = mix(x);
        char word[32];
        unsigned a = x % n, b = (x >> 16) % n; /* the smaller of two: the first words are the frequent ones */
        if ((x >> 32) % 8 == 0)
            snprintf(word, sizeof word, "%u\n", (unsigned)(x >> 40) & 0xffff);
        else
            snprintf(word, sizeof word, "%s", words[a < b ? a : b]);
        size_t w = strlen(word);
        if (w > len - at)
            w = len - at;
        memcpy(out + at, word, w);
        at += w;
    }
}

/* A table of a database: counters, few values, and random bytes in each record of 64 bytes. */
static void fill_records(uint8_t *out, size_t len, uint64_t seed)
{
    memset(out, 0, len);
    for (size_t at = 0; at + 64 <= len; at += 64) {
        uint64_t x = mix(seed + at), number = seed % 100000 + at / 64;
        uint32_t flags = x % 5, price = (uint32_t)(x >> 8) % 1000;
        memcpy(out + at, &number, 8);
        memcpy(out + at + 8, &flags, 4);
        memcpy(out + at + 16, &price, 4);
        memcpy(out + at + 24, &x, 8);
        memcpy(out + at + 40, (x >> 20) % 2 ? "pending" : "active\0", 8);
    }
}

void bench_fill_mixed(uint8_t *out, size_t len, uint64_t pos)
{
    for (size_t at = 0; at < len; at += SEGMENT) {
        uint64_t segment = (pos + at) / SEGMENT, seed = mix(~BENCH_SEED + segment);
        switch (segment % 8) {
        case 0:
        case 3:
        case 6:
            fill_text(out + at, SEGMENT, seed);
            break;
        case 1:
        case 4:
            fill_records(out + at, SEGMENT, seed);
            break;
        case 7:
            memset(out + at, 0, SEGMENT);
            break;
        default:
            bench_fill_random(out + at, SEGMENT, (pos + at) ^ UINT64_C(1) << 60);
        }
    }
}

int bench_sample_new(struct bench_sample *s, size_t len, size_t piece, bool mixed, struct err *e)
{
    *s = (struct bench_sample){.len = len, .piece = piece, .memory = len};
    s->random = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    s->mixed = mixed ? malloc(len) : NULL;
    s->zero = malloc(piece);
    if (!s->random || (mixed && !s->mixed) || !s->zero) {
        bench_sample_clear(s);
        return err_nomem(e);
    }
    bench_fill_random(s->random, len, 0);
    if (mixed)
        bench_fill_mixed(s->mixed, len, 0);
    /* calloc() would return the shared page of zeros, which is read from cache. */
    memset(s->zero, 1, piece);
    memset(s->zero, 0, piece);
    __asm__ volatile("" : : "r"(s->zero) : "memory");
    return 0;
}

void bench_sample_clear(struct bench_sample *s)
{
    free(s->random);
    free(s->mixed);
    free(s->zero);
    s->random = s->mixed = s->zero = NULL;
}
