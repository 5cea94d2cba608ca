/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * adopt.h - what is left in the repository of our own sessions that died
 *
 * A pack is either finished, with its local index, or invisible. Finished ones of a dead session are not indexed (else
 * its marker and record would be gone), and other clients take no notice of them until they are collected as garbage
 * 24 hours later. So a later run may index them, as long as they are clearly younger than that.
 */
#ifndef SNAPFERRY_REPO_ADOPT_H
#define SNAPFERRY_REPO_ADOPT_H

#include "repo/repo.h"

struct dead_session;
struct dead_sessions {
    struct dead_session *all;
    size_t n;
};

/* Calls fn for each pack of a dead session of ours that is younger than 12 h by the store's clock. A pack may be
 * indexed already. */
typedef int dead_pack_fn(const struct blob_info *pack, void *arg);
int dead_sessions_find(struct dead_sessions *ret, struct repo *r, dead_pack_fn *fn, void *arg, struct err *e);
/* Deletes their markers and records: everything of use is indexed. A marker that cannot be deleted is logged and left
 * to a later run. */
void dead_sessions_clear(struct dead_sessions *d, struct repo *r);
/* Lets go of them: a later run will try again. */
void dead_sessions_leave(struct dead_sessions *d);

#endif
