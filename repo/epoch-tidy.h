/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * epoch-tidy.h - what maintenance does with index blobs: epochs advanced and compacted, superseded blobs deleted (Kopia
 * repository format, sections 9.5 to 9.8)
 */
#ifndef SNAPFERRY_REPO_EPOCH_TIDY_H
#define SNAPFERRY_REPO_EPOCH_TIDY_H

#include "repo/repo.h"

/* A listing of all blobs whose name begins with x, and what follows from it. */
struct epoch_listing {
    struct blob_info *b; /* sorted by name */
    size_t n;
    int64_t write_epoch, watermark; /* as in struct epoch_state */
    int64_t first;                  /* epoch: those before it are in ranges */
    struct epoch_at *at;            /* its xn and xs blobs, by epoch and name */
    size_t n_at;
};
struct epoch_at {
    int64_t epoch;
    size_t i; /* of `b` */
};
/* Takes the list over (malloc()ed), in any order. -ENOMEM. */
int epoch_listing_make(struct epoch_listing *ret, struct blob_info *b, size_t n, struct err *e);
void epoch_listing_clear(struct epoch_listing *l);

/* The decisions. Pure. Lists of blobs are malloc()ed; 0 blobs: nothing to do. */
/* The first epoch, from `from` on and before the write epoch, of which no index blobs are left: its number, -1 if there
 * is none. An epoch that has none does not advance (section 9.5), and what is deleted is in a compacted set: blobs were
 * lost. */
int64_t epoch_missing(const struct epoch_listing *l, int64_t from, struct err *e);
bool epoch_advance_due(const struct epoch_listing *l, const struct epoch_params *p);
/* The first settled epoch without a compacted set: its number, -1 if there is none. */
int64_t epoch_single_due(const struct epoch_listing *l, struct blob_info **ret, size_t *n, struct err *e);
/* The last epoch of the range that is to be compacted and begins at l->first, -1 if there is none. */
int64_t epoch_range_due(const struct epoch_listing *l, const struct epoch_params *p, struct blob_info **ret, size_t *n,
                        struct err *e);
/* Markers of epochs and watermarks that nobody needs. */
int epoch_old_markers(const struct epoch_listing *l, const struct epoch_params *p, struct blob_info **ret, size_t *n,
                      struct err *e);
/* Index blobs whose epoch was compacted long enough ago. */
int epoch_superseded(const struct epoch_listing *l, const struct epoch_params *p, struct blob_info **ret, size_t *n,
                     struct err *e);

/* ---- on a repository ---- */

struct epoch_tidied {
    uint64_t compacted;         /* epochs */
    bool advanced, ranged;      /* the write epoch; a range of epochs was compacted */
    int64_t write_epoch;        /* afterwards */
    uint64_t markers;           /* deleted */
    uint64_t superseded, bytes; /* index blobs deleted */
};
/* Compacting is refused with ERR_NO_SPACE before anything is written where its result does not fit. */
/* Each does one task, and adds to *ret. `dry_run`: only counts. Compacted sets are compared with what they replace
 * before they become visible, and superseded blobs with the set in the store before they are deleted. */
/* Where lists may lag (blobs_lists_lag()), all of these and the next compare their lists with what this node has seen
 * of the index: -EAGAIN (ERR_GENERIC), one that is there is not listed. */
/* ERR_DAMAGE: all index blobs of an epoch are lost. Where lists may lag the view is refreshed until it has all that is
 * listed. */
int tidy_check(struct repo *r, struct err *e);
int tidy_single_epochs(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e);
int tidy_advance(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e);
int tidy_range(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e);
int tidy_markers(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e);
int tidy_superseded(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e);

#endif
