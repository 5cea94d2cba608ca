/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blake2b_avx2.c - BLAKE2b of four messages at once, a message in each 64-bit element. */
#include "chunker/blake2b.h"

#include <immintrin.h>

#define BLAKE_ADD "vpaddq"
#define SHUFFLE_32(r) "vpshufd $0xb1, %%ymm" #r ", %%ymm" #r "\n\t"
#define BLAKE_ROT_D1(r0, r1, r2, r3, c0) SHUFFLE_32(r0) SHUFFLE_32(r1) SHUFFLE_32(r2) SHUFFLE_32(r3)
#define BLAKE_ROT_B1(r0, r1, r2, r3, c0) BLAKE_SHUFFLE("(%[k])", r0, r1, r2, r3)
#define BLAKE_ROT_D2(r0, r1, r2, r3, c0) BLAKE_SHUFFLE("32(%[k])", r0, r1, r2, r3)
/* A rotation to the right by 63 is one to the left by 1. */
#define ROT_63(r, scratch)                                                                                             \
    BLAKE_OP("vpsrlq", "$63", r, scratch) BLAKE_OP("vpaddq", BLAKE_REG(r), r, r) BLAKE_XOR(scratch, r)
#define BLAKE_ROT_B2(r0, r1, r2, r3, c0)                                                                               \
    BLAKE_SPILL(c0) ROT_63(r0, c0) ROT_63(r1, c0) ROT_63(r2, c0) ROT_63(r3, c0) BLAKE_RELOAD(c0)
#include "chunker/blake_rounds_avx2.h"

static const uint8_t shuffles[2][32] __attribute__((aligned(32))) = {
    {3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10,
     3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10}, /* 24 */
    {2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9,
     2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9}, /* 16 */
};

static inline __m256i xor_vec(__m256i a, __m256i b)
{
    return _mm256_xor_si256(a, b);
}

static inline __m256i load_pair(const uint8_t *low, const uint8_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)low)),
                                   _mm_loadu_si128((const void *)high), 1);
}

static inline __m256i load_words(const uint64_t *p)
{
    return _mm256_load_si256((const void *)p);
}

static inline void store_words(uint64_t *p, __m256i v)
{
    _mm256_store_si256((void *)p, v);
}

/* clang-format off */
#define ROUNDS                                                                                                         \
    BLAKE2_TEN_ROUNDS                                                                                                  \
    BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)                                                  \
    BLAKE_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
/* clang-format on */

void blake2b_lanes_avx2(struct blake2b_lanes *l, size_t blocks, const uint64_t *step)
{
    const __m256i steps = _mm256_loadu_si256((const void *)step);
    const uint8_t *p0 = l->block[0], *p1 = l->block[1], *p2 = l->block[2], *p3 = l->block[3];
    __m256i count = load_words(l->count);

    __m256i m[16], v[9], h[8];
    for (unsigned w = 0; w < 8; w++) {
        v[w] = _mm256_set1_epi64x((int64_t)blake2b_iv[w]);
        h[w] = load_words(l->h[w]);
    }
    const __m256i iv4 = v[4];
    v[6] = xor_vec(v[6], load_words(l->last));
    for (size_t i = 0; i < blocks; i++) {
        for (unsigned w = 0; w < 16; w += 2) {
            __m256i even = load_pair(p0 + 8 * w, p2 + 8 * w), odd = load_pair(p1 + 8 * w, p3 + 8 * w);
            m[w] = _mm256_unpacklo_epi64(even, odd);
            m[w + 1] = _mm256_unpackhi_epi64(even, odd);
        }
        p0 += BLAKE2B_BLOCK;
        p1 += BLAKE2B_BLOCK;
        p2 += BLAKE2B_BLOCK;
        p3 += BLAKE2B_BLOCK;
        count = _mm256_add_epi64(count, steps);
        v[4] = xor_vec(iv4, count);
        __asm__ volatile(BLAKE_LOAD_STATE ROUNDS BLAKE_STORE_STATE(BLAKE_FEED_FORWARD)
                         :
                         : [m] "r"(m), [h] "r"(h), [v] "r"(v), [k] "r"(shuffles)
                         : BLAKE_CLOBBERS);
    }
    for (unsigned w = 0; w < 8; w++)
        store_words(l->h[w], h[w]);
    store_words(l->count, count);
    l->block[0] = p0;
    l->block[1] = p1;
    l->block[2] = p2;
    l->block[3] = p3;
}
