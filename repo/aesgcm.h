/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * aesgcm.h - AES-256-GCM (NIST SP 800-38D) on two blocks an instruction, for CPUs with VAES (internal to repo/)
 *
 * The library of Debian 12 processes one block an instruction only. It is still used on CPUs without these instructions
 * and with SNAPFERRY_KERNEL_AESGCM=scalar; the output is identical.
 */
#ifndef SNAPFERRY_REPO_AESGCM_H
#define SNAPFERRY_REPO_AESGCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AESGCM_KEY 32
#define AESGCM_NONCE 12
#define AESGCM_TAG 16

/* One message at a time, one thread at a time. */
struct aesgcm;

/* Whether this CPU has AVX2, VAES and VPCLMULQDQ, and the environment does not disable the kernel. */
bool aesgcm_usable(void);

struct aesgcm *aesgcm_new(void);    /* NULL: no memory */
void aesgcm_free(struct aesgcm *g); /* wipes it; NULL allowed */

/* Begins a message. A key and nonce must never be used for two messages. */
void aesgcm_begin(struct aesgcm *g, const uint8_t key[AESGCM_KEY], const uint8_t nonce[AESGCM_NONCE],
                  const uint8_t *aad, size_t aad_len);
/* More of what is authenticated only, before the first byte is encrypted or decrypted. All of it together but for the
 * last call, that of aesgcm_begin() included, must be a multiple of 16 bytes; less than 2^61 bytes. */
void aesgcm_aad(struct aesgcm *g, const uint8_t *aad, size_t len);
/* Encrypts or decrypts in[0..len) into out[0..len), in place or not overlapping, any length; less than 64 GiB in
 * all. */
void aesgcm_seal(struct aesgcm *g, const uint8_t *in, size_t len, uint8_t *out);
void aesgcm_open(struct aesgcm *g, const uint8_t *in, size_t len, uint8_t *out);
/* Ends the message and returns its tag. Keys are wiped. */
void aesgcm_end(struct aesgcm *g, uint8_t tag[AESGCM_TAG]);

#endif
