/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lockdown.h - privileges that a mover drops before it works (MS-04)
 *
 * No core dumps, not dumpable, no capability in any set, no new privileges, and a seccomp filter that allows what the
 * data path needs: files, its descriptors, memory, threads, io_uring, Unix sockets, and, for a repository that is
 * reached over the network, connections by TCP and UDP (the name service). Everything else is refused with EPERM: other
 * address families, listening, execve, fork, ptrace, mount, bpf, module and key system calls, setuid and related
 * ones. Requests of io_uring are not seen by a filter: the rings are made before it and restricted to reads or to
 * writes, no others can be made, and nothing can be registered with them. Internal to the mover process.
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
 * made for `use`; `network`: it may connect to hosts. */
int lockdown(struct lockdown *ret, uint64_t memlock_wanted, unsigned rings, enum ring_use use, bool network,
             struct err *e);

/* Locks down (as `user`, NULL: without a change of user; with `network` as for a remote repository), tries what must be
 * refused, prints a line for each attempt in TAP. Returns the number of attempts that were not refused, negative: the
 * lock-down itself failed. */
int lockdown_self_test(const char *user, bool network, struct err *e);

#endif
