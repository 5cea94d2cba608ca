/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-sign.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#define SHA 32

/* Hashes the canonical request as it is made: nothing of it is kept. */
static bool add(EVP_MD_CTX *c, const char *text)
{
    return EVP_DigestUpdate(c, text, strlen(text)) == 1;
}

static bool add_headers(EVP_MD_CTX *c, const struct s3_request *q)
{
    bool ok = true;
    for (size_t i = 0; i < q->n_headers; i++)
        ok = ok && add(c, q->headers[i].name) && add(c, ":") && add(c, q->headers[i].value) && add(c, "\n");
    return ok;
}

static bool canonical_hash(char hex[2 * SHA + 1], const struct s3_request *q, const char *names)
{
    uint8_t hash[SHA];
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    const bool ok = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1 && add(c, q->method) && add(c, "\n") &&
                    add(c, q->path) && add(c, "\n") && add(c, q->query) && add(c, "\n") && add_headers(c, q) &&
                    add(c, "\n") && add(c, names) && add(c, "\n") && add(c, q->payload_hash) &&
                    EVP_DigestFinal_ex(c, hash, NULL) == 1;
    EVP_MD_CTX_free(c);
    if (ok)
        hex_encode(hex, hash, SHA);
    return ok;
}

static bool hmac(uint8_t out[SHA], const void *key, size_t key_len, const char *text, size_t len)
{
    return HMAC(EVP_sha256(), key, (int)key_len, (const uint8_t *)text, len, out, NULL) != NULL;
}

/* The key is made for a day, a region and the service. */
static bool signature(char hex[2 * SHA + 1], const struct s3_request *q, const struct s3_keys *k, const char *text)
{
    char secret[sizeof k->secret + 4];
    uint8_t key[SHA];
    const int n = snprintf(secret, sizeof secret, "AWS4%s", k->secret);
    const bool ok = hmac(key, secret, (size_t)n, q->date, 8) && hmac(key, key, SHA, q->region, strlen(q->region)) &&
                    hmac(key, key, SHA, "s3", 2) && hmac(key, key, SHA, "aws4_request", 12) &&
                    hmac(key, key, SHA, text, strlen(text));
    if (ok)
        hex_encode(hex, key, SHA);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(key, sizeof key);
    return ok;
}

int s3_sign(char out[S3_AUTHORIZATION], const struct s3_request *q, const struct s3_keys *k, struct err *e)
{
    char names[512] = "", request[2 * SHA + 1], scope[128], text[384], made[2 * SHA + 1];
    size_t at = 0;
    for (size_t i = 0; i < q->n_headers && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ";" : "", q->headers[i].name);
    const int in_scope = snprintf(scope, sizeof scope, "%.8s/%s/s3/aws4_request", q->date, q->region);
    if (at >= sizeof names || in_scope < 0 || (size_t)in_scope >= sizeof scope)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "cannot sign a request to S3 in region %.64s", q->region);
    bool ok = canonical_hash(request, q, names);
    if (ok) {
        snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", q->date, scope, request);
        ok = signature(made, q, k, text);
    }
    if (!ok)
        return err_set(e, ERR_GENERIC, EIO, "cannot sign a request to S3: OpenSSL has no SHA-256");
    snprintf(out, S3_AUTHORIZATION, "AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s", k->access, scope,
             names, made);
    return 0;
}

char *s3_date(char out[S3_DATE], int64_t ns)
{
    char stamp[TIME_STAMP];
    snprintf(out, S3_DATE, "%sZ", time_stamp(ns, stamp));
    return out;
}

int s3_encode(char *out, size_t cap, const char *text, bool path)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t at = 0;
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           strchr("-._~", c) || (path && c == '/');
        if (cap - at < (plain ? 2 : 4))
            return -ENAMETOOLONG;
        if (!plain) {
            out[at++] = '%';
            out[at++] = hex[c >> 4];
            out[at++] = hex[c & 15];
        } else {
            out[at++] = (char)c;
        }
    }
    out[at] = '\0';
    return 0;
}
