/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * item.h - how bytes are sealed for storage: ECC(encrypt(iv, plaintext)) (Kopia repository format, section 5)
 *
 * A sealer holds the parameters of sealing: the hash of names, the cipher with its master key, error correction if the
 * repository has it. Immutable; every function is thread-safe.
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
/* The 32 bytes of format_cache_key(), as long as the sealer exists. */
const uint8_t *sealer_cache_key(const struct sealer *s);

#define ITEM_OVERHEAD 28 /* nonce and tag (below: ITEM_HEAD, ITEM_TAIL), without error correction */

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
 * plaintext's length; ERR_DAMAGE (-EBADMSG) if it was changed. *repaired (NULL allowed): error correction repaired
 * it. */
int64_t item_open(const struct sealer *s, const uint8_t *iv, size_t iv_len, const void *in, size_t stored, void *out,
                  void *scratch, bool *repaired, struct err *e);

/*
 * The same in pieces, for callers that process a content piece by piece while it is in the cache. Stored are ITEM_HEAD
 * bytes (nonce), as many bytes as the plaintext has, ITEM_TAIL bytes (tag); each step converts in[0..len) to
 * out[0..len), in place or not overlapping, of any length, at any position of the bytes so far. A stream is used by one
 * thread at a time; any number of streams may exist. Not with error correction (see item_in_pieces()): its blocks need
 * the whole item.
 *
 * item_*_end() and item_stream_free() (NULL allowed) release the stream, whatever they return; so exactly one of them
 * is called for each successful begin. Errors of a step persist: the end fails too.
 *
 * OPENING: the bytes of a step are not authenticated until item_open_end() returns 0. A caller that passes them on
 * earlier must be able to discard them, or to declare the result damaged, when it returns ERR_DAMAGE (-EBADMSG).
 */
#define ITEM_HEAD 12
#define ITEM_TAIL 16

struct item_stream;

bool item_in_pieces(const struct sealer *s);

int item_seal_begin(const struct sealer *s, const uint8_t *iv, size_t iv_len, void *head, struct item_stream **ret,
                    struct err *e);
int item_seal_step(struct item_stream *st, const void *in, size_t len, void *out, struct err *e);
int item_seal_end(struct item_stream *st, void *tail, struct err *e);

int item_open_begin(const struct sealer *s, const uint8_t *iv, size_t iv_len, const void *head,
                    struct item_stream **ret, struct err *e);
int item_open_step(struct item_stream *st, const void *in, size_t len, void *out, struct err *e);
int item_open_end(struct item_stream *st, const void *tail, struct err *e);

void item_stream_free(struct item_stream *st);
static inline void item_stream_freep(struct item_stream **st)
{
    item_stream_free(*st);
}

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
