/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s2.h - decoder of S2 streams (and so of framed Snappy streams, of which they are a superset)
 *
 * Format: framing_format.txt and format_description.txt of Snappy, and the section "Format Extensions" of the S2
 * documentation: stream identifier "S2sTwO", blocks of up to 4 MiB, copies with offset 0 repeat the last offset.
 * Stateless; any thread.
 */
#ifndef SNAPFERRY_REPO_S2_H
#define SNAPFERRY_REPO_S2_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Expands a stream into out[0..cap); returns the length. A malformed stream, a wrong checksum or more than `cap` bytes
 * of output: ERR_DAMAGE. Takes no memory. */
int64_t s2_expand(const void *in, size_t in_len, void *out, size_t cap, struct err *e);

/* One block without framing: its length comes first. Returns it. */
int64_t s2_expand_block(const uint8_t *in, size_t in_len, uint8_t *out, size_t cap, struct err *e);

#endif
