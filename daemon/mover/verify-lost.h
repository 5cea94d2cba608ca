/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verify-lost.h - packs that no index has although no session is writing them: an index blob was lost (internal to the
 * mover)
 */
#ifndef SNAPFERRY_DAEMON_MOVER_VERIFY_LOST_H
#define SNAPFERRY_DAEMON_MOVER_VERIFY_LOST_H

#include "daemon/mover/mapped.h"
#include "repo/repo.h"

/* A flag of pack_record.damage: the index has contents in this pack. */
#define PACK_INDEXED 4u

/*
 * Calls fn for each pack of the store that is in `packs` without PACK_INDEXED, belongs to no session and has a content
 * that no index knows. The index is read again before that is said. Of a marked copy none is: its index comes last.
 * `packs` is indexed. One thread. 0, or the error of the store, the cache directory or memory.
 */
typedef void lost_pack_fn(const char *pack, void *arg);
int lost_packs_each(struct repo *r, struct pack_table *packs, lost_pack_fn *fn, void *arg, struct err *e);

#endif
