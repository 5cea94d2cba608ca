/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tree-ahead.h - snapshots visited one after the other, what they are made of read ahead
 *
 * Who walks all snapshots reads a directory and an index document of each: over a network two requests one after the
 * other. Snapshots are visited in the order in which they were added, but not until CONTENT_AHEAD_ITEMS more were, and
 * meanwhile the directories and index documents of these are read (content-ahead.h). Of a store of files each is
 * visited at once. Which snapshots are visited, what is found and what fails does not depend on what was read ahead.
 */
#ifndef SNAPFERRY_REPO_TREE_AHEAD_H
#define SNAPFERRY_REPO_TREE_AHEAD_H

#include "repo/snapshot.h"

struct tree_ahead;

/* Visits one, which is cleared afterwards. `ahead` is for dir_each_ahead() and the like; NULL: nothing is read ahead.
 * Not 0: no other one is visited. */
typedef int tree_visit_fn(struct snapshot *s, struct content_ahead *ahead, void *arg);

/* `r` and `arg` are borrowed. For `memory` see content_ahead_new(). */
int tree_ahead_new(struct tree_ahead **ret, struct repo *r, size_t memory, tree_visit_fn *visit, void *arg,
                   struct err *e);
void tree_ahead_free(struct tree_ahead *t);
static inline void tree_ahead_freep(struct tree_ahead **t)
{
    tree_ahead_free(*t);
}
/* One more; its members may be moved. `known`: nothing is to be read ahead for it. Returns what a visit returned that
 * was not 0; else 0. */
int tree_ahead_add(struct tree_ahead *t, struct snapshot *s, bool known);
/* Visits those that are left, also where the walk that adds them failed with rc and *e, where visits leave theirs: what
 * is wrong with them comes first. Returns what a visit returned that was not 0; else rc. */
int tree_ahead_end(struct tree_ahead *t, int rc, struct err *e);

#endif
