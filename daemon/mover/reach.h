/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reach.h - which volumes reach which contents
 *
 * Pairs of a content and the number of a volume are added in any order and any number of times. They are sorted in
 * memory, as many at a time as it has room for, and kept in files of the cache directory that are unlinked at once; of
 * every 32 such files one is made, without what they have in common. Then they are merged with the index, which is in
 * the same order, content by content.
 *
 * Memory: as given, whatever the number of pairs; and 64 KiB for each file when they are merged, of which there are
 * fewer than 100. Disk: 32 bytes for each different pair, and up to 32 times half of the memory for pairs that occur
 * more than once. Not thread-safe.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_REACH_H
#define SNAPFERRY_DAEMON_MOVER_REACH_H

#include "repo/index.h"

struct reach;

#define REACH_MEMORY ((size_t)32 << 20)

/* `dir`: where its files are created; copied. `memory`: bytes for sorting, at least 4 KiB. -ENOMEM. */
int reach_new(struct reach **ret, const char *dir, size_t memory, struct err *e);
/* NULL allowed. */
void reach_free(struct reach *x);
static inline void reach_freep(struct reach **x)
{
    reach_free(*x);
}
/* A volume reaches a content. Before reach_settle(). Errors of files: a full cache directory is ERR_NO_SPACE. */
int reach_add(struct reach *x, const struct content_id *id, uint32_t volume, struct err *e);
/* All have been added. */
int reach_settle(struct reach *x, struct err *e);

/* What was found of one volume, or of several together: numbers of contents, and their bytes in packs. */
struct reach_sum {
    uint64_t n, bytes;
};
struct reach_volume {
    struct reach_sum exclusive; /* it alone reaches them */
    struct reach_sum shared;    /* it reaches them, and so does another one */
    uint64_t missing;           /* it reaches them, and the index does not have them */
};
struct reach_total {
    struct reach_sum exclusive; /* exactly one volume reaches them */
    struct reach_sum shared;    /* several do, each content counted once */
    struct reach_sum unreached; /* no volume does */
    uint64_t missing;           /* not in the index, each counted once */
};

/*
 * After reach_settle(), for each content of the index in its order (content_id_cmp()) and once: counts it, `packed`
 * bytes, and those before it that are not in the index. `volumes` has an element for each number that was added; it and
 * *total are 0 at first, by the caller. reach_end(): behind the last content of the index.
 */
int reach_count(struct reach *x, const struct content_id *id, uint32_t packed, struct reach_volume *volumes,
                struct reach_total *total, struct err *e);
int reach_end(struct reach *x, struct reach_volume *volumes, struct reach_total *total, struct err *e);

#endif
