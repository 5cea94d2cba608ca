/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compress.h - the codecs of compressed contents (Kopia repository format, section 6)
 *
 * A compressed payload is BE32(header id) || stream. Writing: zstd (4 names), gzip and deflate (3 each, by ISA-L igzip,
 * best-compression by zlib), pgzip (written as gzip). Reading: all of these, S2 (own decoder of the framed format with
 * the S2 block extensions) and lz4 frames (which old repositories hold and stock clients no longer read).
 */
#ifndef SNAPFERRY_REPO_COMPRESS_H
#define SNAPFERRY_REPO_COMPRESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Header id of a compressor by Kopia's name; 0 for "none" and "". -EINVAL: unknown or (S2, lz4) only readable; then e
 * says which names can be written. */
int64_t compress_id_by_name(const char *name, struct err *e);
/* Name of a header id, NULL if unknown. */
const char *compress_name(uint32_t id);
/* Name number i of those that can be written, NULL past the end. */
const char *compress_writable(unsigned i);

/* Contexts and scratch memory of one thread, reused for every content. */
struct compressor;
int compressor_new(struct compressor **ret, struct err *e);
void compressor_free(struct compressor *c);
static inline void compressor_freep(struct compressor **c)
{
    compressor_free(*c);
}

/* Bytes that compressor_new() and use with contents up to `max_len` take per thread for writing with `id` (memory
 * budget; an upper bound, tested). Reading takes 0.3 MiB per thread, and 8.3 MiB more after the first lz4 frame. */
size_t compressor_memory(uint32_t id, size_t max_len);

/*
 * Compresses `len` bytes into out[0..cap): header id and stream. Returns the total length, or 0 if it would not be
 * shorter than `len` (then the content is stored uncompressed, as Kopia does) or does not fit into `cap`, or negative
 * errno. A `cap` of `len` is enough; `len` + 68 avoids a failure of some encoders when little is gained. Incompressible
 * data are recognised from samples first (rule in compress.c), unless `try_hard`.
 */
int64_t compressor_compress(struct compressor *c, uint32_t id, const void *data, size_t len, void *out, size_t cap,
                            bool try_hard, struct err *e);

/*
 * Expands in[0..in_len), which begins with BE32(id), into out: exactly `out_len` bytes, or ERR_DAMAGE. `id` comes from
 * the index (0: take it from the payload: 'Z' objects of old repositories). Unknown id: ERR_FORMAT.
 */
int compressor_expand(struct compressor *c, uint32_t id, const void *in, size_t in_len, void *out, size_t out_len,
                      struct err *e);

/* Likewise where the expanded length is not known beforehand ('Z' objects, manifests): at most `cap` bytes; returns
 * the length. */
int64_t compressor_expand_upto(struct compressor *c, uint32_t id, const void *in, size_t in_len, void *out, size_t cap,
                               struct err *e);

/* A plain gzip member (manifest contents are gzip JSON without a header id): returns the length or negative errno; the
 * caller frees *out. */
int64_t gzip_compress(const void *in, size_t in_len, uint8_t **out, struct err *e);

#endif
