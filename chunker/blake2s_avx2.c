/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blake2s_avx2.c - BLAKE2s of eight messages at once, a message in each 32-bit element. */
#include "chunker/blake2s.h"
#include "chunker/blake_words32_avx2.h"

static inline __m256i load_words(const uint32_t *p)
{
    return _mm256_load_si256((const void *)p);
}

static inline void store_words(uint32_t *p, __m256i v)
{
    _mm256_store_si256((void *)p, v);
}

void blake2s_lanes_avx2(struct blake2s_lanes *l, size_t blocks, const uint32_t *step)
{
    const __m256i steps = _mm256_loadu_si256((const void *)step);
    const uint8_t *p[LANES];
    __m256i count = load_words(l->count);
    __m256i m[16], v[9], h[8];
    for (unsigned i = 0; i < LANES; i++)
        p[i] = l->block[i];
    for (unsigned w = 0; w < 8; w++) {
        v[w] = _mm256_set1_epi32((int)blake2s_iv[w]);
        h[w] = load_words(l->h[w]);
    }
    const __m256i iv4 = v[4];
    v[6] = _mm256_xor_si256(v[6], load_words(l->last));
    for (size_t i = 0; i < blocks; i++) {
        for (unsigned half = 0; half < 2; half++) {
            for (unsigned k = 0; k < LANES; k++)
                m[8 * half + k] = _mm256_loadu_si256((const void *)(p[k] + 32 * half));
            transpose(&m[8 * half]);
        }
        for (unsigned k = 0; k < LANES; k++)
            p[k] += BLAKE2S_BLOCK;
        count = _mm256_add_epi32(count, steps);
        v[4] = _mm256_xor_si256(iv4, count);
        __asm__ volatile(BLAKE_LOAD_STATE BLAKE2_TEN_ROUNDS BLAKE_STORE_STATE(BLAKE_FEED_FORWARD)
                         :
                         : [m] "r"(m), [h] "r"(h), [v] "r"(v), [k] "r"(shuffles)
                         : BLAKE_CLOBBERS);
    }
    for (unsigned w = 0; w < 8; w++)
        store_words(l->h[w], h[w]);
    store_words(l->count, count);
    for (unsigned i = 0; i < LANES; i++)
        l->block[i] = p[i];
}
