/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * item.h - how bytes are sealed for storage: ECC(encrypt(iv, plaintext)) (Kopia repository format, section 5)
 *
 * A sealer holds what sealing needs: the hash that names things, the cipher with its master key, error correction if
 * the repository has it. Immutable; every function is thread-safe.
 */
#ifndef SNAPFERRY_REPO_ITEM_H
#define SNAPFERRY_REPO_ITEM_H

#include "chunker/hash.h"
#include "repo/blob.h"
#include "repo/format.h"

struct sealer;

int sealer_new(struct sealer **ret, const struct repo_format *f, struct err *e);
void sealer_free(struct sealer *s);

const struct hasher *sealer_hasher(const struct sealer *s);

#define ITEM_OVERHEAD 28 /* nonce and tag, without error correction */

/* Stored length of a plaintext of `len` bytes. */
size_t item_sealed_len(const struct sealer *s, size_t len);
/* Upper bound of the plaintext of a stored item. */
size_t item_opened_max(const struct sealer *s, size_t stored);

/*
 * Seals in[0..len) into out[0..item_sealed_len(len)), with a random nonce. `iv`: 16 bytes for contents and named blobs,
 * the whole hash for pack-local indexes. `scratch` (item_scratch_len() bytes, may be NULL if that is 0) is needed with
 * error correction.
 */
size_t item_scratch_len(const struct sealer *s, size_t len);
int item_seal(const struct sealer *s, const uint8_t *iv, size_t iv_len, const void *in, size_t len, void *out,
              void *scratch, struct err *e);

/* Opens a stored item into out (item_opened_max() bytes; in == out is allowed without error correction). Returns the
 * plaintext's length; ERR_DAMAGE (-EBADMSG) if it was changed. *repaired (NULL allowed): ECC mended something. */
int64_t item_open(const struct sealer *s, const uint8_t *iv, size_t iv_len, const void *in, size_t stored, void *out,
                  void *scratch, bool *repaired, struct err *e);

/*
 * Named blobs (indexes, sessions): the name is prefix + hex(hash(plaintext)) + ("-" + suffix), the iv comes from the
 * name. `name` gets BLOB_NAME_MAX + 1 bytes; *sealed is malloc()ed. The epoch manager's prefix ("xn5_") is put in front
 * of the name by the caller of named_seal, as `prefix` only goes into the name.
 */
int named_seal(const struct sealer *s, const char *prefix, const char *suffix, const void *in, size_t len, char *name,
               uint8_t **sealed, size_t *sealed_len, struct err *e);
/* Opens such a blob: *ret is malloc()ed. ERR_DAMAGE. */
int named_open(const struct sealer *s, const char *name, const void *in, size_t stored, uint8_t **ret, size_t *len,
               struct err *e);

#endif
