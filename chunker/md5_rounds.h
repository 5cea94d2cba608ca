/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * md5_rounds.h - MD5 of eight messages, a message in each 32-bit element of a vector: text of the kernels
 *
 * A kernel defines before it what its instructions are good at, for vectors b, c, d and x:
 *   MD5_F, MD5_G, MD5_H, MD5_I(b, c, d)   the functions of RFC 1321, section 3.4
 *   MD5_ROTATE(x, n)                      each element to the left by n bits
 */
#ifndef SNAPFERRY_CHUNKER_MD5_ROUNDS_H
#define SNAPFERRY_CHUNKER_MD5_ROUNDS_H

#include "chunker/md5.h"
#include "chunker/transpose_avx2.h"

#include <immintrin.h>

#define MD5_STEP(f, a, b, c, d, k, s, t)                                                                               \
    a = _mm256_add_epi32(a, _mm256_add_epi32(m[k], _mm256_set1_epi32((int)t)));                                        \
    a = _mm256_add_epi32(a, f(b, c, d));                                                                               \
    a = _mm256_add_epi32(MD5_ROTATE(a, s), b)

/* Four steps, which rotate by s1 to s4 and use the words k1 to k4 and the constants t1 to t4. */
#define MD5_FOUR(f, s1, s2, s3, s4, k1, t1, k2, t2, k3, t3, k4, t4)                                                    \
    MD5_STEP(f, a, b, c, d, k1, s1, t1);                                                                               \
    MD5_STEP(f, d, a, b, c, k2, s2, t2);                                                                               \
    MD5_STEP(f, c, d, a, b, k3, s3, t3);                                                                               \
    MD5_STEP(f, b, c, d, a, k4, s4, t4)

#define MD5_ROUND_1(...) MD5_FOUR(MD5_F, 7, 12, 17, 22, __VA_ARGS__)
#define MD5_ROUND_2(...) MD5_FOUR(MD5_G, 5, 9, 14, 20, __VA_ARGS__)
#define MD5_ROUND_3(...) MD5_FOUR(MD5_H, 4, 11, 16, 23, __VA_ARGS__)
#define MD5_ROUND_4(...) MD5_FOUR(MD5_I, 6, 10, 15, 21, __VA_ARGS__)

static inline void md5_lanes_run(struct md5_lanes *l, const uint8_t *const from[MD5_LANES], size_t blocks)
{
    const uint8_t *p[MD5_LANES];
    __m256i m[16], h[4];
    for (unsigned i = 0; i < MD5_LANES; i++)
        p[i] = from[i];
    for (unsigned i = 0; i < 4; i++)
        h[i] = _mm256_load_si256((const void *)l->h[i]);
    for (size_t n = 0; n < blocks; n++) {
        for (unsigned i = 0; i < MD5_LANES; i++) {
            m[i] = _mm256_loadu_si256((const void *)p[i]);
            m[8 + i] = _mm256_loadu_si256((const void *)(p[i] + 32));
            p[i] += MD5_BLOCK;
        }
        transpose(m);
        transpose(m + 8);
        __m256i a = h[0], b = h[1], c = h[2], d = h[3];
        /* RFC 1321, section 3.4. */
        MD5_ROUND_1(0, 0xd76aa478, 1, 0xe8c7b756, 2, 0x242070db, 3, 0xc1bdceee);
        MD5_ROUND_1(4, 0xf57c0faf, 5, 0x4787c62a, 6, 0xa8304613, 7, 0xfd469501);
        MD5_ROUND_1(8, 0x698098d8, 9, 0x8b44f7af, 10, 0xffff5bb1, 11, 0x895cd7be);
        MD5_ROUND_1(12, 0x6b901122, 13, 0xfd987193, 14, 0xa679438e, 15, 0x49b40821);
        MD5_ROUND_2(1, 0xf61e2562, 6, 0xc040b340, 11, 0x265e5a51, 0, 0xe9b6c7aa);
        MD5_ROUND_2(5, 0xd62f105d, 10, 0x02441453, 15, 0xd8a1e681, 4, 0xe7d3fbc8);
        MD5_ROUND_2(9, 0x21e1cde6, 14, 0xc33707d6, 3, 0xf4d50d87, 8, 0x455a14ed);
        MD5_ROUND_2(13, 0xa9e3e905, 2, 0xfcefa3f8, 7, 0x676f02d9, 12, 0x8d2a4c8a);
        MD5_ROUND_3(5, 0xfffa3942, 8, 0x8771f681, 11, 0x6d9d6122, 14, 0xfde5380c);
        MD5_ROUND_3(1, 0xa4beea44, 4, 0x4bdecfa9, 7, 0xf6bb4b60, 10, 0xbebfbc70);
        MD5_ROUND_3(13, 0x289b7ec6, 0, 0xeaa127fa, 3, 0xd4ef3085, 6, 0x04881d05);
        MD5_ROUND_3(9, 0xd9d4d039, 12, 0xe6db99e5, 15, 0x1fa27cf8, 2, 0xc4ac5665);
        MD5_ROUND_4(0, 0xf4292244, 7, 0x432aff97, 14, 0xab9423a7, 5, 0xfc93a039);
        MD5_ROUND_4(12, 0x655b59c3, 3, 0x8f0ccc92, 10, 0xffeff47d, 1, 0x85845dd1);
        MD5_ROUND_4(8, 0x6fa87e4f, 15, 0xfe2ce6e0, 6, 0xa3014314, 13, 0x4e0811a1);
        MD5_ROUND_4(4, 0xf7537e82, 11, 0xbd3af235, 2, 0x2ad7d2bb, 9, 0xeb86d391);
        h[0] = _mm256_add_epi32(h[0], a);
        h[1] = _mm256_add_epi32(h[1], b);
        h[2] = _mm256_add_epi32(h[2], c);
        h[3] = _mm256_add_epi32(h[3], d);
    }
    for (unsigned i = 0; i < 4; i++)
        _mm256_store_si256((void *)l->h[i], h[i]);
}

#endif
