/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lockdown.h - privileges that a mover drops before it works (MS-04)
 *
 * No core dumps, not dumpable, no capability in any set, no new privileges, and a seccomp filter that allows what the
 * data path needs: files, its descriptors, memory, threads, io_uring, and a Unix socket to the daemon. Everything else
 * is refused with EPERM: other address families, listening, execve, fork, ptrace, mount, bpf, module and key system
 * calls, setuid and related ones. For a repository that is reached over the network it can neither make a socket nor
 * connect one: it works with those that its dialer hands over (dialer.h). Requests of io_uring are not seen by a
 * filter: the rings are made before it and restricted to reads or to writes, no others can be made, and nothing can be
 * registered with them. Internal to the mover process.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_LOCKDOWN_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_LOCKDOWN_H

#include "base/err.h"
#include "io/rings.h"

#include <stdbool.h>
#include <stdint.h>

struct lockdown {
    uint64_t memlock; /* bytes that may be locked (registered buffers), UINT64_MAX: any */
    bool bounding;    /* the bounding set is empty as well (needs CAP_SETPCAP to do) */
};

/* While the process has one thread. `memlock_wanted`: bytes of buffers that will be registered; `rings` io_urings are
 * made for `use`; `network`: its sockets are made by a dialer. */
int lockdown(struct lockdown *ret, uint64_t memlock_wanted, unsigned rings, enum ring_use use, bool network,
             struct err *e);

/* What is locked down: a mover of a directory, one of a remote repository, the dialer of that. */
enum lockdown_of { LOCKDOWN_LOCAL, LOCKDOWN_NETWORK, LOCKDOWN_DIALER };

/* Locks down (as `user`, NULL: without a change of user), tries what must be refused, prints a line for each attempt in
 * TAP. Returns the number of attempts that were not refused, negative: the lock-down itself failed. */
int lockdown_self_test(const char *user, enum lockdown_of what, struct err *e);

#endif
