/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * packset.h - which packs exist in the store, and how long they are (internal to repo/)
 *
 * The index may list contents whose pack is gone or was cut short: somebody removed a file, or the file system lost it.
 * A hash table in an unlinked file of the cache directory: 24 bytes a pack in pages that the kernel can write back, so
 * that a repository of any size takes no heap. Thread-safe, but for pack_set_new() and pack_set_free().
 */
#ifndef SNAPFERRY_REPO_PACKSET_H
#define SNAPFERRY_REPO_PACKSET_H

#include "repo/blob.h"

struct pack_set;

/* Of `b` (borrowed). Nothing is asked yet: an incremental backup of a small volume refers to few packs, in a repository
 * of however many. Errors: no room for the table. */
int pack_set_new(struct pack_set **ret, struct blobs *b, const char *dir, struct err *e);
void pack_set_free(struct pack_set *x); /* NULL allowed */

/* Whether a pack exists and has at least `end` bytes: 1 or 0, with one warning for each that does not, or an error of
 * the store. The first PACKS_ASKED packs are asked for, each once; then all are listed. One that was not listed may
 * have been written since: it is asked for, too. */
#define PACKS_ASKED 64
int pack_set_has(struct pack_set *x, const char *name, uint64_t end, struct err *e);

#endif
