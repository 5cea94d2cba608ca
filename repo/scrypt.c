/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * scrypt.c - scrypt of one lane (RFC 7914)
 *
 * scrypt is one long dependency chain: its time is the latency of Salsa20/8, and of loading the next row of the table.
 *  - A 4x4 matrix of Salsa20 is held as its four diagonals, a vector each: then one vector step does the quarter-rounds
 *    of all columns, and rotating the diagonals by 1 to 3 words makes rows of columns. Words stay in that order in the
 *    table; they are sorted once at either end.
 *  - Vectors are those of the compiler (SSE2 on amd64, NEON on arm64, scalar code elsewhere), so there is one version;
 *    tests compare it with the library's function.
 *  - Allocating 16384 pages of 4 KiB would take the kernel longer than filling the table: huge pages are requested, and
 *    used if available. They also avoid TLB misses of the random reads.
 */
#include "repo/scrypt.h"

#include "base/pages.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>

#define BLOCKS 16 /* 2 * r blocks of 64 bytes */
#define WORDS (BLOCKS * 16)
#define ROW (WORDS * sizeof(uint32_t)) /* 1 KiB */
#define LARGE ((size_t)2 << 20)
#define N_MAX ((uint32_t)1 << 24)
#define DIAGONALS (BLOCKS * 4)

typedef uint32_t diagonal __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) diagonal rotl(diagonal d, int bits)
{
    return d << bits | d >> (32 - bits);
}

/* The four diagonals stay in registers only if the loops over them are unrolled, which -O2 does not do by itself. */
#define UNROLL _Pragma("GCC unroll 4")

#define TURN(d, a, b, c, e) __builtin_shufflevector(d, d, a, b, c, e)

/* Eight rounds on the diagonals of one block, and the sum with what they were. */
static inline __attribute__((always_inline)) void salsa20_8(diagonal x[4])
{
    diagonal a = x[0], b = x[1], c = x[2], d = x[3];
    for (int i = 0; i < 4; i++) {
        b ^= rotl(a + d, 7); /* columns */
        c ^= rotl(b + a, 9);
        d ^= rotl(c + b, 13);
        a ^= rotl(d + c, 18);
        b = TURN(b, 3, 0, 1, 2);
        c = TURN(c, 2, 3, 0, 1);
        d = TURN(d, 1, 2, 3, 0);
        d ^= rotl(a + b, 7); /* rows */
        c ^= rotl(d + a, 9);
        b ^= rotl(c + d, 13);
        a ^= rotl(b + c, 18);
        b = TURN(b, 1, 2, 3, 0);
        c = TURN(c, 2, 3, 0, 1);
        d = TURN(d, 3, 0, 1, 2);
    }
    x[0] += a;
    x[1] += b;
    x[2] += c;
    x[3] += d;
}

/* scryptBlockMix of `in`, xor `row` if that is not NULL. `in` and `out` are apart. */
static inline __attribute__((always_inline)) void block_mix(const diagonal in[DIAGONALS], const diagonal *row,
                                                            diagonal out[DIAGONALS])
{
    diagonal x[4];
    UNROLL
    for (int k = 0; k < 4; k++)
        x[k] = row ? in[DIAGONALS - 4 + k] ^ row[DIAGONALS - 4 + k] : in[DIAGONALS - 4 + k];
    for (int i = 0; i < BLOCKS; i++) {
        UNROLL
        for (int k = 0; k < 4; k++)
            x[k] ^= row ? in[4 * i + k] ^ row[4 * i + k] : in[4 * i + k];
        salsa20_8(x);
        diagonal *to = out + 4 * (i / 2 + i % 2 * (BLOCKS / 2)); /* even blocks first, then the odd ones */
        UNROLL
        for (int k = 0; k < 4; k++)
            to[k] = x[k];
    }
}

