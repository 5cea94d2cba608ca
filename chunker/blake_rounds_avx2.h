/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake_rounds_avx2.h - the rounds shared by BLAKE2b and BLAKE3, on AVX2 registers with a message in each element
 *
 * Written in assembler because the state fills all 16 registers: compilers spill a value in up to every second step and
 * lose a third of the speed. Manual spilling needs one store and one load per quarter round: a rotation by shifts needs
 * a scratch register, and the c of the first column is the value not needed for the longest time.
 *
 * The including file defines BLAKE_ADD (the addition), and the four rotations of the quarter round: BLAKE_ROT_D1,
 * BLAKE_ROT_B1, BLAKE_ROT_D2, BLAKE_ROT_B2, each (r0, r1, r2, r3, c0): rotate four registers; c0 may be used as scratch
 * register between BLAKE_SPILL(c0) and BLAKE_RELOAD(c0).
 *
 * Operands of the asm statement, all pointers to aligned vectors: %[m] 16 of the message, %[h] 8 of the state
 * (updated), %[v] 8 that fill the lower half of the matrix and one for the spilled register, %[k] the shuffles. v0-v15
 * are in ymm0-ymm15.
 */
#ifndef SNAPFERRY_CHUNKER_BLAKE_ROUNDS_AVX2_H
#define SNAPFERRY_CHUNKER_BLAKE_ROUNDS_AVX2_H

#define BLAKE_OP(op, from, with, to) op " " from ", %%ymm" #with ", %%ymm" #to "\n\t"
#define BLAKE_REG(r) "%%ymm" #r
#define BLAKE_SPILL(r) "vmovdqa %%ymm" #r ", 32*8(%[v])\n\t"
#define BLAKE_RELOAD(r) "vmovdqa 32*8(%[v]), %%ymm" #r "\n\t"

#define BLAKE_MSG(s, a) BLAKE_OP(BLAKE_ADD, "32*" #s "(%[m])", a, a)
#define BLAKE_SUM(x, a) BLAKE_OP(BLAKE_ADD, BLAKE_REG(x), a, a)
#define BLAKE_XOR(x, a) BLAKE_OP("vpxor", BLAKE_REG(x), a, a)

/* Half of G on four columns or diagonals in parallel: their chains of dependent instructions overlap. */
#define BLAKE_HALF(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3, s0, s1, s2, s3, rot_d, rot_b)       \
    BLAKE_MSG(s0, a0)                                                                                                  \
    BLAKE_MSG(s1, a1)                                                                                                  \
    BLAKE_MSG(s2, a2)                                                                                                  \
    BLAKE_MSG(s3, a3)                                                                                                  \
    BLAKE_SUM(b0, a0)                                                                                                  \
    BLAKE_SUM(b1, a1)                                                                                                  \
    BLAKE_SUM(b2, a2)                                                                                                  \
    BLAKE_SUM(b3, a3)                                                                                                  \
    BLAKE_XOR(a0, d0)                                                                                                  \
    BLAKE_XOR(a1, d1)                                                                                                  \
    BLAKE_XOR(a2, d2)                                                                                                  \
    BLAKE_XOR(a3, d3)                                                                                                  \
    rot_d(d0, d1, d2, d3, c0) /**/                                                                                     \
        BLAKE_SUM(d0, c0) BLAKE_SUM(d1, c1) BLAKE_SUM(d2, c2) BLAKE_SUM(d3, c3) BLAKE_XOR(c0, b0) BLAKE_XOR(c1, b1)    \
            BLAKE_XOR(c2, b2) BLAKE_XOR(c3, b3) rot_b(b0, b1, b2, b3, c0)

/* A round; the arguments are the message words in the order of its permutation. */
#define BLAKE_ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                              \
    BLAKE_HALF(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, s0, s2, s4, s6, BLAKE_ROT_D1, BLAKE_ROT_B1)       \
    BLAKE_HALF(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, s1, s3, s5, s7, BLAKE_ROT_D2, BLAKE_ROT_B2)       \
    BLAKE_HALF(0, 1, 2, 3, 5, 6, 7, 4, 10, 11, 8, 9, 15, 12, 13, 14, s8, s10, s12, s14, BLAKE_ROT_D1, BLAKE_ROT_B1)    \
    BLAKE_HALF(0, 1, 2, 3, 5, 6, 7, 4, 10, 11, 8, 9, 15, 12, 13, 14, s9, s11, s13, s15, BLAKE_ROT_D2, BLAKE_ROT_B2)

