/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compress.c - codecs of contents
 *
 * Writing. zstd by libzstd, one context per thread, single frames without checksum (the content id proves the bytes)
 * and with the content size. gzip, pgzip and deflate by igzip (level 1 for best-speed, 3
 * for default) and by zlib level 9 for best-compression, which igzip has no match for.
 *
 * Parameters of zstd. A name is a promise about the bytes that stock clients store under it. For each the fastest
 * parameters were taken with which repositories got no larger than theirs. MB/s of one core, contents as the splitter
 * cuts them (2.3 MiB on average), stored bytes in relation to Kopia's for a tar file of machine code and text, one of
 * documents (half of them gzip) and one of programs:
 *
 *     name          level, tables                    MB/s   stored, Kopia's = 1     libzstd's level as it is
 *     -fastest      1, hash 15, match 6              420    0.975  0.987            1: 442, 1.07 (its window: 512 KiB)
 *     (default)     3, hash 16, chain 15             270    0.996  0.998  0.989     3: 236, 0.99
 *     -better       6                                 70    0.960  0.996            7: 56
 *     -best         10                                40    0.98   1.000            11: 30
 *
 * Reading. Whatever decodes to exactly the length that the index promises; bytes behind the stream are an error. The
 * output buffer is the caller's, so no header of a hostile stream can make us allocate (LZ4F takes up to 8.2 MiB, for
 * blocks of 4 MiB, at most).
 *
 * Rule for incompressible contents. Contents of SAMPLE_MIN bytes or more are sampled before they are compressed: out of
 * each SAMPLE_STRIDE bytes (the last, partial stride too) one run of SAMPLE_LEN bytes, at an offset that varies from
 * stride to stride so that data with a period cannot hide, is compressed by zstd's fastest strategy with tables that
 * fit the first-level cache. If one single sample loses more than 1/SAMPLE_GAIN of its length, the whole content is
 * compressed; if none does, it is stored as it is. So:
 *  - text, machine code, tables and zeros are never skipped: every compressible stretch of 2 * SAMPLE_STRIDE holds a
 *    whole sample, and such samples shrink by far more than 1/SAMPLE_GAIN;
 *  - encrypted, compressed and random data cost 1/32 of an attempt at the fastest level, which is below 5 % of what
 *    hashing and encrypting them costs;
 *  - what is given up: savings below 3 %, and repeats at a distance (the same compressed file twice within one
 * content).
 */
#include "repo/compress.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "repo/s2.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <lz4frame.h>
#include <zlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_getCParams() and ZSTD_estimateCCtxSize_usingCParams() */
#include <zstd.h>
#include <zstd_errors.h>

#define SAMPLE_MIN ((size_t)128 << 10)
#define SAMPLE_STRIDE ((size_t)128 << 10)
#define SAMPLE_LEN ((size_t)4 << 10)
#define SAMPLE_GAIN 32

/* Streams of gzip and deflate count input and output in 32 bits; no content comes near. */
#define MAX_LEN ((size_t)1 << 31)

enum family { FAM_GZIP, FAM_DEFLATE, FAM_ZSTD, FAM_S2, FAM_LZ4 };

struct codec {
    uint32_t id;
    enum family family;
    int level; /* zstd: of libzstd; gzip and deflate: 1 and 3 of igzip, 9 of zlib; 0: only read */
    /* zstd: what differs from the level's own parameters for contents of more than ZSTD_SMALL bytes, 0: nothing. */
    unsigned hash_log, chain_log, min_match;
    const char *name;
};

/* Up to here libzstd has tables of parameters of its own for a length; above, the tables are those of a file of any
 * length, with a window that sees but a part of a content. The largest content fits into ours. */
#define ZSTD_SMALL ((size_t)256 << 10)
#define ZSTD_WINDOW_LOG 23

