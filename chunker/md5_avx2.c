/* SPDX-License-Identifier: GPL-2.0-or-later */
/* md5_avx2.c - MD5 of eight messages by AVX2, which has neither rotations nor functions of three operands */
#include <immintrin.h>

#define MD5_F(b, c, d) _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d)))
/* The sum of two terms that have no bit in common: only one of them waits for b, the result of the step before. */
#define MD5_G(b, c, d) _mm256_add_epi32(_mm256_andnot_si256(d, c), _mm256_and_si256(b, d))
#define MD5_H(b, c, d) _mm256_xor_si256(b, _mm256_xor_si256(c, d))
#define MD5_I(b, c, d) _mm256_xor_si256(c, _mm256_or_si256(b, _mm256_xor_si256(d, _mm256_set1_epi32(-1))))
#define MD5_ROTATE(x, n) _mm256_or_si256(_mm256_slli_epi32(x, n), _mm256_srli_epi32(x, 32 - (n)))
#include "chunker/md5_rounds.h"

void md5_lanes_avx2(struct md5_lanes *l, const uint8_t *const p[MD5_LANES], size_t blocks)
{
    md5_lanes_run(l, p, blocks);
}
