/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake2_run.h - assignment of messages to lanes, shared by BLAKE2b and BLAKE2s
 *
 * This is text, not an interface: blake2b.c and blake2s.c include it once each, after their own compress_block(),
 * finish_message(), put_digest() (32 bytes) and for_lanes() (whether a lane can count that many bytes), with words,
 * sizes, types and functions defined as BLAKE2_*.
 */

/* Message of a lane; job == NULL: none. */
struct lane {
    struct hash_job *job;
    size_t rest; /* remaining bytes, at least 1 */
};

/* Blocks of each lane between requests for more messages, while some lanes have none. */
#define SLICE ((128u << 10) / BLAKE2_BLOCK)

struct run {
    const struct BLAKE2_KEY *key;
    const struct hash_feed *feed;
    size_t out_len;
    BLAKE2_LANES_FN *fn;
    unsigned lanes, active;
    unsigned some; /* a lane with a message */
    struct lane lane[BLAKE2_LANES_MAX];
    struct BLAKE2_LANES l;
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

static void lane_state(const struct BLAKE2_LANES *l, unsigned i, BLAKE2_WORD h[8])
{
    for (unsigned w = 0; w < 8; w++)
        h[w] = l->h[w][i];
}

static void lane_end(struct run *r, unsigned i, const uint8_t digest[BLAKE2_DIGEST])
{
    struct hash_job *job = r->lane[i].job;
    r->lane[i].job = NULL;
    r->active--;
    memcpy(job->out, digest, r->out_len);
    r->feed->done(r->feed->arg, job);
}

static void refill_lanes(struct run *r)
{
    for (unsigned i = 0; i < r->lanes && r->active < r->lanes; i++) {
        struct hash_job *job = NULL;
        while (!r->lane[i].job && (job = r->feed->next(r->feed->arg, r->active)) &&
               (job->len == 0 || !for_lanes(job->len))) {
            uint8_t digest[BLAKE2_DIGEST];
            BLAKE2_ALONE(r->key, job->data, job->len, digest);
            memcpy(job->out, digest, r->out_len);
            r->feed->done(r->feed->arg, job);
        }
        if (job)
            lane_begin(r, i, job);
        else if (!r->lane[i].job)
            break;
    }
}

/* Number of blocks, other than a last one, available in every lane with a message. */
static size_t full_blocks(struct run *r)
{
    size_t full = r->active < r->lanes ? SLICE : SIZE_MAX;
    for (unsigned i = 0; i < r->lanes; i++) {
        if (!r->lane[i].job)
            continue;
        r->some = i;
        size_t blocks = (r->lane[i].rest - 1) / BLAKE2_BLOCK;
        full = blocks < full ? blocks : full;
    }
    return full;
}

/* A single message is faster without vectors. */
static void run_alone(struct run *r, size_t blocks)
{
    const unsigned i = r->some;
    struct lane *lane = &r->lane[i];
    BLAKE2_WORD h[8];
    lane_state(&r->l, i, h);
    if (blocks == 0) {
        uint8_t digest[BLAKE2_DIGEST];
        finish_message(h, r->l.count[i], r->l.block[i], lane->rest, digest);
        lane_end(r, i, digest);
        return;
    }
    lane->rest -= blocks * BLAKE2_BLOCK;
    for (; blocks > 0; blocks--, r->l.block[i] += BLAKE2_BLOCK) {
        r->l.count[i] += BLAKE2_BLOCK;
        compress_block(h, r->l.block[i], r->l.count[i], 0);
    }
    for (unsigned w = 0; w < 8; w++)
        r->l.h[w][i] = h[w];
}

/* A lane without a message processes the bytes of another one; its result is not used. */
static void lend_lanes(struct run *r)
{
    for (unsigned i = 0; i < r->lanes; i++)
        if (!r->lane[i].job)
            r->l.block[i] = r->l.block[r->some];
}

static void run_full(struct run *r, size_t blocks)
{
    BLAKE2_WORD step[BLAKE2_LANES_MAX];
    for (unsigned i = 0; i < r->lanes; i++)
        step[i] = BLAKE2_BLOCK;
    lend_lanes(r);
    r->fn(&r->l, blocks, step);
    for (unsigned i = 0; i < r->lanes; i++)
        if (r->lane[i].job)
            r->lane[i].rest -= blocks * BLAKE2_BLOCK;
}

/* One block of each lane, including the last block of some message. */
static void run_last(struct run *r)
{
    uint8_t pad[BLAKE2_LANES_MAX][BLAKE2_BLOCK];
    BLAKE2_WORD step[BLAKE2_LANES_MAX];
    for (unsigned i = 0; i < r->lanes; i++) {
        step[i] = BLAKE2_BLOCK;
        if (!r->lane[i].job || r->lane[i].rest > BLAKE2_BLOCK)
            continue;
        step[i] = r->lane[i].rest;
        memset(pad[i], 0, BLAKE2_BLOCK);
        memcpy(pad[i], r->l.block[i], step[i]);
        r->l.block[i] = pad[i];
        r->l.last[i] = (BLAKE2_WORD)-1;
    }
    lend_lanes(r);
    r->fn(&r->l, 1, step);
    for (unsigned i = 0; i < r->lanes; i++) {
        if (!r->lane[i].job)
            continue;
        r->lane[i].rest -= step[i];
        if (r->lane[i].rest > 0)
            continue;
        BLAKE2_WORD h[8];
        uint8_t digest[BLAKE2_DIGEST];
        lane_state(&r->l, i, h);
        put_digest(h, digest);
        lane_end(r, i, digest);
    }
}

static void run_feed(const struct BLAKE2_KEY *k, const struct hash_feed *feed, size_t out_len, BLAKE2_LANES_FN *fn,
                     unsigned lanes)
{
    struct run r = {.key = k, .feed = feed, .out_len = out_len, .fn = fn, .lanes = lanes};
    for (;;) {
        refill_lanes(&r);
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
