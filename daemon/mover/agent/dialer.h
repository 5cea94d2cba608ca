/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dialer.h - the small process that makes the connections of a mover whose repository is reached over the network
 *
 * A mover parses what others have stored. So that one that was taken over cannot reach the network, its filter refuses
 * sockets and connect(); it asks its dialer, a child that was forked before the mover had any key, and which connects
 * to the places of the job and nowhere else: the endpoints, the proxies of the environment, and the socket of the
 * daemon. The dialer resolves names, hands over connected sockets, and never reads from one of them. It has a filter of
 * its own (lockdown-dialer.h) and ends with the mover, however that ends.
 *
 * Internal to the mover process.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_DIALER_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_DIALER_H

#include "base/err.h"
#include "repo/blob-s3.h"

#include <sys/types.h>

struct dialer;

/* Forks it, while the process has one thread and no secret, and waits until it is locked down. `targets` (copied), at
 * most 2 * S3_TARGETS_MAX, and `daemon`, the path of the daemon's socket, are where it connects to. Errors:
 * ERR_GENERIC, ERR_PERMISSION. */
int dialer_start(struct dialer **ret, const struct s3_target *targets, unsigned n, const char *daemon, struct err *e);
/* Ends it, and waits for that. NULL is allowed; no connection is being made. */
void dialer_end(struct dialer *d);

/* A connection to one of its targets, as s3_dial.dial is specified: `dialer` is a struct dialer. -EPERM: another place.
 * -EPIPE: the dialer has ended. Any thread. */
int dialer_connect(void *dialer, const struct s3_target *to, int64_t until_ns, bool (*given_up)(void *),
                   void *given_up_arg, char why[256]);
/* A connection to the daemon's socket: the descriptor (close-on-exec, non-blocking, the caller's) or -errno. Any
 * thread. */
int dialer_connect_daemon(void *dialer);

/* For tests: its process. */
pid_t dialer_pid_for_test(const struct dialer *d);

#endif
