/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control.h - RUNTIME-DIR/control.sock: the command talks to the daemon
 *
 * Stream socket, one JSON object per line, peer checked by SO_PEERCRED: root, the daemon's own user, or a member of the
 * configured group. A request is {"id": n, "verb": "...", "args": {...}}; each answer line is {"id": n, "event": {...}}
 * (progress of a wait) or the last one {"id": n, "ok": true, "answer": {...}} / {"id": n, "ok": false, "error":
 * {"class", "code", "message", "hint"}}. A client that sends garbage, too much, or never reads is cut off and hurts
 * nobody else: each connection has a bounded buffer and a deadline. docs/control.md has every verb and limit.
 */
#ifndef SNAPFERRY_DAEMON_CONTROL_H
#define SNAPFERRY_DAEMON_CONTROL_H

#include "daemon/engine/engine.h"

struct control;
/* Takes a listening socket from systemd (LISTEN_FDS, name "control") where there is one, else binds it itself. */
int control_new(struct control **ret, sd_event *loop, struct engine *g, const char *runtime_dir, const char *group,
                struct err *e);
void control_free(struct control *c);
/* A daemon that ends before control_new() tells whoever waits at systemd's socket why, and so does not leave the socket
 * readable, which would start it again at once. Waits for nothing. */
void control_refuse(const struct err *why);
unsigned control_clients(const struct control *c);

#endif
