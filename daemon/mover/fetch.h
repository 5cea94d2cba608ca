/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fetch.h - many contents out of the repository, grouped by pack, by several workers
 *
 * The coordinator adds contents in the order in which it encounters them; they are collected into windows, sorted by
 * pack and offset, and handed to the workers in runs. A worker reads, decrypts, expands and verifies them (several at
 * once) and passes each to its sink. Two windows are worked on while the next one is filled, so that no worker and no
 * network waits for the last item of a window. Memory: three windows of WINDOW items, and per worker the buffers of its
 * sink and one content reader.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_FETCH_H
#define SNAPFERRY_DAEMON_MOVER_FETCH_H

#include "chunker/splitter.h"
#include "daemon/mover/mover.h"

struct fetch_item {
    struct index_entry entry;
    bool compressed;   /* 'Z' object: the content's plaintext is itself a compressed payload of `len` bytes */
    uint64_t pos, len; /* place in the object */
};

/* What the user of the fetcher does with the plaintexts. All but start() run on the worker's own thread; start() as
 * well. */
struct fetch_sink {
    /* State of one worker, at its start; and its end. */
    int (*start)(void *arg, unsigned worker, void **state, struct err *e);
    void (*end)(void *state);
    /* Room for the item's len bytes. At most fetch_batch() of them are out at a time; for an item longer than usual_len
     * (another client's settings, or those of one backup) no other. */
    int (*buffer)(void *state, const struct fetch_item *it, uint8_t **ret, struct err *e);
    /* The target may hold the item already. 1: buf has the present len bytes, to be compared by hash; 0: fetch it.
     * NULL: all are fetched. */
    int (*held)(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e);
    /* Whether held() is to be asked: items of which it is not are fetched with their neighbours, and ahead. By any
     * worker's thread, with a lock of the fetcher held: it neither waits nor calls the fetcher. NULL: always. */
    bool (*may_hold)(void *arg, const struct fetch_item *it);
    /* It was present; the buffer is returned to the sink. */
    int (*kept)(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e);
    /* The worker will soon check whether this one is held. NULL: ignored. */
    void (*expect)(void *state, const struct fetch_item *it);
    /* The plaintext is complete and its hash verified: the buffer is returned to the sink. */
    int (*done)(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e);
    /* Failed: the buffer (NULL if none was taken) is returned to the sink. Returning 0 continues, negative (with e
     * unchanged or changed) ends the run. */
    int (*failed)(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e);
    /* Everything given to done() must be written when this returns; buffers may be out. NULL: nothing to do. */
    int (*flush)(void *state, struct err *e);
    void *arg;
    uint64_t usual_len;
};

/* Small neighbours are read with one request of up to this, which stays in the cache; where requests wait for a
 * network, of up to fetch_ahead_bytes(): with 256 KiB each and 50 ms of delay it would be 18 MiB/s. */
#define FETCH_GROUP_BYTES (256u << 10)
#define FETCH_AHEAD_BYTES (4u << 20) /* or a longest content */

#define FETCH_GROUP_GAP (16u << 10) /* between two contents, which is cheaper to read than to skip */

/* How many of the n items (at least one) are read with one request: neighbours in one pack, with `gap` bytes between
 * two of them at most. *from and *to: the bytes of it, which for more than one item are at most `most` and have all of
 * each item in them. Places come from the repository: they may overlap, be of any length and in any order. Pure. */
size_t fetch_group(const struct fetch_item *items, size_t n, uint64_t most, uint64_t gap, uint64_t *from, uint64_t *to);

struct fetcher;

struct fetch_stats {
    uint64_t contents, bytes, packed_bytes, runs;
    double read_s, open_s, expand_s, hash_s, sink_s, idle_s; /* open: decrypting; idle: nothing to do */
};

/* Contents that a worker hashes together, with at most `buffers` buffers: the hash's lanes; a lane whose content
 * ended gets the next one immediately. */
unsigned fetch_batch(struct repo *r, unsigned buffers);

/* Bytes of one read ahead where contents have usual_len bytes at most, each in memory of its own (fetcher_new()). */
uint64_t fetch_ahead_bytes(struct repo *r, uint64_t usual_len);
/* How many reads ahead each of *workers has in `memory` bytes for all of them, where a worker needs `least` without;
 * 0 where blobs are files, which the kernel reads ahead. Fewer workers with several reads are better than more with
 * one: *workers may become less. */
unsigned fetch_ahead_plan(struct repo *r, uint64_t usual_len, uint64_t memory, uint64_t least, unsigned *workers);

struct fetch_plan {
    unsigned workers;
    unsigned batch; /* fetch_batch() */
    unsigned ahead; /* of each worker, fetch_ahead_plan() */
};
int fetcher_new(struct fetcher **ret, struct repo *r, const struct fetch_plan *p, const struct fetch_sink *sink,
                struct mover_cancel *cancel, struct err *e);
/* Stops without waiting for what is queued. NULL allowed. */
void fetcher_free(struct fetcher *f);
static inline void fetcher_freep(struct fetcher **f)
{
    fetcher_free(*f);
}
/* Adds one; blocks while all windows are full. Reports the first error of any worker. */
int fetcher_add(struct fetcher *f, const struct fetch_item *it, struct err *e);
/* Waits until everything added is done and flushed. */
int fetcher_drain(struct fetcher *f, struct err *e);
/* Hands over what was added; fetcher_reach() waits until everything up to there is done and flushed, while the workers
 * go on with what was added since. */
int fetcher_mark(struct fetcher *f, uint64_t *mark, struct err *e);
int fetcher_reach(struct fetcher *f, uint64_t mark, struct err *e);
void fetcher_stats(struct fetcher *f, struct fetch_stats *ret);

/* The stages "read", "decrypt", "decompress" and "hash" of what was fetched. */
#define FETCH_STAGES 4
void fetch_stages(const struct fetch_stats *s, struct stage_time stages[FETCH_STAGES]);
/* Of these stages, and possibly one after them: the one with the most time; NULL if none took any. */
const char *fetch_bottleneck(const struct stage_time *stages, unsigned n);

#endif
