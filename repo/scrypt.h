/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * scrypt.h - the key derivation of passwords (RFC 7914), with r = 8 and p = 1 as in the Kopia repository format
 *
 * The library's own is scalar code; this one keeps four words of a Salsa20 block in one vector and its table on huge
 * pages, which halves the time of opening a repository.
 */
#ifndef SNAPFERRY_REPO_SCRYPT_H
#define SNAPFERRY_REPO_SCRYPT_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Derives out[0..out_len). `n`: the cost, a power of two up to 2^24; takes n KiB of memory (and up to 2 MiB more of
 * address space), wiped before it is freed. ERR_MEMORY when there is none, EINVAL: invalid cost or lengths.
 */
int scrypt_r8_p1(const char *password, const uint8_t *salt, size_t salt_len, uint32_t n, uint8_t *out, size_t out_len,
                 struct err *e);

#endif
