/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * format-parse.h - the documents inside kopia.repository and kopia.blobcfg, without keys and storage (internal to the
 * format files, their tests and fuzz targets; Kopia repository format, sections 3.1, 3.3, 3.4, 3.6)
 *
 * Input is untrusted. All functions are pure and thread-safe.
 */
#ifndef SNAPFERRY_REPO_FORMAT_PARSE_H
#define SNAPFERRY_REPO_FORMAT_PARSE_H

#include "repo/format.h"

#include <jansson.h>

/* The outer document: readable by anyone. */
struct format_outer {
    json_t *doc; /* all of it, with unknown members */
    uint8_t unique_id[FORMAT_ID_MAX];
    size_t unique_id_len;
    char key_algo[32];
    uint8_t *sealed; /* the inner document, sealed */
    size_t sealed_len;
};

/* ERR_DAMAGE: malformed document; ERR_FORMAT: unsupported key derivation or encryption. */
int format_parse_outer(struct format_outer *ret, const void *data, size_t len, struct err *e);
void format_outer_clear(struct format_outer *o);

/* The inner document (opened). Fills in everything that comes from it. ERR_DAMAGE, ERR_FORMAT. */
int format_parse_inner(struct repo_format *f, const void *data, size_t len, struct err *e);

/* The document of kopia.blobcfg (opened). */
int format_parse_blobcfg(struct repo_format *f, const void *data, size_t len, struct err *e);

/* Standard base64 with padding; CR and LF are skipped. *ret is malloc()ed (never NULL). -EINVAL, -ENOMEM; no
 * message. */
int base64_decode(uint8_t **ret, size_t *len, const char *text, size_t text_len);

/*
 * The format layer's AES-256-GCM: key and additional data are derived from `key` (the format key) by HKDF with the
 * unique id. seal: out has room for len + 28. open: out has room for len; returns the length, -EBADMSG (class
 * ERR_PASSWORD) if the key is wrong or the bytes were changed.
 */
#define FORMAT_LAYER_OVERHEAD 28
int format_layer_seal(const uint8_t key[32], const uint8_t *id, size_t id_len, const void *in, size_t len, uint8_t *out,
                      struct err *e);
int64_t format_layer_open(const uint8_t key[32], const uint8_t *id, size_t id_len, const void *in, size_t len,
                          uint8_t *out, struct err *e);

/*
 * A document under AES-256-GCM: nonce, ciphertext, tag; out gets len + FORMAT_LAYER_OVERHEAD bytes, or for open that
 * many less (returned). ERR_PASSWORD (-EBADMSG): changed, or of another key.
 */
int document_seal(const uint8_t aes[32], const void *aad, size_t aad_len, const void *in, size_t len, uint8_t *out,
                  struct err *e);
int64_t document_open(const uint8_t aes[32], const void *aad, size_t aad_len, const void *in, size_t len, uint8_t *out,
                      struct err *e);

#endif
