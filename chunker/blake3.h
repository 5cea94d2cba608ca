/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blake3.h - BLAKE3 (the paper "BLAKE3: one function, fast everywhere", section 2; internal to the chunker)
 *
 * The tree is built in one place (blake3.c); a kernel compresses several independent chunks or parent nodes.
 */
#ifndef SNAPFERRY_CHUNKER_BLAKE3_H
#define SNAPFERRY_CHUNKER_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE3_CHUNK 1024 /* bytes of a leaf */
#define BLAKE3_BLOCK 64
#define BLAKE3_OUT 32 /* digest and chaining value, bytes */

enum blake3_flag {
    BLAKE3_CHUNK_START = 1,
    BLAKE3_CHUNK_END = 2,
    BLAKE3_PARENT = 4,
    BLAKE3_ROOT = 8,
    BLAKE3_KEYED_HASH = 16,
    BLAKE3_DERIVE_KEY_CONTEXT = 32,
    BLAKE3_DERIVE_KEY_MATERIAL = 64,
};

/* Chaining values of n consecutive whole chunks from chunk number `counter`; writes 32 n bytes to `out`. */
typedef void blake3_chunks_fn(const uint8_t *data, size_t n, const uint32_t key[8], uint64_t counter, uint32_t flags,
                              uint8_t *out);
/* Chaining values of n parents; `children` are 2 n chaining values; `out` (32 n bytes) may be `children`. */
typedef void blake3_parents_fn(const uint8_t *children, size_t n, const uint32_t key[8], uint32_t flags, uint8_t *out);

struct blake3_kernel {
    blake3_chunks_fn *chunks;
    blake3_parents_fn *parents;
};

extern const uint32_t blake3_iv[8];
extern const struct blake3_kernel blake3_scalar;
extern const struct blake3_kernel blake3_avx2;
extern const struct blake3_kernel blake3_avx512;

/* `flags` is 0 or one of the modes KEYED_HASH and DERIVE_KEY; `key` is blake3_iv in modes without a key. */
void blake3_digest(const struct blake3_kernel *kernel, const uint32_t key[8], uint32_t flags, const uint8_t *data,
                   size_t len, uint8_t out[BLAKE3_OUT]);

/* BLAKE3's key derivation: 32 bytes from a context (a NUL-terminated string) and key material. */
void blake3_derive_key(const char *context, const uint8_t *material, size_t len, uint8_t out[BLAKE3_OUT]);

#endif
