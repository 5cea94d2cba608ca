/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ecc.h - Reed-Solomon error correction around stored items (Kopia repository format, section 5.4 and Annex C)
 *
 * Immutable after ecc_new(); encode and decode may run in many threads.
 */
#ifndef SNAPFERRY_REPO_ECC_H
#define SNAPFERRY_REPO_ECC_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ecc;
/* `percent` is 1..100, else ERR_FORMAT. */
int ecc_new(struct ecc **ret, unsigned percent, struct err *e);
void ecc_free(struct ecc *x);

/* Stored length of an item of `len` bytes. */
size_t ecc_encoded_len(const struct ecc *x, size_t len);
/* Upper bound of an item's length, given its stored length. */
size_t ecc_decoded_max(const struct ecc *x, size_t stored);

/* Encodes in[0..len) into out[0..ecc_encoded_len()). Buffers must not overlap. */
int ecc_encode(const struct ecc *x, const void *in, size_t len, void *out, struct err *e);

/* Decodes a stored item; out has room for ecc_decoded_max(). Returns the item's length; *repaired (NULL allowed):
 * shards had to be reconstructed. More damage than the code can repair: ERR_DAMAGE. Damage at the very end may be
 * undetected here: the AEAD above detects it. */
int64_t ecc_decode(const struct ecc *x, const void *in, size_t stored, void *out, size_t cap, bool *repaired,
                   struct err *e);

#endif
