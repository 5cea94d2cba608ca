/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control.h - RUNTIME-DIR/control.sock: requests of the command to the daemon
 *
 * Stream socket, one JSON object per line, peer checked by SO_PEERCRED: root, the daemon's own user, or a member of the
 * configured group. A request is {"id": n, "verb": "...", "args": {...}}; each answer line is {"id": n, "event": {...}}
 * (progress of a wait) or the last one {"id": n, "ok": true, "answer": {...}} / {"id": n, "ok": false, "error":
 * {"class", "code", "message", "hint"}}. A client that sends malformed or too many requests, or does not
 * read, is disconnected without effect on others: each connection has a bounded buffer and a deadline. See
 * docs/control.md for verbs and limits.
 */
#ifndef SNAPFERRY_DAEMON_CONTROL_H
#define SNAPFERRY_DAEMON_CONTROL_H

#include "daemon/engine/engine.h"

struct control;
/* Uses the listening socket of systemd (LISTEN_FDS, name "control") if it exists, else binds one. */
int control_new(struct control **ret, sd_event *loop, struct engine *g, const char *runtime_dir, const char *group,
                struct err *e);
void control_free(struct control *c);
/* Until the end of the process it is seen that a daemon is there (RUNTIME-DIR/daemon.lock), without a connection: that
 * would start one that was stopped, if the socket is systemd's. To be called before the start can take long, and before
 * anything in the runtime directory is replaced: ERR_BUSY if another daemon uses it. */
int control_announce(const char *runtime_dir, struct err *e);
/* The end of the process is near: from now on a client that waits would start the next one. */
void control_withdraw(void);
/* For a daemon that exits before control_new(): answers the connections waiting at the socket of systemd with the
 * error, so that the socket is not readable and does not start it again. Does not block. */
void control_refuse(const struct err *why);
unsigned control_clients(const struct control *c);

#endif
