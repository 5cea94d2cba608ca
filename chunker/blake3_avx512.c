/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blake3_avx512.c - BLAKE3 of sixteen chunks or parents at once, one in each 32-bit element. */
#include "chunker/blake3.h"

#include <string.h>

#define BLAKE_ADD(a, b) _mm512_add_epi32(a, b)
#define BLAKE_ROTR(v, n) _mm512_ror_epi32(v, n)
#define BLAKE_D1 16
#define BLAKE_B1 12
#define BLAKE_D2 8
#define BLAKE_B2 7
#include "chunker/blake_rounds_avx512.h"

#define LANES 16

/* The first half of a transposition: blocks of 4 x 4 words within each group of four vectors. */
static inline void transpose_blocks(__m512i w[16])
{
#pragma GCC unroll 4
    for (unsigned i = 0; i < 16; i += 4) {
        __m512i t0 = _mm512_unpacklo_epi32(w[i], w[i + 1]), t1 = _mm512_unpackhi_epi32(w[i], w[i + 1]);
        __m512i t2 = _mm512_unpacklo_epi32(w[i + 2], w[i + 3]), t3 = _mm512_unpackhi_epi32(w[i + 2], w[i + 3]);
        w[i] = _mm512_unpacklo_epi64(t0, t2);
        w[i + 1] = _mm512_unpackhi_epi64(t0, t2);
        w[i + 2] = _mm512_unpacklo_epi64(t1, t3);
        w[i + 3] = _mm512_unpackhi_epi64(t1, t3);
    }
}

/* w[i] word j  ->  w[j] word i. */
static inline void transpose_words(__m512i w[16])
{
    transpose_blocks(w);
    /* Block c of w[4 r + k] now has word 4 c + k of vectors 4 r to 4 r + 3: exchange blocks r and c. */
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; k++) {
        __m512i t0 = _mm512_shuffle_i32x4(w[k], w[4 + k], 0x88), t1 = _mm512_shuffle_i32x4(w[k], w[4 + k], 0xdd);
        __m512i t2 = _mm512_shuffle_i32x4(w[8 + k], w[12 + k], 0x88),
                t3 = _mm512_shuffle_i32x4(w[8 + k], w[12 + k], 0xdd);
        w[k] = _mm512_shuffle_i32x4(t0, t2, 0x88);
        w[4 + k] = _mm512_shuffle_i32x4(t1, t3, 0x88);
        w[8 + k] = _mm512_shuffle_i32x4(t0, t2, 0xdd);
        w[12 + k] = _mm512_shuffle_i32x4(t1, t3, 0xdd);
    }
}

static inline __m512i splat(uint32_t v)
{
    return _mm512_set1_epi32((int)v);
}

/* One block of 64 bytes in each lane, at data + lane * stride. */
static inline void compress_lanes(__m512i cv[8], const uint8_t *data, size_t stride, __m512i counter_low,
                                  __m512i counter_high, uint32_t flags)
{
    __m512i m[16], v[16];
#pragma GCC unroll 16
    for (unsigned i = 0; i < LANES; i++)
        m[i] = _mm512_loadu_si512(data + i * stride);
    transpose_words(m);
    for (unsigned i = 0; i < 8; i++)
        v[i] = cv[i];
    for (unsigned i = 0; i < 4; i++)
        v[8 + i] = splat(blake3_iv[i]);
    v[12] = counter_low;
    v[13] = counter_high;
    v[14] = splat(BLAKE3_BLOCK);
    v[15] = splat(flags);
    BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    BLAKE_ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
    BLAKE_ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1)
    BLAKE_ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6)
    BLAKE_ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4)
    BLAKE_ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7)
    BLAKE_ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13)
    for (unsigned i = 0; i < 8; i++)
        cv[i] = _mm512_xor_si512(v[i], v[8 + i]);
}

static inline void put_cvs(const __m512i cv[8], uint8_t *out)
{
    __m512i w[16];
    for (unsigned i = 0; i < 8; i++) {
        w[i] = cv[i];
        w[8 + i] = _mm512_setzero_si512();
    }
    transpose_words(w);
    for (unsigned i = 0; i < LANES; i++)
        _mm256_storeu_si256((void *)(out + i * BLAKE3_OUT), _mm512_castsi512_si256(w[i]));
}

static void sixteen_chunks(const uint8_t *data, const uint32_t key[8], uint64_t counter, uint32_t flags, uint8_t *out)
{
    uint32_t low[LANES], high[LANES];
    for (unsigned i = 0; i < LANES; i++) {
        low[i] = (uint32_t)(counter + i);
        high[i] = (uint32_t)((counter + i) >> 32);
    }
    const __m512i counter_low = _mm512_loadu_si512(low), counter_high = _mm512_loadu_si512(high);
    __m512i cv[8];
    for (unsigned i = 0; i < 8; i++)
        cv[i] = splat(key[i]);
    for (size_t pos = 0; pos < BLAKE3_CHUNK; pos += BLAKE3_BLOCK) {
        uint32_t place = pos == 0 ? BLAKE3_CHUNK_START : pos == BLAKE3_CHUNK - BLAKE3_BLOCK ? BLAKE3_CHUNK_END : 0U;
        /* Hardware prefetch cannot follow sixteen streams a kilobyte apart. A prefetch past the end is harmless, hence
         * the integer. */
        for (unsigned i = 0; i < LANES; i++)
            _mm_prefetch((const char *)((uintptr_t)data + (LANES + i) * BLAKE3_CHUNK + pos), _MM_HINT_T0);
        compress_lanes(cv, data + pos, BLAKE3_CHUNK, counter_low, counter_high, flags | place);
    }
    put_cvs(cv, out);
}

static void chunks_avx512(const uint8_t *data, size_t n, const uint32_t key[8], uint64_t counter, uint32_t flags,
                          uint8_t *out)
{
    for (; n >= LANES; n -= LANES) {
        sixteen_chunks(data, key, counter, flags, out);
        data += LANES * BLAKE3_CHUNK;
        counter += LANES;
        out += LANES * BLAKE3_OUT;
    }
    if (n > 0)
        blake3_avx2.chunks(data, n, key, counter, flags, out);
}

static void sixteen_parents(const uint8_t *children, const uint32_t key[8], uint32_t flags, uint8_t *out)
{
    __m512i cv[8];
    for (unsigned i = 0; i < 8; i++)
        cv[i] = splat(key[i]);
    compress_lanes(cv, children, BLAKE3_BLOCK, _mm512_setzero_si512(), _mm512_setzero_si512(), flags | BLAKE3_PARENT);
    put_cvs(cv, out);
}

static void parents_avx512(const uint8_t *children, size_t n, const uint32_t key[8], uint32_t flags, uint8_t *out)
{
    /* The results of a group overwrite only children of previous groups, and its own after they have been read. */
    for (; n >= LANES; n -= LANES) {
        sixteen_parents(children, key, flags, out);
        children += LANES * BLAKE3_BLOCK;
        out += LANES * BLAKE3_OUT;
    }
    if (n > LANES / 2) {
        uint8_t some[LANES * BLAKE3_BLOCK] = {0}, cvs[LANES * BLAKE3_OUT];
        memcpy(some, children, n * BLAKE3_BLOCK);
        sixteen_parents(some, key, flags, cvs);
        memcpy(out, cvs, n * BLAKE3_OUT);
    } else if (n > 0) {
        blake3_avx2.parents(children, n, key, flags, out);
    }
}

const struct blake3_kernel blake3_avx512 = {chunks_avx512, parents_avx512};