static const struct codec codecs[] = {
    {0x1100, FAM_ZSTD, 3, 16, 15, 0, "zstd"},
    {0x1101, FAM_ZSTD, 1, 15, 0, 6, "zstd-fastest"},
    {0x1102, FAM_ZSTD, 6, 0, 0, 0, "zstd-better-compression"},
    {0x1103, FAM_ZSTD, 10, 0, 0, 0, "zstd-best-compression"},
    {0x1000, FAM_GZIP, 3, 0, 0, 0, "gzip"},
    {0x1001, FAM_GZIP, 1, 0, 0, 0, "gzip-best-speed"},
    {0x1002, FAM_GZIP, 9, 0, 0, 0, "gzip-best-compression"},
    {0x1300, FAM_GZIP, 3, 0, 0, 0, "pgzip"},
    {0x1301, FAM_GZIP, 1, 0, 0, 0, "pgzip-best-speed"},
    {0x1302, FAM_GZIP, 9, 0, 0, 0, "pgzip-best-compression"},
    {0x1500, FAM_DEFLATE, 3, 0, 0, 0, "deflate-default"},
    {0x1501, FAM_DEFLATE, 1, 0, 0, 0, "deflate-best-speed"},
    {0x1502, FAM_DEFLATE, 9, 0, 0, 0, "deflate-best-compression"},
    {0x1200, FAM_S2, 0, 0, 0, 0, "s2-default"},
    {0x1201, FAM_S2, 0, 0, 0, 0, "s2-better"},
    {0x1202, FAM_S2, 0, 0, 0, 0, "s2-parallel-4"},
    {0x1203, FAM_S2, 0, 0, 0, 0, "s2-parallel-8"},
    {0x1400, FAM_LZ4, 0, 0, 0, 0, "lz4"},
};
#define N_CODECS (sizeof codecs / sizeof codecs[0])

struct igzip {
    struct isal_zstream stream;
    uint8_t level_buf[ISAL_DEF_LVL3_DEFAULT > ISAL_DEF_LVL1_DEFAULT ? ISAL_DEF_LVL3_DEFAULT : ISAL_DEF_LVL1_DEFAULT];
};

/* Everything is made when it is first needed: most threads only ever see one codec. ISA-L's states are cleared because
 * it reads a little of them before it writes there. */
struct compressor {
    ZSTD_CCtx *zc;
    ZSTD_CCtx *sampler;
    ZSTD_DCtx *zd;
    struct igzip *igzip;
    struct inflate_state *inflate;
    z_stream *zlib[2]; /* level 9: gzip, deflate */
    LZ4F_dctx *lz4;
    uint8_t sample_out[SAMPLE_LEN + 256];
};

static const struct codec *codec_by_id(uint32_t id)
{
    for (size_t i = 0; i < N_CODECS; i++)
        if (codecs[i].id == id)
            return &codecs[i];
    return NULL;
}

int64_t compress_id_by_name(const char *name, struct err *e)
{
    if (!*name || !strcmp(name, "none"))
        return 0;
    const struct codec *c = NULL;
    for (size_t i = 0; i < N_CODECS && !c; i++)
        if (!strcmp(codecs[i].name, name))
            c = &codecs[i];
    if (c && c->level)
        return c->id;
    char list[512] = "none";
    size_t n = strlen(list);
    for (unsigned i = 0; compress_writable(i); i++) {
        int w = snprintf(list + n, sizeof list - n, ", %s", compress_writable(i));
        n += (size_t)w < sizeof list - n ? (size_t)w : 0;
    }
    if (c)
        err_set(e, ERR_USAGE, EINVAL, "compression \"%s\" is read-only", name);
    else
        err_set(e, ERR_USAGE, EINVAL, "unknown compression \"%s\"", name);
    err_hint(e, "use one of %s", list);
    return -EINVAL;
}

const char *compress_name(uint32_t id)
{
    const struct codec *c = codec_by_id(id);
    return c ? c->name : NULL;
}

const char *compress_writable(unsigned i)
{
    return i < N_CODECS && codecs[i].level ? codecs[i].name : NULL; /* read-only ones come last */
}

int compressor_new(struct compressor **ret, struct err *e)
{
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : err_nomem(e);
}

void compressor_free(struct compressor *c)
{
    if (!c)
        return;
    ZSTD_freeCCtx(c->zc);
    ZSTD_freeCCtx(c->sampler);
    ZSTD_freeDCtx(c->zd);
    for (int i = 0; i < 2; i++)
        if (c->zlib[i]) {
            deflateEnd(c->zlib[i]);
            free(c->zlib[i]);
        }
    free(c->igzip);
    free(c->inflate);
    LZ4F_freeDecompressionContext(c->lz4);
    free(c);
}

