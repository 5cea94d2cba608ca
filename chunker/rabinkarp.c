/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rabinkarp.c - the fingerprint of Kopia's DYNAMIC-*-RABINKARP splitters
 *
 * The window is a polynomial over GF(2) (first byte most significant), the hash its residue modulo P of degree 53.
 * (Facts: Kopia repository format, section 11.4.)
 */
#include "chunker/rolling.h"

#include <pthread.h>
#include <stddef.h>

#define POLY RABINKARP_POLY
#define DEGREE RABINKARP_DEGREE
#define STREAMS 4
#define PIECE_MAX 8192         /* bytes of a stream between two checks of results */
#define SHORT 1024             /* ranges below this are rolled byte by byte */
#define TOP_SHIFT (DEGREE - 8) /* position of the eight bits shifted out of the residue by a byte */

static uint64_t out_table[256]; /* b * x^(8*64) mod P: removes the oldest byte after the shift */
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

static inline uint64_t append_byte(uint64_t v, uint8_t in)
{
    return (v << 8 | in) ^ mod_table[v >> TOP_SHIFT];
}

uint64_t rabinkarp_residue(const uint8_t *data, size_t len)
{
    pthread_once(&tables_once, make_tables);
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++)
        v = append_byte(v, data[i]);
    return v;
}

size_t rabinkarp_roll(const uint8_t *data, size_t from, size_t to, uint32_t mask, uint64_t v)
{
    pthread_once(&tables_once, make_tables);
    for (size_t n = from; n < to; n++) {
        v = append_byte(v, data[n]) ^ out_table[data[n - ROLLING_WINDOW]];
        if (!(v & mask))
            return n + 1;
    }
    return 0;
}

/* The same for STREAMS pieces of the range in parallel: each waits for table look-ups, which then overlap. */
static size_t roll_pieces(const uint8_t *data, size_t from, size_t piece, uint32_t mask, uint64_t v0)
{
    const uint8_t *in0 = data + from, *in1 = in0 + piece, *in2 = in1 + piece, *in3 = in2 + piece;
    uint64_t v1 = rabinkarp_residue(in1 - ROLLING_WINDOW, ROLLING_WINDOW);
    uint64_t v2 = rabinkarp_residue(in2 - ROLLING_WINDOW, ROLLING_WINDOW);
    uint64_t v3 = rabinkarp_residue(in3 - ROLLING_WINDOW, ROLLING_WINDOW);
    size_t i = 0;
    for (; i < piece; i++) {
        v0 = append_byte(v0, in0[i]) ^ out_table[in0[(ptrdiff_t)i - ROLLING_WINDOW]];
        v1 = append_byte(v1, in1[i]) ^ out_table[in1[(ptrdiff_t)i - ROLLING_WINDOW]];
        v2 = append_byte(v2, in2[i]) ^ out_table[in2[(ptrdiff_t)i - ROLLING_WINDOW]];
        v3 = append_byte(v3, in3[i]) ^ out_table[in3[(ptrdiff_t)i - ROLLING_WINDOW]];
        if (!(v0 & mask) || !(v1 & mask) || !(v2 & mask) || !(v3 & mask))
            break;
    }
    if (i == piece)
        return 0;

    /* The earliest hit of the range; preceding data has not been checked completely yet. */
    const uint64_t v[STREAMS] = {v0, v1, v2, v3};
    for (size_t k = 0; k < STREAMS; k++) {
        size_t n = from + k * piece + i + 1;
        if (!(v[k] & mask))
            return n;
        n = rabinkarp_roll(data, n, from + (k + 1) * piece, mask, v[k]);
        if (n)
            return n;
    }
    return 0; /* not reached: one of them has a hit */
}

size_t rabinkarp_scan_scalar(const uint8_t *data, size_t from, size_t to, uint32_t mask)
{
    if (from > to)
        return 0;
    uint64_t v = rabinkarp_residue(data + from - ROLLING_WINDOW, ROLLING_WINDOW);
    if (!(v & mask))
        return from;
    while (to - from >= SHORT) {
        size_t piece = (to - from) / STREAMS < PIECE_MAX ? (to - from) / STREAMS : PIECE_MAX;
        size_t cut = roll_pieces(data, from, piece, mask, v);
        if (cut)
            return cut;
        from += STREAMS * piece;
        v = rabinkarp_residue(data + from - ROLLING_WINDOW, ROLLING_WINDOW);
    }
    return rabinkarp_roll(data, from, to, mask, v);
}
