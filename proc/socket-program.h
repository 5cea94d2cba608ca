/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * socket-program.h - a program that serves the other end of a socket, and ends by itself when that is closed
 *
 * It outlives its caller: the socket is handed to a process that uses it. Under systemd it runs in a transient unit of
 * its own, elsewhere in a session of its own.
 */
#ifndef SNAPFERRY_PROC_SOCKET_PROGRAM_H
#define SNAPFERRY_PROC_SOCKET_PROGRAM_H

#include "proc/program.h"

#include <stddef.h>

/*
 * Starts p->argv (label, env and timeout_s are those of program_run(), the rest is not used) with one end of a socket
 * as its standard input, and waits for a line on its standard output, or the end of that, at most p->timeout_s. The
 * line comes back in `said`, cut to `size`, without its end; "": it has ended without one. Whether it means success is
 * the caller's to know. *socket: the other end, owned by the caller.
 */
int socket_program_start(const struct program *p, int *socket, char *said, size_t size, struct err *e);

#endif
