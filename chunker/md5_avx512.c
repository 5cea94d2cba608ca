/* SPDX-License-Identifier: GPL-2.0-or-later */
/* md5_avx512.c - MD5 of eight messages by AVX-512VL: a function and a rotation are one instruction each */
#include <immintrin.h>

/* The byte is the table of results for the bits of b (4), c (2) and d (1). */
#define MD5_F(b, c, d) _mm256_ternarylogic_epi32(b, c, d, 0xca)
#define MD5_G(b, c, d) _mm256_ternarylogic_epi32(b, c, d, 0xe4)
#define MD5_H(b, c, d) _mm256_ternarylogic_epi32(b, c, d, 0x96)
#define MD5_I(b, c, d) _mm256_ternarylogic_epi32(b, c, d, 0x39)
#define MD5_ROTATE(x, n) _mm256_rol_epi32(x, n)
#include "chunker/md5_rounds.h"

void md5_lanes_avx512(struct md5_lanes *l, const uint8_t *const p[MD5_LANES], size_t blocks)
{
    md5_lanes_run(l, p, blocks);
}
