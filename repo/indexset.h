/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * indexset.h - the committed index of a repository: all its index blobs, decrypted into a local cache and mapped
 *
 * The heap is not used per entry. Each index blob is decrypted once into the cache directory (files named after the
 * blob, mode 0600, written with a checksum, temp + rename) and mapped read-only; a look-up is a search in each table
 * and the merge rule of section 8.4. Mapped pages count against `mapped_cap`: pages touched by look-ups are released
 * (madvise) when that many may have been touched.
 */
#ifndef SNAPFERRY_REPO_INDEXSET_H
#define SNAPFERRY_REPO_INDEXSET_H

#include "repo/epoch.h"
#include "repo/index.h"

struct index_set;

struct index_set_opts {
    const char *cache_dir; /* created if missing (0700) */
    uint64_t cache_spare;  /* of which so much is left to other files as long as the view does not need it */
    uint64_t cache_cap;    /* maximum size of cache files; if those of the current view exceed it, opening fails with
                              ERR_NO_SPACE, naming both numbers and the option */
    uint64_t mapped_cap;   /* bytes of mapped index pages that may be resident; 0: 64 MiB */
    bool damaged;          /* for repair: index blobs that cannot be read are left out, with epochs */
    struct epoch_ahead *ahead; /* the listing, if it was begun before; the caller's */
};

int index_set_open(struct index_set **ret, struct blobs *b, const struct sealer *s, const struct repo_format *f,
                   const struct index_set_opts *o, struct err *e);
void index_set_free(struct index_set *x);

/* Loads the current state (changed blobs only). Look-ups of other threads continue meanwhile with the old or the new
 * view. A blob that disappeared between listing and reading: listed again, up to 10 times. */
int index_set_refresh(struct index_set *x, struct err *e);
/* The state in use, without its blobs; of a set for repair none, which is valid at no time. */
void index_set_state(struct index_set *x, struct epoch_state *ret);
/* Wall clock of the state in use: a view older than 15 minutes must be refreshed before deduplicating against it. */
int64_t index_set_loaded_ns(const struct index_set *x);

/* The winning entry: 0; -ENOENT: none (or deleted at or before the watermark); deleted ones above the watermark are
 * returned with deleted set: readable, never to be deduplicated against. Other errors: ERR_DAMAGE. Thread-safe. */
int index_set_find(struct index_set *x, const struct content_id *id, struct index_entry *ret, struct err *e);

/* Whether any index has an entry of it, be it deleted or hidden by the watermark: 1, 0, or an error. */
int index_set_knows(struct index_set *x, const struct content_id *id, struct err *e);

/* The same with its entry, also a hidden one (*hidden): 0, -ENOENT (without an error) if there is none, or an error. */
int index_set_find_any(struct index_set *x, const struct content_id *id, struct index_entry *ret, bool *hidden,
                       struct err *e);

/*
 * For repair, of a set that was opened with `damaged`. From its next refresh on a blob is left out, and the write epoch
 * is at least `epoch`. index_set_leaves_out(): whether a blob is left out. Not while other threads use the set.
 */
int index_set_leave_out(struct index_set *x, const char *name, struct err *e);
bool index_set_leaves_out(const struct index_set *x, const char *name);
void index_set_least_epoch(struct index_set *x, int64_t epoch);
/* Whether what failed with rc and *e shows that a blob is damaged, or on a bad sector of the store: not that its cache
 * or a server does not work. */
bool index_set_is_bad(struct index_set *x, const struct blob_info *blob, int rc, const struct err *e);
/* Whether the view has the table of this blob. */
bool index_set_views(struct index_set *x, const char *name);
/* Removes the file of a blob from the cache; views keep it. */
void index_set_forget(struct index_set *x, const char *name);
/* Calls fn for each index blob in the cache, whether or not the store has it. fn's non-zero return ends it and is
 * returned. */
typedef int index_cached_fn(const char *name, void *arg);
int index_set_cached(struct index_set *x, index_cached_fn *fn, void *arg, struct err *e);

/* Calls fn for every existing content (winners only, in id order, deleted ones above the watermark included), from one
 * view, streaming. `prefix`: only ids with that prefix letter (0 = without), or -1 for all. fn's non-zero return ends
 * it and is returned. */
typedef int index_set_fn(const struct index_entry *entry, void *arg);
int index_set_each(struct index_set *x, int prefix, index_set_fn *fn, void *arg, struct err *e);

/*
 * The same for every entry of every index blob of the view, for maintenance: of each content first those that another
 * one supersedes, then the one that stands, which is hidden if it is deleted at or before the watermark.
 */
enum index_standing { INDEX_WINNER, INDEX_HIDDEN, INDEX_LOSER };
typedef int index_all_fn(const struct index_entry *entry, enum index_standing standing, void *arg);
int index_set_each_all(struct index_set *x, index_all_fn *fn, void *arg, struct err *e);

/*
 * For stores whose lists may lag: compares a listing (all blobs with x, sorted by name) with what this node has seen of
 * the index before, and the view with the listing, but for blobs that were put after `before_ns` by the storage's
 * clock. -EAGAIN (ERR_GENERIC): the list lacks a blob that is there. 1: the view lacks one that is listed and to be
 * loaded.
 */
int index_set_recall(struct index_set *x, const struct blob_info *listed, size_t n, int64_t before_ns, struct err *e);

/* The same for given index blobs, whatever the view: only the entries that stand among them, none of them hidden.
 * -ENOENT: one of them is gone. */
int index_set_merge(struct index_set *x, const struct blob_info *blobs, size_t n, index_all_fn *fn, void *arg,
                    struct err *e);
/* Reads one index blob from the store, whatever is in the cache. ERR_DAMAGE; -ENOENT. */
int index_set_check_blob(struct index_set *x, const struct blob_info *blob, struct err *e);

/*
 * Reads every index blob that a new client would load from the store, whatever is in the cache, and calls fn for each
 * one that is damaged (`why` says how). fn's non-zero return ends it and is returned. `stop` may be NULL. Other errors
 * than damage end it. *corrected: how many could be read with the help of error correction only. The cache gets
 * temporary files of the size of one blob.
 */
typedef int index_bad_fn(const char *name, const char *why, void *arg);
int index_set_check(struct index_set *x, const _Atomic bool *stop, index_bad_fn *fn, void *arg, uint64_t *corrected,
                    struct err *e);

struct index_set_stats {
    uint64_t blobs, entries; /* of the view; entries of all tables, losers included */
    uint64_t mapped_bytes;   /* address space, not resident pages */
    uint64_t cache_bytes;    /* files of the cache directory, including unused ones */
    int64_t write_epoch, watermark;
};
void index_set_stats(struct index_set *x, struct index_set_stats *ret);

/* Adds a table that this process has just written (name as given by epoch_write_indexes), without a listing. */
int index_set_add(struct index_set *x, const char *name, const uint8_t *data, size_t len, struct err *e);

#endif