static ZSTD_compressionParameters zstd_params(const struct codec *k, size_t len)
{
    ZSTD_compressionParameters p = ZSTD_getCParams(k->level, len ? len : 1, 0);
    if (len > ZSTD_SMALL) {
        p.windowLog = ZSTD_WINDOW_LOG;
        p.hashLog = k->hash_log ? k->hash_log : p.hashLog;
        p.chainLog = k->chain_log ? k->chain_log : p.chainLog;
        p.minMatch = k->min_match ? k->min_match : p.minMatch;
    }
    return p;
}

static ZSTD_compressionParameters sampler_params(void)
{
    ZSTD_compressionParameters p = ZSTD_getCParams(1, SAMPLE_LEN, 0);
    p.hashLog = 11;
    return p;
}

size_t compressor_memory(uint32_t id, size_t max_len)
{
    const struct codec *k = codec_by_id(id);
    size_t n = sizeof(struct compressor);
    if (!k || !k->level)
        return n;
    n += ZSTD_estimateCCtxSize_usingCParams(sampler_params());
    if (k->family == FAM_ZSTD) {
        /* libzstd has own parameters for short inputs, so a shorter content may need more than a longer one. */
        static const size_t tiers[] = {16 << 10, 128 << 10, 256 << 10, SIZE_MAX};
        size_t most = 0;
        for (size_t i = 0; i < sizeof tiers / sizeof tiers[0]; i++) {
            size_t len = tiers[i] < max_len ? tiers[i] : max_len;
            size_t m = ZSTD_estimateCCtxSize_usingCParams(zstd_params(k, len));
            if (m > most)
                most = m;
        }
        n += most;
    } else if (k->level == 9) {
        n += sizeof(z_stream) + (1 << 17) + (1 << 17) + 32768; /* zconf.h: windowBits 15, memLevel 8, and its state */
    } else {
        n += sizeof(struct igzip);
    }
    return n + 4096; /* malloc's own */
}

static int zstd_failed(struct err *e, size_t rc)
{
    if (ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation)
        return err_nomem(e);
    return err_set(e, ERR_GENERIC, EIO, "zstd: compression failed: %s", ZSTD_getErrorName(rc));
}

static int zstd_set(ZSTD_CCtx *z, ZSTD_cParameter p, int v, struct err *e)
{
    size_t rc = ZSTD_CCtx_setParameter(z, p, v);
    return ZSTD_isError(rc) ? zstd_failed(e, rc) : 0;
}

/* 1: at least one sample shrinks; 0: none does. */
static int looks_compressible(struct compressor *c, const uint8_t *data, size_t len, struct err *e)
{
    if (!c->sampler) {
        c->sampler = ZSTD_createCCtx();
        if (!c->sampler)
            return err_nomem(e);
        ZSTD_compressionParameters p = sampler_params();
        int rc = 0;
        if ((rc = zstd_set(c->sampler, ZSTD_c_compressionLevel, 1, e)) ||
            (rc = zstd_set(c->sampler, ZSTD_c_hashLog, (int)p.hashLog, e)))
            return rc;
    }
    for (size_t at = 0; at < len; at += SAMPLE_STRIDE) {
        size_t room = len - at < SAMPLE_STRIDE ? len - at : SAMPLE_STRIDE;
        size_t n = room < SAMPLE_LEN ? room : SAMPLE_LEN;
        uint32_t spread = (uint32_t)(at / SAMPLE_STRIDE) * 0x9e3779b1u; /* golden ratio: even, without a period */
        const uint8_t *s = data + at + (size_t)(((uint64_t)spread * (room - n)) >> 32);
        size_t rc = ZSTD_compress2(c->sampler, c->sample_out, sizeof c->sample_out, s, n);
        if (ZSTD_isError(rc))
            return zstd_failed(e, rc);
        if (rc < n - n / SAMPLE_GAIN)
            return 1;
    }
    return 0;
}

