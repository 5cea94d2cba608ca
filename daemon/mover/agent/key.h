/* SPDX-License-Identifier: GPL-2.0-or-later */
/* key.h - the repository's key as it is handed on between movers (protocol/mover-key.h). Internal to the mover process.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_KEY_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_KEY_H

#include "repo/format.h"

/* Reads what came with the job. False: it is no key. The descriptor stays the caller's, who wipes *ret. */
bool key_read(struct format_key *ret, int fd);
/* The key of an open repository in sealed memory: its descriptor, or -errno. */
int key_sealed(const struct repo_format *f, struct err *e);

#endif
