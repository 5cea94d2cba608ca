/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * claim.h - a restore target for oneself alone
 *
 * All functions set ERR_TARGET with what uses the target, and are thread-safe.
 */
#ifndef SNAPFERRY_IO_CLAIM_H
#define SNAPFERRY_IO_CLAIM_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/stat.h>

/*
 * Claims an open restore target: locks it (flock(2), held until the last duplicate of `fd` is closed), and refuses what
 * is in use as in_use() finds it unless `force` (EBUSY), and always a loop device over a blob (EINVAL). ERR_TARGET.
 */
int claim_target(int fd, const char *path, bool force, struct err *e);
/* Sets the error for a device that the kernel refused to open exclusively. Returns -EBUSY. */
int claim_refused(const char *path, const struct stat *st, struct err *e);
/* Refuses the path of a file in the directory of a repository, and among the devices of /dev: ERR_TARGET. */
int claim_place_of_file(const char *path, struct err *e);

#endif
