/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * item.c - sealing and opening of contents, local indexes and named blobs
 *
 * Each item has a key of its own: HMAC-SHA256(K0, iv). Cipher contexts are kept on a list and reused, so there are as
 * many as concurrent threads, and nothing is fetched or allocated per item.
 */
#include "repo/item.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "repo/aesgcm.h"
#include "repo/ecc.h"

#include <errno.h>
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NONCE_LEN ITEM_HEAD
#define TAG_LEN ITEM_TAIL
#define NONCE_BATCH 64 /* random bytes are drawn for so many items at once */
#define NAME_IV_LEN 16

/* State of one thread while it processes an item; a stream is one that is held by a caller. */
struct item_stream {
    struct item_stream *next;
    const struct sealer *sealer;
    EVP_CIPHER_CTX *cipher;
    struct aesgcm *gcm; /* used instead on CPUs with the instructions; NULL: not */
    bool seals;
    EVP_MAC_CTX *mac; /* has K0 */
    bool failed;
    size_t total; /* bytes of all steps */
    pid_t pid;    /* owner of the nonces: a forked child must not use its parent's */
    unsigned nonces_left;
    uint8_t nonces[NONCE_BATCH][NONCE_LEN];
};

struct sealer {
    struct hasher *hasher;
    struct ecc *ecc; /* NULL: none */
    EVP_CIPHER *cipher;
    bool own_gcm; /* streams have a struct aesgcm */
    EVP_MAC *hmac;
    uint8_t k0[32], cache_key[32];
    pthread_mutex_t lock;
    struct item_stream *idle; /* under lock */
};

static int crypto_failed(struct err *e, const char *what)
{
    return err_set(e, ERR_GENERIC, 0, "%s failed in the cryptographic library", what);
}

/* ---- streams ---- */

static void stream_free(struct item_stream *g)
{
    if (!g)
        return;
    EVP_CIPHER_CTX_free(g->cipher);
    aesgcm_free(g->gcm);
    EVP_MAC_CTX_free(g->mac);
    OPENSSL_cleanse(g, sizeof *g);
    free(g);
}

static int stream_new(struct item_stream **ret, const struct sealer *s, struct err *e)
{
    struct item_stream *g = calloc(1, sizeof *g);
    if (!g)
        return err_nomem(e);
    g->sealer = s;
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    g->cipher = EVP_CIPHER_CTX_new();
    g->mac = EVP_MAC_CTX_new(s->hmac);
    if (s->own_gcm && !(g->gcm = aesgcm_new())) {
        stream_free(g);
        return err_nomem(e);
    }
    if (!g->cipher || !g->mac || EVP_MAC_init(g->mac, s->k0, sizeof s->k0, params) != 1) {
        stream_free(g);
        return crypto_failed(e, "the start of encryption");
    }
    *ret = g;
    return 0;
}

static int stream_take(struct item_stream **ret, const struct sealer *cs, struct err *e)
{
    struct sealer *s = (struct sealer *)(uintptr_t)cs; /* the list is not visible to the caller */
    pthread_mutex_lock(&s->lock);
    struct item_stream *g = s->idle;
    if (g)
        s->idle = g->next;
    pthread_mutex_unlock(&s->lock);
    if (!g)
        return stream_new(ret, s, e);
    *ret = g;
    return 0;
}

static void stream_return(struct item_stream *g)
{
    struct sealer *s = (struct sealer *)(uintptr_t)g->sealer;
    pthread_mutex_lock(&s->lock);
    g->next = s->idle;
    s->idle = g;
    pthread_mutex_unlock(&s->lock);
}

static bool item_key(struct item_stream *g, const uint8_t *iv, size_t iv_len, uint8_t key[32])
{
    size_t n;
    return EVP_MAC_init(g->mac, NULL, 0, NULL) == 1 && EVP_MAC_update(g->mac, iv, iv_len) == 1 &&
           EVP_MAC_final(g->mac, key, &n, 32) == 1 && n == 32;
}

