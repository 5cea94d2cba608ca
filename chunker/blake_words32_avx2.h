/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake_words32_avx2.h - shared by BLAKE3 and BLAKE2s in addition to the rounds: 32-bit words, one of eight messages
 * each
 *
 * Both have the same quarter round, rotations by 16, 12, 8 and 7; their permutations differ. Like blake_rounds_avx2.h,
 * which it includes, this is text of both kernels.
 */
#ifndef SNAPFERRY_CHUNKER_BLAKE_WORDS32_AVX2_H
#define SNAPFERRY_CHUNKER_BLAKE_WORDS32_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define BLAKE_ADD "vpaddd"
#define BLAKE_ROT_D1(r0, r1, r2, r3, c0) BLAKE_SHUFFLE("(%[k])", r0, r1, r2, r3)
#define BLAKE_ROT_D2(r0, r1, r2, r3, c0) BLAKE_SHUFFLE("32(%[k])", r0, r1, r2, r3)
#define ROT_SHIFTS(n, m, r, scratch)                                                                                   \
    BLAKE_OP("vpsrld", "$" #n, r, scratch) BLAKE_OP("vpslld", "$" #m, r, r) BLAKE_XOR(scratch, r)
#define BLAKE_ROT_B1(r0, r1, r2, r3, c0)                                                                               \
    BLAKE_SPILL(c0)                                                                                                    \
    ROT_SHIFTS(12, 20, r0, c0)                                                                                         \
    ROT_SHIFTS(12, 20, r1, c0) ROT_SHIFTS(12, 20, r2, c0) ROT_SHIFTS(12, 20, r3, c0) BLAKE_RELOAD(c0)
#define BLAKE_ROT_B2(r0, r1, r2, r3, c0)                                                                               \
    BLAKE_SPILL(c0)                                                                                                    \
    ROT_SHIFTS(7, 25, r0, c0)                                                                                          \
    ROT_SHIFTS(7, 25, r1, c0) ROT_SHIFTS(7, 25, r2, c0) ROT_SHIFTS(7, 25, r3, c0) BLAKE_RELOAD(c0)
#include "chunker/blake_rounds_avx2.h"
#include "chunker/transpose_avx2.h"

#define LANES 8

static const uint8_t shuffles[2][32] __attribute__((aligned(32))) = {
    {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13,
     2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13}, /* 16 */
    {1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12,
     1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12}, /* 8 */
};

#endif
