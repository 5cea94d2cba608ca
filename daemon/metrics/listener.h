/* SPDX-License-Identifier: GPL-2.0-or-later */
/* listener.h - the socket that metrics are served at, kept in step with the configuration */
#ifndef SNAPFERRY_DAEMON_METRICS_LISTENER_H
#define SNAPFERRY_DAEMON_METRICS_LISTENER_H

#include "cfg/cfg.h"
#include "daemon/metrics/exchange.h"

struct listener;
int listener_new(struct listener **ret, struct exchange *x, struct err *e);
void listener_free(struct listener *l);
/* Serves where `c` has it, and nowhere else; one that is served there already goes on undisturbed. False: it failed,
 * and may be tried again by another call. */
bool listener_apply(struct listener *l, const struct cfg_metrics *c);
/* "": nowhere. */
const char *listener_address(const struct listener *l);
/* Why it is not served there, or not as configured; NULL: it is. */
const struct err *listener_error(const struct listener *l);

#endif