/* The ten permutations of BLAKE2 (RFC 7693, section 2.7). */
/* clang-format off */
#define BLAKE2_TEN_ROUNDS                                                                                              \
    BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)                                                  \
    BLAKE_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)                                                  \
    BLAKE_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)                                                  \
    BLAKE_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)                                                  \
    BLAKE_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)                                                  \
    BLAKE_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)                                                  \
    BLAKE_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)                                                  \
    BLAKE_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)                                                  \
    BLAKE_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)                                                  \
    BLAKE_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
/* clang-format on */

/* v0-v7 from %[h], v8-v15 from %[v]. */
#define BLAKE_LOAD(r, at) "vmovdqa " at ", %%ymm" #r "\n\t"
#define BLAKE_LOAD_STATE                                                                                               \
    BLAKE_LOAD(0, "(%[h])")                                                                                            \
    BLAKE_LOAD(1, "32*1(%[h])")                                                                                        \
    BLAKE_LOAD(2, "32*2(%[h])")                                                                                        \
    BLAKE_LOAD(3, "32*3(%[h])")                                                                                        \
    BLAKE_LOAD(4, "32*4(%[h])")                                                                                        \
    BLAKE_LOAD(5, "32*5(%[h])")                                                                                        \
    BLAKE_LOAD(6, "32*6(%[h])")                                                                                        \
    BLAKE_LOAD(7, "32*7(%[h])")                                                                                        \
    BLAKE_LOAD(8, "(%[v])")                                                                                            \
    BLAKE_LOAD(9, "32*1(%[v])")                                                                                        \
    BLAKE_LOAD(10, "32*2(%[v])")                                                                                       \
    BLAKE_LOAD(11, "32*3(%[v])")                                                                                       \
    BLAKE_LOAD(12, "32*4(%[v])")                                                                                       \
    BLAKE_LOAD(13, "32*5(%[v])")                                                                                       \
    BLAKE_LOAD(14, "32*6(%[v])")                                                                                       \
    BLAKE_LOAD(15, "32*7(%[v])")

/* h[i] = v[i] ^ v[i + 8], also ^ the old h[i] if `feed` is BLAKE_FEED_FORWARD and not empty. */
#define BLAKE_FEED_FORWARD(r) BLAKE_OP("vpxor", "32*" #r "(%[h])", r, r)
#define BLAKE_NO_FEED(r)
#define BLAKE_FOLD(r, s, feed) BLAKE_XOR(s, r) feed(r) "vmovdqa %%ymm" #r ", 32*" #r "(%[h])\n\t"
#define BLAKE_STORE_STATE(feed)                                                                                        \
    BLAKE_FOLD(0, 8, feed)                                                                                             \
    BLAKE_FOLD(1, 9, feed)                                                                                             \
    BLAKE_FOLD(2, 10, feed)                                                                                            \
    BLAKE_FOLD(3, 11, feed)                                                                                            \
    BLAKE_FOLD(4, 12, feed)                                                                                            \
    BLAKE_FOLD(5, 13, feed)                                                                                            \
    BLAKE_FOLD(6, 14, feed)                                                                                            \
    BLAKE_FOLD(7, 15, feed)

#define BLAKE_CLOBBERS                                                                                                 \
    "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",        \
        "xmm12", "xmm13", "xmm14", "xmm15"

/* Predefined rotations. */
#define BLAKE_SHUFFLE(mask, r0, r1, r2, r3)                                                                            \
    BLAKE_OP("vpshufb", mask, r0, r0)                                                                                  \
    BLAKE_OP("vpshufb", mask, r1, r1)                                                                                  \
    BLAKE_OP("vpshufb", mask, r2, r2)                                                                                  \
    BLAKE_OP("vpshufb", mask, r3, r3)

#endif
