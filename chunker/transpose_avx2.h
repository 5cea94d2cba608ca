/* SPDX-License-Identifier: GPL-2.0-or-later */
/* transpose_avx2.h - words of eight messages, from a vector for each message to one for each word: text of the kernels
 */
#ifndef SNAPFERRY_CHUNKER_TRANSPOSE_AVX2_H
#define SNAPFERRY_CHUNKER_TRANSPOSE_AVX2_H

#include <immintrin.h>

/* v[i] word j  ->  v[j] word i, for eight vectors of eight words. */
static inline void transpose(__m256i v[8])
{
    __m256i t[8], u[8];
    for (unsigned i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (unsigned i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (unsigned i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

#endif
