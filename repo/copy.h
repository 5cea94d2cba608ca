/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copy.h - a second store with the same blobs, kept up to date (Kopia repository format, section 2)
 *
 * Blobs are copied as they are, sealed: the copy is a repository with the same id and password, which any client can
 * read. Whatever an index of the copy refers to is there, at any time: the names of the indexes are listed first, then
 * the packs are copied, then these indexes, and the format last. A blob that vanishes meanwhile, because maintenance
 * replaced it, begins that anew. What the original no longer has stays in the copy, unless it is to be deleted there
 * after a time (copy-gone.h). One process writes to a copy at a time (copy-lock.h). Where what is put gets object locks
 * those of what the original still has are extended before half of their period is over; the mark records when.
 */
#ifndef SNAPFERRY_REPO_COPY_H
#define SNAPFERRY_REPO_COPY_H

#include "repo/repo.h"

/* The blob that tells a copy from an original: maintenance refuses where it is. No other blob begins with an underscore
 * but logs ("_log"), so that stock clients ignore it. */
#define COPY_MARK "_snapferry.copy"

struct copy_opts {
    bool dry_run;                   /* nothing is written */
    bool verify;                    /* each copied blob is read back and compared */
    bool expected;                  /* a copy was made there: without one that is ENODEV, and nothing is written */
    int64_t delete_after_ns;        /* blobs that the original has not had for so long are deleted; 0: never */
    bool delete_most;               /* also if that is more than half of the copy */
    const char *owner;              /* who writes to this copy, one process at a time; NULL: this process alone */
    unsigned at_once;               /* blobs that are copied at the same time; 0: 4 */
    const _Atomic bool *stop;       /* NULL: never */
    _Atomic uint64_t *total, *done; /* bytes, for progress; both or neither NULL */
};

struct copy_sum {
    uint64_t n, bytes;
};

struct copy_result {
    struct copy_sum copied;  /* with dry_run: would be */
    struct copy_sum present; /* were there */
    struct copy_sum surplus; /* of the copy, that the original does not have any more; with `deleted` */
    struct copy_sum deleted;
    struct copy_sum held;     /* were to be deleted, and are more than half of the copy */
    struct copy_sum lost;     /* likewise, packs that the index of the original refers to: it has lost them */
    struct copy_sum changed;  /* have another length in the original than in the copy, where they are whole: kept */
    struct copy_sum left;     /* files of killed writers in the copy, removed (leftovers.h) */
    struct copy_sum extended; /* whose object locks were extended (bytes: were to be); with dry_run: would be */
    unsigned rounds;          /* more than 1: blobs vanished meanwhile */
};

/*
 * Brings the copy up to date. NULL for `to` with dry_run: there is none yet. Refused: ERR_FORMAT for a repository
 * without epochs (indexes that were replaced there would count again in the copy); ERR_EXISTS where `to` has blobs and
 * is no copy of this repository, or something else has written to it since the last run (it has diverged). ERR_BUSY:
 * blobs vanished in each of five rounds, or another process writes to the copy. ERR_DAMAGE, when
 * all else is done: blobs were changed in the original, which no client does; the copy keeps its own. Likewise when all
 * else is done: object locks that could not be extended. ERR_INTERRUPTED: stopped; the next run goes on from there.
 * Memory: 40 bytes for each blob of the copy, and a buffer of 4 MiB for each blob that is copied.
 */
int repo_copy(struct repo *from, struct blobs *to, const struct copy_opts *o, struct copy_result *ret, struct err *e);

/* Whether the store is a copy. Negative: an error. */
int copy_is_marked(struct blobs *b, struct err *e);

#endif
