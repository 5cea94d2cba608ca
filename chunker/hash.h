/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hash.h - the keyed hashes of content ids (Kopia repository format, section 4)
 *
 * A hasher is created once per repository from the name of the algorithm and the HMAC secret of the repository. It is
 * immutable: all functions may be called from several threads concurrently.
 */
#ifndef SNAPFERRY_CHUNKER_HASH_H
#define SNAPFERRY_CHUNKER_HASH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_MAX 32 /* longest digest, bytes */

struct hasher;

/* One message of a batch. */
struct hash_job {
    const uint8_t *data;
    size_t len;            /* bytes */
    uint8_t out[HASH_MAX]; /* set: the first hasher_size() bytes */
};

/* `name` is Kopia's ("BLAKE2B-256-128", ...). Errors: ERR_FORMAT (-ENOTSUP) for an unknown name, ERR_FORMAT (-EINVAL)
 * for an invalid key (too long for BLAKE2; empty for BLAKE2S-128), ERR_MEMORY. */
int hasher_new(struct hasher **ret, const char *name, const uint8_t *key, size_t key_len, struct err *e);
void hasher_free(struct hasher *h); /* wipes the key; NULL allowed */
static inline void hasher_freep(struct hasher **h)
{
    hasher_free(*h);
}

/* Digest length in bytes: 16, 28 or 32. */
size_t hasher_size(const struct hasher *h);

/* Digest of one message; writes hasher_size() bytes to `out`. Cannot fail (memory is allocated by hasher_new()). */
void hasher_digest(const struct hasher *h, const void *data, size_t len, uint8_t *out);

/* Digests of n messages of any lengths in one call; lanes are refilled as messages end. Equal to n single calls. */
void hasher_digest_many(const struct hasher *h, struct hash_job *jobs, size_t n);

/* Source and sink of a continuous batch. Both functions are called by the thread in hasher_run() and may block: next()
 * may wait for a message, done() may store one. */
struct hash_feed {
    /* Next message for a free lane; `active` messages are in progress. NULL: none at present, which ends the run if
     * `active` == 0. The job and its data must remain valid until done(). */
    struct hash_job *(*next)(void *arg, unsigned active);
    /* A job is finished and `out` is set. Jobs end in any order. */
    void (*done)(void *arg, struct hash_job *job);
    void *arg;
};

/* Digests of all messages of the feed, at most hasher_lanes() at a time. Each lane requests the next message when it
 * becomes free, and while some are free, again after every 128 KiB. */
void hasher_run(const struct hasher *h, const struct hash_feed *feed);

/* Number of messages processed at the same time (1 if batches have no advantage). */
unsigned hasher_lanes(const struct hasher *h);

/* Kernel in use ("scalar", "avx2", "avx512", "openssl"). */
const char *hasher_kernel(const struct hasher *h);

/* Name number i of the eleven hashes, NULL after the last; number 0 is the default. */
const char *hash_name(unsigned i);

#endif
