/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * service.h - what the service manager and the journal are told of this daemon (sd_notify(3),
 * systemd.journal-fields(7))
 *
 * Without a manager (NOTIFY_SOCKET, JOURNAL_STREAM are not set) nothing is said.
 */
#ifndef SNAPFERRY_DAEMON_SERVICE_H
#define SNAPFERRY_DAEMON_SERVICE_H

#include "daemon/engine/engine.h"

struct service;
/* READY=1, and from then on a STATUS= line (engine_headline) whenever it changes; looked at each second. */
int service_new(struct service **ret, sd_event *loop, struct engine *g, struct err *e);
void service_free(struct service *s);

/* Whether standard error is the journal (JOURNAL_STREAM names it). */
bool service_has_journal(void);
/*
 * One line into the journal. A line that begins with the id of an operation or backup ("ID: text") gets the field
 * OPERATION= or BACKUP=, as the lines of movers have it, so that `snapferry logs ID` and `journalctl OPERATION=ID` show
 * what the daemon did about it, too. Negative if the journal does not take it.
 */
int service_log(enum log_level lvl, const char *line);

#endif
