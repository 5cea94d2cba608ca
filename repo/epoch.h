/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * epoch.h - which index blobs make up the repository's index, and how a new one is added (Kopia repository format,
 * section 9)
 */
#ifndef SNAPFERRY_REPO_EPOCH_H
#define SNAPFERRY_REPO_EPOCH_H

#include "repo/item.h"

/* The result of one listing (also of a repository without epochs: then write_epoch is 0 and there is no watermark). */
struct epoch_state {
    int64_t write_epoch;
    int64_t watermark;                 /* deletion watermark, unix seconds; INT64_MIN: none */
    int64_t loaded_ns, valid_until_ns; /* wall clock */
    struct blob_info *blobs;           /* the index blobs to load, sorted by name */
    size_t n_blobs;
};

int epoch_load(struct epoch_state *ret, struct blobs *b, const struct sealer *s, const struct repo_format *f,
               struct err *e);
void epoch_state_clear(struct epoch_state *st);

/* As it would be without some blobs: a repository whose index is damaged, for repair. */
struct epoch_without {
    char (*names)[BLOB_NAME_MAX + 1]; /* blobs that are left out; malloc()ed, owned by the caller */
    size_t n;
    int64_t least_epoch; /* the write epoch, where the markers that are left say less; 0: as they say */
};
/* The listing, begun in a thread of its own while something else is waited for. NULL: it could not be begun. */
struct epoch_ahead;
struct epoch_ahead *epoch_ahead_new(struct blobs *b);
/* Waits for it. NULL allowed. */
void epoch_ahead_free(struct epoch_ahead *a);
/* epoch_load() with that listing, which the caller frees (NULL: with one of its own), and without those blobs (NULL:
 * with all). */
int epoch_load_listed(struct epoch_state *ret, struct epoch_ahead *a, struct blobs *b, const struct sealer *s,
                      const struct repo_format *f, const struct epoch_without *w, struct err *e);

/*
 * The selection itself, on a listing in memory: `list` holds every blob whose name begins with x or n (any order).
 * Fills in write_epoch, watermark, blobs. For repositories without epochs, compaction logs ('m' blobs) are needed:
 * there epoch_load() reads them, this function is for epochs only. (Test vectors: epoch-state.jsonl.)
 */
int epoch_select(struct epoch_state *ret, const struct blob_info *list, size_t n, struct err *e);

/* Number in an "xe12", "xn12_..." or "xs12_..." name, -1 if there is none. */
int64_t epoch_of_name(const char *name);

/*
 * Writes index tables (plaintext shards of one flush) under the lock-free protocol of 9.4: state valid for 15 minutes,
 * blobs of a stale epoch deleted and written again, write epoch checked afterwards ("extremely slow write": -EAGAIN,
 * ERR_BUSY, all shards deleted). `session` is the session id (suffix). Without epochs: n<hash>-<session>. The names
 * written are returned in names[n] (BLOB_NAME_MAX + 1 each).
 */
struct index_shard_data {
    const uint8_t *data;
    size_t len;
};
int epoch_write_indexes(struct blobs *b, const struct sealer *s, const struct repo_format *f, const char *session,
                        const struct index_shard_data *shards, size_t n, char (*names)[BLOB_NAME_MAX + 1],
                        struct err *e);
/* The same with a state that is known already: it saves a listing, if it is valid for as long as 9.4 asks for. */
int epoch_write_known(const struct epoch_state *known, struct blobs *b, const struct sealer *s,
                      const struct repo_format *f, const char *session, const struct index_shard_data *shards, size_t n,
                      char (*names)[BLOB_NAME_MAX + 1], struct err *e);

#endif
