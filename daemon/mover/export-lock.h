/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * export-lock.h - one restore at a time onto an NBD export
 *
 * An export cannot be claimed at its server. At least no other restore with this cache directory writes to it.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_EXPORT_LOCK_H
#define SNAPFERRY_DAEMON_MOVER_EXPORT_LOCK_H

#include "base/err.h"

struct export_lock {
    char path[4410];
    int fd; /* -1: not held */
};

/* `state_file` is that of a restore to the export `name`. ERR_TARGET (-EBUSY): another restore has it. */
int export_claim(struct export_lock *lock, const char *state_file, const char *name, struct err *e);
void export_release(struct export_lock *lock); /* also of one that is not held */

#endif