static bool next_nonce(struct item_stream *g, uint8_t nonce[NONCE_LEN])
{
    pid_t pid = getpid();
    if (g->nonces_left == 0 || g->pid != pid) {
        if (RAND_bytes(&g->nonces[0][0], sizeof g->nonces) != 1)
            return false;
        g->nonces_left = NONCE_BATCH;
        g->pid = pid;
    }
    memcpy(nonce, g->nonces[--g->nonces_left], NONCE_LEN);
    return true;
}

/* ---- the sealer ---- */

void sealer_free(struct sealer *s)
{
    if (!s)
        return;
    for (struct item_stream *g = s->idle, *next; g; g = next) {
        next = g->next;
        stream_free(g);
    }
    hasher_free(s->hasher);
    ecc_free(s->ecc);
    EVP_CIPHER_free(s->cipher);
    EVP_MAC_free(s->hmac);
    pthread_mutex_destroy(&s->lock);
    OPENSSL_cleanse(s, sizeof *s);
    free(s);
}

static void sealer_freep(struct sealer **s)
{
    sealer_free(*s);
}

#define AES "AES-256-GCM"

static const char *cipher_of(const char *encryption)
{
    static const char *const ciphers[] = {AES, "ChaCha20-Poly1305"};
    for (unsigned i = 0; encryption_name(i); i++)
        if (strcmp(encryption_name(i), encryption) == 0)
            return ciphers[i];
    return NULL;
}

int sealer_new(struct sealer **ret, const struct repo_format *f, struct err *e)
{
    const char *cipher = cipher_of(f->encryption);
    if (!cipher)
        return err_set(e, ERR_FORMAT, ENOTSUP, "unknown encryption \"%s\"", f->encryption);
    struct sealer *new = calloc(1, sizeof *new);
    if (!new)
        return err_nomem(e);
    pthread_mutex_init(&new->lock, NULL);
    CLEANUP(sealer_freep) struct sealer *s = new;
    int rc = hasher_new(&s->hasher, f->hash, f->secret, f->secret_len, e);
    if (rc == 0 && f->ecc_percent)
        rc = ecc_new(&s->ecc, f->ecc_percent, e);
    if (rc == 0)
        rc = format_content_key(f, s->k0, e);
    if (rc == 0)
        rc = format_cache_key(f, s->cache_key, e);
    if (rc < 0)
        return rc;
    s->own_gcm = !strcmp(cipher, AES) && aesgcm_usable();
    s->cipher = EVP_CIPHER_fetch(NULL, cipher, NULL);
    s->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    if (!s->cipher || !s->hmac)
        return err_set(e, ERR_GENERIC, 0, "the cryptographic library of this system does not support %s with HMAC",
                       cipher);
    *ret = take_ptr(&s);
    return 0;
}

const struct hasher *sealer_hasher(const struct sealer *s)
{
    return s->hasher;
}

const uint8_t *sealer_cache_key(const struct sealer *s)
{
    return s->cache_key;
}

size_t item_sealed_len(const struct sealer *s, size_t len)
{
    return s->ecc ? ecc_encoded_len(s->ecc, len + ITEM_OVERHEAD) : len + ITEM_OVERHEAD;
}

size_t item_opened_max(const struct sealer *s, size_t stored)
{
    size_t n = s->ecc ? ecc_decoded_max(s->ecc, stored) : stored;
    return n > ITEM_OVERHEAD ? n - ITEM_OVERHEAD : 0;
}

size_t item_scratch_len(const struct sealer *s, size_t len)
{
    return s->ecc ? len + ITEM_OVERHEAD : 0;
}

/* ---- encryption ---- */

