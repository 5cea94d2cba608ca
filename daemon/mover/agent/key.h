/* SPDX-License-Identifier: GPL-2.0-or-later */
/* key.h - the repository's key as it is passed between movers (protocol/mover-key.h). Internal to the mover process. */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_KEY_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_KEY_H

#include "repo/format.h"

/* Reads the key received with the job. False: not a key. The descriptor is owned by the caller, who wipes *ret. */
bool key_read(struct format_key *ret, int fd);
/* The key of an open repository in sealed memory: its descriptor, or -errno. */
int key_sealed(const struct repo_format *f, struct err *e);

#endif
