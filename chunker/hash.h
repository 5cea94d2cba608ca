/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hash.h - the keyed hashes that name contents (Kopia repository format, section 4)
 *
 * A hasher is made once per repository from the algorithm's name and the repository's HMAC secret. It is immutable:
 * every function may be called from many threads at once.
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
    uint8_t out[HASH_MAX]; /* the first hasher_size() bytes are set */
};

/* `name` is Kopia's ("BLAKE2B-256-128", ...). Errors: ERR_FORMAT (-ENOTSUP) for an unknown name, ERR_FORMAT (-EINVAL)
 * for a key that the function cannot take (too long for BLAKE2; empty for BLAKE2S-128), ERR_MEMORY. */
int hasher_new(struct hasher **ret, const char *name, const uint8_t *key, size_t key_len, struct err *e);
void hasher_free(struct hasher *h); /* wipes the key; NULL allowed */
static inline void hasher_freep(struct hasher **h)
{
    hasher_free(*h);
}

/* Digest length in bytes: 16, 28 or 32. */
size_t hasher_size(const struct hasher *h);

/* Digest of one message; `out` gets hasher_size() bytes. Cannot fail (memory it needs was taken by hasher_new). */
void hasher_digest(const struct hasher *h, const void *data, size_t len, uint8_t *out);

/* Digests of n messages, any lengths, in one call: lanes are refilled as messages end. Equal to n single calls. */
void hasher_digest_many(const struct hasher *h, struct hash_job *jobs, size_t n);

/* Where an endless batch comes from, and where it goes. Both are called by the thread in hasher_run(), and what they do
 * is up to them: next() may wait for a message, done() may store one. */
struct hash_feed {
    /* A message for a lane that has none; `active` are in work. NULL: none now, which with `active` == 0 ends the run.
     * The job and its data stay valid until done(). */
    struct hash_job *(*next)(void *arg, unsigned active);
    /* `out` is set. Jobs end in any order. */
    void (*done)(void *arg, struct hash_job *job);
    void *arg;
};

/* Digests of all messages that the feed gives, at most hasher_lanes() at a time; each lane asks for the next one as
 * soon as it has none, and, while some have none, again after every 128 KiB. */
void hasher_run(const struct hasher *h, const struct hash_feed *feed);

/* How many messages are worked on at the same time (1 if batches gain nothing). */
unsigned hasher_lanes(const struct hasher *h);

/* Kernel in use ("scalar", "avx2", "avx512", "openssl"). */
const char *hasher_kernel(const struct hasher *h);

/* Name number i of the eleven hashes, NULL past the end; number 0 is the default. */
const char *hash_name(unsigned i);

#endif
