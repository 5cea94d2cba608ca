/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * manifest-parts.h - the contents that hold manifests, one by one; for manifest.c and manifest-compact.c only
 */
#ifndef SNAPFERRY_REPO_MANIFEST_PARTS_H
#define SNAPFERRY_REPO_MANIFEST_PARTS_H

#include "repo/content-ahead.h"
#include "repo/expanded.h"
#include "repo/manifest.h"

#define MANIFEST_MAX ((size_t)16 << 20)        /* text of one manifest */
#define MANIFEST_CONTENT_MAX ((size_t)1 << 28) /* the format's limit of a content */
#define MANIFEST_COMPRESSION 0x1101            /* zstd-fastest, as in stock clients */

/* Called for each entry of a collection; what it points to is valid during the call. Non-zero ends the walk. */
typedef int manifest_raw_fn(const struct raw_manifest *raw, void *arg, struct err *e);
/* Runs fn over the entries of one collection (gzip, `len` bytes), with their whole text. *ignored (NULL allowed) counts
 * those with an id that no client makes. ERR_DAMAGE: malformed. */
int manifest_collection_each(const void *gz, size_t len, manifest_raw_fn *fn, void *arg, uint64_t *ignored,
                             struct err *e);

/* What stands for an id: the entry with the latest time. */
struct manifest_winner {
    uint8_t id[16];
    int64_t modified_ns;
    uint32_t place; /* of manifests.contents: which content it is in */
    uint8_t used, deleted, delivered;
    uint8_t entries; /* of this id, in all contents; 255: so many or more */
};

/* A content of manifests, as the index has it. */
struct manifest_place {
    struct content_id id;
    int64_t time;
    uint32_t offset, packed, length, compression;
    uint8_t format_version, key_id;
    char *pack;
};

struct manifests {
    struct repo *r;
    struct content_reader *c;
    struct manifest_place *contents; /* in the order of their ids */
    size_t n_contents, cap_contents;
    struct manifest_winner *table; /* open addressing */
    uint64_t key[4];               /* of its hash */
    size_t n, cap;                 /* cap is a power of two */
    uint32_t at;                   /* the content that manifests_note() is called for */
    uint64_t ignored;              /* of the last reading: entries with an id that no client makes */
    bool nomem;
};

/* The contents in the present view of the index; none is read, and there are no winners yet. */
int manifests_list(struct manifests **ret, struct repo *r, struct err *e);
/* A manifest_raw_fn with the manifests as its argument: enters an entry of content `at` into the table. */
int manifests_note(const struct raw_manifest *raw, void *arg, struct err *e);
/* The winner of an id, or the empty slot for it (!used). */
struct manifest_winner *manifests_winner(const struct manifests *m, const uint8_t id[16]);
void manifest_place_entry(const struct manifest_place *p, struct index_entry *ret);
/* Reads a content: *ret is malloc()ed; returns its length, or a negative error. `ahead`: NULL allowed. */
int64_t manifests_get(const struct manifests *m, const struct manifest_place *p, struct content_ahead *ahead,
                      uint8_t **ret, struct err *e);

#endif
