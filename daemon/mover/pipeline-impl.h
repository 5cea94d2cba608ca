/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pipeline-impl.h - shared by the files of the pipeline: pipeline.c (finds chunks, takes them into the table) uses
 * pipeline-workers.c (hashes, verifies and stores them)
 */
#ifndef SNAPFERRY_DAEMON_MOVER_PIPELINE_IMPL_H
#define SNAPFERRY_DAEMON_MOVER_PIPELINE_IMPL_H

#include "chunker/hash.h"
#include "chunker/pool.h"
#include "daemon/mover/pipeline.h"
#include "daemon/mover/zeros.h"

#include <pthread.h>

enum chunk_state {
    CHUNK_WORKING, /* in the queue or at a worker */
    CHUNK_HELD,    /* hashed, not stored: its beginning is a guess until the parent's ranges before it are verified */
    CHUNK_KNOWN,   /* a chunk, stored, with its id (zeros: found in the cache or made when it is taken) */
    CHUNK_MISCUT,  /* the parent's range is not a chunk here */
    CHUNK_BROKEN   /* the worker failed: the pipeline has the error */
};

struct chunk {
    struct chunk *next;
    struct chunk *queued;       /* behind it in the queue for the workers */
    uint64_t start, len, count; /* `count` chunks of `len` bytes; more than one for zeros only */
    size_t ring;                /* bytes of the reader's ring that it may occupy */
    const uint8_t *data;        /* in the ring; NULL for zeros */
    bool zero, hole;
    bool cloned; /* taken over from the parent: never read */
    bool hinted; /* `hint` is the parent's id */
    bool ends_section;
    bool put_only; /* was held: to be stored under its id */
    struct content_id hint;
    bool guess; /* under the lock: it follows a range of the parent that may turn out not to be a chunk */
    bool sure;  /* under the lock: hashed, and certain to be a chunk; it may still have to be stored */
    /* Set by the worker, valid once the state (under the lock) is no more CHUNK_WORKING. */
    enum chunk_state state;
    struct content_id id;
    size_t cut; /* CHUNK_MISCUT: the first cut, 0 if it is after the range */
    bool proven, existed;
    uint32_t stored;
};

struct chunk_list {
    struct chunk *head, *tail;
};

/* A chunk in one of a worker's lanes. */
struct lane {
    struct hash_job job; /* first: returned by the hasher */
    struct chunk *chunk; /* NULL: free */
};

/* Written by one worker only, read when all have ended. */
struct worker_state {
    struct pipeline *p;
    struct put_scratch *scratch;
    bool late; /* its chunks have waited long enough for others */
    struct lane *lanes;
    uint64_t wait_ns, settle_ns, hash_ns, lookup_ns, compress_ns, seal_ns, write_ns, split_ns, hashed_bytes;
} __attribute__((aligned(64)));

struct pipeline {
    struct pipeline_setup s;
    const struct hasher *hasher;
    unsigned lanes;
    struct pool *pool;
    struct worker_state *workers;
    struct zeros *zeros;
    uint64_t section;

    /* of the pipeline's thread */
    struct chunk *slots, *free_slots;
    struct chunk_list line;  /* from the oldest chunk not taken yet up to `front`, without gaps */
    struct chunk_list ahead; /* guesses after a range that is being cut again; without gaps up to ahead_end */
    struct chunk *unsure;    /* the first of the line whose end may still turn out wrong; NULL: none */
    uint64_t front, ahead_end;
    uint64_t zero_end, ahead_zero_end; /* end of the known hole that `front`, `ahead_end` lie in, if they do */
    size_t held;                       /* sum of `ring` over the line */
    uint8_t *apart;                    /* memory for one chunk that is read outside the ring; made when needed */
    struct content_id shortest_zero;   /* of splitter.min zero bytes; len 0: not computed yet */
    bool drain;                        /* that memory is in use: nothing is searched for until the line is empty */
    unsigned doubt, skip;              /* after a wrong guess: hints to skip, increasing with every consecutive one */
    struct pipeline_stats stats;

    _Atomic uint64_t data_bytes;

    pthread_mutex_t lock; /* the state of chunks, and what follows */
    pthread_cond_t moved; /* the state of a chunk changed */
    pthread_cond_t work;  /* for the workers: anything below changed */
    struct chunk *queue, **queue_end;
    size_t n_queued;
    struct worker_state *filling; /* fills its lanes: no other worker takes chunks */
    bool urgent;                  /* the pipeline's thread waits: lanes no longer wait for others */
    bool ending;                  /* no more chunks will be queued */
    bool stopped, failed;
    struct err err;
};

/* ---- pipeline-workers.c ---- */

/* Allocates the workers of a pipeline and their memory; pipeline_free() frees what exists. */
int workers_new(struct pipeline *p, struct err *e);
void workers_free(struct pipeline *p);
/* One job of the pool for the whole run. */
void worker_run(void *pipeline, unsigned worker);
/* Queues a chunk for the workers. */
void chunk_enqueue(struct pipeline *p, struct chunk *c);

#endif
