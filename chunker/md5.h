/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * md5.h - the compression function of MD5 (RFC 1321) for eight messages at once (internal to the chunker)
 *
 * A step of MD5 needs the result of the one before it, so that one message leaves most of a CPU idle: eight take hardly
 * longer than one. The scalar version is OpenSSL's digest (sums.h).
 */
#ifndef SNAPFERRY_CHUNKER_MD5_H
#define SNAPFERRY_CHUNKER_MD5_H

#include <stddef.h>
#include <stdint.h>

#define MD5_BLOCK 64
#define MD5_DIGEST 16
#define MD5_LANES 8

/* The words a, b, c, d of each message. */
struct md5_lanes {
    uint32_t h[4][MD5_LANES] __attribute__((aligned(32)));
};

/* Compresses `blocks` blocks of each message, which begin at p[0] to p[7]. A message that is not needed may have the
 * pointer of another one. The CPU must have AVX2; AVX-512 with VL. */
void md5_lanes_avx2(struct md5_lanes *l, const uint8_t *const p[MD5_LANES], size_t blocks);
void md5_lanes_avx512(struct md5_lanes *l, const uint8_t *const p[MD5_LANES], size_t blocks);

#endif
