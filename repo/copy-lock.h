/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copy-lock.h - one writer of a copy at a time (internal to the copy of repositories)
 *
 * There is no server that could hold a lock, and a store has no compare-and-swap. So each writer puts a blob of its
 * own, named "_snapferry.copy-lock." and its id, and then lists those of others: of two at the same time at least one
 * sees the other, and gives way. A lock is renewed every five minutes; one that was not for half an hour, by the clock
 * of the storage, or whose process is known to be dead, belongs to nobody. Stock clients ignore such blobs.
 */
#ifndef SNAPFERRY_REPO_COPY_LOCK_H
#define SNAPFERRY_REPO_COPY_LOCK_H

#include "repo/blob.h"

#define COPY_LOCK_PREFIX "_snapferry.copy-lock."

struct copy_lock;

/* `owner`: one that never writes twice at the same time, and takes over what an earlier process of its own has left;
 * NULL: this process. ERR_BUSY: another one writes. `stop` may be NULL. */
int copy_lock_take(struct copy_lock **ret, struct blobs *b, const char *owner, const _Atomic bool *stop, struct err *e);
/* Renews it when that is due; at once with `now`. ERR_BUSY: it was taken for dead, and another one may write. Any
 * thread. NULL: nothing. */
int copy_lock_keep(struct copy_lock *l, bool now, struct err *e);
/* Gives it back. */
void copy_lock_free(struct copy_lock *l);

#endif
