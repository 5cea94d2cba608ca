/* SPDX-License-Identifier: GPL-2.0-or-later */
/* hmac.h - HMAC (RFC 2104) over OpenSSL's SHA-2 and SHA-3 (internal to the chunker) */
#ifndef SNAPFERRY_CHUNKER_HMAC_H
#define SNAPFERRY_CHUNKER_HMAC_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct hmac;

/* `md` is OpenSSL's name ("SHA2-256"). Keys may have any length. ERR_MEMORY, ERR_FORMAT (OpenSSL lacks the digest). */
int hmac_new(struct hmac **ret, const char *md, const uint8_t *key, size_t key_len, struct err *e);
void hmac_free(struct hmac *h); /* wipes the key; NULL allowed */

/* Writes the first out_len bytes of the code to `out`. Thread-safe. */
void hmac_digest(struct hmac *h, const void *data, size_t len, uint8_t *out, size_t out_len);

#endif
