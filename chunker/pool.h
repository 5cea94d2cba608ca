/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool.h - a fixed set of threads with a bounded queue of jobs
 *
 * The bound of the queue provides back-pressure: pool_submit() blocks while it is full. Jobs start in the order of
 * submission and end in any order. A job must not call pool_submit() or pool_drain() on its own pool, as this could
 * deadlock. All other calls except pool_free() are thread-safe. Workers block all asynchronous signals.
 */
#ifndef SNAPFERRY_CHUNKER_POOL_H
#define SNAPFERRY_CHUNKER_POOL_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct pool;

/* A job; `worker` is 0..threads-1, so that a job can use buffers of its thread without locks. */
typedef void pool_job_fn(void *arg, unsigned worker);

struct pool_stats {
    uint64_t busy_ns;  /* sum over threads of time in jobs */
    uint64_t idle_ns;  /* sum over threads of time waiting for jobs */
    uint64_t block_ns; /* time submitters waited for space in the queue */
    uint64_t jobs;
};

int pool_new(struct pool **ret, unsigned threads, size_t queue_len, const char *name, struct err *e);
/* Waits for all jobs, stops the threads. NULL allowed. */
void pool_free(struct pool *p);
void pool_submit(struct pool *p, pool_job_fn *fn, void *arg);
/* Waits until every job submitted so far has ended. */
void pool_drain(struct pool *p);
void pool_stats(struct pool *p, struct pool_stats *ret);

#endif
