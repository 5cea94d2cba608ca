/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sha256_avx2.c - the compression function of SHA-256 by the CPU's SHA extensions, for one or two messages
 *
 * The instructions require the state as two vectors, a b e f and c d g h from the highest element down; four rounds use
 * four words of the schedule, which in the first four steps are taken from the block and then computed from the
 * previous sixteen words (FIPS 180-4, section 6.2).
 */
#include "chunker/sha256.h"

#include <immintrin.h>

static const uint32_t round_constants[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

struct state {
    __m128i abef, cdgh;
};

static inline struct state load_state(const uint32_t h[8])
{
    const __m128i dcba = _mm_loadu_si128((const void *)h), hgfe = _mm_loadu_si128((const void *)(h + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    return (struct state){_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xf0)};
}

static inline void store_state(uint32_t h[8], struct state s)
{
    const __m128i feba = _mm_shuffle_epi32(s.abef, 0x1b), dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);
    _mm_storeu_si128((void *)h, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((void *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static inline __m128i load_words(const uint8_t *p)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    return _mm_shuffle_epi8(_mm_loadu_si128((const void *)p), big_endian);
}

/* Words 4i to 4i+3 of the schedule; m holds the previous sixteen. */
#define SCHEDULE(m, i)                                                                                                 \
    _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(m[(i)&3], m[((i) + 1) & 3]),                               \
                                       _mm_alignr_epi8(m[((i) + 3) & 3], m[((i) + 2) & 3], 4)),                        \
                         m[((i) + 3) & 3])

#define FOUR_ROUNDS(s, m, p, i)                                                                                        \
    do {                                                                                                               \
        m[(i)&3] = (i) < 4 ? load_words((p) + 16 * (i)) : SCHEDULE(m, i);                                              \
        const __m128i wk = _mm_add_epi32(m[(i)&3], _mm_load_si128((const void *)(round_constants + 4 * (i))));         \
        (s).cdgh = _mm_sha256rnds2_epu32((s).cdgh, (s).abef, wk);                                                      \
        (s).abef = _mm_sha256rnds2_epu32((s).abef, (s).cdgh, _mm_shuffle_epi32(wk, 0x0e));                             \
    } while (0)

#define SIXTEEN_TIMES(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

static inline struct state add_state(struct state a, struct state b)
{
    return (struct state){_mm_add_epi32(a.abef, b.abef), _mm_add_epi32(a.cdgh, b.cdgh)};
}

void sha256_blocks_avx2(uint32_t h[8], const uint8_t *p, size_t blocks)
{
    struct state s = load_state(h);
    for (; blocks > 0; blocks--, p += SHA256_BLOCK) {
        const struct state before = s;
        __m128i m[4];
#define STEP(i) FOUR_ROUNDS(s, m, p, i);
        SIXTEEN_TIMES(STEP)
#undef STEP
        s = add_state(s, before);
    }
    store_state(h, s);
}

void sha256_pairs_avx2(uint32_t h0[8], const uint8_t *p0, uint32_t h1[8], const uint8_t *p1, size_t blocks)
{
    struct state s0 = load_state(h0), s1 = load_state(h1);
    for (; blocks > 0; blocks--, p0 += SHA256_BLOCK, p1 += SHA256_BLOCK) {
        const struct state before0 = s0, before1 = s1;
        __m128i m0[4], m1[4];
#define STEP(i)                                                                                                        \
    FOUR_ROUNDS(s0, m0, p0, i);                                                                                        \
    FOUR_ROUNDS(s1, m1, p1, i);
        SIXTEEN_TIMES(STEP)
#undef STEP
        s0 = add_state(s0, before0);
        s1 = add_state(s1, before1);
    }
    store_state(h0, s0);
    store_state(h1, s1);
}
