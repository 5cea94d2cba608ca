/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * expanded.h - entries of small collections of manifests, kept in memory for the next walk
 *
 * A backup walks the manifests several times (its source's history, its parents, its checkpoints), and each walk reads,
 * decrypts, expands and scans all collections twice: with a collection for each backup since the last compaction that
 * is most of what a small backup costs. A content never changes, so its entries are found by its id. At most
 * EXPANDED_MAX bytes are kept, what comes later is read each time; nothing is dropped before expanded_free(), so that
 * what was found stays valid. Thread safe.
 */
#ifndef SNAPFERRY_REPO_EXPANDED_H
#define SNAPFERRY_REPO_EXPANDED_H

#include "repo/index.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPANDED_MAX ((size_t)4 << 20)

/* An entry of a collection, its members still as text (section 14.1). */
struct raw_manifest {
    char id[33];
    int64_t modified_ns;
    bool deleted;
    const char *labels, *data; /* not terminated; NULL: none */
    size_t labels_len, data_len;
    const char *whole; /* the text of the entry; NULL in a kept one */
    size_t whole_len;
    char *text;          /* of a kept one: the memory of both */
    json_t *labels_json; /* of a kept one: the labels parsed, if they can be; not to be changed */
};

/* The entries of one content, in order. `ignored`: further ones, with an id that no client makes. */
struct expanded_content {
    struct content_id id;
    struct raw_manifest *entries;
    size_t n, cap;
    uint64_t ignored;
    size_t bytes; /* that it takes */
    bool whole;   /* false: too large, or there was no memory; it is not kept */
};

struct expanded;
struct expanded *expanded_new(void); /* NULL: no memory */
void expanded_free(struct expanded *x);
/* NULL: not kept. Valid until expanded_free(). */
const struct expanded_content *expanded_find(struct expanded *x, const struct content_id *id);

/* To keep a content: begin, each of its entries (copied), then put, which takes over what was collected; or clear. */
void expanded_begin(struct expanded *x, struct expanded_content *c, const struct content_id *id);
void expanded_entry(struct expanded_content *c, const struct raw_manifest *entry);
void expanded_put(struct expanded *x, struct expanded_content *c);
void expanded_content_clear(struct expanded_content *c);

#endif
