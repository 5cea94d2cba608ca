/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake2b.h - BLAKE2b with a 32-byte digest (RFC 7693), one message or several in parallel (internal to the chunker)
 */
#ifndef SNAPFERRY_CHUNKER_BLAKE2B_H
#define SNAPFERRY_CHUNKER_BLAKE2B_H

#include "chunker/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLAKE2B_BLOCK 128
#define BLAKE2B_KEY_MAX 64
#define BLAKE2B_DIGEST 32
#define BLAKE2B_LANES_MAX 8

extern const uint64_t blake2b_iv[8];

/*
 * The lanes of a batch: state words and counters with the lane as the inner index, as required by vectors. A message
 * has at most 2^64-1 bytes, so that the upper counter word remains 0.
 */
struct blake2b_lanes {
    uint64_t h[8][BLAKE2B_LANES_MAX] __attribute__((aligned(64)));
    uint64_t count[BLAKE2B_LANES_MAX] __attribute__((aligned(64))); /* bytes before the next block */
    uint64_t last[BLAKE2B_LANES_MAX] __attribute__((aligned(64)));  /* ~0 if the next block is the last, else 0 */
    const uint8_t *block[BLAKE2B_LANES_MAX];                        /* next block; advanced */
};

/* Compresses `blocks` consecutive full blocks in each lane and advances `block` and `count`. With blocks == 1, step[i]
 * bytes of lane i's block are counted (a short last block, padded by the caller); otherwise step is BLAKE2B_BLOCK. */
typedef void blake2b_lanes_fn(struct blake2b_lanes *l, size_t blocks, const uint64_t *step);

blake2b_lanes_fn blake2b_lanes_avx2;   /* 4 lanes */
blake2b_lanes_fn blake2b_lanes_avx512; /* 8 lanes */

/* A key schedule: the state after the parameter block and the key block. */
struct blake2b_key {
    uint64_t h[8];                 /* initial state for messages of at least one byte */
    uint64_t count;                /* bytes in it: 0, or 128 with a key */
    uint8_t empty[BLAKE2B_DIGEST]; /* digest of the empty message */
};

/* key_len <= BLAKE2B_KEY_MAX. */
void blake2b_key_init(struct blake2b_key *k, const uint8_t *key, size_t key_len);

void blake2b_digest(const struct blake2b_key *k, const uint8_t *data, size_t len, uint8_t *out);

/* Digests of the messages of the feed on `lanes` lanes; sets the first out_len bytes of each job's `out`. */
void blake2b_run(const struct blake2b_key *k, const struct hash_feed *feed, size_t out_len, blake2b_lanes_fn *fn,
                 unsigned lanes);

#endif
