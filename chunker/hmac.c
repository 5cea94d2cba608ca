/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmac.c - HMAC over OpenSSL digests, without allocations per message
 *
 * OpenSSL allocates when a MAC or digest context is created or copied, but not when a digest context is reused with the
 * same digest. A hasher therefore has a set of digest contexts, one for each CPU, and a message borrows one. The inner
 * and outer key blocks are hashed again for each message, which costs two blocks compared to thousands of a content.
 */
#include "chunker/hmac.h"

#include <openssl/evp.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_MAX 144 /* SHA3-224 */
#define SLOTS_MAX 256

struct hmac {
    EVP_MD *md;
    size_t block, size;
    uint8_t inner[BLOCK_MAX], outer[BLOCK_MAX];
    pthread_mutex_t lock;
    pthread_cond_t returned;
    unsigned free_slots;
    EVP_MD_CTX *slot[SLOTS_MAX]; /* the first free_slots are free */
};

/* A failure of a digest in progress can only be caused by corrupted memory. It would produce a wrong content id and
 * cannot be reported, so the process is aborted. */
static void openssl_must(int ok)
{
    if (ok != 1)
        abort();
}

void hmac_free(struct hmac *h)
{
    if (!h)
        return;
    for (unsigned i = 0; i < h->free_slots; i++)
        EVP_MD_CTX_free(h->slot[i]);
    EVP_MD_free(h->md);
    pthread_cond_destroy(&h->returned);
    pthread_mutex_destroy(&h->lock);
    explicit_bzero(h, sizeof *h);
    free(h);
}

static int make_slots(struct hmac *h, struct err *e)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = cpus < 4 ? 4 : cpus > SLOTS_MAX ? SLOTS_MAX : (unsigned)cpus;
    while (h->free_slots < n) {
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        if (!ctx)
            return err_nomem(e);
        h->slot[h->free_slots++] = ctx;
        if (EVP_DigestInit_ex(ctx, h->md, NULL) != 1)
            return err_nomem(e);
    }
    return 0;
}

int hmac_new(struct hmac **ret, const char *md, const uint8_t *key, size_t key_len, struct err *e)
{
    struct hmac *h = calloc(1, sizeof *h);
    if (!h)
        return err_nomem(e);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->returned, NULL);
    h->md = EVP_MD_fetch(NULL, md, NULL);
    if (!h->md) {
        hmac_free(h);
        err_set(e, ERR_FORMAT, ENOTSUP, "OpenSSL on this system does not support the digest %s", md);
        return err_hint(e, "check the providers in openssl.cnf");
    }
    h->block = (size_t)EVP_MD_get_block_size(h->md);
    h->size = (size_t)EVP_MD_get_size(h->md);
    int rc = h->block <= BLOCK_MAX ? make_slots(h, e)
                                   : err_set(e, ERR_FORMAT, ENOTSUP, "the block size of digest %s is too large", md);
    if (rc < 0) {
        hmac_free(h);
        return rc;
    }

    uint8_t block[BLOCK_MAX] = {0};
    if (key_len > h->block) {
        if (EVP_Digest(key, key_len, block, NULL, h->md, NULL) != 1) {
            hmac_free(h);
            return err_nomem(e);
        }
    } else if (key_len > 0) {
        memcpy(block, key, key_len);
    }
    for (size_t i = 0; i < h->block; i++) {
        h->inner[i] = block[i] ^ 0x36;
        h->outer[i] = block[i] ^ 0x5c;
    }
    explicit_bzero(block, sizeof block);
    *ret = h;
    return 0;
}

void hmac_digest(struct hmac *h, const void *data, size_t len, uint8_t *out, size_t out_len)
{
    pthread_mutex_lock(&h->lock);
    while (h->free_slots == 0)
        pthread_cond_wait(&h->returned, &h->lock);
    EVP_MD_CTX *ctx = h->slot[--h->free_slots];
    pthread_mutex_unlock(&h->lock);

    uint8_t digest[EVP_MAX_MD_SIZE];
    openssl_must(EVP_DigestInit_ex(ctx, h->md, NULL));
    openssl_must(EVP_DigestUpdate(ctx, h->inner, h->block));
    openssl_must(EVP_DigestUpdate(ctx, data, len));
    openssl_must(EVP_DigestFinal_ex(ctx, digest, NULL));
    openssl_must(EVP_DigestInit_ex(ctx, h->md, NULL));
    openssl_must(EVP_DigestUpdate(ctx, h->outer, h->block));
    openssl_must(EVP_DigestUpdate(ctx, digest, h->size));
    openssl_must(EVP_DigestFinal_ex(ctx, digest, NULL));
    memcpy(out, digest, out_len);

    pthread_mutex_lock(&h->lock);
    h->slot[h->free_slots++] = ctx;
    pthread_cond_signal(&h->returned);
    pthread_mutex_unlock(&h->lock);
}
