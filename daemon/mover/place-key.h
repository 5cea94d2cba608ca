/* SPDX-License-Identifier: GPL-2.0-or-later */
/* place-key.h - names of the targets of restores that are the same after a reboot (internal to the mover) */
#ifndef SNAPFERRY_DAEMON_MOVER_PLACE_KEY_H
#define SNAPFERRY_DAEMON_MOVER_PLACE_KEY_H

#include <stddef.h>
#include <sys/stat.h>

/* Of a file, device or export (S_ISSOCK): a name for files about it. `fd`: it, or -1. 80 bytes suffice. */
void place_key(const char *name, int fd, const struct stat *st, char *ret, size_t cap);

#endif
