/* SPDX-License-Identifier: GPL-2.0-or-later */
/* endpoint.h - the daemon's metrics endpoint: the server of server.h, connected to the engine */
#ifndef SNAPFERRY_DAEMON_ENDPOINT_H
#define SNAPFERRY_DAEMON_ENDPOINT_H

#include "daemon/engine/engine.h"

struct endpoint;
/* Serves the metrics of the engine at the configured address. */
int endpoint_new(struct endpoint **ret, sd_event *loop, struct engine *g, struct err *e);
/* Another configuration is in force. */
void endpoint_configured(struct endpoint *p, struct cfg *c);
/* metrics_server_json() */
json_t *endpoint_status(const struct endpoint *p, json_t *problems);
/* The daemon stops: reported by /readyz from now on. NULL allowed. */
void endpoint_stopping(struct endpoint *p);
/* Before engine_free(). NULL allowed. */
void endpoint_free(struct endpoint *p);

#endif
