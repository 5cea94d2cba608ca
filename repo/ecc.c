/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ecc.c - Reed-Solomon error correction around stored items
 *
 * An item of n bytes is cut, with its length in front, into blocks of d data shards of z bytes; q parity shards per
 * block stand before all data, and every shard has its CRC32 in front. Small items use 6 + 2 shards, others the numbers
 * of the repository's percentage (Annex C of the format text).
 *
 * The generator matrix is the Vandermonde matrix r^c times the inverse of its top square, so row r of it takes the
 * values of a polynomial at the points 0..d-1 to its value at r. That is Lagrange's interpolation, and the coefficient
 * of data shard c in the parity shard at point r is the product of (r - j) / (c - j) over all j != c below d: no matrix
 * has to be inverted for it. ISA-L's own generators make other matrices.
 */
#include "repo/ecc.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>
#include <isa-l/erasure_code.h>

#define SMALL_DATA 6
#define SMALL_PARITY 2
#define MAX_DATA 254
#define MAX_PARITY 120
#define MAX_SHARD 1024
#define MAX_PARITY_BYTES ((size_t)MAX_PARITY * 64) /* of one block, over all percentages and both shapes */
#define CRC_LEN 4

/* Parity shards by percentage; below 8 % the numbers of data shards and their length vary too. */
static const uint8_t parity_of[101] = {
    0,  2,   2,   2,   2,   2,   3,   2,   2,   3,   4,   6,   7,   8,   9,   11,  12,  13, 15, 16, 17,
    18, 20,  21,  22,  24,  25,  26,  27,  29,  30,  31,  32,  34,  35,  36,  38,  39,  40, 41, 43, 44,
    45, 47,  48,  49,  50,  52,  53,  54,  56,  57,  58,  59,  61,  62,  63,  64,  66,  67, 68, 70, 71,
    72, 73,  75,  76,  77,  79,  80,  81,  82,  84,  85,  86,  88,  89,  90,  91,  93,  94, 95, 96, 98,
    99, 100, 102, 103, 104, 105, 107, 108, 109, 111, 112, 113, 114, 116, 117, 118, 120,
};
static const struct {
    uint16_t data, shard;
} low[8] = {{0, 0}, {254, 1024}, {164, 512}, {139, 256}, {228, 128}, {128, 128}, {128, 128}, {254, 64}};

/* A code of d data and q parity shards. */
struct code {
    unsigned d, q;
    uint8_t *coef;   /* q rows of d: parity row j = sum of coef[j][c] * data shard c */
    uint8_t *tables; /* the same, as ec_encode_data() wants it: 32 * d * q bytes */
};

struct ecc {
    struct code small, large;
    size_t max_shard;
    size_t small_in, large_in;   /* up to so many bytes with length: 6 + 2 shards, one block of d + q */
    size_t small_out, large_out; /* the same for stored lengths */
};

struct shape {
    const struct code *code;
    size_t blocks, z;
    bool padded; /* the zeros behind the item are stored */
};

static int code_init(struct code *k, unsigned d, unsigned q, struct err *e)
{
    k->d = d;
    k->q = q;
    k->coef = malloc((size_t)d * q);
    k->tables = malloc((size_t)32 * d * q);
    if (!k->coef || !k->tables)
        return err_nomem(e);
    for (unsigned c = 0; c < d; c++) {
        uint8_t below = 1;
        for (unsigned j = 0; j < d; j++)
            if (j != c)
                below = gf_mul(below, (uint8_t)(c ^ j));
        uint8_t inv = gf_inv(below);
        for (unsigned row = 0; row < q; row++) {
            uint8_t v = inv;
            for (unsigned j = 0; j < d; j++)
                if (j != c)
                    v = gf_mul(v, (uint8_t)((d + row) ^ j));
            k->coef[row * d + c] = v;
        }
    }
    ec_init_tables((int)d, (int)q, k->coef, k->tables);
    return 0;
}

static void code_fini(struct code *k)
{
    free(k->coef);
    free(k->tables);
}

static void ecc_freep(struct ecc **x)
{
    ecc_free(*x);
}

