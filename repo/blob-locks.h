/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob-locks.h - object locks of what a repository consists of are extended (Kopia repository format, sections 2.3
 * and 14.6)
 *
 * A request for each blob, some at a time. What was put within the last minute, or meanwhile, is left alone: it is
 * locked for a whole period.
 */
#ifndef SNAPFERRY_REPO_BLOB_LOCKS_H
#define SNAPFERRY_REPO_BLOB_LOCKS_H

#include "repo/blob.h"

/* Whether blobs of this name are locked when they are put, where the repository has a retention: those that stock
 * clients lock, what a repository consists of, and not what is soon deleted. */
bool blob_is_locked(const char *name);

struct extend_opts {
    struct blobs *blobs; /* blobs_retain() has set for how long */
    int64_t now_ns;      /* by the storage's clock, at the start of the run */
    bool dry_run;
    bool (*wanted)(const char *name, void *arg); /* NULL: all of them */
    int (*go_on)(void *arg, struct err *e);      /* asked before each blob, by several threads at a time */
    void *arg;
};

struct extended {
    uint64_t n;      /* were extended; with dry_run: would be */
    uint64_t bytes;  /* of those that were to be */
    uint64_t failed; /* the others were tried all the same; why: */
    struct err why;
};

/* An error is one of go_on(), of a list or a cancel. Memory: the names of 1000 blobs. */
int blob_locks_extend(const struct extend_opts *o, struct extended *ret, struct err *e);
/* 0, or as an error that some could not be extended. */
int blob_locks_failed(const struct extended *r, struct err *e);

#endif