static int64_t zstd_write(struct compressor *c, const struct codec *k, const void *in, size_t len, void *out,
                          size_t cap, struct err *e)
{
    if (!c->zc && !(c->zc = ZSTD_createCCtx()))
        return err_nomem(e);
    /* All parameters each time: the context may have been used for another codec or length before. */
    ZSTD_compressionParameters p = zstd_params(k, len);
    const struct {
        ZSTD_cParameter which;
        unsigned value;
    } set[] = {
        {ZSTD_c_compressionLevel, (unsigned)k->level},
        {ZSTD_c_windowLog, p.windowLog},
        {ZSTD_c_hashLog, p.hashLog},
        {ZSTD_c_chainLog, p.chainLog},
        {ZSTD_c_minMatch, p.minMatch},
    };
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
        int rc = zstd_set(c->zc, set[i].which, (int)set[i].value, e);
        if (rc)
            return rc;
    }
    size_t n = ZSTD_compress2(c->zc, out, cap, in, len); /* the known length limits the tables */
    if (!ZSTD_isError(n))
        return (int64_t)n;
    ZSTD_CCtx_reset(c->zc, ZSTD_reset_session_only); /* or parameters could no longer be set */
    return ZSTD_getErrorCode(n) == ZSTD_error_dstSize_tooSmall ? 0 : zstd_failed(e, n);
}

static int64_t igzip_write(struct igzip *g, int level, bool gzip, const void *in, size_t len, void *out, size_t cap,
                           struct err *e)
{
    struct isal_zstream *s = &g->stream;
    isal_deflate_stateless_init(s);
    s->level = (uint32_t)level;
    s->level_buf = g->level_buf;
    s->level_buf_size = level == 1 ? ISAL_DEF_LVL1_DEFAULT : ISAL_DEF_LVL3_DEFAULT;
    s->gzip_flag = gzip ? IGZIP_GZIP : IGZIP_DEFLATE;
    s->end_of_stream = 1;
    s->flush = NO_FLUSH;
    s->next_in = (uint8_t *)(uintptr_t)in; /* the library does not write to it */
    s->avail_in = (uint32_t)len;
    s->next_out = out;
    s->avail_out = (uint32_t)cap;
    int rc = isal_deflate_stateless(s);
    if (rc == COMP_OK)
        return (int64_t)(cap - s->avail_out);
    return rc == STATELESS_OVERFLOW ? 0 : err_set(e, ERR_GENERIC, EIO, "igzip: compression failed (error %d)", rc);
}

