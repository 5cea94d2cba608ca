/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "chunker/blake2b.h"

#include "base/bytes.h"

#include <string.h>

const uint64_t blake2b_iv[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};

static inline uint64_t rotr64(uint64_t v, unsigned n)
{
    return v >> n | v << (64 - n);
}

#define G(a, b, c, d, x, y)                                                                                            \
    do {                                                                                                               \
        a += b + (x);                                                                                                  \
        d = rotr64(d ^ a, 32);                                                                                         \
        c += d;                                                                                                        \
        b = rotr64(b ^ c, 24);                                                                                         \
        a += b + (y);                                                                                                  \
        d = rotr64(d ^ a, 16);                                                                                         \
        c += d;                                                                                                        \
        b = rotr64(b ^ c, 63);                                                                                         \
    } while (0)

/* One round; the arguments are the message words in the order of the round's permutation. */
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
static void compress(uint64_t h[8], const uint8_t *block, uint64_t count, uint64_t last)
{
    uint64_t m[16];
    for (unsigned i = 0; i < 16; i++)
        m[i] = get_le64(block + 8 * i);
    uint64_t v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
    uint64_t v8 = blake2b_iv[0], v9 = blake2b_iv[1], v10 = blake2b_iv[2], v11 = blake2b_iv[3];
    uint64_t v12 = blake2b_iv[4] ^ count, v13 = blake2b_iv[5], v14 = blake2b_iv[6] ^ last, v15 = blake2b_iv[7];
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
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    h[0] ^= v0 ^ v8;
    h[1] ^= v1 ^ v9;
    h[2] ^= v2 ^ v10;
    h[3] ^= v3 ^ v11;
    h[4] ^= v4 ^ v12;
    h[5] ^= v5 ^ v13;
    h[6] ^= v6 ^ v14;
    h[7] ^= v7 ^ v15;
}

static void put_digest(const uint64_t h[8], uint8_t *out)
{
    for (unsigned i = 0; i < BLAKE2B_DIGEST / 8; i++)
        put_le64(out + 8 * i, h[i]);
}

void blake2b_key_init(struct blake2b_key *k, const uint8_t *key, size_t key_len)
{
    for (unsigned i = 0; i < 8; i++)
        k->h[i] = blake2b_iv[i];
    k->h[0] ^= 0x01010000U ^ (uint32_t)key_len << 8 ^ BLAKE2B_DIGEST; /* depth 1, fan-out 1 */
    uint8_t block[BLAKE2B_BLOCK] = {0};
    if (key_len > 0)
        memcpy(block, key, key_len);
    uint64_t h[8];
    memcpy(h, k->h, sizeof h);
    k->count = key_len > 0 ? BLAKE2B_BLOCK : 0;
    compress(h, block, k->count, ~UINT64_C(0));
    put_digest(h, k->empty);
    if (key_len > 0)
        compress(k->h, block, k->count, 0);
    explicit_bzero(block, sizeof block);
}

/* Ends a message: its last 1..128 bytes. */
static void finish(uint64_t h[8], uint64_t count, const uint8_t *data, size_t len, uint8_t *out)
{
    uint8_t block[BLAKE2B_BLOCK] = {0};
    memcpy(block, data, len);
    compress(h, block, count + len, ~UINT64_C(0));
    put_digest(h, out);
}

/* Whole message, or the rest of one (at least a byte). */
static void digest_rest(uint64_t h[8], uint64_t count, const uint8_t *data, size_t len, uint8_t *out)
{
    for (; len > BLAKE2B_BLOCK; len -= BLAKE2B_BLOCK, data += BLAKE2B_BLOCK) {
        count += BLAKE2B_BLOCK;
        compress(h, data, count, 0);
    }
    finish(h, count, data, len, out);
}

void blake2b_digest(const struct blake2b_key *k, const uint8_t *data, size_t len, uint8_t *out)
{
    if (len == 0) {
        memcpy(out, k->empty, BLAKE2B_DIGEST);
        return;
    }
    uint64_t h[8];
    memcpy(h, k->h, sizeof h);
    digest_rest(h, k->count, data, len, out);
}

/* What a lane is working on; job == NULL: nothing. */
struct lane {
    struct hash_job *job;
    size_t rest; /* bytes not compressed yet, at least 1 */
};

/* Blocks of each lane between two questions for more messages, while some lanes have none. */
#define SLICE 1024

struct run {
    const struct blake2b_key *key;
    const struct hash_feed *feed;
    size_t out_len;
    blake2b_lanes_fn *fn;
    unsigned lanes, active;
    unsigned some; /* a lane with a message */
    struct lane lane[BLAKE2B_LANES_MAX];
    struct blake2b_lanes l;
};

static void lane_begin(struct run *r, unsigned i, struct hash_job *job)
{
    r->lane[i] = (struct lane){job, job->len};
    for (unsigned w = 0; w < 8; w++)
        r->l.h[w][i] = r->key->h[w];
    r->l.count[i] = r->key->count;
    r->l.last[i] = 0;
    r->l.block[i] = job->data;
    r->active++;
}

