/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * listener.h - the sockets that metrics are served at, kept in step with the configuration
 *
 * A change of certificate or users replaces the thread behind a socket that stays open; an address that cannot be bound
 * has an error and is tried again with the next listeners_apply().
 */
#ifndef SNAPFERRY_DAEMON_METRICS_LISTENER_H
#define SNAPFERRY_DAEMON_METRICS_LISTENER_H

#include "cfg/cfg.h"
#include "daemon/metrics/exchange.h"

#include <jansson.h>

struct listeners;
/* Finds the sockets that systemd passed under the name "metrics" (in place of the configured addresses). */
int listeners_new(struct listeners **ret, struct exchange *x, struct err *e);
void listeners_free(struct listeners *l);
/* Makes it so; what is as it should be goes on undisturbed. Returns how many addresses have an error. */
unsigned listeners_apply(struct listeners *l, const struct cfg_metrics *c);
/* [{"address", "tls", "users", "passed", "error": text or null}] (new reference) */
json_t *listeners_json(const struct listeners *l);

#endif
