/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * http.h - one listening socket and the thread that serves it
 *
 * libmicrohttpd reads the requests in a thread of its own. That thread never logs and uses no name service: the daemon
 * forks, and a child must not find a lock held that it needs.
 */
#ifndef SNAPFERRY_DAEMON_METRICS_HTTP_H
#define SNAPFERRY_DAEMON_METRICS_HTTP_H

#include "daemon/metrics/exchange.h"

#define HTTP_CONNECTIONS 48 /* of one listener; a further one closes the one that is idle or unfinished longest */

struct http;
/* `listening` is non-blocking and owned by the caller; after http_stop() new connections are impossible. */
int http_start(struct http **ret, struct exchange *x, int listening, struct err *e);
/* Closes the connections and ends the thread. Waits for a thread that waits for the loop (exchange.h): half a
 * second. */
void http_stop(struct http *h);

#endif