static void lane_state(const struct blake2b_lanes *l, unsigned i, uint64_t h[8])
{
    for (unsigned w = 0; w < 8; w++)
        h[w] = l->h[w][i];
}

static void lane_end(struct run *r, unsigned i, const uint8_t digest[BLAKE2B_DIGEST])
{
    struct hash_job *job = r->lane[i].job;
    r->lane[i].job = NULL;
    r->active--;
    memcpy(job->out, digest, r->out_len);
    r->feed->done(r->feed->arg, job);
}

static void refill(struct run *r)
{
    for (unsigned i = 0; i < r->lanes && r->active < r->lanes; i++) {
        struct hash_job *job = NULL;
        while (!r->lane[i].job && (job = r->feed->next(r->feed->arg, r->active)) && job->len == 0) {
            memcpy(job->out, r->key->empty, r->out_len);
            r->feed->done(r->feed->arg, job);
        }
        if (job)
            lane_begin(r, i, job);
        else if (!r->lane[i].job)
            break;
    }
}

/* Blocks, none of them a last one, that every lane with a message has. */
static size_t full_blocks(struct run *r)
{
    size_t full = r->active < r->lanes ? SLICE : SIZE_MAX;
    for (unsigned i = 0; i < r->lanes; i++) {
        if (!r->lane[i].job)
            continue;
        r->some = i;
        size_t blocks = (r->lane[i].rest - 1) / BLAKE2B_BLOCK;
        full = blocks < full ? blocks : full;
    }
    return full;
}

/* One message alone is faster without vectors. */
static void run_alone(struct run *r, size_t blocks)
{
    const unsigned i = r->some;
    struct lane *lane = &r->lane[i];
    uint64_t h[8];
    lane_state(&r->l, i, h);
    if (blocks == 0) {
        uint8_t digest[BLAKE2B_DIGEST];
        finish(h, r->l.count[i], r->l.block[i], lane->rest, digest);
        lane_end(r, i, digest);
        return;
    }
    lane->rest -= blocks * BLAKE2B_BLOCK;
    for (; blocks > 0; blocks--, r->l.block[i] += BLAKE2B_BLOCK) {
        r->l.count[i] += BLAKE2B_BLOCK;
        compress(h, r->l.block[i], r->l.count[i], 0);
    }
    for (unsigned w = 0; w < 8; w++)
        r->l.h[w][i] = h[w];
}

/* A lane without a message goes along on another's bytes; its result is not used. */
static void lend(struct run *r)
{
    for (unsigned i = 0; i < r->lanes; i++)
        if (!r->lane[i].job)
            r->l.block[i] = r->l.block[r->some];
}

static void run_full(struct run *r, size_t blocks)
{
    uint64_t step[BLAKE2B_LANES_MAX];
    for (unsigned i = 0; i < r->lanes; i++)
        step[i] = BLAKE2B_BLOCK;
    lend(r);
    r->fn(&r->l, blocks, step);
    for (unsigned i = 0; i < r->lanes; i++)
        if (r->lane[i].job)
            r->lane[i].rest -= blocks * BLAKE2B_BLOCK;
}

/* One block of each lane, the last one of some message among them. */
static void run_last(struct run *r)
{
    uint8_t pad[BLAKE2B_LANES_MAX][BLAKE2B_BLOCK];
    uint64_t step[BLAKE2B_LANES_MAX];
    for (unsigned i = 0; i < r->lanes; i++) {
        step[i] = BLAKE2B_BLOCK;
        if (!r->lane[i].job || r->lane[i].rest > BLAKE2B_BLOCK)
            continue;
        step[i] = r->lane[i].rest;
        memset(pad[i], 0, BLAKE2B_BLOCK);
        memcpy(pad[i], r->l.block[i], step[i]);
        r->l.block[i] = pad[i];
        r->l.last[i] = ~UINT64_C(0);
    }
    lend(r);
    r->fn(&r->l, 1, step);
    for (unsigned i = 0; i < r->lanes; i++) {
        if (!r->lane[i].job)
            continue;
        r->lane[i].rest -= step[i];
        if (r->lane[i].rest > 0)
            continue;
        uint64_t h[8];
        uint8_t digest[BLAKE2B_DIGEST];
        lane_state(&r->l, i, h);
        put_digest(h, digest);
        lane_end(r, i, digest);
    }
}

void blake2b_run(const struct blake2b_key *k, const struct hash_feed *feed, size_t out_len, blake2b_lanes_fn *fn,
                 unsigned lanes)
{
    struct run r = {.key = k, .feed = feed, .out_len = out_len, .fn = fn, .lanes = lanes};
    for (;;) {
        refill(&r);
        if (r.active == 0)
            return;
        size_t full = full_blocks(&r);
        if (r.active == 1)
            run_alone(&r, full);
        else if (full > 0)
            run_full(&r, full);
        else
            run_last(&r);
    }
}