static bool crypt_begin(struct item_stream *g, bool seals, const uint8_t *iv, size_t iv_len,
                        const uint8_t nonce[NONCE_LEN])
{
    uint8_t key[32];
    int n;
    g->failed = !item_key(g, iv, iv_len, key);
    g->seals = seals;
    if (g->gcm && !g->failed)
        aesgcm_begin(g->gcm, key, nonce, iv, iv_len);
    else if (!g->failed)
        g->failed = EVP_CipherInit_ex2(g->cipher, g->sealer->cipher, key, nonce, seals, NULL) != 1 ||
                    EVP_CipherUpdate(g->cipher, NULL, &n, iv, (int)iv_len) != 1;
    OPENSSL_cleanse(key, sizeof key);
    return !g->failed;
}

/* Both ciphers are streams: as many bytes come out as go in, whatever the lengths. */
static bool crypt_step(struct item_stream *g, const void *in, size_t len, void *out)
{
    int n;
    if (g->gcm && !g->failed)
        (g->seals ? aesgcm_seal : aesgcm_open)(g->gcm, in, len, out);
    else if (!g->failed && len > 0)
        g->failed = EVP_CipherUpdate(g->cipher, out, &n, in, (int)len) != 1 || (size_t)n != len;
    return !g->failed;
}

static bool end_seal(struct item_stream *g, uint8_t tag[TAG_LEN])
{
    uint8_t none[16];
    int n;
    if (g->gcm && !g->failed)
        aesgcm_end(g->gcm, tag);
    else if (!g->failed)
        g->failed = EVP_EncryptFinal_ex(g->cipher, none, &n) != 1 || n != 0 ||
                    EVP_CIPHER_CTX_ctrl(g->cipher, EVP_CTRL_AEAD_GET_TAG, TAG_LEN, tag) != 1;
    return !g->failed;
}

/* 1: genuine; 0: not what was sealed; -1: the library failed. */
static int end_open(struct item_stream *g, const uint8_t tag[TAG_LEN])
{
    uint8_t none[16], copy[TAG_LEN];
    int n;
    if (g->gcm && !g->failed) {
        aesgcm_end(g->gcm, copy);
        return CRYPTO_memcmp(copy, tag, sizeof copy) == 0 ? 1 : 0;
    }
    memcpy(copy, tag, sizeof copy);
    if (g->failed || EVP_CIPHER_CTX_ctrl(g->cipher, EVP_CTRL_AEAD_SET_TAG, sizeof copy, copy) != 1)
        return -1;
    return EVP_DecryptFinal_ex(g->cipher, none, &n) == 1 ? 1 : 0;
}

static int lengths_check(size_t len, size_t iv_len, struct err *e)
{
    if (len > INT_MAX - 1024 || iv_len == 0 || iv_len > 1024)
        return err_set(e, ERR_GENERIC, EINVAL, "item of %zu bytes is too long to be sealed", len);
    return 0;
}

int item_seal(const struct sealer *s, const uint8_t *iv, size_t iv_len, const void *in, size_t len, void *out,
              void *scratch, struct err *e)
{
    int rc = lengths_check(len, iv_len, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE void *own = NULL;
    if (s->ecc && !scratch) {
        own = scratch = malloc(item_scratch_len(s, len));
        if (!own)
            return err_nomem(e);
    }
    struct item_stream *g;
    rc = stream_take(&g, s, e);
    if (rc < 0)
        return rc;
    uint8_t *to = s->ecc ? scratch : out;
    bool ok = next_nonce(g, to) && crypt_begin(g, true, iv, iv_len, to) && crypt_step(g, in, len, to + NONCE_LEN) &&
              end_seal(g, to + NONCE_LEN + len);
    stream_return(g);
    if (!ok)
        return crypto_failed(e, "encryption");
    return s->ecc ? ecc_encode(s->ecc, scratch, len + ITEM_OVERHEAD, out, e) : 0;
}

static bool buffers_overlap(const uint8_t *a, const uint8_t *b, size_t len)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + len && y < x + len;
}

static int item_damaged(struct err *e, size_t stored)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "stored item is damaged: authentication of its %zu bytes failed", stored);
}

