/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/file-mac.h"

#include "base/cleanup.h"
#include "repo/aesgcm.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 16
#define MOST ((size_t)1 << 30) /* bytes of one call of the library, whose lengths are ints */

struct file_mac {
    struct aesgcm *own; /* NULL: the library's */
    EVP_CIPHER_CTX *library;
    bool failed;
    size_t n_part; /* bytes of an incomplete block */
    uint8_t part[BLOCK];
};

static int library_failed(struct err *e)
{
    return err_set(e, ERR_GENERIC, 0, "the cryptographic library failed to authenticate a file of the cache");
}

void file_mac_free(struct file_mac *m)
{
    if (!m)
        return;
    aesgcm_free(m->own);
    EVP_CIPHER_CTX_free(m->library);
    OPENSSL_cleanse(m, sizeof *m);
    free(m);
}

int file_mac_new(struct file_mac **ret, const uint8_t key[FILE_MAC_KEY], const char *name,
                 const uint8_t nonce[FILE_MAC_NONCE], struct err *e)
{
    uint8_t own[32];
    unsigned len;
    CLEANUP(file_mac_freep) struct file_mac *m = calloc(1, sizeof *m);
    if (!m)
        return err_nomem(e);
    if (aesgcm_usable() ? !(m->own = aesgcm_new()) : !(m->library = EVP_CIPHER_CTX_new()))
        return err_nomem(e);
    if (!HMAC(EVP_sha256(), key, FILE_MAC_KEY, (const uint8_t *)name, strlen(name), own, &len))
        return library_failed(e);
    if (m->own)
        aesgcm_begin(m->own, own, nonce, NULL, 0);
    else
        m->failed = EVP_EncryptInit_ex(m->library, EVP_aes_256_gcm(), NULL, own, nonce) != 1;
    OPENSSL_cleanse(own, sizeof own);
    if (m->failed)
        return library_failed(e);
    *ret = take_ptr(&m);
    return 0;
}

/* All but the last are whole blocks. */
static void add_blocks(struct file_mac *m, const uint8_t *data, size_t len)
{
    if (m->own) {
        aesgcm_aad(m->own, data, len);
        return;
    }
    for (size_t n; len > 0; data += n, len -= n) {
        int unused;
        n = len < MOST ? len : MOST;
        if (EVP_EncryptUpdate(m->library, NULL, &unused, data, (int)n) != 1)
            m->failed = true;
    }
}

void file_mac_add(struct file_mac *m, const void *data, size_t len)
{
    const uint8_t *p = data;
    if (m->n_part > 0) {
        const size_t n = len < BLOCK - m->n_part ? len : BLOCK - m->n_part;
        memcpy(m->part + m->n_part, p, n);
        m->n_part += n;
        p += n;
        len -= n;
        if (m->n_part < BLOCK)
            return;
        add_blocks(m, m->part, BLOCK);
        m->n_part = 0;
    }
    m->n_part = len % BLOCK;
    add_blocks(m, p, len - m->n_part);
    if (m->n_part > 0)
        memcpy(m->part, p + len - m->n_part, m->n_part);
}

int file_mac_end(struct file_mac *m, uint8_t tag[FILE_MAC_TAG], struct err *e)
{
    int unused;
    uint8_t none[BLOCK];
    add_blocks(m, m->part, m->n_part);
    if (m->own) {
        aesgcm_end(m->own, tag);
        return 0;
    }
    if (m->failed || EVP_EncryptFinal_ex(m->library, none, &unused) != 1 ||
        EVP_CIPHER_CTX_ctrl(m->library, EVP_CTRL_AEAD_GET_TAG, FILE_MAC_TAG, tag) != 1)
        return library_failed(e);
    return 0;
}
