/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pack.h - a pack blob being written, and the local index at the end of an existing one (Kopia repository format,
 * section 7)
 *
 *   [recovery block] preamble | sealed contents ... | padding | sealed local index | postamble
 *
 * A pack is never completely in memory: its bytes are written through segments to the store's blob writer. The writers
 * of contents assign offsets; this file handles what surrounds them.
 */
#ifndef SNAPFERRY_REPO_PACK_H
#define SNAPFERRY_REPO_PACK_H

#include "repo/index.h"
#include "repo/item.h"
#include "repo/segments.h"

struct pack_writer;

#define PACK_NAME_MAX 80 /* "p" or "q", 32 hex digits, "-", session id */

/* A random name. `letter`: 'p' for contents without prefix, 'q' for those with. */
int pack_name(char out[PACK_NAME_MAX], char letter, const char *session_id, struct err *e);

/* Begins a pack: recovery block (repositories that need one) and preamble are written, *start is where contents
 * begin. */
int pack_writer_new(struct pack_writer **ret, struct blobs *b, const struct sealer *s, const struct repo_format *f,
                    struct segments *segments, const char *name, uint32_t *start, struct err *e);
/* Seals in[0..len) into item_sealed_len(len) bytes at an offset reserved by the caller. `scratch` and `ecc`
 * (item_sealed_len() and item_scratch_len() bytes) are needed with error correction only. *wait_ns is increased by
 * the time waited for the store. Thread-safe. */
int pack_writer_seal(struct pack_writer *w, uint32_t offset, const uint8_t *iv, size_t iv_len, const void *in,
                     size_t len, void *scratch, void *ecc, uint64_t *wait_ns, struct err *e);
int pack_writer_read(struct pack_writer *w, uint64_t offset, void *data, size_t len, struct err *e);
/* Writes what follows the contents, which end at `end`: padding, the local index of n > 0 sorted entries, postamble. */
int pack_writer_close(struct pack_writer *w, uint32_t end, const struct index_entry *entries, size_t n, struct err *e);
/* Waits until all is written and makes the pack visible and durable. Frees the writer, also on failure: then nothing is
 * visible. */
int pack_writer_commit(struct pack_writer *w, struct err *e);
void pack_writer_abort(struct pack_writer *w); /* NULL allowed */

/*
 * The local index of a finished pack: calls fn for each entry that lies in this pack and is not deleted. Entries about
 * other packs are skipped. Postamble missing: -ENOENT (ERR_DAMAGE); entries outside the pack's contents or other
 * inconsistencies: ERR_DAMAGE. fn's non-zero return ends it and is returned.
 */
typedef int pack_entry_fn(const struct index_entry *entry, void *arg);
int pack_read_local_index(struct blobs *b, const struct sealer *s, const char *name, uint64_t pack_len,
                          pack_entry_fn *fn, void *arg, struct err *e);
/* The same in two steps: the local index, opened, and how far contents reach. `max`: -EFBIG (ERR_MEMORY) if it is
 * longer. *index is malloc()ed. Thread-safe. */
int pack_fetch_local_index(struct blobs *b, const struct sealer *s, const char *name, uint64_t pack_len, uint64_t max,
                           uint8_t **index, size_t *len, uint64_t *end, struct err *e);
/* Every entry of it, also deleted ones and those about other packs. */
int pack_local_all(const uint8_t *index, size_t len, const char *name, uint64_t end, pack_entry_fn *fn, void *arg,
                   struct err *e);
/* The same from an index in memory; contents end at `end` at the latest (fuzzing). */
int pack_local_entries(const uint8_t *index, size_t len, const char *name, uint64_t end, pack_entry_fn *fn, void *arg,
                       struct err *e);

#endif
