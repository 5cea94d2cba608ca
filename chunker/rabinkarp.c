/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rabinkarp.c - the fingerprint of Kopia's DYNAMIC-*-RABINKARP splitters
 *
 * The window is a polynomial over GF(2) (first byte most significant), the hash its residue modulo P of degree 53.
 * (Facts: Kopia repository format, section 11.4.)
 */
#include "chunker/rolling.h"

#include <pthread.h>

#define POLY UINT64_C(0x2e3e3e4a305605)
#define DEGREE 53
#define TOP_SHIFT (DEGREE - 8) /* where the eight bits are that a shift by a byte pushes out of the residue */

static uint64_t out_table[256]; /* b * x^(8*64) mod P: takes the oldest byte away after the shift */
static uint64_t mod_table[256]; /* (b * x^53 mod P) ^ (b << 53): reduces and clears what was shifted out */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

/* v * x mod P, for v of degree < 53. */
static uint64_t times_x(uint64_t v)
{
    v <<= 1;
    return v >> DEGREE & 1 ? v ^ POLY : v;
}

static void make_tables(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint64_t v = b;
        for (unsigned i = 0; i < DEGREE; i++)
            v = times_x(v);
        mod_table[b] = v ^ (uint64_t)b << DEGREE;
        for (unsigned i = DEGREE; i < 8 * ROLLING_WINDOW; i++)
            v = times_x(v);
        out_table[b] = v;
    }
}

static inline uint64_t append(uint64_t v, uint8_t in)
{
    return (v << 8 | in) ^ mod_table[v >> TOP_SHIFT];
}

uint64_t rabinkarp_residue(const uint8_t *data, size_t len)
{
    pthread_once(&tables_once, make_tables);
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++)
        v = append(v, data[i]);
    return v;
}

size_t rabinkarp_scan_scalar(const uint8_t *data, size_t from, size_t to, uint32_t mask)
{
    if (from > to)
        return 0;
    uint64_t v = rabinkarp_residue(data + from - ROLLING_WINDOW, ROLLING_WINDOW);
    size_t n = from;
    while (v & mask) {
        if (n == to)
            return 0;
        v = append(v, data[n]) ^ out_table[data[n - ROLLING_WINDOW]];
        n++;
    }
    return n;
}
