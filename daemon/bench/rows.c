/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rows.c - zeros, splitters, hashes, ciphers; and the list of all rows, with the kernels that are in use */
#include "daemon/bench/bench.h"

#include "base/cleanup.h"
#include "chunker/hash.h"
#include "chunker/kernel.h"
#include "chunker/splitter.h"
#include "io/reader.h"
#include "repo/aesgcm.h"
#include "repo/compress.h"
#include "repo/ecc.h"
#include "repo/format.h"
#include "repo/item.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 16 /* of a batch that is hashed */

static size_t no_memory(const struct bench_row *r, const struct bench_sample *s, unsigned threads)
{
    (void)r;
    (void)s;
    (void)threads;
    return 0;
}

static int begin_nothing(struct bench_work *w, struct err *e)
{
    (void)w;
    (void)e;
    return 0;
}

static void end_nothing(struct bench_work *w)
{
    (void)w;
}

static void end_free(struct bench_work *w)
{
    free(w->state);
}

/* The next piece of the sample, cyclically. */
static const uint8_t *next_piece(struct bench_work *w, const uint8_t *data)
{
    const uint8_t *p = data + w->at;
    w->at = (w->at + w->sample->piece) % w->sample->len;
    return p;
}

/* ---- zeros ---- */

static int64_t step_zeros(struct bench_work *w, struct err *e)
{
    (void)e;
    w->sink += zeros_only(w->sample->zero, w->sample->piece);
    return (int64_t)w->sample->piece;
}

static const struct bench_kind zeros_kind = {begin_nothing, step_zeros, end_nothing, no_memory};

/* ---- splitters ---- */

static int begin_split(struct bench_work *w, struct err *e)
{
    struct splitter *s = calloc(1, sizeof *s);
    w->state = s;
    if (!s)
        return err_nomem(e);
    if (splitter_by_name(s, w->row->name) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "unknown splitter %s", w->row->name);
    return 0;
}

/* A pass over the sample. Bytes that a splitter skips are counted, too. */
static int64_t step_split(struct bench_work *w, struct err *e)
{
    (void)e;
    const struct splitter *s = w->state;
    const uint8_t *data = w->sample->random;
    for (size_t pos = 0, n; pos < w->sample->len; pos += n) {
        n = splitter_cut(s, data + pos, w->sample->len - pos, 0);
        w->sink += n;
        if (!n)
            break;
    }
    return (int64_t)w->sample->len;
}

static const struct bench_kind split_kind = {begin_split, step_split, end_free, no_memory};

/* ---- hashes ---- */

static int begin_hash(struct bench_work *w, struct err *e)
{
    struct hasher *h = NULL;
    uint8_t key[32];
    bench_fill_random(key, sizeof key, 0);
    int rc = hasher_new(&h, w->row->name, key, sizeof key, e);
    w->state = h;
    return rc;
}

int64_t bench_hash_batch(struct bench_work *w, const void *hasher)
{
    struct hash_job jobs[MESSAGES];
    size_t part = w->sample->len / MESSAGES, pos = 0;
    for (size_t i = 0; i < MESSAGES; i++) {
        size_t len = i % 2 ? 2 * part - jobs[i - 1].len : part / 2 + i * (part / MESSAGES);
        jobs[i] = (struct hash_job){.data = w->sample->random + pos, .len = len};
        pos += len;
    }
    hasher_digest_many(hasher, jobs, MESSAGES);
    w->sink += jobs[0].out[0];
    return (int64_t)pos;
}

static int64_t step_hash(struct bench_work *w, struct err *e)
{
    (void)e;
    return bench_hash_batch(w, w->state);
}

static void end_hash(struct bench_work *w)
{
    hasher_free(w->state);
}

static const struct bench_kind hash_kind = {begin_hash, step_hash, end_hash, no_memory};

/* ---- ciphers: a complete item with key derivation ---- */

struct sealing {
    struct sealer *sealer;
    uint8_t *sealed, *opened;
    size_t len; /* sealed */
};

static const uint8_t item_iv[16] = "an id's bytes..";

static int begin_seal(struct bench_work *w, struct err *e)
{
    struct sealing *s = calloc(1, sizeof *s);
    w->state = s;
    if (!s)
        return err_nomem(e);
    struct repo_format f = {.version = 3, .index_version = 2, .secret_len = 32, .master_key_len = 32};
    snprintf(f.hash, sizeof f.hash, "%s", hash_name(0));
    snprintf(f.encryption, sizeof f.encryption, "%s", w->row->name);
    bench_fill_random(f.secret, 32, 0);
    bench_fill_random(f.master_key, 32, 0);
    int rc = sealer_new(&s->sealer, &f, e);
    if (rc < 0)
        return rc;
    s->len = item_sealed_len(s->sealer, w->sample->piece);
    s->sealed = malloc(s->len);
    s->opened = malloc(s->len);
    if (!s->sealed || !s->opened)
        return err_nomem(e);
    memset(s->opened, 1, s->len);
    return item_seal(s->sealer, item_iv, sizeof item_iv, w->sample->random, w->sample->piece, s->sealed, NULL, e);
}

static int64_t step_seal(struct bench_work *w, struct err *e)
{
    struct sealing *s = w->state;
    int rc = item_seal(s->sealer, item_iv, sizeof item_iv, next_piece(w, w->sample->random), w->sample->piece,
                       s->sealed, NULL, e);
    return rc < 0 ? rc : (int64_t)w->sample->piece;
}

