/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * repair.h - the index of a repository made whole again: what damaged or lost index blobs held is taken from the packs,
 * each of which has its own part of the index at its end (Kopia repository format, sections 7.3, 8.4 and 9)
 *
 * Entries keep their times, so that whatever is newer takes precedence: a content that was stored again, or that was
 * marked deleted, as far as the mark is left. What comes back is live, and maintenance marks it deleted again where
 * nothing needs it. New index blobs are in the current epoch. Only when they are durable are damaged index blobs set
 * aside, under names that no client reads ("damaged-" and the old name). A run that ends early, in whatever way, leaves
 * the repository no worse, and the next run goes on.
 *
 * Others may write meanwhile. Maintenance may not: it may be about to delete packs that no index had. Those of a batch
 * get session markers before their entries are published, which keep every maintenance that begins later from it, and
 * are looked for once more afterwards.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_REPAIR_H
#define SNAPFERRY_DAEMON_MOVER_REPAIR_H

#include "daemon/mover/maintain.h"

/* What was found; `name` is a blob. */
enum repair_kind {
    REPAIR_BAD_INDEX,  /* a damaged index blob, which is set aside */
    REPAIR_ASIDE,      /* its new name */
    REPAIR_PACK,       /* a pack with contents that no index had; `contents` of them */
    REPAIR_UNREADABLE, /* the local index of a pack is damaged; an index has contents of it */
    REPAIR_UNKNOWN,    /* the same, and no index has any: what is in it is not known */
    REPAIR_MANIFESTS   /* contents of manifests in a pack, which no index has, that cannot be read: left out */
};
typedef void repair_report_fn(enum repair_kind kind, const char *name, const char *why, uint64_t contents, void *arg);

struct repair_opts {
    bool dry_run;      /* nothing is written to the repository */
    bool missing_only; /* packs of which an index has any content are not read */
    struct mover_progress *progress;
    struct mover_cancel *cancel; /* NULL: never */
    repair_report_fn *report;
    void *arg;
};

struct repair_result {
    uint64_t indexes, bad, aside;  /* index blobs read; damaged; set aside */
    int64_t write_epoch;           /* of which the marker was lost, and put again; -1: it was not */
    uint64_t epochs;               /* all of whose index blobs were lost */
    uint64_t packs, read;          /* packs in the repository; whose local index was read */
    uint64_t found;                /* packs with contents that no index had */
    uint64_t waiting;              /* packs of sessions that may be writing: left to them */
    uint64_t unreadable, unknown;  /* as above */
    uint64_t manifests;            /* contents of manifests that were left out, as above */
    struct maintain_sum contents;  /* put into the index again; in a dry run: that would be */
    struct maintain_sum elsewhere; /* of these, copies of contents whose pack is missing where the index had them */
    uint64_t marks;                /* marks of deleted contents, from index blobs that can be read, and of manifests */
    uint64_t missing;              /* contents of index blobs that are lost, whose packs are missing, too */
    uint64_t written;              /* index blobs */
    uint64_t vanished;             /* packs that were deleted meanwhile: their contents are marked deleted */
    bool complete;                 /* it came to its end */
    double seconds;
};

/*
 * `r` was opened with repo_opts.damaged and the user REPAIR_USER. ERR_FORMAT: without epochs; ERR_PERMISSION: a copy;
 * ERR_DAMAGE: nothing can be decrypted, or (when all is done) ret->unknown, ret->manifests; ERR_BUSY: ret->vanished;
 * ERR_INTERRUPTED. *ret is filled in as far as the run went. Memory: 24 MiB, and 64 MiB for local indexes.
 */
int repair_run(struct repo *r, const struct repair_opts *o, struct repair_result *ret, struct err *e);

#endif
