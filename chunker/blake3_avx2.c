/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blake3_avx2.c - BLAKE3 of eight chunks or parents at once, one in each 32-bit element. */
#include "chunker/blake3.h"
#include "chunker/blake_words32_avx2.h"

#include <string.h>

static inline __m256i splat(uint32_t v)
{
    return _mm256_set1_epi32((int)v);
}

/* clang-format off */
#define ROUNDS                                                                                                         \
    BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)                                                  \
    BLAKE_ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)                                                  \
    BLAKE_ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1)                                                  \
    BLAKE_ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6)                                                  \
    BLAKE_ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4)                                                  \
    BLAKE_ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7)                                                  \
    BLAKE_ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13)
/* clang-format on */

/* One block of 64 bytes in each lane, at data + lane * stride. */
static inline void compress_lanes(__m256i cv[8], const uint8_t *data, size_t stride, __m256i counter_low,
                                  __m256i counter_high, uint32_t flags)
{
    __m256i m[16], v[9];
    for (unsigned half = 0; half < 2; half++) {
        for (unsigned i = 0; i < LANES; i++)
            m[8 * half + i] = _mm256_loadu_si256((const void *)(data + i * stride + 32 * half));
        transpose(&m[8 * half]);
    }
    for (unsigned i = 0; i < 4; i++)
        v[i] = splat(blake3_iv[i]);
    v[4] = counter_low;
    v[5] = counter_high;
    v[6] = splat(BLAKE3_BLOCK);
    v[7] = splat(flags);
    __asm__ volatile(BLAKE_LOAD_STATE ROUNDS BLAKE_STORE_STATE(BLAKE_NO_FEED)
                     :
                     : [m] "r"(m), [h] "r"(cv), [v] "r"(v), [k] "r"(shuffles)
                     : BLAKE_CLOBBERS);
}

static inline void put_cvs(__m256i cv[8], uint8_t *out)
{
    transpose(cv);
    for (unsigned i = 0; i < LANES; i++)
        _mm256_storeu_si256((void *)(out + i * BLAKE3_OUT), cv[i]);
}

static void chunks_avx2(const uint8_t *data, size_t n, const uint32_t key[8], uint64_t counter, uint32_t flags,
                        uint8_t *out)
{
    for (; n >= LANES; n -= LANES) {
        uint32_t low[LANES], high[LANES];
        for (unsigned i = 0; i < LANES; i++) {
            low[i] = (uint32_t)(counter + i);
            high[i] = (uint32_t)((counter + i) >> 32);
        }
        const __m256i counter_low = _mm256_loadu_si256((const void *)low),
                      counter_high = _mm256_loadu_si256((const void *)high);
        __m256i cv[8];
        for (unsigned i = 0; i < 8; i++)
            cv[i] = splat(key[i]);
        for (size_t pos = 0; pos < BLAKE3_CHUNK; pos += BLAKE3_BLOCK) {
            uint32_t place = pos == 0 ? BLAKE3_CHUNK_START : pos == BLAKE3_CHUNK - BLAKE3_BLOCK ? BLAKE3_CHUNK_END : 0U;
            /* Hardware prefetch cannot follow eight streams a kilobyte apart. A prefetch past the end is harmless,
             * hence the integer. */
            for (unsigned i = 0; i < LANES; i++)
                _mm_prefetch((const char *)((uintptr_t)data + (LANES + i) * BLAKE3_CHUNK + pos), _MM_HINT_T0);
            compress_lanes(cv, data + pos, BLAKE3_CHUNK, counter_low, counter_high, flags | place);
        }
        put_cvs(cv, out);
        data += LANES * BLAKE3_CHUNK;
        counter += LANES;
        out += LANES * BLAKE3_OUT;
    }
    if (n > 0)
        blake3_scalar.chunks(data, n, key, counter, flags, out);
}

static void eight_parents(const uint8_t *children, const uint32_t key[8], uint32_t flags, uint8_t *out)
{
    __m256i cv[8];
    for (unsigned i = 0; i < 8; i++)
        cv[i] = splat(key[i]);
    compress_lanes(cv, children, BLAKE3_BLOCK, _mm256_setzero_si256(), _mm256_setzero_si256(), flags | BLAKE3_PARENT);
    put_cvs(cv, out);
}

static void parents_avx2(const uint8_t *children, size_t n, const uint32_t key[8], uint32_t flags, uint8_t *out)
{
    /* The results of a group overwrite only children of previous groups, and its own after they have been read. */
    for (; n >= LANES; n -= LANES) {
        eight_parents(children, key, flags, out);
        children += LANES * BLAKE3_BLOCK;
        out += LANES * BLAKE3_OUT;
    }
    if (n == 1) {
        blake3_scalar.parents(children, n, key, flags, out);
    } else if (n > 1) {
        uint8_t some[LANES * BLAKE3_BLOCK] = {0}, cvs[LANES * BLAKE3_OUT];
        memcpy(some, children, n * BLAKE3_BLOCK);
        eight_parents(some, key, flags, cvs);
        memcpy(out, cvs, n * BLAKE3_OUT);
    }
}

const struct blake3_kernel blake3_avx2 = {chunks_avx2, parents_avx2};
