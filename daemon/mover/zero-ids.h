/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zero-ids.h - the content ids of runs of zeros
 *
 * A volume has zero chunks of few lengths (the splitter's minimum, odd ones at ends): the hash of each is computed once.
 * Not thread-safe.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_ZERO_IDS_H
#define SNAPFERRY_DAEMON_MOVER_ZERO_IDS_H

#include "chunker/hash.h"
#include "repo/index.h"

struct zero_ids;
int zero_ids_new(struct zero_ids **ret, const struct hasher *h, struct err *e);
void zero_ids_free(struct zero_ids *z);
static inline void zero_ids_freep(struct zero_ids **z) { zero_ids_free(*z); }

/* The id of `len` zero bytes (no prefix letter). At most ZERO_LEN_MAX; -ERANGE beyond. */
#define ZERO_LEN_MAX (64u << 20)
int zero_id(struct zero_ids *z, size_t len, struct content_id *ret, struct err *e);
/* True if `id` names `len` zero bytes. The lengths that whole zero chunks of named splitters have (64 KiB to 8 MiB, powers
 * of two) are always recognised; others (the odd end of a run) only where the caller thinks it likely, as each new length
 * costs one hash, and at most 64 of them. */
bool zero_id_is(struct zero_ids *z, const struct content_id *id, size_t len, bool likely);

/* `len` readable zero bytes that take no memory (the kernel's zero page); ZERO_LEN_MAX of them. */
const uint8_t *zero_bytes(const struct zero_ids *z);

#endif
