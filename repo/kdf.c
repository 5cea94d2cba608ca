/* SPDX-License-Identifier: GPL-2.0-or-later */
/* kdf.c - keys from the password and from other keys, and the format layer's own encryption. */
#include "repo/format-parse.h"
#include "repo/scrypt.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <string.h>

#define SALT_MIN 16

static int crypto_failed(struct err *e, const char *what)
{
    return err_set(e, ERR_GENERIC, 0, "%s failed in the cryptographic library", what);
}

int hkdf_sha256(const uint8_t *ikm, size_t ikm_len, const uint8_t *salt, size_t salt_len, const char *info,
                uint8_t *out, size_t out_len, struct err *e)
{
    uint8_t prk[32], block[32 + 256 + 1];
    size_t info_len = strlen(info);
    if (ikm_len > INT_MAX || salt_len > INT_MAX || info_len > 256 || out_len > 255 * sizeof prk)
        return err_set(e, ERR_GENERIC, EINVAL, "invalid lengths in key derivation");
    unsigned len;
    if (!HMAC(EVP_sha256(), salt, (int)salt_len, ikm, ikm_len, prk, &len))
        return crypto_failed(e, "key derivation");
    size_t before = 0; /* length of the previous block: T(0) is empty */
    uint8_t counter = 1;
    int rc = 0;
    while (out_len > 0) {
        memcpy(block + before, info, info_len);
        block[before + info_len] = counter++;
        uint8_t t[32];
        if (!HMAC(EVP_sha256(), prk, sizeof prk, block, before + info_len + 1, t, &len)) {
            rc = crypto_failed(e, "key derivation");
            break;
        }
        memcpy(block, t, sizeof t);
        before = sizeof t;
        size_t n = out_len < sizeof t ? out_len : sizeof t;
        memcpy(out, t, n);
        out += n;
        out_len -= n;
        OPENSSL_cleanse(t, sizeof t);
    }
    OPENSSL_cleanse(prk, sizeof prk);
    OPENSSL_cleanse(block, sizeof block);
    return rc;
}

static int scrypt_65536_8_1(const char *password, const uint8_t *salt, size_t salt_len, uint8_t key[32], struct err *e)
{
    return scrypt_r8_p1(password, salt, salt_len, 65536, key, 32, e);
}

static int pbkdf2_600000(const char *password, const uint8_t *salt, size_t salt_len, uint8_t key[32], struct err *e)
{
    int len = (int)strlen(password);
    if (PKCS5_PBKDF2_HMAC(password, len, salt, (int)salt_len, 600000, EVP_sha256(), 32, key) != 1)
        return crypto_failed(e, "key derivation");
    return 0;
}

static const struct {
    const char *name;
    int (*derive)(const char *password, const uint8_t *salt, size_t salt_len, uint8_t key[32], struct err *e);
} derivations[] = {
    {"scrypt-65536-8-1", scrypt_65536_8_1},
    {"pbkdf2-sha256-600000", pbkdf2_600000},
};

const char *key_algo_name(unsigned i)
{
    return i < sizeof derivations / sizeof derivations[0] ? derivations[i].name : NULL;
}

int format_derive_key(const char *algo, const char *password, const uint8_t *salt, size_t salt_len, uint8_t key[32],
                      struct err *e)
{
    unsigned i = 0;
    while (key_algo_name(i) && strcmp(key_algo_name(i), algo) != 0)
        i++;
    if (!key_algo_name(i))
        return err_set(e, ERR_FORMAT, ENOTSUP,
                       "unsupported key derivation \"%.64s\" (supported: scrypt-65536-8-1, pbkdf2-sha256-600000)",
                       algo);
    if (salt_len < SALT_MIN || salt_len > INT_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "the repository's unique id has %zu bytes, at least %d expected",
                       salt_len, SALT_MIN);
    if (strlen(password) > INT_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "password too long (%zu bytes)", strlen(password));
    return derivations[i].derive(password, salt, salt_len, key, e);
}

