/* SPDX-License-Identifier: GPL-2.0-or-later */
/* hash.c - Kopia's eleven content hashes by name (format, section 4). */
#include "chunker/hash.h"

#include "base/bytes.h"
#include "chunker/blake2b.h"
#include "chunker/blake2s.h"
#include "chunker/blake3.h"
#include "chunker/hmac.h"
#include "chunker/kernel.h"
#include "chunker/sha256.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLAKE3_CONTEXT "kopia blake3 derived key v1"

enum family { FAMILY_BLAKE2B, FAMILY_BLAKE2S, FAMILY_BLAKE3, FAMILY_SHA256, FAMILY_HMAC };

struct algorithm {
    const char *name;
    enum family family;
    size_t size;    /* used bytes of the digest */
    size_t key_max; /* bytes; 0: any length */
    const char *md; /* OpenSSL's name, for HMAC */
};

static const struct algorithm algorithms[] = {
    {"BLAKE2B-256-128", FAMILY_BLAKE2B, 16, BLAKE2B_KEY_MAX, NULL}, /* a 32-byte digest cut to 16, not BLAKE2b-128 */
    {"BLAKE2B-256", FAMILY_BLAKE2B, 32, BLAKE2B_KEY_MAX, NULL},
    {"BLAKE2S-128", FAMILY_BLAKE2S, 16, BLAKE2S_KEY_MAX, NULL}, /* digest length 16 in the parameter block */
    {"BLAKE2S-256", FAMILY_BLAKE2S, 32, BLAKE2S_KEY_MAX, NULL},
    {"BLAKE3-256", FAMILY_BLAKE3, 32, 0, NULL},
    {"BLAKE3-256-128", FAMILY_BLAKE3, 16, 0, NULL},
    {"HMAC-SHA224", FAMILY_SHA256, 28, 0, "SHA2-224"},
    {"HMAC-SHA256", FAMILY_SHA256, 32, 0, "SHA2-256"},
    {"HMAC-SHA256-128", FAMILY_SHA256, 16, 0, "SHA2-256"},
    {"HMAC-SHA3-224", FAMILY_HMAC, 28, 0, "SHA3-224"},
    {"HMAC-SHA3-256", FAMILY_HMAC, 32, 0, "SHA3-256"},
};

#define N_ALGORITHMS (sizeof algorithms / sizeof algorithms[0])

struct hasher {
    const struct algorithm *alg;
    enum kernel_level level; /* level of its kernel; KERNEL_SCALAR if there is only one */
    union {
        struct {
            struct blake2b_key key;
            blake2b_lanes_fn *lanes_fn; /* NULL: one message at a time */
            unsigned lanes;
        } b2b;
        struct {
            struct blake2s_key key;
            blake2s_lanes_fn *lanes_fn; /* NULL: one message at a time */
        } b2s;
        struct {
            const struct blake3_kernel *kernel;
            uint32_t key[8];
        } b3;
        struct hmac_sha256 sha256;
        struct hmac *hmac; /* also SHA-256 at KERNEL_SCALAR */
    } u;
};

const char *hash_name(unsigned i)
{
    return i < N_ALGORITHMS ? algorithms[i].name : NULL;
}

static void blake2b_init(struct hasher *h, const uint8_t *key, size_t key_len)
{
    blake2b_key_init(&h->u.b2b.key, key, key_len);
    static const struct {
        blake2b_lanes_fn *fn;
        unsigned lanes;
    } kernels[] = {
        [KERNEL_SCALAR] = {NULL, 1},
        [KERNEL_AVX2] = {blake2b_lanes_avx2, 4},
        [KERNEL_AVX512] = {blake2b_lanes_avx512, 8},
    };
    h->level = kernel_level("BLAKE2B", KERNEL_AVX512);
    h->u.b2b.lanes_fn = kernels[h->level].fn;
    h->u.b2b.lanes = kernels[h->level].lanes;
}

static void blake3_init(struct hasher *h, const uint8_t *key, size_t key_len)
{
    uint8_t bytes[BLAKE3_OUT];
    if (key_len < sizeof bytes)
        blake3_derive_key(BLAKE3_CONTEXT, key, key_len, bytes);
    else
        memcpy(bytes, key, sizeof bytes);
    for (unsigned i = 0; i < 8; i++)
        h->u.b3.key[i] = get_le32(bytes + 4 * i);
    explicit_bzero(bytes, sizeof bytes);
    static const struct blake3_kernel *const kernels[] = {
        [KERNEL_SCALAR] = &blake3_scalar,
        [KERNEL_AVX2] = &blake3_avx2,
        [KERNEL_AVX512] = &blake3_avx512,
    };
    h->level = kernel_level("BLAKE3", KERNEL_AVX512);
    h->u.b3.kernel = kernels[h->level];
}

static bool by_openssl(const struct hasher *h)
{
    return h->alg->family == FAMILY_HMAC || (h->alg->family == FAMILY_SHA256 && h->level == KERNEL_SCALAR);
}

