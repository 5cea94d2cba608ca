/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fetch-ahead.h - the next reads of a worker, several at a time, where each of them waits for a network
 *
 * A worker begins a run of items, which are sorted by place, and takes its groups of neighbours one after the other;
 * those that follow are being read meanwhile, each by a thread of its own. Memory: `reads` buffers of `most` bytes.
 * All functions are called by the worker's thread.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_FETCH_AHEAD_H
#define SNAPFERRY_DAEMON_MOVER_FETCH_AHEAD_H

#include "daemon/mover/fetch.h"

#include <pthread.h>

struct fetch_ahead;

/* Reads at a time, at most. */
#define FETCH_AHEAD_MAX 8

/* `blobs` is borrowed. reads: 1 to FETCH_AHEAD_MAX; most: bytes of one read; gap: as fetch_group()'s. */
int fetch_ahead_new(struct fetch_ahead **ret, struct blobs *b, unsigned reads, uint64_t most, uint64_t gap,
                    struct err *e);
/* A thread of a mover that fetches, with a small stack; `what` it is, for the error. */
int fetch_thread(pthread_t *ret, void *(*fn)(void *), void *arg, const char *what, struct err *e);
/* Waits for the reads that are under way. NULL allowed. */
void fetch_ahead_free(struct fetch_ahead *a);

/* The n items are borrowed until the last of them is taken, or until fetch_ahead_drop(). */
void fetch_ahead_begin(struct fetch_ahead *a, const struct fetch_item *items, size_t n);
/* Whether all items are read or being read, so that a thread may be idle: time to name those that follow. They are
 * taken after the others, and borrowed likewise. */
bool fetch_ahead_wants(const struct fetch_ahead *a);
void fetch_ahead_follow(struct fetch_ahead *a, const struct fetch_item *items, size_t n);
/* What was taken last is not needed any more: its memory is for the next read. */
void fetch_ahead_done(struct fetch_ahead *a);
/* The next group: returns how many items it has. *sealed: the bytes of the pack from *from on, with all of each item
 * in them, valid until the next call; NULL: longer than `most`, or the read has failed, and whoever reads the items one
 * by one gets the error. There must be items left. */
size_t fetch_ahead_next(struct fetch_ahead *a, const uint8_t **sealed, uint64_t *from);
/* What is left of the run is not needed. Waits for the reads that are under way. */
void fetch_ahead_drop(struct fetch_ahead *a);

#endif
