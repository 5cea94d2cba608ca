/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * damaged.h - snapshots of finished backups that a check has found damaged, absent, or other than what was backed up
 *
 * Before a native snapshot is pruned another process than its mover looks at its snapshot in the repository, and
 * verifications read them. What they find is noted with the operation (operation_is_gone()) and, of one that is
 * damaged, with its repository: a problem until a later check or a verification of all finds it whole, or its record is
 * deleted. In the transaction of the caller; nothing here is of operations that are not finished.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_DAMAGED_H
#define SNAPFERRY_DAEMON_DECIDE_DAMAGED_H

#include "daemon/decide/decide.h"

/* A check has found the snapshot of this native snapshot in `repository`: as it has to be, or not (`why`: a sentence).
 * Neither changes the row. */
void damaged_found_fit(struct decide *d, const char *repository, const struct native_row *n);
void damaged_found_unfit(struct decide *d, const char *repository, const struct native_row *n, enum unfit unfit,
                         const char *why);
/* A verification has ended: its finished backups whose snapshots it has found damaged. */
void damaged_verified(struct decide *d, const struct operation *verification);
/* All contents of a repository have been read, and are whole. `affected`: of its row, which is not changed. */
void damaged_all_whole(struct decide *d, const char *repository, const struct strs *affected);
/* Retention has removed snapshots from its repository. */
void damaged_expired(struct decide *d, const struct operation *expiry);

/* Of those that are known of a repository (at most 100 are named), how many there still are. `last`, initialized: gets
 * the last one of them (NULL: not wanted). */
unsigned damaged_known(struct records *r, const struct verify_memory *m, struct operation *last);

#endif
