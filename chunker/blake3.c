/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "chunker/blake3.h"

#include "base/bytes.h"

#include <string.h>

/* Chunks whose chaining values are held at a time: a complete subtree, wide enough that the top levels, which have
 * fewer parents than a kernel has lanes, are negligible. */
#define SUBTREE 256
#define SUBTREE_LEVEL 8
#define DEPTH_MAX (64 - 10 - SUBTREE_LEVEL + 1) /* subtrees that can be pending for 2^64 bytes */

const uint32_t blake3_iv[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static inline uint32_t rotr32(uint32_t v, unsigned n)
{
    return v >> n | v << (32 - n);
}

#define G(a, b, c, d, x, y)                                                                                            \
    do {                                                                                                               \
        a += b + (x);                                                                                                  \
        d = rotr32(d ^ a, 16);                                                                                         \
        c += d;                                                                                                        \
        b = rotr32(b ^ c, 12);                                                                                         \
        a += b + (y);                                                                                                  \
        d = rotr32(d ^ a, 8);                                                                                          \
        c += d;                                                                                                        \
        b = rotr32(b ^ c, 7);                                                                                          \
    } while (0)

#define ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                                    \
    do {                                                                                                               \
        G(v0, v4, v8, v12, m[s0], m[s1]);                                                                              \
        G(v1, v5, v9, v13, m[s2], m[s3]);                                                                              \
        G(v2, v6, v10, v14, m[s4], m[s5]);                                                                             \
        G(v3, v7, v11, v15, m[s6], m[s7]);                                                                             \
        G(v0, v5, v10, v15, m[s8], m[s9]);                                                                             \
        G(v1, v6, v11, v12, m[s10], m[s11]);                                                                           \
        G(v2, v7, v8, v13, m[s12], m[s13]);                                                                            \
        G(v3, v4, v9, v14, m[s14], m[s15]);                                                                            \
    } while (0)

/* Computes the first eight words of the compression, which suffice for chaining and a 32-byte digest. */
static void compress_block(uint32_t cv[8], const uint8_t *block, uint64_t counter, uint32_t len, uint32_t flags)
{
    uint32_t m[16];
    for (unsigned i = 0; i < 16; i++)
        m[i] = get_le32(block + 4 * i);
    uint32_t v0 = cv[0], v1 = cv[1], v2 = cv[2], v3 = cv[3], v4 = cv[4], v5 = cv[5], v6 = cv[6], v7 = cv[7];
    uint32_t v8 = blake3_iv[0], v9 = blake3_iv[1], v10 = blake3_iv[2], v11 = blake3_iv[3];
    uint32_t v12 = (uint32_t)counter, v13 = (uint32_t)(counter >> 32), v14 = len, v15 = flags;
    /* Each round permutes the words of the previous one: 2 6 3 10 7 0 4 13 1 11 12 5 9 14 15 8. */
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8);
    ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1);
    ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6);
    ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4);
    ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7);
    ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13);
    cv[0] = v0 ^ v8;
    cv[1] = v1 ^ v9;
    cv[2] = v2 ^ v10;
    cv[3] = v3 ^ v11;
    cv[4] = v4 ^ v12;
    cv[5] = v5 ^ v13;
    cv[6] = v6 ^ v14;
    cv[7] = v7 ^ v15;
}

static void put_cv(uint8_t *out, const uint32_t cv[8])
{
    for (unsigned i = 0; i < 8; i++)
        put_le32(out + 4 * i, cv[i]);
}

/* One chunk of 0..1024 bytes (0 only for the empty message). `end` is ROOT or 0, for its last block. */
static void chunk_cv(const uint8_t *data, size_t len, const uint32_t key[8], uint64_t counter, uint32_t flags,
                     uint32_t end, uint8_t *out)
{
    uint32_t cv[8];
    memcpy(cv, key, sizeof cv);
    uint32_t start = BLAKE3_CHUNK_START;
    for (; len > BLAKE3_BLOCK; len -= BLAKE3_BLOCK, data += BLAKE3_BLOCK) {
        compress_block(cv, data, counter, BLAKE3_BLOCK, flags | start);
        start = 0;
    }
    uint8_t block[BLAKE3_BLOCK] = {0};
    if (len > 0)
        memcpy(block, data, len);
    compress_block(cv, block, counter, (uint32_t)len, flags | start | BLAKE3_CHUNK_END | end);
    put_cv(out, cv);
}

static void parent_cv(const uint8_t *children, const uint32_t key[8], uint32_t flags, uint8_t *out)
{
    uint32_t cv[8];
    memcpy(cv, key, sizeof cv);
    compress_block(cv, children, 0, BLAKE3_BLOCK, flags | BLAKE3_PARENT);
    put_cv(out, cv);
}

