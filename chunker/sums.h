/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sums.h - MD5 and SHA-256 of bodies, several at a time, as object storage asks for with each upload
 *
 * MD5 is the most expensive part of an upload when it is computed for one body after the other (0.6 GB/s of a core);
 * for eight at a time it is four to seven times as fast, SHA-256 for two nearly twice. By kernels (md5.h, sha256.h), or
 * by OpenSSL.
 */
#ifndef SNAPFERRY_CHUNKER_SUMS_H
#define SNAPFERRY_CHUNKER_SUMS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUMS_BODIES 8

struct body_sums {
    uint8_t md5[16], sha256[32];
};

/* A body in a file, and what has become of it. */
struct sums_body {
    int fd;          /* read with pread(2) from its beginning */
    uint64_t length; /* bytes; the file may be longer */
    int rc;          /* 0, or negative errno of reading; -ENODATA: the file is shorter */
    struct body_sums sums;
};

/* How many bodies at a time cost less than one after the other: SUMS_BODIES, or 1 without a kernel for MD5. */
unsigned sums_at_a_time(void);

/* Sums of n bodies, 1 <= n <= SUMS_BODIES; SHA-256 only if `sha`. 0: look at each rc. ERR_MEMORY, ERR_GENERIC (OpenSSL
 * has no MD5, as with FIPS rules): of all. Takes 256 KiB of memory. Thread-safe for different bodies. */
int sums_of_files(struct sums_body *all, size_t n, bool sha, struct err *e);
/* Of `len` bytes of memory; the same errors. */
int sums_of_memory(const void *data, size_t len, bool sha, struct body_sums *ret, struct err *e);

#endif
