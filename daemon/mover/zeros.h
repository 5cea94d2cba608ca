/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zeros.h - ids of contents that consist of zeros (internal to the mover)
 *
 * A volume has very few lengths of such chunks: the splitter's shortest one, and tails. Each length is hashed and
 * stored once. The zeros themselves are pages that the kernel shares: they take no memory. Not thread-safe.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_ZEROS_H
#define SNAPFERRY_DAEMON_MOVER_ZEROS_H

#include "repo/repo.h"

struct zeros;
int zeros_new(struct zeros **ret, size_t longest, struct err *e);
void zeros_free(struct zeros *z);
static inline void zeros_freep(struct zeros **z)
{
    zeros_free(*z);
}

const uint8_t *zeros_data(const struct zeros *z); /* `longest` zero bytes */
/* False if that length is not known (yet). */
bool zeros_find(const struct zeros *z, size_t len, struct content_id *ret);
void zeros_learn(struct zeros *z, size_t len, const struct content_id *id);

/* For readers: is `id` that of `len` zero bytes under the hash h? The lengths of whole zero chunks of named
 * splitters (64 KiB to 8 MiB, powers of two) are always recognised; others (the odd end of a run) only if the caller
 * considers it likely, as each new length costs one hash. */
bool zeros_recognise(struct zeros *z, const struct hasher *h, const struct content_id *id, size_t len, bool likely);

#endif
