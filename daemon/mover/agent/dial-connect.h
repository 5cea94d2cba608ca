/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dial-connect.h - a connection over TCP, to a name or to any of several addresses (internal to the mover process)
 *
 * Thread-safe. All wait until the monotonic time `until_ns`, and no longer than the other end of `wanted`, a socket, is
 * open (-1: nobody gives up). They return a connected socket, non-blocking and close-on-exec, the caller's, or -errno
 * and the reason in `why`: -ETIMEDOUT, -ECANCELED (given up), and the error of the first address that refused.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_DIAL_CONNECT_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_DIAL_CONNECT_H

#include "repo/blob-s3.h"

struct addrinfo;

/* Resolves the name, which takes as long as the name service takes, and connects: -ENOENT, it has no address. */
int dial_host(const struct s3_target *to, int64_t until_ns, int wanted, char why[256]);
/* The addresses in their order, each a quarter of a second after the one before, or as soon as that has failed: the
 * first that answers is taken. `to` words errors. */
int dial_addresses(const struct addrinfo *list, const struct s3_target *to, int64_t until_ns, int wanted,
                   char why[256]);

#endif
