/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * index-cache.h - index blobs decrypted into files of a cache directory, and mapped
 *
 * A cache file is the plaintext of an index blob, a filter if it is large, and a footer (magic, lengths, a nonce, and a
 * code over all of this, file-mac.h), under the blob's own name, mode 0600; it appears by rename. The key of the code
 * is derived from the repository's master key and the name (format_cache_key()): what somebody else has written, who
 * may write to the directory but does not know the repository's password, fails its check as what a disk has damaged. A
 * file that fails is discarded and created again, so nothing needs syncing. Several processes may share a directory: a
 * file deleted by one stays mapped in the other.
 *
 * Each file is checked when it is mapped, and not again while it is: what the same user, or root, writes to a mapped
 * file is not noticed.
 *
 * The filter (a Bloom filter in blocks of 32 bytes, 12 bits for each key) excludes most tables without the id by one
 * cache line that is usually resident, where a search would map several pages of each.
 */
#ifndef SNAPFERRY_REPO_INDEX_CACHE_H
#define SNAPFERRY_REPO_INDEX_CACHE_H

#include "repo/index.h"
#include "repo/item.h"

#define INDEX_FOOTER 52

struct index_cache {
    const char *path;
    int dirfd;
    uint64_t cap;   /* bytes of files */
    uint64_t spare; /* of them left for other files, unless the needed ones need it */
    struct blobs *blobs;
    const struct sealer *sealer;
    bool ecc;
};

/*
 * A mapped table. The kernel maps pages around a fault by aligned windows of 64 KiB; which windows may be resident is
 * noted by one bit each. Map and filter begin at such windows.
 */
#define INDEX_WINDOW_SHIFT 16
#define INDEX_WINDOW (1u << INDEX_WINDOW_SHIFT)

struct index_map {
    struct index_map *next, **prev; /* of all live maps of a set */
    unsigned refs;                  /* views that have it, under the set's lock */
    uint8_t *base;                  /* of the file's bytes */
    size_t file_len;
    struct index_table t;
    size_t filter_at, filter_len; /* in the file; 0 bytes: none */
    _Atomic uint64_t *windows;
    size_t n_windows;
    char name[BLOB_NAME_MAX + 1];
};

/* Creates the directory if it is missing and opens it. */
int index_cache_open(struct index_cache *c, const char *path, uint64_t cap, struct blobs *b, const struct sealer *s,
                     bool ecc, struct err *e);
void index_cache_close(struct index_cache *c);

/* Maps the table of an index blob, from the cache or (decrypted into it first) from the store. -ENOENT: the blob is
 * gone. ERR_DAMAGE, ERR_NO_SPACE; all name the blob. */
int index_cache_get(struct index_map **ret, const struct index_cache *c, const struct blob_info *b, struct err *e);
/* Reads an index blob from the store, whatever is in the cache, decrypts and parses it. *corrected, if it returns 0:
 * error correction had to restore it. Errors as index_cache_get(). */
int index_cache_check(const struct index_cache *c, const struct blob_info *b, bool *corrected, struct err *e);
/* Writes a plaintext into the cache and maps it. */
int index_cache_add(struct index_map **ret, const struct index_cache *c, const char *name, const uint8_t *data,
                    size_t len, struct err *e);
void index_map_free(struct index_map *m);

/*
 * Makes room: with `needed` (sorted by name) all in the cache, its files do not exceed the cap. Deletes unneeded files,
 * oldest first, and stale temporary files. *total: bytes of the files that remain or will be added. ERR_NO_SPACE: the
 * needed ones alone exceed the cap.
 */
int index_cache_make_room(const struct index_cache *c, const struct blob_info *needed, size_t n, uint64_t *total,
                          struct err *e);

/*
 * What this node has seen of the index, against a listing (sorted by name): looks in the store for each index blob that
 * is in the cache and not listed. One that is gone leaves the cache. One that is there, put before `before_ns` by the
 * storage's clock: the list lags (-EAGAIN, ERR_GENERIC, names it).
 */
int index_cache_recall(const struct index_cache *c, const struct blob_info *listed, size_t n, int64_t before_ns,
                       struct err *e);

/* Removes the file of a blob, which stays mapped where it is. */
void index_cache_forget(const struct index_cache *c, const char *name);
/* Calls fn for each index blob that is in the cache. fn's non-zero return ends it and is returned. */
int index_cache_each(const struct index_cache *c, int (*fn)(const char *name, void *arg), void *arg, struct err *e);

/* For the filters; the same for every table. */
uint64_t index_key_hash(const struct content_id *id);
/* False: the table (which has a filter) does not have the id. *at: the place read. */
bool index_map_may_have(const struct index_map *m, uint64_t key_hash, const void **at);

/* Notes that the page of `at` was read: the number of pages that this may have mapped in addition. */
unsigned index_map_touch(struct index_map *m, const void *at);
/* Releases pages: all, or all but the filter's. */
void index_map_drop(struct index_map *m, bool keep_filter);
static inline size_t index_map_filter_pages(const struct index_map *m)
{
    return (m->filter_len + 4095) / 4096;
}

/* What to do when a file of the cache directory cannot be written, by e->sys; any thread. e may be NULL. */
void cache_hint(struct err *e);

#endif
