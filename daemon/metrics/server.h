/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * server.h - the endpoint: makes pages of the engine's samples, serves them and writes the text file
 *
 * Owned by the event loop. A failure here (a port in use, a missing directory) is a problem in `status`, not a reason
 * for the daemon to exit.
 */
#ifndef SNAPFERRY_DAEMON_METRICS_SERVER_H
#define SNAPFERRY_DAEMON_METRICS_SERVER_H

#include "cfg/cfg.h"

#include <jansson.h>
#include <systemd/sd-event.h>

/* Called from the loop. */
struct metrics_source {
    json_t *(*samples)(void *arg); /* {"samples": [...]}, new reference */
    bool (*ready)(char *why, size_t cap, void *arg);
    void *arg;
};

struct metrics_server;
int metrics_server_new(struct metrics_server **ret, sd_event *loop, const struct metrics_source *source, struct cfg *c,
                       struct err *e);
/* Another configuration is in force. */
void metrics_server_apply(struct metrics_server *s, struct cfg *c);
/* {"listen": [{"address", "error"}] (one or none), "textfile": {"path", "written_ns", "error"} or null}
 * (new reference); {"severity", "text", "hint"} of each of its problems is added to the list `problems`. */
json_t *metrics_server_json(const struct metrics_server *s, json_t *problems);
/* /readyz fails from now on; `why` is part of a sentence. */
void metrics_server_stopping(struct metrics_server *s, const char *why);
void metrics_server_free(struct metrics_server *s);

#endif
