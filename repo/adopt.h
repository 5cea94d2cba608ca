/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * adopt.h - what crashed sessions of this node left in the repository
 *
 * A pack is either finished, with its local index, or invisible. Finished packs of a crashed session are not indexed
 * (else its marker and record would have been deleted), and other clients ignore them until they are collected as
 * garbage 24 hours later. A later run may index them while they are clearly younger than that.
 */
#ifndef SNAPFERRY_REPO_ADOPT_H
#define SNAPFERRY_REPO_ADOPT_H

#include "repo/repo.h"

struct dead_session;
struct dead_sessions {
    struct dead_session *all;
    size_t n;
};

/* Calls fn for each pack of a crashed session of this node that is younger than 12 h by the store's clock. A pack
 * may be indexed already. It returns 0; 1: not all of the pack can be used; or an error. */
typedef int dead_pack_fn(const struct blob_info *pack, void *arg);
int dead_sessions_find(struct dead_sessions *ret, struct repo *r, dead_pack_fn *fn, void *arg, struct err *e);
/* Deletes their markers and records: all usable packs are indexed. The markers of a session with packs that are too old
 * to be used, or not used in whole, stay: without one those would look like packs whose index was lost. A marker that
 * cannot be deleted is logged and left to a later run. */
void dead_sessions_clear(struct dead_sessions *d, struct repo *r);
/* Releases them without changes: a later run tries again. */
void dead_sessions_leave(struct dead_sessions *d);

#endif
