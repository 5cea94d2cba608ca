/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "chunker/sums.h"

#include "base/bytes.h"
#include "chunker/kernel.h"
#include "chunker/md5.h"
#include "chunker/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is read of each body at a time; a multiple of both blocks. All of them fit into a second-level cache. */
#define PIECE ((size_t)32 << 10)

/* RFC 1321, section 3.3. */
static const uint32_t md5_iv[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

typedef void md5_lanes_fn(struct md5_lanes *l, const uint8_t *const p[MD5_LANES], size_t blocks);

struct lane {
    struct sums_body *body;
    bool ended;
    uint8_t *piece;
    size_t len;            /* of the piece that was read; less than PIECE: the last one */
    EVP_MD_CTX *md5, *sha; /* NULL: by a kernel */
    uint32_t h[8];         /* of SHA-256 by a kernel */
};

struct summing {
    md5_lanes_fn *md5; /* NULL: by OpenSSL */
    struct md5_lanes lanes;
    bool sha, sha_kernel;
    size_t n;
    struct lane lane[SUMS_BODIES];
};

static md5_lanes_fn *md5_kernel(void)
{
    static md5_lanes_fn *const kernels[] = {
        [KERNEL_SCALAR] = NULL,
        [KERNEL_AVX2] = md5_lanes_avx2,
        [KERNEL_AVX512] = md5_lanes_avx512,
    };
    return kernels[kernel_level("MD5", KERNEL_AVX512)];
}

unsigned sums_at_a_time(void)
{
    return md5_kernel() ? SUMS_BODIES : 1;
}

/* A failure of a digest in progress can only be caused by corrupted memory, and would be a wrong sum. */
static void openssl_must(int ok)
{
    if (ok != 1)
        abort();
}

static int digest_begin(EVP_MD_CTX **ret, const EVP_MD *md, struct err *e)
{
    *ret = EVP_MD_CTX_new();
    if (!*ret)
        return err_nomem(e);
    if (!md || EVP_DigestInit_ex(*ret, md, NULL) != 1)
        return err_set(e, ERR_GENERIC, EIO, "cannot sum what is uploaded: OpenSSL has no MD5 or SHA-256");
    return 0;
}

/* ---- the ends of messages ---- */

/* The state of one lane, whose last `len` bytes are at `data`, of `total`. RFC 1321, sections 3.1 and 3.2. */
static void md5_end(md5_lanes_fn *run, struct md5_lanes *all, size_t lane, const uint8_t *data, size_t len,
                    uint64_t total, uint8_t digest[MD5_DIGEST])
{
    struct md5_lanes one;
    const uint8_t *p[MD5_LANES];
    const size_t rest = len % MD5_BLOCK, blocks = rest + 9 > MD5_BLOCK ? 2 : 1;
    uint8_t pad[2 * MD5_BLOCK] = {0};
    for (size_t w = 0; w < 4; w++)
        for (size_t i = 0; i < MD5_LANES; i++)
            one.h[w][i] = all->h[w][lane];
    for (size_t i = 0; i < MD5_LANES; i++)
        p[i] = data;
    run(&one, p, len / MD5_BLOCK);
    if (rest > 0)
        memcpy(pad, data + len - rest, rest);
    pad[rest] = 0x80;
    put_le64(pad + blocks * MD5_BLOCK - 8, total << 3);
    for (size_t i = 0; i < MD5_LANES; i++)
        p[i] = pad;
    run(&one, p, blocks);
    for (size_t w = 0; w < 4; w++)
        put_le32(digest + 4 * w, one.h[w][0]);
}

static void lane_end(struct summing *s, size_t i)
{
    struct lane *l = &s->lane[i];
    struct body_sums *r = &l->body->sums;
    const uint64_t total = l->body->length;
    if (l->md5) {
        openssl_must(EVP_DigestUpdate(l->md5, l->piece, l->len));
        openssl_must(EVP_DigestFinal_ex(l->md5, r->md5, NULL));
    } else {
        md5_end(s->md5, &s->lanes, i, l->piece, l->len, total, r->md5);
    }
    if (l->sha) {
        openssl_must(EVP_DigestUpdate(l->sha, l->piece, l->len));
        openssl_must(EVP_DigestFinal_ex(l->sha, r->sha256, NULL));
    } else if (s->sha) {
        const size_t rest = l->len % SHA256_BLOCK;
        sha256_blocks_avx2(l->h, l->piece, l->len / SHA256_BLOCK);
        sha256_finish(l->h, l->piece + l->len - rest, rest, total, r->sha256);
    }
    l->ended = true;
}

/* ---- all of them ---- */

static int read_piece(struct lane *l, uint64_t at)
{
    const uint64_t left = l->body->length - at;
    const size_t want = left < PIECE ? (size_t)left : PIECE;
    l->len = 0;
    while (l->len < want) {
        const ssize_t n = pread(l->body->fd, l->piece + l->len, want - l->len, (off_t)(at + l->len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        l->len += (size_t)n;
    }
    return 0;
}

/* The whole pieces of all lanes that have one. */
static void pieces_add(struct summing *s)
{
    struct lane *full[SUMS_BODIES];
    const uint8_t *p[MD5_LANES];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!s->lane[i].ended && s->lane[i].len == PIECE)
            full[n++] = &s->lane[i];
    }
    if (n == 0)
        return;
    for (size_t i = 0; i < MD5_LANES; i++)
        p[i] = i < s->n && !s->lane[i].ended && s->lane[i].len == PIECE ? s->lane[i].piece : full[0]->piece;
    if (s->md5)
        s->md5(&s->lanes, p, PIECE / MD5_BLOCK);
    for (size_t i = 0; i < n; i++) {
        if (full[i]->md5)
            openssl_must(EVP_DigestUpdate(full[i]->md5, full[i]->piece, PIECE));
        if (full[i]->sha)
            openssl_must(EVP_DigestUpdate(full[i]->sha, full[i]->piece, PIECE));
    }
    for (size_t i = 0; s->sha_kernel && i < n; i += 2) {
        if (i + 1 < n)
            sha256_pairs_avx2(full[i]->h, full[i]->piece, full[i + 1]->h, full[i + 1]->piece, PIECE / SHA256_BLOCK);
        else
            sha256_blocks_avx2(full[i]->h, full[i]->piece, PIECE / SHA256_BLOCK);
    }
}

static void bodies_sum(struct summing *s)
{
    for (uint64_t at = 0;; at += PIECE) {
        bool more = false;
        for (size_t i = 0; i < s->n; i++) {
            struct lane *l = &s->lane[i];
            if (l->ended)
                continue;
            l->body->rc = read_piece(l, at);
            l->ended = l->body->rc < 0;
            if (!l->ended && l->len < PIECE)
                lane_end(s, i);
            more = more || !l->ended;
        }
        if (!more)
            return;
        pieces_add(s);
    }
}

static int lanes_begin(struct summing *s, uint8_t *pieces, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        struct lane *l = &s->lane[i];
        l->piece = pieces + i * PIECE;
        sha256_begin(l->h);
        if (!s->md5)
            rc = digest_begin(&l->md5, EVP_md5(), e);
        if (rc == 0 && s->sha && !s->sha_kernel)
            rc = digest_begin(&l->sha, EVP_sha256(), e);
    }
    for (size_t w = 0; w < 4; w++)
        for (size_t i = 0; i < MD5_LANES; i++)
            s->lanes.h[w][i] = md5_iv[w];
    return rc;
}

