/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qmp.h - a connection to the QMP socket of QEMU, and to its guest agent (internal to io/native)
 *
 * Format: https://www.qemu.org/docs/master/interop/qmp-spec.html. A command at a time; each wait is bounded. A monitor
 * has one client: while another one is connected there is no greeting, and the connection fails (ERR_BUSY) after
 * QMP_GREETING_S. An answer that is not of the protocol ends the connection: every later call fails.
 */
#ifndef SNAPFERRY_IO_NATIVE_QMP_H
#define SNAPFERRY_IO_NATIVE_QMP_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define QMP_GREETING_S 20
#define QMP_ANSWER_S 45
#define QMP_ANSWER_MAX ((size_t)64 << 20)

struct qmp;

/* ERR_NOT_FOUND: nobody listens there, the machine is off. ERR_BUSY, ERR_PERMISSION, ERR_SOURCE; ERR_USAGE: QEMU is
 * older than 7.1. */
int qmp_open(struct qmp **ret, const char *path, struct err *e);
void qmp_free(struct qmp *q); /* NULL allowed */
static inline void qmp_freep(struct qmp **q)
{
    qmp_free(*q);
}
/* The process at the other end; 0: unknown. */
pid_t qmp_peer(const struct qmp *q);
/* First number of the version of QEMU. */
int qmp_major(const struct qmp *q);

/* One command. `args` is taken over, NULL: none. *ret (may be NULL) is the caller's: what it returned. `fd` is passed
 * with it; -1: none. -EREMOTEIO and ERR_SOURCE with QEMU's reason if it is refused. */
int qmp_call(struct qmp *q, const char *command, json_t *args, int fd, json_t **ret, struct err *e);

/* ---- the guest agent ---- */

/* A connection that has answered guest-sync-delimited, within AGENT_SYNC_S. Errors as above; ERR_SOURCE, ETIMEDOUT: no
 * agent answers. */
#define AGENT_SYNC_S 5
int agent_open(struct qmp **ret, const char *path, struct err *e);
/* Takes a connected socket, over which agent_open() has spoken. */
int agent_adopt(struct qmp **ret, int fd, struct err *e);
/* Its descriptor, borrowed. */
int agent_fd(const struct qmp *q);
/* A command without arguments that returns a number, within `seconds`. */
int agent_call(struct qmp *q, const char *command, unsigned seconds, json_int_t *ret, struct err *e);

/* For tests: takes a connected socket, at the other end of which there is no QEMU; waits are `seconds` long. */
int qmp_open_test(struct qmp **ret, int fd, unsigned seconds, struct err *e);

#endif
