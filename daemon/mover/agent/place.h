/* SPDX-License-Identifier: GPL-2.0-or-later */
/* place.h - the stores of a job, of its repository and of a copy: a directory, or a bucket whose keys the daemon hands
 * over (internal to the mover process) */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_PLACE_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_PLACE_H

#include "daemon/mover/agent/dialer.h"
#include "daemon/mover/agent/job.h"
#include "daemon/mover/agent/link.h"
#include "repo/blob.h"

/* Where the stores of a job are reached over the network, for its dialer: how many there are, at most
 * 2 * S3_TARGETS_MAX. */
unsigned place_targets(const struct job *j, struct s3_target *ret);

/*
 * `credentials`: the descriptor that came with the job, -1: none; the caller's. Keys that the server refuses later are
 * renewed over `link`, which must outlive the store, as must the
 * dialer, which makes its connections. Errors as of store_open(); ERR_USAGE: the keys are malformed.
 */
int place_open(struct blobs **ret, const struct job *j, int credentials, struct link *link, struct dialer *dialer,
               struct err *e);
/* The store to which the repository is copied, likewise. An empty directory, which has to exist, is prepared; where a
 * copy is expected nothing is. */
int place_open_copy(struct blobs **ret, const struct job *j, int credentials, struct link *link, struct dialer *dialer,
                    struct err *e);

/* An error of the network, or of a server that is busy, becomes that of a repository that is not available (it is
 * waited for); others stay. */
void place_unavailable(const struct job *j, struct err *e);

#endif
