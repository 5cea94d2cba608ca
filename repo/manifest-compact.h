/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * manifest-compact.h - many small contents of manifests become few (Kopia repository format, section 12.1)
 *
 * Each flush that changes manifests leaves a content, often of a single entry, and whoever opens the repository reads
 * all of them. Compaction stores the entries that stand once more, together, and marks the contents that held them
 * deleted.
 *
 * Which: contents of less than a quarter of `content_bytes` are small. When there are 16 small ones, the smallest of
 * them are merged, up to the last one that is not longer than all before it together; those below 1/64 of
 * `content_bytes` always are. So the ones that stay are each longer than all shorter ones together, a handful, and an
 * entry is stored again only when its content at least doubles. A content of that length or more is stored again only
 * if less than half of its entries stand. Contents with entries that this client cannot parse stay as they are.
 *
 * Nothing is lost, and nothing deleted comes back, whoever writes meanwhile and wherever it is killed:
 * - Entries of manifests are a union in which the latest time wins, so that an entry may be in two contents. What is
 * new is durable and in the index before anything is marked deleted.
 * - Where lists may lag, its index blob is waited for in the storage's own list: another client must not find the marks
 *   without it.
 * - Contents that appear meanwhile are not touched: a tombstone in them takes precedence over a copy of the older
 * entry.
 * - Before the marks the index is read again. If one of the contents was changed or marked by somebody else, or a new
 *   one has an entry of a manifest that was stored again (another client is compacting, or deletes it), what was
 * written is marked deleted instead, and all begins anew. Stock clients drop tombstones when they compact: a copy of
 * the entry that one of them has not seen must not remain. A content that is written has random bytes in its head, so
 * that it has the id of no other: what is taken back is nothing that another run has stored.
 * - What is just being written by another run may be taken back like that: contents younger than 30 minutes are merged
 *   along, so that no entry is left out because one of them has it.
 * - A tombstone is stored again like any entry. It is left out only by a run with `drop_tombstones`, if it is older
 *   than `tombstone_age_ns` and no content has another entry of its manifest: not by the run that merges the two.
 */
#ifndef SNAPFERRY_REPO_MANIFEST_COMPACT_H
#define SNAPFERRY_REPO_MANIFEST_COMPACT_H

#include "repo/manifest.h"

/* Longer than any client's view may be old, and than contents that were marked deleted are kept. */
#define MANIFEST_TOMBSTONE_AGE_NS (14 * 24 * NS_PER_H)

struct manifest_compact_opts {
    bool dry_run;         /* nothing is written; the result says what would be */
    bool thorough;        /* also contents whose entries mostly do not stand any more: reads all of them */
    bool drop_tombstones; /* see above */
    int64_t now_ns;       /* for the age of tombstones */
    int64_t tombstone_age_ns;
    int64_t listed_ns;    /* how long lists that lag are waited for; 0: 30 s */
    size_t content_bytes; /* of a content that is written, compressed; 0: 4 MiB. One entry may exceed it */
    /* Called before new contents are written (`bytes`: at most so many, roughly), and with 0 before others are marked
     * deleted: 1: go on; 0: leave all as it is; negative: an error, which is returned. NULL: always. */
    int (*may_write)(void *arg, uint64_t bytes, struct err *e);
    void *arg;
};

struct manifest_compacted {
    uint64_t contents, bytes;        /* of manifests, before */
    uint64_t merged, merged_bytes;   /* contents marked deleted by this run (dry run: would be) */
    uint64_t written, written_bytes; /* contents in their place; of a dry run: unknown, 0 */
    uint64_t entries;                /* in them, tombstones included */
    uint64_t dropped;                /* tombstones left out */
    unsigned conflicts;              /* attempts that gave way to another client */
};

/*
 * Compacts what is due, in a session of its own, with the index refreshed at the beginning. 0: done, or there was
 * nothing to do (ret->merged == 0), or it was left to a later run because others kept changing the same manifests.
 * Memory: 40 bytes for each manifest, 16 MiB of contents, one content of `content_bytes`. ERR_DAMAGE: a content
 * cannot be read, nothing was changed. Crash points: maintenance-manifests-written (the new contents are in the index),
 * maintenance-manifests-checked (before the marks), maintenance-manifests-compacted.
 */
int manifests_compact(struct repo *r, const struct manifest_compact_opts *o, struct manifest_compacted *ret,
                      struct err *e);

#endif
