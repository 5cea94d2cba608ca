/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sha256.c - HMAC around the compression function: keys, ends of messages, two messages in parallel */
#include "chunker/sha256.h"

#include "base/bytes.h"

#include <string.h>

/* FIPS 180-4, section 5.3. */
static const uint32_t iv_256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t iv_224[8] = {0xc1059ed8, 0x367cd507, 0x3070dd17, 0xf70e5939,
                                   0xffc00b31, 0x68581511, 0x64f98fa7, 0xbefa4fa4};

/* Blocks of a single active lane between requests for another message. */
#define SLICE ((128u << 10) / SHA256_BLOCK)

void sha256_begin(uint32_t h[8])
{
    memcpy(h, iv_256, sizeof iv_256);
}

/* The padding is that of FIPS 180-4, section 5.1.1. */
void sha256_finish(uint32_t h[8], const uint8_t *rest, size_t n, uint64_t total, uint8_t digest[SHA256_DIGEST])
{
    uint8_t pad[2 * SHA256_BLOCK] = {0};
    const size_t blocks = n + 9 > SHA256_BLOCK ? 2 : 1;
    if (n > 0)
        memcpy(pad, rest, n);
    pad[n] = 0x80;
    put_be32(pad + blocks * SHA256_BLOCK - 8, (uint32_t)(total >> 29));
    put_be32(pad + blocks * SHA256_BLOCK - 4, (uint32_t)(total << 3));
    sha256_blocks_avx2(h, pad, blocks);
    for (unsigned i = 0; i < 8; i++)
        put_be32(digest + 4 * i, h[i]);
}

void hmac_sha256_init(struct hmac_sha256 *k, size_t size, const uint8_t *key, size_t key_len)
{
    const uint32_t *iv = size == SHA224_DIGEST ? iv_224 : iv_256;
    uint8_t block[SHA256_BLOCK] = {0}, digest[SHA256_DIGEST];
    k->size = size;
    if (key_len > sizeof block) {
        uint32_t h[8];
        memcpy(h, iv, sizeof h);
        sha256_blocks_avx2(h, key, key_len / SHA256_BLOCK);
        sha256_finish(h, key + key_len - key_len % SHA256_BLOCK, key_len % SHA256_BLOCK, key_len, digest);
        memcpy(block, digest, size);
        explicit_bzero(h, sizeof h);
    } else if (key_len > 0) {
        memcpy(block, key, key_len);
    }
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36;
    memcpy(k->inner, iv, sizeof k->inner);
    sha256_blocks_avx2(k->inner, block, 1);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36 ^ 0x5c;
    memcpy(k->outer, iv, sizeof k->outer);
    sha256_blocks_avx2(k->outer, block, 1);
    explicit_bzero(block, sizeof block);
    explicit_bzero(digest, sizeof digest);
}

/* The code of a message of `len` bytes; the state `h` includes all its full blocks. */
static void end_message(const struct hmac_sha256 *k, uint32_t h[8], const uint8_t *data, size_t len, uint8_t *out,
                        size_t out_len)
{
    uint8_t digest[SHA256_DIGEST];
    const size_t rest = len % SHA256_BLOCK; /* 0 also without any data */
    sha256_finish(h, rest ? data + len - rest : NULL, rest, SHA256_BLOCK + (uint64_t)len, digest);
    memcpy(h, k->outer, sizeof k->outer);
    sha256_finish(h, digest, k->size, SHA256_BLOCK + k->size, digest);
    memcpy(out, digest, out_len);
}

void hmac_sha256_digest(const struct hmac_sha256 *k, const uint8_t *data, size_t len, uint8_t *out, size_t out_len)
{
    uint32_t h[8];
    memcpy(h, k->inner, sizeof h);
    sha256_blocks_avx2(h, data, len / SHA256_BLOCK);
    end_message(k, h, data, len, out, out_len);
}

struct lane {
    struct hash_job *job; /* NULL: free */
    const uint8_t *at;
    size_t blocks; /* full blocks from `at` */
    uint32_t h[8];
};

/* Returns the number of lanes with a message. */
static unsigned refill_lanes(const struct hmac_sha256 *k, const struct hash_feed *feed, struct lane *lanes)
{
    unsigned active = (lanes[0].job != NULL) + (lanes[1].job != NULL);
    for (struct lane *l = lanes; l < lanes + SHA256_LANES; l++) {
        if (l->job)
            continue;
        l->job = feed->next(feed->arg, active);
        if (!l->job)
            break;
        l->at = l->job->data;
        l->blocks = l->job->len / SHA256_BLOCK;
        memcpy(l->h, k->inner, sizeof l->h);
        active++;
    }
    return active;
}

static void advance_lane(struct lane *l, size_t blocks)
{
    if (blocks > 0)
        l->at += blocks * SHA256_BLOCK;
    l->blocks -= blocks;
}

void hmac_sha256_run(const struct hmac_sha256 *k, const struct hash_feed *feed, size_t out_len)
{
    struct lane lanes[SHA256_LANES] = {0};
    unsigned active;
    while ((active = refill_lanes(k, feed, lanes)) > 0) {
        if (active == SHA256_LANES) {
            size_t n = lanes[0].blocks < lanes[1].blocks ? lanes[0].blocks : lanes[1].blocks;
            sha256_pairs_avx2(lanes[0].h, lanes[0].at, lanes[1].h, lanes[1].at, n);
            advance_lane(&lanes[0], n);
            advance_lane(&lanes[1], n);
        } else {
            struct lane *l = lanes[0].job ? &lanes[0] : &lanes[1];
            size_t n = l->blocks < SLICE ? l->blocks : SLICE;
            sha256_blocks_avx2(l->h, l->at, n);
            advance_lane(l, n);
        }
        for (struct lane *l = lanes; l < lanes + SHA256_LANES; l++) {
            if (!l->job || l->blocks > 0)
                continue;
            struct hash_job *job = l->job;
            end_message(k, l->h, job->data, job->len, job->out, out_len);
            l->job = NULL;
            feed->done(feed->arg, job);
        }
    }
}
