/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * http.h - one listening socket and the thread that serves it
 *
 * libmicrohttpd reads the requests in a thread of its own. That thread never logs and asks no name service: the daemon
 * forks, and a child must find no lock held that it needs.
 */
#ifndef SNAPFERRY_DAEMON_METRICS_HTTP_H
#define SNAPFERRY_DAEMON_METRICS_HTTP_H

#include "daemon/metrics/exchange.h"

#define HTTP_CONNECTIONS 48 /* of one listener; a further one ends the one that is idle or unfinished longest */

struct http;
/* `listening` does not block and stays the caller's; after http_stop() nobody can connect to it. */
int http_start(struct http **ret, struct exchange *x, int listening, struct err *e);
/* Ends the connections and the thread. A thread that waits for the loop (exchange.h) is waited for: half a second. */
void http_stop(struct http *h);

#endif
