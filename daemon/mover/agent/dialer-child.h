/* SPDX-License-Identifier: GPL-2.0-or-later */
/* dialer-child.h - what a mover and its dialer say to each other, and the life of the dialer (internal to dialer.h) */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_DIALER_CHILD_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_DIALER_CHILD_H

#include "repo/blob-s3.h"

#include <sys/types.h>

#define DIALER_TARGETS_MAX (2 * S3_TARGETS_MAX) /* of a repository and a copy */
#define DIALER_DAEMON DIALER_TARGETS_MAX        /* the target that is the daemon's socket */

/* A request, with a socket for its answer: that it is closed means that the connection is not wanted any more. */
struct dialer_request {
    int64_t until_ns;
    uint32_t target;
};

/* The answer: with the connection if sys is 0. The first message of the dialer is one, too: it is ready. */
struct dialer_answer {
    int32_t sys;
    char why[256];
};

/* Where it may connect to. */
struct dialer_places {
    struct s3_target targets[DIALER_TARGETS_MAX];
    unsigned n;
    char daemon[108]; /* path of its socket */
};

/* The child's life; `parent` is the process that has forked it. */
void dialer_run(int channel, pid_t parent, const struct dialer_places *p) __attribute__((noreturn));

#endif