int hasher_new(struct hasher **ret, const char *name, const uint8_t *key, size_t key_len, struct err *e)
{
    const struct algorithm *alg = NULL;
    for (size_t i = 0; i < N_ALGORITHMS && !alg; i++)
        if (!strcmp(name, algorithms[i].name))
            alg = &algorithms[i];
    if (!alg) {
        err_set(e, ERR_FORMAT, ENOTSUP, "unknown content hash \"%.64s\"", name);
        return err_hint(e, "use a newer snapferry, or restore a damaged format block from a copy");
    }
    if (alg->key_max > 0 && key_len > alg->key_max)
        return err_set(e, ERR_FORMAT, EINVAL,
                       "the hash secret of the repository has %zu bytes, but %s allows at most %zu", key_len, alg->name,
                       alg->key_max);
    /* Like stock Kopia, refuse BLAKE2s without a key for the short digest, as contents could be forged. */
    if (alg->family == FAMILY_BLAKE2S && alg->size < BLAKE2S_DIGEST_MAX && key_len == 0)
        return err_set(e, ERR_FORMAT, EINVAL, "the hash secret of the repository is empty, but %s requires one",
                       alg->name);

    struct hasher *h = calloc(1, sizeof *h);
    if (!h)
        return err_nomem(e);
    h->alg = alg;
    int rc = 0;
    if (alg->family == FAMILY_SHA256)
        h->level = kernel_level("SHA256", KERNEL_AVX2);
    switch (alg->family) {
    case FAMILY_BLAKE2B:
        blake2b_init(h, key, key_len);
        break;
    case FAMILY_BLAKE2S:
        blake2s_key_init(&h->u.b2s.key, alg->size, key, key_len);
        h->level = kernel_level("BLAKE2S", KERNEL_AVX2);
        h->u.b2s.lanes_fn = h->level == KERNEL_SCALAR ? NULL : blake2s_lanes_avx2;
        break;
    case FAMILY_BLAKE3:
        blake3_init(h, key, key_len);
        break;
    case FAMILY_SHA256:
    case FAMILY_HMAC:
        if (by_openssl(h))
            rc = hmac_new(&h->u.hmac, alg->md, key, key_len, e);
        else
            hmac_sha256_init(&h->u.sha256, alg->size == SHA224_DIGEST ? SHA224_DIGEST : SHA256_DIGEST, key, key_len);
        break;
    }
    if (rc < 0) {
        free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

void hasher_free(struct hasher *h)
{
    if (!h)
        return;
    if (by_openssl(h))
        hmac_free(h->u.hmac);
    explicit_bzero(h, sizeof *h);
    free(h);
}

size_t hasher_size(const struct hasher *h)
{
    return h->alg->size;
}

void hasher_digest(const struct hasher *h, const void *data, size_t len, uint8_t *out)
{
    uint8_t digest[HASH_MAX];
    switch (h->alg->family) {
    case FAMILY_BLAKE2B:
        blake2b_digest(&h->u.b2b.key, data, len, digest);
        break;
    case FAMILY_BLAKE2S:
        blake2s_digest(&h->u.b2s.key, data, len, digest);
        break;
    case FAMILY_BLAKE3:
        blake3_digest(h->u.b3.kernel, h->u.b3.key, BLAKE3_KEYED_HASH, data, len, digest);
        break;
    case FAMILY_SHA256:
    case FAMILY_HMAC:
        if (by_openssl(h))
            hmac_digest(h->u.hmac, data, len, digest, h->alg->size);
        else
            hmac_sha256_digest(&h->u.sha256, data, len, digest, h->alg->size);
        break;
    }
    memcpy(out, digest, h->alg->size);
}

void hasher_run(const struct hasher *h, const struct hash_feed *feed)
{
    if (h->alg->family == FAMILY_BLAKE2B && h->u.b2b.lanes_fn) {
        blake2b_run(&h->u.b2b.key, feed, h->alg->size, h->u.b2b.lanes_fn, h->u.b2b.lanes);
        return;
    }
    if (h->alg->family == FAMILY_BLAKE2S && h->u.b2s.lanes_fn) {
        blake2s_run(&h->u.b2s.key, feed, h->u.b2s.lanes_fn, BLAKE2S_LANES_MAX);
        return;
    }
    if (h->alg->family == FAMILY_SHA256 && !by_openssl(h)) {
        hmac_sha256_run(&h->u.sha256, feed, h->alg->size);
        return;
    }
    for (struct hash_job *job; (job = feed->next(feed->arg, 0));) {
        hasher_digest(h, job->data, job->len, job->out);
        feed->done(feed->arg, job);
    }
}

/* Waiting messages in the order of the batch: those before `next` are taken, and of the following 32 those in the mask.
 */
struct waiting {
    struct hash_job *jobs;
    size_t n, next;
    uint32_t taken;
};

/* Takes the longest of the next 32, so that lanes are not idle at the end of the batch because of one long message. */
static struct hash_job *take_longest(void *arg, unsigned active)
{
    (void)active;
    struct waiting *w = arg;
    struct hash_job *best = NULL;
    unsigned bit = 0;
    for (unsigned i = 0; i < 32 && i < w->n - w->next; i++) {
        struct hash_job *job = &w->jobs[w->next + i];
        if (!(w->taken >> i & 1) && (!best || job->len > best->len)) {
            best = job;
            bit = i;
        }
    }
    if (best)
        w->taken |= UINT32_C(1) << bit;
    for (; w->taken & 1; w->taken >>= 1)
        w->next++;
    return best;
}

static void ignore_end(void *arg, struct hash_job *job)
{
    (void)arg;
    (void)job;
}

void hasher_digest_many(const struct hasher *h, struct hash_job *jobs, size_t n)
{
    struct waiting waiting = {.jobs = jobs, .n = n};
    const struct hash_feed feed = {.next = take_longest, .done = ignore_end, .arg = &waiting};
    hasher_run(h, &feed);
}

unsigned hasher_lanes(const struct hasher *h)
{
    if (h->alg->family == FAMILY_SHA256 && !by_openssl(h))
        return SHA256_LANES;
    if (h->alg->family == FAMILY_BLAKE2S && h->u.b2s.lanes_fn)
        return BLAKE2S_LANES_MAX;
    return h->alg->family == FAMILY_BLAKE2B ? h->u.b2b.lanes : 1;
}

const char *hasher_kernel(const struct hasher *h)
{
    return by_openssl(h) ? "openssl" : kernel_level_name(h->level);
}
