/* SPDX-License-Identifier: GPL-2.0-or-later */
/* listener.h - the socket of the metrics, updated with the configuration */
#ifndef SNAPFERRY_DAEMON_METRICS_LISTENER_H
#define SNAPFERRY_DAEMON_METRICS_LISTENER_H

#include "cfg/cfg.h"
#include "daemon/metrics/exchange.h"

struct listener;
int listener_new(struct listener **ret, struct exchange *x, struct err *e);
void listener_free(struct listener *l);
/* Serves at the address of `c`, and at no other; an unchanged one is not interrupted. False: it failed, and may be
 * retried by another call. */
bool listener_apply(struct listener *l, const struct cfg_metrics *c);
/* "": nowhere. */
const char *listener_address(const struct listener *l);
/* Why metrics are not served, or not as configured; NULL: they are. */
const struct err *listener_error(const struct listener *l);

#endif