static int64_t step_open(struct bench_work *w, struct err *e)
{
    struct sealing *s = w->state;
    return item_open(s->sealer, item_iv, sizeof item_iv, s->sealed, s->len, s->opened, NULL, NULL, e);
}

static void end_seal(struct bench_work *w)
{
    struct sealing *s = w->state;
    if (!s)
        return;
    sealer_free(s->sealer);
    free(s->sealed);
    free(s->opened);
    free(s);
}

static size_t seal_memory(const struct bench_row *r, const struct bench_sample *s, unsigned threads)
{
    (void)r;
    (void)threads;
    return 2 * s->piece + (64 << 10);
}

static const struct bench_kind seal_kind = {begin_seal, step_seal, end_seal, seal_memory};
static const struct bench_kind open_kind = {begin_seal, step_open, end_seal, seal_memory};

/* ---- the list ---- */

const char *bench_group_name(enum bench_group g)
{
    static const char *const names[] = {"memory", "zeros", "splitters", "hashes", "ciphers", "compressors", "ecc"};
    return g < BENCH_GROUPS ? names[g] : NULL;
}

struct list {
    struct bench_row *rows;
    unsigned n;
};

static struct bench_row *add(struct list *l, enum bench_group g, const char *name, const char *variant,
                             const char *kernel, const struct bench_kind *kind)
{
    struct bench_row *r = &l->rows[l->n];
    if (l->n + 1 < BENCH_ROWS_MAX)
        l->n++;
    *r = (struct bench_row){.group = g, .kind = kind};
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(r->variant, sizeof r->variant, "%s", variant);
    snprintf(r->kernel, sizeof r->kernel, "%s", kernel);
    return r;
}

static void add_memory(struct list *l)
{
    add(l, BENCH_MEMORY, "read", "", "sse2", &bench_memory_read);
    add(l, BENCH_MEMORY, "write", "", "libc", &bench_memory_write);
    add(l, BENCH_MEMORY, "copy", "", "libc", &bench_memory_copy);
}

static void add_splitters(struct list *l)
{
    for (unsigned i = 0; splitter_name(i); i++) {
        struct splitter s;
        if (splitter_by_name(&s, splitter_name(i)) == 0)
            add(l, BENCH_SPLITTERS, s.name, "", s.kind == SPLITTER_FIXED ? "arithmetic" : splitter_kernel(s.kind),
                &split_kind);
    }
}

static int add_hashes(struct list *l, struct err *e)
{
    static const uint8_t key[32] = {1};
    for (unsigned i = 0; hash_name(i); i++) {
        CLEANUP(hasher_freep) struct hasher *h = NULL;
        int rc = hasher_new(&h, hash_name(i), key, sizeof key, e);
        if (rc < 0)
            return rc;
        add(l, BENCH_HASHES, hash_name(i), "", hasher_kernel(h), &hash_kind);
    }
    return 0;
}

static const char *codec_library(const char *name)
{
    if (!strncmp(name, "zstd", 4))
        return "libzstd";
    return strstr(name, "best-compression") ? "zlib" : "isa-l";
}

static void add_compressors(struct list *l)
{
    for (unsigned i = 0; compress_writable(i); i++) {
        const char *name = compress_writable(i);
        int64_t id = compress_id_by_name(name, NULL);
        if (id <= 0)
            continue;
        const char *library = codec_library(name);
        add(l, BENCH_COMPRESSORS, name, "mixed", library, &bench_compress)->number = (unsigned)id;
        add(l, BENCH_COMPRESSORS, name, "random", library, &bench_compress)->number = (unsigned)id;
        /* All streams of the deflate family are expanded by the same code. */
        add(l, BENCH_COMPRESSORS, name, "expand", strcmp(library, "zlib") != 0 ? library : "isa-l", &bench_expand)
            ->number = (unsigned)id;
    }
}

static void add_ecc(struct list *l)
{
    static const unsigned percents[] = {1, 5, 10, 50};
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s %u%%", ecc_name(0), percents[i]);
        add(l, BENCH_ECC, name, "encode", "isa-l", &bench_ecc_encode)->number = percents[i];
        add(l, BENCH_ECC, name, "decode", "isa-l", &bench_ecc_decode)->number = percents[i];
    }
}

/* The first one is AES-256-GCM. */
static const char *cipher_kernel(unsigned i)
{
    return i == 0 && aesgcm_usable() ? kernel_level_name(KERNEL_AVX2) : "openssl";
}

unsigned bench_rows(struct bench_row rows[BENCH_ROWS_MAX], unsigned groups, struct err *e)
{
    struct list l = {.rows = rows};
    if (groups & 1u << BENCH_MEMORY)
        add_memory(&l);
    if (groups & 1u << BENCH_ZEROS)
        add(&l, BENCH_ZEROS, "zero test", "", "isa-l", &zeros_kind);
    if (groups & 1u << BENCH_SPLITTERS)
        add_splitters(&l);
    if (groups & 1u << BENCH_HASHES && add_hashes(&l, e) < 0)
        return 0;
    for (unsigned i = 0; groups & 1u << BENCH_CIPHERS && encryption_name(i); i++) {
        add(&l, BENCH_CIPHERS, encryption_name(i), "seal", cipher_kernel(i), &seal_kind);
        add(&l, BENCH_CIPHERS, encryption_name(i), "open", cipher_kernel(i), &open_kind);
    }
    if (groups & 1u << BENCH_COMPRESSORS)
        add_compressors(&l);
    if (groups & 1u << BENCH_ECC)
        add_ecc(&l);
    return l.n;
}
