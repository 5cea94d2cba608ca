/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake2s.h - BLAKE2s (RFC 7693), one message or several in parallel (internal to the chunker)
 *
 * Not OpenSSL's BLAKE2SMAC, which refuses the empty key (allowed by Kopia for BLAKE2S-256) and allocates for every
 * message, whereas a digest must not fail.
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

/* The lanes of a batch, the lane as the inner index. A message has less than 4 GiB, so that the upper counter word
 * remains 0. */
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
    uint32_t h[8];  /* initial state for messages of at least one byte */
    uint64_t count; /* bytes in it: 0, or 64 with a key */
    size_t digest_len;
    uint8_t empty[BLAKE2S_DIGEST_MAX]; /* digest of the empty message */
};

/* digest_len is 1..32, key_len <= BLAKE2S_KEY_MAX. */
void blake2s_key_init(struct blake2s_key *k, size_t digest_len, const uint8_t *key, size_t key_len);

/* Writes digest_len bytes to `out`. */
void blake2s_digest(const struct blake2s_key *k, const uint8_t *data, size_t len, uint8_t *out);

/* Digests of the messages of the feed on `lanes` lanes; sets the first digest_len bytes of each job's `out`. */
void blake2s_run(const struct blake2s_key *k, const struct hash_feed *feed, blake2s_lanes_fn *fn, unsigned lanes);

#endif
