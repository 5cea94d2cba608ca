/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blake2b_avx512.c - BLAKE2b of eight messages at once, a message in each 64-bit element. */
#include "chunker/blake2b.h"

#define BLAKE_ADD(a, b) _mm512_add_epi64(a, b)
#define BLAKE_ROTR(v, n) _mm512_ror_epi64(v, n)
#define BLAKE_D1 32
#define BLAKE_B1 24
#define BLAKE_D2 16
#define BLAKE_B2 63
#include "chunker/blake_rounds_avx512.h"

#define LANES 8

/* w[i] word j  ->  w[j] word i. */
static inline void transpose_words(__m512i w[8])
{
    __m512i t[8], u[8];
#pragma GCC unroll 4
    for (unsigned i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_epi64(w[i], w[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi64(w[i], w[i + 1]);
    }
    /* Now in blocks of two words each: t[i] has words 0, 2, 4, 6 (t[i + 1]: 1, 3, 5, 7) of messages i and i + 1. */
#pragma GCC unroll 2
    for (unsigned i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
        for (unsigned k = 0; k < 2; k++) {
            u[i + k] = _mm512_shuffle_i64x2(t[i + k], t[i + 2 + k], 0x88);     /* words k, k + 4 */
            u[i + 2 + k] = _mm512_shuffle_i64x2(t[i + k], t[i + 2 + k], 0xdd); /* words k + 2, k + 6 */
        }
    }
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; k++) {
        w[k] = _mm512_shuffle_i64x2(u[k], u[4 + k], 0x88);
        w[4 + k] = _mm512_shuffle_i64x2(u[k], u[4 + k], 0xdd);
    }
}

static inline __m512i load_words(const uint64_t *p)
{
    return _mm512_load_si512(p);
}

/* Advances `block`. */
static inline void load_block(__m512i m[16], const uint8_t *block[LANES])
{
#pragma GCC unroll 8
    for (unsigned i = 0; i < LANES; i++) {
        m[i] = _mm512_loadu_si512(block[i]);
        m[8 + i] = _mm512_loadu_si512(block[i] + 64);
        /* Hardware prefetch can follow about as many streams as there are lanes. A prefetch past the end is harmless,
         * hence the integer. */
        _mm_prefetch((const char *)((uintptr_t)block[i] + 8 * BLAKE2B_BLOCK), _MM_HINT_T0);
        _mm_prefetch((const char *)((uintptr_t)block[i] + 8 * BLAKE2B_BLOCK + 64), _MM_HINT_T0);
        block[i] += BLAKE2B_BLOCK;
    }
    transpose_words(m);
    transpose_words(m + 8);
}

void blake2b_lanes_avx512(struct blake2b_lanes *l, size_t blocks, const uint64_t *step)
{
    const __m512i steps = _mm512_loadu_si512(step), last = load_words(l->last);
    const uint8_t *block[LANES];
    for (unsigned i = 0; i < LANES; i++)
        block[i] = l->block[i];
    __m512i count = load_words(l->count), h[8], iv[8];
    for (unsigned w = 0; w < 8; w++) {
        h[w] = load_words(l->h[w]);
        iv[w] = _mm512_set1_epi64((int64_t)blake2b_iv[w]);
    }
    iv[6] = _mm512_xor_si512(iv[6], last);
    for (; blocks > 0; blocks--) {
        __m512i m[16], v[16];
        load_block(m, block);
        count = _mm512_add_epi64(count, steps);
        for (unsigned w = 0; w < 8; w++) {
            v[w] = h[w];
            v[8 + w] = iv[w];
        }
        v[12] = _mm512_xor_si512(v[12], count);
        BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        BLAKE_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
        BLAKE_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
        BLAKE_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
        BLAKE_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
        BLAKE_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
        BLAKE_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
        BLAKE_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
        BLAKE_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
        BLAKE_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
        BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        BLAKE_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
        for (unsigned w = 0; w < 8; w++)
            h[w] = _mm512_ternarylogic_epi64(h[w], v[w], v[8 + w], 0x96); /* a ^ b ^ c */
    }
    for (unsigned w = 0; w < 8; w++)
        _mm512_store_si512(l->h[w], h[w]);
    _mm512_store_si512(l->count, count);
    for (unsigned i = 0; i < LANES; i++)
        l->block[i] = block[i];
}