int ecc_new(struct ecc **ret, unsigned percent, struct err *e)
{
    *ret = NULL;
    if (percent < 1 || percent > 100)
        return err_set(e, ERR_FORMAT, EINVAL, "error correction overhead of %u %% is not between 1 and 100", percent);
    CLEANUP(ecc_freep) struct ecc *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    unsigned d = percent < 8 ? low[percent].data : 128, q = parity_of[percent];
    x->max_shard = percent < 8 ? low[percent].shard : 64;
    x->small_in = (size_t)8 * (d + q);
    x->small_out = (size_t)8 * (CRC_LEN + (x->small_in + 5) / 6);
    x->large_in = d * x->max_shard;
    x->large_out = (d + q) * (CRC_LEN + x->max_shard);
    int rc = code_init(&x->small, SMALL_DATA, SMALL_PARITY, e);
    if (!rc)
        rc = code_init(&x->large, d, q, e);
    if (rc)
        return rc;
    *ret = take_ptr(&x);
    return 0;
}

void ecc_free(struct ecc *x)
{
    if (!x)
        return;
    code_fini(&x->small);
    code_fini(&x->large);
    free(x);
}

static size_t div_up(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* `n` counts the 4 bytes of length. */
static struct shape shape_of_item(const struct ecc *x, size_t n)
{
    if (n <= x->small_in)
        return (struct shape){&x->small, 1, div_up(n, SMALL_DATA), true};
    if (n <= x->large_in)
        return (struct shape){&x->large, 1, div_up(n, x->large.d), true};
    return (struct shape){&x->large, div_up(n, x->large_in), x->max_shard, false};
}

static struct shape shape_of_stored(const struct ecc *x, size_t stored)
{
    size_t shards = x->large.d + x->large.q;
    if (stored <= x->small_out) {
        size_t z = div_up(stored, SMALL_DATA + SMALL_PARITY);
        return (struct shape){&x->small, 1, (z > 5 ? z : 5) - CRC_LEN, true};
    }
    if (stored <= x->large_out) {
        size_t z = div_up(stored, shards);
        return (struct shape){&x->large, 1, (z > 5 ? z : 5) - CRC_LEN, true};
    }
    return (struct shape){&x->large, div_up(stored, x->large_out), x->max_shard, false};
}

static size_t parity_len(const struct shape *s)
{
    return s->blocks * s->code->q * (CRC_LEN + s->z);
}

size_t ecc_encoded_len(const struct ecc *x, size_t len)
{
    size_t n = len + 4;
    struct shape s = shape_of_item(x, n);
    if (s.padded)
        return (s.code->d + s.code->q) * (CRC_LEN + s.z);
    return parity_len(&s) + n + CRC_LEN * div_up(n, s.z);
}

size_t ecc_decoded_max(const struct ecc *x, size_t stored)
{
    struct shape s = shape_of_stored(x, stored);
    return s.blocks * s.code->d * s.z - 4;
}

static uint32_t crc_of(const uint8_t *p, size_t n)
{
    return crc32_gzip_refl(0, (unsigned char *)(uintptr_t)p, n);
}

/* Bytes [at, at + n) of the item with its length in front. */
static void copy_item(uint8_t *to, const uint8_t *item, size_t item_len, size_t at, size_t n)
{
    uint8_t head[4];
    put_be32(head, (uint32_t)item_len);
    for (; n && at < 4; n--)
        *to++ = head[at++];
    if (n)
        memcpy(to, item + (at - 4), n);
}

int ecc_encode(const struct ecc *x, const void *in, size_t len, void *out, struct err *e)
{
    static const uint8_t zeros[MAX_SHARD];
    if (len > UINT32_MAX)
        return err_set(e, ERR_GENERIC, EFBIG, "%zu bytes exceed the length field of error correction", len);
    const size_t n = len + 4;
    const struct shape s = shape_of_item(x, n);
    const struct code *k = s.code;
    const size_t step = CRC_LEN + s.z;
    uint8_t last[MAX_SHARD];
    uint8_t *parity = out, *data = parity + parity_len(&s);
    for (size_t b = 0; b < s.blocks; b++) {
        unsigned char *src[MAX_DATA], *dst[MAX_PARITY];
        for (size_t i = 0; i < k->d; i++) {
            size_t at = (b * k->d + i) * s.z;
            size_t fill = at >= n ? 0 : n - at < s.z ? n - at : s.z;
            uint8_t *to = data + (b * k->d + i) * step;
            if (!fill && !s.padded) {
                src[i] = (uint8_t *)(uintptr_t)zeros;
                continue;
            }
            uint8_t *shard = fill == s.z || s.padded ? to + CRC_LEN : last;
            if (fill)
                copy_item(shard, in, len, at, fill);
            memset(shard + fill, 0, s.z - fill);
            put_be32(to, crc_of(shard, s.z));
            if (shard == last)
                memcpy(to + CRC_LEN, last, fill);
            src[i] = shard;
        }
        for (size_t j = 0; j < k->q; j++)
            dst[j] = parity + (b * k->q + j) * step + CRC_LEN;
        ec_encode_data((int)s.z, (int)k->d, (int)k->q, k->tables, src, dst);
        for (size_t j = 0; j < k->q; j++)
            put_be32(dst[j] - CRC_LEN, crc_of(dst[j], s.z));
    }
    return 0;
}

/* What one call of ecc_decode() works with. */
struct decoder {
    const uint8_t *in;
    size_t stored;
    struct shape s;
    uint8_t partial[MAX_SHARD];        /* the stored end, with zeros behind it */
    uint8_t rebuilt[MAX_PARITY_BYTES]; /* data shards of the block at hand */
    unsigned char *shard[MAX_DATA];    /* the same, wherever they are */
    uint8_t matrix[2][MAX_PARITY * MAX_PARITY];
    uint8_t *scratch; /* coefficients and tables for rebuilding, made when first needed */
};

static void decoder_fini(struct decoder *d)
{
    free(d->scratch);
}

/* The z bytes of the shard stored at `at`, or NULL if they do not match their CRC. */
static uint8_t *shard_intact(struct decoder *d, size_t at)
{
    const size_t z = d->s.z;
    if (at >= d->stored)
        return NULL;
    const size_t have = d->stored - at;
    const uint8_t *p = d->in + at;
    if (have < CRC_LEN + z) {
        uint8_t end[CRC_LEN + MAX_SHARD] = {0};
        memcpy(end, p, have);
        if (crc_of(end + CRC_LEN, z) != get_be32(end))
            return NULL;
        memcpy(d->partial, end + CRC_LEN, z); /* no other shard can be stored in part */
        return d->partial;
    }
    return crc_of(p + CRC_LEN, z) == get_be32(p) ? (uint8_t *)(uintptr_t)p + CRC_LEN : NULL;
}

/* Finds the shards numbered missing[] of block b from d intact ones. */
static int shards_rebuild(struct decoder *d, size_t b, const uint8_t *missing, size_t n_missing, struct err *e)
{
    const struct code *k = d->s.code;
    const size_t step = CRC_LEN + d->s.z;
    unsigned char *src[MAX_DATA], *dst[MAX_PARITY];
    uint8_t rows[MAX_PARITY];
    bool gone[MAX_DATA] = {false};
    size_t n_rows = 0;
    for (size_t i = 0; i < n_missing; i++)
        gone[missing[i]] = true;
    memcpy(src, d->shard, k->d * sizeof src[0]);
    for (size_t j = 0; j < k->q && n_rows < n_missing; j++) {
        uint8_t *p = shard_intact(d, (b * k->q + j) * step);
        if (p) {
            src[missing[n_rows]] = p; /* it takes the place of a missing one among the d sources */
            rows[n_rows++] = (uint8_t)j;
        }
    }
    if (n_rows < n_missing)
        return err_set(e, ERR_DAMAGE, EBADMSG,
                       "error correction: %zu shards of block %zu are damaged, only %zu parity shards are intact",
                       n_missing, b, n_rows);
    /* Parity row j: p_j = sum over intact c of coef[j][c] x_c + sum over missing m of coef[j][m] x_m. The square of the
     * missing columns has an inverse (any d rows of the generator have), which gives each x_m from p and intact x. */
    uint8_t *square = d->matrix[0], *inverse = d->matrix[1];
    for (size_t j = 0; j < n_missing; j++)
        for (size_t m = 0; m < n_missing; m++)
            square[j * n_missing + m] = k->coef[rows[j] * k->d + missing[m]];
    if (gf_invert_matrix(square, inverse, (int)n_missing))
        return err_set(e, ERR_GENERIC, EIO, "error correction: the matrix of block %zu has no inverse", b);
    if (!d->scratch && !(d->scratch = malloc((size_t)33 * k->d * k->q)))
        return err_nomem(e);
    uint8_t *coef = d->scratch, *tables = coef + (size_t)k->d * k->q;
    for (size_t m = 0; m < n_missing; m++) {
        uint8_t *row = coef + m * k->d;
        for (size_t c = 0; c < k->d; c++) {
            if (gone[c])
                continue;
            uint8_t v = 0;
            for (size_t j = 0; j < n_missing; j++)
                v ^= gf_mul(inverse[m * n_missing + j], k->coef[rows[j] * k->d + c]);
            row[c] = v;
        }
        for (size_t j = 0; j < n_missing; j++)
            row[missing[j]] = inverse[m * n_missing + j];
        dst[m] = d->rebuilt + m * d->s.z;
    }
    ec_init_tables((int)k->d, (int)n_missing, coef, tables);
    ec_encode_data((int)d->s.z, (int)k->d, (int)n_missing, tables, src, dst);
    for (size_t m = 0; m < n_missing; m++)
        d->shard[missing[m]] = dst[m];
    return 0;
}

int64_t ecc_decode(const struct ecc *x, const void *in, size_t stored, void *out, size_t cap, bool *repaired,
                   struct err *e)
{
    static const uint8_t zeros[MAX_SHARD];
    if (repaired)
        *repaired = false;
    if (!stored)
        return err_set(e, ERR_DAMAGE, EBADMSG, "error correction: stored item is empty");
    CLEANUP(decoder_fini) struct decoder d;
    d.in = in;
    d.stored = stored;
    d.s = shape_of_stored(x, stored);
    d.scratch = NULL;
    const struct code *k = d.s.code;
    const size_t z = d.s.z, step = CRC_LEN + z, data_at = parity_len(&d.s), capacity = d.s.blocks * k->d * z;
    uint8_t *to = out;
    size_t n = 4; /* of the item and its length; the length itself becomes known in the first block */
    for (size_t b = 0; b < d.s.blocks && b * k->d * z < n; b++) {
        uint8_t missing[MAX_DATA];
        size_t n_missing = 0;
        for (size_t i = 0; i < k->d; i++) {
            size_t at = data_at + (b * k->d + i) * step;
            d.shard[i] = at >= stored ? (uint8_t *)(uintptr_t)zeros : shard_intact(&d, at);
            if (!d.shard[i])
                missing[n_missing++] = (uint8_t)i;
        }
        if (n_missing) {
            int rc = shards_rebuild(&d, b, missing, n_missing, e);
            if (rc)
                return rc;
            if (repaired)
                *repaired = true;
        }
        if (!b) {
            uint8_t head[4];
            for (size_t i = 0; i < 4; i++)
                head[i] = d.shard[i / z][i % z];
            n = (size_t)get_be32(head) + 4;
            if (n > capacity)
                return err_set(e, ERR_DAMAGE, EBADMSG,
                               "error correction: %zu stored bytes are too few for an item of %zu", stored, n - 4);
            if (n - 4 > cap)
                return err_set(e, ERR_DAMAGE, EBADMSG, "error correction: an item of %zu bytes is longer than expected",
                               n - 4);
        }
        for (size_t i = 0; i < k->d; i++) {
            size_t at = (b * k->d + i) * z;
            size_t from = at < 4 ? (4 - at < z ? 4 - at : z) : 0, end = n <= at ? 0 : n - at < z ? n - at : z;
            if (from < end)
                memcpy(to + (at + from - 4), d.shard[i] + from, end - from);
        }
    }
    return (int64_t)(n - 4);
}
