/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "chunker/blake2s.h"

#include "base/bytes.h"

#include <stdbool.h>
#include <string.h>

const uint32_t blake2s_iv[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static inline uint32_t rotr32(uint32_t v, unsigned n)
{
    return v >> n | v << (32 - n);
}

#define G(a, b, c, d, x, y)                                                                                            \
    do {                                                                                                               \
        a += b + (x);                                                                                                  \
        d = rotr32(d ^ a, 16);                                                                                         \
        c += d;                                                                                                        \
        b = rotr32(b ^ c, 12);                                                                                         \
        a += b + (y);                                                                                                  \
        d = rotr32(d ^ a, 8);                                                                                          \
        c += d;                                                                                                        \
        b = rotr32(b ^ c, 7);                                                                                          \
    } while (0)

#define ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                                    \
    do {                                                                                                               \
        G(v0, v4, v8, v12, m[s0], m[s1]);                                                                              \
        G(v1, v5, v9, v13, m[s2], m[s3]);                                                                              \
        G(v2, v6, v10, v14, m[s4], m[s5]);                                                                             \
        G(v3, v7, v11, v15, m[s6], m[s7]);                                                                             \
        G(v0, v5, v10, v15, m[s8], m[s9]);                                                                             \
        G(v1, v6, v11, v12, m[s10], m[s11]);                                                                           \
        G(v2, v7, v8, v13, m[s12], m[s13]);                                                                            \
        G(v3, v4, v9, v14, m[s14], m[s15]);                                                                            \
    } while (0)

/* `count` includes this block. */
static void compress_block(uint32_t h[8], const uint8_t *block, uint64_t count, uint32_t last)
{
    uint32_t m[16];
    for (unsigned i = 0; i < 16; i++)
        m[i] = get_le32(block + 4 * i);
    uint32_t v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
    uint32_t v8 = blake2s_iv[0], v9 = blake2s_iv[1], v10 = blake2s_iv[2], v11 = blake2s_iv[3];
    uint32_t v12 = blake2s_iv[4] ^ (uint32_t)count, v13 = blake2s_iv[5] ^ (uint32_t)(count >> 32),
             v14 = blake2s_iv[6] ^ last, v15 = blake2s_iv[7];
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
    ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
    ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
    ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
    ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
    ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
    ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
    ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
    h[0] ^= v0 ^ v8;
    h[1] ^= v1 ^ v9;
    h[2] ^= v2 ^ v10;
    h[3] ^= v3 ^ v11;
    h[4] ^= v4 ^ v12;
    h[5] ^= v5 ^ v13;
    h[6] ^= v6 ^ v14;
    h[7] ^= v7 ^ v15;
}

static void put_digest(const uint32_t h[8], uint8_t out[BLAKE2S_DIGEST_MAX])
{
    for (unsigned i = 0; i < 8; i++)
        put_le32(out + 4 * i, h[i]);
}

void blake2s_key_init(struct blake2s_key *k, size_t digest_len, const uint8_t *key, size_t key_len)
{
    for (unsigned i = 0; i < 8; i++)
        k->h[i] = blake2s_iv[i];
    k->h[0] ^= 0x01010000U ^ (uint32_t)key_len << 8 ^ (uint32_t)digest_len; /* depth 1, fan-out 1 */
    k->digest_len = digest_len;
    uint8_t block[BLAKE2S_BLOCK] = {0};
    if (key_len > 0)
        memcpy(block, key, key_len);
    uint32_t h[8];
    memcpy(h, k->h, sizeof h);
    k->count = key_len > 0 ? BLAKE2S_BLOCK : 0;
    compress_block(h, block, k->count, ~UINT32_C(0));
    put_digest(h, k->empty);
    if (key_len > 0)
        compress_block(k->h, block, k->count, 0);
    explicit_bzero(block, sizeof block);
}

/* Finishes a message with its last 1..64 bytes. */
static void finish_message(uint32_t h[8], uint64_t count, const uint8_t *data, size_t len,
                           uint8_t out[BLAKE2S_DIGEST_MAX])
{
    uint8_t block[BLAKE2S_BLOCK] = {0};
    memcpy(block, data, len);
    compress_block(h, block, count + len, ~UINT32_C(0));
    put_digest(h, out);
}

void blake2s_digest(const struct blake2s_key *k, const uint8_t *data, size_t len, uint8_t *out)
{
    if (len == 0) {
        memcpy(out, k->empty, k->digest_len);
        return;
    }
    uint32_t h[8];
    memcpy(h, k->h, sizeof h);
    uint64_t count = k->count;
    for (; len > BLAKE2S_BLOCK; len -= BLAKE2S_BLOCK, data += BLAKE2S_BLOCK) {
        count += BLAKE2S_BLOCK;
        compress_block(h, data, count, 0);
    }
    uint8_t digest[BLAKE2S_DIGEST_MAX];
    finish_message(h, count, data, len, digest);
    memcpy(out, digest, k->digest_len);
}

/* Including the key block. */
static bool for_lanes(size_t len)
{
    return len <= UINT32_MAX - BLAKE2S_BLOCK;
}

#define BLAKE2_WORD uint32_t
#define BLAKE2_BLOCK BLAKE2S_BLOCK
#define BLAKE2_DIGEST BLAKE2S_DIGEST_MAX
#define BLAKE2_LANES_MAX BLAKE2S_LANES_MAX
#define BLAKE2_LANES blake2s_lanes
#define BLAKE2_LANES_FN blake2s_lanes_fn
#define BLAKE2_KEY blake2s_key
#define BLAKE2_ALONE blake2s_digest
#include "chunker/blake2_run.h"

void blake2s_run(const struct blake2s_key *k, const struct hash_feed *feed, blake2s_lanes_fn *fn, unsigned lanes)
{
    run_feed(k, feed, k->digest_len, fn, lanes);
}