static int64_t zlib_write(struct compressor *c, bool gzip, const void *in, size_t len, void *out, size_t cap,
                          struct err *e)
{
    z_stream *z = c->zlib[!gzip];
    if (!z) {
        z = calloc(1, sizeof *z);
        if (!z)
            return err_nomem(e);
        if (deflateInit2(z, 9, Z_DEFLATED, gzip ? 15 + 16 : -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
            free(z);
            return err_nomem(e);
        }
        c->zlib[!gzip] = z;
    } else if (deflateReset(z) != Z_OK) {
        return err_set(e, ERR_GENERIC, EIO, "zlib: compression failed: %s", z->msg ? z->msg : "reset");
    }
    z->next_in = (uint8_t *)(uintptr_t)in;
    z->avail_in = (uInt)len;
    z->next_out = out;
    z->avail_out = (uInt)cap;
    int rc = deflate(z, Z_FINISH);
    if (rc == Z_STREAM_END)
        return (int64_t)(cap - z->avail_out);
    return rc == Z_OK || rc == Z_BUF_ERROR
               ? 0
               : err_set(e, ERR_GENERIC, EIO, "zlib: compression failed: %s", z->msg ? z->msg : "error");
}

static int too_long(struct err *e, size_t len)
{
    return err_set(e, ERR_GENERIC, EFBIG, "%zu bytes exceed the maximum input of a codec", len);
}

int64_t compressor_compress(struct compressor *c, uint32_t id, const void *data, size_t len, void *out, size_t cap,
                            bool try_hard, struct err *e)
{
    const struct codec *k = codec_by_id(id);
    if (!k || !k->level)
        return err_set(e, ERR_FORMAT, EINVAL, "compression 0x%x is read-only", id);
    if (len >= MAX_LEN)
        return too_long(e, len);
    if (len <= 4 || cap <= 4)
        return 0;
    if (!try_hard && len >= SAMPLE_MIN) {
        int rc = looks_compressible(c, data, len, e);
        if (rc <= 0)
            return rc;
    }
    /* Some encoders need a little room at the end; more would be wasted on contents that are stored uncompressed. */
    size_t room = cap - 4 < len + 64 ? cap - 4 : len + 64;
    uint8_t *to = (uint8_t *)out + 4;
    int64_t n;
    if (k->family == FAM_ZSTD) {
        n = zstd_write(c, k, data, len, to, room, e);
    } else if (k->level == 9) {
        n = zlib_write(c, k->family == FAM_GZIP, data, len, to, room, e);
    } else {
        if (!c->igzip && !(c->igzip = calloc(1, sizeof *c->igzip)))
            return err_nomem(e);
        n = igzip_write(c->igzip, k->level, k->family == FAM_GZIP, data, len, to, room, e);
    }
    if (n <= 0)
        return n;
    if ((size_t)n + 4 >= len)
        return 0;
    put_be32(out, id);
    return n + 4;
}

static int damaged(struct err *e, const char *what, const char *why)
{
    return err_set(e, ERR_DAMAGE, 0, "damaged %s stream: %s", what, why);
}

/* Length of the header of a gzip member (RFC 1952), 0 if there is none. Own code because igzip's reads uninitialized
 * memory when the header has a checksum. */
static size_t gzip_header_len(const uint8_t *p, size_t len)
{
    enum { FHCRC = 2, FEXTRA = 4, FNAME = 8, FCOMMENT = 16, RESERVED = 0xe0 };
    if (len < 10 || p[0] != 0x1f || p[1] != 0x8b || p[2] != 8 || (p[3] & RESERVED))
        return 0;
    size_t n = 10;
    if (p[3] & FEXTRA) {
        if (len - n < 2 || len - n - 2 < get_le16(p + n))
            return 0;
        n += 2 + (size_t)get_le16(p + n);
    }
    for (unsigned flag = FNAME; flag <= FCOMMENT; flag *= 2) {
        if (!(p[3] & flag))
            continue;
        const uint8_t *end = memchr(p + n, 0, len - n);
        if (!end)
            return 0;
        n = (size_t)(end - p) + 1;
    }
    if (p[3] & FHCRC) {
        if (len - n < 2 || (crc32_gzip_refl(0, (uint8_t *)(uintptr_t)p, n) & 0xffff) != get_le16(p + n))
            return 0;
        n += 2;
    }
    return n;
}

/*
 * Inflates one raw stream or all gzip members of `in`. The final call with one spare byte distinguishes "exactly full"
 * from "more to come": the end of a block and the trailer may still have to be read when the output is full.
 */
static int64_t inflate_all(struct inflate_state *s, bool gzip, const uint8_t *in, size_t in_len, uint8_t *out,
                           size_t cap, struct err *e)
{
    const char *what = gzip ? "gzip" : "deflate";
    if (in_len > UINT32_MAX || cap >= MAX_LEN)
        return too_long(e, in_len > UINT32_MAX ? in_len : cap);
    isal_inflate_init(s);
    s->next_in = (uint8_t *)(uintptr_t)in;
    s->avail_in = (uint32_t)in_len;
    size_t done = 0;
    for (;;) {
        s->crc_flag = gzip ? ISAL_GZIP_NO_HDR_VER : ISAL_DEFLATE;
        if (gzip) {
            size_t header = gzip_header_len(s->next_in, s->avail_in);
            if (!header)
                return damaged(e, what, s->next_in == in ? "bad header" : "trailing data");
            s->next_in += header;
            s->avail_in -= (uint32_t)header;
        }
        while (s->block_state != ISAL_BLOCK_FINISH) {
            uint8_t spare[16];
            bool full = done == cap;
            uint32_t room = full ? 1 : (uint32_t)(cap - done);
            s->next_out = full ? spare : out + done;
            s->avail_out = room;
            uint32_t in_before = s->avail_in;
            int rc = isal_inflate(s);
            uint32_t made = room - s->avail_out;
            if (rc < 0)
                return damaged(e, what, rc == ISAL_INCORRECT_CHECKSUM ? "wrong checksum" : "invalid code");
            if (full && made)
                return damaged(e, what, "output longer than expected");
            done += made;
            if (s->block_state != ISAL_BLOCK_FINISH && !made && s->avail_in == in_before)
                return damaged(e, what, "truncated");
        }
        if (!s->avail_in)
            return (int64_t)done;
        if (!gzip)
            return damaged(e, what, "trailing data");
        isal_inflate_reset(s);
    }
}

static int64_t zstd_read(struct compressor *c, const void *in, size_t in_len, void *out, size_t cap, struct err *e)
{
    if (!c->zd && !(c->zd = ZSTD_createDCtx()))
        return err_nomem(e);
    if (!in_len)
        return damaged(e, "zstd", "empty");
    size_t n = ZSTD_decompressDCtx(c->zd, out, cap, in, in_len);
    if (!ZSTD_isError(n))
        return (int64_t)n;
    if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
        return err_nomem(e);
    return damaged(e, "zstd", ZSTD_getErrorName(n));
}

static int64_t lz4_read(struct compressor *c, const uint8_t *in, size_t in_len, uint8_t *out, size_t cap, struct err *e)
{
    if (!c->lz4 && LZ4F_isError(LZ4F_createDecompressionContext(&c->lz4, LZ4F_VERSION)))
        return err_nomem(e);
    LZ4F_resetDecompressionContext(c->lz4);
    size_t done = 0, want = 1;
    while (in_len) {
        uint8_t spare[16];
        bool full = done == cap;
        size_t made = full ? sizeof spare : cap - done, used = in_len;
        want = LZ4F_decompress(c->lz4, full ? spare : out + done, &made, in, &used, NULL);
        if (LZ4F_isError(want))
            return damaged(e, "lz4", LZ4F_getErrorName(want));
        if (full && made)
            return damaged(e, "lz4", "output longer than expected");
        done += made;
        in += used;
        in_len -= used;
        if (!made && !used)
            return damaged(e, "lz4", "truncated");
    }
    return want ? damaged(e, "lz4", "truncated") : (int64_t)done;
}

int64_t compressor_expand_upto(struct compressor *c, uint32_t id, const void *in, size_t in_len, void *out, size_t cap,
                               struct err *e)
{
    if (in_len < 4)
        return err_set(e, ERR_DAMAGE, 0, "compressed data of %zu bytes have no header", in_len);
    uint32_t found = get_be32(in);
    if (id && found != id)
        return err_set(e, ERR_DAMAGE, 0, "compressed data have header 0x%x, expected 0x%x", found, id);
    const struct codec *k = codec_by_id(found);
    if (!k) {
        err_set(e, ERR_FORMAT, EPROTONOSUPPORT, "unknown compression 0x%x", found);
        return err_hint(e, "upgrade snapferry: a newer version may support it");
    }
    const uint8_t *from = (const uint8_t *)in + 4;
    size_t len = in_len - 4;
    uint8_t none[1];
    if (!out || !cap) { /* decoders reject NULL and must detect that there is no output */
        out = none;
        cap = 0;
    }
    switch (k->family) {
    case FAM_ZSTD:
        return zstd_read(c, from, len, out, cap, e);
    case FAM_S2:
        return s2_expand(from, len, out, cap, e);
    case FAM_LZ4:
        return lz4_read(c, from, len, out, cap, e);
    case FAM_GZIP:
    case FAM_DEFLATE:
        break;
    }
    if (!c->inflate && !(c->inflate = calloc(1, sizeof *c->inflate)))
        return err_nomem(e);
    return inflate_all(c->inflate, k->family == FAM_GZIP, from, len, out, cap, e);
}

int compressor_expand(struct compressor *c, uint32_t id, const void *in, size_t in_len, void *out, size_t out_len,
                      struct err *e)
{
    int64_t n = compressor_expand_upto(c, id, in, in_len, out, out_len, e);
    if (n < 0)
        return (int)n;
    if ((size_t)n != out_len)
        return err_set(e, ERR_DAMAGE, 0, "compressed data expand to %lld bytes, expected %zu", (long long)n, out_len);
    return 0;
}

int64_t gzip_compress(const void *in, size_t in_len, uint8_t **out, struct err *e)
{
    *out = NULL;
    if (in_len >= MAX_LEN)
        return too_long(e, in_len);
    CLEANUP_FREE struct igzip *g = calloc(1, sizeof *g);
    size_t cap = in_len + in_len / 4096 + 256; /* stored blocks have 5 bytes each, at most 65535 bytes long */
    CLEANUP_FREE uint8_t *p = malloc(cap);
    if (!g || !p)
        return err_nomem(e);
    int64_t n = igzip_write(g, 3, true, in, in_len, p, cap, e);
    if (!n)
        return err_set(e, ERR_GENERIC, EIO, "igzip needs more than %zu bytes for %zu", cap, in_len);
    if (n > 0)
        *out = take_ptr(&p);
    return n;
}