static void chunks_scalar(const uint8_t *data, size_t n, const uint32_t key[8], uint64_t counter, uint32_t flags,
                          uint8_t *out)
{
    for (size_t i = 0; i < n; i++)
        chunk_cv(data + i * BLAKE3_CHUNK, BLAKE3_CHUNK, key, counter + i, flags, 0, out + i * BLAKE3_OUT);
}

static void parents_scalar(const uint8_t *children, size_t n, const uint32_t key[8], uint32_t flags, uint8_t *out)
{
    for (size_t i = 0; i < n; i++)
        parent_cv(children + 2 * i * BLAKE3_OUT, key, flags, out + i * BLAKE3_OUT);
}

const struct blake3_kernel blake3_scalar = {chunks_scalar, parents_scalar};

/* Joins adjacent nodes level by level until at most `want` chaining values are left; an odd one moves up unchanged.
 * Returns the number left. */
static size_t reduce_level(const struct blake3_kernel *kernel, const uint32_t key[8], uint32_t flags, uint8_t *cvs,
                           size_t n, size_t want)
{
    while (n > want) {
        size_t pairs = n / 2;
        kernel->parents(cvs, pairs, key, flags, cvs);
        if (n % 2)
            memmove(cvs + pairs * BLAKE3_OUT, cvs + (n - 1) * BLAKE3_OUT, BLAKE3_OUT);
        n = pairs + n % 2;
    }
    return n;
}

void blake3_digest(const struct blake3_kernel *kernel, const uint32_t key[8], uint32_t flags, const uint8_t *data,
                   size_t len, uint8_t out[BLAKE3_OUT])
{
    if (len <= BLAKE3_CHUNK) {
        chunk_cv(data, len, key, 0, flags, BLAKE3_ROOT, out);
        return;
    }

    /* Complete subtrees of SUBTREE chunks are joined as in a binary counter. At least one byte is left for later, so
     * that no node created here is the root. */
    uint8_t cvs[SUBTREE * BLAKE3_OUT];
    uint8_t stack[DEPTH_MAX + 1][BLAKE3_OUT];
    unsigned depth = 0;
    uint64_t counter = 0;
    while (len > (size_t)SUBTREE * BLAKE3_CHUNK) {
        kernel->chunks(data, SUBTREE, key, counter, flags, cvs);
        reduce_level(kernel, key, flags, cvs, SUBTREE, 1);
        memcpy(stack[depth++], cvs, BLAKE3_OUT);
        counter += SUBTREE;
        data += SUBTREE * BLAKE3_CHUNK;
        len -= SUBTREE * BLAKE3_CHUNK;
        for (uint64_t done = counter / SUBTREE; done % 2 == 0; done /= 2) {
            depth--;
            parent_cv(stack[depth - 1], key, flags, stack[depth - 1]);
        }
    }

    /* The rest: 1 byte to a full subtree. The two children of the root must not be joined when nothing is pending. */
    size_t whole = len / BLAKE3_CHUNK;
    if (whole > 0)
        kernel->chunks(data, whole, key, counter, flags, cvs);
    size_t n = whole;
    if (len % BLAKE3_CHUNK) {
        chunk_cv(data + whole * BLAKE3_CHUNK, len % BLAKE3_CHUNK, key, counter + whole, flags, 0, cvs + n * BLAKE3_OUT);
        n++;
    }
    if (depth == 0) {
        reduce_level(kernel, key, flags, cvs, n, 2);
        parent_cv(cvs, key, flags | BLAKE3_ROOT, out);
        return;
    }
    reduce_level(kernel, key, flags, cvs, n, 1);
    while (depth > 0) {
        depth--;
        uint8_t children[2 * BLAKE3_OUT];
        memcpy(children, stack[depth], BLAKE3_OUT);
        memcpy(children + BLAKE3_OUT, cvs, BLAKE3_OUT);
        parent_cv(children, key, flags | (depth == 0 ? BLAKE3_ROOT : 0U), cvs);
    }
    memcpy(out, cvs, BLAKE3_OUT);
}

void blake3_derive_key(const char *context, const uint8_t *material, size_t len, uint8_t out[BLAKE3_OUT])
{
    uint8_t context_key[BLAKE3_OUT];
    uint32_t key[8];
    blake3_digest(&blake3_scalar, blake3_iv, BLAKE3_DERIVE_KEY_CONTEXT, (const uint8_t *)context, strlen(context),
                  context_key);
    for (unsigned i = 0; i < 8; i++)
        key[i] = get_le32(context_key + 4 * i);
    blake3_digest(&blake3_scalar, key, BLAKE3_DERIVE_KEY_MATERIAL, material, len, out);
}