/* Decrypts nonce, ciphertext and tag into out; returns the length. */
static int64_t open_plain(const struct sealer *s, const uint8_t *iv, size_t iv_len, const uint8_t *in, size_t stored,
                          uint8_t *out, struct err *e)
{
    if (stored < ITEM_OVERHEAD)
        return err_set(e, ERR_DAMAGE, EBADMSG, "stored item is damaged: %zu bytes are too few", stored);
    size_t len = stored - ITEM_OVERHEAD;
    int rc = lengths_check(len, iv_len, e);
    if (rc < 0)
        return rc;
    struct item_stream *g;
    rc = stream_take(&g, s, e);
    if (rc < 0)
        return rc;
    /* Ciphers work in place, but not with buffers 12 bytes apart. */
    uint8_t *to = buffers_overlap(in, out, stored) ? (uint8_t *)(uintptr_t)in + NONCE_LEN : out;
    int done = -1;
    if (crypt_begin(g, false, iv, iv_len, in)) {
        uint8_t tag[TAG_LEN];
        memcpy(tag, in + NONCE_LEN + len, sizeof tag); /* `to` may overlap it */
        if (crypt_step(g, in + NONCE_LEN, len, to))
            done = end_open(g, tag);
    }
    stream_return(g);
    if (done == 1) {
        if (to != out)
            memmove(out, to, len);
        return (int64_t)len;
    }
    OPENSSL_cleanse(to, len);
    if (done < 0)
        return crypto_failed(e, "decryption");
    return item_damaged(e, stored);
}

int64_t item_open(const struct sealer *s, const uint8_t *iv, size_t iv_len, const void *in, size_t stored, void *out,
                  void *scratch, bool *repaired, struct err *e)
{
    if (repaired)
        *repaired = false;
    if (!s->ecc)
        return open_plain(s, iv, iv_len, in, stored, out, e);
    size_t cap = item_scratch_len(s, item_opened_max(s, stored));
    CLEANUP_FREE void *own = NULL;
    if (!scratch) {
        own = scratch = malloc(cap);
        if (!own)
            return err_nomem(e);
    }
    int64_t len = ecc_decode(s->ecc, in, stored, scratch, cap, repaired, e);
    return len < 0 ? len : open_plain(s, iv, iv_len, scratch, (size_t)len, out, e);
}

/* ---- in pieces ---- */

bool item_in_pieces(const struct sealer *s)
{
    return !s->ecc;
}

static int begin_stream(const struct sealer *s, size_t iv_len, struct item_stream **ret, struct err *e)
{
    if (s->ecc)
        return err_set(e, ERR_GENERIC, ENOTSUP, "items with error correction are sealed and opened as a whole");
    int rc = lengths_check(0, iv_len, e);
    if (rc == 0)
        rc = stream_take(ret, s, e);
    if (rc == 0)
        (*ret)->total = 0;
    return rc;
}

static int step_stream(struct item_stream *st, const void *in, size_t len, void *out, struct err *e)
{
    size_t total = len > SIZE_MAX - st->total ? SIZE_MAX : st->total + len;
    int rc = lengths_check(total, 1, e);
    if (rc < 0) {
        st->failed = true;
        return rc;
    }
    st->total = total;
    return crypt_step(st, in, len, out) ? 0 : crypto_failed(e, "a step of encryption or decryption");
}

int item_seal_begin(const struct sealer *s, const uint8_t *iv, size_t iv_len, void *head, struct item_stream **ret,
                    struct err *e)
{
    struct item_stream *st;
    int rc = begin_stream(s, iv_len, &st, e);
    if (rc < 0)
        return rc;
    if (!next_nonce(st, head) || !crypt_begin(st, true, iv, iv_len, head)) {
        stream_return(st);
        return crypto_failed(e, "encryption");
    }
    *ret = st;
    return 0;
}

int item_seal_step(struct item_stream *st, const void *in, size_t len, void *out, struct err *e)
{
    return step_stream(st, in, len, out, e);
}

