/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * index-cache.h - index blobs decrypted into files of a cache directory, and mapped
 *
 * A cache file is the plaintext of an index blob and a footer (magic, length, CRC-64 of the blob's name and all bytes),
 * under the blob's own name, mode 0600; it appears by rename. What does not check is thrown away and made again, so
 * nothing needs syncing. Several processes may share a directory: a file deleted by one stays mapped in the other.
 */
#ifndef SNAPFERRY_REPO_INDEX_CACHE_H
#define SNAPFERRY_REPO_INDEX_CACHE_H

#include "repo/index.h"
#include "repo/item.h"

#define INDEX_FOOTER 24

struct index_cache {
    const char *path;
    int dirfd;
    uint64_t cap; /* bytes of files */
    struct blobs *blobs;
    const struct sealer *sealer;
    bool ecc;
};

/* A mapped table. The kernel maps pages around a fault by aligned windows of 64 KiB; which windows may be resident is
 * noted by one bit each. */
#define INDEX_WINDOW_SHIFT 16

struct index_map {
    struct index_map *next, **prev; /* of all live maps of a set */
    unsigned refs;                  /* views that have it, under the set's lock */
    size_t file_len;
    struct index_table t;
    _Atomic uint64_t *windows;
    size_t n_windows;
    char name[BLOB_NAME_MAX + 1];
};

/* Makes the directory if it is missing and opens it. */
int index_cache_open(struct index_cache *c, const char *path, uint64_t cap, struct blobs *b, const struct sealer *s,
                     bool ecc, struct err *e);
void index_cache_close(struct index_cache *c);

/* Maps the table of an index blob, from the cache or (decrypted into it first) from the store. -ENOENT: the blob is
 * gone. ERR_DAMAGE, ERR_NO_SPACE; all name the blob. */
int index_cache_get(struct index_map **ret, const struct index_cache *c, const struct blob_info *b, struct err *e);
/* Puts a plaintext into the cache and maps it. */
int index_cache_add(struct index_map **ret, const struct index_cache *c, const char *name, const uint8_t *data,
                    size_t len, struct err *e);
void index_map_free(struct index_map *m);

/*
 * Makes room: with `needed` (sorted by name) all in the cache, its files do not exceed the cap. Deletes what is not
 * needed, oldest first, and files that died half-made. *total: bytes of the files that stay and will be added.
 * ERR_NO_SPACE: the needed ones alone exceed the cap.
 */
int index_cache_make_room(const struct index_cache *c, const struct blob_info *needed, size_t n, uint64_t *total,
                          struct err *e);

/* Notes that the page of `at` was read; true: its window was not marked before. */
bool index_map_touch(struct index_map *m, const void *at);
/* Gives all pages back. */
void index_map_drop(struct index_map *m);

#endif
