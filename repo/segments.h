/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * segments.h - the bytes of packs on their way to the store (internal to repo)
 *
 * A pack is filled by many threads at once, in reserved ranges; contents are encrypted directly into its segments:
 * pieces of SEGMENT bytes at multiples of SEGMENT, in page-aligned memory. A full segment is written by a thread of the
 * pool, so the store gets large aligned writes in order, of several packs at a time, and writers of contents do not
 * wait for the disk until all segments are in use.
 *
 *   fill: span (may wait for a segment) -> bytes -> filled; the last byte of a segment queues it
 *   end:  the remaining bytes are written, and all writes have ended
 *
 * An error of a write persists: every later span and the end report it.
 */
#ifndef SNAPFERRY_REPO_SEGMENTS_H
#define SNAPFERRY_REPO_SEGMENTS_H

#include "repo/blob.h"

struct segments;  /* a pool of them with its threads */
struct segmented; /* a blob that is filled through a pool */

/* Bytes of a segment: where memory is short, and where it is not. */
#define SEGMENT_SMALL ((size_t)256 << 10)
#define SEGMENT ((size_t)1 << 20)

/*
 * `count` segments of `size` bytes (a multiple of 4096), allocated on demand. If all segments are being filled, more
 * are allocated to avoid a deadlock. Each thread that fills has at most two incomplete ones (it begins in the middle of
 * one and is in another), and each unfinished blob its last.
 */
int segments_new(struct segments **ret, size_t size, unsigned count, struct err *e);
void segments_free(struct segments *s); /* all blobs are freed; NULL allowed */
/* Nanoseconds that the pool's threads spent in writes, and that fillers waited for a free segment. Thread-safe. */
void segments_times(struct segments *s, uint64_t *write_ns, uint64_t *wait_ns);

/* `out` stays the caller's and must outlive it. */
int segmented_new(struct segmented **ret, struct segments *s, struct blob_writer *out, struct err *e);
/* Discards unwritten segments, waits for writes in progress. NULL allowed. */
void segmented_free(struct segmented *f);

/*
 * Memory for bytes from `offset` on, at most `len`: *n is how many (at least 1). They are exclusive to the caller, who
 * fills all of them and then calls segmented_filled(). Thread-safe. May wait.
 */
int segmented_span(struct segmented *f, uint64_t offset, size_t len, uint8_t **ret, size_t *n, struct err *e);
void segmented_filled(struct segmented *f, uint64_t offset, size_t n);
/* Span, copy, filled. */
int segmented_put(struct segmented *f, uint64_t offset, const void *data, size_t len, struct err *e);

/* Bytes that have been filled, from memory or from the store. Thread-safe. */
int segmented_read(struct segmented *f, uint64_t offset, void *data, size_t len, struct err *e);

/* All bytes up to `end` have been filled: writes the remaining ones, waits for all writes; nothing may be filled
 * later. */
int segmented_end(struct segmented *f, uint64_t end, struct err *e);

#endif
