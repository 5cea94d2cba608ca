/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lockdown-dialer.h - privileges that the dialer of a mover drops (MS-04)
 *
 * As a mover, and its own filter: sockets of TCP, UDP and Unix, connections from them, never to them; files only for
 * reading, no directory; threads, memory, time. Where the kernel has Landlock, it reads only where the name service has
 * its files: /etc, libraries, and where /etc/resolv.conf leads to. Internal to the mover process.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_LOCKDOWN_DIALER_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_LOCKDOWN_DIALER_H

#include "base/err.h"

#include <stdbool.h>

/* While the process has one thread. ERR_PERMISSION. */
int lockdown_dialer(struct err *e);
/* Whether this kernel can limit which files are read. */
bool lockdown_files_limited(void);

#endif
