/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * link.h - a mover's connection to the daemon: hints only, never blocking the work
 *
 * Before GO the connection is used by one thread, step by step. Then link_detach() passes it to a thread of its own,
 * which sends posted messages and the progress once a second, receives CANCEL, and reconnects when the connection
 * breaks. Nothing here ever blocks the work or its end. Internal to the mover process.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_LINK_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_LINK_H

#include "daemon/mover/mover.h"
#include "daemon/protocol/mover-wire.h"

#include <jansson.h>

struct link;

/* Connects and sends HELLO. Retries for a few seconds while nothing listens. */
int link_dial(struct link **ret, const char *socket, const char *operation, struct mover_cancel *cancel, struct err *e);
void link_free(struct link *l);
static inline void link_freep(struct link **l)
{
    link_free(*l);
}

/* One message within `seconds`: its descriptors (-1 where there is none) belong to the caller. -ETIMEDOUT; -EPIPE:
 * the daemon closed the connection; -ECANCELED: terminated by a signal. New reference in *msg. */
int link_receive(struct link *l, unsigned seconds, json_t **msg, int fds[WIRE_FDS_MAX], struct err *e);
/* {"type": type, "operation":, "seq":} + members (stolen, may be NULL), within a second. */
int link_send(struct link *l, const char *type, json_t *members, struct err *e);

/* Before link_detach(): it connects again by this, which returns a connected socket (close-on-exec, non-blocking, taken
 * over) or -errno, in a process that may not connect. `arg` must outlive the link. */
void link_connect_by(struct link *l, int (*make)(void *), void *arg);
/* From here on the connection belongs to the thread. `progress` is sampled, `cancel` set. */
int link_detach(struct link *l, struct mover_progress *progress, struct err *e);
/* Queues a message; the oldest LOG is dropped when the queue is full. Any thread, also before link_detach(). Takes
 * the reference. */
void link_post(struct link *l, const char *type, json_t *members);
/* The same with a descriptor, which is taken over. */
void link_post_fd(struct link *l, const char *type, json_t *members, int fd);
/* Requests the credentials of now (`copy`: those of the copy's store), and waits at most `seconds` for the daemon,
 * which may be restarting: their descriptor (sealed, the caller's). -ENOENT: it has none; -ETIMEDOUT; -ECANCELED. Any
 * thread, after link_detach(). */
int link_renew(struct link *l, bool copy, unsigned seconds);
/* Tries to deliver what is queued for at most `ms`, then ends the thread and closes. */
void link_finish(struct link *l, unsigned ms);

#endif
