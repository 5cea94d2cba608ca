/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * link.h - a mover's connection to the daemon: hints only, never in the way of the work
 *
 * Before "go" the connection is used by one thread, step by step. Then link_detach() gives it to a thread of its own,
 * which sends what is posted and the progress once a second, hears CANCEL, and dials again when the connection breaks.
 * Nothing here ever blocks the work or its end. Internal to the mover process.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_LINK_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_LINK_H

#include "daemon/mover/mover.h"
#include "daemon/protocol/mover-wire.h"

#include <jansson.h>

struct link;

/* Connects and says HELLO. Tries again for a few seconds while nobody listens. */
int link_dial(struct link **ret, const char *socket, const char *operation, struct mover_cancel *cancel, struct err *e);
void link_free(struct link *l);
static inline void link_freep(struct link **l)
{
    link_free(*l);
}

/* One message within `seconds`: its descriptors (-1 where there is none) belong to the caller. -ETIMEDOUT; -EPIPE: the
 * daemon closed the connection; -ECANCELED: a signal asked for the end. New reference in *msg. */
int link_receive(struct link *l, unsigned seconds, json_t **msg, int fds[WIRE_FDS_MAX], struct err *e);
/* {"type": type, "operation":, "seq":} + members (stolen, may be NULL), within a second. */
int link_send(struct link *l, const char *type, json_t *members, struct err *e);

/* From here on the thread has it. `progress` is sampled, `cancel` set. */
int link_detach(struct link *l, struct mover_progress *progress, struct err *e);
/* Queues a message; the oldest LOG goes when the queue is full. Any thread, also before link_detach(). Steals. */
void link_post(struct link *l, const char *type, json_t *members);
/* The same with a descriptor, which is taken over. */
void link_post_fd(struct link *l, const char *type, json_t *members, int fd);
/* Tries to deliver what is queued for at most `ms`, then ends the thread and closes. */
void link_finish(struct link *l, unsigned ms);

#endif
