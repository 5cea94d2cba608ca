/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tombstones.h - marks contents deleted in the index (Kopia repository format, sections 7.4 and 14.5)
 *
 * A tombstone is a copy of the content's entry with a later time. It carries the time of the view of the index in which
 * the content was judged, so that an entry that another client writes after that takes precedence, also if it becomes
 * visible before the tombstone does. Entries are published in batches; memory is bounded by one batch.
 */
#ifndef SNAPFERRY_REPO_TOMBSTONES_H
#define SNAPFERRY_REPO_TOMBSTONES_H

#include "repo/repo.h"

struct tombstones;
int tombstones_new(struct tombstones **ret, struct repo *r, struct err *e);
/* Those that were not flushed are discarded. */
void tombstones_free(struct tombstones *t);
static inline void tombstones_freep(struct tombstones **t)
{
    tombstones_free(*t);
}
/* `entry` is the winner of the current view, not deleted; ids in ascending order. May flush. */
int tombstones_add(struct tombstones *t, const struct index_entry *entry, struct err *e);
/* Publishes what was added. Entries that have changed meanwhile are left alone. */
int tombstones_flush(struct tombstones *t, struct err *e);
/* Published so far: contents and their stored bytes. */
uint64_t tombstones_count(const struct tombstones *t, uint64_t *bytes);

#endif
