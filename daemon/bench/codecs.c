/* SPDX-License-Identifier: GPL-2.0-or-later */
/* codecs.c - rows of compressors and error correction */
#include "daemon/bench/bench.h"

#include "repo/compress.h"
#include "repo/ecc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLACK ((size_t)64 << 10) /* a stream may be longer than its content */

/* ---- compressors ---- */

struct squeeze {
    struct compressor *c;
    uint8_t *packed, *plain;
    size_t len; /* of packed; 0: stored uncompressed */
};

static int begin_squeeze(struct bench_work *w, struct err *e)
{
    struct squeeze *s = calloc(1, sizeof *s);
    w->state = s;
    if (!s)
        return err_nomem(e);
    s->packed = malloc(w->sample->piece + SLACK);
    s->plain = malloc(w->sample->piece);
    if (!s->packed || !s->plain)
        return err_nomem(e);
    memset(s->plain, 1, w->sample->piece);
    return compressor_new(&s->c, e);
}

static void end_squeeze(struct bench_work *w)
{
    struct squeeze *s = w->state;
    if (!s)
        return;
    compressor_free(s->c);
    free(s->packed);
    free(s->plain);
    free(s);
}

static size_t squeeze_memory(const struct bench_row *r, const struct bench_sample *s, unsigned threads)
{
    (void)threads;
    return 2 * s->piece + SLACK + compressor_memory(r->number, s->piece);
}

static int64_t compress_piece(struct bench_work *w, struct err *e)
{
    struct squeeze *s = w->state;
    bool first = w->at == 0;
    const uint8_t *data = (strcmp(w->row->variant, "random") != 0 ? w->sample->mixed : w->sample->random) + w->at;
    w->at = (w->at + w->sample->piece) % w->sample->len;
    int64_t n = compressor_compress(s->c, w->row->number, data, w->sample->piece, s->packed, w->sample->piece + SLACK,
                                    false, e);
    if (n < 0)
        return n;
    s->len = (size_t)n;
    if (first)
        w->stored = n ? (size_t)n : w->sample->piece;
    return (int64_t)w->sample->piece;
}

/* The first piece, packed once. */
static int begin_expand(struct bench_work *w, struct err *e)
{
    int rc = begin_squeeze(w, e);
    if (rc < 0)
        return rc;
    int64_t n = compress_piece(w, e);
    struct squeeze *s = w->state;
    if (n >= 0 && !s->len)
        return err_set(e, ERR_GENERIC, EINVAL, "%s does not shrink the sample", w->row->name);
    return n < 0 ? (int)n : 0;
}

static int64_t expand_piece(struct bench_work *w, struct err *e)
{
    struct squeeze *s = w->state;
    int rc = compressor_expand(s->c, w->row->number, s->packed, s->len, s->plain, w->sample->piece, e);
    w->sink += s->plain[w->sample->piece / 2];
    return rc < 0 ? rc : (int64_t)w->sample->piece;
}

const struct bench_kind bench_compress = {begin_squeeze, compress_piece, end_squeeze, squeeze_memory};
const struct bench_kind bench_expand = {begin_expand, expand_piece, end_squeeze, squeeze_memory};

/* ---- error correction ---- */

struct correction {
    struct ecc *ecc;
    uint8_t *coded, *plain;
    size_t coded_len, plain_cap;
};

static int begin_ecc(struct bench_work *w, struct err *e)
{
    struct correction *s = calloc(1, sizeof *s);
    w->state = s;
    if (!s)
        return err_nomem(e);
    int rc = ecc_new(&s->ecc, w->row->number, e);
    if (rc < 0)
        return rc;
    s->coded_len = ecc_encoded_len(s->ecc, w->sample->piece);
    s->plain_cap = ecc_decoded_max(s->ecc, s->coded_len);
    s->coded = malloc(s->coded_len);
    s->plain = malloc(s->plain_cap);
    if (!s->coded || !s->plain)
        return err_nomem(e);
    memset(s->plain, 1, s->plain_cap);
    return ecc_encode(s->ecc, w->sample->random, w->sample->piece, s->coded, e);
}

static int64_t encode_piece(struct bench_work *w, struct err *e)
{
    struct correction *s = w->state;
    int rc = ecc_encode(s->ecc, w->sample->random + w->at, w->sample->piece, s->coded, e);
    w->at = (w->at + w->sample->piece) % w->sample->len;
    return rc < 0 ? rc : (int64_t)w->sample->piece;
}

static int64_t decode_piece(struct bench_work *w, struct err *e)
{
    struct correction *s = w->state;
    return ecc_decode(s->ecc, s->coded, s->coded_len, s->plain, s->plain_cap, NULL, e);
}

static void end_ecc(struct bench_work *w)
{
    struct correction *s = w->state;
    if (!s)
        return;
    ecc_free(s->ecc);
    free(s->coded);
    free(s->plain);
    free(s);
}

/* The longest code has as many parity bytes, and checksums. */
static size_t ecc_memory(const struct bench_row *r, const struct bench_sample *s, unsigned threads)
{
    (void)r;
    (void)threads;
    return 5 * s->piece + (2 << 20);
}

const struct bench_kind bench_ecc_encode = {begin_ecc, encode_piece, end_ecc, ecc_memory};
const struct bench_kind bench_ecc_decode = {begin_ecc, decode_piece, end_ecc, ecc_memory};
