/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * metadata-cache.h - parts of metadata packs of object storage, in one file of a cache directory (internal to repo/)
 *
 * Each backup reads the manifests and tables that others before it have left: a request for each, and the same ones
 * again for the next volume. Here they stay as they were stored, sealed: whoever reads one opens it with the key that
 * belongs to its id, so that nothing in the file can be taken for something else; what does not open is forgotten and
 * read from the store.
 *
 * The file has a fixed number of slots of 16 KiB, each for a part of a block of a pack. A part has four slots that it
 * may be in, and takes an empty one or any of them. So the file never exceeds its limit, nothing has to be looked for
 * or removed, and several processes use it without locks: a slot that two have written at a time has a wrong checksum,
 * and is an empty one. Thread-safe.
 */
#ifndef SNAPFERRY_REPO_METADATA_CACHE_H
#define SNAPFERRY_REPO_METADATA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a pack that are read together: neighbours of what is small are wanted next, the manifest, directory and
 * table of a backup. */
#define METADATA_BLOCK 15872u

struct metadata_cache;

/* The file "metadata" in `dir`, of at most `bytes`, created if it is missing (0600). Not `shared`: a file of this
 * process, which begins empty, so that all that is in it was read from the store since then. NULL: it cannot be used,
 * or `bytes` are too few: one does without. */
struct metadata_cache *metadata_cache_open(const char *dir, bool shared, uint64_t bytes);
void metadata_cache_free(struct metadata_cache *m);

/* True: dst[0..len) is that range of the pack, if nobody has changed the file. */
bool metadata_cache_get(struct metadata_cache *m, const char *pack, uint64_t offset, void *dst, size_t len);
/* A range of the pack as it was read. */
void metadata_cache_put(struct metadata_cache *m, const char *pack, uint64_t offset, const void *data, size_t len);
/* What was found of that range is not what was stored. */
void metadata_cache_forget(struct metadata_cache *m, const char *pack, uint64_t offset, size_t len);
/* Its room is needed for something else: the file is emptied, and not used any more by this process. */
void metadata_cache_drop(struct metadata_cache *m);

#endif
