/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pipeline.h - from the bytes of a source to the parts of an object (internal to the mover)
 *
 * One thread, the caller's, finds chunk boundaries; workers hash and store chunks; and the caller's thread takes them
 * in order into the object's table and releases their memory to the reader.
 *
 *   reader ring ──▶ find (hole? zeros? parent's chunk? scan) ──▶ queue ──▶ workers (hash, verify, put) ──▶ in order:
 *   table
 *
 * A chunk taken from the parent is a guess until its hash is known. Chunks after it are guesses too, several are
 * processed at a time. When one turns out wrong it is cut again, and what follows it is valid as soon as a new cut
 * meets the beginning of a guessed chunk: a chunk depends only on where it begins.
 *
 * With a list of changes, chunks of the parent without changes are taken over, and no chunk is guessed: the others are
 * searched for. A search that needs bytes behind a range of the reader reads them by itself, one chunk at a time, which
 * is rare.
 *
 * Zeros: a chunk that begins in `min` zero bytes is exactly `min` long, so a hole is a count, and its id is known after
 * the first time.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_PIPELINE_H
#define SNAPFERRY_DAEMON_MOVER_PIPELINE_H

#include "chunker/splitter.h"
#include "daemon/mover/budget.h"
#include "daemon/mover/hints.h"
#include "daemon/mover/mover.h"
#include "daemon/mover/refs.h"
#include "daemon/mover/unchanged.h"

struct pipeline;

struct pipeline_setup {
    struct session *session;
    struct reader *reader; /* NULL if size is 0 */
    uint64_t size;         /* bytes */
    uint64_t section;      /* bytes per section, > 0; UINT64_MAX: none */
    struct splitter splitter;
    const struct budget *budget;
    uint32_t compression;
    struct hints *hints; /* NULL: none */
    /* NULL: everything is read. Otherwise what need not be; `hints` is NULL then, and the reader reads the ranges of
     * unchanged_range(). */
    struct unchanged *unchanged;
    struct source *source; /* with `unchanged`: for what has to be read beyond those ranges */
    struct object_table *table;
    struct refs *refs;
    struct mover_progress *progress;
    /* Called by the pipeline's thread between chunks: a place for checkpoints. Negative ends the run. */
    int (*tick)(void *arg, struct err *e);
    void *tick_arg;
};

/* Bytes and time by kind. Bytes of all kinds add up to what was taken into the table. */
struct pipeline_stats {
    uint64_t pos; /* bytes taken into the table */
    uint64_t hole_bytes, zero_bytes, duplicate_bytes, new_bytes, stored_bytes;
    uint64_t chunks, zero_chunks, duplicate_chunks, new_chunks, hinted_chunks;
    uint64_t hinted_bytes;                /* verified by the parent's id, never scanned */
    uint64_t cloned_chunks, cloned_bytes; /* taken over from the parent without being read */
    uint64_t extra_bytes;                 /* with `unchanged`: read beyond the reader's ranges */
    uint64_t recuts;                      /* ranges of the parent that were not chunks here */
    uint64_t wrong_guesses;               /* chunks found after these that were not chunks either; never stored */
    /* ns; of the pipeline's thread */
    uint64_t zero_ns, split_ns, wait_ns, table_ns;
    uint64_t zero_tested, split_scanned; /* bytes */
    /* ns, summed over the workers */
    uint64_t hash_ns, lookup_ns, compress_ns, seal_ns, write_ns, worker_split_ns, busy_ns, idle_ns;
    uint64_t hashed_bytes;
};

int pipeline_new(struct pipeline **ret, const struct pipeline_setup *s, struct err *e);
/* Waits for the workers. NULL allowed. */
void pipeline_free(struct pipeline *p);
static inline void pipeline_freep(struct pipeline **p)
{
    pipeline_free(*p);
}

/* Processes the whole source. -ECANCELED (ERR_INTERRUPTED) after pipeline_stop(): the chunks before the returned
 * position are in the table. After any return no worker is busy. */
int pipeline_run(struct pipeline *p, struct err *e);

/* Ends the run soon. Any thread. `why` NULL: canceled; else the run fails with that error (the first one counts). */
void pipeline_stop(struct pipeline *p, const struct err *why);

/* State of the pipeline's thread, for that thread at any time: the workers' numbers are 0. */
void pipeline_stats(const struct pipeline *p, struct pipeline_stats *ret);
/* With the workers' numbers; after pipeline_run() only. */
void pipeline_stats_all(struct pipeline *p, struct pipeline_stats *ret);
/* Bytes of data (no zeros) taken so far. Any thread. */
uint64_t pipeline_data_bytes(const struct pipeline *p);

#endif
