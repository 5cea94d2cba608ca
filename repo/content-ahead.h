/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * content-ahead.h - small contents read several at a time, where each is a request to a server
 *
 * Each backup leaves a manifest, a directory and an index document of its own: a thousand of them one after the other
 * would cost the delay of three thousand answers. Whoever walks through them numbers what he walks through as items,
 * and eight threads read what up to sixteen items need before he is there.
 *
 * Nothing depends on it: what was not read ahead, or could not be, the caller reads itself, and meets the error. What
 * was read is given out for the same place of the same content only. Each content is read ahead once.
 *
 * Memory: `memory` bytes at most for contents and for reading them, not counted by repo_memory(); and eight threads,
 * each with a reader.
 */
#ifndef SNAPFERRY_REPO_CONTENT_AHEAD_H
#define SNAPFERRY_REPO_CONTENT_AHEAD_H

#include "repo/repo.h"

#define CONTENT_AHEAD_ITEMS 16

struct content_ahead;
struct content_ahead_job;

/* Reads what item i will need, with content_ahead_read(). By any of the threads, by several at a time for different
 * items. */
typedef void content_ahead_fn(void *arg, size_t i, struct content_ahead_job *j);

/* Begins to read for n items in their order. NULL: there is nothing to be gained (a store of files), or no memory
 * for it: the caller reads all. `r` and `arg` are borrowed until it is freed. */
struct content_ahead *content_ahead_new(struct repo *r, size_t memory, size_t n, content_ahead_fn *fn, void *arg);
/* Waits for the reads that are under way. NULL allowed. */
void content_ahead_free(struct content_ahead *a);
static inline void content_ahead_freep(struct content_ahead **a)
{
    content_ahead_free(*a);
}

/* For content_ahead_fn. *ret is valid until it returns; returns the length. Negative: not to be had (it was read ahead
 * before, there is no room for it, it could not be read, or all is to end). */
int64_t content_ahead_read(struct content_ahead_job *j, const struct index_entry *x, const uint8_t **ret);

/* What follows is to be called by one thread. NULL for `a` is allowed: nothing was read. */

/* There are n items now. Those before were not less. */
void content_ahead_more(struct content_ahead *a, size_t n);
/* Waits until item i (there is one) has been read for; items before it are dropped. With rising i. */
void content_ahead_at(struct content_ahead *a, size_t i);
/* Copies a content into out (x->length bytes of room); returns its length. Negative: the caller has to read it. */
int64_t content_ahead_take(struct content_ahead *a, const struct index_entry *x, void *out);

#endif
