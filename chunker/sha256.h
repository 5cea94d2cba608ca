/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sha256.h - SHA-256, HMAC-SHA256 and HMAC-SHA224 (FIPS 180-4, RFC 2104), two messages in parallel (internal to the
 * chunker)
 *
 * The scalar version is OpenSSL's digest (hmac.h). An instruction of the CPU's SHA extensions computes two rounds with
 * a latency of four cycles and a throughput of one per two cycles: two messages in parallel take little longer than
 * one.
 */
#ifndef SNAPFERRY_CHUNKER_SHA256_H
#define SNAPFERRY_CHUNKER_SHA256_H

#include "chunker/hash.h"

#include <stddef.h>
#include <stdint.h>

#define SHA256_BLOCK 64
#define SHA256_DIGEST 32
#define SHA224_DIGEST 28
#define SHA256_LANES 2

/* Compresses `blocks` blocks at `p` into the state `h`. The CPU must have SHA extensions and AVX2. */
void sha256_blocks_avx2(uint32_t h[8], const uint8_t *p, size_t blocks);
/* The same for two messages with equal numbers of blocks. */
void sha256_pairs_avx2(uint32_t h0[8], const uint8_t *p0, uint32_t h1[8], const uint8_t *p1, size_t blocks);

/* The state of SHA-256 before the first block; and its digest, with the last n < SHA256_BLOCK bytes of a message of
 * `total`. The former needs no extensions of the CPU. */
void sha256_begin(uint32_t h[8]);
void sha256_finish(uint32_t h[8], const uint8_t *rest, size_t n, uint64_t total, uint8_t digest[SHA256_DIGEST]);

/* A key schedule. */
struct hmac_sha256 {
    uint32_t inner[8], outer[8]; /* states after the two key blocks */
    size_t size;                 /* of the inner digest: SHA256_DIGEST or SHA224_DIGEST */
};

/* `size` selects the digest; the key may have any length. */
void hmac_sha256_init(struct hmac_sha256 *k, size_t size, const uint8_t *key, size_t key_len);
/* The first out_len <= size bytes of the code of one message. */
void hmac_sha256_digest(const struct hmac_sha256 *k, const uint8_t *data, size_t len, uint8_t *out, size_t out_len);
/* Codes of the feed's messages, at most SHA256_LANES at a time. */
void hmac_sha256_run(const struct hmac_sha256 *k, const struct hash_feed *feed, size_t out_len);

#endif
