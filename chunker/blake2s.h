/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake2s.h - BLAKE2s (RFC 7693), one stream or several at once (internal to the chunker)
 *
 * Own code, not OpenSSL's BLAKE2SMAC: that one refuses the empty key (which Kopia allows for BLAKE2S-256) and allocates
 * for every message, and a digest must not fail.
 */
#ifndef SNAPFERRY_CHUNKER_BLAKE2S_H
#define SNAPFERRY_CHUNKER_BLAKE2S_H

#include "chunker/hash.h"

#include <stddef.h>
#include <stdint.h>

#define BLAKE2S_BLOCK 64
#define BLAKE2S_KEY_MAX 32
#define BLAKE2S_DIGEST_MAX 32
#define BLAKE2S_LANES_MAX 8

extern const uint32_t blake2s_iv[8];

/* The lanes of a batch, the lane as the inner index. A message counts less than 4 GiB here, so that the upper counter
 * word stays 0. */
struct blake2s_lanes {
    uint32_t h[8][BLAKE2S_LANES_MAX] __attribute__((aligned(32)));
    uint32_t count[BLAKE2S_LANES_MAX] __attribute__((aligned(32))); /* bytes before the next block */
    uint32_t last[BLAKE2S_LANES_MAX] __attribute__((aligned(32)));  /* ~0 if the next block is the last, else 0 */
    const uint8_t *block[BLAKE2S_LANES_MAX];                        /* next block; advanced */
};

/* As blake2b_lanes_fn. */
typedef void blake2s_lanes_fn(struct blake2s_lanes *l, size_t blocks, const uint32_t *step);

blake2s_lanes_fn blake2s_lanes_avx2; /* 8 lanes */

/* A key schedule: the state after the parameter block and the key block. */
struct blake2s_key {
    uint32_t h[8];  /* state that messages of one byte and more start from */
    uint64_t count; /* bytes in it: 0, or 64 with a key */
    size_t digest_len;
    uint8_t empty[BLAKE2S_DIGEST_MAX]; /* digest of the empty message */
};

/* digest_len is 1..32, key_len <= BLAKE2S_KEY_MAX. */
void blake2s_key_init(struct blake2s_key *k, size_t digest_len, const uint8_t *key, size_t key_len);

/* `out` gets digest_len bytes. */
void blake2s_digest(const struct blake2s_key *k, const uint8_t *data, size_t len, uint8_t *out);

/* Digests of the feed's messages on `lanes` lanes; the first digest_len bytes of each job's `out` are set. */
void blake2s_run(const struct blake2s_key *k, const struct hash_feed *feed, blake2s_lanes_fn *fn, unsigned lanes);

#endif
