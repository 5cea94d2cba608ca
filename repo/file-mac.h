/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * file-mac.h - the code that authenticates a file of the cache directory (internal to repo/)
 *
 * GMAC (NIST SP 800-38D): the tag of AES-256-GCM over data that is authenticated only. Chosen because it is the fastest
 * of those that are well founded, on CPUs with VAES and VPCLMULQDQ as fast as memory is read (aesgcm.h); elsewhere it
 * is the library's. Each file name has a key of its own, HMAC-SHA256(key, name), and each file a random nonce: what is
 * of another name, or of a repository with another key, fails. A code belongs to one thread at a time.
 */
#ifndef SNAPFERRY_REPO_FILE_MAC_H
#define SNAPFERRY_REPO_FILE_MAC_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define FILE_MAC_KEY 32
#define FILE_MAC_NONCE 12 /* bytes; never the same for two files of a name */
#define FILE_MAC_TAG 16

struct file_mac;

/* Begins the code of a file, released with file_mac_free(). ERR_MEMORY; ERR_GENERIC: the cryptographic library
 * failed. */
int file_mac_new(struct file_mac **ret, const uint8_t key[FILE_MAC_KEY], const char *name,
                 const uint8_t nonce[FILE_MAC_NONCE], struct err *e);
/* Adds the file's next bytes, in pieces of any length. */
void file_mac_add(struct file_mac *m, const void *data, size_t len);
/* Ends it; only file_mac_free() may follow. ERR_GENERIC: the cryptographic library failed. */
int file_mac_end(struct file_mac *m, uint8_t tag[FILE_MAC_TAG], struct err *e);
/* Wipes the keys; NULL allowed. */
void file_mac_free(struct file_mac *m);
static inline void file_mac_freep(struct file_mac **m)
{
    file_mac_free(*m);
}

#endif