int sums_of_files(struct sums_body *all, size_t n, bool sha, struct err *e)
{
    struct summing s = {.md5 = n > 1 ? md5_kernel() : NULL, .sha = sha, .n = n};
    s.sha_kernel = sha && kernel_level("SHA256", KERNEL_AVX2) == KERNEL_AVX2;
    uint8_t *pieces = malloc(n * PIECE);
    for (size_t i = 0; i < n; i++)
        s.lane[i].body = &all[i];
    int rc = pieces ? lanes_begin(&s, pieces, e) : err_nomem(e);
    if (rc == 0)
        bodies_sum(&s);
    for (size_t i = 0; i < n; i++) {
        EVP_MD_CTX_free(s.lane[i].md5);
        EVP_MD_CTX_free(s.lane[i].sha);
    }
    free(pieces);
    return rc;
}

int sums_of_memory(const void *data, size_t len, bool sha, struct body_sums *ret, struct err *e)
{
    EVP_MD_CTX *md5 = NULL, *hash = NULL;
    int rc = digest_begin(&md5, EVP_md5(), e);
    if (rc == 0 && sha)
        rc = digest_begin(&hash, EVP_sha256(), e);
    if (rc == 0) {
        openssl_must(EVP_DigestUpdate(md5, data, len));
        openssl_must(EVP_DigestFinal_ex(md5, ret->md5, NULL));
    }
    if (rc == 0 && sha) {
        openssl_must(EVP_DigestUpdate(hash, data, len));
        openssl_must(EVP_DigestFinal_ex(hash, ret->sha256, NULL));
    }
    EVP_MD_CTX_free(md5);
    EVP_MD_CTX_free(hash);
    return rc;
}
