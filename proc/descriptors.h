/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * descriptors.h - passing data to another process: sealed memory, and descriptors over a Unix socket
 *
 * Thread-safe.
 */
#ifndef SNAPFERRY_PROC_DESCRIPTORS_H
#define SNAPFERRY_PROC_DESCRIPTORS_H

#include "base/err.h"

#include <stddef.h>
#include <sys/types.h>

#define DESCRIPTORS_MAX 8 /* with one message */

/* A memory file with these bytes, sealed against changes: its descriptor (close-on-exec, owned by the caller, offset
 * 0). `what` names it in /proc and in the error. */
int memory_sealed(const char *what, const void *data, size_t len, struct err *e);
/* The same for a program's standard input: not sealed. */
int memory_input(const char *what, const void *data, size_t len, struct err *e);
/* The same in several calls: an empty file, what is added at its end, and the seal. `what` as above. */
int memory_new(const char *what, struct err *e);
int memory_append(int fd, const char *what, const void *data, size_t len, struct err *e);
int memory_seal(int fd, const char *what, struct err *e);
/* A memory file of zeros that others may write to, and that can become neither longer nor shorter than `size` bytes:
 * memory is used for what is written. `what` and the descriptor as above. */
int memory_shared(const char *what, size_t size, struct err *e);

/*
 * sendmsg() of the bytes with `n` descriptors (at most DESCRIPTORS_MAX; they stay the caller's). `flags`: MSG_DONTWAIT
 * or 0; never a SIGPIPE. Bytes sent (of a stream maybe not all: descriptors go with the first), or -errno.
 */
ssize_t descriptors_send(int socket, const void *data, size_t len, const int *fds, unsigned n, int flags);
/*
 * recvmsg() without waiting: bytes received, 0 at the end, or -errno. Descriptors (close-on-exec) go into fds[0..n-1],
 * the rest of which become -1 and more of which are closed; `n` 0: the kernel drops them. *flags gets msg_flags
 * (MSG_TRUNC, MSG_CTRUNC); may be NULL.
 */
ssize_t descriptors_receive(int socket, void *data, size_t cap, int *fds, unsigned n, int *flags);

#endif