static void table_fill(diagonal *table, uint32_t n, diagonal x[DIAGONALS])
{
    memcpy(table, x, ROW);
    for (size_t i = 1; i < n; i++)
        block_mix(table + (i - 1) * DIAGONALS, NULL, table + i * DIAGONALS);
    block_mix(table + (n - 1) * (size_t)DIAGONALS, NULL, x);
}

/* n is even: the last result is in x. */
static void table_mix(const diagonal *table, uint32_t n, diagonal x[DIAGONALS], diagonal y[DIAGONALS])
{
    for (uint32_t i = 0; i < n; i++) {
        const diagonal *row = table + (x[DIAGONALS - 4][0] & (n - 1)) * (size_t)DIAGONALS;
        for (int k = 0; k < BLOCKS; k++)
            __builtin_prefetch(row + 4 * k);
        block_mix(x, row, y);
        diagonal *t = x;
        x = y;
        y = t;
    }
}

/* Word i of a diagonal order is word 5 * i mod 16 of the block; bytes are little endian. */
static void block_load(const uint8_t bytes[ROW], uint32_t words[WORDS])
{
    for (unsigned i = 0; i < WORDS; i++) {
        const uint8_t *b = bytes + i / 16 * 64 + i * 5 % 16 * 4;
        words[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    }
}

static void block_save(const uint32_t words[WORDS], uint8_t bytes[ROW])
{
    for (unsigned i = 0; i < WORDS; i++)
        for (unsigned k = 0; k < 4; k++)
            bytes[i / 16 * 64 + i * 5 % 16 * 4 + k] = (uint8_t)(words[i] >> 8 * k);
}

struct table {
    struct pages pages;
    diagonal *rows;
    size_t len;
};

static int table_map(struct table *t, uint32_t n, struct err *e)
{
    t->len = n * ROW;
    if (!pages_map(&t->pages, t->len, t->len >= LARGE))
        return err_set(e, ERR_MEMORY, ENOMEM, "cannot derive the key from the password: out of memory, %zu MiB needed",
                       t->len >> 20);
    t->rows = (diagonal *)(void *)t->pages.memory;
    return 0;
}

static void table_unmap(struct table *t)
{
    explicit_bzero(t->rows, t->len); /* faster than the library's for so much */
    pages_unmap(&t->pages);
}

static bool pbkdf2_once(const char *password, const uint8_t *salt, size_t salt_len, uint8_t *out, size_t len)
{
    return PKCS5_PBKDF2_HMAC(password, (int)strlen(password), salt, (int)salt_len, 1, EVP_sha256(), (int)len, out) == 1;
}

int scrypt_r8_p1(const char *password, const uint8_t *salt, size_t salt_len, uint32_t n, uint8_t *out, size_t out_len,
                 struct err *e)
{
    union {
        uint32_t words[WORDS];
        diagonal diagonals[DIAGONALS];
    } x, y;
    uint8_t bytes[ROW];
    struct table t = {0};
    if (n < 2 || n > N_MAX || (n & (n - 1)) || strlen(password) > INT_MAX || salt_len > INT_MAX || out_len > INT_MAX)
        return err_set(e, ERR_GENERIC, EINVAL, "invalid scrypt parameters: cost %u, salt of %zu bytes", n, salt_len);
    int rc = table_map(&t, n, e);
    if (rc < 0)
        return rc;
    bool ok = pbkdf2_once(password, salt, salt_len, bytes, sizeof bytes);
    if (ok) {
        block_load(bytes, x.words);
        table_fill(t.rows, n, x.diagonals);
        table_mix(t.rows, n, x.diagonals, y.diagonals);
        block_save(x.words, bytes);
        ok = pbkdf2_once(password, bytes, sizeof bytes, out, out_len);
    }
    table_unmap(&t);
    OPENSSL_cleanse(&x, sizeof x);
    OPENSSL_cleanse(&y, sizeof y);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return ok ? 0 : err_set(e, ERR_GENERIC, 0, "key derivation failed in the cryptographic library");
}
