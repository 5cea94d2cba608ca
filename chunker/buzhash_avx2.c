/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * buzhash_avx2.c - Buzhash at several places at once
 *
 * Let F be the hash of all bytes since some start, without a window: F[n] = rotl(F[n-1], 1) ^ T[byte]. A byte that left
 * the window 64 = 2 * 32 steps ago has been rotated all the way round, so the windowed hash is F[n] ^ F[n-64]. F costs
 * one look-up per byte where rolling costs two, and the comparison needs no order: it is done eight positions at a
 * time. What is left is a chain of dependent instructions, so STREAMS pieces of the range are worked on side by side.
 */
#include "chunker/rolling.h"

#include <immintrin.h>
#include <string.h>

#define STREAMS 4
#define STEP 256         /* bytes of a stream between comparisons */
#define PIECE_MAX 8192   /* bytes of a stream before its results are put in order; each costs a window of start-up */
#define SHORT (4 * STEP) /* ranges below this are rolled */

/* F of the last window's worth of steps, then of STEP more. */
struct stream {
    uint32_t f[ROLLING_WINDOW + STEP] __attribute__((aligned(32)));
};

static inline uint32_t rotl1(uint32_t v)
{
    return v << 1 | v >> 31;
}

/* F over the first window of each stream; f[i] is F after i + 1 bytes. F of nothing, which belongs to the position
 * before, is compared nowhere. */
static void begin(struct stream *s, const uint8_t *data, size_t piece)
{
    for (unsigned k = 0; k < STREAMS; k++) {
        uint32_t f = 0;
        for (unsigned i = 0; i < ROLLING_WINDOW; i++)
            s[k].f[i] = f = rotl1(f) ^ buzhash_table[data[k * piece + i]];
    }
}

static void advance(struct stream *s, const uint8_t *data, size_t piece, size_t n)
{
    uint32_t f0 = s[0].f[ROLLING_WINDOW - 1], f1 = s[1].f[ROLLING_WINDOW - 1], f2 = s[2].f[ROLLING_WINDOW - 1],
             f3 = s[3].f[ROLLING_WINDOW - 1];
    const uint8_t *p0 = data, *p1 = p0 + piece, *p2 = p1 + piece, *p3 = p2 + piece;
    for (size_t i = 0; i < n; i++) {
        s[0].f[ROLLING_WINDOW + i] = f0 = rotl1(f0) ^ buzhash_table[p0[i]];
        s[1].f[ROLLING_WINDOW + i] = f1 = rotl1(f1) ^ buzhash_table[p1[i]];
        s[2].f[ROLLING_WINDOW + i] = f2 = rotl1(f2) ^ buzhash_table[p2[i]];
        s[3].f[ROLLING_WINDOW + i] = f3 = rotl1(f3) ^ buzhash_table[p3[i]];
    }
}

/* First i < n with (f[64 + i] ^ f[i]) & mask == 0, or n. */
static inline size_t first_hit(const uint32_t *f, size_t n, __m256i mask)
{
    const __m256i zero = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 8) {
        __m256i old = _mm256_load_si256((const void *)(f + i)),
                now = _mm256_load_si256((const void *)(f + ROLLING_WINDOW + i));
        __m256i hit = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_xor_si256(old, now), mask), zero);
        unsigned bits = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit));
        if (bits) {
            i += (unsigned)__builtin_ctz(bits);
            return i < n ? i : n;
        }
    }
    return n;
}

/* Scans STREAMS pieces after the window that ends at data[0]: returns the first hit as a number of bytes from there (1
 * is the position after data[0]), or 0. */
static size_t scan_pieces(const uint8_t *data, size_t piece, __m256i mask)
{
    struct stream s[STREAMS];
    size_t hit = 0;
    unsigned live = STREAMS; /* streams from this one on cannot hold the first hit any more */
    begin(s, data - ROLLING_WINDOW, piece);
    for (size_t pos = 0; pos < piece; pos += STEP) {
        size_t n = piece - pos < STEP ? piece - pos : STEP;
        /* Hardware prefetch learns little from pieces as short as these, so the next ones are asked for here. A hint
         * about an address past the end does no harm, hence the integer. */
        for (unsigned k = 0; k < STREAMS; k++)
            for (size_t i = 0; i < n; i += 64)
                _mm_prefetch((const char *)((uintptr_t)data + (STREAMS + k) * piece + pos + i), _MM_HINT_T1);
        advance(s, data + pos, piece, n);
        for (unsigned k = 0; k < live; k++) {
            size_t i = first_hit(s[k].f, n, mask);
            if (i < n) {
                hit = k * piece + pos + i + 1;
                live = k;
                break;
            }
            if (n == STEP) /* else it was the last */
                memcpy(s[k].f, s[k].f + n, ROLLING_WINDOW * sizeof s[k].f[0]);
        }
        if (live == 0)
            break;
    }
    return hit;
}

size_t buzhash_scan_avx2(const uint8_t *data, size_t from, size_t to, uint32_t mask)
{
    if (from > to)
        return 0;
    /* The position `from` itself, where runs of equal bytes hit. */
    size_t cut = buzhash_scan_scalar(data, from, from, mask);
    const __m256i masks = _mm256_set1_epi32((int)mask);
    while (!cut && to - from >= SHORT) {
        size_t piece = (to - from) / STREAMS < PIECE_MAX ? (to - from) / STREAMS : PIECE_MAX;
        piece -= piece % 8;
        cut = scan_pieces(data + from, piece, masks);
        if (cut)
            cut += from;
        from += STREAMS * piece;
    }
    if (!cut && from < to)
        cut = buzhash_scan_scalar(data, from + 1, to, mask);
    return cut;
}
