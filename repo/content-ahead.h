/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * content-ahead.h - small contents read several at a time, where each is a request to a server
 *
 * Each backup leaves its manifest in a pack of its own until maintenance joins them: a thousand of them one after the
 * other would cost the delay of a thousand answers. Memory: at most sixteen contents of up to a mebibyte, and eight
 * threads with a reader each.
 */
#ifndef SNAPFERRY_REPO_CONTENT_AHEAD_H
#define SNAPFERRY_REPO_CONTENT_AHEAD_H

#include "repo/repo.h"

struct content_ahead;

/* The entry of content i; false: it is not to be read. By any thread, one at a time. */
typedef bool content_ahead_fn(void *arg, size_t i, struct index_entry *ret);

/* Begins to read n contents in their order. NULL: there is nothing to be gained (a store of files, or fewer than two),
 * or no memory or thread for it: the caller reads them. `r` and `arg` are borrowed until it is freed. */
struct content_ahead *content_ahead_new(struct repo *r, size_t n, content_ahead_fn *entry, void *arg);
/* Waits for the reads that are under way. NULL allowed. */
void content_ahead_free(struct content_ahead *a);
static inline void content_ahead_freep(struct content_ahead **a)
{
    content_ahead_free(*a);
}
/* Content i: *out is malloc()ed; returns its length. Negative: it was not read or could not be: the caller reads it,
 * and meets the error. To be called with rising i, by one thread; those that are left out are dropped. */
int64_t content_ahead_get(struct content_ahead *a, size_t i, uint8_t **out);

#endif