static int layer_keys(const uint8_t key[32], const uint8_t *id, size_t id_len, uint8_t aes[32], uint8_t aad[32],
                      struct err *e)
{
    int rc = hkdf_sha256(key, 32, id, id_len, "AES", aes, 32, e);
    return rc < 0 ? rc : hkdf_sha256(key, 32, id, id_len, "CHECKSUM", aad, 32, e);
}

int document_seal(const uint8_t aes[32], const void *aad, size_t aad_len, const void *in, size_t len, uint8_t *out,
                  struct err *e)
{
    if (len > INT_MAX)
        return err_set(e, ERR_GENERIC, EINVAL, "document too long (%zu bytes)", len);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n;
    bool ok = ctx && RAND_bytes(out, 12) == 1 && EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, aes, out) == 1 &&
              EVP_EncryptUpdate(ctx, NULL, &n, aad, (int)aad_len) == 1 &&
              EVP_EncryptUpdate(ctx, out + 12, &n, in, (int)len) == 1 &&
              EVP_EncryptFinal_ex(ctx, out + 12 + len, &n) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, out + 12 + len) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok ? 0 : crypto_failed(e, "encryption");
}

int64_t document_open(const uint8_t aes[32], const void *aad, size_t aad_len, const void *in, size_t len, uint8_t *out,
                      struct err *e)
{
    uint8_t tag[16];
    const uint8_t *p = in;
    if (len < FORMAT_LAYER_OVERHEAD || len > INT_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "sealed document too short (%zu bytes)", len);
    size_t n_plain = len - FORMAT_LAYER_OVERHEAD;
    memcpy(tag, p + 12 + n_plain, sizeof tag);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n;
    bool ready = ctx && EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, aes, p) == 1 &&
                 EVP_DecryptUpdate(ctx, NULL, &n, aad, (int)aad_len) == 1 &&
                 EVP_DecryptUpdate(ctx, out, &n, p + 12, (int)n_plain) == 1 &&
                 EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) == 1;
    bool genuine = ready && EVP_DecryptFinal_ex(ctx, out + n_plain, &n) == 1;
    EVP_CIPHER_CTX_free(ctx);
    if (genuine)
        return (int64_t)n_plain;
    OPENSSL_cleanse(out, n_plain);
    if (!ready)
        return crypto_failed(e, "decryption");
    return err_set(e, ERR_PASSWORD, EBADMSG, "a sealed document cannot be opened with this password");
}

int format_layer_seal(const uint8_t key[32], const uint8_t *id, size_t id_len, const void *in, size_t len, uint8_t *out,
                      struct err *e)
{
    uint8_t aes[32], aad[32];
    int rc = layer_keys(key, id, id_len, aes, aad, e);
    if (rc == 0)
        rc = document_seal(aes, aad, sizeof aad, in, len, out, e);
    OPENSSL_cleanse(aes, sizeof aes);
    OPENSSL_cleanse(aad, sizeof aad);
    return rc;
}

int64_t format_layer_open(const uint8_t key[32], const uint8_t *id, size_t id_len, const void *in, size_t len,
                          uint8_t *out, struct err *e)
{
    uint8_t aes[32], aad[32];
    int64_t rc = layer_keys(key, id, id_len, aes, aad, e);
    if (rc == 0)
        rc = document_open(aes, aad, sizeof aad, in, len, out, e);
    OPENSSL_cleanse(aes, sizeof aes);
    OPENSSL_cleanse(aad, sizeof aad);
    return rc;
}

int format_cache_key(const struct repo_format *f, uint8_t key[32], struct err *e)
{
    return hkdf_sha256(f->master_key, f->master_key_len, f->unique_id, f->unique_id_len, "snapferry index cache", key,
                       32, e);
}

/* Unlike for all other keys the purpose is passed as the salt. */
int format_content_key(const struct repo_format *f, uint8_t key[32], struct err *e)
{
    static const char purpose[] = "encryption";
    return hkdf_sha256(f->master_key, f->master_key_len, (const uint8_t *)purpose, sizeof purpose - 1, "", key, 32, e);
}
