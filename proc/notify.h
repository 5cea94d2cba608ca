/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * notify.h - messages to the service manager (sd_notify(3))
 *
 * Each function does nothing where NOTIFY_SOCKET is not set. Not thread-safe: one thread, the event loop's.
 */
#ifndef SNAPFERRY_PROC_NOTIFY_H
#define SNAPFERRY_PROC_NOTIFY_H

#include "base/err.h"

/* READY=1: the start, or a reload, has ended. */
void notify_ready(void);
/* RELOADING=1 with its time, as Type=notify-reload requires; notify_ready() ends it, with either outcome. */
void notify_reloading(void);
void notify_stopping(const char *status);
/* STATUS=, one line; control characters are replaced by spaces. */
void notify_status(const char *line);
/* The reason for the daemon's exit: STATUS= remains visible in `systemctl status` of the failed unit. */
void notify_failed(const struct err *e);

#endif
