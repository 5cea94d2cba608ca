/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake_rounds_avx512.h - the rounds shared by BLAKE2b and BLAKE3, on AVX-512 registers with a message in each element
 *
 * With 32 registers, the state and the required part of the message remain in registers, and a rotation is one
 * instruction; compiler output is good. The four columns of a round (then its four diagonals) are computed in parallel,
 * because each G is a chain of dependent instructions.
 *
 * The including file defines BLAKE_ADD(a, b) and BLAKE_ROTR(v, n), and the rotations BLAKE_D1, BLAKE_B1, BLAKE_D2,
 * BLAKE_B2 of the quarter round.
 */
#ifndef SNAPFERRY_CHUNKER_BLAKE_ROUNDS_AVX512_H
#define SNAPFERRY_CHUNKER_BLAKE_ROUNDS_AVX512_H

#include <immintrin.h>

#define BLAKE_EACH(op, x0, x1, x2, x3, y0, y1, y2, y3) op(x0, y0) op(x1, y1) op(x2, y2) op(x3, y3)
#define BLAKE_SUM(to, from) v[to] = BLAKE_ADD(v[to], v[from]);
#define BLAKE_MSG(to, word) v[to] = BLAKE_ADD(v[to], m[word]);
#define BLAKE_TURN_D1(to, from) v[to] = BLAKE_ROTR(_mm512_xor_si512(v[to], v[from]), BLAKE_D1);
#define BLAKE_TURN_B1(to, from) v[to] = BLAKE_ROTR(_mm512_xor_si512(v[to], v[from]), BLAKE_B1);
#define BLAKE_TURN_D2(to, from) v[to] = BLAKE_ROTR(_mm512_xor_si512(v[to], v[from]), BLAKE_D2);
#define BLAKE_TURN_B2(to, from) v[to] = BLAKE_ROTR(_mm512_xor_si512(v[to], v[from]), BLAKE_B2);

/* G on v[0..3] and the given four b, c, d, with the message words x and y. */
#define BLAKE_FOUR_G(b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3, x0, y0, x1, y1, x2, y2, x3, y3)                   \
    BLAKE_EACH(BLAKE_MSG, 0, 1, 2, 3, x0, x1, x2, x3)                                                                  \
    BLAKE_EACH(BLAKE_SUM, 0, 1, 2, 3, b0, b1, b2, b3)                                                                  \
    BLAKE_EACH(BLAKE_TURN_D1, d0, d1, d2, d3, 0, 1, 2, 3)                                                              \
    BLAKE_EACH(BLAKE_SUM, c0, c1, c2, c3, d0, d1, d2, d3)                                                              \
    BLAKE_EACH(BLAKE_TURN_B1, b0, b1, b2, b3, c0, c1, c2, c3)                                                          \
    BLAKE_EACH(BLAKE_MSG, 0, 1, 2, 3, y0, y1, y2, y3)                                                                  \
    BLAKE_EACH(BLAKE_SUM, 0, 1, 2, 3, b0, b1, b2, b3)                                                                  \
    BLAKE_EACH(BLAKE_TURN_D2, d0, d1, d2, d3, 0, 1, 2, 3)                                                              \
    BLAKE_EACH(BLAKE_SUM, c0, c1, c2, c3, d0, d1, d2, d3)                                                              \
    BLAKE_EACH(BLAKE_TURN_B2, b0, b1, b2, b3, c0, c1, c2, c3)

/* A round; the arguments are the message words in the order of its permutation. */
#define BLAKE_ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                              \
    BLAKE_FOUR_G(4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, s0, s1, s2, s3, s4, s5, s6, s7)                             \
    BLAKE_FOUR_G(5, 6, 7, 4, 10, 11, 8, 9, 15, 12, 13, 14, s8, s9, s10, s11, s12, s13, s14, s15)

#endif
