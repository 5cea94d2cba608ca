/* SPDX-License-Identifier: GPL-2.0-or-later */
/* shards.h - path of a blob below a directory (Kopia repository format, section 2.2: the document .shards) */
#ifndef SNAPFERRY_REPO_SHARDS_H
#define SNAPFERRY_REPO_SHARDS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define SHARDS_FILE ".shards"
#define SHARDS_PATH_MAX 1024 /* longest path of a blob with its NUL: each of 255 characters may have a '/' */
#define BLOB_SUFFIX ".f"

struct shards;

/* Reads a document. -EINVAL (ERR_DAMAGE) with the reason. Immutable, any thread. */
int shards_parse(struct shards **ret, const char *json, size_t len, struct err *e);
/* The shape of a new store: a `lengths` list of n, names of up to 20 characters unsharded. */
int shards_make(struct shards **ret, const int *lengths, size_t n, struct err *e);
void shards_free(struct shards *s);
static inline void shards_freep(struct shards **s)
{
    shards_free(*s);
}

/* Whether each blob has the same path. */
bool shards_same(const struct shards *a, const struct shards *b);

/* The document with its newline, malloc()ed, NULL if there is no memory (only for shapes of shards_make()). */
char *shards_document(const struct shards *s);

/* Path of blob `name` (a valid name) below the root: out has SHARDS_PATH_MAX bytes. -EINVAL: a part would be "..". */
int shards_locate(const struct shards *s, const char *name, char *out);

#endif
