/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fuzz_format.c - the documents that decide what a repository is made of. The first byte (modulo 4) tells which:
 *   0: kopia.repository   1: its inner document   2: the document of kopia.blobcfg   3: .shards, and a blob's name
 */
#include "tests/fuzz/fuzz.h"

#include "base/cleanup.h"
#include "chunker/splitter.h"
#include "repo/format-parse.h"
#include "repo/shards.h"

#include <string.h>

static void outer(const uint8_t *data, size_t len)
{
    struct format_outer o;
    struct err e = ERR_INIT;
    int rc = format_parse_outer(&o, data, len, &e);
    if (rc < 0) {
        MUST(e.cls == ERR_DAMAGE || e.cls == ERR_FORMAT);
        return;
    }
    MUST(o.unique_id_len > 0 && o.unique_id_len <= FORMAT_ID_MAX);
    MUST(memchr(o.key_algo, 0, sizeof o.key_algo));
    uint8_t key[32] = {0}, *out = malloc(o.sealed_len + 1);
    MUST(out);
    MUST(format_layer_open(key, o.unique_id, o.unique_id_len, o.sealed, o.sealed_len, out, &e) < 0);
    free(out);
    format_outer_clear(&o);
}

static void inner(const uint8_t *data, size_t len)
{
    struct repo_format f = {.version = 0};
    struct err e = ERR_INIT;
    if (format_parse_inner(&f, data, len, &e) < 0) {
        MUST(e.cls == ERR_DAMAGE || e.cls == ERR_FORMAT);
        return;
    }
    struct splitter s;
    MUST(f.version >= 1 && f.version <= 3 && (f.index_version == 1 || f.index_version == 2));
    MUST(f.max_pack_size >= 10 << 20 && f.max_pack_size <= 120 << 20);
    MUST(f.master_key_len > 0 && f.master_key_len <= FORMAT_ID_MAX && f.secret_len <= FORMAT_ID_MAX);
    MUST(f.ecc_percent <= 100 && splitter_by_name(&s, f.splitter) == 0);
    MUST(!f.epochs.enabled || (f.epochs.refresh_ns >= 0 && f.epochs.min_duration_ns >= 3 * f.epochs.refresh_ns));
    (void)upgrade_lock_locked(&f.lock, 0);
    (void)upgrade_lock_locked(&f.lock, INT64_MAX);
}

static void blobcfg(const uint8_t *data, size_t len)
{
    struct repo_format f = {.version = 0};
    struct err e = ERR_INIT;
    if (format_parse_blobcfg(&f, data, len, &e) < 0)
        MUST(e.cls == ERR_DAMAGE || e.cls == ERR_FORMAT);
    else
        MUST((f.retention_mode[0] != 0) == (f.retention_period_ns != 0));
}

/* A document up to the first NUL, then a name. */
static void shards(const uint8_t *data, size_t len)
{
    const uint8_t *nul = memchr(data, 0, len);
    size_t doc_len = nul ? (size_t)(nul - data) : len;
    CLEANUP(shards_freep) struct shards *s = NULL;
    struct err e = ERR_INIT;
    if (shards_parse(&s, (const char *)data, doc_len, &e) < 0) {
        MUST(e.cls == ERR_DAMAGE);
        return;
    }
    char name[300] = "p00112233445566778899aabbccddeeff-s0123456789abcdef147", path[SHARDS_PATH_MAX];
    if (nul) {
        size_t n = len - doc_len - 1 < sizeof name - 1 ? len - doc_len - 1 : sizeof name - 1;
        memcpy(name, nul + 1, n);
        name[n] = '\0';
    }
    if (shards_locate(s, name, path) < 0)
        return;
    MUST(strlen(path) < sizeof path && path[0] != '/' && strncmp(path, "../", 3) != 0 && !strstr(path, "/../"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static void (*const parsers[])(const uint8_t *, size_t) = {outer, inner, blobcfg, shards};
    if (len > 0)
        parsers[data[0] % 4](data + 1, len - 1);
    return 0;
}