int item_seal_end(struct item_stream *st, void *tail, struct err *e)
{
    bool ok = end_seal(st, tail);
    stream_return(st);
    return ok ? 0 : crypto_failed(e, "encryption");
}

int item_open_begin(const struct sealer *s, const uint8_t *iv, size_t iv_len, const void *head,
                    struct item_stream **ret, struct err *e)
{
    struct item_stream *st;
    int rc = begin_stream(s, iv_len, &st, e);
    if (rc < 0)
        return rc;
    if (!crypt_begin(st, false, iv, iv_len, head)) {
        stream_return(st);
        return crypto_failed(e, "decryption");
    }
    *ret = st;
    return 0;
}

int item_open_step(struct item_stream *st, const void *in, size_t len, void *out, struct err *e)
{
    return step_stream(st, in, len, out, e);
}

int item_open_end(struct item_stream *st, const void *tail, struct err *e)
{
    size_t stored = st->total + ITEM_OVERHEAD;
    int done = end_open(st, tail);
    stream_return(st);
    if (done == 1)
        return 0;
    return done < 0 ? crypto_failed(e, "decryption") : item_damaged(e, stored);
}

void item_stream_free(struct item_stream *st)
{
    if (st)
        stream_return(st);
}

/* ---- named blobs ---- */

/* The iv of a named blob: the 32 hex digits before the first dash, or at the end. */
static int name_iv(const char *name, uint8_t iv[NAME_IV_LEN])
{
    const char *dash = strchr(name, '-');
    size_t len = dash ? (size_t)(dash - name) : strlen(name);
    if (len < 2 * NAME_IV_LEN)
        return -EINVAL;
    return hex_decode(iv, name + len - 2 * NAME_IV_LEN, 2 * NAME_IV_LEN) < 0 ? -EINVAL : 0;
}

int named_seal(const struct sealer *s, const char *prefix, const char *suffix, const void *in, size_t len, char *name,
               uint8_t **sealed, size_t *sealed_len, struct err *e)
{
    uint8_t hash[HASH_MAX], iv[NAME_IV_LEN];
    char hex[2 * HASH_MAX + 1];
    bool has_suffix = suffix && suffix[0];
    hasher_digest(s->hasher, in, len, hash);
    hex_encode(hex, hash, hasher_size(s->hasher));
    int n = snprintf(name, BLOB_NAME_MAX + 1, "%s%s%s%s", prefix, hex, has_suffix ? "-" : "", has_suffix ? suffix : "");
    if (n < 0 || n > BLOB_NAME_MAX || name_iv(name, iv) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "\"%.100s\" and \"%.100s\" do not form a valid blob name", prefix,
                       suffix ? suffix : "");
    int rc = lengths_check(len, sizeof iv, e);
    if (rc < 0)
        return rc;
    size_t stored = item_sealed_len(s, len);
    CLEANUP_FREE uint8_t *out = malloc(stored);
    if (!out)
        return err_nomem(e);
    rc = item_seal(s, iv, sizeof iv, in, len, out, NULL, e);
    if (rc < 0)
        return rc;
    *sealed = take_ptr(&out);
    *sealed_len = stored;
    return 0;
}

int named_open(const struct sealer *s, const char *name, const void *in, size_t stored, uint8_t **ret, size_t *len,
               struct err *e)
{
    uint8_t iv[NAME_IV_LEN];
    if (name_iv(name, iv) < 0)
        return err_set(e, ERR_DAMAGE, EBADMSG, "no hash in blob name %.255s", name);
    CLEANUP_FREE uint8_t *out = malloc(item_opened_max(s, stored) + 1);
    if (!out)
        return err_nomem(e);
    int64_t n = item_open(s, iv, sizeof iv, in, stored, out, NULL, NULL, e);
    if (n < 0) {
        err_wrap(e, "blob %.255s", name);
        return (int)n;
    }
    *ret = take_ptr(&out);
    *len = (size_t)n;
    return 0;
}
