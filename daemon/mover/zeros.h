/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zeros.h - ids of contents that are nothing but zeros (internal to the mover)
 *
 * A volume has very few lengths of such chunks: the splitter's shortest one, and tails. Each length is hashed and stored
 * once. The zeros themselves are pages that the kernel shares: they take no memory. Not thread-safe.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_ZEROS_H
#define SNAPFERRY_DAEMON_MOVER_ZEROS_H

#include "repo/repo.h"

struct zeros;
int zeros_new(struct zeros **ret, size_t longest, struct err *e);
void zeros_free(struct zeros *z);

const uint8_t *zeros_data(const struct zeros *z); /* `longest` zero bytes */
/* False if that length is not known (yet). */
bool zeros_find(const struct zeros *z, size_t len, struct content_id *ret);
void zeros_learn(struct zeros *z, size_t len, const struct content_id *id);

#endif
